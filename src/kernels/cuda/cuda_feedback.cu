/* Error feedback on the device (formats/README.md, section 14.7), behind the kernel that searches
 * the scales of the same operation: one thread for each row of W, whatever the layout.
 *
 * Invariant: bytes equal tp_feedback_row(). A thread has its row's sums in registers; what all rows
 * share is read by all lanes of a warp at once.
 */
#include "kernels/cuda/cuda_any.cuh"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_row_functions.h"

enum { FED_THREADS = 32, FED_NUMBERS = 8 };

struct fed_args : any_args {
    struct tp_feedback fed;
    bool w4a8, multiplies;
    /* Of the block j of row n, at j * N + n: as in tp_feedback_block, a unit of 0 if it is fixed;
     * and the numbers m = 1 .. 8, at (8 j + m - 1) N + n. */
    float *unit, *scale, *number;
};

/* ---- blocks -------------------------------------------------------------------------------- */

static __device__ uint32_t fed_amax(const fed_args &a, uint64_t n, uint64_t k, uint64_t end)
{
    uint32_t amax = 0;
    for (; k < end; k++)
        amax = max(amax, tp_abs_bits(load_value(a.in, a.dtype, n * a.box.k + k)));
    return amax;
}

/* A stored scale, in the codec's own form. */
static __device__ uint32_t fed_scale(const fed_args &a, uint64_t n, uint64_t k)
{
    const any_plane &p = a.side.scale;
    const uint64_t at = at_of(p, 0, n, k);
    if (p.element == TP_ELEM_F32) {
        const float value = ((const float *)p.data)[at];
        return a.f16 ? tp_f32_to_f16(value) : tp_f32_to_bf16(value);
    }
    return p.element == TP_ELEM_BF16 || p.element == TP_ELEM_F16
               ? ((const uint16_t *)p.data)[at] : p.data[at];
}

/* tp_feedback_channel(): as it is stored, or of the largest scale of the row. */
static __device__ float fed_channel(const fed_args &a, uint64_t n)
{
    const any_plane &p = a.side.channel;
    uint32_t max_value = 0;
    if (p.data != NULL)
        return ((const float *)p.data)[at_of(p, 0, n, 0)];
    for (uint64_t k = 0; k < a.box.k; k += a.block_k)
        max_value = max(max_value, fed_scale(a, n, k) & 0x7FFFu);
    return __fmul_rn(fmaxf(__fdiv_rn(tp_bf16_to_f32((uint16_t)max_value), 448.0f),
                           __fdiv_rn(1.0f, 229376.0f)), 8.0f);
}

/* The group scale, with its sign. */
static __device__ uint8_t fed_group(const fed_args &a, uint64_t n, uint64_t k, float channel)
{
    const any_plane &p = a.side.group8;
    if (p.data != NULL)
        return (uint8_t)(p.data[8 * at_of(p, 0, n, k) + 7] ^ 0x80);
    return tp_e4m3_of(__fdiv_rn(tp_bf16_to_f32((uint16_t)fed_scale(a, n, k)), channel));
}

static __device__ void fed_w4a8_block(const fed_args &a, uint64_t n, uint64_t j, uint32_t amax,
                                      float channel)
{
    const uint64_t at = j * a.box.n + n;
    const float reciprocal = __fdiv_rn(1.0f, channel);
    const float max = __fmul_rn(tp_bits_f32(amax), reciprocal);
    const uint8_t g = fed_group(a, n, j * a.block_k, channel);
    if (tp_search_w4a8_group(max, a.how.is_signed) == 0)
        return;
    const int e = tp_search_exponent(tp_f32_bits(max));
    const float sign = g & 0x80 ? -1.0f : 1.0f;
    a.unit[at] = __fmul_rn(__fmul_rn(reciprocal, tp_search_pow2(11 - e)), sign);
    a.scale[at] = __fmul_rn(__fmul_rn(channel, tp_search_pow2(e - 11)), sign);
    for (int m = 1; m <= FED_NUMBERS; m++)
        a.number[(j * FED_NUMBERS + m - 1) * a.box.n + n] =
            (float)tp_search_w4a8_multiple(g & 0x7F, m, e);
}

