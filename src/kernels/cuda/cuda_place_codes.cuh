/* Scales of blocks and codes of eight values, for every codec that is placed: by the short way
 * where no number of a block is rare, else as cuda_any.cu has them. Knows no place. Invariant:
 * bits equal tp_encode_ref.
 */
#ifndef TP_KERNELS_CUDA_PLACE_CODES_CUH
#define TP_KERNELS_CUDA_PLACE_CODES_CUH

#include "kernels/cuda/cuda_fp4.cuh"
#include "kernels/cuda/cuda_int4.cuh"
#include "kernels/cuda/cuda_int8.cuh"
#include "kernels/cuda/cuda_place_values.cuh"

/* Codecs whose scales may have been found before: RULE is GIVEN then, of FP8 with one scale to a
 * weight TENSOR, and of NVFP4 a rule. */
enum { TENSOR = 254, GIVEN = 255 };
#define IS_TENSOR(codec, rule) ((codec) == TP_CODEC_FP8 && (rule) == TENSOR)
#define TAKES_GIVEN(codec) \
    ((codec) == TP_CODEC_INT4 || (codec) == TP_CODEC_INT8 || (codec) == TP_CODEC_FP8)

#define IS_NIBBLES(codec) \
    ((codec) == TP_CODEC_INT4 || (codec) == TP_CODEC_MXFP4 || (codec) == TP_CODEC_NVFP4)
#define IS_INT(codec) ((codec) == TP_CODEC_INT4 || (codec) == TP_CODEC_INT8)
#define CODE_BITS(codec) (IS_NIBBLES(codec) ? 4 : 8)

/* scale_of() of integers where no magnitude is NaN, infinite, zero or near the
 * ends of the range: without branches. 7.5 and 127.5 have so few bits that dev_divide() by them
 * is exact. */
struct place_quick {
    uint32_t bits, max; /* max: two bf16 numbers whose quotients round to the largest code */
    float value;
    bool ordinary;
};

#define LARGEST(codec) ((codec) == TP_CODEC_INT8 ? 127.0f : 7.0f)

template <int CODEC>
static __device__ __forceinline__ place_quick quick_of(const any_codec &c, uint32_t amax)
{
    const float reach = CODEC == TP_CODEC_INT8 ? 127.5f : 7.5f, high = 1.0f / reach;
    const float low = (float)(1.0 / (double)reach - (double)high);
    const float scale = dev_divide(__uint_as_float(amax), high, low);
    place_quick q;
    asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(q.bits) : "f"(scale));
    q.value = __uint_as_float(q.bits & 0xFFFF0000u);
    q.bits &= 0xFFFFu;
    q.ordinary = amax - 0x1A000000u < 0x48000000u; /* 2^-75 to 2^69 */
    if (c.f16) {
        unsigned short half;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(scale));
        asm("cvt.f32.f16 %0, %1;" : "=f"(q.value) : "h"(half));
        q.bits = half;
        q.ordinary = q.ordinary && q.bits - 0x0400u < 0x7800u; /* normal numbers */
    }
    asm("cvt.rn.bf16x2.f32 %0, %1, %1;"
        : "=r"(q.max)
        : "f"(__fmul_rn(q.value, LARGEST(CODEC))));
    return q;
}

/* A scale with so few bits that the short division is exact; infinities are divided the long
 * way. */
static __device__ __forceinline__ bool is_short(const any_scale &s)
{
    const uint32_t bits = __float_as_uint(s.fp8.factor);
    return !s.bad && bits < TP_F32_INF_BITS && (bits & 0xFFFFu) == 0;
}

/* What dev_divide_long() takes, with quotients that are not rounded to bf16 afterwards. */
static __device__ __forceinline__ bool is_long(const any_scale &s)
{
    const uint32_t scale = __float_as_uint(s.fp8.factor);
    return scale - 0x21800000u <= 0x3C000000u && !s.fp8.round_bf16 &&
           (s.amax >> 23) < (scale >> 23) + 19;
}

