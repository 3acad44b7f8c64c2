/* Extrema of rows: the values that decide the scale of a whole row, so that its panels can be
 * encoded one by one (box.h). Inside of context.c.
 */
#ifndef TP_PACK_ROW_EXTREMA_H
#define TP_PACK_ROW_EXTREMA_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* Bits of values of 2 or 4 bytes, by magnitude; all zero before the first panel. */
struct tp_row_extrema {
    uint32_t any, number, finite; /* the largest; that is no NaN; that is finite */
    bool zeros;                   /* a block of the row is all zeros */
};

/* Takes in a panel of n rows: values [n][k] of F32, BF16 or F16. It begins at a block of
 * block_k columns; 0: a row is one block. */
void tp_row_extrema(enum tp_dtype dtype, const void *values, uint64_t n, uint64_t k,
                    uint64_t block_k, struct tp_row_extrema *extrema);

/* Writes [n][extra + k]: the extrema of each row, each in one TP_ROW_EXTREMA-th of the extra
 * columns, and behind them the values, of which the last panel may end inside a tile. */
void tp_row_widen(enum tp_dtype dtype, const void *values, uint64_t n, uint64_t k,
                  const struct tp_row_extrema *extrema, uint64_t extra, void *to);

#endif
