/* What becomes of packed weights: whether they are taken over or quantized again, what that needs
 * leave for (--requantize), and what it loses: nothing, scales are rounded (the global one, or
 * those of blocks), or values are. All that is judged of that is judged here. Knows no bytes: how
 * much is lost is measured (pack/check).
 */
#include "pack/plan/unit/build.h"

#include "kernels/op/traits.h"

#include <stdio.h>
#include <string.h>

enum tp_loss tp_unit_loss(const struct tp_plan *plan, const struct tp_unit *unit)
{
    const struct tp_weight *source = &plan->weights->items[unit->views[0].weight];
    if (!unit->form->format || !source->form->format || unit->form->only_exact ||
        tp_op_is_number(&source->form->op))
        return TP_LOSS_NONE;
    if (unit->form->kind == TP_UNIT_ENCODE)
        return TP_LOSS_VALUES;
    if (unit->form->kind != TP_UNIT_REPACK)
        return TP_LOSS_NONE;
    return tp_repack_loss(&source->form->op, &unit->form->op);
}

/* The choices with which no more than `least` is lost of the weight, of those that do not hold now:
 * "--set group=32 --set scales=f16"; false: there are none. */
static bool name_exact(const struct tp_weight_form *from, const struct tp_rule *rule,
                       const struct tp_settings *now, enum tp_loss least, char *text, size_t size)
{
    const struct tp_format *format = rule->format;
    struct tp_settings settings = *now;
    enum tp_loss loss;
    struct tp_err err = {0};
    *text = '\0';
    if (tp_exact_choice(from, UINT32_MAX, &format, &settings, &loss, &err) || loss > least)
        return false;
    for (uint32_t p = 0; p < format->params; p++)
        if (settings.choice[p] != now->choice[p]) {
            size_t used = strlen(text);
            snprintf(text + used, size - used, "%s--set %s=%s", used ? " " : "",
                     format->param[p].key, format->param[p].choices[settings.choice[p]]);
        }
    return *text != '\0';
}

/* Which way round the global scale is. */
static const char *global_kind(const struct tp_op *op)
{
    return tp_op_divides(op) ? "a divisor" : "a multiplier";
}

/* Whether each block of `to` lies in one block of `from`; 0 is a block as long as the weight. */
static bool lies_within(uint32_t to, uint32_t from)
{
    return from == 0 || (to != 0 && from % to == 0);
}

/* FP8 and MXFP8 made of floats of no more bits, in blocks that are no coarser: what is lost is
 * little, and it is measured. */
static bool loses_little(const struct tp_op *from, const struct tp_op *to)
{
    return !tp_op_is_int(from) &&
           (to->codec == TP_CODEC_FP8 || to->codec == TP_CODEC_MXFP8) &&
           lies_within(to->block_n, from->block_n) && lies_within(to->block_k, from->block_k);
}

/* Why codes of that form are not what the result holds. */
static const char *form_reason(const struct tp_weight *weight, const struct tp_op *to, char *text,
                               size_t size)
{
    const struct tp_op *from = &weight->form->op;
    const char *reason = weight->lossy;
    bool ints = tp_op_is_int(from) && from->codec == to->codec;
    if (tp_repack_inverts(from, to) && tp_form_fits(weight->form, to)) {
        snprintf(text, size, "its global scale is %s, that of the result %s", global_kind(from),
                 global_kind(to));
        return text;
    }
    if (from->codec != TP_CODEC_INT4)
        reason = "it is quantized already, and has to be decoded and quantized again for that";
    else if (to->codec != TP_CODEC_INT4 || !reason)
        reason = "an int4 weight has to be decoded and quantized again for that";
    else if (tp_op_find(from, TP_ROLE_ORDER) >= 0 && tp_op_find(to, TP_ROLE_ZERO) >= 0)
        reason = "it is in act-order: the columns of a group do not lie side by side";
    if (ints && to->block_k && from->block_k % to->block_k)
        snprintf(text, size, "its groups are %u columns wide, which is no multiple of %u",
                 from->block_k, to->block_k);
    else
        snprintf(text, size, "%s", reason);
    return text;
}

/* Why a packed weight that has to be decoded needs --requantize, with the hint set, or NULL. */
static const char *lossy_reason(const struct tp_builder *b, const struct tp_weight *weight,
                                const struct tp_unit *unit, const struct tp_rule *rule, char *text,
                                size_t size)
{
    const struct tp_op *from = &weight->form->op, *to = &unit->form->op;
    const char *command = b->request->repack_only ? "tilepack convert " : "";
    char choice[160];
    if (tp_op_is_number(from))
        return NULL; /* nothing was quantized yet */
    bool inverts = tp_repack_inverts(from, to) && tp_form_fits(weight->form, to);
    if (!inverts && (loses_little(from, to) ||
                     (b->request->recorded && from->codec != TP_CODEC_INT4)))
        return NULL; /* recorded: 0.1.0 asked for --requantize with int4 only */
    const struct tp_settings *now = &unit->form->settings;
    if (name_exact(weight->form, rule, now, TP_LOSS_NONE, choice, sizeof choice))
        tp_err_hint(b->err, "%s%s takes its codes and scales over as they are; --exclude leaves it "
                            "as it is", command, choice);
    else if (name_exact(weight->form, rule, now, TP_LOSS_STOPS, choice, sizeof choice))
        tp_err_hint(b->err, "%s%s keeps its values, or says which one cannot be kept; --exclude "
                            "leaves it as it is", command, choice);
    else
        tp_err_hint(b->err, "%s--requantize decodes it and quantizes again, and prints the error "
                            "that costs; --exclude leaves it as it is", command);
    return form_reason(weight, to, text, size);
}

