/* What a unit is, as far as its weights and its format say: the part of the format, the shape,
 * seams of packed parts, its bias.
 */
#include "pack/plan/unit/draft.h"

#include "base/num.h"
#include "base/suffix.h"
#include "pack/model/model_names.h"

#include <stdio.h>
#include <string.h>

struct tp_unit *tp_unit_start(struct tp_builder *b, uint32_t w, struct tp_draft *draft)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    const struct tp_rule *rule = b->choices[w].rule;
    struct tp_unit_form *form = &draft->form;
    memset(draft, 0, sizeof *draft); /* what lies between the members is compared, too */
    draft->unit.form = form;
    draft->unit.stats = UINT32_MAX;
    form->rank = 2;
    form->format = rule->format;
    form->settings = rule->settings;
    form->original = weight->form->dtype;
    form->box = (struct tp_box3){1, weight->form->box.n, weight->form->box.k};
    form->separator = '.';
    if (b->last_rule != rule)
        tp_format_op(rule->format, &rule->settings, &b->last_op);
    b->last_rule = rule;
    form->op = b->last_op;
    form->outs = form->op.outs;
    return &draft->unit;
}

static void unit_part(struct tp_unit *unit, const struct tp_format *format, enum tp_part part)
{
    struct tp_unit_form *form = unit->form;
    const struct tp_format *of_part = tp_format_for(format, part);
    if (of_part == form->format)
        return; /* as tp_unit_start() made it */
    form->format = of_part;
    tp_format_op(form->format, &form->settings, &form->op);
    form->outs = form->op.outs;
}

void tp_unit_gated(struct tp_unit *unit)
{
    struct tp_unit_form *form = unit->form;
    unit_part(unit, form->format, TP_PART_GATED);
}

enum tp_code tp_unit_make_views(struct tp_builder *b, struct tp_unit *unit, uint32_t per_expert)
{
    unit->form->views_per_expert = per_expert;
    unit->views = tp_store_zalloc(&b->plan->store, tp_unit_views(unit), sizeof *unit->views,
                                  b->err);
    return unit->views ? TP_OK : TP_E_MEMORY;
}

/* Why the unit's shape does not suit its format, or NULL. */
static const char *shape_reason(const struct tp_unit *unit, char *text, size_t size)
{
    const struct tp_shape_rule *rule =
        tp_format_broken_need(unit->form->format, &unit->form->settings, unit->form->box,
                              unit->form->rank == 3);
    const struct tp_format_out *codes =
        &unit->form->format->out[tp_op_find(&unit->form->op, TP_ROLE_CODES)];
    if (unit->form->rank == 3 && strcmp(codes->shape[0], "E") != 0) {
        snprintf(text, size, "%s holds matrices, no stacks of them", unit->form->format->name);
        return text;
    }
    if (!rule)
        return NULL;
    const char *key, *choice = tp_need_choice(unit->form, &key);
    snprintf(text, size, "%s needs %c in multiples of %llu, this is %llu: %s%s%s%s%s%s",
             unit->form->format->name, rule->dim, (unsigned long long)rule->multiple,
             (unsigned long long)(rule->dim == 'N' ? unit->form->box.n : unit->form->box.k),
             rule->why, choice ? "; --set " : "", choice ? key : "", choice ? "=" : "",
             choice ? choice : "", choice ? " takes it" : "");
    return text;
}

/* Rows that have one scale where the unit stores what it takes over. */
static uint64_t rows_taken(const struct tp_unit *unit)
{
    int scale = tp_op_find(&unit->form->op, TP_ROLE_SCALE);
    return unit->form->kind == TP_UNIT_REPACK && scale >= 0 ? unit->form->op.out[scale].per_n : 1;
}

/* Whether rows of the source that begin at view->row may become rows from `to` on one by one: no
 * scale is that of rows on both sides of a seam, nor is one to each row to become one of `taken`
 * rows that has both. */
static bool comes_apart(const struct tp_op *source, const struct tp_unit_form *form,
                        const struct tp_view *view, uint64_t to, uint64_t taken)
{
    bool apart = true;
    for (uint32_t i = 0; i < source->outs; i++) {
        uint64_t per = tp_max_u64(source->out[i].per_n, 1);
        if (per == 1 && source->out[i].role == TP_ROLE_SCALE)
            per = tp_max_u64(taken, 1);
        apart &= view->row % per == 0 && to % per == 0 && (view->step < 2 || per == 1) &&
                 tp_row_order_keeps(&form->order, form->box.n, per) &&
                 tp_row_order_keeps(&form->undo, form->box.n, per);
    }
    return apart;
}

