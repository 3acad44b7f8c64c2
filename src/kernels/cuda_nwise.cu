/* MXFP8 with blocks of 32 along N (32x1, or 32x32) and column-major codes: the
 * experts of torchao's grouped GEMM, scales straight into 128x4 tiles.
 *
 * One thread block takes a tile of 128 rows by 128 columns. A thread holds 32 rows
 * of two neighbouring columns, so that a block's amax needs no other thread; its
 * 2 x 32 codes are transposed through shared memory and written as runs of 128
 * bytes, the tile's scales as 512 contiguous bytes. N in multiples of 32, K in
 * multiples of 2; other shapes go to cuda_any.cu. Invariant: bytes equal
 * tp_encode_ref, padding of the scales included.
 */
#include "kernels/cuda_rows.cuh"

struct nwise_args {
    const uint8_t *in;
    uint8_t *codes, *scale;
    uint32_t *flags;
    uint64_t n, k;
    uint32_t tiles_n, tiles_k;
    uint32_t rule;
};

/* Two columns of 32 rows as loaded: one word a row, two for f32. */
template <int DT> struct nwise_columns {
    uint32_t w[TP_IS32(DT) ? 64 : 32];
};

template <int DT>
static __device__ __forceinline__ void load_columns(nwise_columns<DT> &c, const uint8_t *p,
                                                    uint64_t pitch)
{
#pragma unroll
    for (int i = 0; i < 32; i++) {
        if (TP_IS32(DT)) {
            uint2 v = dev_load8b(p + (uint64_t)i * pitch);
            c.w[TP_IS32(DT) ? 2 * i : 0] = v.x;
            c.w[TP_IS32(DT) ? 2 * i + 1 : 0] = v.y;
        } else {
            c.w[i] = dev_load4(p + (uint64_t)i * pitch);
        }
    }
}

template <int DT>
static __device__ __forceinline__ float column_value(const nwise_columns<DT> &c, int row, int col)
{
    return TP_IS32(DT) ? dev_widen<DT>(c.w[TP_IS32(DT) ? 2 * row + col : 0], 0)
                       : dev_widen<DT>(c.w[row], col);
}

/* Magnitudes of the two columns, as fp32 bits. */
template <int DT>
static __device__ __forceinline__ uint2 column_amax(const nwise_columns<DT> &c)
{
    uint32_t a = 0, b = 0;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        a = dev_amax<DT>(a, c.w[TP_IS32(DT) ? 2 * i : i]);
        if (TP_IS32(DT))
            b = dev_amax<DT>(b, c.w[TP_IS32(DT) ? 2 * i + 1 : 0]);
    }
    if (!TP_IS32(DT))
        b = a >> 16, a &= 0xFFFFu;
    return make_uint2(dev_amax_bits1<DT>(a), dev_amax_bits1<DT>(b));
}

/* 32 codes of one column into its row of the transposed tile. Pieces of 16 bytes
 * are exclusive-ored with the column so that neighbouring threads hit all banks. */
template <int DT>
static __device__ __forceinline__ void put_column(uint8_t *shared, const nwise_columns<DT> &c,
                                                  int col, uint32_t k, uint32_t block, float r)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t w[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int row = half * 16 + j * 4;
            w[j] = dev_e4m3x4(__fmul_rn(column_value<DT>(c, row, col), r),
                              __fmul_rn(column_value<DT>(c, row + 1, col), r),
                              __fmul_rn(column_value<DT>(c, row + 2, col), r),
                              __fmul_rn(column_value<DT>(c, row + 3, col), r));
        }
        uint32_t piece = (block * 2 + half) ^ ((k >> 1) & 7);
        *(uint4 *)(shared + k * 128 + piece * 16) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

