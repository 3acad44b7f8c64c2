/* e2m1 with blocks along K and row-major codes: MXFP4 in 1x32 blocks, NVFP4 in 1x16.
 *
 * A thread takes 16 values of a row, a whole block of NVFP4 or half a block of MXFP4:
 * two 16-byte loads (f32: four), one 8-byte store. Scales are row-major or in 128x4
 * tiles. Handles every N; K in whole blocks; other shapes go to cuda_any.cu. Invariant:
 * bytes equal tp_encode_ref, padding of the scales included.
 */
#include "kernels/cuda_rows.cuh"

enum { FP4_THREADS = 256, UNIT = 16 /* values of a thread */ };

struct fp4_args {
    const uint8_t *in;
    uint8_t *codes, *scale;
    float *global_out; /* NULL: the format has none */
    uint32_t *flags;
    uint32_t count, units; /* threads; of them for a row */
    uint32_t rows, columns; /* scales of an expert */
    uint32_t rule;
    bool tiles;
    float global;
};

/* Byte of the scale of a row (of all experts) and column. */
static __device__ __forceinline__ uint64_t scale_at(const struct fp4_args &a, uint32_t row,
                                                    uint32_t column)
{
    if (!a.tiles)
        return (uint64_t)row * a.columns + column;
    const uint32_t e = row / a.rows, n = row - e * a.rows;
    const uint32_t tiles_k = (a.columns + 3) / 4, tiles_n = (a.rows + 127) / 128;
    const uint64_t tile = ((uint64_t)e * tiles_n + n / 128) * tiles_k + column / 4;
    return tile * 512 + (n % 32) * 16 + n % 128 / 32 * 4 + column % 4;
}

/* Codes of eight values. */
template <int DT>
static __device__ __forceinline__ uint32_t codes_of(const dev_raw8<DT> &r, float factor,
                                                    bool divide, bool plain_zero)
{
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float x = dev_value<DT>(r, i);
        const float q = divide ? __fdiv_rn(x, factor) : __fmul_rn(x, factor);
        const uint32_t code = plain_zero && x == 0.0f ? 0 : tp_e2m1_of(q);
        word |= code << 4 * i;
    }
    return word;
}

template <int DT, bool NV>
static __global__ __launch_bounds__(FP4_THREADS) void
encode_fp4(const __grid_constant__ struct fp4_args a)
{
    const uint32_t i = blockIdx.x * FP4_THREADS + threadIdx.x;
    const bool inside = i < a.count;
    const uint8_t *in = a.in + (uint64_t)i * (UNIT * (TP_IS32(DT) ? 4 : 2));
    dev_raw8<DT> r[2];
    r[0] = inside ? dev_load_raw8<DT>(in) : dev_zero_raw8<DT>();
    r[1] = inside ? dev_load_raw8<DT>(in + 8 * (TP_IS32(DT) ? 4 : 2)) : dev_zero_raw8<DT>();
    uint32_t amax = dev_amax_bits<DT>(dev_amax8<DT>(dev_amax8<DT>(0, r[0]), r[1]));
    float factor;
    uint8_t scale;
    if (NV) {
        scale = dev_nvfp4_scale(a.rule, amax, a.global, &factor);
    } else {
        amax = max(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, 1));
        scale = dev_mxfp4_scale(a.rule, amax);
        factor = tp_e8m0_reciprocal(scale);
    }
    dev_flag(a.flags, amax);
    if (a.global_out != NULL && i == 0)
        *a.global_out = a.global;
    if (!inside)
        return;
    const bool divide = NV && a.rule != TP_NVFP4_TORCHAO;
    const bool plain_zero = NV && a.rule == TP_NVFP4_MODELOPT;
    ((uint2 *)a.codes)[i] = make_uint2(codes_of<DT>(r[0], factor, divide, plain_zero),
                                       codes_of<DT>(r[1], factor, divide, plain_zero));
    const uint32_t row = i / a.units, column = i - row * a.units;
    if (NV || column % 2 == 0)
        a.scale[scale_at(a, row, NV ? column : column / 2)] = scale;
}

template <int DT> static void launch(const struct fp4_args &a, bool nv, cudaStream_t stream)
{
    const uint32_t grid = (uint32_t)dev_ceil(a.count, FP4_THREADS);
    if (nv)
        encode_fp4<DT, true><<<grid, FP4_THREADS, 0, stream>>>(a);
    else
        encode_fp4<DT, false><<<grid, FP4_THREADS, 0, stream>>>(a);
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
    a.units = (uint32_t)(box.k / UNIT);
    a.rows = (uint32_t)box.n;
    a.columns = (uint32_t)(box.k / scale->per_k);
    a.rule = op->rule;
    a.tiles = scale->place == TP_PLACE_TILE_N;
    a.global = args->global;
    if (a.tiles && (a.rows % 128 != 0 || a.columns % 4 != 0))
        cudaMemsetAsync(a.scale, 0, box.e * dev_up(a.rows, 128) * dev_up(a.columns, 4), stream);
    if (args->dtype == TP_BF16)
        launch<TP_BF16>(a, op->codec == TP_CODEC_NVFP4, stream);
    else if (args->dtype == TP_F16)
        launch<TP_F16>(a, op->codec == TP_CODEC_NVFP4, stream);
    else
        launch<TP_F32>(a, op->codec == TP_CODEC_NVFP4, stream);
}
