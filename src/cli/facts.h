/* Text in lines of 80 columns, and facts: a name on the left, what is known of it on the right.
 * For `formats`, `models`, `quantizers` and --help.
 */
#ifndef TP_CLI_FACTS_H
#define TP_CLI_FACTS_H

#include "base/error.h"
#include "cli/options.h"
#include "cli/table.h"
#include "pack/text/text.h"

#include <stdio.h>

/* Prints the words of `text` and ends the line. The caller has printed `at` columns of the first
 * line; the lines behind it begin with `indent` spaces. A word is never broken. */
void tp_print_wrapped(FILE *out, const char *text, unsigned at, unsigned indent);

/* One fact on standard output. An empty name continues the fact before. */
enum { TP_FACT_INDENT = 14 }; /* the column of the text */
void tp_print_fact(const char *name, const char *text);

/* Adds the words to the text, with ", " between them. */
void tp_add_words(struct tp_text *text, const char *const *words, size_t count,
                  struct tp_err *err);

/* A fact that was put together, and one of words. It is left out if memory was short for it, or,
 * as `err` says, for one before it: tp_report_error() tells the reader then. Frees the text. */
void tp_print_text_fact(const char *name, struct tp_text *text, const struct tp_err *err);
void tp_print_words(const char *name, const char *const *words, size_t count,
                    struct tp_err *err);

/* Ends the table of all models, or of all quantizers, with the hint that `tilepack COMMAND NAME`
 * shows one of them; err: of the rows. Returns the exit status. */
int tp_list_end(struct tp_table *table, const char *command, const struct tp_err *err);

/* A command that lists files of facts, or shows one of them. */
struct tp_facts_command {
    const char *name, *one; /* "engines", "engine" */
    const void *const *all; /* the items, which begin with their names */
    size_t count, json;     /* how many; where an item has its json_t * */
    int (*print_list)(void);
    int (*print_one)(const void *item);
};
/* Returns the exit status. */
int tp_facts_command(const struct tp_options *o, const struct tp_facts_command *command);

#endif
