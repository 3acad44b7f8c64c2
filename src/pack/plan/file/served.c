/* The verdict on a plan; see served.h.
 *
 * Each engine is asked about each weight that is written or kept packed: it has rows for the
 * format, one of them takes such weights, and no rule speaks against it. What remains of the GPUs
 * of the rows is where it reads all of them. Invariant: a reader has GPUs or a reason.
 */
#include "pack/plan/file/served.h"

#include "base/num.h"
#include "base/suffix.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/plan/file/ranks.h"
#include "pack/plan/file/uneven.h"
#include "pack/plan/unit/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct judge {
    const struct tp_plan *plan;
    const struct tp_wish *wish;
    struct tp_reader *reader;
    uint32_t asked;     /* GPUs that count */
    const char *format; /* a name, of which is known: */
    uint32_t gpus[TP_USES], known; /* where rows take such weights; for which uses, as bits */
    const struct tp_engine_rule **rule; /* the rules that may be about them, those of sizes first */
    size_t rules, sizes;
    struct tp_err *err;
};

/* ---- what a weight is ---------------------------------------------------------------- */

/* False: ranks cannot divide it at all. */
static bool ask(const struct judge *j, const struct tp_unit *unit, struct tp_asked *asked)
{
    const struct tp_unit_form *form = unit->form;
    struct tp_stack_name stack;
    const struct tp_model_facts *facts = &j->plan->weights->facts;
    const enum tp_use use = (enum tp_use)unit->use;
    const uint64_t parts[2] = {tp_rank_parts(facts, unit->name, use, j->wish, TP_PARALLEL_N),
                               tp_rank_parts(facts, unit->name, use, j->wish, TP_PARALLEL_K)};
    *asked = (struct tp_asked){.facts = facts,
                               .name = unit->name,
                               .use = use,
                               .format = form->format,
                               .settings = &form->settings,
                               .size = {form->box.n, form->box.k},
                               .block = {form->op.block_n, form->op.block_k}};
    if (form->rank == 3 && tp_name_stack(asked->facts, unit->name, &stack) && stack.gate_up)
        asked->size[0] /= 2;
    bool whole = true;
    for (int d = 0; d < 2; d++) {
        asked->divided[d] = parts[d] > 1;
        whole = whole && asked->size[d] % parts[d] == 0;
        asked->size[d] /= parts[d];
    }
    return whole;
}

/* ---- reasons ------------------------------------------------------------------------- */

/* The first reason stays: what is said of the weight, or `says`, a sentence of a rule. */
static enum tp_code refuse(struct judge *j, const char *name, const char *why, const char *says)
{
    struct tp_reader *reader = j->reader;
    reader->gpus = 0;
    if (reader->why.size)
        return TP_OK;
    enum tp_code code = tp_text_add_word(&reader->name, name, j->err);
    return code ? code : tp_text_addf(&reader->why, j->err, "%s%s", says ? ": " : why,
                                      says ? says : "");
}

static const char *const uses_text[] = {
    [TP_USE_LINEAR] = " is a linear layer, and it does not read these in this format: take what it "
                      "reads alone (--include experts), or give the others another one in a recipe",
    [TP_USE_EXPERTS] = " is of experts, and it does not read these in this format: leave experts "
                       "out (--exclude experts), or give them another one in a recipe",
    [TP_USE_HEAD] = " is an output head, and it does not read these in this format: leave it as it "
                    "is",
    [TP_USE_EMBEDDING] = " is no linear layer, and it does not read these in this format: leave it "
                         "as it is"};

/* What speaks against a weight in whatever engine, or NULL. */
static const char *misfit(const struct tp_unit_form *form, enum tp_use use)
{
    const struct tp_format *format = form->format;
    if (form->rank == 3 && format->experts == TP_EXPERTS_SPLIT)
        return " is a stack, and engines read single experts in this format: other formats, such "
               "as that for Marlin's kernels, hold stacks";
    if (format->inputs.suffix && !format->config && !form->inputs)
        return " has no activation scales, with which an engine's kernel for this format would "
               "quantize: convert a calibrated source, without --weights-only";
    if (form->rank == 2 && use == TP_USE_EXPERTS && format->experts == TP_EXPERTS_STACK)
        return " is a single expert, and engines read stacks in this format: convert without "
               "--no-stack";
    return NULL;
}

