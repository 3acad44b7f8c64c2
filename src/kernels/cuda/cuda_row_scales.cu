/* Scales of whole rows by a pass of their own, for codes that cuda_place.cu makes afterwards: where
 * cuda_place_rows.cu cannot make both at once. Makes no codes. Invariant: bytes equal
 * tp_encode_ref.
 */
#include "kernels/cuda/cuda_place_rows.cuh"

enum { PLACE_LOADS = 8 }; /* eights of a row that a lane has on their way */

struct place_rows {
    struct any_codec codec;
    struct any_plane scale;
    const uint8_t *in;
    uint32_t *flags;
    uint64_t rows, n, k; /* rows of all experts */
};

/* A warp finds the scale of a row. */
template <int DT>
static __global__ __launch_bounds__(PLACE_THREADS) void
scale_rows(const __grid_constant__ struct place_rows a)
{
    const int bytes = TP_IS32(DT) ? 4 : 2;
    const uint64_t row = (uint64_t)blockIdx.x * (PLACE_THREADS / 32) + threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32;
    if (row >= a.rows)
        return;
    const uint8_t *in = a.in + row * a.k * bytes;
    uint32_t amax = 0;
#pragma unroll 1
    for (uint64_t i = lane; i < a.k / 8; i += 32 * PLACE_LOADS) {
        dev_raw8<DT> r[PLACE_LOADS];
#pragma unroll
        for (int j = 0; j < PLACE_LOADS; j++)
            r[j] = i + 32 * j < a.k / 8 ? dev_load_raw8<DT>(in + (i + 32 * j) * 8 * bytes)
                                        : dev_zero_raw8<DT>();
#pragma unroll
        for (int j = 0; j < PLACE_LOADS; j++)
            amax = dev_amax8<DT>(amax, r[j]);
    }
    const any_scale s = scale_of(a.codec, dev_max_lanes<32>(dev_amax_bits<DT>(amax)));
    if (lane != 0)
        return;
    const uint64_t e = row / a.n;
    dev_flag_bad(a.flags, s.bad);
    store_scale(a.scale, a.codec.codec, at_of(a.scale, e, row - e * a.n, 0), s.bits);
}

template <int DT> static void launch_scales(const place_rows &r, cudaStream_t stream)
{
    scale_rows<DT><<<(uint32_t)dev_ceil(r.rows, PLACE_THREADS / 32), PLACE_THREADS, 0, stream>>>(r);
}

/* Of the whole weight at once, as launches for parts of it that a device's cache holds cost more
 * than reading the weight twice. */
void tp_cuda_place_row_scales(const struct place_encode &a, const struct any_side &side,
                              const struct tp_args *args)
{
    const place_rows r = {a.codec, side.scale, a.plane[PLACE_FROM].data, a.flags,
                          args->box.e * a.n, a.n, a.k};
    DEV_BY_DTYPE(args->dtype, launch_scales, r, (cudaStream_t)args->stream);
}
