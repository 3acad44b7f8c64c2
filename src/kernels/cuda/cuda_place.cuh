/* Kernels for every layout: how codes get from the order in which they come to the order in which
 * they are stored, without a kernel of its own for each layout.
 *
 *     memory          registers of 256 threads        shared memory       memory
 *     (source)        (words of 32 bits)              (the stage)         (as stored)
 *
 *     +--------+  1   t0: w0 w1 .. w7   2   t0: w0 .. w7    3   +-------+   4   +--------+
 *     | a tile | ---> t1: w0 w1 .. w7  ---> t1: w0 .. w7   ---> | words | --->  | a tile |
 *     +--------+      ...                   ...                 +-------+       +--------+
 *
 * 1. A thread reads words that lie together in the source (cuda_place.cu makes codes of values).
 * 2. It exchanges codes among its own words (place_step) until each word holds codes that are
 *    neighbours where they are to be stored.
 * 3. The threads write their words to shared memory, in the order of storage,
 * 4. and read them from there so that threads side by side write bytes side by side.
 *
 * A table of bits says where each code is. Take a tile of two rows and four columns, code (n, k)
 * with number n * 4 + k, stored column by column, at k * 2 + n:
 *
 *     bit of the number   is         moves the code, where it comes from    where it is stored
 *     0                   k & 1      by 1                                   by 2
 *     1                   k & 2      by 2                                   by 4
 *     2                   n & 1      by 4                                   by 1
 *
 * Code 6 = 4 + 2 (n = 1, k = 2) is stored at 1 + 4 = 5. A thread adds up the distances of the bits
 * that its own number has once (place_sums); those of its registers are constants (high_at). If a
 * word held two codes, bit 0 would be within a word on the left and bit 2 on the right: an exchange
 * between registers whose codes differ in bit 2 makes one kind of word of the other.
 *
 * What the kernels share (cuda_place.cu, cuda_place_rows.cu, cuda_place_move.cu,
 * cuda_place_carry.cu): tiles of 64 or 128 rows by 128 to 512 columns of codes, which threads hold
 * in words of registers, exchange within themselves until each word holds codes that are neighbours
 * where they are to be stored, and pass through shared memory in the order of storage. Knows no
 * codec.
 *
 * The places are tables of bits (kernels/op/place_bits.h): each bit of a code's row or column is a
 * bit of its place in a word, of a register, or of a thread's number, and moves the code by a
 * distance of its own in memory. Sums (in shared memory exclusive ors, so that the bits of a bank
 * can be mixed) of the bits that a thread's number has are found once, by the warps of a block
 * together, those of registers are tables. The tables travel as a kernel argument;
 * cuda_place_args.cu and cuda_place_hand.cu make them.
 */
#ifndef TP_KERNELS_CUDA_PLACE_CUH
#define TP_KERNELS_CUDA_PLACE_CUH

#include "kernels/cuda/cuda_any.cuh"

enum {
    PLACE_MAX_BITS = 15, /* of the number of a code in a tile */
    PLACE_THREADS = 256,
    PLACE_THREAD_BITS = 8,
    PLACE_TURNS = 16, /* most items of a thread in a tile */
    PLACE_MODES = 4,  /* most modes that tiles go through */
    PLACE_WORDS = 8,  /* registers of codes that are exchanged with each other: a round */
    PLACE_STEPS = 6,  /* most exchanges */
    PLACE_SCALES = 1024, /* most items of scales of a tile, of codes of four bits */
    PLACE_SCALE_TURNS = PLACE_SCALES / PLACE_THREADS,
    PLACE_PLANES = 4,
    PLACE_AHEAD = 32 / PLACE_PLANES, /* tiles whose places a warp finds at a time */
    PLACE_EIGHT = 8, /* values of an item */
};

/* Rows and columns of a tile, as powers of two. */
struct place_shape {
    uint32_t rows, columns;
};

/* Where values become codes, or codes values. */
static const struct place_shape place_square = {7, 7};
enum { PLACE_EIGHTS = 128 * 128 / PLACE_EIGHT / PLACE_THREADS }; /* of a thread */

/* Where tiles begin along one dimension. */
struct place_dim {
    uint32_t modes, size[PLACE_MODES];
    struct dev_reciprocal by[PLACE_MODES];
    uint64_t stride[PLACE_MODES];
};

