/* The option table as text: --help for people, mdoc(7) for the man pages. */
#ifndef TP_CLI_HELP_H
#define TP_CLI_HELP_H

#include "cli/options.h"

#include <stdio.h>

/* The overview: every command but the hidden ones. */
void tp_help_top(FILE *out);
/* One command. */
void tp_help_command(FILE *out, enum tp_command command);
/* The options of one command as a mdoc list: all, or only those that not every
 * command has, or only those that every command has. Nothing if there are none. */
enum tp_help_which { TP_HELP_ALL, TP_HELP_OWN, TP_HELP_COMMON };
void tp_help_mdoc(FILE *out, enum tp_command command, enum tp_help_which which);

#endif
