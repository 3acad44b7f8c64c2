/* Budget: what a run may do with the machine's memory. */
#ifndef TP_PACK_BUDGET_H
#define TP_PACK_BUDGET_H

#include "pack/run/run.h"

/* What the sink of a run may do. */
struct tp_budget {
    uint64_t leaves; /* bytes for putting output leaves together */
    unsigned encoders; /* threads that compress, at run->zstd */
    bool drop;       /* files are too large for the page cache: leave no trace there */
};

#define TP_RUN_WORK (UINT64_C(512) << 20)

/* Divides run->memory, the most bytes that the whole process should take (0: TP_RUN_WORK, and
 * nothing is refused): less what is allocated by now, and the sink's share, it becomes that of
 * the contexts, of run->work at most if one of them can work with that; as many of run->jobs remain
 * as it is enough for. Sets run->drop_source as well, and
 * how much of compressed sources is kept unpacked, and run->shared_budget: a part of what is left
 * by then. Encoders have their share first; there are as many as half of the memory is enough for.
 * With a GPU most boxes are in its pinned memory, so the leaves have more. Drops when source and
 * output together are too large. TP_E_MEMORY when plan and headers have left too little for the
 * smallest box of one worker, or for the texts at the end: to be called before anything is
 * written. */
enum tp_code tp_budget_run(const struct tp_plan *plan, struct tp_run_options *run,
                           struct tp_budget *budget, struct tp_err *err);

/* Sets how much of two checkpoints that are read side by side is kept unpacked: of either a frame,
 * however large, else each would push out the other's and be unpacked again for every box. */
void tp_budget_compare(const struct tp_checkpoint *a, const struct tp_checkpoint *b);

/* Whether files of so many bytes would push out of the page cache what others need: more
 * than half of the machine's memory, or than TILEPACK_CACHE bytes when that is in the
 * environment. */
bool tp_budget_too_large(uint64_t bytes);

#endif
