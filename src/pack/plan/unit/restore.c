/* The way back: which plain tensors the packed weights of a checkpoint stand for.
 *
 * Every packed weight says which rows of which tensor it was (its origins). These
 * fragments are sorted by tensor, expert and row; a tensor must be covered exactly,
 * by the same cut for each of its experts, and becomes one plain unit.
 */
#include "pack/plan/unit/build.h"

#include "base/num.h"
#include "pack/os/os.h"
#include "pack/plan/unit/origin.h"

#include <stdlib.h>
#include <string.h>

/* Rows of one expert of a plain tensor, or of each of a stack, and where they lie now. */
struct fragment {
    char *name;
    uint64_t e, row, rows, step;
    uint64_t shape[3];
    uint32_t rank;
    bool stack;      /* of expert 0, and so of all others: the view is that of expert 0, too */
    bool transposed; /* the tensor was stored [E,K,N] */
    bool flat;       /* it is a bias */
    struct tp_view view;
    struct tp_row_order order; /* of the weight's rows */
    enum tp_dtype dtype; /* of the original values */
};

struct fragments {
    struct fragment *items;
    size_t count, capacity;
};

static void fragments_free(struct fragments *fragments)
{
    for (size_t i = 0; i < fragments->count; i++)
        free(fragments->items[i].name);
    free(fragments->items);
    *fragments = (struct fragments){0};
}

/* Whether the origin is a whole tensor [E,N,K], whose experts are those of the weight. */
static bool is_stack(const struct tp_origin *origin)
{
    return origin->rank == 3 && origin->expert < 0;
}

static enum tp_code add_fragment(struct tp_builder *b, struct fragments *fragments,
                                 const struct tp_origin *origin, uint32_t w, uint64_t e,
                                 uint64_t row)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    enum tp_code code = tp_os_grow((void **)&fragments->items, &fragments->capacity,
                                   fragments->count + 1, sizeof *fragments->items, b->err);
    if (code)
        return code;
    struct fragment *fragment = &fragments->items[fragments->count];
    *fragment = (struct fragment){.e = origin->expert > 0 ? (uint64_t)origin->expert : 0,
                                  .row = origin->row, .rows = origin->rows,
                                  .step = tp_max_u64(origin->step, 1), .rank = origin->rank,
                                  .stack = is_stack(origin), .transposed = origin->transposed,
                                  .flat = origin->flat,
                                  .view = {.weight = w, .step = 1, .expert = e, .row = row},
                                  .order = weight->form->settings.rows,
                                  .dtype = weight->form->dtype};
    memcpy(fragment->shape, origin->shape, sizeof fragment->shape);
    fragment->name = b->checks ? tp_os_copy(b->err, origin->name)
                               : tp_origin_name(origin, e, b->err);
    if (!fragment->name)
        return TP_E_MEMORY;
    fragments->count++;
    return TP_OK;
}

/* Whether one origin can be of this weight: the same K, and as many experts as it
 * says. Stored text is not to be trusted. */
static bool origin_fits(const struct tp_weight *weight, const struct tp_origin *origin)
{
    bool template = strstr(origin->name, "{e}") != NULL;
    if (origin->shape[origin->rank - 1] != weight->form->box.k || (origin->rank == 3 && template))
        return false;
    if (origin->rank == 2)
        return origin->expert < 0 && (template || weight->form->box.e == 1);
    if (origin->expert >= 0)
        return weight->form->box.e == 1 && (uint64_t)origin->expert < origin->shape[0];
    return origin->shape[0] == weight->form->box.e;
}

/* All fragments of one weight; what records nothing stood for S.weight. */
static enum tp_code add_weight(struct tp_builder *b, struct fragments *fragments, uint32_t w)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    struct tp_origin *origins;
    uint32_t count;
    uint64_t row = 0;
    enum tp_code code = tp_weight_origins(b->plan, w, &origins, &count, b->err);
    for (uint32_t i = 0; i < count && code == TP_OK; i++) {
        if (!origin_fits(weight, &origins[i])) {
            tp_err_tensor(b->err, weight->name);
            code = tp_fail(b->err, TP_E_INPUT, "the tensor that its descriptor names as its "
                           "origin, %.200s, has another shape", origins[i].name);
        }
        /* One template says the same of each expert: to look at one is enough. */
        uint64_t experts = is_stack(&origins[i]) || b->checks ? 1 : weight->form->box.e;
        for (uint64_t e = 0; e < experts && code == TP_OK; e++)
            code = add_fragment(b, fragments, &origins[i], w, e, row);
        row += origins[i].rows;
    }
    tp_origins_free(origins, count);
    return code;
}

