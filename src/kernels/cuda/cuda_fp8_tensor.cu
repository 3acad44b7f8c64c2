/* FP8 with one scale to a weight, which is known before (fp8-tensor-ct): every value by itself,
 * eight of a thread at a time. Rows whose number of values is no multiple of 8, and scales that
 * are no ordinary numbers, go to cuda_any.cu. Invariant: bytes equal tp_encode_ref.
 */
#include "kernels/cuda/cuda_rows.cuh"

enum { TENSOR_THREADS = 256, TENSOR_ITEMS = 4 };

struct tensor_args {
    const uint8_t *in;
    uint2 *codes;
    uint8_t *global;
    uint32_t *flags;
    uint64_t eights;
    float scale;
    bool half;       /* the stored scale is bf16 */
    dev_known_divisor divisor;
    bool round_bf16; /* the quotient is */
};

template <int DT>
static __device__ __forceinline__ uint2 tensor_codes(const struct tensor_args &a,
                                                     const dev_raw8<DT> &r, bool finite)
{
    if (a.divisor.exact && finite)
        return dev_e4m3_known<DT>(r, a.divisor, a.round_bf16);
    const dev_fp8 by = {a.scale, a.scale, true, a.round_bf16};
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = dev_value<DT>(r, i);
    dev_fp8_divide(v, by, false);
    return make_uint2(dev_e4m3x4(v[0], v[1], v[2], v[3]), dev_e4m3x4(v[4], v[5], v[6], v[7]));
}

template <int DT>
static __global__ __launch_bounds__(TENSOR_THREADS) void encode_tensor(const struct tensor_args a)
{
    const int bytes = TP_IS32(DT) ? 4 : 2;
    const uint64_t first = (uint64_t)blockIdx.x * (TENSOR_THREADS * TENSOR_ITEMS) + threadIdx.x;
    dev_raw8<DT> r[TENSOR_ITEMS];
    if (first == 0 && a.global != NULL && a.half)
        *(uint16_t *)a.global = tp_f32_to_bf16(a.scale);
    else if (first == 0 && a.global != NULL)
        *(float *)a.global = a.scale;
#pragma unroll
    for (int u = 0; u < TENSOR_ITEMS; u++)
        r[u] = first + u * TENSOR_THREADS < a.eights
                   ? dev_load_raw8<DT>(a.in + (first + u * TENSOR_THREADS) * 8 * bytes)
                   : dev_zero_raw8<DT>();
#pragma unroll
    for (int u = 0; u < TENSOR_ITEMS; u++) {
        const uint32_t amax = dev_amax_bits<DT>(dev_amax8<DT>(0, r[u]));
        if (first + u * TENSOR_THREADS >= a.eights)
            continue;
        dev_flag(a.flags, amax);
        a.codes[first + u * TENSOR_THREADS] =
            tensor_codes<DT>(a, r[u], amax < TP_F32_INF_BITS);
    }
}

template <int DT> static void launch_tensor(const struct tp_op *op, struct tp_args *args)
{
    const uint64_t values = args->box.e * args->box.n * args->box.k;
    const uint64_t grid = dev_ceil(values / 8, TENSOR_THREADS * TENSOR_ITEMS);
    const uint32_t bits = tp_abs_bits(args->global);
    const int global = tp_op_find(op, TP_ROLE_GLOBAL);
    struct tensor_args a;
    if (values % 8 != 0 || grid > 0x7FFFFFFFu || bits >= TP_F32_INF_BITS ||
        bits < TP_F32_MIN_NORMAL) {
        tp_cuda_encode_any(op, args);
        return;
    }
    a.in = (const uint8_t *)args->in[0];
    a.codes = (uint2 *)args->out[tp_op_find(op, TP_ROLE_CODES)];
    a.global = global < 0 ? NULL : (uint8_t *)args->out[global];
    a.half = global >= 0 && op->out[global].element == TP_ELEM_BF16;
    a.flags = args->device_flags;
    a.eights = values / 8;
    a.scale = args->global;
    a.divisor = dev_known_divisor_of(args->global, args->dtype);
    a.round_bf16 = op->rule == TP_FP8_CT_BF16;
    encode_tensor<DT>
        <<<(uint32_t)grid, TENSOR_THREADS, 0, (cudaStream_t)args->stream>>>(a);
}

extern "C" void tp_cuda_fp8_tensor(const struct tp_op *op, struct tp_args *args)
{
    DEV_BY_DTYPE(args->dtype, launch_tensor, op, args);
}
