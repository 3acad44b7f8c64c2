/* What every CUDA kernel file shares: wide loads and stores, widening of weights,
 * exact division without the division routine, e4m3 and int4 packing.
 *
 * The formulas are those of scalar.h; this file only adds the instructions that a
 * chip has for them. Templates are over the input type alone. Invariant: each
 * function gives the same bits as its namesake in scalar.h and codec.c.
 */
#ifndef TP_KERNELS_CUDA_DEVICE_CUH
#define TP_KERNELS_CUDA_DEVICE_CUH

#include <cuda_runtime.h>

#include "kernels/op/kernel.h"
#include "kernels/op/scalar.h"

/* Input types as template arguments: the enum's value in an int. */
#define TP_IS32(DT) ((DT) == TP_F32)

/* Eight consecutive weights as loaded: 16 bytes of bf16 or f16, 32 of f32. */
template <int DT> struct dev_raw8 {
    uint32_t w[TP_IS32(DT) ? 8 : 4];
};

/* Read-only loads. They go through L1 on purpose: read-once hints (no_allocate, cs)
 * cost a tenth of the bandwidth where a warp reads short pieces of many rows. */
static __device__ __forceinline__ uint4 dev_load16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

static __device__ __forceinline__ uint32_t dev_load4(const void *p)
{
    uint32_t v;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

static __device__ __forceinline__ uint2 dev_load8b(const void *p)
{
    uint2 v;
    asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(p));
    return v;
}

template <int DT> __device__ __forceinline__ dev_raw8<DT> dev_load_raw8(const uint8_t *p)
{
    dev_raw8<DT> r;
    uint4 v = dev_load16(p);
    r.w[0] = v.x, r.w[1] = v.y, r.w[2] = v.z, r.w[3] = v.w;
    if (TP_IS32(DT)) {
        v = dev_load16(p + 16);
        r.w[TP_IS32(DT) ? 4 : 0] = v.x, r.w[TP_IS32(DT) ? 5 : 1] = v.y;
        r.w[TP_IS32(DT) ? 6 : 2] = v.z, r.w[TP_IS32(DT) ? 7 : 3] = v.w;
    }
    return r;
}

template <int DT> __device__ __forceinline__ dev_raw8<DT> dev_zero_raw8()
{
    dev_raw8<DT> r;
#pragma unroll
    for (int i = 0; i < (TP_IS32(DT) ? 8 : 4); i++)
        r.w[i] = 0;
    return r;
}

/* Half `h` (0 or 1) of a 16-bit pair, or the word itself, widened to fp32. */
template <int DT> __device__ __forceinline__ float dev_widen(uint32_t word, int h)
{
    if (DT == TP_BF16)
        return __uint_as_float(h ? word & 0xFFFF0000u : word << 16);
    if (DT == TP_F16) {
        float f;
        asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((unsigned short)(h ? word >> 16 : word)));
        return f;
    }
    return __uint_as_float(word);
}

template <int DT> __device__ __forceinline__ float dev_value(const dev_raw8<DT> &r, int i)
{
    return TP_IS32(DT) ? dev_widen<DT>(r.w[i & (TP_IS32(DT) ? 7 : 3)], 0)
                       : dev_widen<DT>(r.w[(i >> 1) & 3], i & 1);
}

/* One word of weights with zeros of either sign made positive. */
template <int DT> __device__ __forceinline__ uint32_t dev_plain_zero(uint32_t word)
{
    uint32_t r;
    if (TP_IS32(DT))
        return __float_as_uint(__fadd_rn(__uint_as_float(word), 0.0f));
    if (DT == TP_BF16)
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(word), "r"(0x3F803F80u), "r"(0));
    else
        asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(word), "r"(0));
    return r;
}

