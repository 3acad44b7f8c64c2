/* INT4 codes from values and an ordinary scale, for rows (cuda_int4.cu) and for any layout
 * (cuda_place.cu). Invariant: codes equal tp_codec_codes(). */
#ifndef TP_KERNELS_CUDA_INT4_CUH
#define TP_KERNELS_CUDA_INT4_CUH

#include "kernels/cuda/cuda_rows.cuh"

/* What the kernels of groups of 128 are given. */
struct int4_args : dev_weight {
    float *channel;
    uint64_t groups; /* of the whole weight, or of a row */
    uint32_t channel_rule, tiles_n;
    bool skip_zero;
    dev_map map;
};

static inline struct int4_args int4_args_of(const struct tp_op *op, struct tp_args *args)
{
    struct int4_args a;
    const int channel = tp_op_find(op, TP_ROLE_CHANNEL);
    static_cast<dev_weight &>(a) = dev_weight_of(op, args);
    a.channel = channel < 0 ? NULL : (float *)args->out[channel];
    a.groups = args->box.k / 128;
    a.tiles_n = (uint32_t)(args->box.n / 16);
    a.channel_rule = op->channel_rule;
    a.skip_zero = op->skip_zero_groups;
    a.map = dev_map_of(NULL, op->table);
    return a;
}

/* Eight canonical codes of a group that is not special, whose quotients stay fp32: |x / s| <=
 * 7.53, so that only the upper end needs a clamp. bf16 values are clamped two at a time, before
 * they are divided. */
template <int DT>
static __device__ __forceinline__ uint32_t dev_int4_ordinary(dev_raw8<DT> x, float high,
                                                             float low, uint32_t max)
{
    const float base = TP_IS32(DT) ? 0.0f : 192.0f;
    float q[8];
    dev_ordinary<DT>(x, high, low, max, base, q);
    return dev_int4x8<DT != TP_BF16>(q, base);
}

#endif
