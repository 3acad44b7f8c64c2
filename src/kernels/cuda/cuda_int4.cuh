/* INT4 codes from values and an ordinary scale, for rows (cuda_int4.cu) and for any layout
 * (cuda_place.cu). Invariant: codes equal tp_codec_codes(). */
#ifndef TP_KERNELS_CUDA_INT4_CUH
#define TP_KERNELS_CUDA_INT4_CUH

#include "kernels/cuda/cuda_rows.cuh"

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