/* Packed views are taken over tile by tile where each begins and ends at a tile border of the
 * format, and lies in its source where the tiles of both agree. Others are gathered row by row,
 * unless a scale of the source is that of several rows: then this is the reason against it. */
static const char *seam_reason(const struct tp_builder *b, const struct tp_unit *unit, char *text,
                               size_t size)
{
    uint64_t n, k, source_n, source_k, row = 0;
    const struct tp_weight *source = tp_weight_at(b, unit->views[0].weight);
    bool apart = true;
    if (!source->form->format || tp_op_granule(&unit->form->op, &n, &k, NULL) ||
        tp_op_granule(&source->form->op, &source_n, &source_k, NULL))
        return NULL;
    for (uint32_t p = 0; p < unit->form->views_per_expert; p++) {
        const struct tp_view *view = &unit->views[p];
        apart &= comes_apart(&source->form->op, unit->form, view, row, rows_taken(unit));
        unit->form->gathers |= view->step > 1 || tp_form_moves(unit->form);
        row += unit->form->view_rows[p];
    }
    row = 0;
    if (unit->form->gathers && apart)
        return NULL;
    if (unit->form->gathers) {
        tp_err_hint(b->err, "unpack first, and convert the plain weights");
        snprintf(text, size, "rows %s %s, and one of its scales is that of several rows",
                 tp_form_moves(unit->form) ? "change places in" : "of gate and up are interleaved in",
                 source->name);
        return text;
    }
    uint64_t segment = tp_op_segment_rows(&unit->form->op, unit->form->box.n);
    uint64_t source_segment = tp_op_segment_rows(&source->form->op, source->form->box.n);
    for (uint32_t p = 0; p < unit->form->views_per_expert; p++) {
        uint64_t begin = unit->views[p].row % source_segment;
        bool seam = row % segment % n != 0 ||
                    (unit->form->kind == TP_UNIT_REPACK && begin % source_n % n != 0);
        if (seam && apart) {
            unit->form->gathers = true;
            return NULL;
        }
        if (row % segment % n) {
            tp_err_hint(b->err, "--no-stack leaves the experts apart; or unpack first, and convert "
                                "the plain weights");
            snprintf(text, size,
                     "its packed parts of %llu rows do not end at the %llu-row tiles "
                     "of %s",
                     (unsigned long long)unit->form->view_rows[p - 1], (unsigned long long)n,
                     unit->form->format->name);
            return text;
        }
        if (unit->form->kind == TP_UNIT_REPACK && begin % source_n % n) {
            snprintf(text, size, "row %llu of %s, where it begins, is inside a block of %s",
                     (unsigned long long)unit->views[p].row, source->name,
                     unit->form->format->name);
            return text;
        }
        row += unit->form->view_rows[p];
    }
    return NULL;
}

/* Elements of codes, with padding, and the sum of the two sides; 0: it has no such layout. */
static uint64_t area_of(const struct tp_unit *unit, const struct tp_format *format, uint64_t *sides)
{
    struct tp_layout layout;
    struct tp_op op;
    tp_format_op(format, &unit->form->settings, &op);
    if (tp_op_whole_layout(&op, (uint32_t)tp_op_find(&op, TP_ROLE_CODES), unit->form->box, &layout,
                           NULL))
        return 0;
    *sides = tp_layout_extent(&layout, TP_DIM_N) + tp_layout_extent(&layout, TP_DIM_K);
    return tp_layout_size(&layout);
}

/* Whether the second way to pad a matrix takes less room than the first. */
static bool is_wide(const struct tp_unit *unit, const struct tp_format *format)
{
    uint64_t sides = 0, wide_sides = 0;
    const struct tp_format *wide = tp_format_for(format, TP_PART_WIDE);
    if (wide == format)
        return false;
    uint64_t area = area_of(unit, format, &sides), wide_area = area_of(unit, wide, &wide_sides);
    return wide_area && (wide_area < area || (wide_area == area && wide_sides < sides));
}

/* What of the format the unit is, if it is not gate and up, of which tp_unit_gated() was told. */
static void choose_part(const struct tp_builder *b, struct tp_unit *unit, bool gated)
{
    const struct tp_format *format = b->choices[unit->views[0].weight].rule->format;
    enum tp_part part = TP_PART_ANY;
    if (gated)
        return;
    if (unit->form->rank == 2)
        part = is_wide(unit, format) ? TP_PART_WIDE : TP_PART_ANY;
    else if (tp_ends_with(unit->name, ".w13"))
        part = TP_PART_UP;
    else if (tp_plan_is_last_ungated(b, unit->name))
        part = TP_PART_DOWN_UNGATED;
    else if (tp_ends_with(unit->name, ".w2"))
        part = TP_PART_DOWN;
    unit_part(unit, format, part);
}

