/* Marks of rows: the values that decide the scale of a whole row, so that its pieces can be
 * encoded one by one (box.h). Inside of lane.c.
 */
#ifndef TP_PACK_ROW_MARKS_H
#define TP_PACK_ROW_MARKS_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* Bits of values of 2 or 4 bytes, by magnitude; all zero before the first piece. */
struct tp_row_marks {
    uint32_t any, number, finite; /* the largest; that is no NaN; that is finite */
    bool zeros;                   /* a block of the row is all zeros */
};

/* Takes in a piece of n rows: values [n][k] of F32, BF16 or F16. It begins at a block of
 * block_k columns; 0: a row is one block. */
void tp_row_marks(enum tp_dtype dtype, const void *values, uint64_t n, uint64_t k,
                  uint64_t block_k, struct tp_row_marks *marks);

/* Writes [n][extra + k]: the marks of each row, each in one TP_ROW_MARKS-th of the extra columns,
 * and behind them the values, of which the last piece may end inside a tile. */
void tp_row_widen(enum tp_dtype dtype, const void *values, uint64_t n, uint64_t k,
                  const struct tp_row_marks *marks, uint64_t extra, void *to);

#endif
