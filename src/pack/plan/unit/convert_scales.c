/* What is known of scales before codes are taken over as NVFP4 of another kind. Of MXFP4 the global
 * scale of each set of weights, from the powers of two of their blocks' scales, and what becomes
 * of sets whose powers lie too far apart; of E5M3 results how far scales are shifted.
 *
 * Invariant: afterwards every group of units that take codes over has a global scale, and of
 * MXFP4 all blocks that hold anything but zeros have scales that it leaves room for.
 */
#include "pack/plan/unit/build.h"

#include "kernels/op/convert_scales.h"
#include "kernels/op/scalar.h"
#include "pack/source/source_bytes.h"

#include <stdio.h>
#include <string.h>

/* Adds the scale bytes of one expert of a unit. */
static enum tp_code add_unit(const struct tp_builder *b, const struct tp_unit *unit, uint64_t e,
                             bool held, struct tp_byte_range *range)
{
    enum tp_code code = TP_OK;
    for (uint32_t p = 0; p < unit->form->views_per_expert && code == TP_OK; p++) {
        struct tp_view view = tp_unit_view(unit, e, p);
        struct tp_expert_rows rows = {view.expert, view.row, unit->form->view_rows[p],
                                      view.step};
        code = tp_source_bytes(b->plan->ckpt, &b->plan->weights->items[view.weight], &rows, held,
                               range, b->err);
    }
    return code;
}

static enum tp_code add_group(const struct tp_builder *b, uint32_t g, bool held,
                              struct tp_byte_range *range)
{
    const struct tp_plan *plan = b->plan;
    const struct tp_stats_group *group = &plan->groups[g];
    enum tp_code code = TP_OK;
    for (uint32_t i = 0; i < group->unit_count && code == TP_OK; i++) {
        const struct tp_unit *unit = &plan->units[plan->stats_units[group->first_unit + i]];
        code = add_unit(b, unit, g - unit->stats, held, range);
    }
    return code;
}

/* The group's global scale, 0 if there is none, of all blocks or of those that hold something. */
static enum tp_code try_global(struct tp_builder *b, uint32_t g, bool held,
                               struct tp_exponents *exponents)
{
    struct tp_stats_group *group = &b->plan->groups[g];
    struct tp_byte_range range = TP_NO_BYTES;
    enum tp_code code = add_group(b, g, held, &range);
    *exponents = (struct tp_exponents){range.min - 127, range.max - 127};
    const struct tp_unit *first = &b->plan->units[b->plan->stats_units[group->first_unit]];
    group->given = tp_convert_scales_global(&first->form->op, *exponents);
    return code;
}

/* Blocks of zeros are told apart only where it matters. */
static enum tp_code find_global(struct tp_builder *b, uint32_t g, struct tp_exponents *exponents)
{
    enum tp_code code = try_global(b, g, false, exponents);
    return code || b->plan->groups[g].given > 0 ? code : try_global(b, g, true, exponents);
}

static enum tp_code refuse(const struct tp_builder *b, const struct tp_unit *unit,
                           struct tp_exponents exponents)
{
    char text[300];
    snprintf(text, sizeof text, "the scales of its blocks go from 2^%d to 2^%d, and e4m3 scales "
             "with %s hold 2^%d to 2^%d%s", exponents.min, exponents.max,
             unit->form->op.unit_global ? "a global scale of 1" : "one global scale",
             tp_convert_scales_min(&unit->form->op), TP_CONVERT_SCALES_MAX,
             unit->form->op.unit_global ? "" : " times one power of two");
    tp_err_hint(b->err, "--requantize decodes it and quantizes again, and prints the error that "
                        "costs; --exclude leaves it as it is");
    return tp_plan_refuse(b, unit, text);
}

/* The unit is decoded and encoded: its values are not those of the source then. */
static enum tp_code encode_instead(struct tp_builder *b, struct tp_unit *unit)
{
    const struct tp_weight *weight = &b->plan->weights->items[unit->views[0].weight];
    const struct tp_rule *rule = b->choices[unit->views[0].weight].rule;
    struct tp_unit_form form;
    memcpy(&form, unit->form, sizeof form); /* with what lies between the members */
    form.kind = TP_UNIT_ENCODE;
    form.dtype = tp_format_via(rule->format, &rule->settings, weight->form->dtype);
    memset(&form.search, 0, sizeof form.search);
    unit->form = &form;
    enum tp_code code = tp_plan_search(b, unit, rule);
    unit->form = tp_shared_keep(&b->plan->forms, &form, sizeof form, b->err);
    return code ? code : unit->form ? TP_OK : TP_E_MEMORY;
}

