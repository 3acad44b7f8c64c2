/* Tiles of codes or scales from where one layout has them to where another has, 16 bytes a lane at
 * a time.
 *
 * Every bit of an element's number moves it by a stride of its own, in both layouts
 * (place_bits.h): a tile is a permutation of bits. Four of them count the bytes of a lane that is
 * loaded, four others, perhaps, those that are stored: each bit that comes in takes the place of
 * one that goes in a stage, which interleaves the bytes of two registers, and at the end the bytes
 * of a lane are put in order. The nibbles of a byte are one bit more, exchanged when registers are
 * loaded; the bytes of a longer element are bits that lie alike on both sides.
 *
 * Tiles that are no such permutation are left to others.
 */
#ifndef TP_KERNELS_CPU_PLACE_BITS_H
#define TP_KERNELS_CPU_PLACE_BITS_H

#include "kernels/cpu/cpu_run.h"

/* TILE_BITS: with those that tell the bytes of an element apart. */
enum { TILE_LANE = 4, TILE_STAGES = TILE_LANE, TILE_BITS = TP_TILE_BITS + 2 };
enum { TILE_NO_BIT = TILE_BITS };

/* How a register of whole bytes is made of loaded ones: it is one; its nibbles are exchanged with
 * a bit of its lanes; it has the low or the high nibbles of two; one has the low, the next the
 * high. */
enum tile_front { TILE_BYTES, TILE_EXCHANGE, TILE_LOW, TILE_HIGH, TILE_TURNS };

struct tile_moves {
    bool possible, whole; /* whole: the lanes of a register are neighbours when they are loaded */
    enum tile_front front; /* TILE_LOW: all is done again for the high nibbles */
    unsigned stages;
    uint64_t pair;    /* from where the low nibbles of a byte are to where the high ones are */
    uint64_t high_to; /* from where low nibbles are stored to where high ones are */
    uint64_t load[1 << TILE_STAGES], store[1 << TILE_STAGES]; /* by register */
    uint64_t lane_from[LANES], lane_to[LANES];
    unsigned loops; /* all the rest: loop i is stepped by loop_from[i] and loop_to[i], see below */
    uint64_t loop_from[TILE_BITS], loop_to[TILE_BITS];
    uint8_t exchange[16], before[16], after[16]; /* orders of the bytes of a lane */
    bool mapped;     /* nibbles: by `map` */
    uint8_t map[16];
    uint8_t flip;    /* of bytes: bits that are changed */
};

/* The bits of a tile in bytes. */
struct tile_bits {
    uint32_t bits;
    uint64_t from[TILE_BITS], to[TILE_BITS];
    unsigned nibble_from, nibble_to;     /* the bits that tell nibbles apart, or TILE_NO_BIT */
    unsigned in[TILE_LANE], out[TILE_LANE]; /* the bits of lanes, by places */
    bool used[TILE_BITS + 1];
};

static unsigned tile_find(const uint64_t *stride, uint32_t bits, uint64_t wanted)
{
    for (unsigned i = 0; i < bits; i++)
        if (stride[i] == wanted)
            return i;
    return TILE_NO_BIT;
}

static unsigned tile_index(const unsigned place[TILE_LANE], unsigned bit)
{
    unsigned i = 0;
    while (i < TILE_LANE && place[i] != bit)
        i++;
    return i;
}

/* From nibbles to bytes. */
static bool tile_halve(struct tile_bits *t)
{
    t->nibble_from = tile_find(t->from, t->bits, 1);
    t->nibble_to = tile_find(t->to, t->bits, 1);
    if (t->nibble_from == TILE_NO_BIT || t->nibble_to == TILE_NO_BIT)
        return false;
    for (uint32_t i = 0; i < t->bits; i++) {
        if ((t->from[i] % 2 && i != t->nibble_from) || (t->to[i] % 2 && i != t->nibble_to))
            return false;
        t->from[i] /= 2;
        t->to[i] /= 2;
    }
    return true;
}

