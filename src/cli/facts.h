/* Facts as text, a name and what it is, for `formats` and `models`. */
#ifndef TP_CLI_FACTS_H
#define TP_CLI_FACTS_H

#include <stdio.h>

enum { TP_FACT_INDENT = 14 };

/* Words of `text` in lines of 80 columns; the first one begins at column `at`. */
void tp_print_wrapped(FILE *out, const char *text, unsigned at, unsigned indent);
void tp_print_fact(const char *name, const char *text);

#endif