/* ---- one weight ---------------------------------------------------------------------- */

static uint32_t sms_of(const struct judge *j, const char *const *list, size_t count)
{
    return tp_sms_of(list, count, j->wish->sm) & j->asked;
}

static void note_row(struct tp_reader *reader, const struct tp_engine_row *row)
{
    reader->documents |= row->basis != 0;
    for (size_t i = 0; i < reader->rows; i++)
        if (reader->row[i] == row)
            return;
    if ((row->befores || row->behinds || row->how) && reader->rows < TP_COUNT(reader->row))
        reader->row[reader->rows++] = row;
}

/* Where rows take such weights: those that were run, or where there is none those that were not. */
static uint32_t gpus_of(struct judge *j, const struct tp_asked *asked)
{
    const struct tp_engine *engine = j->reader->engine;
    uint32_t *gpus = &j->gpus[asked->use];
    if (j->known >> asked->use & 1)
        return *gpus;
    j->known |= 1u << asked->use;
    *gpus = 0;
    for (size_t i = 0; i < 2 * engine->rows && !(i == engine->rows && *gpus); i++) {
        const struct tp_engine_row *row = &engine->row[i % engine->rows];
        uint32_t there = sms_of(j, row->gpu, row->gpus);
        if (!there || !(row->takes >> asked->use & 1) || !tp_row_has(row, asked->format->name) ||
            (row->basis != 0) != (i >= engine->rows))
            continue;
        *gpus |= there;
        note_row(j->reader, row);
    }
    return *gpus;
}

/* Why none of them does. */
static enum tp_code refuse_use(struct judge *j, const struct tp_asked *asked)
{
    const struct tp_engine *engine = j->reader->engine;
    char list[200], why[300];
    unsigned uses = 0;
    uint32_t there = 0;
    for (size_t r = 0; r < engine->rows; r++) {
        const struct tp_engine_row *row = &engine->row[r];
        if (!tp_row_has(row, asked->format->name))
            continue;
        uses |= row->takes;
        if (row->takes >> asked->use & 1)
            there |= tp_sms_of(row->gpu, row->gpus, j->wish->sm);
    }
    if (uses && !there)
        return refuse(j, asked->name, uses_text[asked->use], NULL);
    tp_sms_text(there & ~(UINT32_C(1) << TP_SM_OTHER), 0, list, sizeof list);
    if (there)
        snprintf(why, sizeof why, " is in %s, which it reads on %s alone", asked->format->name,
                 list);
    else
        snprintf(why, sizeof why, " is in %s, which it does not read", asked->format->name);
    return refuse(j, asked->name, why, NULL);
}

/* Many weights in a row are in one format: what is known of it is found once. */
static enum tp_code take_format(struct judge *j, const char *format)
{
    const struct tp_engine *engine = j->reader->engine;
    const struct tp_engine_rule *const lists[] = {engine->size, engine->plain, engine->family};
    const size_t counts[] = {engine->sizes, engine->plains, engine->families};
    if (j->format && strcmp(j->format, format) == 0)
        return TP_OK;
    if (!j->rule && !(j->rule = tp_os_zalloc(engine->sizes + engine->plains + engine->families + 1,
                                             sizeof *j->rule, j->err)))
        return TP_E_MEMORY;
    j->format = format;
    j->rules = 0;
    j->known = 0;
    for (int l = 0; l < 3; l++) {
        for (size_t i = 0; i < counts[l]; i++)
            if (tp_rule_concerns(&lists[l][i], &j->plan->weights->facts, format))
                j->rule[j->rules++] = &lists[l][i];
        if (l == 0)
            j->sizes = j->rules;
    }
    return TP_OK;
}

static enum tp_code judge_rules(struct judge *j, const struct tp_asked *asked, uint32_t *gpus)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < j->rules && code == TP_OK; i++) {
        const struct tp_engine_rule *rule = j->rule[i];
        if (!(i < j->sizes ? tp_rule_breaks(rule, asked) : tp_rule_hits(rule, asked)))
            continue;
        *gpus &= rule->gpus ? ~sms_of(j, rule->gpu, rule->gpus) : 0;
        if (i >= j->sizes && !j->reader->warns)
            j->reader->warns = rule->says;
        if (!*gpus)
            code = refuse(j, asked->name, NULL, rule->says);
    }
    return code;
}

