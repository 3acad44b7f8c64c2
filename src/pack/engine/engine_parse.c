/* Engine files: JSON text to struct tp_engine. */
#include "pack/engine/engine.h"

#include "pack/text/json_fields.h"
#include "pack/text/json_tree.h"

#include <stdio.h>
#include <string.h>

static const char *const kinds[] = {"server", "library", "kernels", NULL};
static const char *const speeds[] = {"native", "mixed", "decoded", NULL};
static const char *const uses[] = {"linear", "experts", "head", "embedding", NULL};
static const char *const bases[] = {"run", "documents", NULL};
static const char *const alikes[] = {"experts", "fused", NULL};
static const char *const dims[] = {"N", "K", NULL};
static const char *const verdicts[] = {"refused", "wrong", "kept", NULL};

static const struct tp_json_field row[] = {
    TP_LIST("formats", TEXTS, TP_NEEDED, tp_engine_row, format, formats),
    TP_LIST("gpus", TEXTS, TP_NEEDED, tp_engine_row, gpu, gpus),
    TP_ONE("speed", WORD, TP_NEEDED, tp_engine_row, speed, .words = speeds),
    TP_ONE("kernel", TEXT, TP_MAY_BE, tp_engine_row, kernel),
    TP_ONE("takes", BITS, TP_NEEDED, tp_engine_row, takes, .words = uses),
    TP_ONE("basis", WORD, TP_NEEDED, tp_engine_row, basis, .words = bases),
    TP_ONE("how", TEXT, TP_MAY_BE, tp_engine_row, how),
    TP_LIST("before", TEXTS, TP_MAY_BE, tp_engine_row, before, befores),
    TP_LIST("behind", TEXTS, TP_MAY_BE, tp_engine_row, behind, behinds),
    {0}};
#define ABOUT                                                                                    \
    TP_LIST("models", TEXTS, TP_MAY_BE, tp_engine_rule, model, models),                          \
        TP_LIST("types", TEXTS, TP_MAY_BE, tp_engine_rule, type, types),                         \
        TP_LIST("but", TEXTS, TP_MAY_BE, tp_engine_rule, but, buts),                             \
        TP_LIST("formats", TEXTS, TP_MAY_BE, tp_engine_rule, format, formats),                   \
        TP_LIST("gpus", TEXTS, TP_MAY_BE, tp_engine_rule, gpu, gpus),                            \
        TP_ONE("of", BITS, TP_MAY_BE, tp_engine_rule, of, .words = uses),                        \
        TP_ONE("says", TEXT, TP_NEEDED, tp_engine_rule, says)
static const struct tp_json_field plain[] = {
    ABOUT, TP_LIST("modules", MODULES, TP_NEEDED, tp_engine_rule, module, modules), {0}};
static const struct tp_json_field size[] = {
    ABOUT,
    TP_LIST("modules", MODULES, TP_MAY_BE, tp_engine_rule, module, modules),
    TP_ONE("dim", WORD, TP_NEEDED, tp_engine_rule, dim, .words = dims),
    TP_ONE("multiple", NUMBER, TP_MAY_BE, tp_engine_rule, multiple),
    TP_ONE("divided", NO, TP_MAY_BE, tp_engine_rule, divided),
    {0}};
static const struct tp_json_field family[] = {
    ABOUT,
    TP_LIST("modules", MODULES, TP_MAY_BE, tp_engine_rule, module, modules),
    TP_ONE("set", TREE, TP_MAY_BE, tp_engine_rule, set),
    TP_ONE("verdict", WORD, TP_NEEDED, tp_engine_rule, verdict, .words = verdicts),
    {0}};
static const char *const merges[] = {"parts", "whole", NULL};
static const struct tp_json_field merge[] = {
    TP_LIST("formats", TEXTS, TP_NEEDED, tp_engine_merge, format, formats),
    TP_LIST("modules", MODULES, TP_MAY_BE, tp_engine_merge, module, modules),
    TP_ONE("multiple", NUMBER, TP_NEEDED, tp_engine_merge, multiple),
    TP_ONE("of", SECOND, TP_NEEDED, tp_engine_merge, whole, .words = merges),
    TP_ONE("says", TEXT, TP_NEEDED, tp_engine_merge, says),
    {0}};