/* Adds the unit of the bias beside the weight, plain or packed, if it has one and its format says
 * what becomes of it. */
static enum tp_code add_bias(struct tp_builder *b, const struct tp_unit *of)
{
    const struct tp_rule *rule = b->choices[of->views[0].weight].rule;
    struct tp_draft bias;
    char text[400];
    enum tp_code code = tp_plan_bias_of(b, of, &bias.unit, &bias.form);
    if (code || !bias.unit.views)
        return code;
    const char *reason = tp_plan_unit_kind(b, &bias.unit, rule, text, sizeof text);
    if (!reason)
        reason = seam_reason(b, &bias.unit, text, sizeof text);
    return reason ? tp_plan_refuse(b, &bias.unit, reason) : tp_plan_add_unit(b, &bias.unit);
}

bool tp_plan_row_order(const struct tp_builder *b, const struct tp_unit_form *form,
                       const struct tp_rule *rule, const char *name, struct tp_row_order *order)
{
    *order = (struct tp_row_order){0};
    return form->rank != 2 || rule->format->config ||
           tp_name_rows(&b->plan->weights->facts, name, form->box.n, order);
}

/* Sets the order of the rows of a matrix for a kernel; a reason against it, or NULL. */
static const char *order_rows(const struct tp_builder *b, struct tp_unit *unit,
                              const struct tp_rule *rule, char *text, size_t size)
{
    const struct tp_row_order *is = &tp_weight_at(b, unit->views[0].weight)->form->settings.rows;
    struct tp_unit_form *form = unit->form;
    struct tp_row_order order;
    const bool known = tp_plan_row_order(b, form, rule, unit->name, &order);
    form->settings.rows = order;
    if (known && order.kind == TP_ORDER_QKV_GROUPS && tp_row_head(&order, form->box.n) % 32) {
        snprintf(text, size, "readers move its heads, whose rows are no multiple of 32");
        return text;
    }
    if (known && (!is->kind || !order.kind || tp_row_order_same(is, &order))) {
        tp_form_reorder(form, &order, is);
        return NULL;
    }
    snprintf(text, size, "readers move its rows by heads, and config.json states no heads that %s",
             known ? "are those of the source" : "its rows divide into");
    return text;
}

/* What is to be known of a unit that is made all the same, or NULL. */
static const char *warning_of(const struct tp_builder *b, const struct tp_unit *unit)
{
    struct tp_rule *rule = b->choices[unit->views[0].weight].rule;
    const struct tp_unit_form *form = unit->form;
    const struct tp_shape_rule *want =
        tp_format_broken_want(form->format, &form->settings, form->box,
                              form->rank == 3 || strstr(unit->name, ".experts."));
    const char *warning = want ? want->why : NULL;
    for (uint32_t p = 0; p < rule->format->params && !warning; p++)
        if (!(tp_rule_asked(rule)->set >> p & 1))
            warning = rule->format->param[p].warns[form->settings.choice[p]];
    if (!warning && form->search.is_signed && !form->format->searched.is_signed)
        warning = "scales may be negative, which no kernel of this format was seen to take";
    return warning;
}

enum tp_code tp_unit_finalize(struct tp_builder *b, struct tp_unit *unit, bool gated)
{
    char text[400];
    const struct tp_weight *source = tp_weight_at(b, unit->views[0].weight);
    const struct tp_rule *rule = b->choices[unit->views[0].weight].rule;
    choose_part(b, unit, gated);
    const char *reason = tp_plan_unit_kind(b, unit, rule, text, sizeof text);
    if (!reason)
        reason = order_rows(b, unit, rule, text, sizeof text);
    if (!reason)
        reason = shape_reason(unit, text, sizeof text);
    if (!reason)
        reason = seam_reason(b, unit, text, sizeof text);
    if (!reason)
        reason = tp_plan_bias_reason(b, unit, text, sizeof text);
    enum tp_code code = TP_OK;
    if (!reason)
        code = tp_plan_search(b, unit, rule);
    uint64_t views = tp_unit_views(unit);
    if (reason && source->form->format)
        code = tp_plan_refuse(b, unit, reason);
    for (uint64_t i = 0; i < views && code == TP_OK; i++) {
        uint32_t w = unit->views[i].weight;
        if (reason)
            code = tp_choice_keep(b, w, true, "%s", reason);
        b->choices[w].done = true;
    }
    if (reason || code) {
        tp_unit_close(unit);
        return code;
    }
    unit->form->warning = warning_of(b, unit);
    if ((code = tp_plan_add_inputs(b, unit)) || (code = add_bias(b, unit)))
        tp_unit_close(unit);
    return code ? code : tp_plan_add_unit(b, unit);
}
