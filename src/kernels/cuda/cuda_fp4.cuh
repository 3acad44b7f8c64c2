/* What the kernels of cuda_fp4.cu and cuda_search_fp4.cu share: codes of e2m1 from values and
 * scales, the places of scales, and the arguments. Invariant: bytes equal tp_codec_codes(). */
#ifndef TP_KERNELS_CUDA_FP4_CUH
#define TP_KERNELS_CUDA_FP4_CUH

#include "kernels/cuda/cuda_rows.cuh"

enum { FP4_THREADS = 256, UNIT = 16 /* values of a thread */ };

/* The global scale of NVFP4, and six of it (rule MODELOPT). */
struct fp4_global {
    float global, reciprocal;
    float six, per_six;
};

static inline struct fp4_global fp4_global_of(float global)
{
    const float six = 6.0f * global;
    return fp4_global{global, 1.0f / global, six, 1.0f / six};
}

struct fp4_args : fp4_global {
    const uint8_t *in;
    uint8_t *codes, *scale;
    float *global_out; /* NULL: the format has none */
    uint32_t *flags;
    uint32_t count; /* of threads */
    uint32_t rows, columns; /* scales of an expert */
    dev_reciprocal by_rows, by_columns;
    uint32_t units, steps, panels; /* cuda_fp4.cu */
    dev_reciprocal by_steps, by_panels;
    uint32_t rule;
    bool tiles;
};

/* Byte of the scale of a block (of all experts) in 128x4 tiles. */
static __device__ __forceinline__ uint64_t tile_at(const struct fp4_args &a, uint32_t block)
{
    const uint32_t row = dev_quotient(block, a.by_columns), column = block - row * a.columns;
    const uint32_t e = dev_quotient(row, a.by_rows), n = row - e * a.rows;
    const uint32_t tiles_k = (a.columns + 3) / 4, tiles_n = (a.rows + 127) / 128;
    const uint64_t tile = ((uint64_t)e * tiles_n + n / 128) * tiles_k + column / 4;
    return tile * 512 + (n % 32) * 16 + n % 128 / 32 * 4 + column % 4;
}

/* Codes of eight values, as plainly as the reference has them. */
template <int DT>
static __device__ inline uint32_t any_codes(const dev_raw8<DT> &r, float factor, uint32_t rule)
{
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float x = dev_value<DT>(r, i);
        const float q = rule == TP_NVFP4_TORCHAO ? __fmul_rn(x, factor) : __fdiv_rn(x, factor);
        const uint32_t code = rule == TP_NVFP4_MODELOPT && x == 0.0f ? 0 : tp_e2m1_of(q);
        word |= code << 4 * i;
    }
    return word;
}

/* Signs of eight values, in bit 3 of their nibbles. */
template <int DT> static __device__ __forceinline__ uint32_t signs_of(const dev_raw8<DT> &r)
{
    if constexpr (TP_IS32(DT)) {
        uint32_t signs = 0;
#pragma unroll
        for (int i = 0; i < 8; i++)
            signs |= r.w[i] >> (28 - 4 * i) & 8u << 4 * i;
        return signs;
    } else {
        const uint32_t low = __byte_perm(r.w[0], r.w[1], 0x7531);
        const uint32_t high = __byte_perm(r.w[2], r.w[3], 0x7531);
        return (__byte_perm(low, high, 0x6420) >> 4 & 0x08080808u) |
               (__byte_perm(low, high, 0x7531) & 0x80808080u);
    }
}

/* The code of a magnitude q is the lowest of the lines 2 q, q + 2 and q / 2 + 4, each
 * rounded to an even integer: e2m1's steps are a half below 2, one below 4, and two
 * above, and rounding is monotonic. Added to 2^23 (f16: 1024, bf16: 128) the sum of a line is
 * rounded once, to that integer in the low bits. Sums compare as their bits do, and a NaN is
 * the greatest. CLAMP: q may be 7 and above, or NaN. */
template <bool CLAMP> static __device__ __forceinline__ uint32_t magnitudes(const float (&q)[8])
{
    const float zero = 8388608.0f;
    uint32_t acc = 0;
#pragma unroll
    for (int i = 7; i >= 0; i--) {
        const uint32_t code = min(__float_as_uint(__fmaf_rn(q[i], 2.0f, zero)),
                                  min(__float_as_uint(__fadd_rn(q[i], zero + 2)),
                                      __float_as_uint(__fmaf_rn(q[i], 0.5f, zero + 4))));
        acc = acc * 16u + (CLAMP ? min(code, __float_as_uint(zero + 7)) : code);
    }
    return acc - 0xFB000000u; /* the bits of `zero` in every nibble's sum */
}

