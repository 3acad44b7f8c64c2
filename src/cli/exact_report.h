/* Packed weights whose codes and scales are taken over as they are, and with which choices of their
 * format that is so.
 */
#ifndef TP_CLI_EXACT_REPORT_H
#define TP_CLI_EXACT_REPORT_H

#include "cli/writer.h"
#include "pack/plan/unit/plan.h"

/* The line "codes taken over, exact: 14 weights (group=32, scales=f16)", or nothing. */
void tp_exact_print(const struct tp_plan *plan);

/* Writes "exact": {"weights": 14, "set": "group=32, scales=f16"}, or nothing. */
void tp_exact_put(struct tp_writer *w, const struct tp_plan *plan);

#endif
