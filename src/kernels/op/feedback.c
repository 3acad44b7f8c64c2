/* Error feedback, one row at a time; see feedback.h. Slow and obvious but for the making of what
 * all rows share, which is the same for every instruction set.
 */
#include "kernels/op/feedback.h"

#include "base/num.h"
#include "kernels/op/codec.h"
#include "kernels/op/search.h"
#include "kernels/op/search_scalar.h"

#include <float.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 8 }; /* of feedback_column.h */

/* ---- what rows share ------------------------------------------------------------------- */

/* The part of the state that is kept, and behind it what is only worked in: M[R][R], q, t and x,
 * and the keys of the order; R is the rank in whole lanes. */
static uint64_t kept_bytes(uint64_t k, uint32_t rank)
{
    return tp_round_up(tp_feedback_size(k, rank), 64);
}

uint64_t tp_feedback_bytes(uint64_t k, uint32_t rank)
{
    const uint64_t whole = tp_round_up(rank, LANES);
    return kept_bytes(k, rank) + tp_max_u64((whole + 3) * whole, k) * sizeof(double);
}

static int by_key(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Columns by falling h, those of the same h as they are. */
static void sort_columns(const float *h, uint64_t k, uint64_t *key, uint32_t *order)
{
    for (uint64_t i = 0; i < k; i++)
        key[i] = (uint64_t)~tp_abs_bits(h[i]) << 32 | i;
    qsort(key, k, sizeof *key, by_key);
    for (uint64_t i = 0; i < k; i++)
        order[i] = (uint32_t)key[i];
}

static double damping(const float *h, uint64_t k)
{
    double sum = 0;
    for (uint64_t i = 0; i < k; i++)
        sum += h[i];
    return sum / (double)k * 30 / 1000;
}

/* What is not of the low-rank part. */
static double own_part(float h, const float *v, uint32_t rank, double damp)
{
    double s = 0, c;
    for (uint32_t a = 0; a < rank; a++)
        s += (double)v[a] * v[a];
    c = (h - s > (double)h / 1024 ? h - s : (double)h / 1024) + damp;
    return c == 0 ? 1 : c;
}

static float weight_of(double d)
{
    return d > 0 ? (d < FLT_MAX ? (float)d : FLT_MAX) : 0;
}

static _Atomic uint64_t serials;

void tp_feedback_make(tp_feedback_column_fn column, const float *h, const float *v, uint64_t k,
                      uint32_t rank, void *state, struct tp_feedback *made)
{
    const uint64_t whole = tp_round_up(rank, LANES);
    const double damp = damping(h, k);
    float *g = state, *in_order = g + k * rank, *weight = in_order + k * rank;
    uint32_t *order = (uint32_t *)(void *)(weight + k);
    double *m = (double *)(void *)((uint8_t *)state + kept_bytes(k, rank)), *q = m + whole * whole;
    const struct tp_feedback_sums sums = {rank, whole, m, q, q + whole, q + 2 * whole};
    sort_columns(h, k, (uint64_t *)(void *)m, order);
    memset(m, 0, (whole + 3) * whole * sizeof *m);
    for (uint64_t a = 0; a < whole; a++)
        m[a * whole + a] = 1;
    for (uint64_t i = k; i-- > 0;) {
        const float *from = v + order[i] * (uint64_t)rank;
        memcpy(in_order + i * rank, from, rank * sizeof *from);
        for (uint32_t a = 0; a < rank; a++)
            sums.x[a] = from[a];
        weight[order[i]] =
            weight_of(column(&sums, own_part(h[order[i]], from, rank, damp), g + i * rank));
    }
    *made = tp_feedback_at(state, k, rank, 1 + atomic_fetch_add(&serials, 1));
}

/* ---- blocks ---------------------------------------------------------------------------- */

static bool for_w4a8(const struct tp_op *op) { return tp_op_search(op) == TP_SEARCH_W4A8; }

bool tp_feedback_multiplies(const struct tp_op *op)
{
    return for_w4a8(op) || op->codec == TP_CODEC_MXFP4 ||
           (op->codec == TP_CODEC_NVFP4 && op->rule == TP_NVFP4_TORCHAO);
}

float tp_feedback_channel(const struct tp_op *op, const uint16_t *scales, uint64_t groups,
                          uint32_t amax)
{
    uint16_t max = 0;
    if (!for_w4a8(op))
        return 1.0f;
    if (!tp_search_live(amax))
        return tp_bits_f32(TP_F32_NAN_BITS);
    for (uint64_t j = 0; j < groups; j++)
        max = (scales[j] & 0x7FFF) > max ? scales[j] & 0x7FFF : max;
    return tp_channel_quotient(max, tp_search_channel_rule(op)) * 8.0f;
}

/* Numbers are those of the search, integers in units of 2^(e-11) channel scales. */
static struct tp_feedback_block w4a8_block(const struct tp_op *op, uint32_t amax, uint16_t scale,
                                           float channel)
{
    struct tp_feedback_block b = {.fixed = true};
    const float reciprocal = 1.0f / channel, a = tp_bits_f32(amax) * reciprocal;
    const uint8_t g = tp_e4m3_of(tp_bf16_to_f32(scale) / channel);
    if (tp_search_w4a8_group(a, op->search_signed) == 0)
        return b;
    const int e = tp_search_exponent(tp_f32_bits(a));
    b.fixed = false;
    b.unit = reciprocal * tp_search_pow2(11 - e);
    if (g & 0x80) {
        b.unit = -b.unit;
        channel = -channel;
    }
    b.scale = channel * tp_search_pow2(e - 11);
    for (int m = 0; m <= 8; m++)
        b.number[m] = (float)tp_search_w4a8_multiple(g & 0x7F, m, e);
    return b;
}

static bool is_finite(float x) { return tp_abs_bits(x) < TP_F32_INF_BITS; }

struct tp_feedback_block tp_feedback_block_of(const struct tp_op *op, uint32_t amax,
                                              uint32_t scale, float global, float channel)
{
    struct tp_feedback_block b = {.fixed = true};
    if (!tp_search_block_live(op, amax) || !is_finite(channel))
        return b;
    if (for_w4a8(op))
        return w4a8_block(op, amax, (uint16_t)scale, channel);
    b.scale = tp_codec_scale_value(op, scale);
    b.unit = b.scale;
    if (op->codec == TP_CODEC_MXFP4)
        b.unit = tp_e8m0_reciprocal((uint8_t)scale);
    if (op->codec == TP_CODEC_NVFP4) {
        b.unit = tp_nvfp4_factor(op, (uint8_t)scale, global);
        b.scale = tp_op_divides(op) ? b.scale / global : b.scale * global;
    }
    b.fixed = !is_finite(b.scale) || !is_finite(b.unit) || b.unit == 0;
    return b;
}

/* ---- rows ------------------------------------------------------------------------------ */

/* The code of the nearest number, of two the one next to zero; and its number. */
static uint8_t w4a8_code(const struct tp_feedback_block *b, float y, float *number)
{
    const float x = rintf(y * b->unit), size = fabsf(x);
    const int max = x < 0 ? 8 : 7;
    int m = 0;
    while (m < max && size - b->number[m] > b->number[m + 1] - size)
        m++;
    *number = x < 0 ? -b->number[m] : b->number[m];
    return (uint8_t)(x < 0 ? 8 - m : 8 + m);
}

/* The code of y, and what a reader computes of it. */
static uint8_t code_of(const struct tp_op *op, const struct tp_feedback_block *b, uint32_t scale,
                       float global, float y, float *value)
{
    float number;
    uint8_t code;
    if (for_w4a8(op)) {
        code = w4a8_code(b, y, &number);
    } else {
        tp_codec_codes(op, &y, 1, scale, global, &code);
        number = tp_codec_code_value(op, code);
    }
    *value = number * b->scale;
    return code;
}

void tp_feedback_row(const struct tp_op *op, const struct tp_feedback *fed, const float *values,
                     uint64_t k, const uint16_t *scales, float global, uint8_t *codes)
{
    const uint64_t size = op->block_k ? op->block_k : k;
    const float channel = tp_feedback_channel(op, scales, tp_ceil_div(k, size),
                                              tp_amax_bits(values, k));
    float z[TP_FEEDBACK_RANK] = {0};
    for (uint64_t i = 0; i < k; i++) {
        const uint64_t at = fed->order[i], j = at / size;
        const float *g = fed->g + i * fed->rank, *v = fed->v + i * fed->rank, w = values[at];
        const struct tp_feedback_block b = tp_feedback_block_of(
            op, tp_amax_bits(values + j * size, tp_min_u64(size, k - j * size)), scales[j], global,
            channel);
        float y = w, value;
        if (b.fixed)
            continue;
        for (uint32_t a = 0; a < fed->rank; a++)
            y += z[a] * g[a];
        codes[at] = code_of(op, &b, scales[j], global, is_finite(y) ? y : w, &value);
        for (uint32_t a = 0; a < fed->rank; a++)
            z[a] += (w - value) * v[a];
    }
}
