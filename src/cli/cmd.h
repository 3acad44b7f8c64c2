/* The commands: each is one function in its own cmd_*.c. It prints its result on
 * stdout, reports failures through report.h, and returns the exit status (an
 * enum tp_code). The rest of the process, parsing included, is main.c's.
 */
#ifndef TP_CLI_CMD_H
#define TP_CLI_CMD_H

#include "cli/options.h"
#include "pack/api/tilepack.h"

#define TP_VERSION TILEPACK_VERSION

int tp_cmd_convert(const struct tp_options *o);
int tp_cmd_plan(const struct tp_options *o);
int tp_cmd_dump(const struct tp_options *o);
int tp_cmd_verify(const struct tp_options *o);
int tp_cmd_unpack(const struct tp_options *o);
int tp_cmd_diff(const struct tp_options *o);
int tp_cmd_formats(const struct tp_options *o);
int tp_cmd_compare(const struct tp_options *o);
int tp_cmd_models(const struct tp_options *o);
int tp_cmd_schedule(const struct tp_options *o);
int tp_cmd_bench(const struct tp_options *o);
int tp_cmd_prove(const struct tp_options *o);
int tp_cmd_merge(const struct tp_options *o);
int tp_cmd_digest(const struct tp_options *o);
int tp_cmd_completions(const struct tp_options *o);

#endif
