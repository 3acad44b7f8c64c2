/* Whether a rule of an engine is about a weight. */
#include "pack/engine/engine.h"

#include "base/suffix.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

/* A file that is asked about the model. */
static bool names_file(const char *const *list, size_t count, const struct tp_model_facts *facts)
{
    for (size_t m = 0; m < facts->count; m++)
        if (tp_word_of(facts->model[m]->name, list, count) >= 0)
            return true;
    return false;
}

bool tp_rule_concerns(const struct tp_engine_rule *rule, const struct tp_model_facts *facts,
                      const char *format)
{
    bool named = names_file(rule->model, rule->models, facts) ||
                 tp_word_of(facts->type, rule->type, rule->types) >= 0;
    return (named || !(rule->models + rule->types)) && !names_file(rule->but, rule->buts, facts) &&
           (!rule->formats || tp_word_of(format, rule->format, rule->formats) >= 0);
}

static bool in_modules(const struct tp_module_pattern *module, size_t modules, const char *name)
{
    return !modules || tp_modules_match(module, modules, name, tp_name_base(name));
}

static bool is_set(const json_t *wanted, const struct tp_asked *asked)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)wanted, key, value)
    {
        const struct tp_format *format = asked->format;
        uint32_t p = 0;
        while (p < format->params && strcmp(format->param[p].key, key) != 0)
            p++;
        if (p == format->params ||
            tp_word_of(json_string_value(value),
                       (const char *[]){format->param[p].choices[asked->settings->choice[p]]}, 1))
            return false;
    }
    return true;
}

bool tp_rule_hits(const struct tp_engine_rule *rule, const struct tp_asked *asked)
{
    return !((rule->of && !(rule->of >> asked->use & 1)) ||
             !in_modules(rule->module, rule->modules, asked->name) ||
             (rule->set && !is_set(rule->set, asked)));
}

bool tp_rule_breaks(const struct tp_engine_rule *rule, const struct tp_asked *asked)
{
    uint64_t multiple = rule->multiple ? rule->multiple : asked->block[rule->dim];
    return multiple && asked->size[rule->dim] % multiple &&
           (!rule->divided || asked->divided[rule->dim]) && tp_rule_hits(rule, asked);
}

/* There is room for what it asks. */
static void add_asks(struct tp_engine_asks *asks, const struct tp_model_facts *facts,
                     const struct tp_engine *engine)
{
    const char *format = asks->format->name;
    const bool reads = tp_engine_reads(engine, format);
    for (size_t i = 0; i < engine->families && reads; i++)
        if (engine->family[i].verdict == TP_VERDICT_KEPT &&
            tp_rule_concerns(&engine->family[i], facts, format))
            asks->keep[asks->keeps++] = &engine->family[i];
    for (size_t i = 0; i < engine->merges; i++)
        if (tp_word_of(format, engine->merge[i].format, engine->merge[i].formats) >= 0)
            asks->merge[asks->merges++] = &engine->merge[i];
}

enum tp_code tp_engine_asks_of(struct tp_engine_asks *asks, const struct tp_model_facts *facts,
                               const struct tp_format *format, struct tp_err *err)
{
    size_t count, families = 1, merges = 1;
    if (asks->format == format)
        return TP_OK;
    const struct tp_engine *const *all = tp_engines(&count);
    for (size_t e = 0; e < count; e++) {
        families += all[e]->families;
        merges += all[e]->merges;
    }
    tp_engine_asks_close(asks);
    asks->keep = tp_os_zalloc(families, sizeof *asks->keep, err);
    asks->merge = tp_os_zalloc(merges, sizeof *asks->merge, err);
    if (!asks->keep || !asks->merge)
        return TP_E_MEMORY;
    asks->format = format;
    for (size_t e = 0; e < count; e++)
        add_asks(asks, facts, all[e]);
    return TP_OK;
}

void tp_engine_asks_close(struct tp_engine_asks *asks)
{
    free(asks->keep);
    free(asks->merge);
    *asks = (struct tp_engine_asks){0};
}

const char *tp_engine_keeps(const struct tp_engine_asks *asks, const char *name)
{
    for (size_t i = 0; i < asks->keeps; i++)
        if (in_modules(asks->keep[i]->module, asks->keep[i]->modules, name))
            return asks->keep[i]->says;
    return NULL;
}

const struct tp_engine_merge *tp_engine_merges(const struct tp_engine_asks *asks, const char *name)
{
    for (size_t i = 0; i < asks->merges; i++)
        if (in_modules(asks->merge[i]->module, asks->merge[i]->modules, name))
            return asks->merge[i];
    return NULL;
}
