/* Budget: what a run may do with the machine's memory. */
#ifndef TP_PACK_BUDGET_H
#define TP_PACK_BUDGET_H

#include "pack/plan.h"

struct tp_budget {
    uint64_t lanes;  /* bytes that all workers together take for boxes */
    uint64_t leaves; /* bytes for putting output leaves together */
    bool drop;       /* files are too large for the page cache: leave no trace there */
};

/* `memory`: the most bytes that the whole process should take, 0 for 512 MiB. What
 * is allocated by now is taken off. Too small a figure is not refused: a conversion
 * does with a few megabytes, and says nothing. Files count as too large when source
 * and output together are more than half of the machine's memory, or than
 * TILEPACK_CACHE bytes when that is in the environment. With a GPU most boxes are in
 * its pinned memory, so the leaves have more. */
struct tp_budget tp_budget_of(const struct tp_plan *plan, uint64_t memory, bool gpu);

#endif
