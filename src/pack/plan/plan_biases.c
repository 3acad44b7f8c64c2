/* The biases of weights: a format that says in which order its reader wants them makes a unit
 * W[E,N,1] of each, with the rows of the weight that it belongs to.
 *
 * Invariant: where the rows of a weight change places, those of its bias do, or it is refused.
 */
#include "pack/plan/plan_build.h"

#include "base/num.h"
#include "kernels/op/floats.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tp_weight *weight_at(const struct tp_builder *b, uint32_t w)
{
    return &b->plan->weights->items[w];
}

static int by_name(const void *name, const void *weight)
{
    return strcmp(name, ((const struct tp_weight *)weight)->name);
}

/* The number of the plain bias beside the weight, or TP_NO_TENSOR. */
static uint32_t find_bias(const struct tp_builder *b, const struct tp_weight *weight)
{
    static const char *const ends[] = {".bias", "_bias"};
    const struct tp_weights *weights = b->plan->weights;
    const struct tp_weight *biases = weights->items + weights->count, *found = NULL;
    char name[TP_FULL_NAME];
    for (size_t i = 0; i < 2 && !found && weights->biases; i++)
        if (snprintf(name, sizeof name, "%s%s", weight->name, ends[i]) < (int)sizeof name)
            found = bsearch(name, biases, weights->biases, sizeof *biases, by_name);
    return found ? (uint32_t)(found - weights->items) : TP_NO_TENSOR;
}

/* A bias of the stack that the weight was made of, which lies beside its experts now. */
static const struct tp_weight *stack_bias(const struct tp_builder *b,
                                          const struct tp_weight *weight)
{
    const struct tp_weights *weights = b->plan->weights;
    const struct tp_weight *biases = weights->items + weights->count, *found = NULL;
    char name[TP_FULL_NAME];
    for (uint32_t i = 0; i < weight->origins && !found && weights->biases; i++) {
        const char *origin = weight->origin[i].name;
        if (snprintf(name, sizeof name, "%.*s_bias", (int)tp_name_stem(origin), origin) <
            (int)sizeof name)
            found = bsearch(name, biases, weights->biases, sizeof *biases, by_name);
    }
    return found;
}

/* Whether the format has rows of gate and up in an order of its own. */
static bool moves_rows(const struct tp_format *format)
{
    return format->rows == TP_ROWS_UP_GATE || format->part == TP_PART_GATED;
}

static bool same_size(const struct tp_weight_form *bias, const struct tp_weight_form *weight)
{
    return bias->rank == weight->rank && bias->box.e == weight->box.e &&
           bias->box.n == weight->box.n;
}

const char *tp_plan_bias_reason(const struct tp_builder *b, const struct tp_unit *unit, char *text,
                                size_t size)
{
    uint64_t views = tp_unit_views(unit);
    const struct tp_format *format = unit->form->format;
    const struct tp_weight_form *form = NULL;
    if (format->is_bias || (!tp_format_bias(format) && !moves_rows(format)))
        return NULL;
    for (uint64_t i = 0; i < views; i++) {
        const struct tp_weight *weight = weight_at(b, unit->views[i].weight);
        uint32_t w = find_bias(b, weight);
        const struct tp_weight_form *own = w == TP_NO_TENSOR ? NULL : weight_at(b, w)->form;
        if (i && !own != !form) {
            snprintf(text, size, "of its parts, some have a bias and others have none");
            return text;
        }
        form = own;
        if (!own)
            continue;
        if (!same_size(own, weight->form) ||
            own->dtype != weight_at(b, find_bias(b, weight_at(b, unit->views[0].weight)))
                              ->form->dtype) {
            snprintf(text, size, "its bias %s has not its rows, or another type than that of "
                     "another part", weight_at(b, w)->name);
            return text;
        }
    }
    const struct tp_weight *stack =
        form ? NULL : stack_bias(b, weight_at(b, unit->views[0].weight));
    if (stack) {
        tp_err_hint(b->err, "convert the checkpoint that it was made of");
        snprintf(text, size, "its bias is a part of %s, whose experts are apart here", stack->name);
        return text;
    }
    if (!form || tp_format_bias(format))
        return NULL;
    snprintf(text, size, "it has a bias, and %s does not say in which order it would have to be",
             format->name);
    return text;
}

