/* What an operation says about its outputs: layouts, sizes, patterns, and when
 * one packed form can be taken over into another. Pure functions of the
 * description; touches no tensor data.
 */
#include "base/num.h"
#include "kernels/op/kernel.h"
#include "kernels/op/traits.h"
#include "kernels/op/word_bits.h"

#include <stdio.h>
#include <string.h>

static bool same_bits(const uint8_t *a, const uint8_t *b)
{
    return a == b || (a && b && memcmp(a, b, TP_WORD_BITS) == 0);
}

static bool same_out(const struct tp_op_out *a, const struct tp_op_out *b)
{
    return a->role == b->role && a->element == b->element && a->per_n == b->per_n &&
           a->per_k == b->per_k && a->place == b->place && a->fill == b->fill &&
           !(a->min < b->min || a->min > b->min) && a->factor == b->factor &&
           same_bits(a->word_bits, b->word_bits) &&
           tp_layout_expr_same(a->layout, b->layout);
}

bool tp_op_same(const struct tp_op *a, const struct tp_op *b)
{
    bool same = a->codec == b->codec && a->rule == b->rule && a->scale_rule == b->scale_rule &&
                a->channel_rule == b->channel_rule &&
                a->skip_zero_groups == b->skip_zero_groups &&
                a->unit_global == b->unit_global && a->zero_add == b->zero_add &&
                a->shifts_scales == b->shifts_scales &&
                a->segments == b->segments && a->needs == b->needs &&
                a->block_n == b->block_n && a->block_k == b->block_k && a->outs == b->outs &&
                memcmp(a->table, b->table, sizeof a->table) == 0;
    for (uint32_t i = 0; same && i < a->outs; i++)
        same = same_out(&a->out[i], &b->out[i]);
    return same;
}

int tp_op_find(const struct tp_op *op, enum tp_role role)
{
    for (uint32_t i = 0; i < op->outs; i++)
        if (op->out[i].role == role)
            return (int)i;
    return -1;
}

static enum tp_code layout_of(const struct tp_op *op, uint32_t i, struct tp_box3 box,
                              uint64_t segments, struct tp_layout *layout, struct tp_err *err)
{
    if (i >= op->outs || op->out[i].layout == NULL)
        return tp_fail(err, TP_E_INPUT, "output %u has no layout", i);
    return tp_layout_eval(op->out[i].layout, box, segments, layout, err);
}

static uint64_t segments_of(const struct tp_op *op)
{
    return op->segments > 1 ? op->segments : 1;
}

/* Whether a layout is of numbers alone: that of one whole weight, as a descriptor has it. */
static bool is_fixed(const struct tp_layout_expr *layout)
{
    uint32_t i = 0;
    while (i < layout->steps.count && layout->steps.step[i].kind == TP_STEP_NUMBER)
        i++;
    return i == layout->steps.count;
}

/* As many whole tiles as so many coordinates of a dimension need. */
static void shorten(struct tp_layout_dim *dim, uint64_t count, bool experts)
{
    uint64_t inner = 1;
    for (uint32_t m = 0; m + 1 < dim->modes; m++) {
        dim->size[m] = experts && count == 1 ? 1 : dim->size[m]; /* or segments of its rows */
        inner *= dim->size[m];
    }
    dim->size[dim->modes - 1] = tp_max_u64(tp_ceil_div(count, inner), 1);
}

/* Makes the layout of a box of so many stored elements of that of the whole: its tiles lie one
 * behind the other in the order in which they lie there. */
static void cut_layout(struct tp_layout *layout, const uint64_t count[TP_DIMS])
{
    uint64_t *stride[TP_DIMS * TP_LAYOUT_MODES], next = 1;
    uint64_t size[TP_DIMS * TP_LAYOUT_MODES];
    uint32_t modes = 0;
    for (int d = 0; d < TP_DIMS; d++) {
        struct tp_layout_dim *dim = &layout->dim[d];
        shorten(dim, count[d], d == TP_DIM_E);
        for (uint32_t m = 0; m < dim->modes; m++) {
            uint32_t at = modes;
            if (dim->size[m] == 1)
                continue;
            for (; at > 0 && *stride[at - 1] > dim->stride[m]; at--) {
                stride[at] = stride[at - 1];
                size[at] = size[at - 1];
            }
            stride[at] = &dim->stride[m];
            size[at] = dim->size[m];
            modes++;
        }
    }
    for (uint32_t m = 0; m < modes; next *= size[m++])
        *stride[m] = next;
}

