/* The biases of weights: a format that says in which order its reader wants them makes a unit
 * W[E,N,1] of each, with the rows of the weight that it belongs to. A bias has the name of its
 * weight, or still that of the tensor that the weight was made of.
 *
 * Invariant: where the rows of a weight change places, those of its bias do, or it is refused.
 */
#include "pack/plan/unit/build.h"

#include "base/num.h"
#include "kernels/op/traits.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *name, const void *weight)
{
    return strcmp(name, ((const struct tp_weight *)weight)->name);
}

enum tp_code tp_plan_find_biases(struct tp_builder *b)
{
    const struct tp_weights *weights = b->plan->weights;
    size_t count = 0;
    for (uint32_t w = 0; w < weights->count; w++)
        count += tp_plan_is_bias(tp_weight_at(b, w));
    if (!(b->packed_biases = tp_os_zalloc(count + 1, sizeof *b->packed_biases, b->err)))
        return TP_E_MEMORY;
    for (uint32_t w = 0; w < weights->count; w++)
        if (tp_plan_is_bias(tp_weight_at(b, w)))
            b->packed_biases[b->packed_bias_count++] =
                (struct tp_name_key){tp_weight_at(b, w)->name, w};
    tp_names_sort(b->packed_biases, count);
    return TP_OK;
}

static bool has_biases(const struct tp_builder *b)
{
    return b->plan->weights->biases || b->packed_bias_count;
}

static uint32_t find_exactly(const struct tp_builder *b, const char *name)
{
    const struct tp_weights *weights = b->plan->weights;
    const struct tp_weight *biases = weights->items + weights->count, *plain = NULL;
    const struct tp_name_key *packed =
        tp_names_sorted_find(b->packed_biases, b->packed_bias_count, name, strlen(name), '\0');
    if (!packed && weights->biases)
        plain = bsearch(name, biases, weights->biases, sizeof *biases, by_name);
    return packed ? (uint32_t)packed->index
           : plain ? (uint32_t)(plain - weights->items) : TP_NO_TENSOR;
}

/* The number of the bias of that name, plain or packed, or TP_NO_TENSOR. */
static uint32_t find_bias(const struct tp_builder *b, const char *base, size_t size)
{
    static const char *const ends[] = {".bias", "_bias"};
    uint32_t found = TP_NO_TENSOR;
    char name[TP_FULL_NAME];
    for (size_t i = 0; i < 2 && found == TP_NO_TENSOR && has_biases(b); i++)
        if (snprintf(name, sizeof name, "%.*s%s", (int)size, base, ends[i]) < (int)sizeof name)
            found = find_exactly(b, name);
    return found;
}

/* The same of the tensor that the weight's expert was made of. */
static uint32_t find_origin_bias(const struct tp_builder *b, const struct tp_origin *origin,
                                 uint64_t expert)
{
    static const char marker[] = "{e}";
    const char *at = strstr(origin->name, marker);
    char name[TP_FULL_NAME];
    if (!at)
        return find_bias(b, origin->name, tp_name_base(origin->name));
    int size = snprintf(name, sizeof name, "%.*s%llu%s", (int)(at - origin->name), origin->name,
                        (unsigned long long)expert, at + strlen(marker));
    return size < (int)sizeof name ? find_bias(b, name, tp_name_base(name)) : TP_NO_TENSOR;
}

enum fit { FITS, OTHER_ROWS, PART_OF_STACK };

/* The biases of one expert's rows, in their order. */
struct parts {
    struct tp_view view[TP_MAX_VIEWS]; /* weight: TP_NO_TENSOR where there is none */
    uint64_t rows[TP_MAX_VIEWS];
    enum fit fit[TP_MAX_VIEWS];
    uint32_t count;
};

static enum fit fits_weight(const struct tp_weight_form *bias, const struct tp_weight_form *weight)
{
    return bias->rank == weight->rank && bias->box.e == weight->box.e &&
                   bias->box.n == weight->box.n ? FITS : OTHER_ROWS;
}

/* A bias is taken as a whole, and so all of the tensor that it belongs to is in the weight. */
static enum fit fits_origin(const struct tp_weight_form *bias, const struct tp_weight *weight,
                            const struct tp_origin *origin)
{
    uint64_t rows = 0;
    if (origin->rank == 3 && weight->form->rank == 2)
        return PART_OF_STACK;
    for (uint32_t i = 0; i < weight->origins; i++)
        if (strcmp(weight->origin[i].name, origin->name) == 0)
            rows += weight->origin[i].rows;
    return bias->rank == (int)origin->rank &&
                   bias->box.e == (origin->rank == 3 ? weight->form->box.e : 1) &&
                   bias->box.n == origin->shape[origin->rank - 2] && bias->box.n == rows
               ? FITS : OTHER_ROWS;
}

