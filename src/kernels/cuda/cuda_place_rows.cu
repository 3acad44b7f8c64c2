/* Integer codes in any layout that has tables of bits (cuda_place.cuh) together with the scales of
 * whole rows, from values that are read once. Where a block of threads can hold eight rows of
 * 16-bit values in its shared memory (compute capability 9.0 and later), and the codes of four of
 * them, or of eight, are whole stored items of 16 bytes: Marlin's orders.
 *
 * Such a block stays for some strips of eight rows. One of its warps sends for the values, in
 * chunks of 1024 columns; each of the others finds magnitudes of rows of chunks, and, when all have
 * and the scales are known, makes codes of 128 columns at a time (cuda_place_strip.cuh). A chunk
 * whose values are all in registers takes the next strip's. Strips that run at the same time are
 * neighbours, so that a cache joins what they write. Several blocks share a multiprocessor: while
 * one waits, another works. Makes no other scales; N in multiples of 64, K of 16. Invariant: bytes
 * equal tp_encode_ref.
 */
#include "kernels/cuda/cuda_bulk.cuh"
#include "kernels/cuda/cuda_place_rows.cuh"
#include "kernels/cuda/cuda_place_strip.cuh"

#include "kernels/op/place_bits.h"

#if __CUDA_ARCH__ >= 900

struct rows_shared {
    uint64_t full[ROWS_MAX_CHUNKS], empty[ROWS_MAX_CHUNKS];
    rows_by by[ROWS_STRIP];
    uint32_t scales[ROWS_STRIP]; /* as stored */
    uint32_t rare;
    uint16_t max[ROWS_MAX_CHUNKS * ROWS_STRIP]; /* magnitudes of a chunk's rows */
};

/* A strip: its expert, its first row, and where it begins among codes. */
struct rows_strip {
    uint32_t e, n;
    uint64_t at;
};

static __device__ __forceinline__ rows_strip strip_of(const rows_args &a, uint32_t strip)
{
    const place_plane &p = a.plane[PLACE_TO];
    const uint32_t band = strip / (ROWS_BAND / ROWS_STRIP), part = strip % (ROWS_BAND / ROWS_STRIP);
    rows_strip s;
    s.e = dev_quotient(band, a.grid.by_n);
    const uint32_t n = band - s.e * a.grid.n;
    s.n = n * ROWS_BAND + sum3(a.strip_row, part);
    s.at = place_dim_at(p.e, s.e) + place_dim_at(p.n, n) + sum3(a.strip_at, part);
    return s;
}

/* A block's strip of a turn, or one beyond the last. Eight blocks share a band at a time. */
static __device__ __forceinline__ uint32_t strip_number(const rows_args &a, uint32_t turn)
{
    const uint32_t strips = ROWS_BAND / ROWS_STRIP;
    return (blockIdx.x / strips * a.run + turn) * strips + blockIdx.x % strips;
}

/* All warps but the one that fetches. */
static __device__ __forceinline__ void workers_sync(const rows_args &a)
{
    asm volatile("bar.sync %0, %1;" : : "r"(1), "r"(a.warps * 32) : "memory");
}

/* Columns of the weight in a chunk. */
static __device__ __forceinline__ uint32_t columns_of(const rows_args &a, uint32_t chunk)
{
    return min(a.k - chunk * ROWS_COLUMNS, (uint32_t)ROWS_COLUMNS);
}

/* Sends for all strips of the block, each chunk as soon as it is empty: a warp, a lane to a row. */
static __device__ __forceinline__ void fetch_strips(const rows_args &a, uint8_t *values,
                                                    rows_shared *shared)
{
    const uint32_t lane = threadIdx.x % 32, row = lane % ROWS_STRIP;
#pragma unroll 1
    for (uint32_t turn = 0; turn < a.run && strip_number(a, turn) < a.strips; turn++) {
        const rows_strip s = strip_of(a, strip_number(a, turn));
        const uint8_t *in = a.plane[PLACE_FROM].data +
                            ((uint64_t)s.e * a.n + s.n + sum3(a.own_row, row)) * a.k * 2;
#pragma unroll 1
        for (uint32_t c = 0; c < a.chunks; c++) {
            const uint32_t bytes = columns_of(a, c) * 2;
            if (turn > 0)
                barrier_wait(shared->empty + c, (turn - 1) % 2);
            if (lane == 0)
                barrier_expect(shared->full + c, bytes * ROWS_STRIP);
            __syncwarp();
            if (lane < ROWS_STRIP)
                bulk_load(values + c * ROWS_CHUNK + row * ROWS_PITCH, in + c * ROWS_PITCH, bytes,
                          shared->full + c);
        }
    }
}