enum tp_code tp_op_layout(const struct tp_op *op, uint32_t i, struct tp_box3 box,
                          struct tp_layout *layout, struct tp_err *err)
{
    enum tp_code code = layout_of(op, i, box, 1, layout, err);
    if (code || !is_fixed(op->out[i].layout))
        return code;
    const uint32_t per_n = op->out[i].per_n, per_k = op->out[i].per_k;
    const uint64_t count[TP_DIMS] = {box.e, per_n ? tp_ceil_div(box.n, per_n) : 1,
                                     per_k ? tp_ceil_div(box.k, per_k) : 1};
    const char *why;
    cut_layout(layout, count);
    return tp_layout_in_range(layout, &why)
               ? TP_OK
               : tp_fail(err, TP_E_INPUT, "the layout of a box: %s", why);
}

enum tp_code tp_op_whole_layout(const struct tp_op *op, uint32_t i, struct tp_box3 box,
                                struct tp_layout *layout, struct tp_err *err)
{
    if (box.n % segments_of(op))
        return tp_fail(err, TP_E_INPUT, "%llu rows do not divide into gate and up",
                       (unsigned long long)box.n);
    return layout_of(op, i, box, segments_of(op), layout, err);
}

enum tp_code tp_op_layout_bytes(const struct tp_op *op, uint32_t i,
                                const struct tp_layout *layout, uint64_t *bytes,
                                struct tp_err *err)
{
    const struct tp_op_out *out = &op->out[i];
    uint64_t bits;
    *bytes = out->role == TP_ROLE_GLOBAL ? tp_element_bits(out->element) / 8 : 0;
    if (!out->layout)
        return TP_OK;
    if (!tp_mul_u64(&bits, tp_layout_size(layout), tp_element_bits(out->element)))
        return tp_fail(err, TP_E_INPUT, "output %u is too large", i);
    *bytes = tp_ceil_div(bits, 8);
    return TP_OK;
}

enum tp_code tp_op_bytes(const struct tp_op *op, uint32_t i, struct tp_box3 box, uint64_t *bytes,
                         struct tp_err *err)
{
    struct tp_layout layout;
    enum tp_code code = TP_OK;
    if (i >= op->outs || op->out[i].layout)
        code = tp_op_layout(op, i, box, &layout, err);
    return code ? code : tp_op_layout_bytes(op, i, &layout, bytes, err);
}

enum tp_code tp_op_whole_bytes(const struct tp_op *op, uint32_t i, struct tp_box3 box,
                               uint64_t *bytes, struct tp_err *err)
{
    struct tp_layout layout;
    enum tp_code code = TP_OK;
    if (i >= op->outs || op->out[i].layout)
        code = tp_op_whole_layout(op, i, box, &layout, err);
    return code ? code : tp_op_layout_bytes(op, i, &layout, bytes, err);
}

uint64_t tp_op_segment_rows(const struct tp_op *op, uint64_t rows)
{
    return rows / segments_of(op);
}

static bool is_folded(const struct tp_op *op, uint32_t i)
{
    return op->segments > 1 && op->out[i].per_n != 0;
}

void tp_op_fold(const struct tp_op *op, uint32_t i, uint64_t rows, uint64_t *e, uint64_t *n)
{
    uint64_t segment = tp_op_segment_rows(op, rows);
    if (!is_folded(op, i) || segment == 0)
        return;
    *e = *e * op->segments + *n / segment;
    *n %= segment;
}

void tp_op_unfold(const struct tp_op *op, uint32_t i, uint64_t rows, uint64_t *e, uint64_t *n)
{
    if (!is_folded(op, i))
        return;
    *n += *e % op->segments * tp_op_segment_rows(op, rows);
    *e /= op->segments;
}

enum tp_code tp_args_check(const struct tp_args *args, struct tp_err *err)
{
    if (!(args->flags & TP_FAILED))
        return TP_OK;
    return tp_refuse(err, TP_E_UNSUPPORTED,
                     "this is a defect of tilepack: please report it with the command line",
                     "a layout of the format has no meaning for a weight of %llu x %llu x %llu",
                     (unsigned long long)args->box.e, (unsigned long long)args->box.n,
                     (unsigned long long)args->box.k);
}

/* ---- encoding ----------------------------------------------------------- */

enum tp_search tp_op_search(const struct tp_op *op)
{
    const struct tp_codec_traits *codec = &tp_codecs[op->codec];
    if (op->search == TP_SEARCH_NONE || !codec->searches)
        return TP_SEARCH_NONE;
    if (!codec->searches_rows ||
        (op->search == TP_SEARCH_MSE && tp_op_find(op, TP_ROLE_GROUP8) < 0))
        return TP_SEARCH_MSE;
    return tp_op_has_f16_scales(op) ? TP_SEARCH_NONE : TP_SEARCH_W4A8;
}