static __device__ bool fed_finite(float x) { return tp_abs_bits(x) < TP_F32_INF_BITS; }

static __device__ void fed_block(const fed_args &a, uint64_t n, uint64_t j, float channel)
{
    const uint64_t k = j * a.block_k, at = j * a.box.n + n;
    const uint32_t amax = fed_amax(a, n, k, min(k + a.block_k, a.box.k));
    a.unit[at] = 0.0f;
    if (!tp_search_live(amax) || (a.f16 && !tp_search_f16_live(amax)))
        return;
    if (a.w4a8) {
        fed_w4a8_block(a, n, j, amax, channel);
        return;
    }
    const uint32_t bits = fed_scale(a, n, k);
    float scale = scale_value(a.codec, a.f16, bits), unit = scale;
    if (a.codec == TP_CODEC_MXFP4)
        unit = tp_e8m0_reciprocal((uint8_t)bits);
    if (a.codec == TP_CODEC_NVFP4) {
        unit = dev_nvfp4_factor(a.rule, bits, a.global);
        scale = a.rule == TP_NVFP4_CT ? __fdiv_rn(scale, a.global) : __fmul_rn(scale, a.global);
    }
    a.scale[at] = scale;
    a.unit[at] = fed_finite(scale) && fed_finite(unit) ? unit : 0.0f;
}

static __device__ void fed_blocks(const fed_args &a, uint64_t n)
{
    const uint64_t groups = dev_ceil(a.box.k, a.block_k);
    const bool live = !a.w4a8 || tp_search_live(fed_amax(a, n, 0, a.box.k));
    const float channel = a.w4a8 && live ? fed_channel(a, n) : 1.0f;
    for (uint64_t j = 0; j < groups; j++) {
        fed_block(a, n, j, channel);
        if (!live)
            a.unit[j * a.box.n + n] = 0.0f;
    }
}

/* ---- codes --------------------------------------------------------------------------------- */

/* The nearest number, of two the one next to zero. */
static __device__ uint8_t fed_w4a8_code(const fed_args &a, uint64_t n, uint64_t j, float y,
                                        float unit, float &number)
{
    const float x = rintf(__fmul_rn(y, unit)), size = fabsf(x);
    const float *next = a.number + j * FED_NUMBERS * a.box.n + n;
    const int max = x < 0 ? 8 : 7;
    float last = 0.0f;
    int m = 0;
    for (; m < max && size - last > next[m * a.box.n] - size; m++)
        last = next[m * a.box.n];
    number = x < 0 ? -last : last;
    return (uint8_t)(x < 0 ? 8 - m : 8 + m);
}

static __device__ uint8_t fed_code(const fed_args &a, uint64_t n, uint64_t j, float y, float unit,
                                   float &number)
{
    if (a.w4a8)
        return fed_w4a8_code(a, n, j, y, unit, number);
    any_scale s = {};
    s.fp8.factor = unit;
    s.fp8.divide = !a.multiplies;
    const uint8_t code = code_of(a, s, y);
    number = a.codec == TP_CODEC_INT4 ? (float)(code - 8) : tp_e2m1_value(code);
    return code;
}

/* Other nibbles of a word are other threads'. */
static __device__ void fed_store(const fed_args &a, uint64_t n, uint64_t k, uint8_t code)
{
    const any_plane &p = a.side.codes;
    const uint64_t at = at_of(p, 0, n, k);
    if (p.element != TP_ELEM_INT4 && p.element != TP_ELEM_E2M1) {
        p.data[at] = p.element == TP_ELEM_INT8 ? (uint8_t)(code - p.zero_point) : code;
        return;
    }
    uint32_t *word = (uint32_t *)p.data + at / 8;
    const uint32_t shift = (uint32_t)(at % 8) * 4;
    const uint32_t stored = p.element == TP_ELEM_INT4 ? a.table[code & 15] : code;
    atomicXor(word, (((*(volatile uint32_t *)word >> shift) ^ stored) & 15u) << shift);
}