/* The next part: the bias of the view's rows, at most `left`, beside the weight, or else beside
 * what it was made of: a format without biases leaves them there. */
static void find_part(const struct tp_builder *b, const struct tp_view *view, uint64_t left,
                      struct parts *parts)
{
    const struct tp_weight *weight = tp_weight_at(b, view->weight);
    struct tp_view *part = &parts->view[parts->count];
    uint64_t first = 0;
    *part = *view;
    part->weight = find_bias(b, weight->name, strlen(weight->name));
    parts->rows[parts->count] = left;
    parts->fit[parts->count] = FITS;
    if (part->weight != TP_NO_TENSOR)
        parts->fit[parts->count] = fits_weight(tp_weight_at(b, part->weight)->form, weight->form);
    for (uint32_t i = 0; i < weight->origins && part->weight == TP_NO_TENSOR; i++) {
        const struct tp_origin *origin = &weight->origin[i];
        uint64_t row = view->row - first, step = tp_max_u64(view->step, 1);
        first += origin->rows;
        if (view->row >= first)
            continue;
        uint32_t w = part->weight = find_origin_bias(b, origin, view->expert);
        part->expert = origin->rank == 3 ? view->expert : 0;
        part->row = origin->row + row * tp_max_u64(origin->step, 1);
        part->step = (uint32_t)(step * tp_max_u64(origin->step, 1));
        parts->rows[parts->count] = tp_min_u64(left, (origin->rows - row - 1) / step + 1);
        if (w != TP_NO_TENSOR)
            parts->fit[parts->count] = fits_origin(tp_weight_at(b, w)->form, weight, origin);
        break;
    }
    parts->count++;
}

static void find_parts(const struct tp_builder *b, const struct tp_unit *unit, uint64_t e,
                       struct parts *parts)
{
    *parts = (struct parts){.count = 0};
    for (uint32_t p = 0; p < unit->form->views_per_expert; p++) {
        struct tp_view view = tp_unit_view(unit, e, p);
        for (uint64_t left = unit->form->view_rows[p], rows; left; left -= rows) {
            if (parts->count == TP_MAX_VIEWS) { /* of files that others made */
                parts->fit[0] = OTHER_ROWS;
                return;
            }
            find_part(b, &view, left, parts);
            rows = parts->rows[parts->count - 1];
            view.row += rows * tp_max_u64(view.step, 1);
        }
    }
}

static bool same_rows(const struct parts *a, const struct parts *b)
{
    return a->count == b->count && memcmp(a->rows, b->rows, sizeof a->rows) == 0;
}

/* Whether the format has rows of gate and up in an order of its own. */
static bool moves_rows(const struct tp_format *format)
{
    return format->rows == TP_ROWS_UP_GATE || format->part == TP_PART_GATED;
}

const char *tp_plan_bias_reason(const struct tp_builder *b, const struct tp_unit *unit, char *text,
                                size_t size)
{
    const struct tp_format *format = unit->form->format;
    const struct tp_weight_form *form = NULL;
    struct parts first, parts;
    if (!has_biases(b) || (!tp_format_bias(format) && !moves_rows(format)))
        return NULL;
    find_parts(b, unit, 0, &first);
    for (uint64_t e = 0; e < unit->form->box.e; e++) {
        find_parts(b, unit, e, &parts);
        for (uint32_t i = 0; i < parts.count; i++) {
            uint32_t w = parts.view[i].weight;
            const struct tp_weight *bias = w == TP_NO_TENSOR ? NULL : tp_weight_at(b, w);
            if (e + i && !bias != !form) {
                snprintf(text, size, "of its parts, some have a bias and others have none");
                return text;
            }
            if (bias && parts.fit[i] == PART_OF_STACK) {
                tp_err_hint(b->err, "convert the checkpoint that it was made of");
                snprintf(text, size, "its bias is a part of %s, whose experts are apart here",
                         bias->name);
                return text;
            }
            if (bias && (parts.fit[i] || !same_rows(&parts, &first) ||
                         (form && form->dtype != bias->form->dtype))) {
                snprintf(text, size, "its bias %s has not its rows, or another type than that of "
                         "another part", bias->name);
                return text;
            }
            form = bias ? bias->form : NULL;
        }
    }
    if (!form || tp_format_bias(format))
        return NULL;
    snprintf(text, size, "it has a bias, and %s does not say in which order it would have to be",
             format->name);
    return text;
}