static bool is_skipped(const struct tp_engine *engine, const char *name)
{
    return tp_modules_match(engine->skip, engine->skips, name, tp_name_base(name));
}

static enum tp_code judge_unit(struct judge *j, const struct tp_unit *unit)
{
    const struct tp_format *format = unit->form->format;
    struct tp_asked asked;
    char why[100];
    if (!format || format->is_bias || is_skipped(j->reader->engine, unit->name))
        return TP_OK;
    bool whole = ask(j, unit, &asked);
    enum tp_code code = take_format(j, format->name);
    uint32_t gpus = code ? 0 : gpus_of(j, &asked);
    if (!gpus)
        return code ? code : refuse_use(j, &asked);
    const char *fault = j->reader->engine->kind == TP_ENGINE_KERNELS
                            ? NULL : misfit(unit->form, asked.use);
    if (!whole)
        snprintf(why, sizeof why, " cannot be divided among %u ranks", j->wish->ranks);
    if (fault || !whole)
        return refuse(j, unit->name, fault ? fault : why, NULL);
    if ((code = judge_rules(j, &asked, &gpus)))
        return code;
    if (j->reader->gpus && !(j->reader->gpus & gpus))
        return refuse(j, unit->name, " is read on other GPUs than what stands before it", NULL);
    j->reader->gpus &= gpus;
    return TP_OK;
}

/* ---- one engine ---------------------------------------------------------------------- */

static bool knows(const struct tp_engine *engine, const struct tp_unit *units, size_t count)
{
    const struct tp_format *last = NULL;
    for (size_t u = 0; u < count; u++) {
        if (units[u].form->format == last || !units[u].form->format)
            continue;
        last = units[u].form->format;
        if (tp_engine_reads(engine, last->name))
            return true;
    }
    return false;
}

static enum tp_code judge_units(struct judge *j, const struct tp_unit *units, size_t count)
{
    enum tp_code code = TP_OK;
    for (size_t u = 0; u < count && code == TP_OK && !j->reader->why.size; u++)
        code = judge_unit(j, &units[u]);
    return code;
}

static enum tp_code judge_engine(const struct tp_plan *plan, const struct tp_wish *wish,
                                 struct tp_reader *reader, struct tp_err *err)
{
    struct judge j = {plan, wish, reader, UINT32_MAX, .err = err};
    struct tp_text module = {0};
    bool experts;
    if (wish->sm)
        j.asked = UINT32_C(1) << TP_SM_OTHER;
    reader->gpus = j.asked;
    enum tp_code code = judge_units(&j, plan->units, plan->unit_count);
    if (code == TP_OK)
        code = judge_units(&j, plan->kept_units, plan->kept_unit_count);
    if (code == TP_OK && reader->gpus)
        code = tp_plan_uneven(plan, reader->engine->alike, &module, &experts, err);
    if (code == TP_OK && module.size)
        code = refuse(&j, module.data, experts ? " has experts that are not all in one format"
                                               : " has parts that are not all in one format", NULL);
    tp_text_free(&module);
    free(j.rule);
    return code;
}

enum tp_code tp_plan_refused(const struct tp_plan *plan, const struct tp_wish *wish,
                             bool *refused, struct tp_text *why, struct tp_err *err)
{
    struct tp_reader reader = {.engine = wish->engine};
    struct judge j = {plan, wish, &reader, wish->sm ? UINT32_C(1) << TP_SM_OTHER : UINT32_MAX,
                      .err = err};
    enum tp_code code = tp_engines_check(err);
    for (size_t u = 0; u < plan->unit_count && code == TP_OK; u++) {
        reader.gpus = j.asked;
        code = judge_unit(&j, &plan->units[u]);
        refused[u] = !reader.gpus;
        if (refused[u] && !why->size && code == TP_OK)
            code = tp_text_addf(why, err, "'%s'%s", reader.name.data, reader.why.data);
        tp_text_free(&reader.name);
        tp_text_free(&reader.why);
    }
    free(j.rule);
    return code;
}

/* ---- all of them --------------------------------------------------------------------- */

/* Whether a weight of a model that is not known has a name of those that are, and their sizes: what
 * is divided by output features reads the hidden state, what is divided by inputs writes it. */
