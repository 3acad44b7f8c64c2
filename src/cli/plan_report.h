/* Printing a plan: what will be converted to what, what is kept and why. */
#ifndef TP_CLI_PLAN_REPORT_H
#define TP_CLI_PLAN_REPORT_H

#include "cli/options.h"
#include "cli/served_report.h"
#include "pack/plan/unit/plan.h"

/* As text, or as one JSON object. Return the exit status. */
int tp_plan_print(const struct tp_plan *plan, const struct tp_options *o);
int tp_plan_print_json(const struct tp_plan *plan, const struct tp_serving *serving);

/* Why scales are not searched although the format has a search, or NULL. */
enum { TP_SEARCH_NOTE = 160 };
const char *tp_search_note(const struct tp_unit_form *form, char text[TP_SEARCH_NOTE]);

/* One line per distinct warning and per kept weight that was asked for. */
void tp_plan_warn(const struct tp_plan *plan);

/* Of what is written as a directory: one warning that names the files of the source which are
 * not copied along. */
void tp_plan_warn_left(const struct tp_plan *plan);

/* Writes "left_out", those names. */
void tp_plan_put_left(struct tp_writer *w, const struct tp_plan *plan);

#endif
