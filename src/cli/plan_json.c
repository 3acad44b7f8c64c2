/* The plan as one JSON object. Its text is made directly, for of a checkpoint of 100,000 tensors
 * a tree of it would take a gigabyte; and as a whole, for where memory ends nothing is printed. */
#include "cli/plan_report.h"
#include "cli/report.h"
#include "cli/escape.h"
#include "pack/plan/config.h"
#include "pack/text/text.h"

/* The object in the making. The first failure stays in `err`. */
struct json {
    struct tp_text text;
    struct tp_err err;
    size_t depth;
    bool empty; /* nothing yet in the innermost object or list */
};

static void put_word(struct json *j, const char *word)
{
    tp_text_add_word(&j->text, word, &j->err);
}

static void put_line(struct json *j)
{
    static const char line[] = "\n                "; /* the innermost lists are 6 deep */
    tp_text_add(&j->text, line, 1 + 2 * j->depth, &j->err);
}

/* Begins a member of an object, or an element of a list (key NULL). */
static void put_key(struct json *j, const char *key)
{
    if (!j->empty)
        put_word(j, ",");
    j->empty = false;
    put_line(j);
    if (key) {
        put_word(j, "\"");
        put_word(j, key);
        put_word(j, "\": ");
    }
}

static void begin(struct json *j, const char *key, const char *bracket)
{
    put_key(j, key);
    put_word(j, bracket);
    j->depth++;
    j->empty = true;
}

static void end(struct json *j, const char *bracket)
{
    j->depth--;
    if (!j->empty)
        put_line(j);
    put_word(j, bracket);
    j->empty = false;
}

static void put_text(struct json *j, const char *key, const char *text)
{
    put_key(j, key);
    size_t before = j->text.size;
    if (tp_add_json_text(&j->text, text, &j->err))
        j->text.size = before;
}

static void put_number(struct json *j, const char *key, uint64_t number)
{
    put_key(j, key);
    tp_text_add_number(&j->text, "", number, &j->err);
}

static void put_numbers(struct json *j, const char *key, const uint64_t *numbers, size_t count)
{
    begin(j, key, "[");
    for (size_t i = 0; i < count; i++)
        put_number(j, NULL, numbers[i]);
    end(j, "]");
}

static void put_output(struct json *j, const struct tp_plan *plan, const struct tp_output *output)
{
    begin(j, NULL, "{");
    put_text(j, "name", output->name);
    put_text(j, "dtype", tp_dtype_name(output->dtype));
    put_numbers(j, "shape", output->shape, output->rank);
    put_number(j, "bytes", output->bytes);
    put_text(j, "file", plan->files[output->file].name);
    put_number(j, "offset", output->offset);
    end(j, "}");
}

static void put_search(struct json *j, const struct tp_unit *unit)
{
    enum tp_search search = tp_op_search(&unit->form->op);
    if (unit->form->needless_search)
        put_text(j, "search_note", "its scales are the best already");
    if (!unit->form->format || search == TP_SEARCH_NONE)
        return;
    put_text(j, "search", tp_search_name(search));
    put_text(j, "signed", unit->form->op.search_signed ? "yes" : "no");
    put_text(j, "importance", tp_importance_word(unit->form->op.importance));
    if (unit->form->unweighted)
        put_text(j, "search_note", "the file has no importance for it");
}

static void put_unit(struct json *j, const struct tp_plan *plan, const struct tp_unit *unit)
{
    const uint64_t box[] = {unit->form->box.e, unit->form->box.n, unit->form->box.k};
    const struct tp_weight *weight = &plan->weights->items[unit->views[0].weight];
    char source[128];
    begin(j, NULL, "{");
    put_text(j, "name", unit->name);
    put_numbers(j, "box", box, 3);
    put_number(j, "rank", (uint64_t)unit->form->rank);
    put_text(j, "dtype", tp_dtype_name(unit->form->original));
    begin(j, "outputs", "[");
    for (uint32_t i = 0; i < unit->form->outs; i++)
        put_output(j, plan, &plan->outputs[unit->output[i]]);
    end(j, "]");
    put_text(j, "source", tp_weight_source(weight, source, sizeof source));
    if (unit->form->format)
        put_text(j, "format", unit->form->format->name);
    put_search(j, unit);
    if (unit->form->warning)
        put_text(j, "warning", unit->form->warning);
    end(j, "}");
}

static void put_kept(struct json *j, const struct tp_plan *plan, const struct tp_kept *kept)
{
    begin(j, NULL, "{");
    put_text(j, "name",
             kept->made ? kept->made->name : plan->ckpt->tensors[kept->tensor].name);
    if (kept->reason)
        put_text(j, "reason", kept->reason);
    end(j, "}");
}

static void put_files(struct json *j, const struct tp_plan *plan)
{
    begin(j, "files", "[");
    for (size_t f = 0; f < plan->file_count; f++) {
        begin(j, NULL, "{");
        put_text(j, "name", plan->files[f].name);
        put_number(j, "size", plan->files[f].size);
        end(j, "}");
    }
    end(j, "]");
}

/* Which files say what is known of the model. */
static void put_model(struct json *j, const struct tp_model_facts *facts)
{
    begin(j, "model", "{");
    if (facts->type[0])
        put_text(j, "model_type", facts->type);
    begin(j, "files", "[");
    for (size_t m = 0; m < facts->count; m++)
        put_text(j, NULL, facts->model[m]->name);
    end(j, "]");
    end(j, "}");
}

/* Names of the small files that are copied, or of those that the config makes stale. */
static void put_others(struct json *j, const struct tp_plan *plan, bool left_out)
{
    for (size_t i = 0; i < plan->ckpt->other_count; i++)
        if (tp_config_leaves_out(plan, plan->ckpt->others[i]) == left_out &&
            (left_out || !plan->single_file))
            put_text(j, NULL, plan->ckpt->others[i]);
}

int tp_plan_print_json(const struct tp_plan *plan)
{
    struct json j = {.depth = 1, .empty = true};
    put_word(&j, "{");
    put_number(&j, "version", 1);
    put_number(&j, "bytes_in", plan->bytes_in);
    put_number(&j, "bytes_out", plan->bytes_out);
    put_files(&j, plan);
    put_model(&j, &plan->weights->facts);
    begin(&j, "units", "[");
    for (size_t u = 0; u < plan->unit_count; u++)
        put_unit(&j, plan, &plan->units[u]);
    end(&j, "]");
    begin(&j, "kept", "[");
    for (size_t k = 0; k < plan->kept_count; k++)
        put_kept(&j, plan, &plan->kept[k]);
    end(&j, "]");
    begin(&j, "left_out", "[");
    put_others(&j, plan, true);
    for (size_t i = 0; i < plan->ckpt->left_count; i++)
        put_text(&j, NULL, plan->ckpt->left[i]);
    for (size_t i = 0; i < plan->ckpt->unread_count; i++)
        put_text(&j, NULL, plan->ckpt->unread[i]);
    end(&j, "]");
    begin(&j, "copied", "[");
    put_others(&j, plan, false);
    end(&j, "]");
    end(&j, "}");
    put_word(&j, "\n");
    if (j.err.code == TP_OK)
        tp_print_json(stdout, j.text.data, j.text.size);
    tp_text_free(&j.text);
    return j.err.code ? tp_report_error(&j.err) : TP_OK;
}
