/* What ranks of an engine have of a weight, and of all of a plan's: tensor parallel, and experts
 * divided by their number. */
#ifndef TP_PACK_RANKS_H
#define TP_PACK_RANKS_H

#include "pack/plan/file/wish.h"
#include "pack/plan/unit/plan.h"

/* Into how many parts the wish's ranks divide its rows (TP_PARALLEL_N) or its columns. Each rank
 * has a whole head of k and v, however few there are. */
uint64_t tp_rank_parts(const struct tp_model_facts *facts, const char *name, enum tp_use use,
                       const struct tp_wish *wish, enum tp_parallel cut);

/* Whether ranks can divide the heads of attention that config.json states: each has as many, and of
 * fewer heads of k and v than ranks as many ranks have each. One rank can. */
bool tp_ranks_have_heads(const struct tp_model_facts *facts, unsigned ranks);

/* Bytes of tensors that the fullest of the wish's ranks holds: its parts of what ranks divide, of
 * tables of embeddings and heads too, and all else. */
uint64_t tp_plan_rank_bytes(const struct tp_plan *plan, const struct tp_wish *wish);

/* Whether each of the wish's ranks has its heads, and of what stays plain as much as the others. */
bool tp_plan_has_parts(const struct tp_plan *plan, const struct tp_wish *wish);

#endif
