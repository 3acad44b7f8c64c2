/* INT4 with groups along k: codes row-major, or (groups of 128) in the order of CUTLASS'
 * int4 x fp8 kernels with packed group scales.
 *
 * The quotient is x / s rounded to fp32, then clamped and rounded to an integer.
 * For inputs of 16 bits the product x * (1/s) does as well: s has 8 significant
 * bits and x at most 11, so x / s is either exactly half way between two integers
 * or further than 2^-13 from there; the product errs by less than 2^-19, and
 * snapping it to multiples of 2^-15 restores the exact ties. Other inputs and the
 * bf16 quotient are divided.
 */
#ifndef TP_KERNELS_CPU_INT4_H
#define TP_KERNELS_CPU_INT4_H

#include "kernels/cpu/cpu_run.h"

enum { INT4_SLOW = 0x0480 }; /* scales below 2^-118: 1/s and the bounds above fail */

/* `count` values of one group, a multiple of 32. Unless it is `clipped`, the quotient is never
 * below -8.5, as the scale is at least amax / 7.53; then it is at most 14, and of either sign. */
V void int4_run(enum tp_dtype dtype, bool bf16_quotient, bool clipped, const void *p,
                uint64_t count, uint8_t *dst, float s, float r)
{
    const vf snap = f_set(384.0f), top = f_set(384.0f + 7.0f), bottom = f_set(384.0f - 8.0f);
    const vf shift = f_set(12582912.0f + 8.0f - 384.0f);
    vu code[32 / VL];
    uint64_t j = 0;
#ifdef HAVE_INT4_128_BF16
    for (; dtype == TP_BF16 && !bf16_quotient && j + 128 <= count; j += 128)
        int4_128_bf16((const uint16_t *)p + j, dst + j / 2, f_set(r), snap, shift);
#endif
    for (; j < count; j += 32) {
        for (unsigned i = 0; i < 32; i += VL) {
            vf x = load_values(dtype, p, j + i), q;
            if (dtype == TP_F32 || bf16_quotient) {
                q = f_div(x, f_set(s));
                if (bf16_quotient)
                    q = v_floats(round_bf16(v_bits(q)));
                q = f_min(q, f_set(7.0f));
                if (clipped)
                    q = f_max(q, f_set(-8.0f));
                q = f_add(q, f_set(12582912.0f + 8.0f));
            } else {
                q = f_min(f_add(f_mul(x, f_set(r)), snap), top);
                if (clipped)
                    q = f_max(q, bottom);
                q = f_add(q, shift);
            }
            code[i / VL] = v_and(v_bits(q), v_set(15));
        }
        v_store_nibbles(dst + j / 2, code);
    }
}

struct int4_group {
    uint32_t amax[16];
    float s[16], r[16];
    uint16_t bits[16];
    uint8_t is_zero[16];
};

/* Scales of 16 groups, as int4_scale() of codec.c. */
static void int4_scales16(struct int4_group *g)
{
    for (unsigned i = 0; i < 16; i += VL) {
        vu s = round_bf16(v_bits(f_div(v_floats(v_load(g->amax + i)), f_set(7.5f))));
        v_store_u8(g->is_zero + i, v_pick(s, v_set(0), v_set(0), v_set(1)));
        s = v_pick(s, v_set(0), s, v_set(0x3C000000u));
        v_store(g->s + i, s);
        v_store_u16(g->bits + i, v_srl(s, 16));
        v_store(g->r + i, v_bits(f_div(f_set(1.0f), v_floats(s))));
    }
}

/* Groups that need the codec itself: with infinities, or whose scale has no reciprocal. */
V bool int_slow(bool half, uint32_t amax, uint16_t bits)
{
    return amax >= TP_F32_INF_BITS || (half ? bits >= 0x7C00 : bits < INT4_SLOW);
}