/* One output or input. Its items: words of 32 bits of codes, four of them where those lie side by
 * side (`wide`), eight values, or single scales. Their coordinates are packed: row * 65536 +
 * column, of a scale counted in scales. Scales are items of 32 bits where so many neighbours of a
 * row lie side by side in all planes. */
struct place_plane {
    uint8_t *data; /* NULL: absent */
    uint32_t width;         /* bits of an element: 4, 8; of an item of scales 8, 16, 32 */
    uint32_t rows, columns; /* of an expert; of a scale counted in scales */
    uint32_t count;         /* items of a tile */
    uint32_t log2_rows, log2_columns; /* of a tile, in scales where they are counted */
    uint32_t log2_per_n, log2_per_k;  /* rows and columns of codes of one scale */
    uint32_t low_at[PLACE_THREAD_BITS], low_rc[PLACE_THREAD_BITS];
    uint32_t high_at[PLACE_TURNS], high_rc[PLACE_TURNS];
    uint32_t low_in[PLACE_THREAD_BITS], high_in[PLACE_TURNS]; /* bytes of the stage */
    bool wide;
    struct place_dim e, n, k;
};

/* The codes of registers whose numbers differ in bit `bit` change places: those whose place in a
 * word has one bit set in the first with those that have it not in the second. */
struct alignas(8) place_step {
    uint16_t low, high; /* bytes of both words, as __byte_perm() takes them, for either */
    uint16_t bit;
    bool nibbles; /* neighbouring nibbles instead */
};

/* From words in the order of a source to words as they are stored, and where those go in the
 * stage: words of registers by their number, of codes of a byte eight and eight. */
struct place_hand {
    uint32_t steps;
    uint32_t wide; /* words of neighbouring registers that lie side by side in the stage: 1, 2, 4 */
    struct place_step step[PLACE_STEPS];
    uint32_t low_in[PLACE_THREAD_BITS], high_in[PLACE_TURNS]; /* bytes of the stage */
};

/* An item of a thread: its place in a tile, in items, and its coordinates. */
struct place_item {
    uint32_t at, rc;
};

/* Tile (n, k) of expert e. */
struct place_tile {
    uint32_t e, n, k;
};

/* Tiles in rows of tiles, counted through all experts; those along N first where that is how they
 * are stored. */
struct place_grid {
    uint32_t count; /* of tiles: rows * k */
    uint32_t rows;  /* of tiles */
    uint32_t n, k;  /* tiles of an expert */
    bool n_first;
    struct dev_reciprocal by_n, by_inner; /* by n; by rows or k, whichever comes first */
};

/* What the bits of a thread's number add up to, of items (places and coordinates), or are joined
 * to by exclusive ors, of bytes in shared memory. */
enum place_sum {
    SUM_FROM_AT,
    SUM_FROM_RC,
    SUM_TO_AT,
    SUM_TO_RC,
    SUM_FROM_SCALE_AT,
    SUM_FROM_SCALE_RC,
    SUM_TO_SCALE_AT,
    SUM_TO_SCALE_RC,
    SUM_FIRST_IN,
    SUM_HAND_IN = SUM_FIRST_IN,
    SUM_TO_IN,
    SUM_FROM_SCALE_IN,
    SUM_TO_SCALE_IN,
    SUM_VALUE_SCALE_IN,
    PLACE_SUMS = 2 * SUM_FIRST_IN
};

/* Codes, or values that they become; their scales; what they come from; its scales. */
enum place_plane_name { PLACE_TO, PLACE_TO_SCALE, PLACE_FROM, PLACE_FROM_SCALE };

struct place_job {
    struct place_shape shape;
    struct place_plane plane[PLACE_PLANES];
    struct place_hand hand;
    struct place_grid grid;
    uint32_t low_scale[PLACE_THREAD_BITS], high_scale[PLACE_TURNS]; /* of eights of values: bytes
                                                                       of shared scales */
    uint32_t scale_bytes; /* of a scale there: 4 where they are read one by one */
    uint2 low[PLACE_SUMS][PLACE_THREAD_BITS / 2]; /* see place_sum */
    uint32_t n, k; /* of an expert */
    dev_map map;   /* of codes as they come to codes as they go */
};

