/* Model files: JSON text to struct tp_model.
 *
 * Strict: an unknown key, a missing one, a value of another kind, a pattern that can match
 * nothing is an error that says where, so that a mistake in a file is not taken for a fact.
 */
#include "pack/model/model.h"

#include "pack/os/os.h"
#include "pack/text/json_tree.h"

#include <stdlib.h>
#include <string.h>

/* An object of the file, for messages: "keep[2]", or the file itself. */
struct place {
    const char *list;
    size_t index;
    struct tp_err *err;
};

static enum tp_code wrong(const struct place *at, const char *key, const char *what)
{
    if (at->list)
        return tp_fail(at->err, TP_E_INPUT, "%s[%zu]: \"%s\" %s", at->list, at->index, key, what);
    return tp_fail(at->err, TP_E_INPUT, "\"%s\" %s", key, what);
}

/* Whether the object has known keys only. `known` is ended by NULL. */
static enum tp_code only(const struct place *at, const json_t *object, const char *const known[])
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return wrong(at, at->list ? at->list : "the file", "is no object");
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i])
            return wrong(at, key, "is an unknown key");
    }
    return TP_OK;
}

/* *text: the string, or NULL where it is missing and need not be there. */
static enum tp_code string(const struct place *at, const json_t *object, const char *key,
                           bool needed, const char **text)
{
    const json_t *value = json_object_get(object, key);
    *text = json_string_value(value);
    if (!value)
        return needed ? wrong(at, key, "is missing") : TP_OK;
    return *text && **text ? TP_OK : wrong(at, key, "is no text");
}

static enum tp_code boolean(const struct place *at, const json_t *object, const char *key,
                            bool otherwise, bool *out)
{
    const json_t *value = json_object_get(object, key);
    *out = value ? json_is_true(value) : otherwise;
    return !value || json_is_boolean(value) ? TP_OK : wrong(at, key, "is neither true nor false");
}

/* *out: the index of the word; 0 where there is none and it need not be there. */
static enum tp_code word(const struct place *at, const json_t *object, const char *key,
                         bool needed, const char *const words[], int *out)
{
    const char *text;
    enum tp_code code = string(at, object, key, needed, &text);
    *out = 0;
    if (code || !text)
        return code;
    for (; words[*out]; ++*out)
        if (strcmp(words[*out], text) == 0)
            return TP_OK;
    return wrong(at, key, "is no known word");
}

/* *array: the list, or NULL where it is missing and need not be there. */
static enum tp_code list(const struct place *at, const json_t *object, const char *key,
                         bool needed, const json_t **array)
{
    *array = json_object_get(object, key);
    if (!*array)
        return needed ? wrong(at, key, "is missing") : TP_OK;
    bool some = json_is_array(*array) && json_array_size(*array);
    return some ? TP_OK : wrong(at, key, "is no list of values");
}

static enum tp_code strings(const struct place *at, const json_t *object, const char *key,
                            bool needed, const char ***out, size_t *count)
{
    const json_t *array;
    enum tp_code code = list(at, object, key, needed, &array);
    if (code || !array)
        return code;
    *out = tp_os_zalloc(json_array_size(array), sizeof **out, at->err);
    if (!*out)
        return TP_E_MEMORY;
    for (; *count < json_array_size(array); ++*count) {
        (*out)[*count] = json_string_value(json_array_get(array, *count));
        if (!(*out)[*count] || !*(*out)[*count])
            return wrong(at, key, "holds something that is no text");
    }
    return TP_OK;
}

/* Segments between dots, none of them empty; '^' only in front, '$' only at the end. */
static bool is_pattern(const char *text)
{
    text += *text == '^';
    for (bool empty = true;; text++) {
        if (*text == '.' || *text == '\0' || *text == '$') {
            if (empty || (*text == '$' && text[1]))
                return false;
            if (*text != '.')
                return true;
            empty = true;
        } else if (*text == '^') {
            return false;
        } else {
            empty = false;
        }
    }
}

