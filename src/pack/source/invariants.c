/* Known contents: walks stored elements in the order of their bytes, with their
 * coordinates carried along as an odometer, so that no element costs a division.
 * Invariant: `first` is the lowest wrong element, in whatever order leaves come.
 */
#include "pack/source/invariants.h"

#include "base/num.h"
#include "kernels/op/codec.h"
#include "kernels/op/floats.h"
#include "kernels/op/traits.h"
#include "pack/os/os.h"
#include "pack/source/weight_complete.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_padding(const struct tp_invariant *c)
{
    const struct tp_content_form *form = c->form;
    if (c->weight->form->op.out[c->out].word_bits) /* elements lie across bytes, or change places */
        return false;
    return form->n < tp_layout_extent(&form->layout, TP_DIM_N) ||
           form->k < tp_layout_extent(&form->layout, TP_DIM_K);
}

static bool is_group8(const struct tp_invariant *c)
{
    return c->weight->form->op.out[c->out].role == TP_ROLE_GROUP8;
}

/* Codes of FP8 and MXFP8, of which two are NaN, and weights that are stored as numbers. */
static bool is_number_code(const struct tp_op_out *out)
{
    return out->role == TP_ROLE_CODES && !out->word_bits &&
           (out->element == TP_ELEM_E4M3 || tp_elements[out->element].is_float);
}

static bool any_nonfinite(const struct tp_op_out *out, const uint8_t *data, uint64_t count)
{
    return tp_elements[out->element].is_float
               ? tp_floats_any_nonfinite(tp_elements[out->element].dtype, data, count)
               : tp_e4m3_any_nan(data, count);
}

/* Whether elements are scales, or multiples of them, or other numbers that may be none. */
static bool is_number(const struct tp_op *op, const struct tp_op_out *out)
{
    return out->role == TP_ROLE_SCALE || out->role == TP_ROLE_CHANNEL ||
           out->role == TP_ROLE_GLOBAL ||
           (out->role == TP_ROLE_ZERO && tp_op_zero_is_product(op)) ||
           out->role == TP_ROLE_GROUP8 || is_number_code(out);
}

