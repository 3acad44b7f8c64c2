/* INT4 codes from values and an ordinary scale, for rows (cuda_int4.cu) and for any layout
 * (cuda_place.cu). Invariant: codes equal tp_codec_codes(). */
#ifndef TP_KERNELS_CUDA_INT4_CUH
#define TP_KERNELS_CUDA_INT4_CUH

#include "kernels/cuda/cuda_rows.cuh"

/* What the kernels of groups of 128 are given. */
struct int4_args {
    const uint8_t *in;
    uint8_t *codes, *scale;
    float *channel;
    uint32_t *flags;
    uint64_t n, k, groups; /* groups: of the whole weight, or of a row */
    uint32_t rule, channel_rule, tiles_n;
    bool skip_zero;
    dev_map map;
};

static inline struct int4_args int4_args_of(const struct tp_op *op, struct tp_args *args)
{
    struct int4_args a;
    int scale = tp_op_find(op, TP_ROLE_SCALE), channel = tp_op_find(op, TP_ROLE_CHANNEL);
    if (scale < 0)
        scale = tp_op_find(op, TP_ROLE_GROUP8);
    a.in = (const uint8_t *)args->in[0];
    a.codes = (uint8_t *)args->out[tp_op_find(op, TP_ROLE_CODES)];
    a.scale = (uint8_t *)args->out[scale];
    a.channel = channel < 0 ? NULL : (float *)args->out[channel];
    a.flags = args->device_flags;
    a.n = args->box.n;
    a.k = args->box.k;
    a.groups = args->box.k / 128;
    a.rule = op->rule;
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
                                                             float low, uint32_t most)
{
    const float base = TP_IS32(DT) ? 0.0f : 192.0f;
    float q[8];
    dev_ordinary<DT>(x, high, low, most, base, q);
    return dev_int4x8<DT != TP_BF16>(q, base);
}

#endif