/* A tile, and where it begins in every plane, in items. */
struct place_spot {
    uint64_t base[PLACE_PLANES];
    uint32_t n, k; /* its first row and column */
    bool full;     /* all of it lies within the weight */
};

/* Words of codes that a thread exchanges among themselves: its share of a tile, or (codes of a
 * byte) half of it, a round. */
struct place_words {
    uint32_t w[PLACE_WORDS];
};

/* The sums of all threads: of the bits of a lane's number, and of those of a warp's. */
struct place_sums {
    alignas(16) uint32_t lanes[32][PLACE_SUMS + 4]; /* so that lanes meet in no bank */
    alignas(16) uint32_t warps[PLACE_THREADS / 32][PLACE_SUMS];
};

/* What a block of threads shares of a tile; of blocks with many tiles two of each, so that one tile
 * is written while the next one comes. The stages are one behind the other: `other` is the bit
 * between them. */
template <int BITS, int ROUNDS, int STAGES = 2> struct place_shared {
    static const uint32_t other = ROUNDS * PLACE_WORDS * PLACE_THREADS * 4;
    alignas(16) uint8_t stage[STAGES * other];
    uint32_t scales[STAGES][PLACE_SCALES * 4 / BITS]; /* with codes of a byte blocks are of 32 */
    place_spot spots[STAGES == 1 ? 1 : 2 * PLACE_AHEAD];
    place_sums sums;
};

/* What is written and read, for the host. Values lie in rows, codes as their layout says. */
enum place_way { PLACE_ENCODE, PLACE_REPACK, PLACE_DECODE };

/* A plane of single elements without its tables: where its tiles begin, and the bits of a tile.
 * False: its layout is not for these kernels. */
struct tp_tile_bits;
bool tp_cuda_place_plane(const struct any_plane &from, struct place_shape shape,
                         struct tp_tile_bits *bits, place_plane *plane);

/* Tables for codes (or values in rows) from one plane to another, in `job`: `from` and `to` where
 * codes are, `values` at the other side. False: a layout, or the weight's size, is not for these
 * kernels. `block`: columns that share a scale. *join, *lanes: see place_encode. */
struct place_ends {
    enum place_way way;
    const struct any_plane *from, *to; /* of codes; NULL: values */
    uint8_t *values;
    struct tp_box3 box;
    uint64_t block;
};
bool tp_cuda_place_codes(const struct place_ends &ends, place_job *job, uint32_t *join,
                         uint32_t *lanes);
/* The scales of codes of so many bits: 48 KB of shared memory have room for one for each 16 codes
 * of four bits, or 32 of eight. `in_words`: in items of 32 bits, for scales that nobody
 * reads one by one. False: more, or a layout that is not for these kernels. */
bool tp_cuda_place_scales(const struct any_plane &from, uint32_t code_bits, bool in_words,
                          struct tp_box3 box, struct place_shape shape, place_plane *plane);

/* Where scales wait in shared memory, when all else is known; both planes have items of one size.
 * `values`: the plane of eights of values that need single scales, or NULL. */
void tp_cuda_place_wait(const place_plane *values, place_job *job);

/* What threads need of all tables above, when they are made. */
void tp_cuda_place_sums(place_job *job);

/* One kind of items on both sides: `per` elements side by side, each for per_n rows and per_k
 * columns. */
struct place_pair {
    const struct any_plane *from, *to;
    uint64_t per_n, per_k, per;
};
/* Tables for items that stay as they are, of both planes in the order of `to`. False: they do not,
 * or a layout is not for these kernels. */
bool tp_cuda_place_pair(const struct place_pair &pair, struct tp_box3 box,
                        struct place_shape shape, place_plane *from, place_plane *to);

/* cuda_place_carry.cu: whole items of 16 bytes that change places. The arguments; *job has its
 * map. False: something else changes, or a layout or the weight's size is not for that kernel. */
bool tp_cuda_carry_arguments(const struct any_plane &from, const struct any_plane &to,
                             struct tp_box3 box, place_job *job);
/* The scales of the same tiles, which are stored alike. False, and none: as above. */
bool tp_cuda_carry_scales(const struct any_plane &from, const struct any_plane &to,
                          struct tp_box3 box, place_job *job);
void tp_cuda_carry(const place_job &job, cudaStream_t stream);

/* All tiles of a box; count is 0 if there are too many. `n_first`: those along N first. */
struct place_grid tp_cuda_place_grid(struct tp_box3 box, struct place_shape shape, bool n_first);

