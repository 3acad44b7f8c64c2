/* e4m3 with blocks along K and row-major codes: FP8 in 128x128 and 1x128 blocks,
 * MXFP8 in 1x32 blocks.
 *
 * One thread block takes a tile of 128 rows by 128 columns: 8 values a thread and
 * row, all rows of a thread loaded before the first is used. Scales go through shared
 * memory so that whole pieces are written. Where the scales are row-major too, rows
 * do not matter: the weight is taken as rows of 2048, 8 of them a tile. Handles every
 * N; K in multiples of 8 (16-byte loads); other shapes go to cuda_any.cu. Invariant:
 * bytes equal tp_encode_ref, padding of the scales included.
 */
#include "kernels/cuda/cuda_rows.cuh"

enum kwise_mode { KWISE_128X128, KWISE_1X128, KWISE_1X32_TILES, KWISE_1X32_ROWS };

struct kwise_args : dev_weight {
    uint32_t tiles_n, tiles_k;
    uint32_t blocks_k; /* scales along K */
    bool packed, bf16; /* how 128x128 scales are stored */
};

/* Rows per pass and passes of a thread block; its tile. */
template <int DT, int MODE> struct kwise_shape {
    static const int columns = MODE == KWISE_1X32_ROWS ? 2048 : 128;
    static const int threads = TP_IS32(DT) ? 512 : 256;
    static const int row_threads = columns / 8;
    static const int rows = threads / row_threads;
    static const int passes = TP_IS32(DT) ? 4 : 8;
    static const int tile_rows = rows * passes;
};

struct kwise_tile {
    uint64_t e;
    uint32_t n0, k0, kt, nt;
};

template <int DT, int MODE>
static __device__ __forceinline__ struct kwise_tile kwise_tile_of(const struct kwise_args &a)
{
    struct kwise_tile t;
    uint32_t rest = blockIdx.x / a.tiles_k;
    t.kt = blockIdx.x - rest * a.tiles_k;
    t.e = rest / a.tiles_n;
    t.nt = rest - (uint32_t)t.e * a.tiles_n;
    t.n0 = t.nt * kwise_shape<DT, MODE>::tile_rows;
    t.k0 = t.kt * kwise_shape<DT, MODE>::columns;
    return t;
}

/* One FP8 scale of a 128x128 block: stored once, or for each of its rows. */
static __device__ void store_block_scale(const struct kwise_args &a, const struct kwise_tile &t,
                                         float scale)
{
    if (!a.packed) {
        uint64_t at = (t.e * a.tiles_n + t.nt) * a.tiles_k + t.kt;
        if (threadIdx.x != 0)
            return;
        if (a.bf16)
            ((uint16_t *)a.scale)[at] = tp_f32_to_bf16(scale);
        else
            ((float *)a.scale)[at] = scale;
        return;
    }
    /* MN_PACKED4: bytes of int32 words, words n-major in columns of align(N,4) */
    uint64_t pitch = dev_up(a.n, 4);
    uint64_t n = t.n0 + threadIdx.x;
    uint64_t word = (t.e * dev_ceil(a.tiles_k, 4) + t.kt / 4) * pitch + n;
    if (threadIdx.x >= 128 || n >= pitch)
        return;
    a.scale[4 * word + t.kt % 4] = n < a.n ? (uint8_t)(__float_as_uint(scale) >> 23) : 0;
    if (t.kt + 1 == a.tiles_k)
        for (uint32_t j = t.kt % 4 + 1; j < 4; j++)
            a.scale[4 * word + j] = 0;
}

/* 128 fp32 scales of a tile's rows, n fastest. */
static __device__ void store_row_scales(const struct kwise_args &a, const struct kwise_tile &t,
                                        const float *scale)
{
    uint64_t pitch = dev_up(a.n, 4);
    uint64_t n = t.n0 + threadIdx.x;
    if (threadIdx.x < 128 && n < pitch)
        ((float *)a.scale)[(t.e * a.tiles_k + t.kt) * pitch + n] =
            n < a.n ? scale[threadIdx.x] : 0.0f;
}

/* 128 rows of 4 e8m0 bytes: one 128x4 tile. */
static __device__ void store_mx_tile(const struct kwise_args &a, const struct kwise_tile &t,
                                     const uint32_t *scale)
{
    uint32_t i = threadIdx.x;
    uint64_t tile = (t.e * a.tiles_n + t.nt) * a.tiles_k + t.kt;
    if (i < 128)
        ((uint32_t *)a.scale)[tile * 128 + i] = scale[(i & 3) * 32 + (i >> 2)];
}

