/* Blocks of codes in any layout: their tables of offsets (place.h), the bits of their words, and
 * how a block's codes, a byte each, get to where they are stored and back. What is encoded,
 * repacked and decoded with them is in cpu_place.inc and cpu_place_move.inc.
 *
 * Layouts that do not repeat in small blocks, and weights that end within one, have no tables.
 */
#ifndef TP_KERNELS_CPU_PLACE_BLOCKS_H
#define TP_KERNELS_CPU_PLACE_BLOCKS_H

#include "kernels/cpu/cpu_place_bits.h"
#include "kernels/cpu/cpu_run.h"

/* What each byte of a word of 32 bits becomes when its bits are moved: see word_bits.h. */
struct bit_moves {
    uint32_t to[4][256];
};

/* From words as the layout fills them to stored ones, or (`back`) the other way. */
static void bit_moves_of(struct bit_moves *m, const uint8_t *list, bool back)
{
    memset(m, 0, sizeof *m);
    for (unsigned i = 0; i < TP_WORD_BITS; i++) {
        const unsigned from = back ? i : list[i], to = back ? list[i] : i;
        for (unsigned value = 0; value < 256; value++)
            m->to[from / 8][value] |= (value >> from % 8 & 1u) << to;
    }
}

/* Whole vectors of words, half a byte of each at a time; returns how many bytes those are. */
V uint64_t move_vectors(const struct bit_moves *m, uint8_t *data, uint64_t bytes)
{
    struct table16 half[8];
    uint32_t high[16];
    uint64_t at = 0;
    for (unsigned b = 0; b < 4; b++) {
        for (unsigned value = 0; value < 16; value++)
            high[value] = m->to[b][value << 4];
        half[2 * b] = v_table16(m->to[b]);
        half[2 * b + 1] = v_table16(high);
    }
    for (; at + 4 * VL <= bytes; at += 4 * VL) {
        const vu x = v_load(data + at);
        vu y = v_lookup16(&half[0], v_and(x, v_set(15)));
        UNROLL
        for (unsigned i = 1; i < 8; i++)
            y = v_or(y, v_lookup16(&half[i], v_and(v_srl(x, 4 * i), v_set(15))));
        v_store(data + at, y);
    }
    return at;
}

/* Moves the bits of whole words. Tables of 16 entries are one instruction for the longest vectors
 * alone. */
static void move_bits(const struct bit_moves *m, uint8_t *data, uint64_t bytes)
{
    for (uint64_t i = VL == 16 ? move_vectors(m, data, bytes) : 0; i < bytes; i += 4) {
        uint8_t *p = data + i;
        uint32_t word = m->to[0][p[0]] | m->to[1][p[1]] | m->to[2][p[2]] | m->to[3][p[3]];
        for (unsigned b = 0; b < 4; b++)
            p[b] = (uint8_t)(word >> 8 * b);
    }
}

/* One output of codes (or input, of a repack) and the tables of its blocks. */
struct placed_codes {
    struct tp_layout layout;
    struct tp_plane plane;
    unsigned bits;
    bool mapped;           /* codes are stored as others: by `map` */
    uint8_t map[256];      /* of a byte as it is stored; for 4 bits of both nibbles */
    const struct bit_moves *moves; /* of codes that are read: back to their places; or NULL */
    uint64_t stride;       /* of the rows that blocks are stored from by their tiles, or 0 */
    struct tp_place_block whole, last; /* last: the columns behind the last whole block */
    struct tile_moves whole_tile, last_tile; /* of blocks that need no table, if stride */
};

/* A conversion cut into blocks. */
struct placed_grid {
    struct tp_place_grid size;
    uint64_t rows;     /* of the blocks that the tables are for: size.rows, or what is left */
    uint64_t last;     /* columns behind the last whole block */
    uint8_t *codes;    /* of one block, a byte each */
    void *tables;      /* scratch for the tables */
};

static bool placed_open(struct placed_codes *c, const struct tp_op *op, struct tp_args *args,
                        void *const data[], void **scratch)
{
    struct tp_layout own;
    const struct tp_layout *layout;
    int i = tp_op_find(op, TP_ROLE_CODES);
    c->moves = NULL;
    c->stride = 0;
    c->plane = tp_plane_open(op, TP_ROLE_CODES, args, data, scratch);
    if (args->flags & TP_FAILED)
        return false;
    c->bits = tp_element_bits(c->plane.element);
    layout = tp_args_layout(args, op, (uint32_t)i, &own);
    if (layout != NULL)
        c->layout = *layout;
    return layout != NULL;
}

