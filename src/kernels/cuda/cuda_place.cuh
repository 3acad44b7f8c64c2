/* What the kernels for every layout share (cuda_place.cu, cuda_place_move.cu): tiles of 128 rows
 * by 128 columns, which are staged in shared memory in rows and go to their places, or come from
 * them, as whole words in the order of storage.
 *
 * The places are tables of bits (kernels/op/place_bits.h): a thread's number gives the lower bits
 * of a word's number, its turn the upper ones, so that neighbouring threads have neighbouring
 * words. The tables travel as a kernel argument. Knows no codec.
 */
#ifndef TP_KERNELS_CUDA_PLACE_CUH
#define TP_KERNELS_CUDA_PLACE_CUH

#include "kernels/cuda/cuda_any.cuh"

enum {
    PLACE_SIDE_LOG2 = 7,
    PLACE_SIDE = 1 << PLACE_SIDE_LOG2, /* rows and columns of a tile */
    PLACE_THREADS = 256,
    PLACE_THREAD_BITS = 8,
    PLACE_TURNS = 16,           /* most words of a thread in a tile */
    PLACE_MODES = 4,            /* most modes that tiles go through */
    PLACE_PITCH = PLACE_SIDE + 4, /* bytes of a staged row: neighbouring rows, other banks */
    PLACE_PACKED_PITCH = PLACE_SIDE / 2 + 4, /* the same of codes that are staged as stored */
    PLACE_STAGE = PLACE_SIDE * PLACE_PITCH / 4, /* words of a staged tile */
    PLACE_SCALES = PLACE_SIDE * PLACE_SIDE / 16, /* most scales of a tile */
};

/* Where tiles begin along one dimension. */
struct place_dim {
    uint32_t modes, size[PLACE_MODES];
    uint64_t stride[PLACE_MODES];
};

/* How the codes of a tile are staged: words as they are stored (nibbles of neighbours in a row), a
 * byte each where words hold neighbours in a row, and a byte each. */
enum place_stage { PLACE_PACKED, PLACE_RUN, PLACE_BYTES };

/* One output or input. Its items: words of 32 bits of codes, four of them where those are
 * neighbours in a row, too (`wide`), or single scales. Their coordinates are packed:
 * row * 65536 + column, of a scale counted in scales. */
struct place_plane {
    uint8_t *data; /* NULL: absent */
    uint32_t width;         /* bits of an element: 4, 8; of a scale 8, 16, 32 */
    uint32_t rows, columns; /* of an expert; of a scale counted in scales */
    uint32_t count;         /* items of a tile */
    uint32_t log2_rows, log2_columns; /* of a tile */
    uint32_t low_at[PLACE_THREAD_BITS], low_rc[PLACE_THREAD_BITS];
    uint32_t high_at[PLACE_TURNS], high_rc[PLACE_TURNS];
    uint32_t high_in[PLACE_TURNS]; /* codes: as high_rc, in bytes of the stage */
    uint32_t in[8]; /* codes of a word: bytes of the stage from the first one's */
    uint32_t pitch; /* bytes of a staged row */
    uint32_t stage; /* enum place_stage */
    bool wide;
    uint64_t expert;
    struct place_dim n, k;
};

/* An item of a thread: its place in a tile, in items, and its coordinates. */
struct place_item {
    uint32_t at, rc;
};

/* Tile (n, k) of expert e. */
struct place_tile {
    uint32_t e, n, k;
};

/* Tiles of some rows of tiles, counted through all experts; those along N first where that is how
 * they are stored. */
struct place_grid {
    uint32_t count;       /* of tiles: rows * k */
    uint32_t first, rows; /* rows of tiles */
    uint32_t n, k;        /* tiles of an expert */
    bool n_first;
};

/* Tables for an output of codes or scales that was evaluated before (tp_cuda_any_side()). False:
 * its layout, or the weight's size, is not for these kernels. `packed`: codes may be staged so. */
bool tp_cuda_place_codes(const struct any_plane &from, struct tp_box3 box, bool packed,
                         place_plane *plane);
bool tp_cuda_place_scales(const struct any_plane &from, struct tp_box3 box, place_plane *plane);

/* All tiles of a box, in the order of `plane`; count is 0 if there are too many. */
struct place_grid tp_cuda_place_grid(struct tp_box3 box, const place_plane &plane);

/* Blocks of threads that keep the current device busy with tiles, each with so many on a
 * multiprocessor. */
uint32_t tp_cuda_place_blocks(const void *kernel, const place_grid &grid);

