/* A thread's values of a tile in registers, and the largest magnitudes of their blocks: the first
 * half of cuda_place.cu. Knows no scale. Invariant: magnitudes are the same in all lanes that share
 * a block.
 */
#ifndef TP_KERNELS_CUDA_PLACE_VALUES_CUH
#define TP_KERNELS_CUDA_PLACE_VALUES_CUH

#include "kernels/cuda/cuda_fp4.cuh"
#include "kernels/cuda/cuda_place.cuh"

struct place_encode : place_job {
    struct any_codec codec;
    struct any_plane global;
    struct fp4_global nv;
    dev_known_divisor tensor; /* FP8 with one scale */
    uint32_t *flags;
    uint32_t join;        /* bits of an eight's number that do not change its block */
    uint32_t lanes;       /* neighbours that share a block: 1 to 32 */
    uint32_t joined;      /* bits of `join` */
    bool shared;          /* lanes that share blocks are as many as their blocks, or more */
    uint32_t scale_shift; /* from a scale's bits to the stored ones */
    uint32_t min;         /* of the bits of an fp32 scale: smaller ones are stored as this */
    bool square;          /* one scale to a tile */
    bool given;           /* scales that were found before: of whole rows, */
    bool grouped;         /* or of groups */
    uint8_t element;      /* of those */
};

/* A thread's values of a tile as loaded. */
template <int DT> struct place_values {
    dev_raw8<DT> r[PLACE_EIGHTS];
};

template <int DT, bool FULL>
static __device__ __forceinline__ void load_as(const place_encode &a, const place_item &first,
                                               const place_spot &s, place_values<DT> *v)
{
    const uint32_t bytes = PLACE_EIGHT * (TP_IS32(DT) ? 4 : 2);
    const place_plane &p = a.plane[PLACE_FROM];
    const uint8_t *in = p.data + (s.base[PLACE_FROM] + first.at) * bytes;
#pragma unroll
    for (int i = 0; i < PLACE_EIGHTS; i++)
        v->r[i] = place_inside<FULL>(a, s, first.rc + p.high_rc[i])
                      ? dev_load_raw8<DT>(in + (uint64_t)p.high_at[i] * bytes)
                      : dev_zero_raw8<DT>();
}

template <int DT>
static __device__ __forceinline__ void load_values(const place_encode &a, const place_item &first,
                                                   const place_spot &s, place_values<DT> *v)
{
    if (s.full)
        load_as<DT, true>(a, first, s, v);
    else
        load_as<DT, false>(a, first, s, v);
}

/* ---- largest magnitudes ---------------------------------------------------- */

/* Of the thread's own values, as fp32 bits. */
template <int DT>
static __device__ __forceinline__ uint32_t own_amax(const place_values<DT> &v)
{
    uint32_t amax = 0;
#pragma unroll
    for (int i = 0; i < PLACE_EIGHTS; i++)
        amax = dev_amax8<DT>(amax, v.r[i]);
    return dev_amax_bits<DT>(amax);
}

/* Of the whole tile, in every thread. */
template <int DT>
static __device__ __forceinline__ uint32_t tile_amax(const place_values<DT> &v)
{
    __shared__ uint32_t max_value[PLACE_THREADS / 32];
    uint32_t amax = dev_max_lanes<32>(own_amax<DT>(v));
    __syncthreads(); /* the last tile's are read */
    if (threadIdx.x % 32 == 0)
        max_value[threadIdx.x / 32] = amax;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < PLACE_THREADS / 32; i++)
        amax = max(amax, max_value[i]);
    return amax;
}

/* Magnitudes in the form that several share a word: two of 16 bits, or one. */
template <int DT> struct place_max {
    static const int apart = TP_IS32(DT) ? 1 : 2; /* in a word */
    uint32_t w[PLACE_EIGHTS / apart];
};

template <int DT> static __device__ __forceinline__ uint32_t max_of(uint32_t a, uint32_t b)
{
    return TP_IS32(DT) ? max(a, b) : __vmaxu2(a, b);
}

/* Eights whose numbers differ in a bit have one block. */
template <int DT, int BIT>
static __device__ __forceinline__ void join_eights(place_max<DT> *m)
{
    const int bit = BIT / place_max<DT>::apart;
#pragma unroll
    for (int i = 0; i < PLACE_EIGHTS / place_max<DT>::apart; i++)
        if (bit == 0)
            m->w[i] = max_of<DT>(m->w[i], __byte_perm(m->w[i], 0, 0x1032));
        else if (!(i & bit))
            m->w[i] = m->w[i | bit] = max_of<DT>(m->w[i], m->w[i | bit]);
}

/* Of the blocks of a thread's eights. */
template <int DT>
static __device__ __forceinline__ place_max<DT> blocks_amax(const place_encode &a,
                                                            const place_values<DT> &v)
{
    const int apart = place_max<DT>::apart;
    place_max<DT> m;
#pragma unroll
    for (int i = 0; i < PLACE_EIGHTS; i += apart) {
        const uint32_t x = dev_amax8<DT>(0, v.r[i]), y = dev_amax8<DT>(0, v.r[i + apart - 1]);
        m.w[i / apart] = apart == 1 ? x
                                    : __vmaxu2(__byte_perm(x, y, 0x5410),
                                               __byte_perm(x, y, 0x7632));
    }
    if (a.join & 1)
        join_eights<DT, 1>(&m);
    if (a.join & 2)
        join_eights<DT, 2>(&m);
    if (a.join & 4)
        join_eights<DT, 4>(&m);
#pragma unroll 1
    for (uint32_t d = a.lanes / 2; d; d >>= 1)
#pragma unroll
        for (int i = 0; i < PLACE_EIGHTS / apart; i++)
            m.w[i] = max_of<DT>(m.w[i], __shfl_xor_sync(0xFFFFFFFFu, m.w[i], d));
    return m;
}

/* As fp32 bits. */
template <int DT>
static __device__ __forceinline__ uint32_t amax_of(const place_max<DT> &m, int eight)
{
    const uint32_t w = m.w[eight / place_max<DT>::apart];
    return TP_IS32(DT) ? w : dev_amax_bits1<DT>(eight % 2 ? w >> 16 : w & 0xFFFFu);
}

/* The same of an eight that the compiler does not know. */
template <int DT>
static __device__ __forceinline__ uint32_t amax_at(const place_max<DT> &m, uint32_t eight)
{
    uint32_t bits = amax_of<DT>(m, 0);
#pragma unroll
    for (int i = 1; i < PLACE_EIGHTS; i++)
        bits = eight == i ? amax_of<DT>(m, i) : bits;
    return bits;
}

#endif
