/* Printing a plan as text (as JSON: plan_json.c). Equal lines of many layers are folded
 * unless --verbose. */
#include "cli/plan_report.h"

#include "cli/exact_report.h"
#include "cli/fold.h"
#include "cli/human.h"
#include "cli/left_plain.h"
#include "cli/report.h"
#include "base/suffix.h"
#include "pack/plan/file/config.h"
#include "pack/source/ckpt_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t unit_bytes(const struct tp_plan *plan, const struct tp_unit *unit)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < unit->form->outs; i++)
        bytes += plan->outputs[unit->output[i]].bytes;
    return bytes;
}

/* What was found, before it is converted: "BF16", "gptq (groups of 128)". */
static const char *unit_source(const struct tp_plan *plan, const struct tp_unit *unit, char *text,
                               size_t size)
{
    return tp_weight_source(&plan->weights->items[unit->views[0].weight], text, size);
}

static bool same_search(const struct tp_unit *a, const struct tp_unit *b)
{
    return a->form->op.search == b->form->op.search &&
           a->form->op.search_signed == b->form->op.search_signed &&
           a->form->op.importance == b->form->op.importance &&
           !a->form->op.rank == !b->form->op.rank;
}

static bool same_units(const void *of, size_t i, size_t j)
{
    const struct tp_plan *plan = of;
    const struct tp_unit *a = &plan->units[i], *b = &plan->units[j];
    const struct tp_weight *x = &plan->weights->items[a->views[0].weight];
    const struct tp_weight *y = &plan->weights->items[b->views[0].weight];
    return a->form->box.e == b->form->box.e && a->form->box.n == b->form->box.n &&
           a->form->box.k == b->form->box.k && a->form->rank == b->form->rank &&
           a->form->format == b->form->format &&
           (a->form->format || a->form->dtype == b->form->dtype) &&
           x->form->format == y->form->format &&
           (x->form->format || x->form->dtype == y->form->dtype) &&
           a->form->unweighted == b->form->unweighted && same_search(a, b) &&
           unit_bytes(plan, a) == unit_bytes(plan, b);
}

/* "w4a8-ct, search mse signed magnitude" */
static const char *unit_target(const struct tp_unit *unit, char *text, size_t size)
{
    const struct tp_op *op = &unit->form->op;
    if (!unit->form->format || tp_op_search(op) == TP_SEARCH_NONE)
        return unit->form->format ? unit->form->format->name : tp_dtype_name(unit->form->dtype);
    snprintf(text, size, "%s, search %s%s%s%s%s", unit->form->format->name,
             tp_search_name(tp_op_search(op)), op->search_signed ? ", signed" : "",
             op->importance == TP_IMPORTANCE_NONE ? "" : ", importance ",
             op->importance == TP_IMPORTANCE_NONE ? "" : tp_importance_word(op->importance),
             op->rank ? ", errors fed back" : "");
    return text;
}

static void put_unit(struct tp_writer *w, const struct tp_line *line, const void *of)
{
    const struct tp_plan *plan = of;
    const struct tp_unit *unit = &plan->units[line->first];
    char shape[TP_SHAPE_TEXT], source[128], to[160], bytes[TP_HUMAN];
    tp_write(w, tp_str("shape", tp_box_text(shape, &unit->form->box, unit->form->rank)),
             tp_str("from", unit_source(plan, unit, source, sizeof source)),
             tp_str("to", unit_target(unit, to, sizeof to)),
             tp_str("bytes", tp_human_bytes(bytes, unit_bytes(plan, unit))));
}

/* Rows that are alike, and whose names differ in their numbers only ("layers.3."), are shown as
 * one line with their count. */
static int print_units(const struct tp_plan *plan, bool fold)
{
    static const struct tp_field fields[] = {
        {"weight", "name", TP_CUT}, {"count", "count", TP_RIGHT}, {"shape", "shape", TP_LEFT},
        {"from", "from", TP_LEFT}, {"to", "to", TP_LEFT}, {"bytes each", "bytes", TP_RIGHT}};
    struct tp_lines lines = {.fold = fold};
    for (size_t u = 0; u < plan->unit_count && !lines.failed; u++)
        tp_lines_add(&lines, plan->units[u].name, plan, u, same_units);
    return tp_lines_print(&lines, fields, sizeof fields / sizeof *fields, put_unit, plan);
}