static __device__ __forceinline__ place_tile place_tile_of(const place_grid &g, uint32_t i)
{
    const uint32_t by = g.n_first ? g.rows : g.k, rest = i / by;
    const uint32_t row = g.first + (g.n_first ? i - rest * by : rest);
    place_tile t;
    t.k = g.n_first ? rest : i - rest * by;
    t.e = row / g.n;
    t.n = row - t.e * g.n;
    return t;
}

static __device__ __forceinline__ uint64_t place_dim_at(const place_dim &d, uint32_t x)
{
    uint64_t at = 0;
#pragma unroll 1
    for (uint32_t m = 0; m + 1 < d.modes; m++) {
        const uint32_t rest = x / d.size[m];
        at += (x - rest * d.size[m]) * d.stride[m];
        x = rest;
    }
    return at + x * d.stride[d.modes - 1];
}

/* Where a tile begins, in items. */
static __device__ __forceinline__ uint64_t place_base(const place_plane &p, const place_tile &t)
{
    return t.e * p.expert + place_dim_at(p.n, t.n) + place_dim_at(p.k, t.k);
}

/* A thread's first item. */
static __device__ __forceinline__ place_item place_first(const place_plane &p)
{
    place_item item = {0, 0};
#pragma unroll
    for (int b = 0; b < PLACE_THREAD_BITS; b++)
        if (threadIdx.x >> b & 1) {
            item.at += p.low_at[b];
            item.rc += p.low_rc[b];
        }
    return item;
}

/* The item of a turn; false: there is none, or it lies beyond the weight. */
static __device__ __forceinline__ bool place_turn(const place_plane &p, const place_item &first,
                                                  const place_tile &t, uint32_t turn,
                                                  place_item *item)
{
    item->at = first.at + p.high_at[turn];
    item->rc = first.rc + p.high_rc[turn];
    return turn * PLACE_THREADS + threadIdx.x < p.count &&
           (t.n << p.log2_rows) + (item->rc >> 16) < p.rows &&
           (t.k << p.log2_columns) + (item->rc & 0xFFFFu) < p.columns;
}

/* Turns of a tile. */
static __device__ __forceinline__ uint32_t place_turns(const place_plane &p)
{
    return (p.count + PLACE_THREADS - 1) / PLACE_THREADS;
}

/* Four nibbles to a byte each, and back. */
static __device__ __forceinline__ uint32_t place_spread(uint32_t nibbles)
{
    uint32_t x = nibbles & 0xFFFFu;
    x = (x | x << 8) & 0x00FF00FFu;
    return (x | x << 4) & 0x0F0F0F0Fu;
}

static __device__ __forceinline__ uint32_t place_join(uint32_t low, uint32_t high)
{
    return __byte_perm(low | low >> 4, high | high >> 4, 0x6420);
}

/* The staged word that holds byte (row, column), of a stage with a byte for each code. */
static __device__ __forceinline__ uint32_t place_staged(uint32_t row, uint32_t column)
{
    return row * (PLACE_PITCH / 4) + column / 4;
}

/* The byte of the stage where an item begins. */
static __device__ __forceinline__ uint32_t place_in(const place_plane &p, uint32_t rc)
{
    return (rc >> 16) * p.pitch + (rc & 0xFFFFu) / (p.stage == PLACE_PACKED ? 2 : 1);
}

/* A word of codes as it is stored, from the stage. */
template <int BITS, int STAGE>
static __device__ __forceinline__ uint32_t place_gather(const place_plane &p, const uint8_t *b)
{
    const uint32_t *w = (const uint32_t *)b;
    if constexpr (STAGE == PLACE_PACKED || (STAGE == PLACE_RUN && BITS == 8)) {
        return w[0];
    } else if constexpr (STAGE == PLACE_RUN) {
        return place_join(w[0], w[1]);
    } else {
        uint32_t word = 0;
#pragma unroll
        for (int i = 32 / BITS - 1; i >= 0; i--)
            word = word * (1u << BITS) + b[p.in[i]];
        return word;
    }
}

/* The inverse: a stored word to the stage. */
template <int BITS>
static __device__ __forceinline__ void place_scatter(const place_plane &p, uint8_t *b,
                                                     uint32_t word)
{
    if (p.stage == PLACE_PACKED || (p.stage == PLACE_RUN && BITS == 8)) {
        *(uint32_t *)b = word;
        return;
    }
    if (BITS == 4 && p.stage == PLACE_RUN) {
        ((uint32_t *)b)[0] = place_spread(word);
        ((uint32_t *)b)[1] = place_spread(word >> 16);
        return;
    }
#pragma unroll
    for (int i = 0; i < 32 / BITS; i++)
        b[p.in[i]] = (uint8_t)(word >> BITS * i & ((1u << BITS) - 1));
}