bool tp_op_feeds(const struct tp_op *op)
{
    return op->rank && tp_op_search(op) != TP_SEARCH_NONE;
}

uint32_t tp_encode_needs(const struct tp_op *op)
{
    return tp_op_needs(op) | (tp_op_feeds(op) ? TP_NEED_FEEDBACK : 0u);
}

/* ---- repacking ---------------------------------------------------------- */

/* Every block of `to` lies inside one block of `from`; 0 is the whole extent. */
static bool divides(uint32_t from, uint32_t to)
{
    return from == 0 || (to != 0 && from % to == 0);
}

static bool has_scales(const struct tp_op *op)
{
    return tp_op_find(op, TP_ROLE_SCALE) >= 0 || tp_op_per_tensor(op) ||
           (tp_op_find(op, TP_ROLE_GROUP8) >= 0 && tp_op_find(op, TP_ROLE_CHANNEL) >= 0);
}

/* FP8 scales are numbers: they may be widened, never rounded, but where the engine rounds them. */
static bool fp8_scale_fits(const struct tp_op *from, const struct tp_op *to)
{
    int scale = tp_op_find(to, TP_ROLE_SCALE);
    if (scale >= 0 && to->out[scale].factor)
        return true;
    if (to->scale_rule == TP_FP8_SCALE_FP32 || tp_op_is_number(from)) /* whose scale is 1 */
        return true;
    if (to->scale_rule == TP_FP8_SCALE_BF16)
        return from->scale_rule != TP_FP8_SCALE_FP32;
    return from->scale_rule == TP_FP8_SCALE_UE8M0;
}

/* Numbers of the same type, or of one that holds all of the other's. */
static bool floats_fit(const struct tp_op *from, const struct tp_op *to)
{
    enum tp_element element = to->out[tp_op_find(to, TP_ROLE_CODES)].element;
    return element == TP_ELEM_F32 || element == from->out[tp_op_find(from, TP_ROLE_CODES)].element;
}

bool tp_repack_possible(const struct tp_op *from, const struct tp_op *to)
{
    if (tp_op_find(from, TP_ROLE_ORDER) >= 0 ||
        (tp_op_find(from, TP_ROLE_ZERO) >= 0 && tp_op_find(to, TP_ROLE_ZERO) < 0))
        return false;
    if (tp_codecs[from->codec].is_number && tp_codecs[to->codec].is_number)
        return floats_fit(from, to);
    if (from->codec != to->codec || !divides(from->block_n, to->block_n) ||
        !divides(from->block_k, to->block_k) || !has_scales(from) || !has_scales(to) ||
        tp_op_find(from, TP_ROLE_CODES) < 0 || tp_op_find(to, TP_ROLE_CODES) < 0)
        return false;
    return from->codec != TP_CODEC_FP8 || fp8_scale_fits(from, to);
}

bool tp_op_divides(const struct tp_op *op)
{
    return op->codec == TP_CODEC_NVFP4 && op->rule == TP_NVFP4_CT;
}

bool tp_repack_inverts(const struct tp_op *from, const struct tp_op *to)
{
    return from->codec == to->codec && tp_op_divides(from) != tp_op_divides(to);
}

float tp_repack_global(const struct tp_op *from, const struct tp_op *to, float global)
{
    return tp_repack_inverts(from, to) ? 1.0f / global : global;
}

bool tp_op_per_tensor(const struct tp_op *op)
{
    return op->codec == TP_CODEC_FP8 && tp_op_find(op, TP_ROLE_SCALE) < 0;
}

bool tp_op_is_number(const struct tp_op *op)
{
    return tp_codecs[op->codec].is_number ||
           (tp_op_per_tensor(op) && tp_op_find(op, TP_ROLE_GLOBAL) < 0);
}

bool tp_op_zero_is_product(const struct tp_op *op)
{
    int zero = tp_op_find(op, TP_ROLE_ZERO);
    return zero >= 0 && tp_element_bits(op->out[zero].element) > 8;
}

/* Of one output. */
static uint32_t out_needs(const struct tp_op *op, const struct tp_op_out *out)
{
    bool numbers = op->codec == TP_CODEC_FP8 || op->codec == TP_CODEC_NVFP4;
    return (out->role == TP_ROLE_ZERO ? TP_NEED_ZEROS : 0u) |
           (out->role == TP_ROLE_ORDER ? TP_NEED_ORDER : 0u) |
           (out->word_bits ? TP_NEED_MOVED : 0u) |
           (out->word_bits && out->fill ? TP_NEED_MOVED_FILL : 0u) |
           (out->factor ? numbers ? TP_NEED_FACTOR : TP_NEED_INT_FACTOR : 0u) |
           (out->min > 0 ? TP_NEED_SCALE_MIN : 0u) | tp_elements[out->element].needs;
}