/* Name, type and shape of what is kept: of a tensor, or of what the plan made of some. */
static struct tp_tensor kept_tensor(const struct tp_plan *plan, size_t k)
{
    const struct tp_output *made = plan->kept[k].made;
    if (!made)
        return plan->ckpt->tensors[plan->kept[k].tensor];
    struct tp_tensor tensor = {.name = made->name, .rank = made->rank,
                               .dtype = (enum tp_dtype)made->dtype};
    memcpy(tensor.shape, made->shape, made->rank * sizeof *made->shape);
    return tensor;
}

static const char *kept_reason(const struct tp_plan *plan, size_t k)
{
    const struct tp_kept *kept = &plan->kept[k];
    return kept->made       ? "activation scale"
           : kept->reason   ? kept->reason
           : kept->integers ? "integers that are no codes"
                            : "not a weight matrix";
}

static bool same_kept(const void *plan, size_t i, size_t j)
{
    struct tp_tensor a = kept_tensor(plan, i), b = kept_tensor(plan, j);
    return a.dtype == b.dtype && a.rank == b.rank &&
           memcmp(a.shape, b.shape, a.rank * sizeof *a.shape) == 0 &&
           strcmp(kept_reason(plan, i), kept_reason(plan, j)) == 0;
}

static void put_kept(struct tp_writer *w, const struct tp_line *line, const void *plan)
{
    struct tp_tensor tensor = kept_tensor(plan, line->first);
    tp_write(w, tp_numbers("shape", tensor.shape, tensor.rank),
             tp_str("dtype", tp_dtype_name(tensor.dtype)),
             tp_str("why", kept_reason(plan, line->first)));
}

static int print_kept(const struct tp_plan *plan, bool fold)
{
    static const struct tp_field fields[] = {
        {"kept", "name", TP_CUT}, {"count", "count", TP_RIGHT}, {"shape", "shape", TP_LEFT},
        {"dtype", "dtype", TP_LEFT}, {"why", "why", TP_LEFT}};
    struct tp_lines lines = {.fold = fold};
    for (size_t k = 0; k < plan->kept_count && !lines.failed; k++)
        tp_lines_add(&lines, kept_tensor(plan, k).name, plan, k, same_kept);
    return tp_lines_print(&lines, fields, sizeof fields / sizeof *fields, put_kept, plan);
}

static void print_left_out(const struct tp_plan *plan)
{
    const struct tp_checkpoint *ckpt = plan->ckpt;
    bool any = false;
    for (size_t i = 0; i < ckpt->other_count; i++)
        if (tp_config_leaves_out(plan, ckpt->others[i])) {
            printf("%s", any ? ", " : "not copied, as the weights change: ");
            tp_print_text(stdout, ckpt->others[i]);
            any = true;
        }
    printf("%s", any ? "\n" : "");
    for (size_t i = 0; i < ckpt->left_count; i++) {
        printf("%s", i ? ", " : "not copied, as only these weights are converted: ");
        tp_print_text(stdout, ckpt->left[i]);
    }
    printf("%s", ckpt->left_count ? "\n" : "");
}

static bool is_needless(const struct tp_unit_form *form) { return form->needless_search; }
static bool is_unsearched(const struct tp_unit_form *form) { return form->unsearched; }

/* "q_proj and others: not searched, as WHY" of the units that this is so of. */
static void note_unsearched(const struct tp_plan *plan, bool (*is)(const struct tp_unit_form *form))
{
    char why[TP_SEARCH_NOTE];
    size_t count = 0, first = 0;
    for (size_t u = plan->unit_count; u-- > 0;)
        if (is(plan->units[u].form)) {
            first = u;
            count++;
        }
    if (count)
        printf("%s%s: not searched, as %s\n", plan->units[first].name,
               count > 1 ? " and others" : "", tp_search_note(plan->units[first].form, why));
}

const char *tp_search_note(const struct tp_unit_form *form, char text[TP_SEARCH_NOTE])
{
    const uint32_t p = form->unsearched ? tp_format_unsearched(form->format, &form->settings) : 0;
    if (!form->unsearched)
        return form->needless_search ? "its scales are the best already" : NULL;
    snprintf(text, TP_SEARCH_NOTE, "with %.60s=%.60s that is not the default",
             form->format->param[p].key,
             form->format->param[p].choices[form->settings.choice[p]]);
    return text;
}