/* Running largest magnitude: two 16-bit lanes, or one 32-bit. Any NaN wins. */
template <int DT> __device__ __forceinline__ uint32_t dev_amax(uint32_t amax, uint32_t word)
{
    uint32_t r;
    if (TP_IS32(DT))
        return max(amax, word & 0x7FFFFFFFu);
    if (DT == TP_BF16)
        asm("{.reg .b32 t; abs.bf16x2 t, %1; max.NaN.bf16x2 %0, t, %2;}"
            : "=r"(r)
            : "r"(word), "r"(amax));
    else
        asm("{.reg .b32 t; abs.f16x2 t, %1; max.NaN.f16x2 %0, t, %2;}"
            : "=r"(r)
            : "r"(word), "r"(amax));
    return r;
}

template <int DT> __device__ __forceinline__ uint32_t dev_amax8(uint32_t amax,
                                                                const dev_raw8<DT> &r)
{
#pragma unroll
    for (int i = 0; i < (TP_IS32(DT) ? 8 : 4); i++)
        amax = dev_amax<DT>(amax, r.w[i]);
    return amax;
}

/* Magnitude in fp32 bits of one 16-bit (or 32-bit) magnitude. */
template <int DT> __device__ __forceinline__ uint32_t dev_amax_bits1(uint32_t m)
{
    return TP_IS32(DT) ? m : __float_as_uint(dev_widen<DT>(m, 0));
}

/* The same for a running amax: both lanes joined. */
template <int DT> __device__ __forceinline__ uint32_t dev_amax_bits(uint32_t amax)
{
    if (!TP_IS32(DT))
        amax = max(amax & 0xFFFFu, amax >> 16);
    return dev_amax_bits1<DT>(amax);
}

/* Largest `v` among groups of `lanes` (a power of two) neighbouring lanes. */
template <int LANES> __device__ __forceinline__ uint32_t dev_max_lanes(uint32_t v)
{
#pragma unroll
    for (int d = LANES / 2; d; d >>= 1)
        v = max(v, __shfl_xor_sync(0xFFFFFFFFu, v, d));
    return v;
}

/* Largest magnitudes of COUNT items that 16 neighbouring lanes hold parts of, each in
 * the form of dev_amax. Lanes exchange halves of the items rather than each reducing
 * all of them: afterwards every lane has the fp32 bits of item dev_item<COUNT>(lane). */
template <int DT, int COUNT>
__device__ __forceinline__ uint32_t dev_amax_items(const uint32_t (&amax)[COUNT], uint32_t lane)
{
    const int words = TP_IS32(DT) ? COUNT : COUNT / 2;
    uint32_t w[words], d = 8;
#pragma unroll
    for (int i = 0; i < words; i++)
        w[i] = TP_IS32(DT) ? amax[i]
                           : __vmaxu2(__byte_perm(amax[2 * i % COUNT], amax[(2 * i + 1) % COUNT],
                                                  0x5410),
                                      __byte_perm(amax[2 * i % COUNT], amax[(2 * i + 1) % COUNT],
                                                  0x7632));
#pragma unroll
    for (int left = words / 2; left >= 1; left /= 2, d /= 2)
#pragma unroll
        for (int i = 0; i < left; i++) {
            uint32_t keep = lane & d ? w[i + left] : w[i], send = lane & d ? w[i] : w[i + left];
            uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, send, d);
            w[i] = TP_IS32(DT) ? max(keep, got) : __vmaxu2(keep, got);
        }
    const uint32_t half = d;
#pragma unroll
    for (; d >= 1; d /= 2) {
        uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, w[0], d);
        w[0] = TP_IS32(DT) ? max(w[0], got) : __vmaxu2(w[0], got);
    }
    if (TP_IS32(DT))
        return w[0];
    return dev_amax_bits1<DT>(lane & half ? w[0] >> 16 : w[0] & 0xFFFFu);
}

template <int COUNT> __device__ __forceinline__ uint32_t dev_item(uint32_t lane)
{
    return (lane & 15) / (16 / COUNT);
}

/* What the lane that has item `i` holds, in the caller's own 16 lanes. */
template <int COUNT, typename T>
__device__ __forceinline__ T dev_of_item(T value, int i, uint32_t lane)
{
    return __shfl_sync(0xFFFFFFFFu, value, (lane & 16) | i * (16 / COUNT));
}

