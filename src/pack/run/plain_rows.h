/* Plain weights in files: W[E,N,K] row by row, or transposed, as some architectures
 * store their stacks of experts. Everyone who reads or writes plain values does it
 * here, so that the rest of the program sees one orientation only.
 */
#ifndef TP_PACK_PLAIN_ROWS_H
#define TP_PACK_PLAIN_ROWS_H

#include "pack/sink/sink.h"

/* Rows [row, row + rows) and columns [k, k + columns) of one expert, compact and row
 * by row, in the weight's dtype. */
enum tp_code tp_plain_read(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                           uint64_t expert, uint64_t row, uint64_t rows, uint64_t k,
                           uint64_t columns, void *to, struct tp_err *err);

/* Writes the values of a box of a plain unit, as the unit is oriented. */
enum tp_code tp_plain_write(const struct tp_unit *unit, const struct tp_box *box,
                            const void *from, struct tp_sink *sink, struct tp_err *err);

#endif
