/* `tilepack recipe`: a format for each set of weights within a budget of bits. Chooses nothing
 * itself: pack/recipe does. What is written is what `convert` takes, and was planned as it does. */
#include "cli/cmd.h"

#include "cli/page.h"
#include "cli/recipe_report.h"
#include "cli/report.h"
#include "cli/session.h"
#include "pack/os/clock.h"

#include <stdlib.h>
#include <string.h>

#define AS_IT_IS "bf16"
enum { MOST = TP_SHARE_CHOICES - 1 };

struct command {
    const struct tp_options *o;
    struct tp_recipe_format format[MOST];
    size_t formats;
    struct tp_text names; /* the words of --formats, apart */
    struct tp_run_options run;
    struct tp_recipe_wish wish;
    struct tp_request said; /* of the model; in use until the source is closed */
    struct tp_source source;
    struct tp_recipe recipe;
    struct tp_text text;
};

/* ---- what is asked for --------------------------------------------------------------- */

static enum tp_code add_format(struct command *c, const char *name, struct tp_err *err)
{
    struct tp_recipe_format *format = &c->format[c->formats];
    for (size_t f = 0; f < c->formats; f++)
        if (strcmp(c->format[f].name, name) == 0)
            return tp_fail(err, TP_E_USAGE, "--formats names '%.200s' twice", name);
    if (c->formats == MOST)
        return tp_fail(err, TP_E_USAGE, "--formats names more than %d", MOST);
    *format = (struct tp_recipe_format){
        .name = name,
        .request = {.requantize = true, .keep_nonfinite = true, .bare = true, .outline = true}};
    c->formats++;
    if (strcmp(name, AS_IT_IS) == 0)
        return TP_OK;
    const struct tp_search_words unsaid = {0}; /* as convert makes it */
    enum tp_code code = tp_request_to(&format->request, name, NULL, 0, err);
    if (code == TP_OK)
        code = tp_request_search(&format->request, &unsaid, err);
    if (code == TP_OK)
        code = tp_request_choice(c->o, &format->request, err);
    if (code == TP_OK)
        format->format = format->request.rules[0].format;
    return code;
}

static enum tp_code read_formats(struct command *c, struct tp_err *err)
{
    size_t written = 0;
    enum tp_code code = tp_text_add_word(&c->names, c->o->formats, err);
    char *rest = c->names.data;
    for (const char *name; code == TP_OK && (name = strsep(&rest, ","));)
        code = add_format(c, name, err);
    for (size_t f = 0; f < c->formats; f++)
        written += c->format[f].format != NULL;
    if (code || written)
        return code;
    return tp_refuse(err, TP_E_USAGE, "name formats that are written, too; 'tilepack formats' "
                     "lists them", "--formats names nothing to convert to");
}

static enum tp_code read_wish(struct command *c, struct tp_err *err)
{
    enum tp_code code = tp_wish_from(c->o, &c->wish.served, err);
    c->run = (struct tp_run_options){.jobs = c->o->jobs, .stop = tp_catch_signals()};
    c->wish.run = &c->run;
    c->wish.bits = strtod(c->o->bits, NULL);
    c->wish.importance = c->o->importance;
    c->wish.served.alone = true;
    if (code == TP_OK && !c->wish.served.engine)
        c->wish.served.engine = tp_engine_find("vllm");
    return code ? code : read_formats(c, err);
}

/* ---- what is written ----------------------------------------------------------------- */

/* Bytes of all that the plan converts, and of what stays plain by a rule. */
static uint64_t rule_bytes(const struct command *c, const struct tp_plan *plan)
{
    const struct tp_weight_sets *sets = &c->recipe.sets;
    uint64_t bytes = 0;
    for (size_t u = 0; u < plan->unit_count; u++)
        for (uint32_t i = 0; plan->units[u].form->format && i < plan->units[u].form->outs; i++)
            bytes += plan->outputs[plan->units[u].output[i]].bytes;
    for (size_t w = 0; w < c->source.weights.count; w++) {
        const size_t f = sets->of[w] == TP_NO_SET ? MOST : c->recipe.taken[sets->of[w]];
        if (f < c->formats && !c->format[f].format)
            bytes += c->source.ckpt.tensors[c->source.weights.items[w].tensor[0]].bytes;
    }
    return bytes;
}