int tp_plan_print(const struct tp_plan *plan, const struct tp_options *o)
{
    char in[TP_HUMAN], out[TP_HUMAN];
    int status = plan->unit_count ? print_units(plan, !o->verbose) : TP_OK;
    if (status == TP_OK && plan->kept_count) {
        printf("%s", plan->unit_count ? "\n" : "");
        status = print_kept(plan, !o->verbose);
    }
    printf("\n%zu weights converted, %zu tensors kept; %s -> %s in %zu file%s\n", plan->unit_count,
           plan->kept_count, tp_human_bytes(in, plan->bytes_in),
           tp_human_bytes(out, plan->bytes_out), plan->file_count,
           plan->file_count == 1 ? "" : "s");
    tp_exact_print(plan, false);
    tp_left_plain_print(plan);
    print_left_out(plan);
    note_unsearched(plan, is_needless);
    note_unsearched(plan, is_unsearched);
    return status;
}

/* Nothing to do because it is done: worth a word, as the user asked for more. */
static void warn_same(const struct tp_plan *plan)
{
    size_t same = 0;
    for (size_t u = 0; u < plan->kept_unit_count; u++)
        same += plan->kept_units[u].form->format != NULL;
    for (size_t k = 0; k < plan->kept_count && same; k++)
        if (plan->kept[k].reason && strcmp(plan->kept[k].reason, TP_REASON_SAME) == 0) {
            const struct tp_unit *unit = &plan->kept_units[plan->kept[k].unit];
            tp_warn("%s is in the format %s already: nothing is converted, its tensors are copied",
                    plan->ckpt->path, unit->form->format->name);
            return;
        }
    if (plan->restores)
        tp_warn("%s: no weight is converted, all tensors are copied", plan->ckpt->path);
    else
        tp_warn("%s: no weight would be converted, and `tilepack convert` refuses that",
                plan->ckpt->path);
}

/* Weights beside the checkpoint, as some have their MTP layers, are easily missed. */
static void warn_unread(const struct tp_checkpoint *ckpt)
{
    size_t more = ckpt->unread_count - 1;
    if (ckpt->unread_count && more)
        tp_warn("%s: '%s' and %zu more are not shards of the checkpoint: they are neither read nor "
                "copied (see --copy)", ckpt->path, ckpt->unread[0], more);
    else if (ckpt->unread_count)
        tp_warn("%s: '%s' is no shard of the checkpoint: it is neither read nor copied "
                "(see --copy)", ckpt->path, ckpt->unread[0]);
}

/* The index decides where the shards are another matter. */
static void warn_odds(const struct tp_checkpoint *ckpt)
{
    for (size_t i = 0; i < TP_ODDS; i++)
        if (ckpt->odds[i])
            tp_warn("%s: %s", ckpt->path, ckpt->odds[i]);
}

/* Whether another file than config.json says what the weights are. */
static bool is_described(const struct tp_plan *plan)
{
    struct tp_text text = {0};
    struct tp_err none = {0};
    for (size_t i = 0; i < plan->ckpt->other_count && !text.size; i++)
        tp_config_edit(plan, plan->ckpt->others[i], &text, &none);
    bool is = text.size > 0;
    tp_text_free(&text);
    return is;
}

/* One of several files was named, or what engines need to know has no place. */
static void warn_source(const struct tp_plan *plan)
{
    const struct tp_checkpoint *ckpt = plan->ckpt;
    const char *name = ckpt->files[0].name, *end = strstr(name, ".safetensors");
    if (!ckpt->directory && tp_ckpt_is_part(name))
        tp_warn("%s: this is part %lu of %lu of a checkpoint; name its directory to convert all",
                ckpt->path, strtoul(end - 14, NULL, 10), strtoul(end - 5, NULL, 10));
    if (ckpt->directory && !plan->single_file && !ckpt->config && plan->unit_count &&
        !plan->restores && !is_described(plan))
        tp_warn("%s: there is no config.json, so that the output has none: no engine finds out how "
                "its weights are stored", ckpt->path);
}

/* Weights that the file of importance does not know. */
static void warn_unweighted(const struct tp_plan *plan)
{
    size_t count = 0, first = 0;
    for (size_t u = plan->unit_count; u-- > 0;)
        if (plan->units[u].form->unweighted) {
            tp_note("%s: searched without importance", plan->units[u].name);
            first = u;
            count++;
        }
    if (count)
        tp_warn("%s%s: searched without importance, as the file has none for %s",
                plan->units[first].name, count > 1 ? " and others" : "",
                count > 1 ? "them" : "it");
}