static bool looks_known(const struct tp_model_facts *facts, const struct tp_unit *unit)
{
    const struct tp_model_parallel *is = tp_name_parallel(facts, unit->name);
    const struct tp_box3 *box = &unit->form->box;
    if (unit->use == TP_USE_HEAD || unit->use == TP_USE_EMBEDDING)
        return box->k == facts->hidden;
    return is && (is->cut == TP_PARALLEL_N   ? box->k == facts->hidden
                  : is->cut == TP_PARALLEL_K ? box->n == facts->hidden
                                             : true);
}

static bool is_strange(const struct tp_plan *plan)
{
    const struct tp_model_facts *facts = &plan->weights->facts;
    for (size_t u = 0; u < plan->unit_count && !facts->known; u++)
        if (!looks_known(facts, &plan->units[u]))
            return true;
    return false;
}

/* Why a server could not find out what the output is, or is not known to; NULL. */
static const char *undescribed(const struct tp_plan *plan)
{
    const struct tp_model_facts *facts = &plan->weights->facts;
    if (plan->single_file)
        return "a single file has no config.json, by which a server finds out what it is";
    if (!plan->ckpt->config)
        return "there is no config.json, by which a server finds out what it is";
    if (!facts->known && !facts->type[0])
        return "config.json names no model that a server could know";
    return is_strange(plan) ? "nothing is known of its model_type, and its weights have other names "
                              "or sizes than those of the models that are" : NULL;
}

/* The reason that is of the model, if there is one. */
static enum tp_code find_why(const struct tp_plan *plan, unsigned ranks, char **why,
                             struct tp_err *err)
{
    const struct tp_model_facts *facts = &plan->weights->facts;
    const char *says = undescribed(plan);
    if (!says && tp_ranks_have_heads(facts, ranks))
        return TP_OK;
    bool all = facts->heads % tp_max_u64(ranks, 1);
    *why = says ? tp_os_format(err, "%s", says)
                : tp_os_format(err, "its %llu %s heads cannot be divided among %u ranks",
                               (unsigned long long)(all ? facts->heads : facts->kv_heads),
                               all ? "attention" : "key-value", ranks);
    return *why ? TP_OK : TP_E_MEMORY;
}

static int in_order(const void *left, const void *right)
{
    const struct tp_reader *a = left, *b = right;
    int by = a->engine->kind - b->engine->kind;
    if (!by)
        by = !a->gpus - !b->gpus;
    if (!by)
        by = a->documents - b->documents;
    return by ? by : strcmp(a->engine->name, b->engine->name);
}

static bool writes(const struct tp_plan *plan)
{
    for (size_t u = 0; u < plan->unit_count; u++)
        if (plan->units[u].form->format)
            return true;
    for (size_t u = 0; u < plan->kept_unit_count; u++)
        if (plan->kept_units[u].form->format)
            return true;
    return false;
}

enum tp_code tp_plan_served(const struct tp_plan *plan, const struct tp_wish *wish,
                            struct tp_served *served, struct tp_err *err)
{
    size_t count;
    enum tp_code code = tp_engines_check(err);
    const struct tp_engine *const *all = tp_engines(&count);
    served->sm = wish->sm;
    served->written = writes(plan);
    if (code == TP_OK)
        code = find_why(plan, wish->ranks, &served->why, err);
    if (code || !(served->reader = tp_os_zalloc(count + 1, sizeof *served->reader, err)))
        return code ? code : TP_E_MEMORY;
    for (size_t e = 0; e < count && served->written && code == TP_OK; e++) {
        if (wish->alone && all[e] != wish->engine)
            continue;
        if (!knows(all[e], plan->units, plan->unit_count) &&
            !knows(all[e], plan->kept_units, plan->kept_unit_count))
            continue;
        struct tp_reader *reader = &served->reader[served->count++];
        reader->engine = all[e];
        code = judge_engine(plan, wish, reader, err);
    }
    qsort(served->reader, served->count, sizeof *served->reader, in_order);
    for (size_t i = 0; i < served->count && !served->server && !served->why; i++) {
        const struct tp_reader *reader = &served->reader[i];
        bool meant = wish->engine ? reader->engine == wish->engine : !reader->documents;
        if (reader->engine->kind == TP_ENGINE_SERVER && reader->gpus && meant)
            served->server = reader;
    }
    return code;
}