/* 8 rows of 64 e8m0 bytes. */
static __device__ void store_mx_rows(const struct kwise_args &a, const struct kwise_tile &t,
                                     const uint4 *scale)
{
    uint32_t row = threadIdx.x / 4, j0 = t.kt * 64 + threadIdx.x % 4 * 16;
    uint8_t *out = a.scale + (t.e * a.n + t.n0 + row) * a.blocks_k + j0;
    if (threadIdx.x >= 32 || t.n0 + row >= a.n)
        return;
    if (a.blocks_k % 16 == 0 && j0 < a.blocks_k)
        *(uint4 *)out = scale[threadIdx.x];
    else
        for (uint32_t j = 0; j < 16 && j0 + j < a.blocks_k; j++)
            out[j] = ((const uint8_t *)&scale[threadIdx.x])[j];
}

template <int DT>
static __device__ __forceinline__ uint2 scaled_codes(const dev_raw8<DT> &r, float factor)
{
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = __fmul_rn(dev_value<DT>(r, i), factor);
    return make_uint2(dev_e4m3x4(v[0], v[1], v[2], v[3]), dev_e4m3x4(v[4], v[5], v[6], v[7]));
}

template <int DT>
static __device__ __forceinline__ uint2 fp8_codes(const dev_raw8<DT> &r, const dev_fp8 &f,
                                                  bool bf16_scale)
{
    if (!f.divide)
        return scaled_codes<DT>(r, f.factor);
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = dev_value<DT>(r, i);
    dev_fp8_divide(v, f, bf16_scale);
    return make_uint2(dev_e4m3x4(v[0], v[1], v[2], v[3]), dev_e4m3x4(v[4], v[5], v[6], v[7]));
}

/* The largest magnitude of the tile, the same in every thread. */
template <int DT, int PASSES, int THREADS>
static __device__ __forceinline__ uint32_t tile_amax(const dev_raw8<DT> (&r)[PASSES],
                                                     uint32_t *shared)
{
    uint32_t amax = 0;
#pragma unroll
    for (int i = 0; i < PASSES; i++)
        amax = dev_amax8<DT>(amax, r[i]);
    amax = __reduce_max_sync(0xFFFFFFFFu, dev_amax_bits<DT>(amax));
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = amax;
    __syncthreads();
    amax = shared[threadIdx.x % (THREADS / 32)];
    return __reduce_max_sync(0xFFFFFFFFu, amax);
}

/* A thread's values in all passes, `rows` rows or `pitch` bytes apart; zeros outside:
 * where `left` rows are passed, or `columns` is false. */
template <int DT, int PASSES>
static __device__ __forceinline__ void load_passes(dev_raw8<DT> (&r)[PASSES], const uint8_t *in,
                                                   uint64_t pitch, bool columns, int64_t left,
                                                   int rows)
{
#pragma unroll
    for (int i = 0; i < PASSES; i++)
        r[i] = columns && i * rows < left ? dev_load_raw8<DT>(in + i * pitch)
                                          : dev_zero_raw8<DT>();
}

/* MXFP8: the factors of a thread's values in all passes; scales into shared memory,
 * in the order of the tile's rows, zero where no row is `left`. */
template <int DT, int MODE>
static __device__ __forceinline__ void
mx_factors(const struct kwise_args &a, const dev_raw8<DT> (&r)[kwise_shape<DT, MODE>::passes],
           float (&factor)[kwise_shape<DT, MODE>::passes], int64_t left, uint8_t *scales)
{
    typedef kwise_shape<DT, MODE> shape;
#pragma unroll
    for (int i = 0; i < shape::passes; i++) {
        const dev_mx m =
            dev_mx_of(a.rule, dev_max_lanes<4>(dev_amax_bits<DT>(dev_amax8<DT>(0, r[i]))));
        factor[i] = m.factor;
        dev_flag_bad(a.flags, m.bad);
        if (threadIdx.x % 4 == 0)
            scales[(i * shape::threads + threadIdx.x) / 4] = i * shape::rows < left ? m.scale : 0;
    }
}

/* Four thread blocks to a multiprocessor (f32: two of twice the size): with more,
 * fewer registers are left to hold loads. */