static int by_place(const void *a, const void *b)
{
    const struct fragment *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (order)
        return order;
    if (x->e != y->e)
        return x->e < y->e ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static enum tp_code not_covered(struct tp_builder *b, const struct fragment *fragment, uint64_t row)
{
    tp_err_tensor(b->err, fragment->name);
    tp_err_hint(b->err, "the checkpoint is a part of a larger one: take that");
    return tp_fail(b->err, TP_E_INPUT, "only parts of this tensor are here: expert %llu lacks or "
                   "doubles the rows from %llu on", (unsigned long long)fragment->e,
                   (unsigned long long)row);
}

/* Interleaved rows are taken apart again: as many fragments as a step is long. */
static enum tp_code first_deal(struct tp_builder *b, const struct fragment *fragments, size_t count,
                               struct tp_unit *unit)
{
    uint64_t step = fragments->step, n = unit->form->box.n;
    for (uint64_t i = 0; i < step; i++) {
        if (i >= count || fragments[i].e || fragments[i].row != i || fragments[i].rows * step != n)
            return not_covered(b, fragments, i);
        unit->form->view_rows[unit->form->views_per_expert++] = fragments[i].rows;
    }
    unit->form->interleaved = unit->form->gathers = true;
    return TP_OK;
}

/* The cut of the first expert; false if it does not cover all rows. */
static enum tp_code first_cut(struct tp_builder *b, const struct fragment *fragments, size_t count,
                              struct tp_unit *unit)
{
    uint64_t row = 0;
    if (fragments->step > 1)
        return first_deal(b, fragments, count, unit);
    for (size_t i = 0; i < count && row < unit->form->box.n; i++) {
        if (unit->form->views_per_expert == TP_MAX_VIEWS) {
            tp_err_tensor(b->err, fragments->name);
            return tp_fail(b->err, TP_E_UNSUPPORTED, "this tensor was cut into more than %d pieces",
                           TP_MAX_VIEWS);
        }
        if (fragments[i].e || fragments[i].row != row)
            return not_covered(b, fragments, row);
        unit->form->view_rows[unit->form->views_per_expert++] = fragments[i].rows;
        row += fragments[i].rows;
    }
    return row == unit->form->box.n ? TP_OK : not_covered(b, fragments, row);
}

static enum tp_code fill_parts(struct tp_builder *b, const struct fragment *fragments, size_t count,
                               struct tp_unit *unit)
{
    uint64_t per = unit->form->views_per_expert;
    uint64_t experts = unit->form->repeats ? 1 : unit->form->box.e;
    if (count % per || count / per != experts) /* stated: a product would wrap */
        return not_covered(b, &fragments[count - 1], 0);
    for (uint64_t e = 0; e < experts; e++)
        for (uint64_t p = 0, row = 0; p < per; p++) {
            const struct fragment *fragment = &fragments[e * per + p];
            if (fragment->e != e || fragment->row != row ||
                fragment->rows != unit->form->view_rows[p] || fragment->rank != fragments->rank ||
                fragment->stack != fragments->stack || fragment->step != fragments->step ||
                fragment->transposed != fragments->transposed ||
                fragment->flat != fragments->flat ||
                memcmp(fragment->shape, fragments->shape, sizeof fragment->shape) != 0)
                return not_covered(b, fragment, row);
            unit->views[e * per + p] = fragment->view;
            if (fragment->flat) /* numbers as they were, where all are of one type */
                unit->form->original =
                    fragment->dtype == fragments->dtype ? fragment->dtype : TP_F32;
            else if (fragment->dtype != TP_BF16)
                unit->form->original = TP_F32;
            row += unit->form->interleaved ? 1 : fragment->rows;
        }
    return TP_OK;
}

/* The fragments of one tensor, which have to cover it; it becomes a unit of the plan. */
static enum tp_code add_tensor(struct tp_builder *b, const struct fragment *fragments, size_t count,
                               enum tp_dtype dtype)
{
    uint32_t rank = fragments->rank;
    struct tp_unit_form form;
    memset(&form, 0, sizeof form); /* what lies between the members is compared, too */
    form.kind = TP_UNIT_PLAIN;
    form.rank = (int)rank;
    form.original = TP_BF16;
    form.outs = 1;
    form.repeats = fragments->stack;
    form.transposed = fragments->transposed;
    form.flat = fragments->flat;
    form.box = (struct tp_box3){rank == 3 ? fragments->shape[0] : 1, fragments->shape[rank - 2],
                                fragments->shape[rank - 1]};
    tp_form_reorder(&form, &(struct tp_row_order){0}, &fragments->order);
    form.gathers = tp_form_moves(&form);
    struct tp_unit unit = {.form = &form, .stats = UINT32_MAX};
    unit.name =
        tp_store_join(&b->plan->store, fragments->name, strlen(fragments->name), "", b->err);
    unit.views = tp_store_zalloc(&b->plan->store, count, sizeof *unit.views, b->err);
    enum tp_code code = unit.name && unit.views ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK && (code = first_cut(b, fragments, count, &unit)) == TP_OK)
        code = fill_parts(b, fragments, count, &unit);
    form.dtype = dtype == TP_DTYPE_NONE ? form.original : dtype;
    return code || b->checks ? code : tp_plan_add_unit(b, &unit);
}

