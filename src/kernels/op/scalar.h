/* Conversions of single numbers: bf16, f16, e4m3, e8m0, e2m1 and the block
 * scales that are a pure function of the largest magnitude.
 *
 * Integer code plus single IEEE operations only, so that host (any compiler) and
 * device give the same bits; compiles as C11 and under nvcc. Contraction,
 * fast-math and flush-to-zero must be off. Nothing here allocates or loops over
 * tensors.
 */
#ifndef TP_KERNELS_SCALAR_H
#define TP_KERNELS_SCALAR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define TP_HD static inline __host__ __device__
#else
#define TP_HD static inline
#endif

enum {
    TP_E4M3_NAN = 0x7F,
    TP_E4M3_MAX = 0x7E, /* 448 */
    TP_E8M0_NAN = 0xFF,
    TP_E2M1_MAX = 7, /* 6.0; also stands for NaN, which e2m1 has not */
    TP_BF16_NAN = 0x7FC0,
};
#define TP_F32_NAN_BITS 0x7FC00000u
#define TP_F32_INF_BITS 0x7F800000u
#define TP_F32_MIN_NORMAL 0x00800000u

TP_HD uint32_t tp_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

TP_HD float tp_bits_f32(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The magnitude as an integer: orders like |x|, every NaN above infinity. */
TP_HD uint32_t tp_abs_bits(float x) { return tp_f32_bits(x) & 0x7FFFFFFFu; }

/* Every NaN becomes the same one: payloads differ between machines. */
TP_HD float tp_canonical(float x)
{
    return tp_abs_bits(x) > TP_F32_INF_BITS ? tp_bits_f32(TP_F32_NAN_BITS) : x;
}

TP_HD float tp_bf16_to_f32(uint16_t h) { return tp_bits_f32((uint32_t)h << 16); }

/* Round to nearest even; NaN becomes TP_BF16_NAN. */
TP_HD uint16_t tp_f32_to_bf16(float x)
{
    uint32_t u = tp_f32_bits(x);
    if ((u & 0x7FFFFFFFu) > TP_F32_INF_BITS)
        return TP_BF16_NAN;
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

TP_HD float tp_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t m = h & 0x7FFFu;
    if (m >= 0x7C00u) /* infinity and NaN */
        return tp_bits_f32(sign | TP_F32_INF_BITS | ((m & 0x3FFu) << 13));
    if (m >= 0x0400u)
        return tp_bits_f32(sign | ((m << 13) + (112u << 23)));
    /* Subnormal or zero: m * 2^-24 is exact. */
    return tp_bits_f32(sign | tp_f32_bits((float)m * tp_bits_f32(0x33800000u)));
}

/* Round to nearest even; NaN becomes 0x7E00, overflow infinity. */
TP_HD uint16_t tp_f32_to_f16(float x)
{
    uint32_t m = tp_abs_bits(x);
    uint32_t sign = (tp_f32_bits(x) >> 16) & 0x8000u;
    if (m > TP_F32_INF_BITS)
        return 0x7E00u;
    if (m >= 0x477FF000u) /* 65520 and above */
        return (uint16_t)(sign | 0x7C00u);
    if (m >= 0x38800000u) /* 2^-14: a normal half */
        return (uint16_t)(sign | ((m - (112u << 23) + 0xFFFu + ((m >> 13) & 1u)) >> 13));
    /* Adding 0.5 rounds to multiples of 2^-24. */
    return (uint16_t)(sign | (tp_f32_bits(tp_bits_f32(m) + 0.5f) - 0x3F000000u));
}

/* A 16-bit float: F16, else bf16; and a number as it is as one. */
TP_HD uint16_t tp_half_of(bool f16, float x) { return f16 ? tp_f32_to_f16(x) : tp_f32_to_bf16(x); }
TP_HD float tp_half_value(bool f16, uint16_t h)
{
    return f16 ? tp_f16_to_f32(h) : tp_bf16_to_f32(h);
}
TP_HD float tp_half_round(bool f16, float x) { return tp_half_value(f16, tp_half_of(f16, x)); }

/* Saturating, round to nearest even; NaN of either sign becomes 0x7F. */
TP_HD uint8_t tp_e4m3_of(float x)
{
    uint32_t m = tp_abs_bits(x);
    uint32_t sign = (tp_f32_bits(x) >> 24) & 0x80u;
    uint32_t r;
    if (m > TP_F32_INF_BITS)
        return TP_E4M3_NAN;
    if (m >= 0x43E80000u) /* 464 and above, infinity too */
        return (uint8_t)(sign | TP_E4M3_MAX);
    if (m >= 0x3C800000u) /* 2^-6: a normal result */
        r = ((m + 0x7FFFFu + ((m >> 20) & 1u)) >> 20) - (120u << 3);
    else /* adding 2^14 rounds to multiples of 2^-9 */
        r = tp_f32_bits(tp_bits_f32(m) + 16384.0f) - 0x46800000u;
    return (uint8_t)(sign | r);
}

TP_HD float tp_e4m3_value(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    uint32_t m = code & 0x7Fu;
    if (m == TP_E4M3_NAN)
        return tp_bits_f32(TP_F32_NAN_BITS);
    if (m >= 8)
        return tp_bits_f32(sign | ((m << 20) + (120u << 23)));
    return tp_bits_f32(sign | tp_f32_bits((float)m * tp_bits_f32(0x3B000000u))); /* * 2^-9 */
}

/* E5M3, a scale without a sign: 5 exponent bits (bias 22), 3 mantissa bits. Bytes below 0x80 are 0;
 * 0xF6 is 448, all above it NaN. So each is a number of e4m3. */
enum { TP_E5M3_MIN = 0x80, TP_E5M3_MAX = 0xF6, TP_E5M3_NAN = 0xF7, TP_E5M3_E4M3 = 15 << 3 };

TP_HD uint8_t tp_e5m3_to_e4m3(uint8_t code)
{
    if (code < TP_E5M3_MIN)
        return 0;
    return code > TP_E5M3_MAX ? (uint8_t)TP_E4M3_NAN : (uint8_t)(code - TP_E5M3_E4M3);
}

/* An e4m3 byte times 2^scale_shift; what is too small becomes 0, NaN, too large and negative
 * NaN. */
TP_HD uint8_t tp_e5m3_of(uint8_t code, unsigned scale_shift)
{
    uint32_t bits = tp_f32_bits(tp_e4m3_value(code));
    uint32_t byte = (bits >> 20) + (scale_shift << 3) - ((127 - 22) << 3);
    if ((code & 0x7F) == 0)
        return 0;
    if (code >= TP_E4M3_NAN || (int32_t)byte > TP_E5M3_MAX)
        return TP_E5M3_NAN;
    return (int32_t)byte < TP_E5M3_MIN ? 0 : (uint8_t)byte;
}

/* 2^(s-127); s = 0 is 2^-127, s = 255 is NaN. */
TP_HD float tp_e8m0_value(uint8_t s)
{
    if (s == 0)
        return tp_bits_f32(0x00400000u);
    return tp_bits_f32(s == TP_E8M0_NAN ? TP_F32_NAN_BITS : (uint32_t)s << 23);
}

/* 1 / value, exact: 2^(127-s). */
TP_HD float tp_e8m0_reciprocal(uint8_t s)
{
    return tp_e8m0_value(s == TP_E8M0_NAN ? s : (uint8_t)(254 - s));
}

/* Saturating, round to nearest even, sign kept; NaN becomes 7. */
TP_HD uint8_t tp_e2m1_of(float x)
{
    uint32_t m = tp_abs_bits(x);
    uint32_t sign = (tp_f32_bits(x) >> 28) & 8u;
    float a = tp_bits_f32(m);
    if (m > TP_F32_INF_BITS)
        return TP_E2M1_MAX;
    return (uint8_t)(sign | ((uint32_t)(a > 0.25f) + (uint32_t)(a >= 0.75f) +
                             (uint32_t)(a > 1.25f) + (uint32_t)(a >= 1.75f) +
                             (uint32_t)(a > 2.5f) + (uint32_t)(a >= 3.5f) +
                             (uint32_t)(a > 5.0f)));
}

TP_HD float tp_e2m1_value(uint8_t code)
{
    uint32_t i = code & 7u;
    uint32_t sign = (uint32_t)(code & 8u) << 28;
    if (i < 2) /* 0 and 0.5 */
        return tp_bits_f32(sign | (i ? 0x3F000000u : 0u));
    return tp_bits_f32(sign | ((i << 22) + (126u << 23)));
}

/* Rounds a non-negative scale up to a power of two in [2^-126, 2^127]; infinity
 * and NaN give 2^127. */
TP_HD float tp_ue8m0_ceil(float x)
{
    uint32_t u = tp_abs_bits(x);
    uint32_t e = (u >> 23) + ((u & 0x7FFFFFu) != 0);
    e = e < 1 ? 1 : e > 254 ? 254 : e;
    return tp_bits_f32(e << 23);
}

/* Block scales of MX from the largest magnitude (tp_abs_bits form), for elements
 * whose largest power of two is 2^max_exponent (8: e4m3, 2: e2m1). A NaN or
 * infinite amax gives 255. */

TP_HD uint8_t tp_mx_clamp(uint32_t e, uint32_t max_exponent)
{
    return (uint8_t)(e > max_exponent ? e - max_exponent : 0);
}

TP_HD uint8_t tp_mx_floor(uint32_t amax, uint32_t max_exponent)
{
    if (amax >= TP_F32_INF_BITS)
        return TP_E8M0_NAN;
    return tp_mx_clamp(amax >> 23, max_exponent);
}

/* Significands of 1.75 and more go to the next binade: torchao's "even", and
 * compressed-tensors' rule for e2m1. */
TP_HD uint8_t tp_mx_even(uint32_t amax, uint32_t max_exponent)
{
    if (amax >= TP_F32_INF_BITS)
        return TP_E8M0_NAN;
    return tp_mx_clamp((amax + (1u << 21)) >> 23, max_exponent);
}

/* compressed-tensors' rule for e4m3: as "even", but from 1.75 * 2^127 on its
 * exponent overflows and it writes 127 (0 for NaN) with codes +-0, see
 * tp_mx_ct_multiplier(). Kept because bytes must equal the library's; callers
 * report such blocks like non-finite ones. */
TP_HD uint8_t tp_mx_ct(uint32_t amax)
{
    uint32_t e = (amax + (1u << 21)) >> 23;
    if (e >= 255)
        return amax > TP_F32_INF_BITS ? 0 : 127;
    return tp_mx_clamp(e, 8);
}

/* What tp_mx_ct() multiplies the values by. */
TP_HD float tp_mx_ct_multiplier(uint32_t amax)
{
    if (amax > TP_F32_INF_BITS)
        return tp_bits_f32(TP_F32_NAN_BITS);
    if ((amax + (1u << 21)) >> 23 >= 255)
        return 0.0f;
    return tp_e8m0_reciprocal(tp_mx_ct(amax));
}

TP_HD uint8_t tp_mx_ceil(uint32_t amax, uint32_t max_exponent)
{
    if (amax >= TP_F32_INF_BITS)
        return TP_E8M0_NAN;
    return tp_mx_clamp((amax >> 23) + ((amax & 0x7FFFFFu) != 0), max_exponent);
}

/* The quotient amax / largest element, rounded up; `reciprocal` is the fp32
 * number nearest to 1/448 or 1/6. */
TP_HD uint8_t tp_mx_rceil(uint32_t amax, float reciprocal)
{
    uint32_t b, e, m;
    if (amax >= TP_F32_INF_BITS)
        return TP_E8M0_NAN;
    b = tp_f32_bits(tp_bits_f32(amax) * reciprocal);
    e = b >> 23;
    m = b & 0x7FFFFFu;
    return (uint8_t)(e + (e == 0 ? m > 0x400000u : m != 0));
}

#define TP_RCP_448 tp_bits_f32(0x3B124925u)
#define TP_RCP_6 tp_bits_f32(0x3E2AAAABu)

#endif