/* Eight e4m3 codes. */
template <int CODEC, int DT>
static __device__ __forceinline__ uint2 e4m3_of(const any_scale &s, const dev_raw8<DT> &r)
{
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = dev_value<DT>(r, i);
    if (CODEC == TP_CODEC_FP8 && s.fp8.divide && !is_short(s) && is_long(s)) {
        const float y = __frcp_rn(s.fp8.factor);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = dev_divide_long(v[i], s.fp8.factor, y);
    } else if (CODEC == TP_CODEC_FP8 && s.fp8.divide) {
        dev_fp8_divide(v, s.fp8, is_short(s));
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = __fmul_rn(v[i], s.fp8.factor);
    }
    return make_uint2(dev_e4m3x4(v[0], v[1], v[2], v[3]), dev_e4m3x4(v[4], v[5], v[6], v[7]));
}

/* What a scale that was found before says: of integers, and of FP8 by rules that divide. */
static __device__ __forceinline__ any_scale given_scale(const any_codec &c, uint32_t element,
                                                        uint32_t bits)
{
    any_scale s;
    s.bits = bits;
    s.fp8.factor = element == TP_ELEM_F32    ? tp_bits_f32(bits)
                   : element == TP_ELEM_BF16 ? tp_bf16_to_f32((uint16_t)bits)
                                             : tp_f16_to_f32((uint16_t)bits);
    s.fp8.scale = s.fp8.factor;
    s.fp8.divide = true;
    s.fp8.round_bf16 = c.rule == TP_FP8_CT_BF16;
    s.bad = tp_abs_bits(s.fp8.factor) >= TP_F32_INF_BITS;
    s.amax = s.bad ? TP_F32_INF_BITS : 0;
    return s;
}

/* A block's scale, and what its codes are made by. */
struct place_block {
    any_scale s;
    place_quick quick; /* integers, where it is ordinary */
    dev_divisor d;
    nv_block nv;
};

/* Integers by the short way, also from a scale that was found before. */
template <int CODEC>
static __device__ __forceinline__ void set_quick(const any_codec &c, place_block *b)
{
    b->quick.ordinary = b->quick.ordinary && c.rule == TP_INT4_QUOTIENT_FP32;
    b->d = dev_divisor_of(b->quick.value);
}

template <int CODEC>
static __device__ __forceinline__ place_block given_block(const place_encode &a, uint32_t bits)
{
    place_block b;
    b.s = given_scale(a.codec, a.element, bits);
    if (CODEC == TP_CODEC_INT4 || CODEC == TP_CODEC_INT8) {
        const float value = b.s.fp8.factor;
        b.quick.value = value;
        /* 2^-74 to 2^68; searched ones may be too small for some values, or below zero */
        b.quick.ordinary = !a.grouped && __float_as_uint(value) - 0x1A800000u < 0x47000000u &&
                           (!a.codec.f16 || bits - 0x0400u < 0x7800u);
        asm("cvt.rn.bf16x2.f32 %0, %1, %1;"
            : "=r"(b.quick.max)
            : "f"(__fmul_rn(value, LARGEST(CODEC))));
        set_quick<CODEC>(a.codec, &b);
    }
    return b;
}

/* The scale of rare blocks of integers. */
template <int CODEC>
static __device__ __noinline__ uint32_t rare_scale(uint32_t *flags, bool f16, uint32_t amax)
{
    any_codec c;
    c.codec = CODEC;
    c.f16 = f16;
    const any_scale s = scale_of(c, amax);
    dev_flag_bad(flags, s.bad);
    return s.bits;
}

template <int CODEC, int DT, uint32_t RULE>
static __device__ __forceinline__ place_block block_of(const place_encode &a, uint32_t amax)
{
    any_codec c = a.codec;
    place_block b;
    c.codec = CODEC;
    if (CODEC == TP_CODEC_INT4 || CODEC == TP_CODEC_INT8) {
        b.quick = quick_of<CODEC>(c, amax);
        set_quick<CODEC>(c, &b);
        b.s.bits = b.quick.bits;
        b.s.fp8.factor = b.quick.value;
        if (!b.quick.ordinary) {
            b.s.bits = rare_scale<CODEC>(a.flags, c.f16, amax);
            b.s.fp8.factor = scale_value(CODEC, c.f16, b.s.bits);
        }
        b.s.amax = amax;
        b.s.bad = false; /* has been said */
    } else if (CODEC == TP_CODEC_NVFP4) {
        b.s.bad = amax >= TP_F32_INF_BITS;
        b.s.bits = nv_scale<DT, RULE>(a.nv, amax, &b.s.fp8.factor);
        b.nv = nv_block_of(RULE, b.s.fp8.factor, amax, 6.9f);
        if (b.nv.special)
            b.s.bits = dev_nvfp4_scale(RULE, amax, a.nv.global, &b.s.fp8.factor);
    } else {
        b.s = scale_of(c, amax);
    }
    return b;
}

