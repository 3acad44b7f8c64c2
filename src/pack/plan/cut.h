/* The geometry of a weight that is cut for tensor-parallel ranks: which rows and columns
 * of the whole lie where in which rank. Knows numbers only; what is cut, and how, is
 * decided in ranks.c.
 */
#ifndef TP_PACK_CUT_H
#define TP_PACK_CUT_H

#include "kernels/op/kernel.h"

enum { TP_MAX_VIEWS = 4 }; /* of a weight's rows: gate and up, or q, k and v */

enum { TP_MAX_RANKS = 1024 };

/* How a weight is divided among tensor-parallel ranks. Each of `pieces` stretches of
 * rows (gate and up; q, k and v) is cut by itself: a rank has its share of each. */
enum tp_cut_along { TP_CUT_NONE, TP_CUT_N, TP_CUT_K };
struct tp_cut {
    enum tp_cut_along along;
    uint32_t ranks; /* 0: not cut */
    uint32_t pieces;
    uint64_t piece_rows[TP_MAX_VIEWS]; /* of the whole weight; their sum is N */
};

/* A stretch of a weight that lies in one rank, where it is in both. */
struct tp_slice {
    struct tp_box whole; /* e = 0, size.e = all */
    uint64_t n, k;       /* where it begins in the rank's matrix */
};
/* Number of a rank's stretches, and stretch number p of rank r. */
uint32_t tp_cut_slices(const struct tp_cut *cut);
struct tp_slice tp_cut_slice(const struct tp_cut *cut, struct tp_box3 box, unsigned ranks,
                             unsigned r, uint32_t p);
struct tp_box3 tp_cut_box(const struct tp_cut *cut, struct tp_box3 box);
/* Whether slices of such a weight are stored like small tensors of their own: each
 * begins and ends at a border of tiles. */
bool tp_cut_aligned(const struct tp_op *op, const struct tp_cut *cut, struct tp_box3 box);
/* Granules of a cut: those of the boxes, but an output that has one element for a
 * whole row (or column) is simply repeated. 0: cannot be cut. */
void tp_cut_granules(const struct tp_op *op, uint64_t *n, uint64_t *k);
/* The part of `box` inside the slice, in the whole (*common) and in the rank. */
bool tp_slice_common(const struct tp_slice *slice, const struct tp_box *box,
                     struct tp_box *common, struct tp_box *in_rank);

#endif
