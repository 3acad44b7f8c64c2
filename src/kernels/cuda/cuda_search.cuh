/* The scale search on the device: what every searched kernel shares. search_scalar.h has the
 * candidates and the integers; this file adds how a thread holds values and root weights.
 *
 * Values are integers of at most 4096 in magnitude, kept as floats; errors are compared
 * exactly. Invariant: the same scales as search.c chooses.
 */
#ifndef TP_KERNELS_CUDA_SEARCH_CUH
#define TP_KERNELS_CUDA_SEARCH_CUH

#include "kernels/cuda/cuda_rows.cuh"
#include "kernels/op/search_scalar.h"

/* How an operation is searched, as kernels need it. */
struct dev_search {
    const float *importance; /* h[E][K], with TP_IMPORTANCE_FILE */
    uint32_t weights;        /* enum tp_importance */
    uint32_t top_rule;       /* enum tp_channel_rule that W4A8's channel scale has */
    bool is_signed;
};

static inline struct dev_search dev_search_of(const struct tp_op *op, const struct tp_args *args)
{
    const bool stored = tp_op_find(op, TP_ROLE_CHANNEL) >= 0;
    struct dev_search s = {args->importance, op->importance,
                           stored ? op->channel_rule : (uint32_t)TP_CHANNEL_CPU,
                           op->search_signed};
    if (s.weights == TP_IMPORTANCE_FILE && s.importance == NULL)
        s.weights = TP_IMPORTANCE_NONE;
    return s;
}

/* 2^(11-e) for magnitudes of exponent e, given as bits; for exponents from -116 on. */
static __device__ __forceinline__ float dev_search_unit(uint32_t amax)
{
    return __uint_as_float((265u << 23) - (amax & 0x7F800000u));
}

/* Added to a float of magnitude below 2^22 it rounds that to an integer, ties to even, and
 * has it in the low bits. */
#define DEV_ROUND 12582912.0f /* 1.5 * 2^23 */

/* tp_search_int() of y: the unit is a power of two, so that its product is exact and the sum
 * rounds once. The first has DEV_ROUND still added. */
static __device__ __forceinline__ float dev_search_rounded(float y, float unit)
{
    return __fmaf_rn(y, unit, DEV_ROUND);
}

static __device__ __forceinline__ float dev_search_int(float y, float unit)
{
    return __fadd_rn(dev_search_rounded(y, unit), -DEV_ROUND);
}

static __device__ __forceinline__ float dev_reciprocal_near(float x)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

static __device__ __forceinline__ float dev_root_near(float x)
{
    float r;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

template <int LANES> static __device__ __forceinline__ uint32_t dev_sum_lanes(uint32_t v)
{
#pragma unroll
    for (int d = LANES / 2; d; d >>= 1)
        v += __shfl_xor_sync(0xFFFFFFFFu, v, d);
    return v;
}

/* tp_search_root() of w over the block's largest, `max`. A short way is off by less than
 * 2^-15; where that could decide, all are computed as they are defined. */
template <int N>
static __device__ __forceinline__ void dev_search_roots(const float (&w)[N], float max,
                                                        float (&root)[N])
{
    const float k = __fmul_rn(dev_reciprocal_near(max), 225.0f);
    bool unsure = !(max < 1.3292280e36f); /* 2^120 */
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float r = dev_root_near(__fmul_rn(w[i], k));
        const float whole = __fadd_rn(__fadd_rn(r, DEV_ROUND), -DEV_ROUND);
        unsure |= fabsf(__fsub_rn(r, whole)) > 0.49996f;
        root[i] = fmaxf(whole, 1.0f);
    }
    if (unsure) {
#pragma unroll
        for (int i = 0; i < N; i++)
            root[i] = (float)tp_search_root(__fdiv_rn(w[i], max));
    }
}

