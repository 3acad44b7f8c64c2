/* Packed weights of which nothing is lost: codes and scales are taken over as they are, or all
 * values are numbers of the format; and with which choices of their format that is so. Where only
 * the numbers tell, a plan says the condition, and who has done the work (`done`) that it held.
 */
#ifndef TP_CLI_EXACT_REPORT_H
#define TP_CLI_EXACT_REPORT_H

#include "cli/writer.h"
#include "pack/plan/unit/plan.h"

/* Lines as "codes taken over, exact: 14 weights (group=32, scales=f16)", or nothing. */
void tp_exact_print(const struct tp_plan *plan, bool done);

/* Writes "exact": {"weights": 14, "set": "group=32, scales=f16"} and the like, or nothing. */
void tp_exact_put(struct tp_writer *w, const struct tp_plan *plan, bool done);

#endif
