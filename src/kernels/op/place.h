/* Internal to src/kernels: how the codes of a block of rows and columns lie in a stored output,
 * as tables of offsets, and an operation whose outputs lie in rows.
 *
 * With both a fast row for plain rows serves every layout: it makes codes and scales in rows,
 * and the tables say which code of a block goes where. Knows no codec and no instruction set.
 */
#ifndef TP_KERNELS_PLACE_H
#define TP_KERNELS_PLACE_H

#include "kernels/op/kernel.h"

enum {
    TP_PLACE_CODES = 8192, /* most codes of a block */
    TP_PLACE_RUNS = 1024,  /* most runs that they may lie in */
    TP_PLACE_ROWS = 128,   /* most rows of a block */
    TP_PLACE_LEAST_GROUP = 16, /* columns that share a scale, at least */
    /* Tables for whole blocks and those at the end of K, of two layouts; one block of codes. */
    TP_PLACE_SCRATCH = 4 * (2 * TP_PLACE_CODES + 16 * TP_PLACE_RUNS + 128) + TP_PLACE_CODES + 64,
};

/* The blocks of rows and columns whose codes lie alike, up to where they begin. */
struct tp_place_grid {
    uint64_t rows, columns;
};

/* What of a block lies without gaps. */
struct tp_place_run {
    uint64_t at;   /* where it begins, counted in codes from the block's first code */
    uint32_t from; /* row * columns + column of its first code */
};

struct tp_place_block {
    uint32_t length, runs;          /* all runs are as long */
    uint32_t span;                  /* of a run: so many codes are neighbours in a row, too */
    const uint16_t *from;           /* by place in a run: row * columns + column, from the first */
    const struct tp_place_run *run;
};

/* The smallest grid that suits a layout evaluated for a weight, in *grid; a grid of several
 * layouts is made of the least common multiples. */
struct tp_place_grid tp_place_grid_of(const struct tp_layout *layout);

/* Enlarges a grid to blocks that are worth a table, in multiples of it and no larger than
 * the weight needs. False: the smallest block is too large. */
bool tp_place_grid_grow(struct tp_place_grid *grid, struct tp_box3 box);

/* Tables for blocks of that size, which begin at multiples of the layout's grid and are
 * multiples of it; taken from *scratch, which moves on (a quarter of TP_PLACE_SCRATCH).
 * False where codes of 4 bits do not share bytes with others of the block, or there are
 * too many runs. */
bool tp_place_block_open(const struct tp_layout *layout, unsigned bits,
                         struct tp_place_grid size, struct tp_place_block *block,
                         void **scratch);

/* The operation with the same codes and scales in rows: codes (E,N,K), scales by blocks, the
 * nibbles of int4 not mapped, no scale raised to a least one; those that are stored times a
 * factor are F32 without it, those of E5M3 are E4M3. Layouts point into *flat. */
struct tp_flat {
    struct tp_op op;
    struct tp_layout_expr layout;
};
void tp_flat_of(const struct tp_op *op, struct tp_flat *flat);

/* Whether there is such an operation whose scales fit a strip of rows: no group scales of
 * W4A8, blocks of at most TP_PLACE_ROWS rows and at least TP_PLACE_LEAST_GROUP columns. */
bool tp_flat_possible(const struct tp_op *op);

/* Whether some output lies in no way that a row of its own knows, so that rows for any layout
 * are asked. */
bool tp_flat_differs(const struct tp_op *op);

/* Bytes for codes and scales in rows of a strip of TP_PLACE_ROWS rows of a weight, at most. */
size_t tp_flat_bytes(struct tp_box3 box);

#endif