/* The codes as they are stored, from canonical ones, or (`back`) the other way. */
static void placed_map(struct placed_codes *c, bool back)
{
    const uint8_t *nibble = back ? c->plane.to_code : c->plane.to_stored;
    c->mapped = false;
    for (unsigned i = 0; i < 256; i++) {
        c->map[i] = (uint8_t)i;
        if (c->bits == 4)
            c->map[i] = (uint8_t)(nibble[i & 15] | nibble[i >> 4] << 4);
        else if (c->plane.element == TP_ELEM_INT8 && c->plane.middle == 128)
            c->map[i] = (uint8_t)(i ^ 0x80);
        else if (c->plane.element == TP_ELEM_INT8)
            c->map[i] = (uint8_t)(back ? (i + 8) & 15 : i - 8);
        c->mapped |= c->map[i] != i;
    }
}

/* The fill byte, where not every byte is written anyway. */
static void placed_fill(const struct placed_codes *c, struct tp_box3 box)
{
    if (8 * c->plane.bytes != c->bits * box.e * box.n * box.k)
        tp_plane_fill(&c->plane);
}

static bool placed_grid_add(struct placed_grid *g, const struct tp_layout *layout,
                            struct tp_box3 box)
{
    struct tp_place_grid own = tp_place_grid_of(layout);
    return box.n % own.rows == 0 && box.k % own.columns == 0 &&
           tp_lcm_u64(&g->size.rows, g->size.rows, own.rows) &&
           tp_lcm_u64(&g->size.columns, g->size.columns, own.columns);
}

static bool placed_grid_open(struct placed_grid *g, struct tp_box3 box, void **scratch)
{
    if (!tp_place_grid_grow(&g->size, box))
        return false;
    g->rows = 0;
    g->last = box.k % g->size.columns;
    g->codes = (uint8_t *)(((uintptr_t)*scratch + 63) / 64 * 64);
    g->tables = g->codes + TP_PLACE_CODES;
    *scratch = g->codes + TP_PLACE_SCRATCH;
    return true;
}

/* The moves of a tile, or else tables. */
static bool placed_block_open(struct placed_codes *c, struct tp_place_grid size,
                              struct tp_place_block *block, struct tile_moves *tile,
                              void **scratch)
{
    tile->possible = false;
    if (c->stride)
        tile_moves_of(tile, &c->layout, c->bits, size, c->stride,
                      c->mapped ? c->plane.to_stored : NULL);
    return tile->possible || tp_place_block_open(&c->layout, c->bits, size, block, scratch);
}

static bool placed_tables_of(struct placed_codes *c, const struct placed_grid *g,
                             void **scratch)
{
    const struct tp_place_grid whole = {g->rows, g->size.columns}, last = {g->rows, g->last};
    if (g->last != 0 && !placed_block_open(c, last, &c->last, &c->last_tile, scratch))
        return false;
    return placed_block_open(c, whole, &c->whole, &c->whole_tile, scratch);
}

/* Tables for blocks of that many rows, of one or two layouts. False: there are none. */
static bool placed_tables(struct placed_grid *g, uint64_t rows, struct placed_codes *a,
                          struct placed_codes *b)
{
    void *scratch = g->tables;
    if (g->rows == rows)
        return true;
    g->rows = rows;
    return placed_tables_of(a, g, &scratch) && (b == NULL || placed_tables_of(b, g, &scratch));
}

/* Whether there are tables for every block of a weight of `n` rows; leaves those of the first. */
static bool placed_tables_all(struct placed_grid *g, uint64_t n, struct placed_codes *a,
                              struct placed_codes *b)
{
    const uint64_t rest = n % g->size.rows;
    return (rest == 0 || placed_tables(g, rest, a, b)) &&
           placed_tables(g, tp_min_u64(g->size.rows, n), a, b);
}

/* ---- one block ---------------------------------------------------------- */

/* A block's codes, a byte each, to where they are stored. */
V void placed_put(const struct placed_codes *c, const struct tp_place_block *b, uint64_t base,
                  const uint8_t *codes, bool mapped)
{
    for (uint32_t r = 0; r < b->runs; r++) {
        const uint8_t *p = codes + b->run[r].from;
        const uint16_t *from = b->from;
        uint8_t *q = c->plane.data + (base + b->run[r].at) * c->bits / 8;
        if (c->bits == 4)
            for (uint32_t i = 0; i < b->length; i += 2) {
                uint8_t two = (uint8_t)(p[from[i]] | p[from[i + 1]] << 4);
                *q++ = mapped ? c->map[two] : two;
            }
        else
            for (uint32_t i = 0; i < b->length; i++)
                *q++ = mapped ? c->map[p[from[i]]] : p[from[i]];
    }
}

