/* Whether a rule of an engine is about a weight. */
#include "pack/engine/engine.h"

#include "base/suffix.h"
#include "pack/model/model_names.h"

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

const char *tp_engine_keeps(const struct tp_model_facts *facts, const char *name,
                            const struct tp_format *format)
{
    size_t count;
    const struct tp_engine *const *all = tp_engines(&count);
    for (size_t e = 0; e < count; e++)
        for (size_t i = 0; i < all[e]->families; i++) {
            const struct tp_engine_rule *rule = &all[e]->family[i];
            if (rule->verdict == TP_VERDICT_KEPT && tp_rule_concerns(rule, facts, format->name) &&
                in_modules(rule->module, rule->modules, name) &&
                tp_engine_reads(all[e], format->name))
                return rule->says;
        }
    return NULL;
}

const struct tp_engine_merge *tp_engine_merges(const char *name, const char *format)
{
    size_t count;
    const struct tp_engine *const *all = tp_engines(&count);
    for (size_t e = 0; e < count; e++)
        for (size_t i = 0; i < all[e]->merges; i++) {
            const struct tp_engine_merge *merge = &all[e]->merge[i];
            if (tp_word_of(format, merge->format, merge->formats) >= 0 &&
                in_modules(merge->module, merge->modules, name))
                return merge;
        }
    return NULL;
}
