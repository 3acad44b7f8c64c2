/* Elements from one layout to another: tiles of powers of two, as large as there is room for
 * (cpu_place_bits.h), and what no tile has one by one. Codes, scales and zero points are moved
 * alike; what they mean does not count.
 */
#ifndef TP_KERNELS_CPU_TILES_H
#define TP_KERNELS_CPU_TILES_H

#include "kernels/cpu/cpu_place_bits.h"
#include "kernels/op/traits.h"

enum { TILE_MAX = 128 }; /* rows or columns */

struct tiles {
    struct tp_layout from, to;
    unsigned bits;             /* of an element: 4, 8, 16 or 32 */
    bool mapped;
    uint8_t map[16];           /* of nibbles */
    uint8_t flip;              /* of bytes: bits that are changed */
    const uint8_t *in;
    uint8_t *out;
    uint64_t from_at, to_at;   /* of the first element, beside what the layouts say of rows and
                                  columns: the expert's */
    uint64_t max[TP_DIMS];     /* of rows and columns of a tile */
    struct tile_moves moves;   /* of tiles of 2^n rows and 2^k columns, once they are `known` */
    unsigned n, k;
    bool known;
};

/* Rows of so many columns, `stride` elements apart. */
static inline struct tp_layout tiles_rows(struct tp_box3 box, uint64_t stride)
{
    return (struct tp_layout){{{1, {box.e}, {box.n * stride}}, {1, {box.n}, {stride}},
                               {1, {box.k}, {1}}}};
}

/* Up to where the bits of a coordinate move an element by strides of their own: a power of two,
 * which may be above TILE_MAX. */
static uint64_t tiles_even(const struct tp_layout_dim *dim)
{
    uint64_t even = 1;
    for (uint32_t m = 0; m + 1 < dim->modes; m++) {
        const uint64_t power = dim->size[m] & (~dim->size[m] + 1);
        even *= power;
        if (power != dim->size[m] || even >= TILE_MAX)
            return even;
    }
    return TILE_MAX;
}

/* Whether whole tiles of nibbles begin with a byte: one stride at most is odd. */
static bool tiles_pairs(const struct tp_layout *layout)
{
    unsigned odd = 0;
    for (int d = 0; d < TP_DIMS; d++)
        for (uint32_t m = 0; m < layout->dim[d].modes; m++)
            odd += layout->dim[d].size[m] > 1 && layout->dim[d].stride[m] % 2;
    return odd <= 1;
}

/* Derives the rest of *t from its layouts. */
static void tiles_open(struct tiles *t, unsigned bits)
{
    const bool whole = bits >= 8 || (tiles_pairs(&t->from) && tiles_pairs(&t->to));
    t->bits = bits;
    t->mapped = t->known = false;
    t->flip = 0;
    t->from_at = t->to_at = 0;
    for (uint8_t i = 0; i < 16; i++)
        t->map[i] = i;
    for (int d = TP_DIM_N; d < TP_DIMS; d++)
        t->max[d] = whole ? tp_min_u64(TILE_MAX, tp_min_u64(tiles_even(&t->from.dim[d]),
                                                            tiles_even(&t->to.dim[d])))
                          : 1;
}

static void tiles_enter(struct tiles *t, uint64_t e)
{
    t->from_at = tp_layout_dim_at(&t->from.dim[TP_DIM_E], e);
    t->to_at = tp_layout_dim_at(&t->to.dim[TP_DIM_E], e);
}

/* One element, by its places. */
V void tiles_one(const struct tiles *t, uint64_t from, uint64_t to)
{
    if (t->bits == 16)
        memcpy(t->out + 2 * to, t->in + 2 * from, 2);
    else if (t->bits == 32)
        memcpy(t->out + 4 * to, t->in + 4 * from, 4);
    else if (t->bits == 8)
        t->out[to] = t->in[from] ^ t->flip;
    else {
        const uint8_t code = t->map[t->in[from / 2] >> from % 2 * 4 & 15];
        uint8_t *q = &t->out[to / 2];
        *q = (uint8_t)(to % 2 ? (*q & 0x0F) | code << 4 : (*q & 0xF0) | code);
    }
}

static void tiles_each(const struct tiles *t, uint64_t n, uint64_t rows, uint64_t k,
                       uint64_t columns)
{
    enum { AT_ONCE = 64 };
    const struct tp_layout_dim *from = t->from.dim, *to = t->to.dim;
    uint64_t from_k[AT_ONCE], to_k[AT_ONCE];
    for (uint64_t done = 0, count; done < columns; done += count) {
        count = tp_min_u64(AT_ONCE, columns - done);
        for (uint64_t i = 0; i < count; i++) {
            from_k[i] = t->from_at + tp_layout_dim_at(&from[TP_DIM_K], k + done + i);
            to_k[i] = t->to_at + tp_layout_dim_at(&to[TP_DIM_K], k + done + i);
        }
        for (uint64_t r = 0; r < rows; r++) {
            const uint64_t from_n = tp_layout_dim_at(&from[TP_DIM_N], n + r);
            const uint64_t to_n = tp_layout_dim_at(&to[TP_DIM_N], n + r);
            for (uint64_t i = 0; i < count; i++)
                tiles_one(t, from_n + from_k[i], to_n + to_k[i]);
        }
    }
}