static __device__ __forceinline__ void dev_flag_bad(uint32_t *flags, bool bad)
{
    if (bad && flags)
        atomicOr(flags, (uint32_t)TP_SAW_NONFINITE);
}

static __device__ __forceinline__ void dev_flag(uint32_t *flags, uint32_t amax)
{
    dev_flag_bad(flags, amax >= TP_F32_INF_BITS);
}

/* Four e4m3 codes, the first in the lowest byte; saturating, NaN is 0x7F. */
static __device__ __forceinline__ uint32_t dev_e4m3x4(float a, float b, float c, float d)
{
#if __CUDA_ARCH__ >= 890
    unsigned short lo, hi;
    uint32_t r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(lo) : "f"(b), "f"(a));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(hi) : "f"(d), "f"(c));
    asm("mov.b32 %0, {%1,%2};" : "=r"(r) : "h"(lo), "h"(hi));
    return r;
#else
    return (uint32_t)tp_e4m3_of(a) | (uint32_t)tp_e4m3_of(b) << 8 |
           (uint32_t)tp_e4m3_of(c) << 16 | (uint32_t)tp_e4m3_of(d) << 24;
#endif
}

/* Two values rounded to bf16 and widened again. */
static __device__ __forceinline__ void dev_round_bf16(float &a, float &b)
{
    uint32_t w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(b), "f"(a));
    a = __uint_as_float(w << 16);
    b = __uint_as_float(w & 0xFFFF0000u);
}

/* x / s for many x and one s of at most 11 significant bits (a bf16 or f16 number): 1/s
 * as the sum of two floats, exact to 2^-45.
 *
 * x / s is then found before its last rounding to 2^-44, relative. A quotient of 24
 * by 11 bits is no nearer than 2^-37 to any number where fp32 rounding changes, and
 * never on one, so that rounding is right. Where s is near the ends of the range
 * (`safe` false) the caller divides; where x is so small that the lower product
 * loses bits, |x / s| < 2^-20, which every codec rounds to zero of either sign. */
struct dev_divisor {
    float high, low;
    bool safe;
};

static __device__ __forceinline__ dev_divisor dev_divisor_of(float s)
{
    dev_divisor d;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(d.high) : "f"(s));
    d.low = __fmul_rn(__fmaf_rn(-s, d.high, 1.0f), d.high);
    d.safe = fabsf(s) >= 8.271806e-25f && fabsf(s) <= 1.2089258e24f; /* 2^-80, 2^80 */
    return d;
}

static __device__ __forceinline__ float dev_divide(float x, float high, float low)
{
    return __fmaf_rn(x, high, __fmul_rn(x, low)); /* the sign of a zero may be lost */
}

/* x / s by y = 1 / s as it is rounded, for any fp32 numbers: correctly rounded, if s is in
 * 2^-60..2^60 and |x / s| in 2^-11..2^20. The second quotient is wrong by less than the last place,
 * from which on a remainder is exact and one more step rounds rightly (Markstein's theorem).
 * Smaller quotients are not rounded rightly, but stay as small. */
static __device__ __forceinline__ float dev_divide_long(float x, float s, float y)
{
    float q = __fmul_rn(x, y);
    q = __fmaf_rn(__fmaf_rn(-s, q, x), y, q);
    q = __fmaf_rn(__fmaf_rn(-s, q, x), y, q);
    return copysignf(q, x);
}

/* 1 / s of a number that the host knows as the sum of two floats, the first rounded down, so that
 * dev_divide() by them keeps the sign of zeros. `exact`: quotients of all finite numbers of a type
 * are correctly rounded, or so small that every codec rounds them to zero. Of divisors with more
 * bits than dev_divisor has, all significands of types of 16 bits are tried: powers of two change
 * no rounding. */
struct dev_known_divisor {
    float high, low;
    bool exact;
};

