/* e2m1 with blocks along K and row-major codes: MXFP4 in 1x32 blocks, NVFP4 in 1x16.
 *
 * A thread takes 16 values of a row, a whole block of NVFP4 or half a block of MXFP4:
 * two 16-byte loads (f32: four), one 8-byte store. Scales are row-major or in 128x4
 * tiles. Handles every N; K in whole blocks; other shapes go to cuda_any.cu. Invariant:
 * bytes equal tp_encode_ref, padding of the scales included.
 */
#include "kernels/cuda/cuda_fp4.cuh"

/* Scale and codes of 16 values: a block of NVFP4. CT: its rule, for fewer branches. */
template <int DT, bool CT>
static __device__ __forceinline__ uint8_t encode_nv(const struct fp4_args &a, dev_raw8<DT> (&r)[2],
                                                    uint32_t amax, uint2 &codes)
{
    float factor;
    const uint32_t rule = CT ? (uint32_t)TP_NVFP4_CT : a.rule;
    uint8_t scale = CT ? ct_scale<DT>(a, amax, &factor)
                       : dev_nvfp4_scale(rule, amax, a.global, &factor);
    const nv_block b = nv_block_of(rule, factor, amax, 6.9f);
    if (rule == TP_NVFP4_MODELOPT)
        plain_zeros<DT>(r);
    if (__any_sync(0xFFFFFFFFu, b.special)) {
        scale = dev_nvfp4_scale(rule, amax, a.global, &factor);
        codes = make_uint2(any_codes<DT>(r[0], factor, rule), any_codes<DT>(r[1], factor, rule));
    } else {
        codes = make_uint2(nv_codes<DT, false>(r[0], b, rule), nv_codes<DT, false>(r[1], b, rule));
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
    struct fp4_args a;
    if (fp4_begin(op, args, a))
        DEV_BY_DTYPE(args->dtype, launch, a, op->codec == TP_CODEC_NVFP4,
                     (cudaStream_t)args->stream);
}
