/* What the kernels of cuda_fp4.cu and cuda_search_fp4.cu share: codes of e2m1 from values and
 * scales, the places of scales, and the arguments. Invariant: bytes equal tp_codec_codes(). */
#ifndef TP_KERNELS_CUDA_FP4_CUH
#define TP_KERNELS_CUDA_FP4_CUH

#include "kernels/cuda/cuda_rows.cuh"

enum { FP4_THREADS = 256, UNIT = 16 /* values of a thread */ };

struct fp4_args {
    const uint8_t *in;
    uint8_t *codes, *scale;
    float *global_out; /* NULL: the format has none */
    uint32_t *flags;
    uint32_t count; /* of threads */
    uint32_t rows, columns; /* scales of an expert */
    dev_reciprocal by_rows, by_columns;
    uint32_t rule;
    bool tiles;
    float global, reciprocal;
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
 * above, and rounding is monotonic. Added to 2^23 (bf16: 128) the sum of a line is
 * rounded once, to that integer in the low bits. CLAMP: q may be 7 and above, or NaN. */
template <bool CLAMP> static __device__ __forceinline__ uint32_t magnitudes(const float (&q)[8])
{
    const float zero = 8388608.0f;
    uint32_t acc = 0;
#pragma unroll
    for (int i = 7; i >= 0; i--) {
        float code = fminf(__fmaf_rn(q[i], 2.0f, zero),
                           fminf(__fadd_rn(q[i], zero + 2), __fmaf_rn(q[i], 0.5f, zero + 4)));
        acc = acc * 16u + __float_as_uint(CLAMP ? fminf(code, zero + 7) : code);
    }
    return acc - 0xFB000000u; /* the bits of `zero` in every nibble's sum */
}

static __device__ __forceinline__ uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

static __device__ __forceinline__ uint32_t min_bf16x2(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("min.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* The same for four pairs of bf16 times a power of two, `factor`, which is exact or far
 * below a half. */
static __device__ __forceinline__ uint32_t bf16_magnitudes(const uint32_t *w, float factor)
{
    const uint32_t pair = __byte_perm(__float_as_uint(factor), 0, 0x3232);
    uint32_t code[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t q = fma_bf16x2(w[i] & 0x7FFF7FFFu, pair, 0);
        code[i] = min_bf16x2(
            min_bf16x2(fma_bf16x2(q, 0x40004000u, 0x43004300u),  /* 2 q + 128 */
                       fma_bf16x2(q, 0x3F803F80u, 0x43024302u)), /* q + 130 */
            min_bf16x2(fma_bf16x2(q, 0x3F003F00u, 0x43044304u),  /* q / 2 + 132 */
                       0x43074307u));
    }
    const uint32_t low = code[1] * 256u + code[0], high = code[3] * 256u + code[2];
    return __byte_perm(low, high, 0x7632) * 16u + __byte_perm(low, high, 0x5410) - 0x77347730u;
}

/* MXFP4 codes of eight values. */
template <int DT>
static __device__ __forceinline__ uint32_t mx_codes(const dev_raw8<DT> &r, float factor)
{
    const uint32_t signs = factor == factor ? signs_of<DT>(r) : 0; /* NaN is 7 */
    if constexpr (DT == TP_BF16) {
        return bf16_magnitudes(r.w, factor) | signs;
    } else {
        float q[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            q[i] = __fmul_rn(fabsf(dev_value<DT>(r, i)), factor);
        return magnitudes<true>(q) | signs;
    }
}

/* dev_nvfp4_factor() of rule CT without its division: a product with the reciprocal of the
 * global scale, corrected by the remainder: right for every significand of e4m3 and f32 where
 * the factor is not near the ends of the range. */
static __device__ __forceinline__ float ct_factor(const struct fp4_args &a, uint32_t scale)
{
    const float value = dev_e4m3_value(scale);
    const float near = __fmul_rn(value, a.reciprocal);
    return __fmaf_rn(__fmaf_rn(-near, a.global, value), a.reciprocal, near);
}

/* dev_nvfp4_scale() of rule CT without its divisions. Every bf16 and f16 number times 1/6
 * rounds to the same bf16 number as a sixth of it. */
template <int DT>
static __device__ __forceinline__ uint8_t ct_scale(const struct fp4_args &a, uint32_t amax_bits,
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
 * significand of the divisor is above 2 - 2^-18. Blocks with quotients above `most` are
 * special. */
static __device__ __forceinline__ nv_block nv_block_of(uint32_t rule, float factor, uint32_t amax,
                                                      float most)
{
    const uint32_t bits = __float_as_uint(factor);
    const dev_divisor d = dev_divisor_of(factor);
    nv_block b;
    b.factor = factor;
    b.high = rule == TP_NVFP4_TORCHAO ? factor : d.high;
    b.low = rule == TP_NVFP4_TORCHAO ? 0 : d.low;
    b.special = !(__fmul_rn(__uint_as_float(amax), b.high) <= most) |
                (bits - 0x17800000u > 0x50000000u) | /* outside 2^-80..2^80 */
                ((bits & 0x7FFFE0u) == 0x7FFFE0u);
    return b;
}

/* NVFP4 codes of eight values of a block that is not special; CLAMP as for magnitudes(). */
template <int DT, bool CLAMP>
static __device__ __forceinline__ uint32_t nv_codes(const dev_raw8<DT> &r, const nv_block &b,
                                                    uint32_t rule)
{
    float q[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float x = fabsf(dev_value<DT>(r, i));
        q[i] = TP_IS32(DT) && rule != TP_NVFP4_TORCHAO ? __fdiv_rn(x, b.factor)
                                                       : dev_divide(x, b.high, b.low);
    }
    return magnitudes<CLAMP>(q) | signs_of<DT>(r);
}

/* The arguments of a kernel, and zeros enqueued where no scale is written. False: the shape
 * is not for these kernels, and the general ones are enqueued. */
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
    a.global = args->global;
    a.reciprocal = 1.0f / a.global;
    if (a.tiles && (a.rows % 128 != 0 || a.columns % 4 != 0))
        cudaMemsetAsync(a.scale, 0, box.e * dev_up(a.rows, 128) * dev_up(a.columns, 4),
                        (cudaStream_t)args->stream);
    return true;
}

#endif
