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

#include "pack/plan/plan.h"

#define TP_RANKS_MOST (UINT64_C(1) << 31) /* bytes of that file */
#define TP_RANKS_VERSION 2 /* of that file; 1, of 0.1.0, had no hash of its own */
#define TP_RANK_PREFIX "rank_"

struct tp_ranks {
    unsigned count;
    const struct tp_plan *whole;
    struct tp_plan *plans; /* per rank; their units are never run */
    struct tp_request *requests; /* per rank: what its files record; shallow */
    struct tp_plan run; /* the whole, with kept packed weights that are cut as units */
    struct tp_cut *cuts; /* per unit of `run` */
    const char *unsaid_heads; /* the first weight that is cut between heads of attention of which
                                 nothing says how many there are; or NULL */
    struct tp_store store; /* constants of those units */
    struct tp_shared forms;
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

/* Units by how they are cut (enum tp_cut_along); TP_CUT_NONE: in each rank whole. */
void tp_ranks_count_cuts(const struct tp_ranks *ranks, size_t count[3]);

#endif