template <int DT, int MODE>
static __global__ __launch_bounds__(kwise_shape<DT, MODE>::threads, TP_IS32(DT) ? 2 : 4) void
encode_kwise(const __grid_constant__ struct kwise_args a)
{
    typedef kwise_shape<DT, MODE> shape;
    const int passes = shape::passes, rows = shape::rows;
    __shared__ __align__(16) uint32_t shared[128];
    const struct kwise_tile t = kwise_tile_of<DT, MODE>(a);
    const uint32_t row = threadIdx.x / shape::row_threads, lane = threadIdx.x % shape::row_threads;
    const uint64_t k = t.k0 + lane * 8;
    const uint64_t at = (t.e * a.n + t.n0 + row) * a.k + k;
    const bool ct = a.rule >= TP_FP8_CT_FP32;
    const bool mx = MODE == KWISE_1X32_TILES || MODE == KWISE_1X32_ROWS;
    dev_raw8<DT> r[passes];
    float factor[passes];
    dev_fp8 f;
    load_passes<DT, passes>(r, a.in + at * (TP_IS32(DT) ? 4 : 2),
                            rows * a.k * (TP_IS32(DT) ? 4 : 2), k < a.k,
                            (int64_t)a.n - t.n0 - row, rows);
    if (MODE == KWISE_128X128) {
        uint32_t amax = tile_amax<DT, passes, shape::threads>(r, shared);
        f = dev_fp8_of(a.rule, a.scale_rule, amax);
        if (threadIdx.x == 0)
            dev_flag(a.flags, amax);
        store_block_scale(a, t, f.scale);
    }
    if (MODE == KWISE_1X128) {
        /* each lane computes the scale of one pass and hands it round */
        uint32_t amax[passes];
#pragma unroll
        for (int i = 0; i < passes; i++)
            amax[i] = dev_amax8<DT>(0, r[i]);
        uint32_t mine = dev_amax_items<DT, passes>(amax, lane);
        dev_flag(a.flags, mine);
        f = dev_fp8_of(a.rule, a.scale_rule, mine);
        shared[row + dev_item<passes>(lane) * rows] = __float_as_uint(f.scale);
    }
    if (mx)
        mx_factors<DT, MODE>(a, r, factor, k < a.k ? (int64_t)a.n - t.n0 - row : 0,
                             (uint8_t *)shared);
#pragma unroll
    for (int i = 0; i < passes; i++) {
        const bool inside = k < a.k && t.n0 + row + i * rows < a.n;
        uint2 c;
        if (mx) {
            c = scaled_codes<DT>(r[i], factor[i]);
        } else {
            dev_fp8 g = f;
            if (MODE == KWISE_1X128)
                g.factor = dev_of_item<passes>(f.factor, i, threadIdx.x);
            c = fp8_codes<DT>(r[i], g, ct);
        }
        if (inside)
            *(uint2 *)(a.codes + at + (uint64_t)(i * rows) * a.k) = c;
    }
    if (MODE == KWISE_128X128)
        return;
    __syncthreads();
    if (MODE == KWISE_1X128)
        store_row_scales(a, t, (const float *)shared);
    else if (MODE == KWISE_1X32_TILES)
        store_mx_tile(a, t, shared);
    else
        store_mx_rows(a, t, (const uint4 *)shared);
}

template <int DT, int MODE> static void launch(const struct tp_op *op, struct tp_args *args)
{
    typedef kwise_shape<DT, MODE> shape;
    const struct tp_box3 box = args->box;
    const struct tp_op_out *scale = &op->out[tp_op_find(op, TP_ROLE_SCALE)];
    uint64_t tiles_n = dev_ceil(box.n, shape::tile_rows), tiles_k = dev_ceil(box.k, shape::columns);
    struct kwise_args a;
    if (box.k % 8 != 0 || tiles_n * tiles_k * box.e > 0x7FFFFFFFu) {
        tp_cuda_encode_any(op, args);
        return;
    }
    static_cast<dev_weight &>(a) = dev_weight_of(op, args);
    a.tiles_n = (uint32_t)tiles_n;
    a.tiles_k = (uint32_t)tiles_k;
    a.blocks_k = (uint32_t)dev_ceil(box.k, scale->per_k);
    a.packed = scale->place == TP_PLACE_MN_PACKED4;
    a.bf16 = scale->element == TP_ELEM_BF16;
    encode_kwise<DT, MODE><<<(uint32_t)(tiles_n * tiles_k * box.e), shape::threads, 0,
                             (cudaStream_t)args->stream>>>(a);
}

template <int MODE> static void launch_dtype(const struct tp_op *op, struct tp_args *args)
{
    if (args->dtype == TP_BF16)
        launch<TP_BF16, MODE>(op, args);
    else if (args->dtype == TP_F16)
        launch<TP_F16, MODE>(op, args);
    else
        launch<TP_F32, MODE>(op, args);
}

extern "C" void tp_cuda_fp8_128x128(const struct tp_op *op, struct tp_args *args)
{
    launch_dtype<KWISE_128X128>(op, args);
}

extern "C" void tp_cuda_fp8_1x128(const struct tp_op *op, struct tp_args *args)
{
    launch_dtype<KWISE_1X128>(op, args);
}

extern "C" void tp_cuda_mxfp8_kwise(const struct tp_op *op, struct tp_args *args)
{
    struct tp_args flat = *args;
    const uint64_t count = args->box.e * args->box.n * args->box.k;
    if (op->out[tp_op_find(op, TP_ROLE_SCALE)].place == TP_PLACE_TILE_N) {
        launch_dtype<KWISE_1X32_TILES>(op, args);
        return;
    }
    if (args->box.k % 32 == 0 && count % 2048 == 0) /* no block crosses a row */
        flat.box.e = 1, flat.box.n = count / 2048, flat.box.k = 2048;
    launch_dtype<KWISE_1X32_ROWS>(op, &flat);
}
