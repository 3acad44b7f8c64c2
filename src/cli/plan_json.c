/* The plan as one JSON object. */
#include "cli/plan_report.h"
#include "cli/exact_report.h"
#include "cli/left_plain.h"
#include "cli/report.h"
#include "pack/plan/file/config.h"

static void put_output(struct tp_writer *w, const struct tp_plan *plan,
                       const struct tp_output *output)
{
    tp_object(w, NULL, tp_str("name", output->name), tp_str("dtype", tp_dtype_name(output->dtype)),
              tp_numbers("shape", output->shape, output->rank), tp_num("bytes", output->bytes),
              tp_str("file", plan->files[output->file].name), tp_num("offset", output->offset));
}

/* How its scales are searched, or why they are not. */
static void put_search(struct tp_writer *w, const struct tp_unit_form *form)
{
    enum tp_search search = tp_op_search(&form->op);
    bool searched = form->format && search != TP_SEARCH_NONE;
    char text[TP_SEARCH_NOTE];
    const char *note = tp_search_note(form, text);
    tp_write(w, tp_if(note, tp_str("search_note", note)));
    if (searched)
        tp_write(w, tp_str("search", tp_search_name(search)),
                 tp_str("signed", form->op.search_signed ? "yes" : "no"),
                 tp_str("importance", tp_importance_word(form->op.importance)),
                 tp_if(form->op.rank, tp_num("feedback_rank", form->op.rank)),
                 tp_if(form->unweighted,
                       tp_str("search_note", "the file has no importance for it")));
}

static void put_unit(struct tp_writer *w, size_t u, const void *of)
{
    const struct tp_plan *plan = of;
    const struct tp_unit *unit = &plan->units[u];
    const struct tp_unit_form *form = unit->form;
    const struct tp_weight *weight = &plan->weights->items[unit->views[0].weight];
    char source[128];
    tp_begin(w, NULL, '{');
    tp_write(w, tp_str("name", unit->name), tp_box("box", &form->box),
             tp_num("rank", (uint64_t)form->rank), tp_str("dtype", tp_dtype_name(form->original)));
    tp_begin(w, "outputs", '[');
    for (uint32_t i = 0; i < form->outs; i++)
        put_output(w, plan, &plan->outputs[unit->output[i]]);
    tp_end(w, ']');
    tp_write(w, tp_str("source", tp_weight_source(weight, source, sizeof source)),
             tp_if(form->format, tp_str("format", form->format ? form->format->name : NULL)));
    put_search(w, form);
    tp_write(w, tp_if(form->warning, tp_str("warning", form->warning)));
    tp_end(w, '}');
}

static void put_kept(struct tp_writer *w, size_t k, const void *of)
{
    const struct tp_plan *plan = of;
    const struct tp_kept *kept = &plan->kept[k];
    tp_object(w, NULL, tp_str("name", kept->made ? kept->made->name
                                                 : plan->ckpt->tensors[kept->tensor].name),
              tp_if(kept->reason, tp_str("reason", kept->reason)));
}

static void put_file(struct tp_writer *w, size_t f, const void *of)
{
    const struct tp_plan_file *file = &((const struct tp_plan *)of)->files[f];
    tp_object(w, NULL, tp_str("name", file->name), tp_num("size", file->size));
}

/* Which files say what is known of the model. */
static void put_model(struct tp_writer *w, const struct tp_model_facts *facts)
{
    tp_begin(w, "model", '{');
    tp_write(w, tp_if(facts->type[0], tp_str("model_type", facts->type)));
    tp_begin(w, "files", '[');
    for (size_t m = 0; m < facts->count; m++)
        tp_write(w, tp_str(NULL, facts->model[m]->name));
    tp_end(w, ']');
    tp_end(w, '}');
}

static void put_names(struct tp_writer *w, char *const names[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        tp_write(w, tp_str(NULL, names[i]));
}

/* Names of the small files that are copied, or of those that the config makes stale. */
static void put_others(struct tp_writer *w, const struct tp_plan *plan, bool left_out)
{
    for (size_t i = 0; i < plan->ckpt->other_count; i++)
        if (tp_config_leaves_out(plan, plan->ckpt->others[i]) == left_out &&
            (left_out || !plan->single_file))
            put_names(w, &plan->ckpt->others[i], 1);
}

int tp_plan_print_json(const struct tp_plan *plan, const struct tp_serving *serving)
{
    struct tp_writer w;
    tp_json_open(&w);
    tp_serving_put(&w, serving);
    tp_write(&w, tp_num("bytes_in", plan->bytes_in), tp_num("bytes_out", plan->bytes_out),
             tp_list("files", plan->file_count, put_file, plan));
    put_model(&w, &plan->weights->facts);
    tp_write(&w, tp_list("units", plan->unit_count, put_unit, plan),
             tp_list("kept", plan->kept_count, put_kept, plan));
    tp_exact_put(&w, plan, false);
    tp_left_plain_put(&w, plan);
    tp_begin(&w, "left_out", '[');
    put_others(&w, plan, true);
    put_names(&w, plan->ckpt->left, plan->ckpt->left_count);
    put_names(&w, plan->ckpt->unread, plan->ckpt->unread_count);
    tp_end(&w, ']');
    tp_begin(&w, "copied", '[');
    put_others(&w, plan, false);
    tp_end(&w, ']');
    return tp_json_close(&w);
}

void tp_plan_put_left(struct tp_writer *w, const struct tp_plan *plan)
{
    tp_begin(w, "left_out", '[');
    put_names(w, plan->ckpt->left, plan->single_file ? 0 : plan->ckpt->left_count);
    tp_end(w, ']');
}
