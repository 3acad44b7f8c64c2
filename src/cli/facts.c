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

static int print_json(const struct tp_facts_command *command, const void *one)
{
    struct tp_writer w;
    tp_json_open(&w);
    tp_begin(&w, command->name, '[');
    for (size_t i = 0; i < command->count; i++) {
        const void *item = command->all[i];
        if (!one || one == item)
            tp_write(&w, tp_json(NULL, *(json_t *const *)((const char *)item + command->json)));
    }
    tp_end(&w, ']');
    return tp_json_close(&w);
}

int tp_facts_command(const struct tp_options *o, const struct tp_facts_command *command)
{
    const char *name = o->arg.count ? o->arg.item[0] : NULL;
    const void *one = NULL;
    struct tp_err err = {0};
    for (size_t i = 0; name && i < command->count && !one; i++)
        if (strcmp(*(const char *const *)command->all[i], name) == 0)
            one = command->all[i];
    if (name && !one) {
        tp_err_hint(&err, "'tilepack %s' lists them", command->name);
        tp_fail(&err, TP_E_USAGE, "there is no %s '%s'", command->one, name);
        return tp_report_usage(command->name, &err);
    }
    if (o->json)
        return print_json(command, one);
    return one ? command->print_one(one) : command->print_list();
}
