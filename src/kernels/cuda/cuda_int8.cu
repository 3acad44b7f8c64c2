/* int8 with one scale to a row, from float weights; codes and scales in rows (int8-ct, w8a16-ct),
 * scales bf16 or F16. Groups are for the kernels for every layout (cuda_place.cu), which are
 * faster.
 *
 * A row has a block of threads, a thread 8 values at a time. Longer rows go to cuda_any.cu.
 * Invariant: bytes equal tp_encode_ref.
 */
#include "kernels/cuda/cuda_groups.cuh"
#include "kernels/cuda/cuda_int8.cuh"

struct int8_args : dev_weight {
    uint32_t flip;      /* of codes plus 128: 0x80808080, else 0 */
    bool f16, round; /* the scales; quotients, to the type of the scale */
};

struct int8_scale {
    uint32_t bits;
    float value;
    bool finite; /* the magnitudes are: else all codes are zero */
};

/* int_scale() of codec.c. */
static __device__ __forceinline__ int8_scale int8_scale_of(const struct int8_args &a,
                                                           uint32_t amax)
{
    const float q = __fdiv_rn(__uint_as_float(amax), 127.5f);
    int8_scale s;
    if (a.f16) {
        s.bits = tp_f32_to_f16(q);
        s.bits = s.bits ? s.bits : 0x1400;
        s.value = tp_f16_to_f32((uint16_t)s.bits);
    } else {
        s.bits = tp_f32_to_bf16(q);
        s.bits = s.bits ? s.bits : 0x3C00;
        s.value = tp_bf16_to_f32((uint16_t)s.bits);
    }
    s.finite = amax < TP_F32_INF_BITS;
    return s;
}

static __device__ __forceinline__ void int8_flag(const struct int8_args &a, const int8_scale &s)
{
    dev_flag_bad(a.flags, !s.finite || (a.f16 && (s.bits & 0x7C00) == 0x7C00));
}

static __device__ __forceinline__ uint2 flipped(const struct int8_args &a, uint2 codes)
{
    return make_uint2(codes.x ^ a.flip, codes.y ^ a.flip);
}

/* Eight codes. */
template <int DT>
static __device__ __forceinline__ uint2 int8_codes(const struct int8_args &a,
                                                   const dev_raw8<DT> &r, const int8_scale &s)
{
    return flipped(a, s.finite ? dev_int8x8<DT>(r, s.value, a.f16, a.round) : make_uint2(0, 0));
}

/* Rows of any multiple of 8 values. */
template <int DT, int ITEMS>
static __global__ __launch_bounds__(GROUPS_THREADS) void int8_rows(const struct int8_args a)
{
    dev_row<DT, ITEMS> row;
    row.in = a.in + blockIdx.x * a.k * (TP_IS32(DT) ? 4 : 2);
    row.eights = (uint32_t)(a.k / 8);
    const int8_scale s = int8_scale_of(a, dev_row_amax(&row));
    uint2 *codes = (uint2 *)a.codes + (uint64_t)blockIdx.x * row.eights;
    if (threadIdx.x == 0) {
        int8_flag(a, s);
        ((uint16_t *)a.scale)[blockIdx.x] = (uint16_t)s.bits;
    }
    dev_row_each(row, [&](uint32_t i, const dev_raw8<DT> &r) {
        codes[i] = int8_codes<DT>(a, r, s);
    });
}

static struct int8_args args_of(const struct tp_op *op, struct tp_args *args)
{
    struct int8_args a;
    static_cast<dev_weight &>(a) = dev_weight_of(op, args);
    a.flip = op->out[tp_op_find(op, TP_ROLE_CODES)].element == TP_ELEM_UINT8B128 ? 0x80808080u : 0;
    a.f16 = op->scale_rule == TP_INT_SCALE_F16;
    a.round = op->rule == TP_INT4_QUOTIENT_BF16;
    return a;
}

template <int DT, int ITEMS>
static void launch_rows(const struct tp_op *op, struct tp_args *args)
{
    const uint32_t rows = (uint32_t)(args->box.e * args->box.n);
    int8_rows<DT, ITEMS>
        <<<rows, GROUPS_THREADS, 0, (cudaStream_t)args->stream>>>(args_of(op, args));
}

template <int DT> static void launch_int8(const struct tp_op *op, struct tp_args *args)
{
    if (!dev_row_fits(args->box))
        tp_cuda_encode_any(op, args);
    else
        DEV_BY_ROW(DT, args->box.k, launch_rows, op, args);
}

extern "C" void tp_cuda_int8(const struct tp_op *op, struct tp_args *args)
{
    DEV_BY_DTYPE(args->dtype, launch_int8, op, args);
}
