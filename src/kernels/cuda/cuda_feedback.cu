/* Error feedback on the device (formats/README.md, section 14.7), behind the kernel that searches
 * the scales of the same operation: one thread for each row of W, whatever the layout.
 *
 * Invariant: bytes equal tp_feedback_row(). A thread has its row's sums in registers. One column
 * waits for the one before it, so nothing else may be waited for: what a column needs is copied to
 * shared memory some columns ahead, blocks are prepared by a kernel of their own, and another one
 * takes the codes to their places.
 */
#include "kernels/cuda/cuda_any.cuh"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_row_functions.h"

#include <cuda_pipeline.h>

enum { FED_LANES = 32, FED_NUMBERS = 8, FED_TILE = 8, FED_FIXED = 0xFF };

struct fed_args : any_args {
    struct tp_feedback fed;
    bool w4a8, multiplies;
    /* Of the block j of row n, at j * N + n: as in tp_feedback_block, a unit of 0 if it is fixed;
     * and the numbers m = 1 .. 8, at (8 j + m - 1) N + n. */
    float *unit, *scale, *number;
    uint8_t *code; /* of column k of row n, at k * N + n; FED_FIXED of a block that is fixed */
};

/* ---- blocks: a warp for each row ------------------------------------------------------------ */

/* Of columns k, k + step .. */
static __device__ uint32_t fed_amax(const fed_args &a, uint64_t n, uint64_t k, uint64_t end,
                                    uint32_t step)
{
    uint32_t amax = 0;
    for (; k < end; k += step)
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
static __device__ float fed_channel(const fed_args &a, uint64_t n, uint32_t lane)
{
    const any_plane &p = a.side.channel;
    uint32_t max_value = 0;
    if (p.data != NULL)
        return ((const float *)p.data)[at_of(p, 0, n, 0)];
    for (uint64_t k = lane * a.block_k; k < a.box.k; k += FED_LANES * a.block_k)
        max_value = max(max_value, fed_scale(a, n, k) & 0x7FFFu);
    max_value = dev_max_lanes<FED_LANES>(max_value);
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

static __device__ void fed_block(const fed_args &a, uint64_t n, uint64_t j, uint32_t amax,
                                 float channel)
{
    const uint64_t k = j * a.block_k, at = j * a.box.n + n;
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

/* A block of more columns than that is read by all lanes, others by one. */
enum { FED_NARROW = 128 };

static __global__ __launch_bounds__(FED_LANES) void
feed_blocks(const __grid_constant__ struct fed_args a)
{
    const uint64_t n = blockIdx.x, groups = dev_ceil(a.box.k, a.block_k);
    const uint32_t lane = threadIdx.x;
    const bool wide = a.block_k > FED_NARROW;
    bool live = true;
    float channel = 1.0f;
    if (a.w4a8)
        live = tp_search_live(dev_max_lanes<FED_LANES>(fed_amax(a, n, lane, a.box.k, FED_LANES)));
    if (a.w4a8 && live)
        channel = fed_channel(a, n, lane);
    for (uint64_t j = wide ? 0 : lane; j < groups; j += wide ? 1 : FED_LANES) {
        const uint64_t k = j * a.block_k, end = min(k + a.block_k, a.box.k);
        uint32_t amax = wide ? fed_amax(a, n, k + lane, end, FED_LANES) : fed_amax(a, n, k, end, 1);
        if (wide)
            amax = dev_max_lanes<FED_LANES>(amax);
        if (!live)
            a.unit[j * a.box.n + n] = 0.0f;
        else if (!wide || lane == 0)
            fed_block(a, n, j, amax, channel);
    }
}

/* ---- columns, in the order in which they are taken ------------------------------------------ */

/* What some columns need: g of their own, v of the one before each; of each lane's row the values
 * and what fed_args says of blocks. */
template <int RANK, bool W4A8>
struct fed_tile {
    float g[FED_TILE][RANK], v[FED_TILE][RANK];
    float w[FED_TILE][FED_LANES], unit[FED_TILE][FED_LANES], scale[FED_TILE][FED_LANES];
    float number[W4A8 ? FED_TILE : 1][FED_NUMBERS][FED_LANES];
    uint32_t k[FED_TILE];
};

/* Beyond the rank: adding 0 times -0 changes no sum, not even -0. */
template <int RANK, bool W4A8>
static __device__ void fed_pad(fed_tile<RANK, W4A8> &t, uint32_t rank, uint32_t lane)
{
    for (uint32_t c = 0; c < FED_TILE; c++)
        for (uint32_t r = rank + lane; r < RANK; r += FED_LANES) {
            t.g[c][r] = -0.0f;
            t.v[c][r] = 0.0f;
        }
}

static __device__ void fed_copy(float *to, const float *from)
{
    __pipeline_memcpy_async(to, from, sizeof *to);
}

/* Begins to copy the columns from i on. Lane c has k, which is column c of them. The values go to
 * `w`, as they may be of 16 bits. */
template <int RANK, bool W4A8>
static __device__ void fed_fetch(const fed_args &a, fed_tile<RANK, W4A8> &t, uint64_t i,
                                 uint64_t n, uint32_t k, uint32_t lane, float w[FED_TILE])
{
    const uint32_t rank = a.fed.rank, count = (uint32_t)min((uint64_t)FED_TILE, a.box.k - i);
    const uint32_t block = k / (uint32_t)a.block_k;
    for (uint32_t c = 0; c < count; c++)
        for (uint32_t r = lane; r < rank; r += FED_LANES) {
            fed_copy(&t.g[c][r], a.fed.g + (i + c) * rank + r);
            fed_copy(&t.v[c][r], a.fed.v + (i + c ? i + c - 1 : 0) * rank + r);
        }
#pragma unroll
    for (uint32_t c = 0; c < FED_TILE; c++) {
        const uint32_t column = __shfl_sync(0xFFFFFFFFu, k, c);
        const uint64_t j = __shfl_sync(0xFFFFFFFFu, block, c), at = j * a.box.n + n;
        w[c] = load_value(a.in, a.dtype, n * a.box.k + column);
        fed_copy(&t.unit[c][lane], a.unit + at);
        fed_copy(&t.scale[c][lane], a.scale + at);
        for (uint32_t m = 0; W4A8 && m < FED_NUMBERS; m++)
            fed_copy(&t.number[W4A8 ? c : 0][m][lane],
                     a.number + (j * FED_NUMBERS + m) * a.box.n + n);
    }
    if (lane < FED_TILE)
        t.k[lane] = k;
    __pipeline_commit();
}

template <int RANK, bool W4A8>
static __device__ void fed_arrive(fed_tile<RANK, W4A8> &t, uint32_t lane, const float w[FED_TILE])
{
#pragma unroll
    for (uint32_t c = 0; c < FED_TILE; c++)
        t.w[c][lane] = w[c];
    __pipeline_wait_prior(0);
    __syncwarp();
}

/* The nearest number, of two the one next to zero. */
static __device__ uint8_t fed_w4a8_code(const float number[FED_NUMBERS][FED_LANES], uint32_t lane,
                                        float y, float unit, float &nearest)
{
    const float x = rintf(__fmul_rn(y, unit)), size = fabsf(x);
    const int end = x < 0 ? 8 : 7;
    float last = 0.0f;
    int m = 0;
#pragma unroll
    for (int i = 0; i < FED_NUMBERS; i++) {
        const float next = number[i][lane];
        if (m == i && i < end && size - last > next - size) {
            last = next;
            m++;
        }
    }
    nearest = x < 0 ? -last : last;
    return (uint8_t)(x < 0 ? 8 - m : 8 + m);
}

static __device__ uint8_t fed_code(const fed_args &a, float y, float unit, float &number)
{
    any_scale s = {};
    s.fp8.factor = unit;
    s.fp8.divide = !a.multiplies;
    const uint8_t code = code_of(a, s, y);
    number = a.codec == TP_CODEC_INT4 ? (float)(code - 8) : tp_e2m1_value(code);
    return code;
}

/* What the column before left, e, goes to z, and z to y. */
template <int RANK>
static __device__ float fed_sums(float z[RANK], const float *g, const float *v, float e, float y)
{
#pragma unroll
    for (int r = 0; r < RANK; r += 4) {
        const float4 gs = *(const float4 *)(g + r), vs = *(const float4 *)(v + r);
        z[r] = __fadd_rn(z[r], __fmul_rn(e, vs.x));
        y = __fadd_rn(y, __fmul_rn(z[r], gs.x));
        z[r + 1] = __fadd_rn(z[r + 1], __fmul_rn(e, vs.y));
        y = __fadd_rn(y, __fmul_rn(z[r + 1], gs.y));
        z[r + 2] = __fadd_rn(z[r + 2], __fmul_rn(e, vs.z));
        y = __fadd_rn(y, __fmul_rn(z[r + 2], gs.z));
        z[r + 3] = __fadd_rn(z[r + 3], __fmul_rn(e, vs.w));
        y = __fadd_rn(y, __fmul_rn(z[r + 3], gs.w));
    }
    return y;
}

/* Columns of row n; what the last one leaves is returned. */
template <int RANK, bool W4A8>
static __device__ float fed_columns(const fed_args &a, const fed_tile<RANK, W4A8> &t,
                                    uint32_t count, uint64_t n, uint32_t lane, float z[RANK],
                                    float e)
{
#pragma unroll 1
    for (uint32_t c = 0; c < count; c++) {
        const float w = t.w[c][lane], unit = t.unit[c][lane];
        const float sum = fed_sums<RANK>(z, t.g[c], t.v[c], e, w), y = fed_finite(sum) ? sum : w;
        const bool fixed = unit == 0.0f;
        float number;
        const uint8_t code = W4A8 ? fed_w4a8_code(t.number[W4A8 ? c : 0], lane, y, unit, number)
                                  : fed_code(a, y, unit, number);
        e = fixed ? 0.0f : __fsub_rn(w, __fmul_rn(number, t.scale[c][lane]));
        if (n < a.box.n)
            a.code[t.k[c] * a.box.n + n] = fixed ? FED_FIXED : code;
    }
    return e;
}

/* A lane behind the last row does what the last one does, and stores nothing. */
template <int RANK, bool W4A8>
static __global__ __launch_bounds__(FED_LANES) void
feed_rows(const __grid_constant__ struct fed_args a)
{
    __shared__ __align__(16) fed_tile<RANK, W4A8> tile[2];
    const uint32_t lane = threadIdx.x, *order = a.fed.order;
    const uint64_t n = (uint64_t)blockIdx.x * FED_LANES + lane, last = a.box.k - 1;
    const uint64_t row = min(n, a.box.n - 1), of_lane = lane % FED_TILE;
    float z[RANK], w[FED_TILE], e = 0.0f;
    uint32_t next = order[min(FED_TILE + of_lane, last)];
#pragma unroll
    for (int r = 0; r < RANK; r++)
        z[r] = 0.0f;
    fed_pad(tile[0], a.fed.rank, lane);
    fed_pad(tile[1], a.fed.rank, lane);
    fed_fetch(a, tile[0], 0, row, order[min(of_lane, last)], lane, w);
    fed_arrive(tile[0], lane, w);
    for (uint64_t i = 0, at = 0; i <= last; i += FED_TILE, at ^= 1) {
        const bool more = i + FED_TILE <= last;
        const uint32_t after = order[min(i + 2 * FED_TILE + of_lane, last)];
        if (more)
            fed_fetch(a, tile[at ^ 1], i + FED_TILE, row, next, lane, w);
        e = fed_columns(a, tile[at], (uint32_t)min((uint64_t)FED_TILE, a.box.k - i), n, lane, z, e);
        if (more)
            fed_arrive(tile[at ^ 1], lane, w);
        next = after;
    }
}

/* ---- codes --------------------------------------------------------------------------------- */

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
    const uint32_t other = ((*(volatile uint32_t *)word >> shift) ^ stored) & 15u;
    if (other)
        atomicXor(word, other << shift);
}

static __global__ __launch_bounds__(ANY_THREADS) void
feed_codes(const __grid_constant__ struct fed_args a)
{
    const uint64_t threads = (uint64_t)gridDim.x * ANY_THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * ANY_THREADS + threadIdx.x; i < a.box.n * a.box.k;
         i += threads) {
        const uint64_t k = i / a.box.n;
        if (a.code[i] != FED_FIXED)
            fed_store(a, i - k * a.box.n, k, a.code[i]);
    }
}

template <int RANK>
static void feed_by_rank(const struct fed_args &a, cudaStream_t stream)
{
    const uint32_t blocks = (uint32_t)dev_ceil(a.box.n, FED_LANES);
    if (a.w4a8)
        feed_rows<RANK, true><<<blocks, FED_LANES, 0, stream>>>(a);
    else
        feed_rows<RANK, false><<<blocks, FED_LANES, 0, stream>>>(a);
}

static void feed(const struct fed_args &a, cudaStream_t stream)
{
    feed_blocks<<<(uint32_t)a.box.n, FED_LANES, 0, stream>>>(a);
    if (a.fed.rank <= 16)
        feed_by_rank<16>(a, stream);
    else if (a.fed.rank <= 32)
        feed_by_rank<32>(a, stream);
    else if (a.fed.rank <= 64)
        feed_by_rank<64>(a, stream);
    else
        feed_by_rank<TP_FEEDBACK_RANK>(a, stream);
    feed_codes<<<grid_for(a.box.n * a.box.k), ANY_THREADS, 0, stream>>>(a);
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
    const uint64_t bytes = floats * sizeof(float) + a.box.n * a.box.k;
    if ((args->flags & TP_FAILED) ||
        cudaMallocAsync((void **)&a.unit, bytes, stream) != cudaSuccess)
        return; /* the caller asks cudaGetLastError() */
    a.scale = a.unit + blocks;
    a.number = a.scale + blocks;
    a.code = (uint8_t *)(a.unit + floats);
    feed(a, stream);
    cudaFreeAsync(a.unit, stream);
}