/* Whether convert makes of the recipe what was chosen, and the engine reads it. */
static enum tp_code check_recipe(struct command *c, struct tp_err *err)
{
    struct tp_request request = {0};
    struct tp_plan plan = {0};
    struct tp_served served = {0};
    enum tp_code code = tp_request_parse(c->text.data, &request, err);
    request.bare = request.outline = request.keep_nonfinite = true;
    if (code == TP_OK)
        code = tp_request_choice(c->o, &request, err);
    if (code == TP_OK)
        code = tp_plan_convert(&c->source.ckpt, &c->source.weights, &request, NULL, &plan, err);
    if (code == TP_OK && rule_bytes(c, &plan) != c->recipe.share.bytes)
        code = tp_fail(err, TP_E_UNSUPPORTED, "convert would make another number of bytes of this "
                       "recipe than was chosen; please report it");
    if (code == TP_OK && plan.unit_count)
        code = tp_plan_served(&plan, &c->wish.served, &served, err);
    if (code == TP_OK && plan.unit_count && !served.why)
        code = tp_served_check(&served, &c->wish.served, err);
    tp_served_close(&served);
    tp_plan_close(&plan);
    tp_request_close(&request);
    return code;
}

static enum tp_code write_recipe(const struct command *c, struct tp_err *err)
{
    struct tp_page page;
    enum tp_code code = tp_page_open(&page, c->o->output, ".json",
                                     tp_checkpoint_file_mode(&c->source.ckpt), err);
    if (code)
        return code;
    fwrite(c->text.data, 1, c->text.size, page.file);
    return tp_page_close(&page, TP_OK, err);
}

static enum tp_code write_page(const struct command *c, const struct tp_recipe_report *report,
                               struct tp_err *err)
{
    struct tp_page page;
    enum tp_code code = c->o->html ? tp_page_open(&page, c->o->html, ".html",
                                                  tp_checkpoint_file_mode(&c->source.ckpt), err)
                                   : TP_OK;
    if (code || !c->o->html)
        return code;
    return tp_page_close(&page, tp_recipe_page(report, page.file, err), err);
}

/* ---- */

static enum tp_code choose(struct command *c, struct tp_err *err)
{
    struct tp_side side = {.ckpt = &c->source.ckpt, .weights = &c->source.weights, .strict = true};
    enum tp_code code = tp_request_facts(c->o, &c->said, err);
    if (code == TP_OK)
        code = tp_source_open_as(c->o->arg.item[0], NULL, &c->said.models, &c->source, err);
    if (code == TP_OK)
        code = tp_recipe_choose(&side, &c->wish, c->format, c->formats, &c->recipe, err);
    tp_err_path(code ? err : NULL, c->o->arg.item[0]);
    return code;
}

static int run(struct command *c)
{
    struct tp_err err = {0};
    struct tp_recipe_report report = {c->o->arg.item[0], c->o->output, &c->wish, &c->recipe, 0};
    const double start = tp_now();
    if (read_wish(c, &err))
        return err.code == TP_E_USAGE ? tp_report_usage("recipe", &err) : tp_report_error(&err);
    enum tp_code code = choose(c, &err);
    report.seconds = tp_now() - start;
    if (code == TP_OK)
        code = tp_recipe_text(&report, &c->text, &err);
    if (code == TP_OK && (code = check_recipe(c, &err)))
        tp_err_path(&err, c->o->arg.item[0]);
    if (code == TP_OK && (code = write_recipe(c, &err)) == TP_OK)
        code = write_page(c, &report, &err);
    if (code)
        return code == TP_E_USAGE && !err.path[0] ? tp_report_usage("recipe", &err)
                                                  : tp_report_error(&err);
    if (!c->o->importance)
        tp_warn("without --importance all inputs count alike, and a choice gains less as a rule; "
                "samples/moments.py and samples/gradients.py measure what counts");
    return tp_recipe_print(&report, c->o->json);
}

int tp_cmd_recipe(const struct tp_options *o)
{
    struct command c = {.o = o};
    int status = run(&c);
    tp_recipe_close(&c.recipe);
    tp_source_close(&c.source);
    tp_request_close(&c.said);
    for (size_t f = 0; f < c.formats; f++)
        tp_request_close(&c.format[f].request);
    tp_text_free(&c.text);
    tp_text_free(&c.names);
    return status;
}