void tp_served_close(struct tp_served *served)
{
    for (size_t i = 0; i < served->count; i++) {
        tp_text_free(&served->reader[i].name);
        tp_text_free(&served->reader[i].why);
    }
    free(served->reader);
    free(served->why);
    *served = (struct tp_served){0};
}

const struct tp_reader *tp_served_refusal(const struct tp_served *served,
                                          const struct tp_wish *wish)
{
    for (size_t i = 0; i < served->count && !served->server; i++) {
        const struct tp_reader *reader = &served->reader[i];
        bool meant = wish->engine ? reader->engine == wish->engine
                                  : reader->engine->kind == TP_ENGINE_SERVER;
        if (meant && !reader->gpus && (!served->why || reader->engine->kind == TP_ENGINE_KERNELS))
            return reader;
    }
    return NULL;
}

enum tp_code tp_served_why(const struct tp_served *served, const struct tp_wish *wish,
                           struct tp_text *text, struct tp_err *err)
{
    const struct tp_reader *refuses = tp_served_refusal(served, wish);
    if (refuses)
        return tp_text_addf(text, err, "%s (%s) does not read it: '%s'%s", refuses->engine->title,
                            refuses->engine->version, refuses->name.data, refuses->why.data);
    if (served->why)
        return tp_text_addf(text, err, "no server is known to read it: %s", served->why);
    if (wish->engine)
        return tp_text_addf(text, err, "%s (%s) does not read it: it knows none of its formats",
                            wish->engine->title, wish->engine->version);
    bool any = served->count && served->reader->engine->kind == TP_ENGINE_SERVER;
    return tp_text_add_word(text, any ? "no server that was run reads this format"
                                      : "no server reads this format", err);
}

enum tp_code tp_served_check(const struct tp_served *served, const struct tp_wish *wish,
                             struct tp_err *err)
{
    struct tp_text why = {0};
    bool is = !wish->engine && !wish->sm && wish->ranks < 2;
    for (size_t i = 0; i < served->count && !is; i++) {
        const struct tp_reader *reader = &served->reader[i];
        is = reader->gpus && (wish->engine ? reader->engine == wish->engine
                                           : reader == served->server) &&
             (!served->why || reader->engine->kind == TP_ENGINE_KERNELS);
    }
    if (is)
        return TP_OK;
    enum tp_code code = tp_served_why(served, wish, &why, err);
    if (wish->ranks > 1)
        tp_err_hint(err, "'tilepack suggest SRC --gpu NAME --gpus %u' says how the model is served on "
                    "so many; without --engine, --gpu and --gpus it is made all the same",
                    wish->ranks);
    else
        tp_err_hint(err, "'tilepack suggest SRC --gpu NAME' says what is served there; without "
                    "--engine and --gpu it is made all the same");
    if (code == TP_OK)
        code = tp_fail(err, TP_E_UNSUPPORTED, "%s", why.data);
    tp_text_free(&why);
    return code;
}

size_t tp_served_command(const struct tp_reader *reader, const char *output,
                         const struct tp_wish *wish, char number[12],
                         const char *word[TP_MAX_COMMAND])
{
    const struct tp_engine *engine = reader->engine;
    size_t count = 0;
    snprintf(number, 12, "%u", wish->ranks);
    for (size_t r = 0; r < reader->rows; r++)
        for (size_t i = 0; i < reader->row[r]->befores && count < 4; i++)
            word[count++] = reader->row[r]->before[i];
    for (size_t i = 0; i < engine->serves && count < 12; i++)
        word[count++] = strcmp(engine->serve[i], "DST") == 0 ? output : engine->serve[i];
    for (size_t i = 0; i < engine->parallels && wish->ranks > 1 && count < 16; i++)
        word[count++] = strcmp(engine->parallel[i], "N") == 0 ? number : engine->parallel[i];
    for (size_t i = 0; i < engine->wholes && wish->ranks > 1 && wish->whole_experts && count < 18;
         i++)
        word[count++] = strcmp(engine->whole[i], "N") == 0 ? number : engine->whole[i];
    for (size_t r = 0; r < reader->rows; r++)
        for (size_t i = 0; i < reader->row[r]->behinds && count < TP_MAX_COMMAND; i++)
            word[count++] = reader->row[r]->behind[i];
    return count;
}
