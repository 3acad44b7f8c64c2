/* Breaks text into lines of WIDTH columns, between words. */
#include "cli/facts.h"

#include "cli/report.h"

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

void tp_add_words(struct tp_text *text, const char *const *words, size_t count,
                  struct tp_err *err)
{
    for (size_t i = 0; i < count; i++) {
        tp_text_add_word(text, i ? ", " : "", err);
        tp_text_add_word(text, words[i], err);
    }
}

void tp_print_text_fact(const char *name, struct tp_text *text, const struct tp_err *err)
{
    if (text->data && err->code == TP_OK)
        tp_print_fact(name, text->data);
    tp_text_free(text);
}

void tp_print_words(const char *name, const char *const *words, size_t count, struct tp_err *err)
{
    struct tp_text text = {0};
    tp_add_words(&text, words, count, err);
    tp_print_text_fact(name, &text, err);
}

int tp_list_end(struct tp_table *table, const char *command, const struct tp_err *err)
{
    int status = tp_table_end(table);
    if (status == TP_OK && err->code)
        return tp_report_error(err);
    if (status == TP_OK)
        printf("\n'tilepack %s NAME' shows what is known of one of them.\n", command);
    return status;
}

int tp_unknown_name(const char *command, const char *what, const char *name)
{
    struct tp_err err = {0};
    tp_err_hint(&err, "'tilepack %s' lists them", command);
    tp_fail(&err, TP_E_USAGE, "there is no %s '%s'", what, name);
    return tp_report_usage(command, &err);
}
