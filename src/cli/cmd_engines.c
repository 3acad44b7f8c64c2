/* `tilepack engines`: what the files of engines say, as this binary holds them. */
#include "cli/cmd.h"
#include "cli/facts.h"
#include "cli/report.h"
#include "cli/table.h"
#include "pack/engine/engine.h"
#include "pack/text/text.h"

#include <stddef.h>
#include <stdio.h>

static int print_list(void)
{
    static const struct tp_field fields[] = {{"name", "name", TP_LEFT},
                                             {"engine", "title", TP_CUT},
                                             {"version", "version", TP_LEFT},
                                             {"kind", "kind", TP_LEFT}};
    struct tp_table table;
    struct tp_err err = {0};
    size_t count;
    const struct tp_engine *const *all = tp_engines(&count);
    tp_table_open(&table, fields, 4, NULL);
    for (size_t i = 0; i < count; i++)
        tp_object(&table.w, NULL, tp_str("name", all[i]->name), tp_str("title", all[i]->title),
                  tp_str("version", all[i]->version),
                  tp_str("kind", tp_engine_kind_name(all[i]->kind)));
    return tp_list_end(&table, "engines", &err);
}

static void add_words(struct tp_text *text, const char *const *words, size_t count,
                      const char *before, struct tp_err *err)
{
    for (size_t i = 0; i < count; i++)
        tp_text_addf(text, err, "%s%s", i ? " " : before, words[i]);
}

static void print_words(const char *name, const char *const *words, size_t count,
                        struct tp_err *err)
{
    struct tp_text text = {0};
    add_words(&text, words, count, "", err);
    tp_print_text_fact(name, &text, err);
}

static void print_rows(const struct tp_engine *engine, struct tp_err *err)
{
    for (size_t i = 0; i < engine->rows; i++) {
        const struct tp_engine_row *row = &engine->row[i];
        struct tp_text text = {0};
        char takes[80];
        add_words(&text, row->format, row->formats, "", err);
        add_words(&text, row->gpu, row->gpus, ": ", err);
        tp_text_addf(&text, err, ", %s%s%s; %s%s%s%s", tp_speed_name(row->speed),
                     row->kernel ? ", " : "", row->kernel ? row->kernel : "",
                     tp_use_list(row->takes, takes, sizeof takes),
                     row->basis ? "; by its documents" : "", row->how ? "; " : "",
                     row->how ? row->how : "");
        tp_print_text_fact(i ? "" : "reads", &text, err);
    }
}

static void print_rules(const char *name, const struct tp_engine_rule *rules, size_t count,
                        struct tp_err *err)
{
    static const char *const verdicts[] = {"refused: ", "wrong: ", "kept: "};
    for (size_t i = 0; i < count; i++) {
        const struct tp_engine_rule *rule = &rules[i];
        struct tp_text text = {0};
        char of[80];
        add_words(&text, rule->model, rule->models, "", err);
        add_words(&text, rule->type, rule->types, text.size ? " " : "", err);
        add_words(&text, rule->but, rule->buts, "all but ", err);
        add_words(&text, rule->format, rule->formats, text.size ? ", in " : "in ", err);
        if (rule->of)
            tp_text_addf(&text, err, "%s%s", text.size ? ", of " : "of ",
                         tp_use_list(rule->of, of, sizeof of));
        for (size_t m = 0; m < rule->modules; m++)
            tp_text_addf(&text, err, "%s%s", m ? " " : text.size ? ", " : "", rule->module[m].text);
        add_words(&text, rule->gpu, rule->gpus, ", on ", err);
        tp_text_addf(&text, err, "%s%s%s", text.size ? ": " : "",
                     *name == 'f' ? verdicts[rule->verdict] : "", rule->says);
        tp_print_text_fact(i ? "" : name, &text, err);
    }
}

static void print_advices(const struct tp_engine *engine, struct tp_err *err)
{
    for (size_t i = 0; i < engine->advices; i++) {
        const struct tp_engine_advice *advice = &engine->advice[i];
        struct tp_text text = {0};
        add_words(&text, advice->format, advice->formats, "", err);
        add_words(&text, advice->gpu, advice->gpus, ": ", err);
        tp_text_addf(&text, err, "; %s%s", advice->needs & TP_ADVICE_CODES
                                               ? "where codes are taken over; " : "",
                     advice->reason);
        tp_print_text_fact(i ? "" : "suggest", &text, err);
    }
}

static int print_one(const void *item)
{
    const struct tp_engine *engine = item;
    struct tp_err err = {0};
    printf("%s%s%s: %s %s, %s\n\n", tp_style("1"), engine->name, tp_style("0"), engine->title,
           engine->version, tp_engine_kind_name(engine->kind));
    for (size_t i = 0; i < engine->sources; i++)
        tp_print_fact(i ? "" : "source", engine->source[i]);
    print_words("command", engine->serve, engine->serves, &err);
    print_words("on N ranks", engine->parallel, engine->parallels, &err);
    print_words("experts", engine->whole, engine->wholes, &err);
    if (engine->how)
        tp_print_fact("how", engine->how);
    if (engine->install)
        tp_print_fact("needs", engine->install);
    print_advices(engine, &err);
    print_rows(engine, &err);
    for (size_t i = 0; i < engine->skips; i++)
        tp_print_fact(i ? "" : "skips", engine->skip[i].text);
    for (size_t i = 0; i < engine->namings; i++)
        tp_print_fact(i ? "" : "names", engine->naming[i]);
    for (size_t i = 0; i < engine->reorders; i++)
        tp_print_fact(i ? "" : "reorders", engine->reorder[i]);
    print_rules("plain", engine->plain, engine->plains, &err);
    print_rules("sizes", engine->size, engine->sizes, &err);
    print_rules("families", engine->family, engine->families, &err);
    for (size_t i = 0; i < engine->runs; i++) {
        struct tp_text text = {0};
        add_words(&text, engine->run[i].model, engine->run[i].models, "", &err);
        add_words(&text, engine->run[i].format, engine->run[i].formats, ", in ", &err);
        tp_text_addf(&text, &err, ": %s", engine->run[i].says);
        tp_print_text_fact(i ? "" : "ran", &text, &err);
    }
    return err.code ? tp_report_error(&err) : TP_OK;
}

int tp_cmd_engines(const struct tp_options *o)
{
    struct tp_err err = {0};
    struct tp_facts_command command = {.name = "engines", .one = "engine",
                                       .json = offsetof(struct tp_engine, json),
                                       .print_list = print_list, .print_one = print_one};
    if (tp_engines_check(&err))
        return tp_report_error(&err);
    command.all = (const void *const *)tp_engines(&command.count);
    return tp_facts_command(o, &command);
}
