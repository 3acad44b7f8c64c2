/* INT8 codes from values and a scale, for rows (cuda_int8.cu) and for any layout (cuda_place.cu).
 * Invariant: bytes equal tp_codec_codes(). */
#ifndef TP_KERNELS_CUDA_INT8_CUH
#define TP_KERNELS_CUDA_INT8_CUH

#include "kernels/cuda/cuda_rows.cuh"

/* Four signed codes of quotients, the first in the lowest byte. Clamping before rounding to even is
 * the same as after it. Adding 1.5 * 2^23 + 128 rounds and leaves the code plus 128 in the low
 * bits, and the constant above it falls out of the weighted sum. WITHIN: no quotient is outside.
 * `base`: what quotients hold already, see dev_ordinary(). */
template <bool WITHIN = false>
static __device__ __forceinline__ uint32_t dev_int8x4(const float *q, float base = 0.0f)
{
    uint32_t sum = 0;
#pragma unroll
    for (int i = 3; i >= 0; i--)
        sum = sum * 256u +
              __float_as_uint(
                  __fadd_rn(WITHIN ? q[i] : fminf(fmaxf(q[i], base - 128.0f), base + 127.0f),
                            12583040.0f - base));
    return (sum - 0x8B400000u) ^ 0x80808080u;
}

/* Eight signed codes of a group whose quotients are in -127.6..127.6, by the reciprocal of its
 * scale; only the upper end needs a clamp. bf16 values are clamped two at a time, to the number
 * next to 127 scales, whose quotient rounds to 127. */
template <int DT>
static __device__ __forceinline__ uint2 dev_int8_ordinary(dev_raw8<DT> x, float high, float low,
                                                          uint32_t max)
{
    const float base = TP_IS32(DT) ? 0.0f : 768.0f;
    float q[8];
    dev_ordinary<DT>(x, high, low, max, base, q);
    return make_uint2(dev_int8x4<DT == TP_BF16>(q, base), dev_int8x4<DT == TP_BF16>(q + 4, base));
}

/* Eight signed codes of finite values. A scale of 16 bits has so few that the short division is
 * exact. `round`: the quotients, to the type of the scale. */
template <int DT>
static __device__ __forceinline__ uint2 dev_int8x8(const dev_raw8<DT> &r, float scale, bool f16,
                                                   bool round)
{
    const dev_divisor d = dev_divisor_of(scale);
    float q[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        q[i] = d.safe ? dev_divide(dev_value<DT>(r, i), d.high, d.low)
                      : __fdiv_rn(dev_value<DT>(r, i), scale);
    if (round) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            q[i] = f16 ? tp_f16_to_f32(tp_f32_to_f16(q[i])) : tp_bf16_to_f32(tp_f32_to_bf16(q[i]));
    }
    return make_uint2(dev_int8x4(q), dev_int8x4(q + 4));
}

#endif
