/* The plan: lists that grow while it is made, of units and of tensors that are copied. A
 * packed weight that is copied keeps its tensors together, its descriptor and its origins.
 */
#include "pack/plan/plan_build.h"

#include "pack/os/os.h"

#include <stdlib.h>

void tp_builder_close(struct tp_builder *b)
{
    for (size_t w = 0; b->choices && w < b->plan->weights->count; w++)
        free(b->choices[w].reason);
    free(b->choices);
    b->choices = NULL;
}

enum tp_code tp_plan_add_unit(struct tp_builder *b, struct tp_unit *unit)
{
    struct tp_plan *plan = b->plan;
    enum tp_code code = tp_os_grow((void **)&plan->units, &b->unit_capacity, plan->unit_count + 1,
                                   sizeof *plan->units, b->err);
    if (code) {
        tp_unit_close(unit);
        return code;
    }
    plan->units[plan->unit_count++] = *unit;
    return TP_OK;
}

enum tp_code tp_plan_add_kept(struct tp_builder *b, uint32_t tensor, uint32_t unit,
                              const char *reason)
{
    struct tp_plan *plan = b->plan;
    enum tp_code code = tp_os_grow((void **)&plan->kept, &b->kept_capacity, plan->kept_count + 1,
                                   sizeof *plan->kept, b->err);
    if (code)
        return code;
    struct tp_kept *kept = &plan->kept[plan->kept_count++];
    kept->tensor = tensor;
    kept->unit = unit;
    kept->reason = reason ? tp_os_copy(b->err, reason) : NULL;
    return reason && !kept->reason ? TP_E_MEMORY : TP_OK;
}

/* The packed weight as it is, in the form of a unit. */
static enum tp_code add_kept_unit(struct tp_builder *b, uint32_t w)
{
    struct tp_plan *plan = b->plan;
    const struct tp_weight *weight = &plan->weights->items[w];
    enum tp_code code = tp_os_grow((void **)&plan->kept_units, &b->kept_unit_capacity,
                                   plan->kept_unit_count + 1, sizeof *plan->kept_units, b->err);
    if (code)
        return code;
    struct tp_unit *unit = &plan->kept_units[plan->kept_unit_count++];
    *unit = (struct tp_unit){.kind = TP_UNIT_REPACK, .box = weight->box, .rank = weight->rank,
                             .format = weight->format, .settings = weight->settings,
                             .search = weight->search, .op = weight->op,
                             .outs = weight->op.outs, .dtype = weight->dtype,
                             .original = weight->dtype, .views_per_expert = 1,
                             .view_rows = {weight->box.n}, .stats = UINT32_MAX};
    unit->name = tp_os_copy(b->err, weight->name);
    unit->prefix = tp_os_copy(b->err, weight->prefix);
    unit->views = tp_os_zalloc(weight->box.e, sizeof *unit->views, b->err);
    if (!unit->name || !unit->prefix || !unit->views)
        return TP_E_MEMORY;
    for (uint64_t e = 0; e < weight->box.e; e++)
        unit->views[e] = (struct tp_view){w, e, 0};
    return TP_OK;
}

enum tp_code tp_plan_keep_weight(struct tp_builder *b, uint32_t w, const char *reason)
{
    const struct tp_weight *weight = &b->plan->weights->items[w];
    enum tp_code code = weight->format ? add_kept_unit(b, w) : TP_OK;
    uint32_t unit = weight->format ? (uint32_t)b->plan->kept_unit_count - 1 : UINT32_MAX;
    for (uint32_t i = 0; i < TP_MAX_OUT && code == TP_OK; i++)
        if (weight->tensor[i] != TP_NO_TENSOR)
            code = tp_plan_add_kept(b, weight->tensor[i], unit, reason);
    return code;
}