/* Whether tiles that follow each other along N lie nearer in a plane than those along K. */
static inline bool place_n_first(const place_plane &p)
{
    return p.n.stride[0] <= p.k.stride[0];
}

/* Blocks of threads that keep the current device busy with tiles: as many as its multiprocessors
 * hold, or (`run` is not 0) so many that none has more than `run` tiles, where that is more: those
 * that begin later fill up what slower multiprocessors leave, and what is read at a time stays
 * nearer together, for the price of finding out a thread's first items again. */
uint32_t tp_cuda_place_blocks(const void *kernel, const place_grid &grid, uint32_t run);

static __device__ __forceinline__ place_tile place_tile_of(const place_grid &g, uint32_t i)
{
    const uint32_t by = g.n_first ? g.rows : g.k, rest = dev_quotient(i, g.by_inner);
    const uint32_t row = g.n_first ? i - rest * by : rest;
    place_tile t;
    t.k = g.n_first ? rest : i - rest * by;
    t.e = dev_quotient(row, g.by_n);
    t.n = row - t.e * g.n;
    return t;
}

static __device__ __forceinline__ uint64_t place_dim_at(const place_dim &d, uint32_t x)
{
    uint64_t at = 0;
#pragma unroll 1
    for (uint32_t m = 0; m + 1 < d.modes; m++) {
        const uint32_t rest = dev_quotient(x, d.by[m]);
        at += (x - rest * d.size[m]) * d.stride[m];
        x = rest;
    }
    return at + x * d.stride[d.modes - 1];
}

/* Finds out where a block's next tiles lie, from tile `first` on, PLACE_AHEAD or fewer: one plane
 * of one tile a lane, so that a warp's divisions are for many tiles. Known to all after the next
 * barrier. */
static __device__ __forceinline__ void place_look(const place_job &a, uint32_t first,
                                                  uint32_t tiles, place_spot *spots)
{
    const uint32_t j = threadIdx.x % PLACE_PLANES, ahead = threadIdx.x / PLACE_PLANES;
    const uint32_t i = first + ahead * gridDim.x;
    if (ahead >= tiles || i >= a.grid.count)
        return;
    const place_tile t = place_tile_of(a.grid, i);
    const place_plane &p = a.plane[j];
    place_spot *spot = spots + ahead;
    if (p.data != NULL)
        spot->base[j] =
            place_dim_at(p.e, t.e) + place_dim_at(p.n, t.n) + place_dim_at(p.k, t.k);
    if (j != 0)
        return;
    spot->n = t.n << a.shape.rows;
    spot->k = t.k << a.shape.columns;
    spot->full = (t.n + 1) << a.shape.rows <= a.n && (t.k + 1) << a.shape.columns <= a.k;
}

/* The tile of a turn of the block. */
static __device__ __forceinline__ const place_spot &place_spot_of(const place_spot *spots,
                                                                  uint32_t turn)
{
    return spots[turn % (2 * PLACE_AHEAD)];
}

/* Before the barrier of every turn, whose tile is i: the places of those that come after the ones
 * known. The last user of what is overwritten is behind the barrier of the turn before. */
static __device__ __forceinline__ void place_look_ahead(const place_job &a, uint32_t i,
                                                        uint32_t turn, place_spot *spots)
{
    if (turn % PLACE_AHEAD == 1)
        place_look(a, i + (PLACE_AHEAD - 1) * gridDim.x, PLACE_AHEAD,
                   spots + (turn / PLACE_AHEAD + 1) % 2 * PLACE_AHEAD);
}

/* Of all lanes and of all warps: each warp finds one sum of items and one of bytes. A thread that
 * found all of its own would take longer than for all else of a tile. Known to all after the next
 * barrier. */