static inline dev_known_divisor dev_known_divisor_of(float s, uint32_t dtype)
{
    const bool few = (tp_f32_bits(s) & 0x1FFFu) == 0;
    const int count = few || dtype == TP_F32 ? 0 : dtype == TP_BF16 ? 1 << 7 : 1 << 10;
    const double y = 1.0 / s;
    dev_known_divisor d = {(float)y, 0, false};
    if (d.high > y)
        d.high = nextafterf(d.high, 0.0f);
    d.low = (float)(y - d.high);
    d.exact = (few || dtype != TP_F32) && s >= 8.271806e-25f && s <= 1.2089258e24f; /* 2^-+80 */
    for (int i = 0; i < count && d.exact; i++) {
        const float x = (float)(count + i);
        d.exact = fmaf(x, d.high, x * d.low) == x / s;
    }
    return d;
}

/* Eight e4m3 codes of finite values, by a divisor that is exact for them. */
template <int DT>
static __device__ __forceinline__ uint2 dev_e4m3_known(const dev_raw8<DT> &r,
                                                       const dev_known_divisor &d, bool round_bf16)
{
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = dev_divide(dev_value<DT>(r, i), d.high, d.low);
    if (round_bf16) {
#pragma unroll
        for (int i = 0; i < 8; i += 2)
            dev_round_bf16(v[i], v[i + 1]);
    }
    return make_uint2(dev_e4m3x4(v[0], v[1], v[2], v[3]), dev_e4m3x4(v[4], v[5], v[6], v[7]));
}

/* Eight int4 codes q + 8 of quotients in -8.5..7.5 (CLAMP: or above), the first in the
 * lowest nibble. Adding 1.5 * 2^23 + 8 rounds to even and leaves the code in the low
 * bits, and the constant above it falls out of the weighted sum. `base`: what quotients hold
 * already, see dev_ordinary(). */
template <bool CLAMP>
static __device__ __forceinline__ uint32_t dev_int4x8(const float (&q)[8], float base = 0.0f)
{
    uint32_t acc = 0;
#pragma unroll
    for (int i = 7; i >= 0; i--)
        acc = acc * 16u +
              __float_as_uint(
                  __fadd_rn(CLAMP ? fminf(q[i], base + 7.0f) : q[i], 12582920.0f - base));
    return acc - 0x3F400000u;
}

/* Eight codes of finite values as tp_codec_codes() has them, for any bf16 scale and rule, and for
 * f16 scales where the quotient stays fp32. */
template <int DT>
static __device__ __forceinline__ uint32_t dev_int4x8_by_rule(const dev_raw8<DT> &r, float scale,
                                                              uint32_t rule)
{
    const dev_divisor d = dev_divisor_of(scale);
    float q[8];
    if (d.safe) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            q[i] = dev_divide(dev_value<DT>(r, i), d.high, d.low);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            q[i] = __fdiv_rn(dev_value<DT>(r, i), scale);
    }
    if (rule == TP_INT4_QUOTIENT_BF16) {
#pragma unroll
        for (int i = 0; i < 8; i += 2)
            dev_round_bf16(q[i], q[i + 1]);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        q[i] = fmaxf(q[i], -8.0f);
    return dev_int4x8<true>(q);
}

/* A map of nibbles, made on the host by dev_map_of: encode = negate the low three
 * bits of nibbles whose bit 3 is clear (CUTLASS's sign and index form), between
 * two exclusive ors; or any table. */
struct dev_map {
    uint32_t kind; /* 0: xor only, 1: xor, encode, xor, 2: table */
    uint32_t before, after;
    uint32_t lo[2], hi[2]; /* table, a byte per entry */
};

static __device__ __forceinline__ uint32_t dev_encode_nibbles(uint32_t x)
{
    uint32_t p = (~x & 0x88888888u) >> 3;
    uint32_t y = ((x & 0x77777777u) ^ (p * 7u)) + p;
    return (y & 0x77777777u) | (x & 0x88888888u);
}

