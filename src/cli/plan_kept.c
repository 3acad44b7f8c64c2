/* What a conversion leaves as it is, and why. A weight that the user excludes counts as kept, too:
 * the figures say what the output is, not whether it was meant.
 */
#include "cli/plan_kept.h"

#include "cli/human.h"
#include "cli/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tp_kept_reason *find_reason(struct tp_kept_sum *sum, const char *why)
{
    size_t i = 0;
    while (i < sum->reasons && sum->reason[i].why && strcmp(sum->reason[i].why, why) != 0)
        i++;
    if (i == sum->reasons)
        sum->reason[sum->reasons++].why = i < TP_KEPT_REASONS ? why : NULL;
    return &sum->reason[i];
}

static uint64_t weight_bytes(const struct tp_plan *plan)
{
    uint64_t bytes = 0;
    for (size_t w = 0; w < plan->weights->count; w++)
        for (uint32_t i = 0; i < TP_MAX_OUT; i++)
            if (plan->weights->items[w].tensor[i] != TP_NO_TENSOR)
                bytes += plan->ckpt->tensors[plan->weights->items[w].tensor[i]].bytes;
    return bytes;
}

static int by_bytes(const void *a, const void *b)
{
    const struct tp_kept_reason *x = a, *y = b;
    if (!x->why != !y->why)
        return x->why ? -1 : 1;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes)
                                : (x->weights < y->weights) - (x->weights > y->weights);
}

void tp_kept_find(const struct tp_plan *plan, struct tp_kept_sum *sum)
{
    uint32_t unit = UINT32_MAX;
    *sum = (struct tp_kept_sum){.all = weight_bytes(plan)};
    for (size_t k = 0; k < plan->kept_count; k++) {
        const struct tp_kept *kept = &plan->kept[k];
        if (!kept->reason || kept->made)
            continue;
        if (strcmp(kept->reason, TP_REASON_SAME) == 0) {
            sum->same = true;
            continue;
        }
        struct tp_kept_reason *reason = find_reason(sum, kept->reason);
        reason->weights += kept->unit == UINT32_MAX || kept->unit != unit;
        reason->bytes += plan->ckpt->tensors[kept->tensor].bytes;
        sum->kept += plan->ckpt->tensors[kept->tensor].bytes;
        unit = kept->unit;
    }
    qsort(sum->reason, sum->reasons, sizeof *sum->reason, by_bytes);
}

/* "112 weights, 1.2 GB: excluded; 1 weight, 300 MB: embedding": the first few. */
enum { SHOWN = 4, REASONS = 700 };

static const char *reasons_text(const struct tp_kept_sum *sum, char text[REASONS])
{
    size_t used = 0, more = 0;
    uint64_t bytes = 0;
    char human[TP_HUMAN];
    *text = '\0';
    for (size_t i = 0; i < sum->reasons; i++) {
        const struct tp_kept_reason *reason = &sum->reason[i];
        if (i >= SHOWN || !reason->why) {
            more += reason->weights;
            bytes += reason->bytes;
            continue;
        }
        used += (size_t)snprintf(text + used, REASONS - used, "%s%zu weight%s, %s: %.100s",
                                 i ? "; " : "", reason->weights, reason->weights == 1 ? "" : "s",
                                 tp_human_bytes(human, reason->bytes), reason->why);
    }
    if (more)
        snprintf(text + used, REASONS - used, "; %zu more, %s, for other reasons", more,
                 tp_human_bytes(human, bytes));
    return text;
}

enum tp_code tp_kept_check(const struct tp_plan *plan, const struct tp_kept_sum *sum,
                           struct tp_err *err)
{
    char text[REASONS];
    if (plan->unit_count || sum->same)
        return TP_OK;
    tp_err_path(err, plan->ckpt->path);
    if (!sum->reasons)
        return tp_refuse(err, TP_E_UNSUPPORTED,
                         "matrices of linear layers and experts are converted; `tilepack dump` "
                         "lists the tensors", "there is no weight to convert");
    bool left = false;
    for (size_t i = 0; i < sum->reasons; i++)
        left |= sum->reason[i].why && strcmp(sum->reason[i].why, TP_REASON_LEFT) == 0;
    tp_err_hint(err, "`tilepack plan` says why of each; --include, --exclude and a recipe choose%s",
                left ? ", --plain convert quantizes what was left plain" : "");
    return tp_fail(err, TP_E_UNSUPPORTED, "no weight would be converted: %s",
                   reasons_text(sum, text));
}

/* The part that is converted or in the format already, in thousandths; 1000 is also none. */
static unsigned done(const struct tp_plan *plan, const struct tp_kept_sum *sum)
{
    return plan->unit_count && sum->all
               ? (unsigned)(1000 * ((double)(sum->all - sum->kept) / (double)sum->all))
               : 1000;
}

/* False where nothing is to be said. */
static bool warning_text(const struct tp_plan *plan, const struct tp_kept_sum *sum,
                         char text[REASONS + 100])
{
    char reasons[REASONS];
    unsigned part = done(plan, sum);
    if (part >= 500)
        return false;
    snprintf(text, REASONS + 100, "only %u.%u %% of the bytes of weights are converted; kept are "
             "%s", part / 10, part % 10, reasons_text(sum, reasons));
    return true;
}

void tp_kept_warn(const struct tp_plan *plan, const struct tp_kept_sum *sum)
{
    char text[REASONS + 100];
    if (warning_text(plan, sum, text))
        tp_warn("%s: %s", plan->ckpt->path, text);
}

static void put_reason(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_kept_reason *reason = &((const struct tp_kept_sum *)of)->reason[i];
    tp_object(w, NULL, tp_str("reason", reason->why ? reason->why : "other reasons"),
              tp_num("weights", reason->weights), tp_num("bytes", reason->bytes));
}

void tp_kept_put(struct tp_writer *w, const struct tp_plan *plan, const struct tp_kept_sum *sum)
{
    char text[REASONS + 100];
    bool warns = warning_text(plan, sum, text);
    tp_write(w, tp_num("weight_bytes", sum->all), tp_num("weight_bytes_kept", sum->kept),
             tp_list("kept_weights", sum->reasons, put_reason, sum),
             tp_if(warns, tp_str("warning", text)));
}
