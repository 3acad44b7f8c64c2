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
/* On stderr, unless --quiet: where what was replaced is kept. Also where the command has failed. */
void tp_outcome_say_old(const struct tp_convert_result *result);
/* Writes "kind", "reason" and "old". */
void tp_outcome_put(struct tp_writer *w, const struct tp_convert_result *result);
/* Whether there is more to say of it than that it was there, which is said here. */
bool tp_outcome_is_new(const char *output, const struct tp_convert_result *result);

#endif