/* Where the element of a row and a column is. */
static uint64_t tiles_at(const struct tp_layout *layout, uint64_t first, uint64_t n, uint64_t k)
{
    return first + tp_layout_dim_at(&layout->dim[TP_DIM_N], n) +
           tp_layout_dim_at(&layout->dim[TP_DIM_K], k);
}

/* Rows and columns from (n, k) on. */
struct tiles_part {
    uint64_t n, rows, k, columns;
};

/* Where what is most likely read behind tile (n, k) of the part lies: the next tile, or what
 * follows the part. */
static uint64_t tiles_next(const struct tiles *t, const struct tiles_part *p, uint64_t n,
                           uint64_t k, uint64_t tall, uint64_t wide)
{
    if (k + wide < p->k + p->columns)
        return tiles_at(&t->from, t->from_at, n, k + wide);
    if (n + tall < p->n + p->rows)
        return tiles_at(&t->from, t->from_at, n + tall, p->k);
    if (p->k + p->columns < tp_layout_extent(&t->from, TP_DIM_K))
        return tiles_at(&t->from, t->from_at, p->n, p->k + p->columns);
    if (p->n + p->rows < tp_layout_extent(&t->from, TP_DIM_N))
        return tiles_at(&t->from, t->from_at, p->n + p->rows, 0);
    return tiles_at(&t->from, t->from_at, n, k);
}

static void tiles_know(struct tiles *t, unsigned n, unsigned k)
{
    struct tile_moves *m = &t->moves;
    if (t->known && t->n == n && t->k == k)
        return;
    tile_moves_of(m, &t->from, &t->to, t->bits, n, k);
    m->mapped = t->mapped;
    m->flip = t->flip;
    memcpy(m->map, t->map, sizeof m->map);
    t->n = n;
    t->k = k;
    t->known = true;
}

/* A whole number of tiles of 2^n rows and 2^k columns; or the same one by one, where such tiles are
 * not moved. */
static void tiles_some(struct tiles *t, unsigned n, unsigned k, const struct tiles_part *p)
{
    const uint64_t tall = UINT64_C(1) << n, wide = UINT64_C(1) << k;
    tiles_know(t, n, k);
    if (!t->moves.possible) {
        tiles_each(t, p->n, p->rows, p->k, p->columns);
        return;
    }
    for (uint64_t i = p->n; i < p->n + p->rows; i += tall)
        for (uint64_t j = p->k; j < p->k + p->columns; j += wide) {
            const uint64_t from = tiles_at(&t->from, t->from_at, i, j);
            const uint64_t to = tiles_at(&t->to, t->to_at, i, j);
            const uint64_t next = tiles_next(t, p, i, j, tall, wide);
            tile_move(&t->moves, t->in + from * t->bits / 8, t->out + to * t->bits / 8,
                      (int64_t)(next * t->bits / 8 - from * t->bits / 8));
        }
}

/* The largest tiles that begin at that coordinate and have room: so many bits of it. */
static unsigned tiles_side(const struct tiles *t, int dim, uint64_t first, uint64_t count)
{
    uint64_t max = t->max[dim];
    while (max > count || first % max != 0)
        max /= 2;
    return (unsigned)__builtin_ctzll(max);
}

/* Rows [n, n + rows) and columns [k, k + columns) of the expert that was entered. */
static void tiles_move(struct tiles *t, uint64_t n, uint64_t rows, uint64_t k,
                       uint64_t columns)
{
    for (uint64_t i = 0, height; i < rows; i += height) {
        const unsigned tall = tiles_side(t, TP_DIM_N, n + i, rows - i);
        height = (rows - i) >> tall << tall;
        for (uint64_t j = 0, width; j < columns; j += width) {
            const unsigned wide = tiles_side(t, TP_DIM_K, k + j, columns - j);
            width = (columns - j) >> wide << wide;
            tiles_some(t, tall, wide, &(struct tiles_part){n + i, height, k + j, width});
        }
    }
}

/* The stored nibble of a canonical code. */
static uint8_t tiles_nibble(const struct tp_op *op, enum tp_element element, unsigned code)
{
    return tp_elements[element].has_table ? op->table[code] : (uint8_t)code;
}

/* How codes of one operation become those of another; of as many bits. */
static inline void tiles_codes(struct tiles *t, const struct tp_op *from,
                               enum tp_element from_element, const struct tp_op *to,
                               enum tp_element to_element)
{
    for (unsigned code = 0; code < 16; code++) {
        const uint8_t stored = tiles_nibble(from, from_element, code) & 15;
        t->map[stored] = tiles_nibble(to, to_element, code);
        t->mapped |= t->map[stored] != stored;
    }
    t->flip = (from_element == TP_ELEM_INT8) != (to_element == TP_ELEM_INT8) ? 0x80 : 0;
    t->mapped &= t->bits == 4;
}

#endif
