/* What became of an output: the options that decide it, and what is said of it, by all commands
 * that write one.
 */
#ifndef TP_CLI_OUTCOME_H
#define TP_CLI_OUTCOME_H

#include "cli/option_table.h"
#include "cli/writer.h"
#include "pack/commit/commit.h"

/* --force and --if-exists. */
enum tp_code tp_outcome_wanted(const struct tp_options *o, enum tp_if_exists *wanted,
                               struct tp_err *err);
/* Says what is to be known of it besides: no lock, and what is kept of what was replaced. */
void tp_outcome_say(const char *output, const struct tp_convert_result *result);
/* Writes "kind", "reason" and "old". */
void tp_outcome_put(struct tp_writer *w, const struct tp_convert_result *result);
/* Prints no more than that, of an output that was left as it is. Returns the exit status. */
int tp_outcome_json(const char *output, const struct tp_convert_result *result);
/* Whether there is more to say of it than that it was there, which is said here. */
bool tp_outcome_is_new(const char *output, const struct tp_convert_result *result);

#endif