uint32_t tp_op_needs(const struct tp_op *op)
{
    uint32_t needs = op->needs | tp_codecs[op->codec].needs |
                     (tp_op_zero_is_product(op) ? TP_NEED_PRODUCT : 0u) |
                     (tp_op_has_f32_scales(op) ? TP_NEED_WIDE_SCALE : 0u);
    for (uint32_t i = 0; i < op->outs; i++)
        needs |= out_needs(op, &op->out[i]);
    return needs;
}

size_t tp_search_scratch(const struct tp_op *op, struct tp_box3 box)
{
    uint64_t block_k = op->block_k && op->block_k < box.k ? op->block_k : box.k;
    enum { ROWS = 64 }; /* that errors are fed back in together, at most */
    const uint64_t groups = tp_ceil_div(box.k, tp_max_u64(block_k, 1));
    if (tp_op_search(op) == TP_SEARCH_NONE)
        return 0;
    /* Integers and roots of a block; for rows values, codes and what is known of groups. */
    size_t bytes = (size_t)(8 * block_k + 8 * box.k + 64 * groups + 256);
    if (tp_op_feeds(op)) /* values and codes in columns, sums, and of groups as many numbers */
        bytes += (size_t)(ROWS * (5 * box.k + 4 * op->rank + 41 * groups) + 1024);
    return bytes;
}

/* Nibbles are read and written by the byte: the dimension along which two of them
 * share one advances in pairs. */
static enum tp_code whole_bytes(const struct tp_op_out *out, uint64_t *n, uint64_t *k,
                                struct tp_err *err)
{
    uint64_t *granule[TP_DIMS] = {NULL, n, k};
    if (tp_element_bits(out->element) >= 8)
        return TP_OK;
    if (!out->layout->probed)
        return tp_fail(err, TP_E_INPUT, "a layout of nibbles has no numbers for large weights");
    for (int d = TP_DIM_N; d < TP_DIMS; d++)
        if (out->layout->pairs[d] && *granule[d] % 2)
            *granule[d] *= 2;
    return TP_OK;
}

enum tp_code tp_op_tile(const struct tp_op *op, uint64_t *n, uint64_t *k, struct tp_err *err)
{
    enum tp_code code;
    *n = tp_max_u64(op->block_n, 1); /* 0: a scale that is known before */
    *k = tp_max_u64(op->block_k, 1); /* 0: a row is one block, of any length */
    for (uint32_t i = 0; i < op->outs; i++) {
        const struct tp_op_out *out = &op->out[i];
        uint64_t gn, gk;
        if (!out->layout || out->role == TP_ROLE_GLOBAL)
            continue;
        if ((code = tp_layout_granule(out->layout, TP_DIM_N, &gn, err)) ||
            (code = tp_layout_granule(out->layout, TP_DIM_K, &gk, err)))
            return code;
        if ((code = whole_bytes(out, &gn, &gk, err)))
            return code;
        if (!tp_mul_u64(&gn, gn, out->per_n ? out->per_n : 1) || !tp_lcm_u64(n, *n, gn) ||
            !tp_mul_u64(&gk, gk, out->per_k ? out->per_k : 1) || !tp_lcm_u64(k, *k, gk))
            return tp_fail(err, TP_E_INPUT, "granule does not fit 64 bits");
    }
    return TP_OK;
}

enum tp_code tp_op_granule(const struct tp_op *op, uint64_t *n, uint64_t *k, struct tp_err *err)
{
    enum tp_code code = tp_op_tile(op, n, k, err);
    bool whole_rows = tp_op_search(op) == TP_SEARCH_W4A8 || tp_op_feeds(op);
    for (uint32_t i = 0; i < op->outs; i++) {
        const struct tp_op_out *out = &op->out[i];
        if (out->layout && out->role != TP_ROLE_GLOBAL)
            whole_rows |= out->per_k == 0 || out->role == TP_ROLE_ORDER;
    }
    if (whole_rows)
        *k = 0;
    return code;
}

enum tp_code tp_op_stored_granule(const struct tp_op *op, uint64_t *n, uint64_t *k,
                                  struct tp_err *err)
{
    enum tp_code code = tp_op_tile(op, n, k, err);
    if (tp_op_find(op, TP_ROLE_ORDER) >= 0)
        *k = 0;
    return code;
}