/* Pairs of bf16 or f16, and what the lines of magnitudes() need of them. */
template <int DT> struct fp4_pair;

template <> struct fp4_pair<TP_BF16> {
    static const uint32_t two = 0x40004000u, one = 0x3F803F80u, half = 0x3F003F00u;
    static const uint32_t zero = 0x43004300u, zeros = 0x77347730u; /* 128; in all nibbles' sum */

    static __device__ __forceinline__ uint32_t fma(uint32_t a, uint32_t b, uint32_t c)
    {
        uint32_t r;
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
        return r;
    }

    static __device__ __forceinline__ uint32_t min(uint32_t a, uint32_t b)
    {
        uint32_t r;
        asm("min.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
        return r;
    }
};

template <> struct fp4_pair<TP_F16> {
    static const uint32_t two = 0x40004000u, one = 0x3C003C00u, half = 0x38003800u;
    static const uint32_t zero = 0x64006400u, zeros = 0xAA46AA40u; /* 1024 */

    static __device__ __forceinline__ uint32_t fma(uint32_t a, uint32_t b, uint32_t c)
    {
        uint32_t r;
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
        return r;
    }

    static __device__ __forceinline__ uint32_t min(uint32_t a, uint32_t b)
    {
        uint32_t r;
        asm("min.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
        return r;
    }
};

/* magnitudes<true>() of four pairs q. */
template <int DT> static __device__ __forceinline__ uint32_t pair_magnitudes(const uint32_t (&q)[4])
{
    typedef fp4_pair<DT> pair;
    uint32_t code[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        code[i] = pair::min(
            pair::min(pair::fma(q[i], pair::two, pair::zero),
                      pair::fma(q[i], pair::one, pair::zero + 0x00020002u)),
            pair::min(pair::fma(q[i], pair::half, pair::zero + 0x00040004u),
                      pair::zero + 0x00070007u));
    const uint32_t low = code[1] * 256u + code[0], high = code[3] * 256u + code[2];
    return __byte_perm(low, high, 0x7632) * 16u + __byte_perm(low, high, 0x5410) - pair::zeros;
}

/* x twice, as f16. */
static __device__ __forceinline__ uint32_t f16_pair(float x)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(pair) : "f"(x));
    return pair;
}

/* Four pairs' magnitudes times a power of two, exact or far below a half. F16 has too few
 * exponents for some: 2^14 of them are then in a factor of their own. */
template <int DT>
static __device__ __forceinline__ void pair_quotients(const uint32_t *w, float factor,
                                                      uint32_t (&q)[4])
{
    typedef fp4_pair<DT> pair;
    if constexpr (DT == TP_BF16) {
        const uint32_t by = __byte_perm(__float_as_uint(factor), 0, 0x3232);
#pragma unroll
        for (int i = 0; i < 4; i++)
            q[i] = pair::fma(w[i] & 0x7FFF7FFFu, by, 0);
    } else {
        const bool split = factor > 16384.0f; /* not NaN */
        const float max = fminf(__fmul_rn(factor, 1.0f / 16384), 32768.0f);
        const uint32_t by = f16_pair(split ? 16384.0f : factor), rest = f16_pair(split ? max : 1);
#pragma unroll
        for (int i = 0; i < 4; i++)
            q[i] = pair::fma(pair::fma(w[i] & 0x7FFF7FFFu, by, 0), rest, 0);
    }
}

/* MXFP4 codes of eight values. */
template <int DT>
static __device__ __forceinline__ uint32_t mx_codes(const dev_raw8<DT> &r, float factor)
{
    const uint32_t signs = factor == factor ? signs_of<DT>(r) : 0; /* NaN is 7 */
    if constexpr (!TP_IS32(DT)) {
        uint32_t q[4];
        pair_quotients<DT>(r.w, factor, q);
        return pair_magnitudes<DT>(q) | signs;
    } else {
        float q[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            q[i] = __fmul_rn(fabsf(dev_value<DT>(r, i)), factor);
        return magnitudes<true>(q) | signs;
    }
}

/* A quotient from one that is next to it, and the reciprocal of the divisor, to within a unit in
 * the last place: what is left over is exact, and its share of the quotient settles the rounding.
 */
static __device__ __forceinline__ float corrected(float near, float x, float divisor,
                                                  float reciprocal)
{
    return __fmaf_rn(__fmaf_rn(-near, divisor, x), reciprocal, near);
}

/* dev_nvfp4_factor() of rule CT without its division: a product with the reciprocal of the
 * global scale, corrected by the remainder: right for every significand of e4m3 and f32 where
 * the factor is not near the ends of the range. */
static __device__ __forceinline__ float ct_factor(const struct fp4_global &a, uint32_t scale)
{
    const float value = dev_e4m3_value(scale);
    return corrected(__fmul_rn(value, a.reciprocal), value, a.global, a.reciprocal);
}

/* dev_nvfp4_scale() of rule CT without its divisions. Every bf16 and f16 number times 1/6
 * rounds to the same bf16 number as a sixth of it. */
template <int DT>
static __device__ __forceinline__ uint8_t ct_scale(const struct fp4_global &a, uint32_t amax_bits,
                                                   float *factor)
{
    const float amax = __uint_as_float(amax_bits);
    const float sixth = TP_IS32(DT) ? __fdiv_rn(amax, 6.0f) : __fmul_rn(amax, TP_RCP_6);
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(sixth), "f"(0.0f));
    uint8_t scale = dev_e4m3_of(__fmul_rn(__uint_as_float(pair), a.global));
    scale = scale ? scale : 0x20;
    *factor = ct_factor(a, scale);
    return scale;
}

/* dev_nvfp4_scale() of rule TORCHAO without its divisions. A product with the reciprocal may
 * be two numbers away from the quotient of any two floats: it is corrected twice. Right for a
 * sixth of every bf16 and f16 number, for every float by every e4m3 number, and wherever
 * nv_block_of() does not find the factor special. */
template <int DT>
static __device__ __forceinline__ uint8_t torchao_scale(const struct fp4_global &a,
                                                        uint32_t amax_bits, float *factor)
{
    const float amax = __uint_as_float(amax_bits), g = a.global, per_g = a.reciprocal;
    const float sixth = TP_IS32(DT) ? __fdiv_rn(amax, 6.0f)
                                    : corrected(__fmul_rn(amax, TP_RCP_6), amax, 6.0f, TP_RCP_6);
    float q = corrected(__fmul_rn(sixth, per_g), sixth, g, per_g), inverse;
    q = corrected(q, sixth, g, per_g);
    const uint8_t scale = dev_e4m3_of(q < 0.015625f ? 0.015625f : q); /* NaN stays */
    const float value = dev_e4m3_value(scale);
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(value));
    *factor = corrected(__fmul_rn(per_g, inverse), per_g, value, inverse);
    return scale;
}

