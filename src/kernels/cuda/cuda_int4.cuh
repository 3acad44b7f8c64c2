/* INT4 codes from values and an ordinary scale, for rows (cuda_int4.cu) and for any layout
 * (cuda_place.cu). Invariant: codes equal tp_codec_codes(). */
#ifndef TP_KERNELS_CUDA_INT4_CUH
#define TP_KERNELS_CUDA_INT4_CUH

#include "kernels/cuda/cuda_rows.cuh"

/* The smaller of two bf16 pairs, pair by pair. */
static __device__ __forceinline__ uint32_t dev_min_bf16x2(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("min.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* Eight canonical codes of a group that is not special, whose quotients stay fp32: |x / s| <=
 * 7.53, so that only the upper end needs a clamp. bf16 values are clamped two at a time, before
 * they are divided. */
template <int DT>
static __device__ __forceinline__ uint32_t dev_int4_ordinary(dev_raw8<DT> x, float high,
                                                             float low, uint32_t most)
{
    float q[8];
    if (DT == TP_BF16) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x.w[i] = dev_min_bf16x2(x.w[i], most);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        q[i] = dev_divide(dev_value<DT>(x, i), high, low);
    return dev_int4x8<DT != TP_BF16>(q);
}

#endif
