/* The reference: encode, repack and decode of any operation, from its layout
 * texts alone.
 *
 * Slow and obvious: one block or one element at a time, no pattern is known
 * here. Invariant: whatever a faster row writes is what this file writes. The
 * caller has evaluated the layouts before (tp_op_bytes); should one fail here all the
 * same, nothing is written but TP_FAILED. Memory is the caller's, tables live in
 * args->scratch.
 */
#include "base/num.h"
#include "kernels/op/codec.h"
#include "kernels/op/feedback.h"
#include "kernels/op/floats.h"
#include "kernels/op/plane.h"
#include "kernels/op/scalar.h"
#include "kernels/op/search.h"
#include "kernels/op/traits.h"

struct planes {
    struct tp_plane codes, scale, group8, channel, global, zero, order;
    struct tp_plane zero_scale; /* scales as they are stored, by which zero points are multiplied */
};

static struct planes open_planes(const struct tp_op *op, struct tp_args *args,
                                 void *const data[], void **scratch)
{
    struct planes p;
    p.codes = tp_plane_open(op, TP_ROLE_CODES, args, data, scratch);
    p.scale = p.zero_scale = tp_plane_open(op, TP_ROLE_SCALE, args, data, scratch);
    p.group8 = tp_plane_open(op, TP_ROLE_GROUP8, args, data, scratch);
    p.channel = tp_plane_open(op, TP_ROLE_CHANNEL, args, data, scratch);
    p.global = tp_plane_open(op, TP_ROLE_GLOBAL, args, data, scratch);
    p.zero = tp_plane_open(op, TP_ROLE_ZERO, args, data, scratch);
    p.order = tp_plane_open(op, TP_ROLE_ORDER, args, data, scratch);
    return p;
}

/* Scales are stored 2^scale_shift as large as they are, the global scale as small. */
static void shift_scales(struct planes *p, unsigned scale_shift)
{
    p->scale.scale_shift = scale_shift;
    p->global.factor -= (int)scale_shift;
}

/* Writes the padding of every output, and the global scale. */
static void begin_outputs(const struct planes *p, float global)
{
    tp_plane_fill(&p->codes);
    tp_plane_fill(&p->scale);
    tp_plane_fill(&p->group8);
    tp_plane_fill(&p->channel);
    tp_plane_fill(&p->zero);
    if (p->global.data != NULL)
        tp_store_scale(&p->global, TP_CODEC_FP8, 0, tp_f32_bits(global));
}

/* The stored global scale, or `given` where there is none. */
static float load_global(const struct planes *p, float given)
{
    return p->global.data ? tp_bits_f32(tp_load_scale(&p->global, TP_CODEC_FP8, 0)) : given;
}

static void enter_expert(struct planes *p, uint64_t e)
{
    tp_plane_enter(&p->codes, e);
    tp_plane_enter(&p->scale, e);
    tp_plane_enter(&p->zero_scale, e);
    tp_plane_enter(&p->group8, e);
    tp_plane_enter(&p->channel, e);
    tp_plane_enter(&p->zero, e);
    tp_plane_enter(&p->order, e);
}

static void store_value(void *values, enum tp_dtype dtype, uint64_t i, float value)
{
    uint32_t word = tp_f32_bits(tp_canonical(value));
    uint16_t half = tp_f32_to_bf16(value);
    if (dtype == TP_F32)
        memcpy((uint8_t *)values + 4 * i, &word, 4);
    else
        memcpy((uint8_t *)values + 2 * i, &half, 2);
}

/* ---- W4A8 rows ---------------------------------------------------------- */

/* What is kept of one output row until its channel scale can be computed. */
struct row_scales {
    uint16_t *scale;
    uint8_t *is_zero, *group;
};

static struct row_scales take_row_scales(void **scratch, uint64_t groups)
{
    struct row_scales row;
    row.scale = *scratch;
    row.is_zero = (uint8_t *)(row.scale + groups);
    row.group = row.is_zero + groups;
    *scratch = (uint8_t *)*scratch + (4 * groups + 63) / 64 * 64;
    return row;
}

