/* The scale search, one number at a time: which scales are candidates, and values as
 * integers with their root weights (formats/README.md, section 14).
 *
 * Single IEEE operations, as in scalar.h; compiles as C11 and under nvcc. `amax` is the
 * largest magnitude of a block as bits of an fp32 number, `e` the exponent of the largest
 * magnitude in the units that the block is compared in.
 */
#ifndef TP_KERNELS_SEARCH_SCALAR_H
#define TP_KERNELS_SEARCH_SCALAR_H

#include "kernels/op/scalar.h"

#include <math.h>

/* Numbers of candidates; a candidate may not exist, see below. */
enum {
    TP_SEARCH_INT4 = 16,
    TP_SEARCH_NVFP4 = 9,
    TP_SEARCH_MXFP4 = 3,
    TP_SEARCH_TOPS = 4,      /* W4A8: scales of a row's largest group */
    TP_SEARCH_GROUPS = 4,    /* W4A8: group scales of each */
    TP_SEARCH_TOP_G = 0x66,  /* W4A8: 56 in e4m3, the largest group scale */
    TP_SEARCH_MAX_ROOT = 15,
};

#define TP_SEARCH_MIN 0x0D800000u /* 2^-100: smaller blocks are not searched */

TP_HD bool tp_search_live(uint32_t amax)
{
    return amax >= TP_SEARCH_MIN && amax < TP_F32_INF_BITS;
}

/* Integer codes with scales of type F16: from 2^-14 to 2^18 every candidate is finite, and a
 * step of the type is less than a step from one candidate to the next. */
#define TP_SEARCH_F16_MIN 0x38800000u
#define TP_SEARCH_F16_END 0x48800000u

TP_HD bool tp_search_f16_live(uint32_t amax)
{
    return amax >= TP_SEARCH_F16_MIN && amax < TP_SEARCH_F16_END;
}

/* The exponent of a normal number, from its bits. */
TP_HD int tp_search_exponent(uint32_t bits) { return (int)(bits >> 23) - 127; }

/* 2^k, k from -126 to 127. */
TP_HD float tp_search_pow2(int k) { return tp_bits_f32((uint32_t)(k + 127) << 23); }

/* y in units of 2^(e-11): at most 4096 in magnitude. */
TP_HD int32_t tp_search_int(float y, int e)
{
    return (int32_t)rintf(y * tp_search_pow2(11 - e));
}

/* 15 for the largest weight of a block, its ratio 1; at least 1. */
TP_HD int32_t tp_search_root(float ratio)
{
    int32_t root = (int32_t)rintf((float)TP_SEARCH_MAX_ROOT * sqrtf(ratio));
    return root < 1 ? 1 : root;
}

/* ---- INT4 ---------------------------------------------------------------- */

/* What the largest magnitude becomes when nothing is clipped. */
TP_HD float tp_search_int4_range(bool is_signed) { return is_signed ? 8.0f : 7.5f; }

/* (thousandths / 1000) / range. */
TP_HD float tp_search_int4_factor(bool is_signed, int thousandths)
{
    return (float)thousandths / (tp_search_int4_range(is_signed) * 1000.0f);
}

/* am * (thousandths / 1000) / range; 0 stands for am / range itself. */
TP_HD float tp_search_int4_shrunk(uint32_t amax, bool is_signed, int thousandths)
{
    float a = tp_bits_f32(amax);
    if (thousandths == 0)
        return a / tp_search_int4_range(is_signed);
    return a * tp_search_int4_factor(is_signed, thousandths);
}

/* Candidate i's thousandths: the plain scale, then 1.03, 0.97, 0.94 ... 0.58 of it. */
TP_HD int tp_search_int4_thousandths(int i) { return i == 0 ? 0 : i == 1 ? 1030 : 1030 - 30 * i; }

/* A scale's bits; `is_f16`: of type F16, else bf16. */
TP_HD uint16_t tp_search_int4_scale(uint32_t amax, bool is_f16, bool is_signed, int i)
{
    float s = tp_search_int4_shrunk(amax, is_signed, tp_search_int4_thousandths(i));
    return tp_half_of(is_f16, s);
}

/* One step of the code. A bf16 scale is above 2^(e-4) and has 8 bits, so that its step is an
 * integer before it is rounded. */
TP_HD int32_t tp_search_int4_step(uint16_t scale, bool is_f16, int e)
{
    return tp_search_int(tp_half_value(is_f16, scale), e);
}

/* ---- W4A8 ---------------------------------------------------------------- */

/* Scale r of a row's largest group: the plain one, then 0.92, 0.84, 0.76 of it. */
TP_HD uint16_t tp_search_w4a8_top(uint32_t amax, bool is_signed, int r)
{
    return tp_f32_to_bf16(tp_search_int4_shrunk(amax, is_signed, r == 0 ? 0 : 1000 - 80 * r));
}

/* The group scale next to plain for a largest magnitude `a` in units of the channel scale.
 * 0: the group is dead, all its codes are zero. Candidates are it and the three below it. */
TP_HD uint8_t tp_search_w4a8_group(float a, bool is_signed)
{
    uint8_t t = tp_e4m3_of(a / tp_search_int4_range(is_signed));
    return t < TP_SEARCH_TOP_G ? t : (uint8_t)TP_SEARCH_TOP_G;
}

/* The m-th multiple of group scale t as the kernel has it: always an integer. */
TP_HD int32_t tp_search_w4a8_multiple(uint8_t t, int m, int e)
{
    float product = tp_e4m3_value(tp_e4m3_of(tp_e4m3_value(t) * (float)m));
    return (int32_t)(product * tp_search_pow2(11 - e));
}

/* ---- FP4 ----------------------------------------------------------------- */

/* Whether an NVFP4 block is searched; `a` is its largest magnitude over the global scale.
 * The scale of a block of 4096 and more saturates, so that there is no choice. */
TP_HD bool tp_search_nvfp4_live(uint32_t amax, float a)
{
    return tp_search_live(amax) && tp_f32_bits(a) < 0x45800000u && tp_e4m3_of(a / 6.0f) > 0;
}

/* Candidate i beside the rule's scale byte t: t, t-1, t+1, t-2, t+2, t+3 ... t+6. It exists
 * from 1 to 0x7E. */
TP_HD int tp_search_nvfp4_byte(uint8_t t, int i)
{
    int offset = i > 4 ? i - 2 : i % 2 ? -(i + 1) / 2 : i / 2;
    return t + offset;
}

/* Half of what code 1.0 is worth, the step of the code's multiples 0 1 2 3 4 6 8 12. */
TP_HD int32_t tp_search_nvfp4_step(uint8_t t, int e)
{
    return (int32_t)(tp_e4m3_value(t) * tp_search_pow2(10 - e));
}

/* Candidate i beside the rule's scale byte b: b, and the exponents that clip (f) and that
 * do not (f + 1). */
TP_HD uint8_t tp_search_mxfp4_byte(uint32_t amax, uint8_t b, int i)
{
    return i == 0 ? b : (uint8_t)(tp_mx_floor(amax, 2) + i - 1);
}

TP_HD int32_t tp_search_mxfp4_step(uint8_t b, int e) { return (int32_t)1 << (b - 127 + 10 - e); }

#endif