static int by_offset(const void *a, const void *b, void *tensors)
{
    const struct tp_tensor *x = (const struct tp_tensor *)tensors +
                                ((const struct tp_invariant *)a)->tensor;
    const struct tp_tensor *y = (const struct tp_tensor *)tensors +
                                ((const struct tp_invariant *)b)->tensor;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Adds the check of one output, if there is something to check. */
static enum tp_code add(struct tp_invariants *invariants, size_t *capacity,
                        const struct tp_weight *weight, uint32_t i, bool finite,
                        struct tp_err *err)
{
    const struct tp_op_out *out = &weight->form->op.out[i];
    struct tp_content_form form;
    if (!out->layout || weight->tensor[i] == TP_NO_TENSOR)
        return TP_OK;
    memset(&form, 0, sizeof form); /* what lies between the members is compared, too */
    enum tp_code code = tp_op_whole_layout(&weight->form->op, i, weight->form->box, &form.layout,
                                           err);
    if (code)
        return code;
    uint64_t rows = tp_op_segment_rows(&weight->form->op, weight->form->box.n);
    form.n = out->per_n ? tp_ceil_div(rows, out->per_n) : 1;
    form.k = out->per_k ? tp_ceil_div(weight->form->box.k, out->per_k) : 1;
    form.finite = finite && is_number(&weight->form->op, out);
    struct tp_invariant c = {
        .tensor = weight->tensor[i], .weight = weight, .out = i, .form = &form};
    if (!has_padding(&c) && !is_group8(&c) && !form.finite)
        return TP_OK;
    if (!(c.form = tp_shared_keep(&invariants->forms, &form, sizeof form, err)) ||
        tp_os_grow((void **)&invariants->items, capacity, invariants->count + 1,
                   sizeof *invariants->items, err))
        return TP_E_MEMORY;
    invariants->items[invariants->count++] = c;
    return TP_OK;
}

enum tp_code tp_invariants_open(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                                const bool *only, bool finite, struct tp_invariants *invariants,
                                struct tp_err *err)
{
    size_t capacity = 0;
    enum tp_code code = TP_OK;
    *invariants = (struct tp_invariants){.ckpt = ckpt};
    pthread_mutex_init(&invariants->lock, NULL);
    for (size_t w = 0; w < weights->count && code == TP_OK; w++) {
        const struct tp_weight *weight = &weights->items[w];
        if (!weight->form->format || (only && !only[w]))
            continue;
        for (uint32_t i = 0; i < weight->form->op.outs && code == TP_OK; i++)
            code = add(invariants, &capacity, weight, i, finite, err);
    }
    if (code)
        return code;
    if (invariants->count)
        qsort_r(invariants->items, invariants->count, sizeof *invariants->items, by_offset,
                ckpt->tensors);
    return TP_OK;
}

void tp_invariants_close(struct tp_invariants *invariants)
{
    if (invariants->ckpt)
        pthread_mutex_destroy(&invariants->lock);
    free(invariants->items);
    tp_shared_close(&invariants->forms);
    *invariants = (struct tp_invariants){0};
}

/* ---- elements in order of their offset ----------------------------------- */

struct wheel {
    uint64_t size, digit, weight; /* weight: what one step adds to the coordinate */
    int dim;
};

struct walk {
    struct wheel wheels[TP_DIMS * TP_LAYOUT_MODES];
    int count;
    uint64_t at[TP_DIMS];
};

/* The modes by ascending stride: the layout is a bijection onto [0,size), so each
 * stride is the product of the sizes before it. */
static void sort_wheels(const struct tp_layout *layout, struct walk *walk)
{
    uint64_t strides[TP_DIMS * TP_LAYOUT_MODES];
    walk->count = 0;
    for (int d = 0; d < TP_DIMS; d++) {
        uint64_t weight = 1;
        for (uint32_t m = 0; m < layout->dim[d].modes; m++) {
            struct wheel wheel = {layout->dim[d].size[m], 0, weight, d};
            uint64_t stride = layout->dim[d].stride[m];
            weight *= wheel.size;
            if (wheel.size == 1)
                continue;
            int at = walk->count++;
            for (; at > 0 && strides[at - 1] > stride; at--) {
                strides[at] = strides[at - 1];
                walk->wheels[at] = walk->wheels[at - 1];
            }
            strides[at] = stride;
            walk->wheels[at] = wheel;
        }
    }
}

static void walk_to(struct walk *walk, const struct tp_layout *layout, uint64_t offset)
{
    memset(walk->at, 0, sizeof walk->at);
    sort_wheels(layout, walk);
    for (int i = 0; i < walk->count; i++) {
        struct wheel *wheel = &walk->wheels[i];
        wheel->digit = offset % wheel->size;
        offset /= wheel->size;
        walk->at[wheel->dim] += wheel->digit * wheel->weight;
    }
}

static inline void walk_on(struct walk *walk)
{
    for (int i = 0; i < walk->count; i++) {
        struct wheel *wheel = &walk->wheels[i];
        walk->at[wheel->dim] += wheel->weight;
        if (++wheel->digit < wheel->size)
            return;
        walk->at[wheel->dim] -= wheel->size * wheel->weight;
        wheel->digit = 0;
    }
}

/* ---- checks -------------------------------------------------------------- */

struct found {
    uint64_t bad, first;
};

static void note(struct found *found, uint64_t element)
{
    if (found->bad++ == 0)
        found->first = element;
}

static bool is_right(const struct tp_op_out *out, const uint8_t *number)
{
    float value;
    return out->role == TP_ROLE_GLOBAL ? tp_source_global_right(out, number, &value)
                                       : tp_source_scale_finite(out->element, number);
}

static bool is_fill(const uint8_t *data, unsigned bits, uint64_t i, uint8_t fill)
{
    if (bits == 4)
        return (data[i / 2] >> i % 2 * 4 & 15) == (fill >> i % 2 * 4 & 15);
    for (unsigned b = 0; b < bits / 8; b++)
        if (data[i * (bits / 8) + b] != fill)
            return false;
    return true;
}

/* Elements [first, first + count) of a tensor; data holds them (the first nibble
 * of data is an even element). */
static void check_elements(const struct tp_invariant *c, const uint8_t *data, uint64_t first,
                           uint64_t count, struct found *found)
{
    const struct tp_op_out *out = &c->weight->form->op.out[c->out];
    unsigned bits = tp_element_bits(out->element);
    bool suspect = c->form->finite && !is_group8(c) &&
                   (!is_number_code(out) || any_nonfinite(out, data, count));
    struct walk walk;
    if (is_group8(c))
        for (uint64_t i = 0; i < count; i++)
            if (!tp_group8_right(data + 8 * i) ||
                (c->form->finite && tp_e4m3_any_nan(data + 8 * i + 7, 1)))
                note(found, first + i);
    for (uint64_t i = 0; suspect && i < count; i++)
        if (!is_right(out, data + i * (bits / 8)))
            note(found, first + i);
    if (!has_padding(c))
        return;
    walk_to(&walk, &c->form->layout, first);
    for (uint64_t i = 0; i < count; i++, walk_on(&walk))
        if ((walk.at[TP_DIM_N] >= c->form->n || walk.at[TP_DIM_K] >= c->form->k) &&
            !is_fill(data, bits, i, out->fill))
            note(found, first + i);
}

static void merge(struct tp_invariants *invariants, struct tp_invariant *c,
                  const struct found *found)
{
    if (!found->bad)
        return;
    pthread_mutex_lock(&invariants->lock);
    if (!c->bad || found->first < c->first)
        c->first = found->first;
    if (!invariants->wrong)
        invariants->wrong = c;
    c->bad += found->bad;
    pthread_mutex_unlock(&invariants->lock);
}

/* Bytes [from, to) of a tensor, which lie at `data`. An element belongs to the
 * call that has its first byte. */
static enum tp_code check_range(struct tp_invariants *invariants, struct tp_invariant *c,
                                const uint8_t *data, uint64_t from, uint64_t to,
                                struct tp_err *err)
{
    const struct tp_tensor *tensor = &invariants->ckpt->tensors[c->tensor];
    unsigned bits = tp_element_bits(c->weight->form->op.out[c->out].element);
    uint64_t unit = bits < 8 ? 1 : bits / 8, per_unit = bits < 8 ? 2 : 1;
    uint64_t first = tp_round_up(from, unit), whole = to / unit * unit;
    struct found found = {0};
    if (first < whole)
        check_elements(c, data + (first - from), first / unit * per_unit,
                       (whole - first) / unit * per_unit, &found);
    if (whole >= from && whole < to) { /* the last one goes on behind the border */
        uint8_t element[8];
        enum tp_code code = tp_checkpoint_read(invariants->ckpt, tensor->file, element, unit,
                                               tensor->offset + whole, err);
        if (code)
            return code;
        check_elements(c, element, whole / unit, 1, &found);
    }
    atomic_fetch_add_explicit(&c->seen, to - from, memory_order_relaxed);
    merge(invariants, c, &found);
    return TP_OK;
}

enum tp_code tp_invariants_check(struct tp_invariants *invariants, uint32_t file,
                                 const uint8_t *data, uint64_t size, uint64_t offset,
                                 struct tp_err *err)
{
    size_t low = 0, high = invariants->count;
    enum tp_code code = TP_OK;
    while (low < high) { /* the first tensor that ends behind the offset */
        size_t middle = low + (high - low) / 2;
        const struct tp_tensor *t = &invariants->ckpt->tensors[invariants->items[middle].tensor];
        if (t->file < file || (t->file == file && t->offset + t->bytes <= offset))
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < invariants->count && code == TP_OK; low++) {
        struct tp_invariant *c = &invariants->items[low];
        const struct tp_tensor *t = &invariants->ckpt->tensors[c->tensor];
        if (t->file != file || t->offset >= offset + size)
            break;
        uint64_t from = tp_max_u64(offset, t->offset);
        uint64_t to = tp_min_u64(offset + size, t->offset + t->bytes);
        code = check_range(invariants, c, data + (from - offset), from - t->offset, to - t->offset,
                           err);
    }
    return code;
}

enum tp_code tp_invariants_refuse(struct tp_invariants *invariants, struct tp_err *err)
{
    pthread_mutex_lock(&invariants->lock);
    const struct tp_invariant *c = invariants->wrong;
    uint64_t first = c ? c->first : 0;
    pthread_mutex_unlock(&invariants->lock);
    if (!c)
        return TP_OK;
    const struct tp_tensor *tensor = &invariants->ckpt->tensors[c->tensor];
    unsigned bits = tp_element_bits(c->weight->form->op.out[c->out].element);
    tp_err_path(err, invariants->ckpt->files[tensor->file].path);
    tp_err_tensor(err, tensor->name);
    const struct tp_op_out *out = &c->weight->form->op.out[c->out];
    bool code = is_number_code(out);
    tp_err_hint(err, c->form->finite && out->role == TP_ROLE_GLOBAL
                         ? "--nonfinite keep copies it as it is"
                     : c->form->finite
                         ? "--nonfinite keep copies it as it is, if it is no number; "
                           "'tilepack verify' looks at the whole file"
                         : "'tilepack verify' looks at the whole file; convert it again from "
                           "its source");
    return tp_fail(err, TP_E_INPUT, "%s (at byte %llu of the tensor): it is not copied",
                   is_group8(c) ? "scales are not the eight multiples of one number, or NaN"
                   : c->form->finite && out->role == TP_ROLE_GLOBAL
                       ? "a global scale is no positive number"
                   : c->form->finite && code
                       ? tp_elements[out->element].is_float
                             ? "a value is NaN or infinite, or padding does not hold the fill value"
                             : "a code is NaN, or padding does not hold the fill value"
                   : c->form->finite ? "a scale is NaN or infinite, or padding does not hold the "
                                       "fill value"
                                     : "padding does not hold the fill value",
                   (unsigned long long)(first * bits / 8));
}

enum tp_code tp_invariants_end(struct tp_invariants *invariants, struct tp_err *err)
{
    enum tp_code code = tp_invariants_refuse(invariants, err);
    for (size_t i = 0; i < invariants->count && code == TP_OK; i++) {
        const struct tp_invariant *c = &invariants->items[i];
        const struct tp_tensor *tensor = &invariants->ckpt->tensors[c->tensor];
        uint64_t seen = atomic_load(&c->seen);
        if (seen >= tensor->bytes)
            continue;
        tp_err_path(err, invariants->ckpt->files[tensor->file].path);
        tp_err_tensor(err, tensor->name);
        tp_err_hint(err, "this is a mistake of tilepack: please report it");
        code = tp_fail(err, TP_E_UNSUPPORTED, "%llu of its %llu bytes have not been looked at: "
                       "it is not copied", (unsigned long long)(tensor->bytes - seen),
                       (unsigned long long)tensor->bytes);
    }
    return code;
}
