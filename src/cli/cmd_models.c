/* `tilepack models`: what the files of models say, as this binary holds them. */
#include "cli/cmd.h"
#include "cli/facts.h"
#include "cli/report.h"
#include "cli/table.h"
#include "pack/model/model.h"
#include "pack/text/text.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static int print_list(void)
{
    static const struct tp_field fields[] = {{"name", "name", TP_LEFT},
                                             {"what it is", "title", TP_CUT},
                                             {"model_type", "types", TP_CUT}};
    struct tp_table table;
    struct tp_err err = {0};
    size_t count;
    const struct tp_model *const *models = tp_models(&count, NULL);
    tp_table_open(&table, fields, 3, NULL);
    for (size_t i = 0; i < count; i++) {
        struct tp_text types = {0};
        tp_add_words(&types, models[i]->type, models[i]->types, &err);
        tp_object(&table.w, NULL, tp_str("name", models[i]->name),
                  tp_str("title", models[i]->title),
                  tp_str("types", types.data ? types.data : "(any)"));
        tp_text_free(&types);
    }
    return tp_list_end(&table, "models", &err);
}

static void print_keeps(const struct tp_model *model, struct tp_err *err)
{
    for (size_t i = 0; i < model->converts; i++)
        tp_print_fact(i ? "" : "converts", model->convert[i].text);
    for (size_t i = 0; i < model->keeps; i++) {
        const struct tp_model_keep *keep = &model->keep[i];
        struct tp_text text = {0};
        for (size_t m = 0; m < keep->modules; m++)
            tp_text_addf(&text, err, "%s%s", m ? ", " : "", keep->module[m].text);
        tp_text_addf(&text, err, ": %s", keep->why);
        tp_print_text_fact(i ? "" : "keeps", &text, err);
    }
}

static void print_stacks(const struct tp_model *model, struct tp_err *err)
{
    static const char *const layouts[] = {"laid out as sizes tell", "[E,N,K]", "[E,K,N]"};
    for (size_t i = 0; i < model->stacks; i++) {
        const struct tp_model_stack *stack = &model->stack[i];
        struct tp_text text = {0};
        tp_text_addf(&text, err, "%s: %s, %s%s", stack->name, stack->gate_up ? "gate and up"
                     : "down", layouts[stack->layout],
                     stack->interleaved ? ", rows of gate and up interleaved" : "");
        if (stack->engines)
            tp_text_addf(&text, err, "; engines call it %s", stack->engines);
        if (stack->kept)
            tp_text_addf(&text, err, "; kept: %s", stack->kept);
        tp_print_text_fact(i ? "" : "stacks", &text, err);
    }
}

static void print_fused(const struct tp_model *model, struct tp_err *err)
{
    static const char *const parts[] = {"gate and up", "three parts alike", "q, k and v", "heads"};
    for (size_t i = 0; i < model->fuseds; i++)
        tp_print_words(i ? "" : "fused", model->fused[i].part, model->fused[i].parts, err);
    for (size_t i = 0; i < model->mergeds; i++) {
        char text[400];
        snprintf(text, sizeof text, "%s: %s in one", model->merged[i].module.text,
                 parts[model->merged[i].parts]);
        tp_print_fact(i ? "" : "merged", text);
    }
}

static void print_parallel(const struct tp_model *model, struct tp_err *err)
{
    static const char *const cuts[] = {"not cut", "cut along N", "cut along K"};
    for (size_t i = 0; i < model->parallels; i++) {
        const struct tp_model_parallel *is = &model->parallel[i];
        struct tp_text text = {0};
        for (size_t m = 0; m < is->modules; m++)
            tp_text_addf(&text, err, "%s%s", m ? ", " : "", is->module[m].text);
        tp_text_addf(&text, err, ": %s", cuts[is->cut]);
        tp_print_text_fact(i ? "" : "parallel", &text, err);
    }
    for (size_t i = 0; i < model->label_sets; i++) {
        size_t first = model->labels[i].matrix[TP_EXPERT_GATE] ? TP_EXPERT_GATE : TP_EXPERT_UP;
        tp_print_words(i ? "" : "experts", model->labels[i].matrix + first,
                    TP_EXPERT_MATRICES - first, err);
    }
}

static void print_rows(const struct tp_model *model, struct tp_err *err)
{
    for (size_t i = 0; i < model->row_orders; i++) {
        const struct tp_model_rows *is = &model->rows[i];
        struct tp_text text = {0};
        for (size_t m = 0; m < is->modules; m++)
            tp_text_addf(&text, err, "%s%s", m ? ", " : "", is->module[m].text);
        tp_text_addf(&text, err, ": %s%s%s%s%s", tp_row_kinds[is->order],
                     is->when ? ", if " : "", is->when ? is->when : "",
                     is->unless ? ", unless " : "", is->unless ? is->unless : "");
        tp_print_text_fact(i ? "" : "rows", &text, err);
    }
}

static void print_renamed(const struct tp_model *model)
{
    for (size_t i = 0; i < model->renames; i++) {
        char text[400];
        snprintf(text, sizeof text, "%s is %s, too", model->rename[i].from, model->rename[i].to);
        tp_print_fact(i ? "" : "renamed", text);
    }
}

static int print_one(const void *item)
{
    const struct tp_model *model = item;
    struct tp_err err = {0};
    printf("%s%s%s: %s\n\n", tp_style("1"), model->name, tp_style("0"), model->title);
    tp_print_words("model_type", model->type, model->types, &err);
    tp_print_words("architecture", model->architecture, model->architectures, &err);
    for (size_t i = 0; i < model->sources; i++)
        tp_print_fact(i ? "" : "source", model->source[i]);
    print_keeps(model, &err);
    print_stacks(model, &err);
    print_fused(model, &err);
    print_parallel(model, &err);
    print_rows(model, &err);
    print_renamed(model);
    if (err.code)
        return tp_report_error(&err);
    if (strcmp(model->name, TP_MODEL_DEFAULT) != 0)
        printf("\nAll else is as 'tilepack models %s' says.\n", TP_MODEL_DEFAULT);
    return TP_OK;
}

int tp_cmd_models(const struct tp_options *o)
{
    struct tp_err err = {0};
    struct tp_facts_command command = {.name = "models", .one = "model",
                                       .json = offsetof(struct tp_model, json),
                                       .print_list = print_list, .print_one = print_one};
    command.all = (const void *const *)tp_models(&command.count, &err); /* none is wrong */
    return err.code ? tp_report_error(&err) : tp_facts_command(o, &command);
}