/* Table entries of four nibbles, a byte each. */
static __device__ __forceinline__ uint32_t dev_lookup4(uint32_t nibbles, const dev_map &m)
{
    uint32_t s = nibbles & 0x7777u, pick;
    uint32_t lo = __byte_perm(m.lo[0], m.lo[1], s);
    uint32_t hi = __byte_perm(m.hi[0], m.hi[1], s);
    /* 0x80 bytes, or 0xFF where bit 3 asks prmt to spread the sign */
    asm("prmt.b32 %0, %1, %1, %2;" : "=r"(pick) : "r"(0x80808080u), "r"(nibbles & 0xFFFFu));
    pick = (pick & 0x01010101u) * 255u;
    return lo ^ ((lo ^ hi) & pick);
}

static __device__ __forceinline__ uint32_t dev_map_word(uint32_t x, const dev_map &m)
{
    if (m.kind == 2) {
        uint32_t a = dev_lookup4(x, m), b = dev_lookup4(x >> 16, m);
        return __byte_perm(a | a >> 4, b | b >> 4, 0x6420);
    }
    x ^= m.before;
    if (m.kind == 1)
        x = dev_encode_nibbles(x);
    return x ^ m.after;
}

/* The map that takes stored nibbles of one table to those of another; a table maps
 * canonical codes to stored nibbles (`from` NULL: canonical codes come in). */
static inline dev_map dev_map_of(const uint8_t *from, const uint8_t *to)
{
    uint8_t t[16];
    for (int i = 0; i < 16; i++)
        t[from ? from[i] & 15 : i] = to[i] & 15;
    for (uint32_t kind = 0; kind < 2; kind++)
        for (uint32_t a = 0; a < 16; a++) {
            uint32_t b = 0;
            bool fits = true;
            for (uint32_t i = 0; i < 16; i++) {
                uint32_t x = i ^ a;
                uint32_t y = kind && x < 8 ? (8 - x) & 7 : x;
                if (i == 0)
                    b = y ^ t[0];
                fits = fits && (y ^ b) == t[i];
            }
            if (fits) {
                dev_map m = {kind, a * 0x11111111u, b * 0x11111111u, {0, 0}, {0, 0}};
                return m;
            }
        }
    dev_map m = {2, 0, 0, {0, 0}, {0, 0}};
    for (int i = 0; i < 4; i++) {
        m.lo[0] |= (uint32_t)t[i] << 8 * i;
        m.lo[1] |= (uint32_t)t[4 + i] << 8 * i;
        m.hi[0] |= (uint32_t)t[8 + i] << 8 * i;
        m.hi[1] |= (uint32_t)t[12 + i] << 8 * i;
    }
    return m;
}

/* FP8 scale of a block and the factor (or divisor) of its values; codec.c's
 * encode_fp8 and encode_fp8_ct. */
struct dev_fp8 {
    float scale, factor;
    bool divide, round_bf16;
};

static __device__ __forceinline__ bool dev_fp8_divides(uint32_t rule)
{
    return rule == TP_FP8_DIV || rule >= TP_FP8_CT_FP32;
}

static __device__ __forceinline__ dev_fp8 dev_fp8_of(uint32_t rule, uint32_t scale_rule,
                                                     uint32_t amax)
{
    dev_fp8 f;
    f.round_bf16 = rule == TP_FP8_CT_BF16;
    f.divide = dev_fp8_divides(rule);
    if (rule >= TP_FP8_CT_FP32) {
        uint16_t sb = tp_f32_to_bf16(__fdiv_rn(__uint_as_float(amax), 448.0f));
        f.scale = f.factor = tp_bf16_to_f32(sb ? sb : 0x3C00);
        return f;
    }
    float a = __uint_as_float(max(amax, 0x38D1B717u));
    bool seed = rule == TP_FP8_SEED || rule == TP_FP8_SEED_CUDA;
    bool gpu = rule == TP_FP8_CUDA || rule == TP_FP8_SEED_CUDA;
    float s = tp_canonical(gpu ? __fmul_rn(a, TP_RCP_448) : __fdiv_rn(a, 448.0f));
    if (scale_rule == TP_FP8_SCALE_UE8M0)
        s = tp_ue8m0_ceil(s);
    else if (scale_rule == TP_FP8_SCALE_BF16)
        s = tp_bf16_to_f32(tp_f32_to_bf16(s));
    f.scale = s;
    if (rule == TP_FP8_DIV)
        f.factor = s;
    else if (seed && scale_rule == TP_FP8_SCALE_FP32)
        f.factor = __fmul_rn(__fdiv_rn(1.0f, a), 448.0f);
    else
        f.factor = __fdiv_rn(1.0f, s);
    return f;
}

