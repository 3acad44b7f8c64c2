/* Text in lines of WIDTH columns, to stdout. */
#include "cli/facts.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 80 };

void tp_print_wrapped(const char *text, unsigned at, unsigned indent)
{
    for (bool first = true; *text; first = false) {
        unsigned size = (unsigned)strcspn(text, " ");
        if (!first && at + 1 + size > WIDTH) {
            printf("\n%*s", (int)indent, "");
            at = indent;
        } else if (!first) {
            putchar(' ');
            at++;
        }
        printf("%.*s", (int)size, text);
        at += size;
        text += size;
        text += strspn(text, " ");
    }
    putchar('\n');
}

void tp_print_fact(const char *name, const char *text)
{
    printf("%-*s", TP_FACT_INDENT, name);
    tp_print_wrapped(text, TP_FACT_INDENT, TP_FACT_INDENT);
}