/* dev_nvfp4_scale() of rule MODELOPT without its division, which is corrected twice as above. A
 * quotient so small that it may have become zero on the way has no factor, which is special. */
static __device__ __forceinline__ uint8_t modelopt_scale(const struct fp4_global &a,
                                                         uint32_t amax_bits, float *factor)
{
    const float amax = __uint_as_float(amax_bits);
    float q = corrected(__fmul_rn(amax, a.per_six), amax, a.six, a.per_six);
    q = corrected(q, amax, a.six, a.per_six);
    const bool lost = amax_bits != 0 && q < 0x1p-100f;
    q = amax_bits == 0 ? 1.0f : q;
    const uint8_t scale = dev_e4m3_of(q < 0.001953125f ? 0.001953125f : q);
    *factor = lost ? 0.0f : dev_nvfp4_factor(TP_NVFP4_MODELOPT, scale, a.global);
    return scale;
}

/* dev_nvfp4_scale() of a rule that the compiler knows, by the short ways: right wherever
 * nv_block_of() does not find the factor special. */
template <int DT, uint32_t RULE>
static __device__ __forceinline__ uint8_t nv_scale(const struct fp4_global &a, uint32_t amax,
                                                   float *factor)
{
    return RULE == TP_NVFP4_CT        ? ct_scale<DT>(a, amax, factor)
           : RULE == TP_NVFP4_TORCHAO ? torchao_scale<DT>(a, amax, factor)
                                      : modelopt_scale(a, amax, factor);
}