static enum tp_code pattern(const struct place *at, const char *key, const char *text,
                            struct tp_module_pattern *out)
{
    out->text = text;
    return is_pattern(text) ? TP_OK : wrong(at, key, "holds something that is no module's name");
}

/* A list of modules. */
static enum tp_code patterns(const struct place *at, const json_t *json, const char *key,
                             bool needed, struct tp_module_pattern **out, size_t *count)
{
    const char **texts = NULL;
    size_t all = 0;
    enum tp_code code = strings(at, json, key, needed, &texts, &all);
    if (code == TP_OK && all && !(*out = tp_os_zalloc(all, sizeof **out, at->err)))
        code = TP_E_MEMORY;
    for (; *count < all && code == TP_OK; ++*count)
        code = pattern(at, key, texts[*count], &(*out)[*count]);
    free(texts);
    return code;
}

static enum tp_code parse_keep(const struct place *at, const json_t *json, void *out)
{
    static const char *const known[] = {"modules", "why", "linear", "head", NULL};
    struct tp_model_keep *keep = out;
    enum tp_code code = only(at, json, known);
    if (code || (code = string(at, json, "why", true, &keep->why)) ||
        (code = boolean(at, json, "linear", true, &keep->linear)) ||
        (code = boolean(at, json, "head", false, &keep->head)))
        return code;
    return patterns(at, json, "modules", true, &keep->module, &keep->modules);
}

static enum tp_code parse_stack(const struct place *at, const json_t *json, void *out)
{
    static const char *const known[] = {"name", "holds", "layout", "rows", "kept", "engines",
                                        NULL};
    static const char *const holds[] = {"gate_up", "down", NULL};
    static const char *const layouts[] = {"sizes", "enk", "ekn", NULL};
    static const char *const rows[] = {"halves", "alternate", NULL};
    struct tp_model_stack *stack = out;
    struct tp_module_pattern name;
    int held, layout, order;
    enum tp_code code = only(at, json, known);
    if (code || (code = string(at, json, "name", true, &stack->name)) ||
        (code = word(at, json, "holds", true, holds, &held)) ||
        (code = word(at, json, "layout", false, layouts, &layout)) ||
        (code = word(at, json, "rows", false, rows, &order)) ||
        (code = string(at, json, "kept", false, &stack->kept)) ||
        (code = string(at, json, "engines", false, &stack->engines)))
        return code;
    stack->gate_up = held == 0;
    stack->layout = (enum tp_stack_layout)layout;
    stack->alternates = order == 1;
    if (!strchr(stack->name, '.') || strpbrk(stack->name, "*^$"))
        return wrong(at, "name", "is no run of segments, such as \"experts.down_proj\"");
    return pattern(at, "name", stack->name, &name);
}

static enum tp_code parse_fused(const struct place *at, const json_t *json, void *out)
{
    static const char *const known[] = {"as", "parts", NULL};
    struct tp_model_fused *fused = out;
    enum tp_code code = only(at, json, known);
    if (code || (code = string(at, json, "as", true, &fused->set)))
        return code;
    return strings(at, json, "parts", true, &fused->part, &fused->parts);
}

static enum tp_code parse_merged(const struct place *at, const json_t *json, void *out)
{
    static const char *const known[] = {"module", "parts", NULL};
    static const char *const words[] = {"halves", "thirds", "qkv", "heads", NULL};
    struct tp_model_merged *merged = out;
    const char *text;
    int parts;
    enum tp_code code = only(at, json, known);
    if (code || (code = string(at, json, "module", true, &text)) ||
        (code = word(at, json, "parts", true, words, &parts)))
        return code;
    merged->parts = (enum tp_merged_parts)parts;
    return pattern(at, "module", text, &merged->module);
}

static enum tp_code parse_parallel(const struct place *at, const json_t *json, void *out)
{
    static const char *const known[] = {"modules", "cut", NULL};
    static const char *const cuts[] = {"none", "N", "K", NULL};
    struct tp_model_parallel *parallel = out;
    int cut;
    enum tp_code code = only(at, json, known);
    if (code || (code = word(at, json, "cut", true, cuts, &cut)))
        return code;
    parallel->cut = (enum tp_parallel)cut;
    return patterns(at, json, "modules", true, &parallel->module, &parallel->modules);
}