static const struct tp_json_field run[] = {
    TP_LIST("models", TEXTS, TP_NEEDED, tp_engine_run, model, models),
    TP_LIST("formats", TEXTS, TP_MAY_BE, tp_engine_run, format, formats),
    TP_ONE("says", TEXT, TP_NEEDED, tp_engine_run, says),
    {0}};
static const char *const needs[] = {"codes", "calibrated", NULL};
static const struct tp_json_field advice[] = {
    TP_LIST("formats", TEXTS, TP_NEEDED, tp_engine_advice, format, formats),
    TP_LIST("gpus", TEXTS, TP_NEEDED, tp_engine_advice, gpu, gpus),
    TP_ONE("needs", BITS, TP_MAY_BE, tp_engine_advice, needs, .words = needs),
    TP_LIST("set", TEXTS, TP_MAY_BE, tp_engine_advice, set, sets),
    TP_ONE("reason", TEXT, TP_NEEDED, tp_engine_advice, reason),
    TP_LIST("source", TEXTS, TP_NEEDED, tp_engine_advice, source, sources),
    {0}};
static const struct tp_json_field fields[] = {
    TP_ONE("name", TEXT, TP_NEEDED, tp_engine, name),
    TP_ONE("title", TEXT, TP_NEEDED, tp_engine, title),
    TP_ONE("version", TEXT, TP_NEEDED, tp_engine, version),
    TP_ONE("kind", WORD, TP_NEEDED, tp_engine, kind, .words = kinds),
    TP_LIST("source", TEXTS, TP_NEEDED, tp_engine, source, sources),
    TP_LIST("serve", TEXTS, TP_MAY_BE, tp_engine, serve, serves),
    TP_LIST("parallel", TEXTS, TP_MAY_BE, tp_engine, parallel, parallels),
    TP_LIST("whole_experts", TEXTS, TP_MAY_BE, tp_engine, whole, wholes),
    TP_ONE("memory", NUMBER, TP_MAY_BE, tp_engine, memory),
    TP_ONE("how", TEXT, TP_MAY_BE, tp_engine, how),
    TP_ONE("install", TEXT, TP_MAY_BE, tp_engine, install),
    TP_ONE("package", TEXT, TP_MAY_BE, tp_engine, package),
    TP_ONE("alike", BITS, TP_MAY_BE, tp_engine, alike, .words = alikes),
    TP_LIST("skips", MODULES, TP_MAY_BE, tp_engine, skip, skips),
    TP_LIST("names", TEXTS, TP_MAY_BE, tp_engine, naming, namings),
    TP_LIST("reorders", TEXTS, TP_MAY_BE, tp_engine, reorder, reorders),
    TP_LIST("reads", OBJECTS, TP_NEEDED, tp_engine, row, rows, TP_OF(row, tp_engine_row)),
    TP_LIST("plain", OBJECTS, TP_MAY_BE, tp_engine, plain, plains, TP_OF(plain, tp_engine_rule)),
    TP_LIST("sizes", OBJECTS, TP_MAY_BE, tp_engine, size, sizes, TP_OF(size, tp_engine_rule)),
    TP_LIST("families", OBJECTS, TP_MAY_BE, tp_engine, family, families,
            TP_OF(family, tp_engine_rule)),
    TP_LIST("merged", OBJECTS, TP_MAY_BE, tp_engine, merge, merges, TP_OF(merge, tp_engine_merge)),
    TP_LIST("ran", OBJECTS, TP_MAY_BE, tp_engine, run, runs, TP_OF(run, tp_engine_run)),
    TP_LIST("suggest", OBJECTS, TP_MAY_BE, tp_engine, advice, advices,
            TP_OF(advice, tp_engine_advice)),
    {0}};

const char *tp_speed_name(int speed) { return speeds[speed]; }
const char *tp_engine_kind_name(int kind) { return kinds[kind]; }

