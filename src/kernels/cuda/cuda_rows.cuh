/* Internal to the CUDA kernels: the functions behind the rows, and what several of
 * them share on the device. */
#ifndef TP_KERNELS_CUDA_ROWS_CUH
#define TP_KERNELS_CUDA_ROWS_CUH

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_row_functions.h"

/* launch<DT>(...) for the type of the weights that are read. */
#define DEV_BY_DTYPE(dtype, launch, ...)                        \
    do {                                                        \
        if ((dtype) == TP_BF16)                                 \
            launch<TP_BF16>(__VA_ARGS__);                       \
        else if ((dtype) == TP_F16)                             \
            launch<TP_F16>(__VA_ARGS__);                        \
        else                                                    \
            launch<TP_F32>(__VA_ARGS__);                        \
    } while (0)

/* What kernels of rows are given of a weight: values, where the outputs go, sizes, rules. */
struct dev_weight {
    const uint8_t *in;
    uint8_t *codes, *scale; /* or group scales */
    uint32_t *flags;
    uint64_t n, k;
    uint32_t rule, scale_rule;
};

static inline struct dev_weight dev_weight_of(const struct tp_op *op, const struct tp_args *args)
{
    const int scale = tp_op_find(op, TP_ROLE_SCALE);
    struct dev_weight w;
    w.in = (const uint8_t *)args->in[0];
    w.codes = (uint8_t *)args->out[tp_op_find(op, TP_ROLE_CODES)];
    w.scale = (uint8_t *)args->out[scale < 0 ? tp_op_find(op, TP_ROLE_GROUP8) : scale];
    w.flags = args->device_flags;
    w.n = args->box.n;
    w.k = args->box.k;
    w.rule = op->rule;
    w.scale_rule = op->scale_rule;
    return w;
}

/* The smaller of two bf16 pairs, pair by pair. */
static __device__ __forceinline__ uint32_t dev_min_bf16x2(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("min.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* Quotients of eight values by a scale's reciprocal plus `base`, for integer codes whose lower end
 * needs no clamp. bf16 values are clamped to `max`, two at a time, before they are divided;
 * others are not.
 *
 * base is 1.5 * 2^b, so that the sum is a multiple of 2^(b - 23): 2^-16 or 2^-14. Where x / s lies
 * in the middle of two integers the sum is exact, as the product is wrong by less than half of
 * that. Elsewhere a quotient of numbers of 11 bits or fewer is 2^-13 or more away from every
 * middle (a multiple of 2^-4 by 2^9, or of 2^-1 by 2^12), and stays on its side. fp32 values have
 * too many bits for this: their quotients are rounded as dev_divide() does, and have no base. */
template <int DT>
static __device__ __forceinline__ void dev_ordinary(dev_raw8<DT> x, float high, float low,
                                                    uint32_t max, float base, float (&q)[8])
{
    if (DT == TP_BF16) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x.w[i] = dev_min_bf16x2(x.w[i], max);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        q[i] = TP_IS32(DT) ? dev_divide(dev_value<DT>(x, i), high, low)
                           : __fmaf_rn(dev_value<DT>(x, i), high, base);
}

/* The same of two values of 16 bits. */
template <int DT>
static __device__ __forceinline__ void dev_ordinary_pair(uint32_t word, float high, uint32_t max,
                                                         float base, float (&q)[2])
{
    if (DT == TP_BF16)
        word = dev_min_bf16x2(word, max);
    q[0] = __fmaf_rn(dev_widen<DT>(word, 0), high, base);
    q[1] = __fmaf_rn(dev_widen<DT>(word, 1), high, base);
}

/* Value of an e4m3 code, by the chip's conversion where it has one. */
static __device__ __forceinline__ float dev_e4m3_value(uint32_t code)
{
#if __CUDA_ARCH__ >= 890
    uint32_t halves;
    float f;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)code));
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((unsigned short)halves));
    return f;
#else
    return tp_e4m3_value((uint8_t)code);
#endif
}

/* ---- FP4 scales: encode_mx() and tp_nvfp4_block_scale() of codec.c ------ */

static __device__ __forceinline__ uint8_t dev_mxfp4_scale(uint32_t rule, uint32_t amax)
{
    if (rule == TP_MX_RCEIL)
        return tp_mx_rceil(amax, TP_RCP_6);
    if (rule == TP_MX_FLOOR)
        return tp_mx_floor(amax, 2);
    return rule == TP_MX_CEIL ? tp_mx_ceil(amax, 2) : tp_mx_even(amax, 2);
}

static __device__ __forceinline__ uint8_t dev_e4m3_of(float x)
{
#if __CUDA_ARCH__ >= 890
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return (uint8_t)pair;
#else
    return tp_e4m3_of(x);
#endif
}

/* What values are divided by (TORCHAO: multiplied) for an e4m3 scale. */
static __device__ __forceinline__ float dev_nvfp4_factor(uint32_t rule, uint32_t scale, float g)
{
    const float value = dev_e4m3_value(scale);
    if (rule == TP_NVFP4_CT)
        return __fdiv_rn(value, g);
    if (rule == TP_NVFP4_TORCHAO)
        return __fdiv_rn(__fdiv_rn(1.0f, g), value);
    return __fmul_rn(value, g);
}