/* One segment of a name. */
static enum tp_code segment(const struct place *at, const json_t *json, const char *key,
                            bool needed, const char **text)
{
    enum tp_code code = string(at, json, key, needed, text);
    return code || !*text || !strpbrk(*text, ".*^$") ? code
                                                     : wrong(at, key, "is no segment of a name");
}

static enum tp_code parse_expert(const struct place *at, const json_t *json, void *out)
{
    static const char *const known[] = {"gate", "up", "down", NULL}; /* as the enum has them */
    struct tp_model_expert *expert = out;
    enum tp_code code = only(at, json, known);
    for (int m = 0; known[m] && code == TP_OK; m++) {
        code = segment(at, json, known[m], m != TP_EXPERT_GATE, &expert->matrix[m]);
        for (int before = 0; before < m && code == TP_OK; before++)
            if (expert->matrix[before] &&
                strcmp(expert->matrix[before], expert->matrix[m]) == 0)
                code = wrong(at, known[m], "is called as another of the matrices");
    }
    return code;
}

static enum tp_code parse_rename(const struct place *at, const json_t *json, void *out)
{
    static const char *const known[] = {"from", "to", NULL};
    struct tp_model_rename *rename = out;
    enum tp_code code = only(at, json, known);
    if (code || (code = string(at, json, "from", true, &rename->from)))
        return code;
    return string(at, json, "to", true, &rename->to);
}

static enum tp_code parse_limit(const struct place *at, const json_t *json, void *out)
{
    static const char *const known[] = {"reader", "formats", "experts", "says", NULL};
    struct tp_model_limit *limit = out;
    enum tp_code code = only(at, json, known);
    if (code || (code = string(at, json, "reader", true, &limit->reader)) ||
        (code = string(at, json, "says", true, &limit->says)) ||
        (code = boolean(at, json, "experts", false, &limit->experts)))
        return code;
    return strings(at, json, "formats", false, &limit->format, &limit->formats);
}

/* Every object of a list by `parse`, into an array of things of `size` bytes. */
static enum tp_code objects(struct tp_err *err, const json_t *json, const char *key, void **out,
                            size_t *count, size_t size,
                            enum tp_code (*parse)(const struct place *, const json_t *, void *))
{
    struct place file = {NULL, 0, err};
    const json_t *array;
    enum tp_code code = list(&file, json, key, false, &array);
    if (code || !array)
        return code;
    if (!(*out = tp_os_zalloc(json_array_size(array), size, err)))
        return TP_E_MEMORY;
    for (size_t i = 0; i < json_array_size(array) && code == TP_OK; i++) {
        struct place at = {key, i, err};
        ++*count; /* before it is parsed: what is half made is freed as well */
        code = parse(&at, json_array_get(array, i), (char *)*out + i * size);
    }
    return code;
}
#define OBJECTS(key, field, count, parse)                                                        \
    objects(err, json, key, (void **)&model->field, &model->count, sizeof *model->field, parse)

static enum tp_code parse_sizes(const json_t *json, struct tp_model *model, struct tp_err *err)
{
    static const char *const known[] = {"hidden", "expert", NULL};
    struct place at = {NULL, 0, err};
    const json_t *sizes = json_object_get(json, "sizes");
    enum tp_code code = sizes ? only(&at, sizes, known) : TP_OK;
    if (code || !sizes || (code = strings(&at, sizes, "hidden", false, &model->hidden,
                                          &model->hiddens)))
        return code;
    return strings(&at, sizes, "expert", false, &model->expert, &model->experts);
}