static void store_row_scales(const struct tp_op *op, const struct planes *p,
                             const struct row_scales *row, uint64_t groups, uint64_t n)
{
    float channel;
    uint8_t packed[8];
    tp_channel_scale(row->scale, groups, op->channel_rule, op->skip_zero_groups, row->is_zero,
                     row->group, &channel);
    for (uint64_t g = 0; g < groups; g++) {
        tp_group8(row->group[g], packed);
        memcpy(p->group8.data + 8 * tp_plane_at(&p->group8, n, g * p->group8.per_k), packed, 8);
    }
    memcpy(p->channel.data + 4 * tp_plane_at(&p->channel, n, 0), &channel, 4);
}

/* ---- encode ------------------------------------------------------------- */

struct block {
    uint64_t e, n0, n1, k0, k1;
    float *values;
    uint8_t *codes;
    void *search; /* scratch of tp_search_block() */
    uint32_t scale;
};

/* The importance of a row's columns from k on. */
static const float *importance_at(const struct tp_args *args, uint64_t e, uint64_t k)
{
    if (args->fed)
        return args->fed->weight + k;
    return args->importance ? args->importance + e * args->box.k + k : NULL;
}

static bool encode_values(const struct tp_op *op, const struct tp_args *args, struct block *b,
                          uint64_t count)
{
    if (tp_op_search(op) == TP_SEARCH_NONE)
        return tp_codec_encode(op, b->values, count, args->global, b->codes, &b->scale);
    return tp_search_block(op, b->values, count, args->global, importance_at(args, b->e, b->k0),
                           b->search, b->codes, &b->scale);
}

/* A scale that its output multiplies, and that is too large for that. */
static bool is_too_large(const struct tp_op *op, enum tp_role role, float value)
{
    int i = tp_op_find(op, role);
    return i >= 0 && !tp_factor_fits(&op->out[i], value);
}

static void encode_block(const struct tp_op *op, struct tp_args *args, struct block *b)
{
    const struct tp_box3 box = args->box;
    uint64_t count = 0;
    for (uint64_t n = b->n0; n < b->n1; n++)
        for (uint64_t k = b->k0; k < b->k1; k++)
            b->values[count++] =
                tp_load_value(args->in[0], args->dtype, (b->e * box.n + n) * box.k + k);
    if (encode_values(op, args, b, count) ||
        is_too_large(op, TP_ROLE_SCALE, tp_codec_scale_value(op, b->scale)))
        args->flags |= TP_SAW_NONFINITE;
}

/* The scale that the zero point of element (n,k) is stored times, where it is. */
static float zero_scale(const struct tp_op *op, const struct planes *p, uint64_t n, uint64_t k)
{
    if (!tp_op_zero_is_product(op))
        return 1.0f;
    return tp_codec_scale_value(
        op, tp_load_scale(&p->zero_scale, op->codec, tp_plane_at(&p->zero_scale, n, k)));
}

/* The zero point of the group that element (n,k) begins: the code of the number 0, unless it is
 * taken over. It fits what GPTQ leaves of a code (tp_source_zeros_fit()). The scale is there. */
static void store_zero(const struct tp_op *op, const struct planes *p, uint64_t n, uint64_t k,
                       int zero)
{
    if (n % p->zero.per_n == 0 && k % p->zero.per_k == 0)
        tp_store_zero(&p->zero, tp_plane_at(&p->zero, n, k), zero - op->zero_add,
                      zero_scale(op, p, n, k));
}

static int load_zero(const struct tp_op *op, const struct planes *p, uint64_t n, uint64_t k)
{
    return tp_load_zero(&p->zero, tp_plane_at(&p->zero, n, k), zero_scale(op, p, n, k)) +
           op->zero_add;
}

static void store_block(const struct tp_op *op, const struct planes *p, const struct block *b)
{
    uint64_t i = 0;
    for (uint64_t n = b->n0; n < b->n1; n++)
        for (uint64_t k = b->k0; k < b->k1; k++)
            tp_store_code(&p->codes, tp_plane_at(&p->codes, n, k), b->codes[i++]);
    if (p->scale.data == NULL)
        return;
    for (uint64_t n = b->n0; n < b->n1; n += p->scale.per_n)
        for (uint64_t k = b->k0; k < b->k1; k += p->scale.per_k)
            tp_store_scale(&p->scale, op->codec, tp_plane_at(&p->scale, n, k), b->scale);
    if (p->zero.data != NULL)
        store_zero(op, p, b->n0, b->k0, p->zero.zero_point);
}

static bool all_zero_codes(const uint8_t *codes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (codes[i] != 8)
            return false;
    return true;
}

