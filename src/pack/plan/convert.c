/* The plan of a conversion, from what is asked for to the last offset. What each step does
 * is in the file of its name.
 */
#include "pack/plan/unit/build.h"

#include "pack/os/os.h"
#include "pack/plan/file/config.h"
#include "pack/text/json_tree.h"

#include <string.h>

/* Activation scales of what is kept: of what stays as it is in its format, or is named. */
static enum tp_code leave_inputs(struct tp_builder *b, uint32_t w)
{
    const char *reason = b->choices[w].reason;
    bool all = reason && strcmp(reason, TP_REASON_SAME) == 0, left;
    if (b->choices[w].rule || !(all || b->request->unscale_count))
        return TP_OK;
    enum tp_code code =
        tp_request_unscales(b->request, b->plan->weights->items[w].name, &left, b->err);
    if (code == TP_OK && left && (all || !b->request->weights_only))
        tp_plan_leave_inputs(b, w, false);
    return code;
}

static enum tp_code keep_the_rest(struct tp_builder *b)
{
    const struct tp_weights *weights = b->plan->weights;
    enum tp_code code = TP_OK;
    for (uint32_t w = 0; w < weights->count && code == TP_OK; w++)
        code = leave_inputs(b, w);
    for (uint32_t w = 0; w < weights->count && code == TP_OK; w++)
        if (!b->choices[w].rule)
            code = tp_plan_keep_weight(b, w, b->choices[w].reason);
    for (size_t i = 0; i < weights->other_count && code == TP_OK; i++)
        if (!tp_plan_is_left_out(b, &b->plan->ckpt->tensors[weights->other[i]]))
            code = tp_plan_add_kept(b, weights->other[i], UINT32_MAX, NULL);
    return code ? code : tp_plan_note_inputs(b);
}

enum tp_code tp_plan_convert(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                             struct tp_request *request, const char *file_name,
                             struct tp_plan *plan, struct tp_err *err)
{
    struct tp_builder b = {.plan = plan, .request = request, .err = err};
    uint64_t before = tp_json_failures();
    *plan = (struct tp_plan){.ckpt = ckpt, .weights = weights};
    b.choices = tp_os_zalloc(weights->count + 1, sizeof *b.choices, err);
    b.left_out = tp_os_zalloc(ckpt->tensor_count + 1, sizeof *b.left_out, err);
    enum tp_code code = b.choices && b.left_out ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK && (code = tp_plan_select(&b)) == TP_OK &&
        (code = tp_plan_check_sources(&b)) == TP_OK &&
        (code = tp_plan_follow_sources(&b)) == TP_OK &&
        (code = tp_plan_check_origins(ckpt, weights, !file_name, err)) == TP_OK &&
        (code = tp_plan_check_importance(&b)) == TP_OK && (code = tp_plan_units(&b)) == TP_OK &&
        (code = tp_plan_check_inputs(&b)) == TP_OK &&
        (code = tp_plan_check_excluded(&b)) == TP_OK &&
        (code = tp_plan_stats(&b)) == TP_OK && (code = tp_plan_convert_scales(&b)) == TP_OK &&
        (code = keep_the_rest(&b)) == TP_OK) {
        tp_builder_close(&b); /* what comes now needs the memory */
        code = tp_plan_check_unique_sources(plan, err);
        if (code == TP_OK)
            code = tp_plan_files(&b, file_name);
    }
    if (code == TP_OK)
        code = file_name ? tp_config_dispensable(plan, err) : tp_config_check(plan, err);
    code = tp_json_check(before, code, err);
    tp_builder_close(&b);
    if (code)
        tp_plan_close(plan);
    return code;
}
