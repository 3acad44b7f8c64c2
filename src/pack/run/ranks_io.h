/* Bytes on their way to the ranks (scatter) and back (gather). */
#ifndef TP_PACK_RANKS_IO_H
#define TP_PACK_RANKS_IO_H

#include "pack/plan/ranks.h"
#include "pack/sink/sink.h"

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
