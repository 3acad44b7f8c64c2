/* MXFP8 with blocks of 32 along N (32x1, or 32x32) and column-major codes: the
 * experts of torchao's grouped GEMM, scales straight into 128x4 tiles.
 *
 * One thread block takes a tile of 256 (f32: 128) rows by 128 columns. A thread
 * holds 32 rows of 4 (f32: 2) neighbouring columns, 8 bytes a row, so that a
 * block's amax needs no other thread; the codes are transposed through shared
 * memory and written as runs of 256 (128) bytes, the scales as whole tiles of 512
 * bytes. N in multiples of 32, K in multiples of 4 (2); other shapes go to
 * cuda_any.cu. Invariant: bytes equal tp_encode_ref, padding of the scales included.
 */
#include "kernels/cuda/cuda_rows.cuh"

enum { NWISE_THREADS = 256, NWISE_K = 128 };

struct nwise_args : dev_weight {
    uint32_t tiles_n, tiles_k; /* of thread blocks */
    uint32_t scale_tiles_n;    /* of 128x4 scales */
};

template <int DT> struct nwise_shape {
    static const int columns = TP_IS32(DT) ? 2 : 4; /* of a thread */
    static const int rows = NWISE_THREADS / (NWISE_K / columns) * 32;
    static const int pieces = rows / 16; /* of 16 bytes, in a column of codes */
};

/* The columns of 32 rows as loaded: two words a row. */
struct nwise_columns {
    uint2 w[32];
};

static __device__ __forceinline__ void load_columns(nwise_columns &c, const uint8_t *p,
                                                    uint64_t pitch)
{
#pragma unroll
    for (int i = 0; i < 32; i++)
        c.w[i] = dev_load8b(p + (uint64_t)i * pitch);
}

/* Value of column `col` in one row. */
template <int DT> static __device__ __forceinline__ float value_at(const uint2 w, int col)
{
    if (TP_IS32(DT))
        return __uint_as_float(col ? w.y : w.x);
    return dev_widen<DT>(col & 2 ? w.y : w.x, col & 1);
}

/* Largest magnitude of each column, as fp32 bits. */
template <int DT, int COLUMNS>
static __device__ __forceinline__ void column_amax(const nwise_columns &c,
                                                   uint32_t (&amax)[COLUMNS])
{
    uint32_t x = 0, y = 0;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        x = dev_amax<DT>(x, c.w[i].x);
        y = dev_amax<DT>(y, c.w[i].y);
    }
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        uint32_t pair = i & COLUMNS / 2 ? y : x;
        if (!TP_IS32(DT))
            pair = i & 1 ? pair >> 16 : pair & 0xFFFFu;
        amax[i] = dev_amax_bits1<DT>(pair);
    }
}

/* 32 codes of column `col` into its place of the transposed tile. Pieces of 16
 * bytes are exclusive-ored with the thread's number so that neighbouring threads
 * hit all banks. */