/* Eight quotients in place, for the rules that divide. A bf16 scale allows the short
 * way; the fp32 scale of `div` has too many bits for it. */
static __device__ __forceinline__ void dev_fp8_divide(float (&v)[8], const dev_fp8 &f,
                                                      bool bf16_scale)
{
    const dev_divisor d = dev_divisor_of(f.factor);
    if (bf16_scale && d.safe) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = copysignf(dev_divide(v[i], d.high, d.low), v[i]);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = __fdiv_rn(v[i], f.factor);
    }
    if (f.round_bf16) {
#pragma unroll
        for (int i = 0; i < 8; i += 2)
            dev_round_bf16(v[i], v[i + 1]);
    }
}

/* MXFP8: scale of a block and what its values are multiplied by (codec.c,
 * encode_mx). `bad`: the block counts as non-finite. */
struct dev_mx {
    uint8_t scale;
    bool bad;
    float factor;
};

static __device__ __forceinline__ dev_mx dev_mx_of(uint32_t rule, uint32_t amax)
{
    dev_mx m;
    m.bad = amax >= (rule == TP_MX_CT ? 0x7F600000u : TP_F32_INF_BITS);
    if (rule == TP_MX_RCEIL)
        m.scale = tp_mx_rceil(amax, TP_RCP_448);
    else if (rule == TP_MX_FLOOR)
        m.scale = tp_mx_floor(amax, 8);
    else if (rule == TP_MX_CT)
        m.scale = tp_mx_ct(amax);
    else
        m.scale = rule == TP_MX_CEIL ? tp_mx_ceil(amax, 8) : tp_mx_even(amax, 8);
    m.factor = rule == TP_MX_CT && m.bad ? tp_mx_ct_multiplier(amax)
                                         : tp_e8m0_reciprocal(m.scale);
    return m;
}

/* bf16 scale of an int4 group (codec.c, encode_int4). */
static __device__ __forceinline__ uint16_t dev_int4_scale(uint32_t amax)
{
    uint16_t sb = tp_f32_to_bf16(__fdiv_rn(__uint_as_float(amax), 7.5f));
    return sb ? sb : 0x3C00;
}

/* Division of a number below 2^31 by one that the host knows: 2^(31 + s) / divisor, where
 * 2^s is the divisor rounded up to a power of two, rounded up itself. The product is too
 * large by less than 1 / divisor, so that its whole part is the quotient's. */
struct dev_reciprocal {
    uint32_t multiplier, shift;
};

static inline dev_reciprocal dev_reciprocal_of(uint32_t divisor)
{
    uint32_t s = 0;
    while (((uint64_t)1 << s) < divisor)
        s++;
    dev_reciprocal r = {(uint32_t)((((uint64_t)1 << (31 + s)) + divisor - 1) / divisor), 31 + s};
    return r;
}

static __device__ __forceinline__ uint32_t dev_quotient(uint32_t n, dev_reciprocal r)
{
    return (uint32_t)((uint64_t)n * r.multiplier >> r.shift);
}

static __host__ __device__ inline uint64_t dev_ceil(uint64_t a, uint64_t unit)
{
    return a / unit + (a % unit != 0);
}

static __host__ __device__ inline uint64_t dev_up(uint64_t a, uint64_t unit)
{
    return dev_ceil(a, unit) * unit;
}

#endif