/* Zeros of either sign made positive, as rule MODELOPT has them. */
template <int DT> static __device__ __forceinline__ void plain_zeros(dev_raw8<DT> (&r)[2])
{
#pragma unroll
    for (int i = 0; i < (TP_IS32(DT) ? 16 : 8); i++)
        r[i % 2].w[i / 2] = dev_plain_zero<DT>(r[i % 2].w[i / 2]);
}

/* What the values of an NVFP4 block are multiplied by: the sum of two floats. */
struct nv_block {
    float factor, high, low;
    bool special; /* NaN or infinity, or the short ways might be wrong */
};

/* dev_divide() may miss the nearest float where the quotient is 2^-44, relative, from
 * where rounding changes. That matters only beside the seven numbers where the code
 * changes; a quotient of a bf16 or f16 number comes that near to one of them only if the
 * significand of the divisor is above 2 - 2^-18. Blocks with quotients above `max` are
 * special. */
static __device__ __forceinline__ nv_block nv_block_of(uint32_t rule, float factor, uint32_t amax,
                                                      float max)
{
    const uint32_t bits = __float_as_uint(factor);
    const dev_divisor d = dev_divisor_of(factor);
    nv_block b;
    b.factor = factor;
    b.high = rule == TP_NVFP4_TORCHAO ? factor : d.high;
    b.low = rule == TP_NVFP4_TORCHAO ? 0 : d.low;
    b.special = !(__fmul_rn(__uint_as_float(amax), b.high) <= max) |
                (bits - 0x17800000u > 0x50000000u) | /* outside 2^-80..2^80 */
                (rule != TP_NVFP4_TORCHAO && (bits & 0x7FFFE0u) == 0x7FFFE0u);
    return b;
}

/* NVFP4 codes of eight values of a block that is not special; CLAMP as for magnitudes().
 * PRODUCT: the rule is known to be TORCHAO. */
template <int DT, bool CLAMP, bool PRODUCT = false>
static __device__ __forceinline__ uint32_t nv_codes(const dev_raw8<DT> &r, const nv_block &b,
                                                    uint32_t rule)
{
    float q[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float x = fabsf(dev_value<DT>(r, i));
        if (PRODUCT)
            q[i] = __fmul_rn(x, b.factor);
        else
            q[i] = TP_IS32(DT) && rule != TP_NVFP4_TORCHAO ? __fdiv_rn(x, b.factor)
                                                           : dev_divide(x, b.high, b.low);
    }
    return magnitudes<CLAMP>(q) | signs_of<DT>(r);
}

/* The arguments of a kernel. False: the shape is not for these kernels, and the general ones
 * are enqueued. */
static inline bool fp4_begin(const struct tp_op *op, struct tp_args *args, struct fp4_args &a)
{
    const struct tp_box3 box = args->box;
    const struct tp_op_out *scale = &op->out[tp_op_find(op, TP_ROLE_SCALE)];
    const int global = tp_op_find(op, TP_ROLE_GLOBAL);
    const uint64_t count = box.e * box.n * (box.k / UNIT);
    if (box.k % scale->per_k != 0 || count > 0x7FFFFFFFu || box.e * box.n > 0x7FFFFFFFu) {
        tp_cuda_encode_any(op, args);
        return false;
    }
    a.in = (const uint8_t *)args->in[0];
    a.codes = (uint8_t *)args->out[tp_op_find(op, TP_ROLE_CODES)];
    a.scale = (uint8_t *)args->out[scale - op->out];
    a.global_out = global < 0 ? NULL : (float *)args->out[global];
    a.flags = args->device_flags;
    a.count = (uint32_t)count;
    a.rows = (uint32_t)box.n;
    a.columns = (uint32_t)(box.k / scale->per_k);
    a.by_rows = dev_reciprocal_of(a.rows);
    a.by_columns = dev_reciprocal_of(a.columns);
    a.rule = op->rule;
    a.tiles = scale->place == TP_PLACE_TILE_N;
    *(struct fp4_global *)&a = fp4_global_of(args->global);
    return true;
}

/* Zeros enqueued where tiles have no scale. */
static inline void fp4_clear(const struct fp4_args &a, uint64_t experts, cudaStream_t stream)
{
    if (a.tiles && (a.rows % 128 != 0 || a.columns % 4 != 0))
        cudaMemsetAsync(a.scale, 0, experts * dev_up(a.rows, 128) * dev_up(a.columns, 4), stream);
}

#endif