static enum tp_code parse_head(const json_t *json, struct tp_model *model, struct tp_err *err)
{
    static const char *const known[] = {
        "name",          "title",   "checked", "ran",    "source", "model_type",
        "architectures", "convert", "keep",    "stacks", "fused",  "merged",
        "parallel",      "experts", "renamed", "limits", "sizes",  "integers",
        NULL};
    struct place at = {NULL, 0, err};
    enum tp_code code = only(&at, json, known);
    if (code || (code = string(&at, json, "name", true, &model->name)) ||
        (code = string(&at, json, "title", true, &model->title)) ||
        (code = string(&at, json, "checked", true, &model->checked)))
        return code;
    bool named = strcmp(model->name, TP_MODEL_DEFAULT) != 0;
    if ((code = strings(&at, json, "source", true, &model->source, &model->sources)) ||
        (code = strings(&at, json, "ran", false, &model->ran, &model->rans)) ||
        (code = strings(&at, json, "model_type", named, &model->type, &model->types)))
        return code;
    return strings(&at, json, "architectures", false, &model->architecture,
                   &model->architectures);
}

static enum tp_code parse_all(const json_t *json, struct tp_model *model, struct tp_err *err)
{
    struct place at = {NULL, 0, err};
    enum tp_code code;
    if ((code = parse_head(json, model, err)) ||
        (code = patterns(&at, json, "convert", false, &model->convert, &model->converts)) ||
        (code = patterns(&at, json, "integers", false, &model->integer, &model->integers)) ||
        (code = OBJECTS("keep", keep, keeps, parse_keep)) ||
        (code = OBJECTS("stacks", stack, stacks, parse_stack)) ||
        (code = OBJECTS("fused", fused, fuseds, parse_fused)) ||
        (code = OBJECTS("merged", merged, mergeds, parse_merged)) ||
        (code = OBJECTS("parallel", parallel, parallels, parse_parallel)) ||
        (code = OBJECTS("experts", labels, label_sets, parse_expert)) ||
        (code = OBJECTS("renamed", rename, renames, parse_rename)) ||
        (code = OBJECTS("limits", limit, limits, parse_limit)))
        return code;
    return parse_sizes(json, model, err);
}

enum tp_code tp_model_from(json_t *json, struct tp_model *model, struct tp_err *err)
{
    uint64_t mark = tp_json_mark();
    *model = (struct tp_model){.json = json};
    enum tp_code code = tp_json_check(mark, parse_all(json, model, err), err);
    if (code)
        tp_model_close(model);
    return code;
}

enum tp_code tp_model_parse(const char *text, size_t size, struct tp_model *model,
                            struct tp_err *err)
{
    json_error_t where;
    uint64_t mark = tp_json_mark();
    *model = (struct tp_model){0};
    json_t *json = tp_json_load(text, size, &where);
    enum tp_code code = tp_json_check(mark, TP_OK, err);
    if (code || !json) {
        json_decref(json);
        return code ? code : tp_fail(err, TP_E_INPUT, "line %d, column %d: %s", where.line,
                                     where.column, where.text);
    }
    return tp_model_from(json, model, err);
}

enum tp_code tp_model_read(const char *path, struct tp_model *model, struct tp_err *err)
{
    char *text;
    size_t size;
    *model = (struct tp_model){0};
    enum tp_code code = tp_os_slurp(path, TP_MODEL_MAX_BYTES, &text, &size, err);
    if (code)
        return code;
    code = tp_model_parse(text, size, model, err);
    free(text);
    if (code == TP_E_INPUT) {
        tp_err_path(err, path);
        tp_err_hint(err, "'tilepack models NAME --json' prints a file to begin with");
    }
    return code;
}

void tp_model_close(struct tp_model *model)
{
    for (size_t i = 0; i < model->keeps; i++)
        free(model->keep[i].module);
    for (size_t i = 0; i < model->fuseds; i++)
        free(model->fused[i].part);
    for (size_t i = 0; i < model->parallels; i++)
        free(model->parallel[i].module);
    for (size_t i = 0; i < model->limits; i++)
        free(model->limit[i].format);
    free(model->convert);
    free(model->integer);
    free(model->keep);
    free(model->stack);
    free(model->fused);
    free(model->merged);
    free(model->parallel);
    free(model->labels);
    free(model->rename);
    free(model->limit);
    free(model->source);
    free(model->ran);
    free(model->type);
    free(model->architecture);
    free(model->hidden);
    free(model->expert);
    json_decref(model->json);
    *model = (struct tp_model){0};
}
