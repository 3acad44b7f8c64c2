/* FP8 with one scale to a row (fp8-dynamic-ct), by the rules whose scale is a bf16 number; codes
 * and scales in rows.
 *
 * A block of threads has a row, which it keeps in registers between its largest magnitude and its
 * codes where it is short enough (cuda_groups.cuh). Other shapes go to cuda_place.cu. Invariant:
 * bytes equal tp_encode_ref.
 */
#include "kernels/cuda/cuda_groups.cuh"

struct rows_args : dev_weight {
    bool half; /* scales are stored as bf16, else as fp32 */
};

/* Eight codes. `quick`: the scale has so few bits that the short division is exact. */
template <int DT>
static __device__ __forceinline__ uint2 rows_codes(const dev_raw8<DT> &r, const dev_fp8 &f,
                                                   bool quick)
{
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = dev_value<DT>(r, i);
    dev_fp8_divide(v, f, quick);
    return make_uint2(dev_e4m3x4(v[0], v[1], v[2], v[3]), dev_e4m3x4(v[4], v[5], v[6], v[7]));
}

template <int DT, int ITEMS>
static __global__ __launch_bounds__(GROUPS_THREADS) void encode_rows(const struct rows_args a)
{
    dev_row<DT, ITEMS> row;
    row.in = a.in + blockIdx.x * a.k * (TP_IS32(DT) ? 4 : 2);
    row.eights = (uint32_t)(a.k / 8);
    uint2 *codes = (uint2 *)a.codes + (uint64_t)blockIdx.x * row.eights;
    const uint32_t amax = dev_row_amax(&row);
    const dev_fp8 f = dev_fp8_of(a.rule, a.scale_rule, amax);
    const bool quick = amax < TP_F32_INF_BITS; /* infinities are divided the long way */
    if (threadIdx.x == 0) {
        dev_flag(a.flags, amax);
        if (a.half)
            ((uint16_t *)a.scale)[blockIdx.x] = tp_f32_to_bf16(f.scale);
        else
            ((float *)a.scale)[blockIdx.x] = f.scale;
    }
    dev_row_each(row, [&](uint32_t i, const dev_raw8<DT> &r) {
        codes[i] = rows_codes<DT>(r, f, quick);
    });
}

static struct rows_args args_of(const struct tp_op *op, struct tp_args *args)
{
    struct rows_args a;
    static_cast<dev_weight &>(a) = dev_weight_of(op, args);
    a.half = op->out[tp_op_find(op, TP_ROLE_SCALE)].element == TP_ELEM_BF16;
    return a;
}

template <int DT, int ITEMS>
static void launch_items(const struct tp_op *op, struct tp_args *args)
{
    const uint32_t rows = (uint32_t)(args->box.e * args->box.n);
    encode_rows<DT, ITEMS>
        <<<rows, GROUPS_THREADS, 0, (cudaStream_t)args->stream>>>(args_of(op, args));
}

template <int DT> static void launch_rows(const struct tp_op *op, struct tp_args *args)
{
    if (!dev_row_fits(args->box))
        tp_cuda_encode_placed(op, args);
    else
        DEV_BY_ROW(DT, args->box.k, launch_items, op, args);
}

extern "C" void tp_cuda_fp8_rows(const struct tp_op *op, struct tp_args *args)
{
    DEV_BY_DTYPE(args->dtype, launch_rows, op, args);
}
