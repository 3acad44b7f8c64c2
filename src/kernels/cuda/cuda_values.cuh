/* Values of codes as they are written, for rows (cuda_decode.cu) and for any layout
 * (cuda_place_move.cu). Invariant: bytes equal tp_decode_ref. */
#ifndef TP_KERNELS_CUDA_VALUES_CUH
#define TP_KERNELS_CUDA_VALUES_CUH

#include "kernels/cuda/cuda_rows.cuh"

/* Eight values as bf16. The chip's NaN is 0x7FFF, ours is TP_BF16_NAN: replaced where
 * there is one. */
static __device__ __forceinline__ uint4 bf16x8(const float *v)
{
    uint32_t w[4], max = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w[j]) : "f"(v[2 * j + 1]), "f"(v[2 * j]));
        max = dev_amax<TP_BF16>(max, w[j]);
    }
    if (__vmaxu2(max, 0x7F807F80u) != 0x7F807F80u) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            w[j] = tp_f32_to_bf16(v[2 * j]) | (uint32_t)tp_f32_to_bf16(v[2 * j + 1]) << 16;
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
}

static __device__ __forceinline__ uint4 f32x4(const float *v)
{
    return make_uint4(__float_as_uint(tp_canonical(v[0])), __float_as_uint(tp_canonical(v[1])),
                      __float_as_uint(tp_canonical(v[2])), __float_as_uint(tp_canonical(v[3])));
}

/* Values of four e4m3 codes times a scale. */
static __device__ __forceinline__ void scaled4(uint32_t codes, float scale, float *v)
{
#if __CUDA_ARCH__ >= 890
    const uint32_t lo = dev_f16x2_of((uint16_t)codes), hi = dev_f16x2_of((uint16_t)(codes >> 16));
    v[0] = __fmul_rn(dev_widen<TP_F16>(lo, 0), scale);
    v[1] = __fmul_rn(dev_widen<TP_F16>(lo, 1), scale);
    v[2] = __fmul_rn(dev_widen<TP_F16>(hi, 0), scale);
    v[3] = __fmul_rn(dev_widen<TP_F16>(hi, 1), scale);
#else
#pragma unroll
    for (int j = 0; j < 4; j++)
        v[j] = __fmul_rn(tp_e4m3_value((uint8_t)(codes >> 8 * j)), scale);
#endif
}

#endif