template <int DT>
static __device__ __forceinline__ void put_column(uint8_t *tile, const nwise_columns &c, int col,
                                                  uint32_t k, uint32_t block, float factor)
{
    const int columns = nwise_shape<DT>::columns, pieces = nwise_shape<DT>::pieces;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t w[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint2 *v = &c.w[half * 16 + j * 4];
            w[j] = dev_e4m3x4(__fmul_rn(value_at<DT>(v[0], col), factor),
                              __fmul_rn(value_at<DT>(v[1], col), factor),
                              __fmul_rn(value_at<DT>(v[2], col), factor),
                              __fmul_rn(value_at<DT>(v[3], col), factor));
        }
        uint32_t piece = (block * 2 + half) ^ (k / columns & 7);
        *(uint4 *)(tile + (k * pieces + piece) * 16) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

/* Runs of a whole tile column: neighbouring threads, neighbouring pieces. */
template <int DT>
static __device__ __forceinline__ void store_codes(const struct nwise_args &a,
                                                   const uint8_t *tile, uint64_t e, uint64_t n0,
                                                   uint64_t k0)
{
    const int columns = nwise_shape<DT>::columns, pieces = nwise_shape<DT>::pieces;
    const uint32_t piece = threadIdx.x % pieces;
#pragma unroll
    for (int i = 0; i < NWISE_K * pieces / NWISE_THREADS; i++) {
        uint32_t k = threadIdx.x / pieces + i * (NWISE_THREADS / pieces);
        if (k0 + k < a.k && n0 + piece * 16 < a.n)
            *(uint4 *)(a.codes + (e * a.k + k0 + k) * a.n + n0 + piece * 16) =
                *(const uint4 *)(tile + (k * pieces + (piece ^ (k / columns & 7))) * 16);
    }
}

/* Whole 128x4 tiles: line l holds columns k = l, l+32, l+64, l+96, 4 blocks each. */
template <int DT>
static __device__ __forceinline__ void store_scales(const struct nwise_args &a,
                                                    const uint8_t *scales, uint64_t e,
                                                    uint32_t nt, uint32_t kt)
{
    const int blocks = nwise_shape<DT>::rows / 32;
    const uint32_t i = threadIdx.x % 128, part = threadIdx.x / 128;
    const uint32_t column = nt * (blocks / 4) + part;
    if (part < blocks / 4 && column < a.scale_tiles_n) {
        uint64_t tile = (e * a.tiles_k + kt) * a.scale_tiles_n + column;
        ((uint32_t *)a.scale)[tile * 128 + i] =
            *(const uint32_t *)(scales + ((i & 3) * 32 + (i >> 2)) * blocks + part * 4);
    }
}

template <int DT, bool SQUARE>
static __global__ __launch_bounds__(NWISE_THREADS, 2) void
encode_nwise(const __grid_constant__ struct nwise_args a)
{
    const int columns = nwise_shape<DT>::columns, rows = nwise_shape<DT>::rows;
    const int blocks = rows / 32, block_lanes = 32 / columns;
    __shared__ __align__(16) uint8_t tile[NWISE_K * rows];
    __shared__ __align__(16) uint8_t scales[NWISE_K * blocks];
    const uint32_t rest = blockIdx.x / a.tiles_k;
    const uint32_t kt = blockIdx.x - rest * a.tiles_k;
    const uint64_t e = rest / a.tiles_n;
    const uint32_t nt = rest - (uint32_t)e * a.tiles_n;
    const uint32_t block = threadIdx.x / (NWISE_K / columns);
    const uint32_t kl = threadIdx.x % (NWISE_K / columns) * columns;
    const uint64_t k = (uint64_t)kt * NWISE_K + kl, n = (uint64_t)nt * rows + block * 32;
    const bool inside = k < a.k && n < a.n;
    uint32_t amax[columns];
    nwise_columns c;
#pragma unroll
    for (int i = 0; i < columns; i++)
        amax[i] = 0;
    if (inside) {
        load_columns(c, a.in + ((e * a.n + n) * a.k + k) * (TP_IS32(DT) ? 4 : 2),
                     a.k * (TP_IS32(DT) ? 4 : 2));
        column_amax<DT, columns>(c, amax);
    }
    if (SQUARE) {
#pragma unroll
        for (int i = 1; i < columns; i++)
            amax[0] = max(amax[0], amax[i]);
        amax[0] = dev_max_lanes<block_lanes>(amax[0]);
    }
#pragma unroll
    for (int i = 0; i < columns; i++) {
        const dev_mx m = dev_mx_of(a.rule, amax[SQUARE ? 0 : i]);
        scales[(kl + i) * blocks + block] = inside ? m.scale : 0;
        dev_flag_bad(a.flags, m.bad);
        if (inside)
            put_column<DT>(tile, c, i, kl + i, block, m.factor);
    }
    __syncthreads();
    store_codes<DT>(a, tile, e, (uint64_t)nt * rows, (uint64_t)kt * NWISE_K);
    store_scales<DT>(a, scales, e, nt, kt);
}

template <int DT> static void launch(const struct tp_op *op, struct tp_args *args)
{
    const struct tp_box3 box = args->box;
    cudaStream_t stream = (cudaStream_t)args->stream;
    struct nwise_args a;
    uint64_t tiles_n = dev_ceil(box.n, nwise_shape<DT>::rows), tiles_k = dev_ceil(box.k, NWISE_K);
    if (box.n % 32 != 0 || box.k % nwise_shape<DT>::columns != 0 ||
        tiles_n * tiles_k * box.e > 0x7FFFFFFFu) {
        tp_cuda_encode_any(op, args);
        return;
    }
    static_cast<dev_weight &>(a) = dev_weight_of(op, args);
    a.tiles_n = (uint32_t)tiles_n;
    a.tiles_k = (uint32_t)tiles_k;
    a.scale_tiles_n = (uint32_t)dev_ceil(box.n, 128);
    uint32_t grid = (uint32_t)(tiles_n * tiles_k * box.e);
    if (op->block_k == 32)
        encode_nwise<DT, true><<<grid, NWISE_THREADS, 0, stream>>>(a);
    else
        encode_nwise<DT, false><<<grid, NWISE_THREADS, 0, stream>>>(a);
}

extern "C" void tp_cuda_mxfp8_nwise(const struct tp_op *op, struct tp_args *args)
{
    DEV_BY_DTYPE(args->dtype, launch, op, args);
}