static void placed_store(const struct placed_codes *c, const struct tp_place_block *b,
                         uint64_t n, uint64_t k, const uint8_t *codes)
{
    uint64_t base = tp_plane_at(&c->plane, n, k);
    if (c->mapped)
        placed_put(c, b, base, codes, true);
    else
        placed_put(c, b, base, codes, false);
}

enum { PLACED_LEAST_SPAN = 16 }; /* codes that are worth a copy of their own */

/* Whether a block lies in spans that are worth it and end with a byte. */
static inline bool placed_spans(const struct placed_codes *c, const struct tp_place_block *b)
{
    return b->span >= PLACED_LEAST_SPAN && b->span * c->bits % 8 == 0;
}

/* `bytes` of codes as they are stored. */
static void placed_move(const struct placed_codes *c, uint8_t *to, const uint8_t *from,
                        uint64_t bytes)
{
    if (!c->mapped)
        memcpy(to, from, bytes);
    for (uint64_t i = 0; c->mapped && i < bytes; i++)
        to[i] = c->map[from[i]];
}

/* A block of `columns` columns whose codes lie in spans, from rows of `stride` codes. */
static inline void placed_copy(const struct placed_codes *c, const struct tp_place_block *b,
                               uint64_t base, const uint8_t *rows, uint64_t stride,
                               uint64_t columns)
{
    const uint64_t bytes = (uint64_t)b->span * c->bits / 8; /* whole ones: see placed_spans() */
    for (uint32_t r = 0; r < b->runs; r++) {
        uint8_t *to = c->plane.data + (base + b->run[r].at) * c->bits / 8;
        for (uint32_t i = 0; i < b->length; i += b->span, to += bytes) {
            const uint32_t from = b->run[r].from + b->from[i];
            const uint64_t at = from / (uint32_t)columns * stride + from % (uint32_t)columns;
            placed_move(c, to, rows + at * c->bits / 8, bytes);
        }
    }
}

/* The bytes of a run of codes, in `words` where their bits are moved. */
static const uint8_t *placed_run(const struct placed_codes *c, uint64_t at, uint32_t length,
                                 uint8_t words[TP_PLACE_CODES + 8])
{
    const uint64_t first = at * c->bits / 8, begin = first / 4 * 4;
    const uint64_t bytes = tp_round_up(first + (uint64_t)length * c->bits / 8, 4) - begin;
    if (c->moves == NULL)
        return c->plane.data + first;
    memcpy(words, c->plane.data + begin, bytes);
    move_bits(c->moves, words, bytes);
    return words + (first - begin);
}

/* The inverse of placed_store(). */
static inline void placed_load(const struct placed_codes *c, const struct tp_place_block *b,
                               uint64_t n, uint64_t k, uint8_t *codes)
{
    uint64_t base = tp_plane_at(&c->plane, n, k);
    uint8_t words[TP_PLACE_CODES + 8];
    for (uint32_t r = 0; r < b->runs; r++) {
        const uint8_t *q = placed_run(c, base + b->run[r].at, b->length, words);
        const uint16_t *from = b->from;
        uint8_t *p = codes + b->run[r].from;
        if (c->bits == 4)
            for (uint32_t i = 0; i < b->length; i += 2) {
                uint8_t two = c->map[*q++];
                p[from[i]] = two & 15;
                p[from[i + 1]] = two >> 4;
            }
        else
            for (uint32_t i = 0; i < b->length; i++)
                p[from[i]] = c->map[*q++];
    }
}

/* `count` nibbles to a byte each. */
V void placed_spread(const uint8_t *nibbles, uint8_t *codes, uint64_t count)
{
    uint64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        uint32_t four;
        uint64_t x;
        memcpy(&four, nibbles + i / 2, 4);
        x = (four | (uint64_t)four << 16) & UINT64_C(0x0000FFFF0000FFFF);
        x = (x | x << 8) & UINT64_C(0x00FF00FF00FF00FF);
        x = (x | x << 4) & UINT64_C(0x0F0F0F0F0F0F0F0F);
        memcpy(codes + i, &x, 8);
    }
    for (; i < count; i++)
        codes[i] = nibbles[i / 2] >> (i % 2 ? 4 : 0) & 15;
}

/* Columns [k, k + columns) of a strip, rows of `stride` codes, a byte each. */
static inline void placed_cut(const uint8_t *strip, unsigned bits, uint64_t stride, uint64_t rows,
                              uint64_t k, uint64_t columns, uint8_t *codes)
{
    for (uint64_t r = 0; r < rows; r++, codes += columns) {
        const uint8_t *p = strip + (r * stride + k) * bits / 8;
        if (bits == 4)
            placed_spread(p, codes, columns);
        else
            memcpy(codes, p, columns);
    }
}

#endif