enum tp_code tp_plan_bias_form(const struct tp_format *format, enum tp_part part,
                               enum tp_dtype dtype, struct tp_unit_form *form,
                               struct tp_err *err)
{
    form->format = tp_format_for(format, part);
    memset(&form->settings, 0, sizeof form->settings);
    tp_format_op(form->format, &form->settings, &form->op);
    uint32_t codes = (uint32_t)tp_op_find(&form->op, TP_ROLE_CODES);
    uint32_t choices = form->format->params ? form->format->param[0].count : 1;
    for (uint32_t c = 0; c < choices; c++) { /* in the type that it has, if there is a choice */
        form->settings.choice[0] = (uint8_t)c;
        tp_format_op(form->format, &form->settings, &form->op);
        if (choices == 1 || tp_floats_dtype(form->op.out[codes].element) == dtype) {
            form->outs = form->op.outs;
            return TP_OK;
        }
    }
    return tp_fail(err, TP_E_UNSUPPORTED, "%s has no bias of type %s", format->name,
                   tp_dtype_name(dtype));
}

/* "X.w13" and '_' -> "X.w13_bias" */
static const char *name_of(struct tp_builder *b, const struct tp_unit *unit)
{
    char end[] = {unit->form->joint, 'b', 'i', 'a', 's', '\0'};
    return tp_store_join(&b->plan->store, unit->name, strlen(unit->name), end, b->err);
}

enum tp_code tp_plan_add_bias(struct tp_builder *b, const struct tp_unit *of)
{
    const struct tp_format *format = tp_format_bias(of->form->format);
    uint64_t views = tp_unit_views(of);
    uint32_t first = find_bias(b, weight_at(b, of->views[0].weight));
    struct tp_unit_form form;
    if (!format || of->form->format->is_bias || first == TP_NO_TENSOR)
        return TP_OK;
    memset(&form, 0, sizeof form); /* what lies between the members is compared, too */
    form.box = (struct tp_box3){of->form->box.e, of->form->box.n, 1};
    form.kind = TP_UNIT_ENCODE;
    form.rank = of->form->rank;
    form.dtype = form.original = weight_at(b, first)->form->dtype;
    form.views_per_expert = of->form->views_per_expert;
    form.repeats = of->form->repeats;
    memcpy(form.view_rows, of->form->view_rows, sizeof form.view_rows);
    enum tp_code code = tp_plan_bias_form(format, of->form->format->part, form.dtype, &form,
                                          b->err);
    struct tp_unit unit = {.form = &form, .stats = UINT32_MAX, .name = name_of(b, of)};
    unit.views = tp_store_copy(&b->plan->store, of->views, views * sizeof *of->views, b->err);
    if (code || !unit.name || !unit.views)
        return code ? code : TP_E_MEMORY;
    for (uint64_t i = 0; i < views; i++) {
        unit.views[i].weight = find_bias(b, weight_at(b, of->views[i].weight));
        b->taken[weight_at(b, unit.views[i].weight)->tensor[0]] = true;
    }
    return tp_plan_add_unit(b, &unit);
}

bool tp_plan_is_bias(const struct tp_weight *weight)
{
    return weight->form->format && weight->form->format->is_bias;
}

enum tp_code tp_plan_restore_biases(struct tp_builder *b)
{
    const struct tp_weights *weights = b->plan->weights;
    bool *skip = tp_os_zalloc(weights->count + 1, sizeof *skip, b->err);
    if (!skip)
        return TP_E_MEMORY;
    size_t count = 0;
    for (size_t w = 0; w < weights->count; w++) {
        skip[w] = !tp_plan_is_bias(&weights->items[w]) || !b->choices[w].rule ||
                  b->choices[w].rule->format->bias;
        count += !skip[w];
    }
    enum tp_code code =
        count ? tp_plan_plain_units(b, TP_DTYPE_NONE, false, skip) : TP_OK;
    free(skip);
    return code;
}