/* All groups of the set of units to which unit u belongs as the first. */
static enum tp_code finalize_set(struct tp_builder *b, uint32_t u)
{
    struct tp_plan *plan = b->plan;
    struct tp_unit *unit = &plan->units[u];
    const struct tp_stats_group set = plan->groups[unit->stats];
    uint64_t experts = unit->form->box.e;
    struct tp_exponents exponents;
    enum tp_code code = TP_OK;
    bool fits = true;
    for (uint64_t e = 0; e < experts && fits && code == TP_OK; e++) {
        code = find_global(b, unit->stats + (uint32_t)e, &exponents);
        fits = plan->groups[unit->stats + e].given > 0;
    }
    if (code || fits)
        return code;
    if (!b->request->requantize)
        return refuse(b, unit, exponents);
    for (uint64_t e = 0; e < experts; e++)
        plan->groups[unit->stats + e].given = 0;
    for (uint32_t i = 0; i < set.unit_count && code == TP_OK; i++)
        code = encode_instead(b, &plan->units[plan->stats_units[set.first_unit + i]]);
    return code;
}

/* ---- E5M3 ---------------------------------------------------------------- */

/* The number that a scale byte of the source stands for. */
static float number_of(const struct tp_op *op, int byte)
{
    bool e5m3 = op->out[tp_op_find(op, TP_ROLE_SCALE)].element == TP_ELEM_E5M3;
    return tp_e4m3_value(e5m3 ? tp_e5m3_to_e4m3((uint8_t)byte) : (uint8_t)byte);
}

/* The powers of two by which all scales can be multiplied and be numbers of e4m3. */
static uint8_t scale_shift_of(float largest)
{
    uint8_t scale_shift = 0;
    for (; largest > 0 && 2 * largest <= tp_e4m3_value(TP_E4M3_MAX); largest *= 2)
        scale_shift++;
    return scale_shift;
}

/* All experts of all units that engines load as one are shifted alike. */
static enum tp_code shift_set(struct tp_builder *b, uint32_t u)
{
    struct tp_plan *plan = b->plan;
    const struct tp_unit *unit = &plan->units[u];
    const struct tp_op *from = &plan->weights->items[unit->views[0].weight].form->op;
    const struct tp_stats_group set = plan->groups[unit->stats];
    struct tp_byte_range range = TP_NO_BYTES;
    enum tp_code code = TP_OK;
    for (uint64_t e = 0; e < unit->form->box.e && code == TP_OK; e++) {
        plan->groups[unit->stats + e].given = 1.0f; /* of no effect: the source has its own */
        if (!b->request->headers_only)
            code = add_group(b, unit->stats + (uint32_t)e, false, &range);
    }
    for (uint32_t i = 0; i < set.unit_count && range.max >= 0; i++)
        plan->units[plan->stats_units[set.first_unit + i]].scale_shift =
            scale_shift_of(number_of(from, range.max));
    return code;
}

enum tp_code tp_plan_convert_scales(struct tp_builder *b)
{
    struct tp_plan *plan = b->plan;
    enum tp_code code = TP_OK;
    for (uint32_t u = 0; u < plan->unit_count && code == TP_OK; u++) {
        const struct tp_unit *unit = &plan->units[u];
        if (unit->stats == UINT32_MAX || unit->form->kind != TP_UNIT_REPACK ||
            plan->stats_units[plan->groups[unit->stats].first_unit] != u)
            continue;
        const struct tp_op *from = &plan->weights->items[unit->views[0].weight].form->op;
        bool decides = tp_convert_scales_possible(from, &unit->form->op);
        if (decides && b->request->headers_only)
            plan->scales_unread = true;
        else
            code = decides ? finalize_set(b, u) : shift_set(b, u);
    }
    return code;
}