static __device__ __forceinline__ void place_count(const place_job &a, place_sums *sums)
{
    const uint32_t lane = threadIdx.x % 32, add = threadIdx.x / 32, join = SUM_FIRST_IN + add;
    uint32_t lanes[2] = {0, 0}, warps[2] = {0, 0};
#pragma unroll
    for (uint32_t b = 0; b < PLACE_THREAD_BITS; b++) {
        const uint32_t bit = lane >> b % 5 & 1, i = b / 5;
        const uint2 low_add = a.low[add][b / 2], low_join = a.low[join][b / 2];
        uint32_t(&sum)[2] = i == 0 ? lanes : warps;
        sum[0] += bit * (b % 2 ? low_add.y : low_add.x);
        sum[1] ^= (0u - bit) & (b % 2 ? low_join.y : low_join.x);
    }
    sums->lanes[lane][add] = lanes[0];
    sums->lanes[lane][join] = lanes[1];
    if (lane < PLACE_THREADS / 32) {
        sums->warps[lane][add] = warps[0];
        sums->warps[lane][join] = warps[1];
    }
}

/* A thread's sum. */
static __device__ __forceinline__ uint32_t place_sum_of(const place_sums &sums, place_sum sum)
{
    const uint32_t lane = sums.lanes[threadIdx.x % 32][sum];
    const uint32_t warp = sums.warps[threadIdx.x / 32][sum];
    return sum < SUM_FIRST_IN ? lane + warp : lane ^ warp;
}

/* A thread's first item, by the sum of its place; that of its coordinates is the next one. */
static __device__ __forceinline__ place_item place_first(const place_sums &sums, place_sum at)
{
    return place_item{place_sum_of(sums, at), place_sum_of(sums, (place_sum)(at + 1))};
}

/* Whether an item of a tile of codes or values lies within the weight. FULL: the tile does. */
template <bool FULL>
static __device__ __forceinline__ bool place_inside(const place_job &a, const place_spot &s,
                                                    uint32_t rc)
{
    return FULL || (s.n + (rc >> 16) < a.n && s.k + (rc & 0xFFFFu) < a.k);
}

/* Codes of a row of a tile are 64 or 128 bytes: those of the next tiles come with them. */
static __device__ __forceinline__ uint4 place_load16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

template <bool FULL>
static __device__ __forceinline__ void place_load_as(const place_job &a, const place_item &first,
                                                     const place_spot &s, uint32_t round,
                                                     place_words *words)
{
    const place_plane &p = a.plane[PLACE_FROM];
    const uint32_t bytes = p.wide ? 16 : 4;
    const uint8_t *in = p.data + (s.base[PLACE_FROM] + first.at) * bytes;
    const uint32_t *high_at = p.high_at + round * PLACE_WORDS;
    const uint32_t *high_rc = p.high_rc + round * PLACE_WORDS;
    if (p.wide) {
#pragma unroll
        for (int i = 0; i < PLACE_WORDS; i += 4) {
            const uint4 v = place_inside<FULL>(a, s, first.rc + high_rc[i])
                                ? place_load16(in + high_at[i] * 16ull)
                                : make_uint4(0, 0, 0, 0);
            words->w[i] = v.x;
            words->w[i + 1] = v.y;
            words->w[i + 2] = v.z;
            words->w[i + 3] = v.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < PLACE_WORDS; i++)
            words->w[i] = place_inside<FULL>(a, s, first.rc + high_rc[i])
                              ? dev_load4(in + high_at[i] * 4ull)
                              : 0;
    }
}

/* A round's words of a tile from memory; of those beyond the weight nothing is read. */
static __device__ __forceinline__ void place_load(const place_job &a, const place_item &first,
                                                  const place_spot &s, uint32_t round,
                                                  place_words *words)
{
    if (s.full)
        place_load_as<true>(a, first, s, round, words);
    else
        place_load_as<false>(a, first, s, round, words);
}

/* __byte_perm() by a selector that has no other bits. */
static __device__ __forceinline__ uint32_t place_bytes(uint32_t a, uint32_t b, uint32_t selector)
{
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}

/* An exchange between all registers whose numbers differ in a bit. */
template <int BIT>
static __device__ __forceinline__ void place_exchange_bytes(uint32_t low, uint32_t high,
                                                            place_words *words)
{
#pragma unroll
    for (int i = 0; i < PLACE_WORDS; i++) {
        const uint32_t a = words->w[i & ~BIT], b = words->w[i | BIT];
        if (i & BIT)
            continue;
        words->w[i] = place_bytes(a, b, low);
        words->w[i | BIT] = place_bytes(a, b, high);
    }
}