/* The bits of lanes as they are loaded and as they are stored. */
static bool tile_lane_bits(struct tile_bits *t)
{
    t->used[t->nibble_from] = t->used[t->nibble_to] = true;
    for (unsigned i = 0; i < TILE_LANE; i++) {
        t->in[i] = tile_find(t->from, t->bits, UINT64_C(1) << i);
        t->out[i] = tile_find(t->to, t->bits, UINT64_C(1) << i);
        if (t->in[i] == TILE_NO_BIT || t->out[i] == TILE_NO_BIT)
            return false;
        t->used[t->in[i]] = t->used[t->out[i]] = true;
    }
    return true;
}

/* Fills *t for a tile of 2^n rows and 2^k columns of elements of so many bits. */
static bool tile_bits_of(struct tile_bits *t, const struct tp_layout *from,
                         const struct tp_layout *to, unsigned bits, unsigned n, unsigned k)
{
    struct tp_tile_bits a, b;
    const unsigned bytes = bits > 8 ? bits / 8 : 1;
    *t = (struct tile_bits){.nibble_from = TILE_NO_BIT, .nibble_to = TILE_NO_BIT};
    if (!tp_tile_bits_of(from, n, k, &a) || !tp_tile_bits_of(to, n, k, &b))
        return false;
    for (unsigned i = 1; i < bytes; i *= 2, t->bits++)
        t->from[t->bits] = t->to[t->bits] = i;
    for (uint32_t i = 0; i < b.bits; i++) {
        uint32_t j = 0;
        while (a.bit[j].row != b.bit[i].row || a.bit[j].column != b.bit[i].column)
            j++;
        t->from[t->bits] = a.bit[j].at * bytes;
        t->to[t->bits++] = b.bit[i].at * bytes;
    }
    return (bits >= 8 || tile_halve(t)) && tile_lane_bits(t);
}

/* byte i of the result: where the byte is whose place has the bits `to` in those of i */
static void tile_order(uint8_t order[16], const unsigned from[TILE_LANE],
                       const unsigned to[TILE_LANE])
{
    for (unsigned i = 0; i < 16; i++) {
        order[i] = 0;
        for (unsigned j = 0; j < TILE_LANE; j++)
            order[i] |= (uint8_t)((i >> j & 1) << tile_index(from, to[j]));
    }
}

/* How nibbles become bytes; t->in is what lanes have then. */
static void tile_front_of(struct tile_moves *m, struct tile_bits *t)
{
    const unsigned at = tile_index(t->in, t->nibble_to);
    unsigned order[TILE_LANE], i = 0;
    m->front = TILE_BYTES;
    if (t->nibble_from == t->nibble_to)
        return;
    if (at == TILE_LANE) {
        m->front = tile_index(t->out, t->nibble_from) == TILE_LANE ? TILE_LOW : TILE_TURNS;
        m->pair = t->from[t->nibble_to];
        m->high_to = t->to[t->nibble_from];
        return;
    }
    m->front = TILE_EXCHANGE;
    for (unsigned j = 0; j < TILE_LANE; j++)
        if (j != at)
            order[i++] = t->in[j];
    order[TILE_LANE - 1] = t->nibble_to;
    tile_order(m->exchange, t->in, order);
    for (i = TILE_LANE - 1; i > 0; i--)
        t->in[i] = order[i - 1];
    t->in[0] = t->nibble_from;
}

/* Which bits enter lanes for which that leave them, and the orders of bytes around that. */
static void tile_stages_of(struct tile_moves *m, const struct tile_bits *t)
{
    unsigned enter[TILE_LANE], leave[TILE_LANE], begin[TILE_LANE], end[TILE_LANE];
    unsigned stay = 0, in = 0;
    m->stages = 0;
    if (m->front == TILE_TURNS)
        enter[in++] = t->nibble_from;
    for (unsigned j = 0; j < TILE_LANE; j++)
        if (tile_index(t->in, t->out[j]) == TILE_LANE &&
            !(m->front == TILE_TURNS && t->out[j] == t->nibble_from))
            enter[in++] = t->out[j];
    for (unsigned j = TILE_LANE; j-- > 0;)
        if (tile_index(t->out, t->in[j]) == TILE_LANE)
            leave[m->stages++] = t->in[j];
    for (unsigned j = 0; j < TILE_LANE; j++)
        if (tile_index(t->out, t->in[j]) < TILE_LANE)
            begin[stay++] = t->in[j];
    for (unsigned s = 0; s < m->stages; s++) {
        begin[TILE_LANE - 1 - s] = leave[s];
        end[m->stages - 1 - s] = enter[s];
    }
    memcpy(end + m->stages, begin, stay * sizeof *end);
    tile_order(m->before, t->in, begin);
    tile_order(m->after, end, t->out);
    for (unsigned i = 0; i < 1u << m->stages; i++) {
        m->load[i] = m->store[i] = 0;
        for (unsigned s = 0; s < m->stages; s++) {
            m->load[i] += enter[s] == t->nibble_from ? 0 : (i >> s & 1) * t->from[enter[s]];
            m->store[i] += (i >> s & 1) * t->to[leave[s]];
        }
    }
}