template <int DT, bool SQUARE>
static __global__ __launch_bounds__(256, TP_IS32(DT) ? 2 : 4) void
encode_nwise(const struct nwise_args a)
{
    __shared__ __align__(16) uint8_t codes[128 * 128];
    __shared__ __align__(16) uint8_t scales[128 * 4];
    const int bytes = TP_IS32(DT) ? 4 : 2;
    const uint32_t rest = blockIdx.x / a.tiles_k;
    const uint32_t kt = blockIdx.x - rest * a.tiles_k;
    const uint64_t e = rest / a.tiles_n;
    const uint32_t nt = rest - (uint32_t)e * a.tiles_n;
    const uint32_t warp = threadIdx.x / 32, block = warp & 3;
    const uint32_t kl = (warp >> 2) * 64 + threadIdx.x % 32 * 2;
    const uint64_t k = (uint64_t)kt * 128 + kl, n = (uint64_t)nt * 128 + block * 32;
    uint32_t s0 = 0, s1 = 0;
    uint2 amax = make_uint2(0, 0);
    nwise_columns<DT> c;
    if (k < a.k && n < a.n) {
        load_columns<DT>(c, a.in + ((e * a.n + n) * a.k + k) * bytes, a.k * bytes);
        amax = column_amax<DT>(c);
    }
    if (SQUARE)
        amax.x = amax.y = dev_max_lanes<16>(max(amax.x, amax.y));
    if (k < a.k && n < a.n) {
        const dev_mx m0 = dev_mx_of(a.rule, amax.x);
        const dev_mx m1 = SQUARE ? m0 : dev_mx_of(a.rule, amax.y);
        dev_flag_bad(a.flags, m0.bad || m1.bad);
        s0 = m0.scale;
        s1 = m1.scale;
        put_column<DT>(codes, c, 0, kl, block, m0.factor);
        put_column<DT>(codes, c, 1, kl + 1, block, m1.factor);
    }
    scales[kl * 4 + block] = (uint8_t)s0;
    scales[kl * 4 + 4 + block] = (uint8_t)s1;
    __syncthreads();
    const uint32_t piece = threadIdx.x & 7;
    const uint64_t n_out = (uint64_t)nt * 128 + piece * 16;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t row = threadIdx.x / 8 + i * 32;
        uint64_t k_out = (uint64_t)kt * 128 + row;
        if (k_out < a.k && n_out < a.n)
            *(uint4 *)(a.codes + (e * a.k + k_out) * a.n + n_out) =
                *(const uint4 *)(codes + row * 128 + (piece ^ ((row >> 1) & 7)) * 16);
    }
    if (threadIdx.x < 128) { /* line l of a tile: rows l, l+32, l+64, l+96 */
        uint64_t tile = (e * a.tiles_k + kt) * a.tiles_n + nt;
        ((uint32_t *)a.scale)[tile * 128 + threadIdx.x] =
            ((const uint32_t *)scales)[(threadIdx.x & 3) * 32 + (threadIdx.x >> 2)];
    }
}

template <int DT> static void launch(const struct tp_op *op, struct tp_args *args)
{
    const struct tp_box3 box = args->box;
    cudaStream_t stream = (cudaStream_t)args->stream;
    struct nwise_args a;
    if (box.n % 32 != 0 || box.k % 2 != 0 ||
        dev_ceil(box.n, 128) * dev_ceil(box.k, 128) * box.e > 0x7FFFFFFFu) {
        tp_cuda_encode_any(op, args);
        return;
    }
    a.in = (const uint8_t *)args->in[0];
    a.codes = (uint8_t *)args->out[tp_op_find(op, TP_ROLE_CODES)];
    a.scale = (uint8_t *)args->out[tp_op_find(op, TP_ROLE_SCALE)];
    a.flags = args->device_flags;
    a.n = box.n;
    a.k = box.k;
    a.tiles_n = (uint32_t)dev_ceil(box.n, 128);
    a.tiles_k = (uint32_t)dev_ceil(box.k, 128);
    a.rule = op->rule;
    uint32_t grid = (uint32_t)(a.tiles_n * a.tiles_k * box.e);
    if (op->block_k == 32)
        encode_nwise<DT, true><<<grid, 256, 0, stream>>>(a);
    else
        encode_nwise<DT, false><<<grid, 256, 0, stream>>>(a);
}

extern "C" void tp_cuda_mxfp8_nwise(const struct tp_op *op, struct tp_args *args)
{
    if (args->dtype == TP_BF16)
        launch<TP_BF16>(op, args);
    else if (args->dtype == TP_F16)
        launch<TP_F16>(op, args);
    else
        launch<TP_F32>(op, args);
}