template <int BIT> static __device__ __forceinline__ void place_exchange_nibbles(place_words *words)
{
    const uint32_t even = 0x0F0F0F0Fu;
#pragma unroll
    for (int i = 0; i < PLACE_WORDS; i++) {
        const uint32_t a = words->w[i & ~BIT], b = words->w[i | BIT];
        if (i & BIT)
            continue;
        words->w[i] = (a & even) | (b << 4 & ~even);
        words->w[i | BIT] = (a >> 4 & even) | (b & ~even);
    }
}

template <int BITS, int BIT>
static __device__ __forceinline__ void place_exchange(const place_step &step, place_words *words)
{
    if (BITS == 4 && step.nibbles)
        place_exchange_nibbles<BIT>(words);
    else
        place_exchange_bytes<BIT>(step.low, step.high, words);
}

/* Words of one or more rounds, each as it is to be stored. */
template <int BITS, int ROUNDS>
static __device__ __forceinline__ void place_exchange_all(const place_job &a,
                                                          place_words (&words)[ROUNDS])
{
#pragma unroll 1
    for (uint32_t i = 0; i < a.hand.steps; i++) {
        const place_step step = a.hand.step[i];
#pragma unroll
        for (uint32_t round = 0; round < ROUNDS; round++)
            if (step.bit == 0)
                place_exchange<BITS, 1>(step, &words[round]);
            else if (step.bit == 1)
                place_exchange<BITS, 2>(step, &words[round]);
            else
                place_exchange<BITS, 4>(step, &words[round]);
    }
}

/* A round's words to the stage. */
static __device__ __forceinline__ void place_store(const place_job &a, uint32_t in, uint32_t round,
                                                   place_words *words, uint8_t *stage)
{
    const uint32_t *high_in = a.hand.high_in + round * PLACE_WORDS;
    uint32_t(&w)[PLACE_WORDS] = words->w;
    if (a.map.kind == 0) {
        const uint32_t flip = a.map.before ^ a.map.after;
#pragma unroll
        for (int i = 0; flip != 0 && i < PLACE_WORDS; i++)
            w[i] ^= flip;
    } else {
#pragma unroll
        for (int i = 0; i < PLACE_WORDS; i++)
            w[i] = dev_map_word(w[i], a.map);
    }
    if (a.hand.wide == 4) {
#pragma unroll
        for (int i = 0; i < PLACE_WORDS; i += 4)
            *(uint4 *)(stage + (in ^ high_in[i])) =
                make_uint4(w[i], w[i + 1], w[i + 2], w[i + 3]);
    } else if (a.hand.wide == 2) {
#pragma unroll
        for (int i = 0; i < PLACE_WORDS; i += 2)
            *(uint2 *)(stage + (in ^ high_in[i])) = make_uint2(w[i], w[i + 1]);
    } else {
#pragma unroll
        for (int i = 0; i < PLACE_WORDS; i++)
            *(uint32_t *)(stage + (in ^ high_in[i])) = w[i];
    }
}

/* Words of ROUNDS rounds from the first one on, exchanged and to the stage. */
template <int BITS, int ROUNDS>
static __device__ __forceinline__ void place_stage(const place_job &a, uint32_t in, uint32_t first,
                                                   place_words (&words)[ROUNDS], uint8_t *stage)
{
    place_exchange_all<BITS>(a, words);
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
        place_store(a, in, first + round, &words[round], stage);
}

/* Items of four words; STREAM: their lines of the cache are the first to go. Where values become
 * codes that leaves more room for what is read, of codes of four bits alone it does not. */
template <bool STREAM>
static __device__ __forceinline__ void place_put16(uint8_t *out, const uint8_t *from)
{
    const uint4 v = *(const uint4 *)from;
    if (STREAM)
        __stcs((uint4 *)out, v);
    else
        *(uint4 *)out = v;
}

template <int ROUNDS, bool STREAM, bool FULL>
static __device__ __forceinline__ void place_put_as(const place_job &a, const place_item &first,
                                                    uint32_t in, const place_spot &s,
                                                    const uint8_t *stage)
{
    const place_plane &p = a.plane[PLACE_TO];
    const uint32_t bytes = p.wide ? 16 : 4;
    uint8_t *out = p.data + (s.base[PLACE_TO] + first.at) * bytes;
    if (p.wide) {
#pragma unroll
        for (uint32_t i = 0; i < ROUNDS * PLACE_WORDS / 4; i++)
            if (place_inside<FULL>(a, s, first.rc + p.high_rc[i]))
                place_put16<STREAM>(out + p.high_at[i] * 16ull, stage + (in ^ p.high_in[i]));
    } else {
#pragma unroll
        for (uint32_t i = 0; i < ROUNDS * PLACE_WORDS; i++)
            if (place_inside<FULL>(a, s, first.rc + p.high_rc[i]))
                *(uint32_t *)(out + p.high_at[i] * 4ull) =
                    *(const uint32_t *)(stage + (in ^ p.high_in[i]));
    }
}