/* What all codes of FP8 with one scale to a weight are made by. */
static __device__ __forceinline__ place_block tensor_block(const place_encode &a, uint32_t amax)
{
    place_block b;
    b.s.fp8.factor = b.s.fp8.scale = a.codec.global;
    b.s.fp8.divide = dev_fp8_divides(a.codec.rule);
    b.s.fp8.round_bf16 = a.codec.rule == TP_FP8_CT_BF16;
    b.s.amax = amax;
    b.s.bad = amax >= TP_F32_INF_BITS;
    return b;
}

/* Codes of rare blocks; not a part of the loops that have no place for them. */
template <int CODEC, int DT>
static __device__ __noinline__ uint2 rare_codes(dev_raw8<DT> r, float factor, uint32_t amax,
                                                uint32_t rule, bool f16)
{
    if constexpr (CODEC == TP_CODEC_NVFP4)
        return make_uint2(any_codes<DT>(r, factor, rule), 0);
    else if constexpr (CODEC == TP_CODEC_INT4)
        return make_uint2(amax >= TP_F32_INF_BITS ? 0x88888888u
                                                  : dev_int4x8_by_rule<DT>(r, factor, rule),
                          0);
    else
        return amax >= TP_F32_INF_BITS
                   ? make_uint2(0, 0)
                   : dev_int8x8<DT>(r, factor, f16, rule == TP_INT4_QUOTIENT_BF16);
}

template <int DT, uint32_t RULE>
static __device__ __forceinline__ uint32_t nv_ordinary(const nv_block &b, dev_raw8<DT> r)
{
    if (RULE == TP_NVFP4_MODELOPT) {
#pragma unroll
        for (int i = 0; i < (TP_IS32(DT) ? 8 : 4); i++)
            r.w[i] = dev_plain_zero<DT>(r.w[i]);
    }
    return nv_codes<DT, false, RULE == TP_NVFP4_TORCHAO>(r, b, RULE);
}

template <int CODEC, int DT, uint32_t RULE>
static __device__ __forceinline__ uint32_t nv_eight(const place_block &b, const dev_raw8<DT> &r)
{
    return b.nv.special ? rare_codes<CODEC, DT>(r, b.s.fp8.factor, 0, RULE, false).x
                        : nv_ordinary<DT, RULE>(b.nv, r);
}

/* Eight codes: nibbles in x, or bytes. */
template <int CODEC, int DT, uint32_t RULE>
static __device__ __forceinline__ uint2 codes_of(const place_encode &a, const place_block &b,
                                                 const dev_raw8<DT> &r)
{
    if constexpr (CODEC == TP_CODEC_INT4 || CODEC == TP_CODEC_INT8) {
        if (!b.quick.ordinary)
            return rare_codes<CODEC, DT>(r, b.s.fp8.factor, b.s.amax, a.codec.rule, a.codec.f16);
        if constexpr (CODEC == TP_CODEC_INT4)
            return make_uint2(dev_int4_ordinary<DT>(r, b.d.high, b.d.low, b.quick.max), 0);
        else
            return dev_int8_ordinary<DT>(r, b.d.high, b.d.low, b.quick.max);
    } else if constexpr (CODEC == TP_CODEC_NVFP4) {
        return make_uint2(nv_eight<CODEC, DT, RULE>(b, r), 0);
    } else if constexpr (CODEC == TP_CODEC_MXFP4) {
        return make_uint2(mx_codes<DT>(r, b.s.fp8.factor), 0);
    } else {
        return e4m3_of<CODEC, DT>(b.s, r);
    }
}

#endif
