/* Codes from one layout to another where items of 16 bytes stay as they are: rows that change
 * places, and columns of blocks. A block of threads has one tile, and a thread reads and writes
 * items of its own in the order in which they are written, so that nothing waits for other threads
 * but for where the tile lies.
 *
 * Scales go the same way where they are stored alike; cuda_place_move.cu has codes that are
 * exchanged. Invariant: bytes equal tp_repack_ref.
 */
#include "kernels/cuda/cuda_place.cuh"

/* Items of a thread; those of more blocks at a time than these disturb each other in memory. */
enum { CARRY_TURNS = 4, CARRY_BLOCKS = 4 };

template <bool FULL>
static __device__ __forceinline__ void load_codes(const place_job &a, const place_item &first,
                                                  const place_spot &s, uint4 (&v)[CARRY_TURNS])
{
    const place_plane &p = a.plane[PLACE_FROM];
    const uint8_t *in = p.data + (s.base[PLACE_FROM] + first.at) * 16;
#pragma unroll
    for (int i = 0; i < CARRY_TURNS; i++)
        if (place_inside<FULL>(a, s, first.rc + p.high_rc[i]))
            v[i] = dev_load16(in + p.high_at[i] * 16ull);
}

template <bool FULL>
static __device__ __forceinline__ void store_codes(const place_job &a, const place_item &first,
                                                   const place_spot &s,
                                                   const uint4 (&v)[CARRY_TURNS])
{
    const place_plane &p = a.plane[PLACE_TO];
    const uint32_t flip = a.map.before ^ a.map.after;
    uint8_t *out = p.data + (s.base[PLACE_TO] + first.at) * 16;
#pragma unroll
    for (int i = 0; i < CARRY_TURNS; i++)
        if (place_inside<FULL>(a, s, first.rc + p.high_rc[i]))
            *(uint4 *)(out + p.high_at[i] * 16ull) =
                make_uint4(v[i].x ^ flip, v[i].y ^ flip, v[i].z ^ flip, v[i].w ^ flip);
}

/* A thread's scales that wait in registers, to memory. */
struct carry_put_scales {
    const uint32_t (&bits)[PLACE_SCALE_TURNS];

    template <typename T>
    __device__ __forceinline__ void operator()(const place_plane &, uint32_t turn, T *at) const
    {
        *at = (T)bits[turn];
    }
};

template <bool FULL>
static __device__ __forceinline__ void carry_tile(const place_job &a, const place_sums &sums,
                                                  const place_spot &s)
{
    uint4 codes[CARRY_TURNS];
    uint32_t scales[PLACE_SCALE_TURNS];
    load_codes<FULL>(a, place_first(sums, SUM_FROM_AT), s, codes);
    place_scales(a.plane[PLACE_FROM_SCALE], place_first(sums, SUM_FROM_SCALE_AT), s,
                 s.base[PLACE_FROM_SCALE], place_get_scales{scales});
    store_codes<FULL>(a, place_first(sums, SUM_TO_AT), s, codes);
    place_scales(a.plane[PLACE_TO_SCALE], place_first(sums, SUM_TO_SCALE_AT), s,
                 s.base[PLACE_TO_SCALE], carry_put_scales{scales});
}

static __global__ __launch_bounds__(PLACE_THREADS, CARRY_BLOCKS) void
carry_placed(const __grid_constant__ struct place_job a)
{
    __shared__ place_sums sums;
    __shared__ place_spot spot;
    place_count(a, &sums);
    place_look(a, blockIdx.x, 1, &spot);
    __syncthreads();
    if (spot.full)
        carry_tile<true>(a, sums, spot);
    else
        carry_tile<false>(a, sums, spot);
}

/* ---- host ---------------------------------------------------------------- */

bool tp_cuda_carry_arguments(const any_plane &from, const any_plane &to, struct tp_box3 box,
                             place_job *a)
{
    static const struct place_shape shapes[2][2] = {{{6, 9}, {7, 8}}, {{6, 8}, {7, 7}}};
    const uint32_t bits = tp_element_bits((enum tp_element)from.element);
    const struct place_pair pair = {&from, &to, 1, 1, 128 / bits};
    for (const struct place_shape &shape : shapes[bits == 8]) {
        if (a->map.kind != 0 || box.k >> shape.columns == 0 ||
            !tp_cuda_place_pair(pair, box, shape, &a->plane[PLACE_FROM], &a->plane[PLACE_TO]))
            continue;
        a->shape = shape;
        a->n = (uint32_t)box.n;
        a->k = (uint32_t)box.k;
        return true;
    }
    return false;
}

bool tp_cuda_carry_scales(const any_plane &from, const any_plane &to, struct tp_box3 box,
                          place_job *a)
{
    const uint32_t bits = tp_element_bits((enum tp_element)from.element);
    place_plane *planes[2] = {&a->plane[PLACE_FROM_SCALE], &a->plane[PLACE_TO_SCALE]};
    for (uint32_t per = 32 / bits; per > 0; per /= 2) {
        const struct place_pair pair = {&from, &to, from.per_n, from.per_k, per};
        if (tp_cuda_place_pair(pair, box, a->shape, planes[0], planes[1]) &&
            planes[0]->count <= PLACE_SCALES)
            return true;
    }
    *planes[0] = *planes[1] = place_plane{};
    return false;
}

void tp_cuda_carry(const place_job &a, cudaStream_t stream)
{
    carry_placed<<<a.grid.count, PLACE_THREADS, 0, stream>>>(a);
}