/* The largest magnitudes of rows of chunks, one row at a time. */
template <int DT>
static __device__ __forceinline__ void look(const rows_args &a, uint32_t turn,
                                            const uint8_t *values, rows_shared *shared)
{
    const uint32_t lane = threadIdx.x % 32, step = 32 * PLACE_EIGHT;
#pragma unroll 1
    for (uint32_t i = threadIdx.x / 32; i < a.chunks * ROWS_STRIP; i += a.warps) {
        const uint32_t columns = columns_of(a, i / ROWS_STRIP);
        const uint8_t *in = values + i * ROWS_PITCH + lane * 16;
        uint32_t amax = 0;
        barrier_wait(shared->full + i / ROWS_STRIP, turn % 2);
#pragma unroll
        for (uint32_t j = 0; j < ROWS_COLUMNS / step; j++)
            if (j * step + lane * PLACE_EIGHT < columns) {
                const uint4 v = *(const uint4 *)(in + j * step * 2);
                amax = dev_amax<DT>(dev_amax<DT>(amax, v.x), v.y);
                amax = dev_amax<DT>(dev_amax<DT>(amax, v.z), v.w);
            }
        amax = __reduce_max_sync(0xFFFFFFFFu, max(amax & 0xFFFFu, amax >> 16));
        if (lane == 0)
            shared->max[i] = (uint16_t)amax;
    }
}

/* The scales of a strip, for all warps, by one: four lanes to a row. */
template <class KIND>
static __device__ __forceinline__ void take_scales(const rows_args &a, rows_shared *shared)
{
    const uint32_t lane = threadIdx.x % 32, row = lane % ROWS_STRIP;
    any_codec c = a.codec;
    uint32_t amax = 0;
    for (uint32_t i = lane; i < a.chunks * ROWS_STRIP; i += 32)
        amax = max(amax, (uint32_t)shared->max[i]);
    amax = max(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, 8));
    amax = max(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, 16));
    c.codec = KIND::CODEC;
    const any_scale s = scale_of(c, dev_amax_bits1<KIND::DT>(amax));
    const uint32_t stored = stored_bits<KIND::CODEC>(a, s.bits);
    rows_by by;
    const bool rare = __any_sync(0xFFFFFFFFu, !by_of<KIND::CODEC>(a, stored, &by));
    if (lane < ROWS_STRIP) {
        dev_flag_bad(a.flags, s.bad);
        shared->by[row] = by;
        shared->scales[row] = stored;
        shared->rare = rare;
    }
}

/* To their places. */
static __device__ __forceinline__ void put_scale(const rows_args &a, const rows_strip &s,
                                                 uint32_t row, uint32_t stored)
{
    const place_plane &p = a.plane[PLACE_TO_SCALE];
    const uint64_t at = place_dim_at(p.e, s.e) + place_dim_at(p.n, s.n + sum3(a.own_row, row));
    if (p.width == 32)
        ((uint32_t *)p.data)[at] = stored;
    else
        ((uint16_t *)p.data)[at] = (uint16_t)stored;
}

/* Codes of a warp's units of a strip; RARE: one of its scales is. */
template <class KIND, bool RARE>
static __device__ __forceinline__ void make_codes(const rows_args &a, const rows_lane &l,
                                                  const uint8_t *values, uint8_t *out,
                                                  rows_shared *shared)
{
    const uint32_t per = ROWS_COLUMNS / ROWS_UNIT; /* units of a chunk */
    rows_by by[KIND::ROWS];
#pragma unroll
    for (int i = 0; i < KIND::ROWS; i++)
        by[i] = shared->by[l.row + i];
#pragma unroll 1
    for (uint32_t i = threadIdx.x / 32; i < a.units; i += a.warps) {
        uint32_t words[KIND::WORDS];
        const rows_pairs v =
            load_unit<KIND>(l, values + i / per * ROWS_CHUNK + i % per * (ROWS_UNIT * 2));
        barrier_arrive(shared->empty + i / per); /* each lane for what it has read */
        if (RARE)
            rare_words<KIND>(a, l, shared->scales, v, words);
        else
            ordinary_words<KIND>(l, by, v, words);
        put_unit<KIND>(a, l, i * ROWS_UNIT, out, words);
    }
}

/* Not a part of the loop that has no registers for it. */
template <class KIND>
static __device__ __noinline__ void make_rare(const rows_args &a, const uint8_t *values,
                                              uint8_t *out, rows_shared *shared)
{
    make_codes<KIND, true>(a, lane_of<KIND>(a), values, out, shared);
}