/* All words of a tile from the stage to memory. */
template <int ROUNDS, bool STREAM>
static __device__ __forceinline__ void place_put(const place_job &a, const place_item &first,
                                                 uint32_t in, const place_spot &s,
                                                 const uint8_t *stage)
{
    if (s.full)
        place_put_as<ROUNDS, STREAM, true>(a, first, in, s, stage);
    else
        place_put_as<ROUNDS, STREAM, false>(a, first, in, s, stage);
}

/* Whether a thread has a scale in a turn: all have one where a tile has more than the first. */
static __device__ __forceinline__ bool place_has(const place_plane &p, uint32_t turn)
{
    return turn * PLACE_THREADS < p.count && (turn > 0 || threadIdx.x < p.count);
}

/* And whether it lies within the weight. */
template <bool FULL>
static __device__ __forceinline__ bool place_has_inside(const place_plane &p,
                                                        const place_item &first,
                                                        const place_spot &s, uint32_t turn)
{
    const uint32_t rc = first.rc + p.high_rc[turn];
    return place_has(p, turn) &&
           (FULL || ((s.n >> p.log2_per_n) + (rc >> 16) < p.rows &&
                     (s.k >> p.log2_per_k) + (rc & 0xFFFFu) < p.columns));
}

/* A thread's scales of a tile: between memory and registers, or shared memory and memory. */
struct place_get_scales {
    uint32_t (&bits)[PLACE_SCALE_TURNS];

    template <typename T>
    __device__ __forceinline__ void operator()(const place_plane &, uint32_t turn, T *at) const
    {
        bits[turn] = *at;
    }
};

struct place_put_scales {
    const uint8_t *scales;
    uint32_t in; /* of the thread's first */

    template <typename T>
    __device__ __forceinline__ void operator()(const place_plane &p, uint32_t turn, T *at) const
    {
        *at = (T) * (const uint32_t *)(scales + (in ^ p.high_in[turn]));
    }
};

template <typename T, bool FULL, typename DO>
static __device__ __forceinline__ void place_each_scale(const place_plane &p,
                                                        const place_item &first,
                                                        const place_spot &s, uint64_t base,
                                                        const DO &act)
{
    T *data = (T *)p.data + (base + first.at);
#pragma unroll
    for (uint32_t i = 0; i < PLACE_SCALE_TURNS; i++)
        if (place_has_inside<FULL>(p, first, s, i))
            act(p, i, data + p.high_at[i]);
}

template <typename T, typename DO>
static __device__ __forceinline__ void place_scales_as(const place_plane &p,
                                                       const place_item &first,
                                                       const place_spot &s, uint64_t base,
                                                       const DO &act)
{
    if (s.full)
        place_each_scale<T, true>(p, first, s, base, act);
    else
        place_each_scale<T, false>(p, first, s, base, act);
}

/* What is done with each scale of a thread, by its width. */
template <typename DO>
static __device__ __forceinline__ void place_scales(const place_plane &p, const place_item &first,
                                                    const place_spot &s, uint64_t base,
                                                    const DO &act)
{
    if (p.width == 8)
        place_scales_as<uint8_t>(p, first, s, base, act);
    else if (p.width == 16)
        place_scales_as<uint16_t>(p, first, s, base, act);
    else
        place_scales_as<uint32_t>(p, first, s, base, act);
}

/* Scales wait in shared memory; `in`: the thread's first byte there. */
static __device__ __forceinline__ void place_keep_scales(
    const place_plane &p, uint32_t in, const uint32_t (&bits)[PLACE_SCALE_TURNS],
    uint8_t *scales)
{
#pragma unroll
    for (uint32_t i = 0; i < PLACE_SCALE_TURNS; i++)
        if (place_has(p, i))
            *(uint32_t *)(scales + (in ^ p.high_in[i])) = bits[i];
}

#endif