/* One group with infinities or a tiny scale. `scratch`: 5 * size bytes. */
NOINLINE void int4_slow(const struct tp_op *op, struct tp_args *args, uint64_t first, uint64_t size,
                        void *scratch, uint8_t *nibbles, uint16_t *scale)
{
    float *values = scratch;
    uint8_t *codes = (uint8_t *)(values + size);
    uint32_t bits;
    encode_slow(op, args, first, 0, 1, size, values, codes, &bits);
    for (uint64_t i = 0; i < size / 2; i++)
        nibbles[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
    *scale = (uint16_t)bits;
}

/* Nibbles and scale of group j of `size` values at `x`, which begin with value `first`. */
V void int4_group_codes(const struct tp_op *op, struct tp_args *args, enum tp_dtype dtype,
                        bool clipped, uint64_t first, uint64_t size, const void *x,
                        const struct int4_group *g, unsigned j, void *scratch, uint8_t *nibbles,
                        uint16_t *scale)
{
    const bool half = op->scale_rule == TP_INT_SCALE_F16;
    *scale = g->bits[j];
    if (int_slow(half, g->amax[j], g->bits[j] & 0x7FFF))
        int4_slow(op, args, first, size, scratch, nibbles, scale);
    else if (op->rule == TP_INT4_QUOTIENT_BF16)
        int4_run(dtype, true, clipped, x, size, nibbles, g->s[j], g->r[j]);
    else
        int4_run(dtype, false, clipped, x, size, nibbles, g->s[j], g->r[j]);
}

/* What int4_groups() makes of up to 16 groups whose scales were chosen: `clipped` as in
 * int4_run(). */
V void int4_codes(const struct tp_op *op, struct tp_args *args, enum tp_dtype dtype, bool clipped,
                  uint64_t first, uint64_t ahead, unsigned groups, const struct int4_group *g,
                  uint8_t *nibbles, uint16_t *scale, uint8_t *is_zero)
{
    const uint8_t *p = (const uint8_t *)args->in[0] + first * value_bytes(dtype);
    float scratch[160]; /* that of the box may hold a strip */
    for (unsigned j = 0; j < groups; j++) {
        const uint8_t *x = p + 128 * j * value_bytes(dtype);
        for (unsigned i = 0; i < 128 * value_bytes(dtype); i += 64)
            v_prefetch_far(x + ahead * value_bytes(dtype) + i);
        if (is_zero != NULL)
            is_zero[j] = g->is_zero[j] || g->amax[j] >= TP_F32_INF_BITS;
        int4_group_codes(op, args, dtype, clipped, first + 128 * j, 128, x, g, j, scratch,
                         nibbles + 64 * j, &scale[j]);
    }
}

/* Up to 16 groups beginning with value `first`, the next ones `ahead` values on:
 * nibbles in row-major order, bf16 scales, and which groups have only zero codes
 * (NULL: not asked). */
V void int4_groups(const struct tp_op *op, struct tp_args *args, enum tp_dtype dtype,
                   uint64_t first, uint64_t ahead, unsigned groups, uint8_t *nibbles,
                   uint16_t *scale, uint8_t *is_zero)
{
    const uint8_t *p = (const uint8_t *)args->in[0] + first * value_bytes(dtype);
    struct int4_group g;
    block_amax16(dtype, p, 128, groups, g.amax);
    int4_scales16(&g);
    int4_codes(op, args, dtype, false, first, ahead, groups, &g, nibbles, scale, is_zero);
}

static bool is_identity(const uint8_t table[16])
{
    for (int i = 0; i < 16; i++)
        if (table[i] != i)
            return false;
    return true;
}

/* Group scales of `size` columns (0: all), one row each. */
static bool int4_has_groups_of(const struct tp_op *op, uint64_t size, enum tp_role role,
                               enum tp_element element)
{
    int i = tp_op_find(op, role), c = tp_op_find(op, TP_ROLE_CODES);
    return i >= 0 && c >= 0 && op->block_n == 1 && op->block_k == size &&
           op->out[i].element == element && op->out[i].per_n == 1 &&
           op->out[i].per_k == size && op->out[c].element == TP_ELEM_INT4;
}

static bool int4_has_groups(const struct tp_op *op, enum tp_role role,
                            enum tp_element element)
{
    return int4_has_groups_of(op, 128, role, element);
}

static inline bool int4_is_ct(const struct tp_op *op)
{
    return int4_has_groups(op, TP_ROLE_SCALE, TP_ELEM_BF16) && is_identity(op->table);
}

static inline bool int4_is_ct_sized(const struct tp_op *op)
{
    return int4_has_groups_of(op, op->block_k, TP_ROLE_SCALE, TP_ELEM_BF16) &&
           is_identity(op->table);
}

/* As int_scale() of codec.c. */
V void int_scale1(bool half, float reach, uint32_t amax, uint16_t *bits, float *s)
{
    float x = tp_bits_f32(amax) / reach;
    *bits = tp_half_of(half, x);
    if (*bits == 0)
        *bits = half ? 0x1400 : 0x3C00;
    *s = tp_half_value(half, *bits);
}

/* Scales of the type that the rule says, one row each; of int4 with F16 scales not the
 * quotient that is rounded. */
static inline bool int_accepts(const struct tp_op *op)
{
    const struct tp_op_out *codes = &op->out[tp_op_find(op, TP_ROLE_CODES)];
    const struct tp_op_out *scale = &op->out[tp_op_find(op, TP_ROLE_SCALE)];
    const bool half = op->scale_rule == TP_INT_SCALE_F16;
    if (op->block_n != 1 || scale->per_n != 1 || scale->per_k != op->block_k ||
        scale->element != (half ? TP_ELEM_F16 : TP_ELEM_BF16) ||
        (half && op->rule == TP_INT4_QUOTIENT_BF16))
        return false;
    if (op->codec == TP_CODEC_INT4)
        return half && codes->element == TP_ELEM_INT4 && is_identity(op->table);
    return codes->element == TP_ELEM_INT8 || codes->element == TP_ELEM_UINT8B128;
}

#endif
