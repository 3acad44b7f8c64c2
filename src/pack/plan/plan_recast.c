/* MXFP4 that is taken over as NVFP4: the global scale of each set of weights, from the powers of
 * two of their blocks' scales, and what becomes of sets whose powers lie too far apart.
 *
 * Invariant: afterwards every group of units that take codes over has a global scale, and all
 * blocks that hold anything but zeros have scales that it leaves room for.
 */
#include "pack/plan/plan_build.h"

#include "pack/source/source_exponents.h"

#include <stdio.h>
#include <string.h>

/* Adds the exponents of one expert of a unit. */
static enum tp_code add_unit(const struct tp_builder *b, const struct tp_unit *unit, uint64_t e,
                             bool held, struct tp_exponents *exponents)
{
    enum tp_code code = TP_OK;
    for (uint32_t p = 0; p < unit->form->views_per_expert && code == TP_OK; p++) {
        const struct tp_view *view = &unit->views[e * unit->form->views_per_expert + p];
        struct tp_expert_rows rows = {view->expert, view->row, unit->form->view_rows[p],
                                      view->step};
        code = tp_source_exponents(b->plan->ckpt, &b->plan->weights->items[view->weight], &rows,
                                   held, exponents, b->err);
    }
    return code;
}

static enum tp_code add_group(const struct tp_builder *b, uint32_t g, bool held,
                              struct tp_exponents *exponents)
{
    const struct tp_plan *plan = b->plan;
    const struct tp_stats_group *group = &plan->groups[g];
    enum tp_code code = TP_OK;
    *exponents = TP_NO_EXPONENTS;
    for (uint32_t i = 0; i < group->unit_count && code == TP_OK; i++) {
        const struct tp_unit *unit = &plan->units[plan->stats_units[group->first_unit + i]];
        code = add_unit(b, unit, g - unit->stats, held, exponents);
    }
    return code;
}

/* The group's global scale, 0 if there is none; blocks of zeros are told apart only where it
 * matters. */
static enum tp_code find_global(struct tp_builder *b, uint32_t g, struct tp_exponents *exponents)
{
    struct tp_stats_group *group = &b->plan->groups[g];
    const struct tp_op *op = &b->plan->units[b->plan->stats_units[group->first_unit]].form->op;
    enum tp_code code = add_group(b, g, false, exponents);
    group->given = tp_recast_global(op, *exponents);
    if (code || group->given > 0)
        return code;
    code = add_group(b, g, true, exponents);
    group->given = tp_recast_global(op, *exponents);
    return code;
}

static enum tp_code refuse(const struct tp_builder *b, const struct tp_unit *unit,
                           struct tp_exponents exponents)
{
    char text[300];
    snprintf(text, sizeof text, "the scales of its blocks go from 2^%d to 2^%d, and e4m3 scales "
             "with %s hold 2^%d to 2^%d%s", exponents.least, exponents.most,
             unit->form->op.unit_global ? "a global scale of 1" : "one global scale",
             TP_RECAST_LEAST, TP_RECAST_MOST,
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
    enum tp_code code = tp_plan_search(b, unit, &rule->search);
    unit->form = tp_shared_keep(&b->plan->forms, &form, sizeof form, b->err);
    return code ? code : unit->form ? TP_OK : TP_E_MEMORY;
}

/* All groups of the set of units to which unit u belongs as the first. */
static enum tp_code settle_set(struct tp_builder *b, uint32_t u)
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

enum tp_code tp_plan_recast(struct tp_builder *b)
{
    const struct tp_plan *plan = b->plan;
    enum tp_code code = TP_OK;
    for (uint32_t u = 0; u < plan->unit_count && code == TP_OK; u++) {
        const struct tp_unit *unit = &plan->units[u];
        if (unit->stats != UINT32_MAX && unit->form->kind == TP_UNIT_REPACK &&
            plan->stats_units[plan->groups[unit->stats].first_unit] == u)
            code = settle_set(b, u);
    }
    return code;
}