static enum tp_code add_tensors(struct tp_builder *b, struct fragments *fragments,
                                enum tp_dtype dtype)
{
    enum tp_code code = TP_OK;
    if (fragments->count)
        qsort(fragments->items, fragments->count, sizeof *fragments->items, by_place);
    for (size_t i = 0, end; i < fragments->count && code == TP_OK; i = end) {
        for (end = i + 1; end < fragments->count &&
                          strcmp(fragments->items[i].name, fragments->items[end].name) == 0;)
            end++;
        code = add_tensor(b, fragments->items + i, end - i, dtype);
        if (b->checks)
            tp_store_close(&b->plan->store);
    }
    return code;
}

/* A plain weight as a unit of its own dtype. */
static enum tp_code add_plain(struct tp_builder *b, uint32_t w)
{
    const struct tp_weight *weight = tp_weight_at(b, w);
    struct tp_unit unit;
    enum tp_code code = tp_unit_of_weight(b->plan, &unit, TP_UNIT_PLAIN, w, b->err);
    if (code)
        return code;
    struct tp_unit_form form;
    memcpy(&form, unit.form, sizeof form); /* with what lies between the members */
    form.outs = 1;
    form.transposed = weight->form->transposed;
    unit.form = &form;
    unit.name = b->plan->ckpt->tensors[weight->tensor[0]].name;
    return tp_plan_add_unit(b, &unit);
}

enum tp_code tp_plan_plain_units(struct tp_builder *b, enum tp_dtype dtype, bool all,
                                 const bool *skip)
{
    struct fragments fragments = {0};
    enum tp_code code = TP_OK;
    for (uint32_t w = 0; w < b->plan->weights->count && code == TP_OK; w++) {
        if (skip && skip[w])
            continue;
        if (tp_weight_at(b, w)->form->format)
            code = add_weight(b, &fragments, w);
        else if (all)
            code = add_plain(b, w);
    }
    if (code == TP_OK)
        code = add_tensors(b, &fragments, dtype);
    fragments_free(&fragments);
    return code;
}

enum tp_code tp_plan_check_origins(const struct tp_checkpoint *ckpt,
                                   const struct tp_weights *weights, bool whole,
                                   struct tp_err *err)
{
    struct tp_plan plan = {.ckpt = ckpt, .weights = weights};
    struct tp_err found = {0};
    struct tp_builder b = {.plan = &plan, .checks = true, .err = &found};
    struct fragments fragments = {0};
    enum tp_code code = TP_OK;
    for (uint32_t w = 0; w < weights->count && code == TP_OK; w++) {
        if (weights->items[w].form->format && weights->items[w].origins)
            code = add_weight(&b, &fragments, w);
        if (!whole)
            fragments_free(&fragments);
    }
    if (code == TP_OK)
        code = add_tensors(&b, &fragments, TP_DTYPE_NONE);
    fragments_free(&fragments);
    tp_store_close(&plan.store);
    if (code == TP_E_UNSUPPORTED) /* right, but beyond what unpack does */
        return TP_OK;
    if (code)
        *err = found;
    return code;
}
