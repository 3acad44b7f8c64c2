/* The commands: each is one function in its own cmd_*.c. It prints its result on
 * stdout, reports failures through report.h, and returns the exit status (an
 * enum tp_code). The rest of the process, parsing included, is main.c's.
 */
#ifndef TP_CLI_CMD_H
#define TP_CLI_CMD_H

#include "cli/options.h"
#include "pack/api/tilepack.h"

#define TP_VERSION TILEPACK_VERSION

#define X(constant, function) int tp_cmd_##function(const struct tp_options *o);
TP_COMMANDS(X)
#undef X

/* Prints what the last of the words behind "tilepack" may become, one a line; TP_E_DIFF: a file. */
int tp_complete(int count, const char *const *words);

#endif