/* All warps but the one that fetches, for all strips of the block. */
template <class KIND>
static __device__ __forceinline__ void work(const rows_args &a, const uint8_t *values,
                                            rows_shared *shared)
{
    const rows_lane l = lane_of<KIND>(a);
    uint8_t *data = a.plane[PLACE_TO].data + l.out;
#pragma unroll 1
    for (uint32_t turn = 0; turn < a.run && strip_number(a, turn) < a.strips; turn++) {
        look<KIND::DT>(a, turn, values, shared);
        workers_sync(a); /* magnitudes are known */
        if (threadIdx.x < 32)
            take_scales<KIND>(a, shared);
        workers_sync(a); /* scales are, and magnitudes have been read */
        const rows_strip s = strip_of(a, strip_number(a, turn));
        if (threadIdx.x < ROWS_STRIP)
            put_scale(a, s, threadIdx.x, shared->scales[threadIdx.x]);
        uint8_t *out = data + s.at * KIND::BITS / 8;
        if (shared->rare)
            make_rare<KIND>(a, values, out, shared);
        else
            make_codes<KIND, false>(a, l, values, out, shared);
    }
}

/* Before anything is sent for. */
static __device__ __forceinline__ void begin(const rows_args &a, rows_shared *shared)
{
    const uint32_t per = ROWS_COLUMNS / ROWS_UNIT;
    if (threadIdx.x < a.chunks) {
        barrier_begin(shared->full + threadIdx.x, 1);
        barrier_begin(shared->empty + threadIdx.x, min(a.units - threadIdx.x * per, per) * 32);
        barriers_begun();
    }
    __syncthreads();
}

#endif

template <class KIND>
static __global__ __launch_bounds__(ROWS_MAX_THREADS, 1) void
encode_strips(const __grid_constant__ struct rows_args a)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) uint8_t values[];
    __shared__ rows_shared shared;
    begin(a, &shared);
    if (threadIdx.x / 32 == a.warps)
        fetch_strips(a, values, &shared);
    else
        work<KIND>(a, values, &shared);
#endif
}

/* ---- host ------------------------------------------------------------------ */

/* What fails here is done in another way: the error is not the caller's. */
static bool is_done(cudaError_t error)
{
    if (error != cudaSuccess)
        cudaGetLastError();
    return error == cudaSuccess;
}

/* Whole runs of codes behind each other. */
static bool is_whole(const place_dim &d)
{
    for (uint32_t m = 0; m < d.modes; m++)
        if (d.size[m] != 1 && d.stride[m] % ROWS_CODES != 0)
            return false;
    return true;
}

/* From a tile to the next one, where all are as far from each other; 0: they are not. */
static uint64_t stride_of(const place_dim &d)
{
    for (uint32_t m = 0; m + 1 < d.modes; m++)
        if (d.size[m] != 1)
            return 0;
    return d.stride[d.modes - 1];
}

/* Where the codes of a strip lie: the lowest five bits are the item's, the others a table. */
static bool strips_of(const any_plane &codes, uint32_t bits, rows_args *a)
{
    place_plane &to = a->plane[PLACE_TO];
    const uint32_t pair = bits == 4 ? 2 : 1; /* which bit tells both columns of a pair */
    struct tp_tile_bits t;
    uint32_t own = 0, strips = 0;
    if (!tp_cuda_place_plane(codes, place_shape{6, 4}, &t, &to) || !is_whole(to.e) ||
        !is_whole(to.n) || !is_whole(to.k) || stride_of(to.k) == 0)
        return false;
    a->next_at = stride_of(to.k);
    for (uint32_t b = 0; b < 5; b++) {
        const uint16_t column = b == 0 ? ROWS_HIGHER / 2 : b == pair ? 1 : 0;
        if (t.bit[b].at != (uint64_t)1 << b || t.bit[b].column != column)
            return false;
        if (column == 0)
            a->own_row[own++] = t.bit[b].row;
    }
    for (uint32_t b = 5; b < t.bits; b++) {
        if (t.bit[b].at % ROWS_CODES != 0 || t.bit[b].at >> 29 != 0)
            return false;
        if (t.bit[b].column != 0) {
            a->column_at[t.bit[b].column / 4] = (uint32_t)t.bit[b].at;
        } else {
            a->strip_row[strips] = t.bit[b].row;
            a->strip_at[strips++] = (uint32_t)t.bit[b].at;
        }
    }
    return true;
}