/* Bits for the lanes of a register, those that make it one load if there are such. */
static bool tile_lanes_of(struct tile_moves *m, struct tile_bits *t)
{
    m->lane_from[0] = m->lane_to[0] = 0;
    m->whole = true;
    for (unsigned lanes = 1; lanes < LANES; lanes *= 2) {
        unsigned i = tile_find(t->from, t->bits, 16 * lanes);
        if (i == TILE_NO_BIT || t->used[i]) {
            m->whole = false;
            for (i = 0; i < t->bits && t->used[i];)
                i++;
        }
        if (i >= t->bits)
            return false;
        t->used[i] = true;
        for (unsigned j = 0; j < lanes; j++) {
            m->lane_from[lanes + j] = m->lane_from[j] + t->from[i];
            m->lane_to[lanes + j] = m->lane_to[j] + t->to[i];
        }
    }
    return true;
}

/* The rest is counted: a loop's step takes those before it back. */
static void tile_loops_of(struct tile_moves *m, const struct tile_bits *t)
{
    uint64_t from = 0, to = 0;
    m->loops = 0;
    for (uint32_t i = 0; i < t->bits; i++) {
        if (t->used[i])
            continue;
        m->loop_from[m->loops] = t->from[i] - from;
        m->loop_to[m->loops++] = t->to[i] - to;
        from += t->from[i];
        to += t->to[i];
    }
}

/* The moves of tiles of 2^n rows and 2^k columns, of elements of 4, 8, 16 or 32 bits; all but what
 * is done to nibbles and bytes on the way. */
static void tile_moves_of(struct tile_moves *m, const struct tp_layout *from,
                          const struct tp_layout *to, unsigned bits, unsigned n, unsigned k)
{
    struct tile_bits t;
    m->possible = tile_bits_of(&t, from, to, bits, n, k);
    if (!m->possible)
        return;
    tile_front_of(m, &t);
    tile_stages_of(m, &t);
    m->possible = tile_lanes_of(m, &t);
    tile_loops_of(m, &t);
}

/* ---- moving ------------------------------------------------------------- */

/* `ahead`: from this tile to the one that is loaded next, which lies in lines that no stream of the
 * processor's own has. */
V vu tile_load(const struct tile_moves *m, const uint8_t *p, int64_t ahead)
{
    for (unsigned i = 0; i < (m->whole ? 1 : LANES); i++)
        v_prefetch_far(p + (int64_t)m->lane_from[i] + ahead);
    return m->whole ? v_load(p) : v_load_each(p, m->lane_from);
}

/* Register i of whole bytes. */
V vu tile_register(const struct tile_moves *m, enum tile_front front, unsigned i, const uint8_t *p,
                   int64_t ahead)
{
    const vu low = v_set(0x0F0F0F0Fu), high = v_set(0xF0F0F0F0u);
    vu a = tile_load(m, p, ahead), b;
    if (front == TILE_BYTES)
        return a;
    if (front == TILE_EXCHANGE) {
        a = b_lookup(a, b_table(m->exchange));
        b = v_and(v_srl(a, 4), low);
        a = v_and(a, low);
        return v_or(b_unpack_lo(a, b), v_sll(b_unpack_hi(a, b), 4));
    }
    b = tile_load(m, p + m->pair, ahead);
    if (front == TILE_LOW || (front == TILE_TURNS && i % 2 == 0))
        return v_or_and(v_sll(v_and(b, low), 4), a, low);
    return v_or_and(v_srl(v_and(a, high), 4), b, high);
}