static struct block take_block(void *scratch, uint64_t count)
{
    struct block b = {.values = scratch};
    b.codes = (uint8_t *)(b.values + count);
    b.search = b.codes + (count + 7) / 8 * 8;
    return b;
}

static void encode_blocks(const struct tp_op *op, struct tp_args *args, struct planes *p,
                          void *scratch)
{
    const struct tp_box3 box = args->box;
    uint64_t block_n = tp_op_per_tensor(op) ? 1 : op->block_n ? op->block_n : box.n;
    uint64_t block_k = op->block_k ? op->block_k : box.k;
    uint64_t groups = tp_ceil_div(box.k, block_k);
    struct row_scales row = take_row_scales(&scratch, groups);
    struct block b =
        take_block(scratch, tp_min_u64(block_n, box.n) * tp_min_u64(block_k, box.k));
    for (b.e = 0; b.e < box.e; b.e++) {
        enter_expert(p, b.e);
        for (b.n0 = 0; b.n0 < box.n; b.n0 += block_n) {
            b.n1 = tp_min_u64(b.n0 + block_n, box.n);
            for (b.k0 = 0; b.k0 < box.k; b.k0 += block_k) {
                b.k1 = tp_min_u64(b.k0 + block_k, box.k);
                encode_block(op, args, &b);
                store_block(op, p, &b);
                row.scale[b.k0 / block_k] = (uint16_t)b.scale;
                row.is_zero[b.k0 / block_k] =
                    all_zero_codes(b.codes, (b.n1 - b.n0) * (b.k1 - b.k0));
            }
            if (p->group8.data != NULL)
                store_row_scales(op, p, &row, groups, b.n0);
        }
    }
}

/* One row of which all scales were searched at once: as if block after block had been. */
static void store_row(const struct tp_op *op, const struct planes *p, const struct block *whole,
                      uint64_t k, const struct row_scales *row)
{
    struct block b = *whole;
    const uint64_t size = op->block_k ? op->block_k : k, groups = tp_ceil_div(k, size);
    for (uint64_t j = 0; j < groups; j++) {
        b.k0 = j * size;
        b.k1 = tp_min_u64(b.k0 + size, k);
        b.codes = whole->codes + b.k0;
        b.scale = row->scale[j];
        row->is_zero[j] = all_zero_codes(b.codes, b.k1 - b.k0);
        store_block(op, p, &b);
    }
    if (p->group8.data != NULL)
        store_row_scales(op, p, row, groups, b.n0);
}

/* The scales of a row, and the codes that they give; false: all is finite. */
static bool search_row(const struct tp_op *op, const struct tp_args *args, const struct block *b,
                       uint16_t *scales)
{
    const uint64_t k = args->box.k, size = op->block_k ? op->block_k : k;
    bool nonfinite = false;
    if (tp_op_search(op) == TP_SEARCH_W4A8)
        return tp_search_row(op, b->values, k, importance_at(args, b->e, 0), b->search, b->codes,
                             scales);
    for (uint64_t j = 0; j * size < k; j++) {
        uint32_t scale;
        nonfinite |= tp_search_block(op, b->values + j * size, tp_min_u64(size, k - j * size),
                                     args->global, importance_at(args, b->e, j * size), b->search,
                                     b->codes + j * size, &scale);
        scales[j] = (uint16_t)scale;
        nonfinite |= is_too_large(op, TP_ROLE_SCALE, tp_codec_scale_value(op, scale));
    }
    return nonfinite;
}

static void encode_rows(const struct tp_op *op, struct tp_args *args, struct planes *p,
                        void *scratch)
{
    const struct tp_box3 box = args->box;
    struct row_scales row =
        take_row_scales(&scratch, tp_ceil_div(box.k, op->block_k ? op->block_k : box.k));
    struct block b = take_block(scratch, box.k);
    for (b.e = 0; b.e < box.e; b.e++) {
        enter_expert(p, b.e);
        for (b.n0 = 0; b.n0 < box.n; b.n0 = b.n1) {
            b.n1 = b.n0 + 1;
            for (uint64_t k = 0; k < box.k; k++)
                b.values[k] =
                    tp_load_value(args->in[0], args->dtype, (b.e * box.n + b.n0) * box.k + k);
            if (search_row(op, args, &b, row.scale))
                args->flags |= TP_SAW_NONFINITE;
            if (args->fed)
                tp_feedback_row(op, args->fed, b.values, box.k, row.scale, args->global, b.codes);
            store_row(op, p, &b, box.k, &row);
        }
    }
}