/* Integers' quotients that are rounded twice are for other kernels. */
static bool arguments(const struct any_side &side, const struct tp_args *args, rows_args *a)
{
    const struct tp_box3 box = args->box;
    const uint32_t bits = CODE_BITS(a->codec.codec);
    const uint64_t strips = box.e * (box.n / ROWS_STRIP);
    if (box.n % ROWS_BAND != 0 || box.k <= ROWS_COLUMNS ||
        box.k > ROWS_MAX_CHUNKS * ROWS_COLUMNS || strips > 0x3FFFFFFFu ||
        ((uintptr_t)args->in[0] | (uintptr_t)side.codes.data) % 16 != 0 ||
        a->codec.rule != TP_INT4_QUOTIENT_FP32 ||
        !strips_of(side.codes, bits, a) ||
        !tp_cuda_place_scales(side.scale, bits, false, box, place_shape{0, 4},
                              &a->plane[PLACE_TO_SCALE]))
        return false;
    a->plane[PLACE_FROM].data = (uint8_t *)args->in[0];
    a->n = (uint32_t)box.n;
    a->k = (uint32_t)box.k;
    a->strips = (uint32_t)strips;
    a->chunks = (uint32_t)dev_ceil(box.k, ROWS_COLUMNS);
    a->units = (uint32_t)dev_ceil(box.k, ROWS_UNIT);
    a->grid.n = a->n / ROWS_BAND;
    a->grid.by_n = dev_reciprocal_of(a->grid.n);
    return true;
}

/* As many blocks of threads to a multiprocessor as its shared memory has room for, with no more
 * warps than it takes to share out the units as evenly. What a kernel may have at most is the same
 * for all callers, who may be several at a time. 0: they do not fit. */
static uint32_t blocks_of(const void *kernel, uint32_t bytes, uint32_t *warps, uint32_t units)
{
    int device = 0, major = 0, max = 0, blocks = 0, processors = 0;
    if (!is_done(cudaGetDevice(&device)) ||
        !is_done(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)) ||
        major < 9 ||
        !is_done(cudaDeviceGetAttribute(&max, cudaDevAttrMaxSharedMemoryPerBlockOptin, device)) ||
        !is_done(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)) ||
        !is_done(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      min(max - ROWS_OTHER,
                                          (int)ROWS_MAX_CHUNKS * ROWS_CHUNK))) ||
        !is_done(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                      cudaSharedmemCarveoutMaxShared)))
        return 0;
    for (uint32_t share = ROWS_MAX_BLOCKS; share > 0; share--) {
        const uint32_t capacity = ROWS_MAX_THREADS / 32 / share - 1;
        *warps = (uint32_t)dev_ceil(units, dev_ceil(units, capacity));
        if (is_done(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                &blocks, kernel, (int)(*warps + 1) * 32, bytes)) &&
            blocks >= (int)share)
            return (uint32_t)(blocks * processors);
    }
    return 0;
}

/* Strips of a block: few, as those of a band should not drift apart, and blocks that begin later
 * fill up what slower multiprocessors leave; more where they are short. */
static uint32_t run_of(const rows_args &a, uint32_t resident)
{
    const uint32_t run = (uint32_t)dev_ceil(ROWS_RUN, a.chunks), max = a.strips / resident;
    return run < max ? run : max;
}

/* False: nothing is enqueued. Few strips would not keep the device busy. */
template <class KIND>
static bool launch_kind(const place_encode &from, const struct any_side &side,
                        const struct tp_args *args)
{
    const void *kernel = (const void *)encode_strips<KIND>;
    rows_args a;
    memset(&a, 0, sizeof a);
    (struct place_encode &)a = from;
    if (!arguments(side, args, &a))
        return false;
    const uint32_t bytes = a.chunks * ROWS_CHUNK;
    const uint32_t resident = blocks_of(kernel, bytes, &a.warps, a.units);
    if (resident == 0 || a.strips < resident)
        return false;
    a.run = run_of(a, resident);
    const uint32_t shared = ROWS_BAND / ROWS_STRIP;
    const uint32_t blocks = (uint32_t)dev_ceil(a.strips / shared, a.run) * shared;
    encode_strips<KIND><<<blocks, (a.warps + 1) * 32, bytes, (cudaStream_t)args->stream>>>(a);
    return true;
}

/* fp32 values would take twice the room; no format has FP8 codes in such an order with scales that
 * a GPU computes. */
template <int DT>
static void launch_codec(const place_encode &a, const struct any_side &side,
                         const struct tp_args *args, bool *done)
{
    if constexpr (!TP_IS32(DT)) {
        if (a.codec.codec == TP_CODEC_INT4)
            *done = launch_kind<rows_kind<TP_CODEC_INT4, DT>>(a, side, args);
        else if (a.codec.codec == TP_CODEC_INT8)
            *done = launch_kind<rows_kind<TP_CODEC_INT8, DT>>(a, side, args);
    }
}

bool tp_cuda_place_rows_once(const struct place_encode &a, const struct any_side &side,
                             const struct tp_args *args)
{
    bool done = false;
    DEV_BY_DTYPE(args->dtype, launch_codec, a, side, args, &done);
    return done;
}
