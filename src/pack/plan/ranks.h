/* Ranks: the outputs of a plan divided among tensor-parallel ranks, and back.
 *
 * What is cut is the packed whole: every code and scale of a rank's slice is that of
 * the conversion without ranks, in the layout of the smaller matrix. (Converting a
 * slice instead would give other scales wherever a scale is computed over a row that
 * is cut.) So joining the ranks gives back the whole byte for byte.
 *
 * Each rank is a complete checkpoint of its own, in DST/rank_R. Its shards hold the
 * same weights as the shards of the whole. Weights that engines divide by output
 * features are cut along N, those divided by input features along K; all else,
 * plain tensors included, is whole in every rank.
 */
#ifndef TP_PACK_RANKS_H
#define TP_PACK_RANKS_H

#include "pack/plan/box.h"
#include "pack/plan/plan.h"
#include "pack/sink/sink.h"

#define TP_RANKS_NAME "tilepack-tp.json" /* beside the ranks: what `join` needs */
#define TP_RANK_PREFIX "rank_"

struct tp_ranks {
    unsigned count;
    const struct tp_plan *whole;
    struct tp_plan *plans; /* per rank; their units are never run */
    struct tp_request *requests; /* per rank: what its files record; shallow */
    struct tp_plan run; /* the whole, with kept packed weights that are cut as units */
    struct tp_cut *cuts; /* per unit of `run` */
    /* All files to be written, in one plan: file f of rank r is f * count + r, its
     * name "rank_R/NAME". */
    struct tp_plan all;
    uint32_t *output; /* output o of rank r in `all`: output[o * count + r] */
};

/* Divides a plan for a directory. `whole` and `request` must outlive *ranks. A weight
 * that cannot be cut at the borders of its tiles is TP_E_UNSUPPORTED, with the numbers
 * of ranks that are possible. */
enum tp_code tp_ranks_make(const struct tp_plan *whole, const struct tp_request *request,
                           unsigned count, struct tp_ranks *ranks, struct tp_err *err);
void tp_ranks_close(struct tp_ranks *ranks); /* legal on {0} and twice */

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
/* The part of `box` inside the slice, in the whole (*common) and in the rank. */
bool tp_slice_common(const struct tp_slice *slice, const struct tp_box *box,
                     struct tp_box *common, struct tp_box *in_rank);

/* Takes the writes of a run of ranks->run and hands them on to `to`, whose plan is
 * ranks->all; or, with `only` < ranks->count, those of one rank, and the plan of `to`
 * is ranks->plans[only]. */
#define TP_ALL_RANKS UINT32_MAX
struct tp_scatter {
    struct tp_sink sink;
    const struct tp_ranks *ranks;
    unsigned only;
    struct tp_sink *to;
};
void tp_scatter_open(struct tp_scatter *scatter, const struct tp_ranks *ranks, unsigned only,
                     struct tp_sink *to);

/* The way back: packed weights that lie in slices. */
struct tp_gather {
    unsigned count;
    const struct tp_checkpoint *ckpts;  /* per rank */
    const struct tp_weights *weights;   /* per rank */
    const struct tp_weights *whole;     /* those of the joined plan */
    const struct tp_cut *cuts;          /* per weight of `whole` */
    const uint32_t *sources;            /* weight w of rank r: sources[w * count + r] */
};
/* As tp_packed_read_into(), for a weight of gather->whole. */
enum tp_code tp_gather_read(const struct tp_gather *gather, const struct tp_weight *weight,
                            const struct tp_box *cover, void *const to[], struct tp_err *err);

#endif