/* The e4m3 scale of a block, and what its values are divided by (TORCHAO: multiplied). */
static __device__ __forceinline__ uint8_t dev_nvfp4_scale(uint32_t rule, uint32_t amax_bits,
                                                          float g, float *factor)
{
    const float amax = tp_bits_f32(amax_bits);
    uint8_t sb;
    if (rule == TP_NVFP4_CT) {
        const uint16_t sixth = tp_f32_to_bf16(__fdiv_rn(amax, 6.0f));
        sb = dev_e4m3_of(__fmul_rn(tp_bf16_to_f32(sixth), g));
        sb = sb ? sb : 0x20;
    } else if (rule == TP_NVFP4_TORCHAO) {
        const float q = __fdiv_rn(__fdiv_rn(amax, 6.0f), g);
        sb = dev_e4m3_of(q < 0.015625f ? 0.015625f : q); /* NaN stays */
    } else {
        float q = __fdiv_rn(amax, __fmul_rn(6.0f, g));
        q = q == 0.0f ? 1.0f : q;
        sb = dev_e4m3_of(q < 0.001953125f ? 0.001953125f : q);
    }
    *factor = dev_nvfp4_factor(rule, sb, g);
    return sb;
}

/* ---- W4A8 scales: tp_channel_scale() and tp_group8() of codec.c ---------- */

struct dev_channel {
    float sc, reciprocal;
    bool divide;
};

/* `amax`: largest bf16 magnitude of a row's group scales; `rule`: enum tp_channel_rule. */
static __device__ __forceinline__ dev_channel dev_channel_of(uint32_t amax, uint32_t rule)
{
    const float min = 1.0f / (448.0f * 512.0f), m = tp_bf16_to_f32((uint16_t)amax);
    dev_channel c;
    c.sc = rule == TP_CHANNEL_GPU ? __fmul_rn(m, TP_RCP_448) : __fdiv_rn(m, 448.0f);
    if (c.sc < min) /* NaN stays */
        c.sc = min;
    c.reciprocal = __fdiv_rn(1.0f, c.sc);
    c.divide = rule == TP_CHANNEL_DIV;
    return c;
}

static __device__ __forceinline__ float dev_channel_value(const dev_channel &c)
{
    return tp_canonical(__fmul_rn(c.sc, 8.0f));
}

#if __CUDA_ARCH__ >= 890
/* f16 pairs and e4m3 pairs, by the chip's conversions. */
static __device__ __forceinline__ uint32_t dev_f16x2_of(uint16_t e4m3x2)
{
    uint32_t h;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(e4m3x2));
    return h;
}

static __device__ __forceinline__ uint16_t dev_e4m3x2_of(uint32_t f16x2)
{
    uint16_t c;
    asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(c) : "r"(f16x2));
    return c;
}

static __device__ __forceinline__ uint32_t dev_mul_f16x2(uint32_t a, uint32_t b)
{
    uint32_t h;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(h) : "r"(a), "r"(b));
    return h;
}
#endif

/* One bf16 group scale to its eight e4m3 multiples -8..-1. An e4m3 number, an eighth
 * of it and its small multiples are exact in f16, so that the chip's conversions
 * between the two do all the rounding there is. */
static __device__ __forceinline__ uint2 dev_group8(uint32_t scale, const dev_channel &c)
{
    float s = tp_bf16_to_f32((uint16_t)scale);
    float f = c.divide ? __fdiv_rn(s, c.sc) : __fmul_rn(s, c.reciprocal);
#if __CUDA_ARCH__ >= 890
    uint16_t code;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %1;" : "=h"(code) : "f"(f));
    uint32_t g = dev_f16x2_of(dev_e4m3x2_of(dev_mul_f16x2(dev_f16x2_of(code), 0x30003000u)));
    uint32_t a = dev_e4m3x2_of(dev_mul_f16x2(g, 0xC700C800u)); /* -8, -7 */
    uint32_t b = dev_e4m3x2_of(dev_mul_f16x2(g, 0xC500C600u)); /* -6, -5 */
    uint32_t d = dev_e4m3x2_of(dev_mul_f16x2(g, 0xC200C400u)); /* -4, -3 */
    uint32_t e = dev_e4m3x2_of(dev_mul_f16x2(g, 0xBC00C000u)); /* -2, -1 */
    return make_uint2(a | b << 16, d | e << 16);
#else
    f = __fmul_rn(tp_e4m3_value(tp_e4m3_of(f)), 0.125f);
    f = tp_e4m3_value(tp_e4m3_of(f));
    return make_uint2(dev_e4m3x4(__fmul_rn(f, -8.0f), __fmul_rn(f, -7.0f), __fmul_rn(f, -6.0f),
                                 __fmul_rn(f, -5.0f)),
                      dev_e4m3x4(__fmul_rn(f, -4.0f), __fmul_rn(f, -3.0f), __fmul_rn(f, -2.0f),
                                 __fmul_rn(f, -1.0f)));
#endif
}

#endif
