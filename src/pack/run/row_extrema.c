/* Finding the extrema of rows, and putting them before panels. Knows bits of floats only: a
 * larger magnitude is a larger number without the sign, NaN above all.
 */
#include "pack/run/row_extrema.h"

#include "base/num.h"
#include "pack/plan/cut/box.h"

#include <string.h>

/* Sign and exponent bits of a type. */
struct bits {
    unsigned width;
    uint32_t sign, infinity;
};

static struct bits bits_of(enum tp_dtype dtype)
{
    if (dtype == TP_F32)
        return (struct bits){4, UINT32_C(1) << 31, 0x7F800000};
    return (struct bits){2, 0x8000, dtype == TP_BF16 ? 0x7F80 : 0x7C00};
}

static uint32_t load(const uint8_t *at, unsigned width)
{
    uint16_t half;
    uint32_t word;
    if (width == 4) {
        memcpy(&word, at, 4);
        return word;
    }
    memcpy(&half, at, 2);
    return half;
}

static void raise(uint32_t *max, uint32_t value, const struct bits *bits)
{
    if ((value & ~bits->sign) > (*max & ~bits->sign))
        *max = value;
}

/* The magnitudes of one block; whether all of it is zero. */
static bool block_extrema(const struct bits *bits, const uint8_t *values, uint64_t k,
                          struct tp_row_extrema *extrema)
{
    uint32_t all = 0;
    for (uint64_t i = 0; i < k; i++) {
        uint32_t value = load(values + i * bits->width, bits->width);
        uint32_t magnitude = value & ~bits->sign;
        all |= magnitude;
        raise(&extrema->any, value, bits);
        if (magnitude <= bits->infinity)
            raise(&extrema->number, value, bits);
        if (magnitude < bits->infinity)
            raise(&extrema->finite, value, bits);
    }
    return all == 0;
}

void tp_row_extrema(enum tp_dtype dtype, const void *values, uint64_t n, uint64_t k,
                    uint64_t block_k, struct tp_row_extrema *extrema)
{
    struct bits bits = bits_of(dtype);
    const uint8_t *at = values;
    for (uint64_t row = 0; row < n; row++)
        for (uint64_t i = 0, size; i < k; i += size, at += size * bits.width) {
            size = block_k ? tp_min_u64(block_k, k - i) : k;
            extrema[row].zeros |= block_extrema(&bits, at, size, &extrema[row]) && block_k;
        }
}

static uint8_t *fill(uint8_t *to, uint32_t value, uint64_t count, unsigned width)
{
    for (uint64_t i = 0; i < count; i++, to += width)
        memcpy(to, &value, width); /* little-endian hosts only, as is the format */
    return to;
}

void tp_row_widen(enum tp_dtype dtype, const void *values, uint64_t n, uint64_t k,
                  const struct tp_row_extrema *extrema, uint64_t extra, void *to)
{
    unsigned width = bits_of(dtype).width;
    uint64_t row = k * width, each = extra / TP_ROW_EXTREMA;
    uint8_t *at = to;
    for (uint64_t i = 0; i < n; i++, extrema++, at += row) {
        at = fill(at, extrema->any, each, width);
        at = fill(at, extrema->number, each, width);
        at = fill(at, extrema->finite, each, width);
        at = fill(at, extrema->zeros ? 0 : extrema->finite, each, width);
        memcpy(at, (const uint8_t *)values + i * row, row);
    }
}
