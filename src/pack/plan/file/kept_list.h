/* The modules of a plan that readers have to take as they are: their names, as each kind of
 * reader asks for them.
 */
#ifndef TP_PACK_KEPT_LIST_H
#define TP_PACK_KEPT_LIST_H

#include "pack/plan/unit/plan.h"

/* How a reader matches the entries: as names of modules ("fp8"), as names and "re:"
 * expressions (compressed-tensors), or not at all: the list of a kernel-ready checkpoint. */
enum tp_kept_form { TP_KEPT_EXACT, TP_KEPT_CT, TP_KEPT_OWN };

/* The kept linear layers, exact names of what was really kept; behind them what readers look
 * for under other names: kept stacks of experts, modules that a reader renames, and "lm_head",
 * which is there without a tensor where it shares that of the embedding. A new reference; NULL
 * + TP_E_MEMORY. */
json_t *tp_kept_list(const struct tp_plan *plan, enum tp_kept_form form, struct tp_err *err);

/* Whether an output head is packed, now or before. */
bool tp_packs_head(const struct tp_plan *plan);

#endif