/* The square of an integer to which DEV_ROUND was added. */
static __device__ __forceinline__ uint32_t dev_square(float rounded)
{
    const int32_t integer = (int32_t)(__float_as_uint(rounded) - 0x4B400000u);
    return (uint32_t)(integer * integer);
}

/* Roots of importance "magnitude" for N values x in each of LANES neighbouring lanes that
 * together hold a block; `sum` is of the squares of the lane's, `largest` the block's largest
 * magnitude. */
template <int N, int LANES>
static __device__ __forceinline__ void dev_roots_of_magnitude(const float (&x)[N], uint32_t sum,
                                                              float largest, float (&root)[N])
{
    /* 128 times 2^24 at most */
    const float mean = (float)(dev_sum_lanes<LANES>(sum) / (N * LANES));
    float w[N];
#pragma unroll
    for (int i = 0; i < N; i++) /* rounded once, as the sum of integers is */
        w[i] = __fmaf_rn(x[i], x[i], mean);
    dev_search_roots<N>(w, fmaxf(__fmaf_rn(largest, largest, mean), 1.0f), root);
}

/* Eight numbers of a file's importance from `h` on, which may lie at any float. */
static __device__ __forceinline__ void dev_load_importance(const float *h, float *w)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        w[i] = __ldg(h + i);
}

/* Roots of a file's importance; w has the numbers of the values' columns. */
template <int N, int LANES>
static __device__ __forceinline__ void dev_roots_of_file(const float (&w)[N], float (&root)[N])
{
    uint32_t max_value = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        max_value = max(max_value, tp_abs_bits(w[i]));
    max_value = dev_max_lanes<LANES>(max_value);
    dev_search_roots<N>(w, __uint_as_float(max_value), root);
    if (max_value < TP_SEARCH_MIN) {
#pragma unroll
        for (int i = 0; i < N; i++)
            root[i] = 1.0f;
    }
}

/* The largest magnitudes of positive and of negative values, of those before and eight more. */
template <int DT>
static __device__ __forceinline__ void dev_search_ends(const dev_raw8<DT> &r, float *positive,
                                                       float *negative)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        *positive = fmaxf(*positive, dev_value<DT>(r, i));
        *negative = fmaxf(*negative, -dev_value<DT>(r, i));
    }
}

/* The largest magnitudes of positive and of negative values, as floats, among LANES lanes. */
template <int LANES>
static __device__ __forceinline__ bool dev_search_flips(float positive, float negative)
{
    return dev_max_lanes<LANES>(tp_abs_bits(positive)) > /* without the sign of a zero */
           dev_max_lanes<LANES>(tp_abs_bits(negative));
}

/* ---- W4A8: the channel scales that a row may have -------------------------- */

/* That of candidate r, as fixed by the scale of the row's largest group. */
struct dev_top {
    uint32_t scale; /* bf16 */
    float channel, reciprocal;
    bool min; /* as small as it gets, so that g of the largest group is free */
};

static __device__ inline dev_top dev_top_of(uint32_t amax, bool is_signed, uint32_t rule, int r)
{
    dev_top c;
    c.scale = tp_search_w4a8_top(amax, is_signed, r);
    const float sc = dev_channel_of(c.scale, rule).sc;
    c.min = sc == 1.0f / (448.0f * 512.0f);
    c.channel = __fmul_rn(sc, 8.0f);
    c.reciprocal = __fdiv_rn(1.0f, c.channel);
    return c;
}

/* The error of a row whose groups have `total` in units of exponent `max`. */
static __device__ inline double dev_row_cost(uint64_t total, const dev_top &c, int max)
{
    return ldexp((double)total * ((double)c.channel * (double)c.channel), 2 * max);
}

/* The bf16 scale of a group with group scale t. */
static __device__ inline uint32_t dev_top_group(const dev_top &c, uint32_t t, bool flip)
{
    const uint32_t bits = tp_f32_to_bf16(__fmul_rn(tp_e4m3_value((uint8_t)t), c.channel));
    return flip ? bits | 0x8000u : bits;
}

#endif