/* Format, settings and operation for a bias of that dtype. */
static enum tp_code bias_form(const struct tp_format *format, enum tp_part part,
                              enum tp_dtype dtype, struct tp_unit_form *form, struct tp_err *err)
{
    form->format = tp_format_for(format, part);
    memset(&form->settings, 0, sizeof form->settings);
    tp_format_op(form->format, &form->settings, &form->op);
    uint32_t codes = (uint32_t)tp_op_find(&form->op, TP_ROLE_CODES);
    uint32_t choices = form->format->params ? form->format->param[0].count : 1;
    for (uint32_t c = 0; c < choices; c++) { /* in the type that it has, if there is a choice */
        form->settings.choice[0] = (uint8_t)c;
        tp_format_op(form->format, &form->settings, &form->op);
        if (choices == 1 || tp_elements[form->op.out[codes].element].dtype == dtype) {
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
    char end[] = {unit->form->separator, 'b', 'i', 'a', 's', '\0'};
    return tp_store_join(&b->plan->store, unit->name, strlen(unit->name), end, b->err);
}

/* The tensors of the unit's biases are in it, and nothing else becomes of them. */
static void take(struct tp_builder *b, const struct tp_unit *unit)
{
    uint64_t views = tp_unit_views(unit);
    for (uint64_t i = 0; i < views; i++) {
        uint32_t w = unit->views[i].weight;
        if (w < b->plan->weights->count)
            b->choices[w].done = true;
        else
            b->left_out[tp_weight_at(b, w)->tensor[0]] = true; /* which becomes part of another */
    }
}

enum tp_code tp_plan_bias_of(struct tp_builder *b, const struct tp_unit *of, struct tp_unit *unit,
                             struct tp_unit_form *form)
{
    const struct tp_format *format = has_biases(b) ? tp_format_bias(of->form->format) : NULL;
    struct parts parts;
    *unit = (struct tp_unit){.form = form, .stats = UINT32_MAX};
    if (!format)
        return TP_OK;
    find_parts(b, of, 0, &parts);
    if (parts.view[0].weight == TP_NO_TENSOR)
        return TP_OK;
    const struct tp_weight_form *first = tp_weight_at(b, parts.view[0].weight)->form;
    memset(form, 0, sizeof *form); /* what lies between the members is compared, too */
    form->box = (struct tp_box3){of->form->box.e, of->form->box.n, 1};
    form->rank = of->form->rank;
    form->original = first->dtype;
    form->views_per_expert = parts.count;
    form->repeats = of->form->repeats && first->rank == 3;
    memcpy(form->view_rows, parts.rows, sizeof form->view_rows);
    enum tp_code code = bias_form(format, of->form->format->part, first->dtype, form, b->err);
    uint64_t views = tp_unit_views(unit);
    unit->name = name_of(b, of);
    unit->views = tp_store_zalloc(&b->plan->store, views, sizeof *unit->views, b->err);
    if (code || !unit->name || !unit->views)
        return code ? code : TP_E_MEMORY;
    for (uint64_t e = 0, at = 0; at < views; e++, at += form->views_per_expert) {
        find_parts(b, of, e, &parts);
        memcpy(&unit->views[at], parts.view, form->views_per_expert * sizeof *parts.view);
    }
    take(b, unit);
    return TP_OK;
}

/* Packed biases beside packed weights that are kept are kept, too: their order is that of the
 * weight's rows. */
static enum tp_code keep_with_weights(struct tp_builder *b)
{
    uint32_t count = (uint32_t)b->plan->weights->count;
    enum tp_code code = TP_OK;
    for (uint32_t w = 0; w < count && code == TP_OK && b->packed_bias_count; w++) {
        const struct tp_weight *weight = tp_weight_at(b, w);
        if (b->choices[w].rule || !weight->form->format || tp_plan_is_bias(weight))
            continue;
        uint32_t bias = find_bias(b, weight->name, strlen(weight->name));
        if (bias < count && b->choices[bias].rule)
            code = tp_choice_keep(b, bias, false, "its weight is kept");
    }
    return code;
}

enum tp_code tp_plan_restore_biases(struct tp_builder *b)
{
    const struct tp_weights *weights = b->plan->weights;
    if (keep_with_weights(b))
        return b->err->code;
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
