/* e2m1 with blocks along K and row-major codes: MXFP4 in 1x32 blocks, NVFP4 in 1x16.
 *
 * A thread takes 16 values of a row, a whole block of NVFP4 or half a block of MXFP4:
 * two 16-byte loads (f32: four), one 8-byte store. Scales are row-major or in 128x4
 * tiles. Handles every N; K in whole blocks; other shapes go to cuda_any.cu. Invariant:
 * bytes equal tp_encode_ref, padding of the scales included.
 */
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
static __device__ uint32_t any_codes(const dev_raw8<DT> &r, float factor, uint32_t rule)
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

/* dev_nvfp4_scale() of rule CT without its divisions. Every bf16 and f16 number times 1/6
 * rounds to the same bf16 number as a sixth of it. The division by the global scale is a
 * product with its reciprocal, corrected by the remainder: right for every significand of
 * e4m3 and f32 where the factor is not near the ends of the range. */
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
    const float value = dev_e4m3_value(scale);
    const float near = __fmul_rn(value, a.reciprocal);
    *factor = __fmaf_rn(__fmaf_rn(-near, a.global, value), a.reciprocal, near);
    return scale;
}

/* What the values of an NVFP4 block are multiplied by: the sum of two floats. */
struct nv_block {
    float factor, high, low;
    bool special; /* NaN, infinity or codes above 7, or the short ways might be wrong */
};

/* dev_divide() may miss the nearest float where the quotient is 2^-44, relative, from
 * where rounding changes. That matters only beside the seven numbers where the code
 * changes; a quotient of a bf16 or f16 number comes that near to one of them only if the
 * significand of the divisor is above 2 - 2^-18. */
static __device__ __forceinline__ nv_block nv_block_of(uint32_t rule, float factor, uint32_t amax)
{
    const uint32_t bits = __float_as_uint(factor);
    const dev_divisor d = dev_divisor_of(factor);
    nv_block b;
    b.factor = factor;
    b.high = rule == TP_NVFP4_TORCHAO ? factor : d.high;
    b.low = rule == TP_NVFP4_TORCHAO ? 0 : d.low;
    b.special = !(__fmul_rn(__uint_as_float(amax), b.high) <= 6.9f) |
                (bits - 0x17800000u > 0x50000000u) | /* outside 2^-80..2^80 */
                ((bits & 0x7FFFE0u) == 0x7FFFE0u);
    return b;
}

/* NVFP4 codes of eight values of a block that is not special. */
template <int DT>
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
    return magnitudes<false>(q) | signs_of<DT>(r);
}

/* Scale and codes of 16 values: a block of NVFP4. CT: its rule, for fewer branches. */
template <int DT, bool CT>
static __device__ __forceinline__ uint8_t encode_nv(const struct fp4_args &a, dev_raw8<DT> (&r)[2],
                                                    uint32_t amax, uint2 &codes)
{
    float factor;
    const uint32_t rule = CT ? (uint32_t)TP_NVFP4_CT : a.rule;
    uint8_t scale = CT ? ct_scale<DT>(a, amax, &factor)
                       : dev_nvfp4_scale(rule, amax, a.global, &factor);
    const nv_block b = nv_block_of(rule, factor, amax);
    if (rule == TP_NVFP4_MODELOPT) { /* zeros of either sign are 0 */
#pragma unroll
        for (int i = 0; i < (TP_IS32(DT) ? 16 : 8); i++)
            r[i % 2].w[i / 2] = dev_plain_zero<DT>(r[i % 2].w[i / 2]);
    }
    if (__any_sync(0xFFFFFFFFu, b.special)) {
        scale = dev_nvfp4_scale(rule, amax, a.global, &factor);
        codes = make_uint2(any_codes<DT>(r[0], factor, rule), any_codes<DT>(r[1], factor, rule));
    } else {
        codes = make_uint2(nv_codes<DT>(r[0], b, rule), nv_codes<DT>(r[1], b, rule));
    }
    return scale;
}

/* Scale and codes of 16 values: half a block of MXFP4, the other half in the next lane. */
template <int DT>
static __device__ __forceinline__ uint8_t encode_mx(const struct fp4_args &a,
                                                    const dev_raw8<DT> (&r)[2], uint32_t amax,
                                                    uint2 &codes)
{
    const uint8_t scale =
        dev_mxfp4_scale(a.rule, max(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, 1)));
    const float factor = tp_e8m0_reciprocal(scale);
    codes = make_uint2(mx_codes<DT>(r[0], factor), mx_codes<DT>(r[1], factor));
    return scale;
}

template <int DT, bool NV, bool CT>
static __global__ __launch_bounds__(FP4_THREADS) void
encode_fp4(const __grid_constant__ struct fp4_args a)
{
    const uint32_t i = blockIdx.x * FP4_THREADS + threadIdx.x;
    const bool inside = i < a.count;
    const uint8_t *in = a.in + (uint64_t)i * (UNIT * (TP_IS32(DT) ? 4 : 2));
    dev_raw8<DT> r[2];
    r[0] = inside ? dev_load_raw8<DT>(in) : dev_zero_raw8<DT>();
    r[1] = inside ? dev_load_raw8<DT>(in + 8 * (TP_IS32(DT) ? 4 : 2)) : dev_zero_raw8<DT>();
    const uint32_t amax = dev_amax_bits<DT>(dev_amax8<DT>(dev_amax8<DT>(0, r[0]), r[1]));
    uint2 codes;
    const uint8_t scale = NV ? encode_nv<DT, CT>(a, r, amax, codes)
                             : encode_mx<DT>(a, r, amax, codes);
    dev_flag(a.flags, amax);
    if (a.global_out != NULL && i == 0)
        *a.global_out = a.global;
    if (!inside)
        return;
    ((uint2 *)a.codes)[i] = codes;
    const uint32_t block = NV ? i : i / 2;
    if (NV || i % 2 == 0)
        a.scale[a.tiles ? tile_at(a, block) : block] = scale;
}

template <int DT> static void launch(const struct fp4_args &a, bool nv, cudaStream_t stream)
{
    const uint32_t grid = (uint32_t)dev_ceil(a.count, FP4_THREADS);
    if (!nv)
        encode_fp4<DT, false, false><<<grid, FP4_THREADS, 0, stream>>>(a);
    else if (a.rule == TP_NVFP4_CT)
        encode_fp4<DT, true, true><<<grid, FP4_THREADS, 0, stream>>>(a);
    else
        encode_fp4<DT, true, false><<<grid, FP4_THREADS, 0, stream>>>(a);
}

extern "C" void tp_cuda_fp4_kwise(const struct tp_op *op, struct tp_args *args)
{
    const struct tp_box3 box = args->box;
    const struct tp_op_out *scale = &op->out[tp_op_find(op, TP_ROLE_SCALE)];
    const int global = tp_op_find(op, TP_ROLE_GLOBAL);
    const uint64_t count = box.e * box.n * (box.k / UNIT);
    cudaStream_t stream = (cudaStream_t)args->stream;
    struct fp4_args a;
    if (box.k % scale->per_k != 0 || count > 0x7FFFFFFFu || box.e * box.n > 0x7FFFFFFFu) {
        tp_cuda_encode_any(op, args);
        return;
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
        cudaMemsetAsync(a.scale, 0, box.e * dev_up(a.rows, 128) * dev_up(a.columns, 4), stream);
    DEV_BY_DTYPE(args->dtype, launch, a, op->codec == TP_CODEC_NVFP4, stream);
}