V vu tile_mapped(const struct tile_moves *m, vu x)
{
    const vu low = v_set(0x0F0F0F0Fu), table = b_table(m->map);
    vu high = b_lookup(table, v_and(v_srl(x, 4), low));
    return v_or(b_lookup(table, v_and(x, low)), v_sll(high, 4));
}

/* As many registers as the stages exchange bytes of. */
V void tile_group(const struct tile_moves *m, enum tile_front front, unsigned stages,
                  const uint8_t *from, uint8_t *to, int64_t ahead)
{
    const vu before = b_table(m->before), after = b_table(m->after);
    vu x[1 << TILE_STAGES];
    UNROLL
    for (unsigned i = 0; i < 1 << TILE_STAGES; i++) {
        if (i >> stages)
            break;
        x[i] = tile_register(m, front, i, from + m->load[i], ahead);
        if (stages > 0 && stages < TILE_STAGES)
            x[i] = b_lookup(x[i], before);
    }
    UNROLL
    for (unsigned s = 0; s < TILE_STAGES; s++)
        UNROLL
        for (unsigned i = 0; i < 1 << TILE_STAGES; i++) {
            if (s >= stages || i >> stages || i >> s & 1)
                continue;
            vu a = x[i], b = x[i | 1u << s];
            x[i] = b_unpack_lo(a, b);
            x[i | 1u << s] = b_unpack_hi(a, b);
        }
    UNROLL
    for (unsigned i = 0; i < 1 << TILE_STAGES; i++) {
        if (i >> stages)
            break;
        x[i] = b_lookup(x[i], after);
        if (m->mapped)
            x[i] = tile_mapped(m, x[i]);
        if (m->flip)
            x[i] = v_xor(x[i], v_set(0x01010101u * m->flip));
        v_store_each(to + m->store[i], m->lane_to, x[i]);
    }
}

V void tile_groups(const struct tile_moves *m, enum tile_front front, unsigned stages,
                   const uint8_t *from, uint8_t *to, int64_t ahead)
{
    /* Of few registers two groups make a step. */
    const bool two = stages <= 1 && m->loops > 0;
    const unsigned inner = two;
    for (uint64_t i = 1;; i++) {
        tile_group(m, front, stages, from, to, ahead);
        if (two) {
            from += (int64_t)m->loop_from[0];
            to += (int64_t)m->loop_to[0];
            tile_group(m, front, stages, from, to, ahead);
        }
        if (i >> (m->loops - inner))
            return;
        const unsigned loop = (unsigned)__builtin_ctzll(i) + inner;
        from += (int64_t)m->loop_from[loop]; /* back as well as on */
        to += (int64_t)m->loop_to[loop];
    }
}

#define TILE_FRONT(name, front)                                                             \
    static __attribute__((noinline)) void name(const struct tile_moves *m, const uint8_t *from, \
                                               uint8_t *to, int64_t ahead)                   \
    {                                                                                       \
        switch (m->stages) {                                                                \
        case 0: tile_groups(m, front, 0, from, to, ahead); break;                                  \
        case 1: tile_groups(m, front, 1, from, to, ahead); break;                                  \
        case 2: tile_groups(m, front, 2, from, to, ahead); break;                                  \
        case 3: tile_groups(m, front, 3, from, to, ahead); break;                                  \
        default: tile_groups(m, front, 4, from, to, ahead); break;                                 \
        }                                                                                   \
    }
TILE_FRONT(tile_move_bytes, TILE_BYTES)
TILE_FRONT(tile_move_exchange, TILE_EXCHANGE)
TILE_FRONT(tile_move_low, TILE_LOW)
TILE_FRONT(tile_move_high, TILE_HIGH)
TILE_FRONT(tile_move_turns, TILE_TURNS)

/* A tile to where it begins. */
static inline void tile_move(const struct tile_moves *m, const uint8_t *from, uint8_t *to,
                             int64_t ahead)
{
    switch (m->front) {
    case TILE_BYTES:
        tile_move_bytes(m, from, to, ahead);
        break;
    case TILE_EXCHANGE:
        tile_move_exchange(m, from, to, ahead);
        break;
    case TILE_TURNS:
        tile_move_turns(m, from, to, ahead);
        break;
    default:
        tile_move_low(m, from, to, ahead);
        tile_move_high(m, from, to + m->high_to, ahead);
        break;
    }
}

#endif
