/* Printing a plan: what will be converted to what, what is kept and why. */
#ifndef TP_CLI_PLAN_REPORT_H
#define TP_CLI_PLAN_REPORT_H

#include "cli/options.h"
#include "pack/plan/ranks.h"

/* As text or, with --json, as one object; with `ranks` (or NULL) also how the plan is
 * divided among them. Returns the exit status. */
int tp_plan_print(const struct tp_plan *plan, const struct tp_ranks *ranks,
                  const struct tp_options *o);
int tp_plan_print_json(const struct tp_plan *plan, const struct tp_ranks *ranks);

/* Units by how they are cut (enum tp_cut_along); TP_CUT_NONE: in each rank whole. */
void tp_plan_count_cuts(const struct tp_ranks *ranks, size_t count[3]);

/* One line per distinct warning and per kept weight that was asked for. */
void tp_plan_warn(const struct tp_plan *plan);

#endif
