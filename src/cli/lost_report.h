/* The warning that weights lost runs of values (tp_distance_lost()), which errors of the whole do
 * not show.
 */
#ifndef TP_CLI_LOST_REPORT_H
#define TP_CLI_LOST_REPORT_H

#include "pack/check/estimate_card.h"
#include "pack/check/verify_values.h"

/* On stderr, a line for the weights that lose too much, if any do: which loses most, and how many
 * others do; with --verbose each of them. */
void tp_lost_warn(const struct tp_unit_result *units, size_t count);

/* The same of a conversion: for tp_convert_options.errors, what tp_estimate_card() finds. */
enum tp_code tp_lost_estimate(const struct tp_plan *plan, const struct tp_run_options *run,
                              struct tp_card_use *uses, size_t count, struct tp_err *err);

#endif
