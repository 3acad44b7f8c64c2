/* `tilepack quantizers`: what the files of quantizers say, as this binary holds them. */
#include "cli/cmd.h"
#include "cli/facts.h"
#include "cli/report.h"
#include "cli/table.h"
#include "pack/quantizer/quantizer.h"
#include "pack/text/text.h"

#include <stddef.h>
#include <stdio.h>

static int print_list(void)
{
    static const struct tp_field fields[] = {{"name", "name", TP_LEFT},
                                             {"whose checkpoints", "title", TP_CUT},
                                             {"quant_method", "methods", TP_CUT},
                                             {"read", "read", TP_LEFT}};
    struct tp_table table;
    struct tp_err err = {0};
    size_t count;
    const struct tp_quantizer *const *all = tp_quantizers(&count);
    tp_table_open(&table, fields, 4, NULL);
    for (size_t i = 0; i < count; i++) {
        struct tp_text methods = {0};
        tp_add_words(&methods, all[i]->method.item, all[i]->method.count, &err);
        tp_object(&table.w, NULL, tp_str("name", all[i]->name), tp_str("title", all[i]->title),
                  tp_str("methods", methods.data ? methods.data : ""),
                  tp_str("read", all[i]->refused ? "no" : "yes"));
        tp_text_free(&methods);
    }
    return tp_list_end(&table, "quantizers", &err);
}

static void print_form(const struct tp_quantizer_form *form, bool first, struct tp_err *err)
{
    struct tp_text text = {0};
    tp_text_addf(&text, err, "%s: codes *%s%s, %s", form->format, form->separator, form->suffix,
                 tp_dtype_name(form->dtype));
    if (form->marker)
        tp_text_addf(&text, err, ", marked \"%s\"", form->marker);
    if (form->transposed)
        tp_text_addf(&text, err, ", stored [E,K,N]");
    if (form->refused)
        tp_text_addf(&text, err, "; refused: %s", form->refused);
    tp_print_text_fact(first ? "reads" : "", &text, err);
}

static int print_one(const void *item)
{
    const struct tp_quantizer *q = item;
    struct tp_err err = {0};
    printf("%s%s%s: %s\n\n", tp_style("1"), q->name, tp_style("0"), q->title);
    tp_print_words("quant_method", q->method.item, q->method.count, &err);
    tp_print_fact("source", q->source);
    tp_print_fact("described in", q->file ? q->file : "config.json");
    if (q->refused)
        tp_print_fact("refused", q->refused);
    tp_print_words("known by", q->sign.item, q->sign.count, &err);
    for (size_t i = 0; i < q->refusals; i++)
        tp_print_fact(i ? "" : "refuses", q->refusal[i].why);
    for (size_t i = 0; i < q->lists; i++)
        tp_print_fact(i ? "" : "plain by", q->list[i].key);
    for (size_t i = 0; i < q->besides; i++)
        tp_print_fact(i ? "" : "beside", q->beside[i].suffix);
    for (size_t i = 0; i < q->forms; i++)
        print_form(&q->form[i], i == 0, &err);
    return err.code ? tp_report_error(&err) : TP_OK;
}

int tp_cmd_quantizers(const struct tp_options *o)
{
    struct tp_err err = {0};
    struct tp_facts_command command = {.name = "quantizers", .one = "quantizer",
                                       .json = offsetof(struct tp_quantizer, json),
                                       .print_list = print_list, .print_one = print_one};
    if (tp_quantizers_check(&err))
        return tp_report_error(&err);
    command.all = (const void *const *)tp_quantizers(&command.count);
    return tp_facts_command(o, &command);
}
