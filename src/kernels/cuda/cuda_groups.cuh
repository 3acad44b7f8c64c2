/* How the integer kernels for codes in rows read weights (cuda_int4.cu, cuda_int8.cu): groups of
 * neighbouring values by lanes side by side, or rows of one group by a block of threads. Knows no
 * codec. */
#ifndef TP_KERNELS_CUDA_GROUPS_CUH
#define TP_KERNELS_CUDA_GROUPS_CUH

#include "kernels/cuda/cuda_rows.cuh"

enum { GROUPS_THREADS = 256 };

/* A thread's eights of ITEMS groups of 8 x LANES values: of groups first, first + apart and so on;
 * its warp has those between them. */
template <int DT, int LANES, int ITEMS> struct dev_groups {
    static const int apart = 32 / LANES;
    uint64_t first;
    dev_raw8<DT> r[ITEMS];
};

/* Zeros where there are not so many groups. */
template <int DT, int LANES, int ITEMS>
static __device__ __forceinline__ dev_groups<DT, LANES, ITEMS> dev_load_groups(const uint8_t *in,
                                                                               uint64_t count)
{
    const int bytes = TP_IS32(DT) ? 4 : 2;
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t warp = (uint64_t)blockIdx.x * (GROUPS_THREADS / 32) + threadIdx.x / 32;
    dev_groups<DT, LANES, ITEMS> g;
    g.first = warp * (ITEMS * g.apart) + lane / LANES;
#pragma unroll
    for (int u = 0; u < ITEMS; u++) {
        const uint64_t group = g.first + u * g.apart;
        g.r[u] = group < count
                     ? dev_load_raw8<DT>(in + (group * LANES + lane % LANES) * 8 * bytes)
                     : dev_zero_raw8<DT>();
    }
    return g;
}

/* The largest magnitude among those of all threads, in every thread, as fp32 bits. */
static __device__ __forceinline__ uint32_t dev_max_block(uint32_t amax)
{
    __shared__ uint32_t max_value[GROUPS_THREADS / 32];
    amax = dev_max_lanes<32>(amax);
    if (threadIdx.x % 32 == 0)
        max_value[threadIdx.x / 32] = amax;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < GROUPS_THREADS / 32; i++)
        amax = max(amax, max_value[i]);
    return amax;
}

/* A row of so many eights of values by a block of threads, each of which keeps its first ITEMS and
 * reads the others twice. */
template <int DT, int ITEMS> struct dev_row {
    const uint8_t *in;
    uint32_t eights;
    dev_raw8<DT> r[ITEMS];

    __device__ __forceinline__ dev_raw8<DT> load(uint32_t i) const
    {
        return dev_load_raw8<DT>(in + i * (TP_IS32(DT) ? 32ull : 16ull));
    }
};

/* Whether a row of the box is what these kernels take. */
static inline bool dev_row_fits(struct tp_box3 box)
{
    return box.k % 8 == 0 && box.k >> 31 == 0 && box.e * box.n <= 0x7FFFFFFFu;
}

/* launch<DT, ITEMS>(...): so many that rows up to 16384 values of 16 bits are read once. */
#define DEV_BY_ROW(dt, k, launch, ...)                       \
    do {                                                     \
        if ((k) <= 4 * 8 * GROUPS_THREADS || TP_IS32(dt))    \
            launch<dt, 4>(__VA_ARGS__);                      \
        else                                                 \
            launch<dt, TP_IS32(dt) ? 4 : 8>(__VA_ARGS__);    \
    } while (0)

/* Reads the row; returns its largest magnitude as fp32 bits, in every thread. */
template <int DT, int ITEMS>
static __device__ __forceinline__ uint32_t dev_row_amax(dev_row<DT, ITEMS> *row)
{
    uint32_t amax = 0;
#pragma unroll
    for (int u = 0; u < ITEMS; u++) {
        const uint32_t i = threadIdx.x + u * GROUPS_THREADS;
        row->r[u] = i < row->eights ? row->load(i) : dev_zero_raw8<DT>();
    }
#pragma unroll
    for (int u = 0; u < ITEMS; u++)
        amax = dev_amax8<DT>(amax, row->r[u]);
    for (uint32_t i = threadIdx.x + ITEMS * GROUPS_THREADS; i < row->eights; i += GROUPS_THREADS)
        amax = dev_amax8<DT>(amax, row->load(i));
    return dev_max_block(dev_amax_bits<DT>(amax));
}

/* act(i, eight) for a thread's eights. */
template <int DT, int ITEMS, typename DO>
static __device__ __forceinline__ void dev_row_each(const dev_row<DT, ITEMS> &row, const DO &act)
{
#pragma unroll
    for (int u = 0; u < ITEMS; u++)
        if (threadIdx.x + u * GROUPS_THREADS < row.eights)
            act(threadIdx.x + u * GROUPS_THREADS, row.r[u]);
    for (uint32_t i = threadIdx.x + ITEMS * GROUPS_THREADS; i < row.eights; i += GROUPS_THREADS)
        act(i, row.load(i));
}

#endif
