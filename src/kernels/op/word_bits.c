/* Codes of 4 or 8 bits in memory; see word_bits.h. */
#include "kernels/op/word_bits.h"

/* Where bit `bit` of the word that the layout fills is stored. */
static unsigned stored_at(const uint8_t *list, unsigned bit)
{
    unsigned i = 0;
    while (list && list[i] != bit)
        i++;
    return list ? i : bit;
}

uint8_t tp_bits_load(const uint8_t *list, const uint8_t *data, uint64_t at, unsigned width)
{
    unsigned first = (unsigned)(at * width % TP_WORD_BITS), value = 0;
    const uint8_t *word = data + at * width / TP_WORD_BITS * 4;
    if (!list)
        return width == 8 ? data[at] : data[at / 2] >> at % 2 * 4 & 15;
    for (unsigned b = 0; b < width; b++) {
        unsigned i = stored_at(list, first + b);
        value |= (word[i / 8] >> i % 8 & 1u) << b;
    }
    return (uint8_t)value;
}

void tp_bits_store(const uint8_t *list, uint8_t *data, uint64_t at, unsigned width, uint8_t value)
{
    unsigned first = (unsigned)(at * width % TP_WORD_BITS);
    uint8_t *word = data + at * width / TP_WORD_BITS * 4;
    for (unsigned b = 0; b < width; b++) {
        unsigned i = stored_at(list, first + b), bit = 1u << i % 8;
        word[i / 8] = (uint8_t)(value >> b & 1 ? word[i / 8] | bit : word[i / 8] & ~bit);
    }
}

uint64_t tp_bits_element(const uint8_t *list, uint64_t stored, unsigned width)
{
    uint64_t within = stored % TP_WORD_BITS;
    return (stored - within + (list ? list[within] : within)) / width;
}

bool tp_bits_within_bytes(const uint8_t *list)
{
    bool within = true;
    for (unsigned i = 0; list && i < TP_WORD_BITS; i++)
        within &= list[i] / 8 == i / 8;
    return within;
}

uint64_t tp_bits_half(const uint8_t *list, uint64_t at)
{
    return at / 8 * 8 + stored_at(list, (unsigned)(at % 8 * 4)) / 4;
}

bool tp_bits_whole(const uint8_t *list, uint64_t at)
{
    unsigned bit = (unsigned)(at % 8 * 4), first = stored_at(list, bit);
    bool whole = first % 4 == 0;
    for (unsigned b = 1; b < 4; b++)
        whole &= stored_at(list, bit + b) == first + b;
    return whole;
}