const char *tp_use_list(unsigned bits, char *text, size_t room)
{
    size_t used = 0;
    *text = '\0';
    for (unsigned use = 0; uses[use]; use++)
        if (bits >> use & 1 && used < room)
            used += (size_t)snprintf(text + used, room - used, "%s%s", used ? ", " : "", uses[use]);
    return text;
}

static enum tp_code check_gpus(const char *list, size_t at, const char *const *gpus, size_t count,
                               struct tp_err *err)
{
    bool later;
    for (size_t i = 0; i < count; i++)
        if (!tp_sm_of(gpus[i], &later))
            return tp_json_wrong(&(struct tp_json_place){list, at, err}, "gpus",
                                 "holds what is neither smNN nor smNN+");
    return TP_OK;
}

static enum tp_code check_rules(const char *list, const struct tp_engine_rule *rules, size_t count,
                                struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < count && code == TP_OK; i++)
        code = check_gpus(list, i, rules[i].gpu, rules[i].gpus, err);
    return code;
}

/* Of what is recommended: it is of a server, with a part of the memory for it. */
static enum tp_code check_advice(const struct tp_engine *engine, struct tp_err *err)
{
    const struct tp_json_place file = {NULL, 0, err};
    enum tp_code code = TP_OK;
    if (engine->advices && (engine->kind != TP_ENGINE_SERVER || !engine->memory))
        return tp_json_wrong(&file, "suggest", "is of a server with a \"memory\" alone");
    if (engine->memory > 100)
        return tp_json_wrong(&file, "memory", "is a number of hundredths");
    for (size_t i = 0; i < engine->advices && code == TP_OK; i++)
        code = check_gpus("suggest", i, engine->advice[i].gpu, engine->advice[i].gpus, err);
    return code;
}

/* What a table does not say of a file. */
static enum tp_code check(const struct tp_engine *engine, struct tp_err *err)
{
    const struct tp_json_place file = {NULL, 0, err};
    size_t places = 0;
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < engine->serves; i++)
        places += strcmp(engine->serve[i], "DST") == 0;
    if (places != (engine->kind == TP_ENGINE_SERVER))
        return tp_json_wrong(&file, "serve", "has the word DST once in a server's file, and is in "
                                             "no other one");
    if (engine->kind == TP_ENGINE_LIBRARY && !engine->how)
        return tp_json_wrong(&file, "how", "is missing in a library's file");
    for (size_t i = 0; i < engine->rows && code == TP_OK; i++)
        code = engine->kind == TP_ENGINE_KERNELS && !engine->row[i].how
                   ? tp_json_wrong(&(struct tp_json_place){"reads", i, err}, "how",
                                   "is missing in the file of kernels")
                   : check_gpus("reads", i, engine->row[i].gpu, engine->row[i].gpus, err);
    if (code || (code = check_rules("plain", engine->plain, engine->plains, err)) ||
        (code = check_rules("sizes", engine->size, engine->sizes, err)))
        return code;
    code = check_rules("families", engine->family, engine->families, err);
    return code ? code : check_advice(engine, err);
}

enum tp_code tp_engine_parse(const char *text, size_t bytes, struct tp_engine *engine,
                             struct tp_err *err)
{
    json_error_t where;
    uint64_t before = tp_json_failures();
    const struct tp_json_place file = {NULL, 0, err};
    json_t *json = tp_json_load(text, bytes, &where);
    *engine = (struct tp_engine){.json = json};
    enum tp_code code = json ? tp_json_fields(&file, fields, json, engine)
                             : tp_fail(err, TP_E_INPUT, "line %d: %s", where.line, where.text);
    if (code == TP_OK)
        code = check(engine, err);
    code = tp_json_check(before, code, err);
    if (code)
        tp_engine_close(engine);
    return code;
}

void tp_engine_close(struct tp_engine *engine)
{
    tp_json_fields_free(fields, engine);
    json_decref(engine->json);
    *engine = (struct tp_engine){0};
}
