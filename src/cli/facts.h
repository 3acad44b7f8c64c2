/* Text in lines of 80 columns, and facts: a name on the left, what is known of it on the right.
 * For `formats`, `models`, `quantizers` and --help.
 */
#ifndef TP_CLI_FACTS_H
#define TP_CLI_FACTS_H

#include <stdio.h>

/* Prints the words of `text` and ends the line. The caller has printed `at` columns of the first
 * line; the lines behind it begin with `indent` spaces. A word is never broken. */
void tp_print_wrapped(FILE *out, const char *text, unsigned at, unsigned indent);

/* One fact on standard output. An empty name continues the fact before. */
enum { TP_FACT_INDENT = 14 }; /* the column of the text */
void tp_print_fact(const char *name, const char *text);

#endif
