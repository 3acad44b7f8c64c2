/* Breaks text into lines of WIDTH columns, between words. */
#include "cli/facts.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 80 };

void tp_print_wrapped(FILE *out, const char *text, unsigned at, unsigned indent)
{
    for (bool first = true; *text; first = false) {
        unsigned size = (unsigned)strcspn(text, " ");
        if (!first && at + 1 + size > WIDTH) {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
        } else if (!first) {
            fputc(' ', out);
            at++;
        }
        fwrite(text, 1, size, out);
        at += size;
        text += size;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

void tp_print_fact(const char *name, const char *text)
{
    printf("%-*s", TP_FACT_INDENT, name);
    tp_print_wrapped(stdout, text, TP_FACT_INDENT, TP_FACT_INDENT);
}