/* Two parts of an expert of the unit with different global scales. */
static bool differing_globals(const struct tp_builder *b, const struct tp_unit *unit,
                              const struct tp_weight **x, const struct tp_weight **y)
{
    const struct tp_weight *items = b->plan->weights->items;
    uint64_t views = tp_unit_views(unit);
    for (uint64_t i = 0; i < views; i++) {
        uint64_t first = i / unit->form->views_per_expert * unit->form->views_per_expert;
        *x = &items[unit->views[first].weight];
        *y = &items[unit->views[i].weight];
        if ((*x)->global != (*y)->global)
            return true;
    }
    return false;
}

/* Rows of a tile of the result that holds rows of two parts, or 0. */
static uint64_t shared_tile(const struct tp_unit *unit)
{
    uint64_t n, k, row = 0, segment = tp_op_segment_rows(&unit->form->op, unit->form->box.n);
    if (tp_op_granule(&unit->form->op, &n, &k, NULL) || n == 0)
        return 0; /* refused elsewhere; or whole columns, of a format with one scale */
    for (uint32_t p = 0; p < unit->form->views_per_expert; p++) {
        if (row % segment % n)
            return n;
        row += unit->form->view_rows[p];
    }
    return 0;
}

/* Why parts that are taken over cannot share one global scale, or NULL. Without one in the result
 * each part has its own, in scales of as many rows as a tile of the result has. */
static const char *global_reason(const struct tp_builder *b, const struct tp_unit *unit,
                                 char *text, size_t size)
{
    const struct tp_weight *x, *y;
    bool one = tp_op_find(&unit->form->op, TP_ROLE_GLOBAL) >= 0;
    uint64_t tile = one ? 0 : shared_tile(unit);
    if ((!one && !tile) || !differing_globals(b, unit, &x, &y))
        return NULL;
    char rows[64] = "the result has one for both";
    tp_err_hint(b->err, "%s--requantize decodes it and quantizes again, and prints the error that "
                        "costs%s", one ? "" : "--no-stack leaves the experts apart; or ",
                one ? "; --exclude leaves it as it is" : "");
    if (!one) {
        snprintf(rows, sizeof rows, "rows of both lie in one of its %llu-row tiles",
                 (unsigned long long)tile);
    }
    snprintf(text, size, "the global scales of %s and %s differ (%.9g and %.9g), and %s", x->name,
             y->name, (double)x->global, (double)y->global, rows);
    return text;
}

const char *tp_plan_unit_kind(const struct tp_builder *b, struct tp_unit *unit,
                              const struct tp_rule *rule, char *text, size_t size)
{
    const struct tp_weight *weight = tp_weight_at(b, unit->views[0].weight);
    struct tp_unit_form *form = unit->form;
    const bool asks = !b->request->requantize && !b->request->recorded;
    form->kind = TP_UNIT_ENCODE;
    form->dtype = weight->form->dtype;
    if (!weight->form->format)
        return NULL;
    if (tp_op_find(&weight->form->op, TP_ROLE_ZERO) >= 0) {
        tp_format_keep_zeros(form->format, &form->settings);
        tp_format_op(form->format, &form->settings, &form->op);
        form->outs = form->op.outs;
    }
    bool repacked = tp_form_fits(weight->form, &form->op);
    char choice[160]; /* a global scale becomes its reciprocal only where it has to */
    if (repacked && tp_repack_inverts(&weight->form->op, &form->op) &&
        name_exact(weight->form, rule, &form->settings, TP_LOSS_NONE, choice, sizeof choice))
        repacked = false;
    if (form->format->is_bias) { /* the type that it had is no smaller than its numbers */
        form->kind = repacked ? TP_UNIT_REPACK : TP_UNIT_ENCODE;
        form->dtype = weight->form->dtype == TP_BF16 ? TP_BF16 : TP_F32;
        return NULL;
    }
    if (repacked && !tp_rule_searches(rule)) {
        const char *reason = global_reason(b, unit, text, size);
        if (!reason)
            form->kind = TP_UNIT_REPACK;
        form->only_exact = !reason && asks && tp_scales_decide(&weight->form->op, &form->op);
        if (!reason || !b->request->requantize)
            return reason;
    } else if (repacked && !b->request->requantize) {
        tp_err_hint(b->err, "without --search they are taken over as they are; --requantize "
                            "decodes and searches again");
        return "its codes and scales are taken over, so that there is nothing to search";
    }
    form->dtype = tp_format_via(rule->format, &rule->settings, weight->form->dtype);
    form->only_exact = asks && tp_numbers_decide(&weight->form->op, &form->op);
    return b->request->requantize || form->only_exact
               ? NULL
               : lossy_reason(b, weight, unit, rule, text, size);
}
