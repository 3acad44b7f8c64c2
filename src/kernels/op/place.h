/* Internal to src/kernels: an operation whose outputs lie in rows.
 *
 * With it a fast row for plain rows serves every layout: it makes codes and scales in rows, and
 * tiles of them are moved to where the layout has them. Knows no codec and no instruction set.
 */
#ifndef TP_KERNELS_PLACE_H
#define TP_KERNELS_PLACE_H

#include "kernels/op/kernel.h"

enum {
    TP_PLACE_ROWS = 128,       /* most rows of a strip */
    TP_PLACE_MIN_GROUP = 16,   /* columns that share a scale, at least */
};

/* The operation with the same codes and scales in rows: codes (E,N,K), scales by blocks, the
 * nibbles of int4 not mapped, no scale raised to a least one; those that are stored times a
 * factor are F32 without it, those of E5M3 are E4M3. Layouts point into *flat. */
struct tp_flat {
    struct tp_op op;
    struct tp_layout_expr layout;
};
void tp_flat_of(const struct tp_op *op, struct tp_flat *flat);

/* Whether there is such an operation whose scales fit a strip of rows: no group scales of
 * W4A8, blocks of at most TP_PLACE_ROWS rows and at least TP_PLACE_MIN_GROUP columns. */
bool tp_flat_possible(const struct tp_op *op);

/* Whether some output lies in no way that a row of its own knows, so that rows for any layout
 * are asked. */
bool tp_flat_differs(const struct tp_op *op);

/* Bytes that a repack may need for its scales before they are moved, padding included. */
size_t tp_scales_room(const struct tp_op *op, struct tp_box3 box);

/* Bytes for codes and scales in rows of a strip of TP_PLACE_ROWS rows of a weight, at most. */
size_t tp_flat_bytes(struct tp_box3 box);

#endif