/* ---- rows ---------------------------------------------------------------------------------- */

template <int RANK>
static __global__ __launch_bounds__(FED_THREADS) void
feed_rows(const __grid_constant__ struct fed_args a)
{
    const uint64_t n = (uint64_t)blockIdx.x * FED_THREADS + threadIdx.x;
    const uint32_t rank = a.fed.rank;
    float z[RANK];
    if (n >= a.box.n)
        return;
    fed_blocks(a, n);
#pragma unroll
    for (int r = 0; r < RANK; r++)
        z[r] = 0.0f;
    for (uint64_t i = 0; i < a.box.k; i++) {
        const uint64_t k = a.fed.order[i], j = k / a.block_k, at = j * a.box.n + n;
        const float unit = a.unit[at], w = load_value(a.in, a.dtype, n * a.box.k + k);
        const float *g = a.fed.g + i * rank, *v = a.fed.v + i * rank;
        float y = w, number;
        if (unit == 0.0f)
            continue;
#pragma unroll
        for (int r = 0; r < RANK; r++)
            if (r < rank)
                y = __fadd_rn(y, __fmul_rn(z[r], __ldg(g + r)));
        fed_store(a, n, k, fed_code(a, n, j, fed_finite(y) ? y : w, unit, number));
        const float e = __fsub_rn(w, __fmul_rn(number, a.scale[at]));
#pragma unroll
        for (int r = 0; r < RANK; r++)
            if (r < rank)
                z[r] = __fadd_rn(z[r], __fmul_rn(e, __ldg(v + r)));
    }
}

static void feed(const struct fed_args &a, cudaStream_t stream)
{
    const uint32_t blocks = (uint32_t)dev_ceil(a.box.n, FED_THREADS);
    if (a.fed.rank <= 16)
        feed_rows<16><<<blocks, FED_THREADS, 0, stream>>>(a);
    else if (a.fed.rank <= 64)
        feed_rows<64><<<blocks, FED_THREADS, 0, stream>>>(a);
    else
        feed_rows<TP_FEEDBACK_RANK><<<blocks, FED_THREADS, 0, stream>>>(a);
}

extern "C" void tp_cuda_encode_fed(const struct tp_op *op, struct tp_args *args)
{
    cudaStream_t stream = (cudaStream_t)args->stream;
    struct tp_op search = *op;
    struct tp_args first = *args;
    struct fed_args a = {};
    search.rank = 0;
    if (args->fed)
        first.importance = args->fed->weight;
    first.fed = NULL;
    tp_cuda_encode_find(&search, args->dtype)(&search, &first);
    args->flags |= first.flags;
    if (!args->fed || (args->flags & TP_FAILED))
        return;
    (struct any_args &)a = tp_cuda_any_args(op, args, args->out);
    a.fed = *args->fed;
    a.w4a8 = tp_op_search(op) == TP_SEARCH_W4A8;
    a.multiplies = tp_feedback_multiplies(op);
    const uint64_t blocks = a.box.n * dev_ceil(a.box.k, a.block_k);
    const uint64_t floats = blocks * (a.w4a8 ? 2 + FED_NUMBERS : 2);
    if ((args->flags & TP_FAILED) ||
        cudaMallocAsync((void **)&a.unit, floats * sizeof(float), stream) != cudaSuccess)
        return; /* the caller asks cudaGetLastError() */
    a.scale = a.unit + blocks;
    a.number = a.scale + blocks;
    feed(a, stream);
    cudaFreeAsync(a.unit, stream);
}