void tp_encode_ref(const struct tp_op *op, struct tp_args *args)
{
    void *scratch = args->scratch;
    if (tp_codecs[op->codec].is_number) {
        tp_floats_encode(op, args);
        return;
    }
    struct planes p = open_planes(op, args, args->out, &scratch);
    if (args->flags & TP_FAILED)
        return;
    begin_outputs(&p, args->global);
    if (is_too_large(op, TP_ROLE_GLOBAL, args->global))
        args->flags |= TP_SAW_NONFINITE;
    if (tp_op_search(op) == TP_SEARCH_W4A8 || (tp_op_feeds(op) && args->fed))
        encode_rows(op, args, &p, scratch);
    else
        encode_blocks(op, args, &p, scratch);
}

/* ---- repack ------------------------------------------------------------- */

static uint32_t source_scale(const struct planes *from, enum tp_codec codec, uint64_t n,
                             uint64_t k)
{
    float group, channel;
    if (codec == TP_CODEC_FP8 && from->scale.data == NULL)
        return tp_f32_bits(load_global(from, 1.0f));
    if (from->scale.data != NULL)
        return tp_load_scale(&from->scale, codec, tp_plane_at(&from->scale, n, k));
    /* The last of the eight multiples is -1 times the group scale, exactly. */
    group = -tp_e4m3_value(from->group8.data[8 * tp_plane_at(&from->group8, n, k) + 7]);
    channel = tp_load_f32(&from->channel, tp_plane_at(&from->channel, n, 0));
    uint16_t scale = tp_f32_to_bf16(group * channel);
    return from->scale.is_f16 ? tp_f32_to_f16(tp_bf16_to_f32(scale)) : scale;
}

static bool source_group_is_zero(const struct planes *from, uint64_t n, uint64_t k0,
                                 uint64_t k1)
{
    for (uint64_t k = k0; k < k1; k++)
        if (tp_load_code(&from->codes, tp_plane_at(&from->codes, n, k)) != 8)
            return false;
    return true;
}

static void repack_row_zeros(const struct tp_op *from_op, const struct tp_op *op,
                             const struct planes *from, const struct planes *to,
                             struct tp_box3 box, uint64_t n)
{
    for (uint64_t k = 0; k < box.k && to->zero.data != NULL; k += to->zero.per_k) {
        int zero = to->zero.zero_point;
        if (from->zero.data != NULL)
            zero = load_zero(from_op, from, n, k);
        store_zero(op, to, n, k, zero);
    }
}

static void repack_row_scales(const struct tp_op *op, const struct planes *from,
                              const struct planes *to, struct tp_box3 box, uint64_t n,
                              const struct row_scales *row)
{
    uint64_t per_k = to->group8.per_k, g = 0;
    for (uint64_t k = 0; k < box.k; k += per_k, g++) {
        row->scale[g] = (uint16_t)source_scale(from, op->codec, n, k);
        row->is_zero[g] = op->skip_zero_groups &&
                          source_group_is_zero(from, n, k, tp_min_u64(k + per_k, box.k));
    }
    store_row_scales(op, to, row, g, n);
}

static void repack_row(const struct tp_op *op, const struct planes *from,
                       const struct planes *to, struct tp_box3 box, uint64_t n,
                       const struct row_scales *row)
{
    for (uint64_t k = 0; k < box.k && to->codes.data != NULL; k++)
        tp_store_code(&to->codes, tp_plane_at(&to->codes, n, k),
                   tp_load_code(&from->codes, tp_plane_at(&from->codes, n, k)));
    if (to->group8.data != NULL)
        repack_row_scales(op, from, to, box, n, row);
    if (to->scale.data == NULL || n % to->scale.per_n != 0)
        return;
    for (uint64_t k = 0; k < box.k; k += to->scale.per_k)
        tp_store_scale(&to->scale, op->codec, tp_plane_at(&to->scale, n, k),
                    source_scale(from, op->codec, n, k));
}

