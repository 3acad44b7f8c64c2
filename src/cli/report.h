/* What every command prints: errors, warnings, results in JSON.
 *
 * stdout carries results, stderr messages. Text that came from a file is printed
 * with its control characters escaped, so that a tensor's name cannot drive the
 * terminal or break a line.
 */
#ifndef TP_CLI_REPORT_H
#define TP_CLI_REPORT_H

#include "cli/print_text.h"
#include "cli/options.h"
#include "cli/writer.h"
#include "pack/source/weight_list.h"

#include <stdio.h>

/* Remembers --json, --quiet, --verbose, --color (with NO_COLOR). Until it is
 * called: text, not quiet, no colour. */
void tp_report_setup(const struct tp_options *o);

/* "PATH: tensor 'T': ", of what is there and not "". */
void tp_print_place(FILE *out, const char *path, const char *tensor);

/* Prints a failure: on stderr as
 *     tilepack: error: PATH: tensor 'T': what (at byte N)
 *       hint: what to do
 * and under --json also as one object {"version":1,"error":{...}} on stdout.
 * Returns err->code, the exit status. */
int tp_report_error(const struct tp_err *err);

/* A wrong command line: "tilepack convert: what" and the hint. `command` may be
 * NULL. Returns err->code. */
int tp_report_usage(const char *command, const struct tp_err *err);

/* A line on stderr: "tilepack: warning: ..." unless --quiet, "tilepack: ..." of what is worth
 * knowing and no reason to worry unless --quiet, and of what is asked for with --verbose. */
enum tp_message { TP_WARNING, TP_SAID, TP_NOTE };
void tp_message(enum tp_message kind, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define tp_warn(...) tp_message(TP_WARNING, __VA_ARGS__)
#define tp_say(...) tp_message(TP_SAID, __VA_ARGS__)
#define tp_note(...) tp_message(TP_NOTE, __VA_ARGS__)
/* That packed weights have a format that is not known here, a line for each. */
void tp_say_unknown(const struct tp_weights *weights);

/* Whether something is to be said of an output that a command made: not under --quiet, and nothing
 * more than `what`, which is said here of one that was there (NULL: it was not). */
bool tp_report_there(const char *output, const char *what);

/* Flushes stdout; a failure (full disk, closed pipe) is reported and turns the
 * status into TP_E_IO unless it is an error already. */
int tp_report_finish(int status);

/* SGR escape for stdout, "" without colour: style is "1" bold, "31" red, ... and
 * "0" ends it. */
const char *tp_style(const char *style);

/* Begins a result in JSON, with "version" in it. */
void tp_json_open(struct tp_writer *w);
/* Ends it and prints it on stdout. Returns TP_OK, or TP_E_MEMORY after reporting it. */
int tp_json_close(struct tp_writer *w);
/* All of a result that has no list: tp_json_result(tp_str("path", path), ...). */
#define tp_json_result(...) tp_json_members(TP_MEMBERS(__VA_ARGS__))
int tp_json_members(const struct tp_member *members);

#endif