/* A frame is unpacked as a whole, and again for each piece of a weight that lies in it and finds it
 * gone: what takes seconds of a plain file may take minutes. */
static void warn_frames(const struct tp_checkpoint *ckpt)
{
    enum { LARGE = 16 << 20 };
    const char *path = "";
    uint64_t largest = tp_checkpoint_largest_frame(ckpt, &path);
    if (largest > LARGE)
        tp_warn("%s: it has frames of up to %llu MiB, each of which is unpacked many times where "
                "--max-memory is too small to hold several: 'zstd -d' first makes it faster", path,
                (unsigned long long)(largest >> 20));
}

/* The output has a card of its own, with the text of the source's. */
static void warn_card(const struct tp_plan *plan)
{
    const struct tp_checkpoint *ckpt = plan->ckpt;
    for (size_t i = 0; i < ckpt->other_count && plan->unit_count && !plan->restores; i++)
        if (strcmp(ckpt->others[i], TP_CARD_NAME) == 0 &&
            ckpt->other_stamps[i].size > TP_CARD_MAX_BYTES)
            tp_warn("%s: it is longer than %d MiB, and is no part of the model card that is "
                    "written", TP_CARD_NAME, TP_CARD_MAX_BYTES >> 20);
}

/* A guess that a reader would correct, where a file of the model would not be one. */
static void warn_unknown(const struct tp_plan *plan)
{
    const struct tp_model_facts *facts = &plan->weights->facts;
    if (facts->type[0] && !facts->known && plan->unit_count && !plan->restores)
        tp_warn("nothing is known of the model_type '%s' but what most models have in common: "
                "see what is kept, and 'tilepack models default'", facts->type);
}

void tp_plan_warn(const struct tp_plan *plan)
{
    const char *seen[32];
    size_t count = 0;
    warn_unread(plan->ckpt);
    warn_odds(plan->ckpt);
    warn_source(plan);
    warn_frames(plan->ckpt);
    if (!plan->unit_count)
        warn_same(plan);
    warn_card(plan);
    warn_unweighted(plan);
    warn_unknown(plan);
    if (plan->idle_exclude)
        tp_warn("%s: --exclude '%.200s' matches no name", plan->ckpt->path, plan->idle_exclude);
    for (size_t u = 0; u < plan->unit_count; u++) {
        const char *warning = plan->units[u].form->warning;
        size_t i = 0, same = 0;
        while (warning && i < count && seen[i] != warning)
            i++;
        if (!warning || i < count || count == sizeof seen / sizeof *seen)
            continue;
        seen[count++] = warning;
        for (size_t v = u; v < plan->unit_count; v++)
            same += plan->units[v].form->warning == warning;
        tp_warn("%s%s: the bytes are right, but %s", plan->units[u].name,
                same > 1 ? " and others" : "", warning);
    }
}

/* What was to be copied and is not there. */
static void warn_copies(const struct tp_checkpoint *ckpt)
{
    for (size_t g = 0; g < ckpt->copy_count; g++) {
        size_t i = 0;
        while (i < ckpt->other_count &&
               !tp_checkpoint_copy_matches(ckpt->copy[g], ckpt->others[i]))
            i++;
        if (i == ckpt->other_count)
            tp_warn("%s: --copy '%s' matches no file", ckpt->path, ckpt->copy[g]);
    }
}

void tp_plan_warn_left(const struct tp_plan *plan)
{
    const struct tp_checkpoint *ckpt = plan->ckpt;
    char names[300] = "";
    size_t used = 0, i = 0;
    if (plan->single_file)
        return;
    warn_copies(ckpt);
    for (; i < ckpt->left_count && used + strlen(ckpt->left[i]) + 5 < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s'%s'", i ? ", " : "",
                                 ckpt->left[i]);
    if (i < ckpt->left_count)
        tp_warn("%s: %s%s%zu more are not copied (see --copy); the plan (--dry-run) names them",
                ckpt->path, names, i ? " and " : "", ckpt->left_count - i);
    else if (i)
        tp_warn("%s: %s %s not copied: other weights, folders of such (--copy takes them along), "
                "links to folders (see --follow-links), or pipes and devices", ckpt->path, names,
                i > 1 ? "are" : "is");
}