void tp_repack_ref(const struct tp_op *from, const struct tp_op *to, struct tp_args *args)
{
    const struct tp_box3 box = args->box;
    void *scratch = args->scratch;
    if (tp_codecs[to->codec].is_number) {
        tp_floats_repack(from, to, args);
        return;
    }
    struct planes p = open_planes(from, args, (void *const *)args->in, &scratch);
    struct planes q = open_planes(to, args, args->out, &scratch);
    if (args->flags & TP_FAILED)
        return;
    struct row_scales row = take_row_scales(&scratch, box.k);
    shift_scales(&q, args->scale_shift);
    p.scale.is_f16 = q.scale.is_f16; /* a scale is rounded once, to what the result has */
    p.scale.is_f32 = q.scale.is_f32;
    begin_outputs(&q, tp_repack_global(from, to, load_global(&p, args->global)));
    for (uint64_t e = 0; e < box.e; e++) {
        enter_expert(&p, e);
        enter_expert(&q, e);
        for (uint64_t n = 0; n < box.n; n++) {
            repack_row(to, &p, &q, box, n, &row);
            repack_row_zeros(from, to, &p, &q, box, n);
        }
    }
}

/* ---- decode ------------------------------------------------------------- */

static float decode_scale(const struct tp_op *op, const struct planes *p, float global,
                          uint64_t n, uint64_t k)
{
    float s = tp_codec_scale_value(
        op, tp_load_scale(&p->scale, op->codec, tp_plane_at(&p->scale, n, k)));
    if (!tp_codecs[op->codec].has_global)
        return s;
    return tp_op_divides(op) ? s / global : s * global;
}

/* The column whose scale and zero point column k has: its own, or with act-order
 * the first one of the group that k belongs to. */
static uint64_t group_column(const struct planes *p, uint64_t k)
{
    uint32_t group;
    if (p->order.data == NULL)
        return k;
    memcpy(&group, p->order.data + 4 * tp_plane_at(&p->order, 0, k), sizeof group);
    return group * p->scale.per_k;
}

struct group {
    float scale, zero, sum; /* (code - zero) * scale, or what is added to code * scale */
};

static struct group decode_group(const struct tp_op *op, const struct planes *p, float global,
                                 uint64_t n, uint64_t k)
{
    uint64_t column = group_column(p, k);
    struct group g = {decode_scale(op, p, global, n, column), 0.0f, 0.0f};
    if (p->zero.data == NULL)
        return g;
    if (tp_op_zero_is_product(op)) {
        g.zero = -(float)p->zero.zero_point; /* codes count from 0 here */
        g.sum = tp_load_value(p->zero.data, tp_elements[p->zero.element].dtype,
                              tp_plane_at(&p->zero, n, column));
    } else {
        g.zero = (float)(load_zero(op, p, n, column) - p->zero.zero_point);
    }
    return g;
}

/* As the W4A8 kernel does it: the code picks one of the eight multiples. */
static float decode_w4a8(const struct planes *p, uint8_t code, uint64_t n, uint64_t k)
{
    const uint8_t *packed = p->group8.data + 8 * tp_plane_at(&p->group8, n, k);
    float channel = tp_load_f32(&p->channel, tp_plane_at(&p->channel, n, 0));
    float w = 0.0f;
    if (code < 8)
        w = tp_e4m3_value(packed[code]);
    else if (code > 8)
        w = -tp_e4m3_value(packed[16 - code]);
    return w * channel;
}

void tp_decode_ref(const struct tp_op *op, struct tp_args *args)
{
    const struct tp_box3 box = args->box;
    void *scratch = args->scratch;
    if (tp_codecs[op->codec].is_number) {
        tp_floats_decode(op, args);
        return;
    }
    struct planes p = open_planes(op, args, (void *const *)args->in, &scratch);
    if (args->flags & TP_FAILED)
        return;
    float global = load_global(&p, args->global);
    bool per_tensor = tp_op_per_tensor(op), product = tp_op_zero_is_product(op);
    uint64_t i = 0;
    for (uint64_t e = 0; e < box.e; e++) {
        enter_expert(&p, e);
        for (uint64_t n = 0; n < box.n; n++) {
            struct group g = {global, 0.0f, 0.0f};
            for (uint64_t k = 0; k < box.k; k++) {
                uint8_t code = tp_load_code(&p.codes, tp_plane_at(&p.codes, n, k));
                float value;
                if (p.group8.data != NULL) {
                    value = decode_w4a8(&p, code, n, k);
                } else {
                    if (!per_tensor && (k % p.scale.per_k == 0 || p.order.data != NULL))
                        g = decode_group(op, &p, global, n, k);
                    value = (tp_codec_code_value(op, code) - g.zero) * g.scale;
                    value = product ? value + g.sum : value;
                }
                store_value(args->out[0], args->dtype, i++, value);
            }
        }
    }
}