/* Whether all items of a tile lie within the weight, and every thread has one in every turn. */
static __device__ __forceinline__ bool place_full(const place_plane &p, const place_tile &t)
{
    return (t.n + 1) << p.log2_rows <= p.rows && (t.k + 1) << p.log2_columns <= p.columns &&
           p.count % PLACE_THREADS == 0;
}

/* QUICK: the tile is full, and codes change by an exclusive or alone. */
template <bool QUICK>
static __device__ __forceinline__ uint32_t place_map(const dev_map &map, uint32_t word)
{
    return QUICK ? word ^ (map.before ^ map.after) : dev_map_word(word, map);
}

template <int BITS, int STAGE, bool QUICK>
static __device__ __forceinline__ void place_put_as(const place_plane &p, const place_item &first,
                                                    const place_tile &t, const uint8_t *stage,
                                                    const dev_map &map)
{
    const uint64_t base = place_base(p, t);
    const uint32_t in = place_in(p, first.rc), turns = place_turns(p);
    const int step = STAGE == PLACE_PACKED ? 4 : 32 / BITS; /* bytes of a staged word */
#pragma unroll(QUICK ? 4 : 1)
    for (uint32_t i = 0; i < turns; i++) {
        place_item item = {first.at + p.high_at[i], 0};
        if (!QUICK && !place_turn(p, first, t, i, &item))
            continue;
        const uint8_t *b = stage + in + p.high_in[i];
        if (STAGE != PLACE_BYTES && p.wide) {
            uint32_t w[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                w[j] = place_map<QUICK>(map, place_gather<BITS, STAGE>(p, b + j * step));
            ((uint4 *)p.data)[base + item.at] = make_uint4(w[0], w[1], w[2], w[3]);
        } else {
            ((uint32_t *)p.data)[base + item.at] =
                place_map<QUICK>(map, place_gather<BITS, STAGE>(p, b));
        }
    }
}

/* All words of a tile from the stage to memory, through the map. */
template <int BITS, int STAGE>
static __device__ __forceinline__ void place_put(const place_plane &p, const place_item &first,
                                                 const place_tile &t, const uint32_t *stage,
                                                 const dev_map &map)
{
    if (place_full(p, t) && map.kind == 0)
        place_put_as<BITS, STAGE, true>(p, first, t, (const uint8_t *)stage, map);
    else
        place_put_as<BITS, STAGE, false>(p, first, t, (const uint8_t *)stage, map);
}

/* Asks for bytes that will be read soon. */
static __device__ __forceinline__ void place_ask(const void *at)
{
    asm volatile("prefetch.global.L2 [%0];" : : "l"(at));
}

/* The place of a scale in the shared memory that holds those of a tile. */
static __device__ __forceinline__ uint32_t place_scale(const place_plane &p, uint32_t rc)
{
    return (rc >> 16) << p.log2_columns | (rc & 0xFFFFu);
}

static __device__ __forceinline__ uint32_t place_bits_at(const place_plane &p, uint64_t at)
{
    if (p.width == 8)
        return p.data[at];
    return p.width == 16 ? ((const uint16_t *)p.data)[at] : ((const uint32_t *)p.data)[at];
}

/* All scales of a tile from memory. */
static __device__ __forceinline__ void place_take_scales(const place_plane &p,
                                                         const place_item &first,
                                                         const place_tile &t, uint32_t *scales)
{
    const uint64_t base = place_base(p, t);
#pragma unroll 1
    for (uint32_t i = 0; i < place_turns(p); i++) {
        place_item item;
        if (place_turn(p, first, t, i, &item))
            scales[place_scale(p, item.rc)] = place_bits_at(p, base + item.at);
    }
}

/* And to memory. */
static __device__ __forceinline__ void place_put_scales(const place_plane &p,
                                                        const place_item &first,
                                                        const place_tile &t,
                                                        const uint32_t *scales)
{
    const uint64_t base = place_base(p, t);
#pragma unroll 1
    for (uint32_t i = 0; i < place_turns(p); i++) {
        place_item item;
        if (!place_turn(p, first, t, i, &item))
            continue;
        const uint32_t bits = scales[place_scale(p, item.rc)];
        if (p.width == 8)
            p.data[base + item.at] = (uint8_t)bits;
        else if (p.width == 16)
            ((uint16_t *)p.data)[base + item.at] = (uint16_t)bits;
        else
            ((uint32_t *)p.data)[base + item.at] = bits;
    }
}

#endif
