/* Parsing the command line, as the tables of option_table.h say.
 *
 * Nothing here prints, exits, or looks at a file; a value's form is checked, its
 * meaning (is there such a format?) is the command's business.
 */
#ifndef TP_CLI_OPTIONS_H
#define TP_CLI_OPTIONS_H

#include "base/error.h"
#include "cli/option_table.h"

/* Parses the arguments behind the command's name. *o is overwritten; free it in
 * every case. A failure is TP_E_USAGE with a hint (TP_E_MEMORY when memory is
 * short). With --help, missing operands and options are no failure. */
enum tp_code tp_options_parse(enum tp_command command, int argc, char *const *argv,
                              struct tp_options *o, struct tp_err *err);
void tp_options_free(struct tp_options *o); /* legal on {0} and twice */

/* The command of that name; fails with a suggestion when there is none. */
enum tp_code tp_command_find(const char *name, enum tp_command *command, struct tp_err *err);

#endif
