/* The bits of codes within their words: to where they are stored, and back (word_bits.h). */
#ifndef TP_KERNELS_CPU_WORD_BITS_H
#define TP_KERNELS_CPU_WORD_BITS_H

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

#endif
