/* Model files: JSON text to struct tp_model.
 *
 * Strict: an unknown key, a missing one, a value of another kind, a pattern that can match
 * nothing is an error that says where, so that a mistake in a file is not taken for a fact.
 */
#include "pack/model/model.h"

#include "base/suffix.h"
#include "pack/os/os.h"
#include "pack/text/json_tree.h"

#include <stdlib.h>
#include <string.h>

/* ---- what the files hold ------------------------------------------------------------ */

enum kind {
    TEXT,
    SEGMENT,  /* a text: one segment of a name */
    STACK,    /* a text: two segments of a name, or more */
    MODULE,   /* a struct tp_module_pattern */
    WORD,     /* one of some words: its number, as an int */
    SECOND,   /* one of two words: whether it is the second one */
    YES,      /* true or false; true where it is missing */
    NO,       /* the same, false where it is missing */
    TEXTS,    /* a list of texts */
    MODULES,  /* a list of patterns */
    OBJECTS,  /* a list of objects */
    OBJECT,   /* fields of the same struct, in an object of their own */
};

/* A key of an object, and where its value goes in the struct that the object becomes. */
struct field {
    const char *key;
    enum kind kind;
    bool needed;
    size_t at, count;         /* lists: of the pointer to the items, and of how many they are */
    const char *const *words;
    const struct field *of;   /* of an object */
    size_t size;              /* of one */
};

#define NEEDED true
#define MAY_BE false
#define ONE(name, what, must, type, member, ...)                                                 \
    {.key = (name), .kind = (what), .needed = (must), .at = offsetof(struct type, member),       \
     __VA_ARGS__}
#define LIST(name, what, must, type, member, counter, ...)                                       \
    ONE(name, what, must, type, member, .count = offsetof(struct type, counter), __VA_ARGS__)
#define OF(fields, type) .of = (fields), .size = sizeof(struct type)

static const char *const holds[] = {"down", "gate_up", NULL};
static const char *const layouts[] = {"sizes", "enk", "ekn", NULL};
static const char *const orders[] = {"halves", "alternate", NULL};
static const char *const divided[] = {"halves", "thirds", "qkv", "heads", NULL};
static const char *const cuts[] = {"none", "N", "K", NULL};

static const struct field keep[] = {
    ONE("why", TEXT, NEEDED, tp_model_keep, why),
    ONE("linear", YES, MAY_BE, tp_model_keep, linear),
    ONE("head", NO, MAY_BE, tp_model_keep, head),
    LIST("modules", MODULES, NEEDED, tp_model_keep, module, modules),
    {0}};
static const struct field stack[] = {
    ONE("name", STACK, NEEDED, tp_model_stack, name),
    ONE("holds", SECOND, NEEDED, tp_model_stack, gate_up, .words = holds),
    ONE("layout", WORD, MAY_BE, tp_model_stack, layout, .words = layouts),
    ONE("rows", SECOND, MAY_BE, tp_model_stack, interleaved, .words = orders),
    ONE("kept", TEXT, MAY_BE, tp_model_stack, kept),
    ONE("engines", TEXT, MAY_BE, tp_model_stack, engines),
    {0}};
static const struct field fused[] = {
    ONE("as", TEXT, NEEDED, tp_model_fused, set),
    LIST("parts", TEXTS, NEEDED, tp_model_fused, part, parts),
    {0}};
static const struct field merged[] = {
    ONE("module", MODULE, NEEDED, tp_model_merged, module),
    ONE("parts", WORD, NEEDED, tp_model_merged, parts, .words = divided),
    {0}};
static const struct field parallel[] = {
    ONE("cut", WORD, NEEDED, tp_model_parallel, cut, .words = cuts),
    LIST("modules", MODULES, NEEDED, tp_model_parallel, module, modules),
    {0}};
static const struct field labels[] = {
    ONE("gate", SEGMENT, MAY_BE, tp_model_expert, matrix[TP_EXPERT_GATE]),
    ONE("up", SEGMENT, NEEDED, tp_model_expert, matrix[TP_EXPERT_UP]),
    ONE("down", SEGMENT, NEEDED, tp_model_expert, matrix[TP_EXPERT_DOWN]),
    {0}};
static const struct field renamed[] = {
    ONE("from", TEXT, NEEDED, tp_model_rename, from),
    ONE("to", TEXT, NEEDED, tp_model_rename, to),
    {0}};
static const struct field limits[] = {
    ONE("reader", TEXT, NEEDED, tp_model_limit, reader),
    ONE("says", TEXT, NEEDED, tp_model_limit, says),
    ONE("experts", NO, MAY_BE, tp_model_limit, experts),
    LIST("formats", TEXTS, MAY_BE, tp_model_limit, format, formats),
    {0}};
static const struct field sizes[] = {
    LIST("hidden", TEXTS, MAY_BE, tp_model, hidden, hiddens),
    LIST("expert", TEXTS, MAY_BE, tp_model, expert, experts),
    {0}};
static const struct field model_fields[] = {
    ONE("name", TEXT, NEEDED, tp_model, name),
    ONE("title", TEXT, NEEDED, tp_model, title),
    ONE("checked", TEXT, NEEDED, tp_model, checked),
    LIST("source", TEXTS, NEEDED, tp_model, source, sources),
    LIST("ran", TEXTS, MAY_BE, tp_model, ran, rans),
    LIST("model_type", TEXTS, MAY_BE, tp_model, type, types),
    LIST("architectures", TEXTS, MAY_BE, tp_model, architecture, architectures),
    LIST("convert", MODULES, MAY_BE, tp_model, convert, converts),
    LIST("integers", MODULES, MAY_BE, tp_model, integer, integers),
    LIST("keep", OBJECTS, MAY_BE, tp_model, keep, keeps, OF(keep, tp_model_keep)),
    LIST("stacks", OBJECTS, MAY_BE, tp_model, stack, stacks, OF(stack, tp_model_stack)),
    LIST("fused", OBJECTS, MAY_BE, tp_model, fused, fuseds, OF(fused, tp_model_fused)),
    LIST("merged", OBJECTS, MAY_BE, tp_model, merged, mergeds, OF(merged, tp_model_merged)),
    LIST("parallel", OBJECTS, MAY_BE, tp_model, parallel, parallels,
         OF(parallel, tp_model_parallel)),
    LIST("experts", OBJECTS, MAY_BE, tp_model, labels, label_sets, OF(labels, tp_model_expert)),
    LIST("renamed", OBJECTS, MAY_BE, tp_model, rename, renames, OF(renamed, tp_model_rename)),
    LIST("limits", OBJECTS, MAY_BE, tp_model, limit, limits, OF(limits, tp_model_limit)),
    {.key = "sizes", .kind = OBJECT, .of = sizes},
    {0}};

/* ---- values ------------------------------------------------------------------------- */

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

/* What is wrong with a text of that kind, or NULL. */
static const char *text_fault(enum kind kind, const char *text)
{
    if (!text || !*text)
        return kind == TEXTS || kind == MODULES ? "holds something that is no text" : "is no text";
    if (kind == SEGMENT && strpbrk(text, ".*^$"))
        return "is no segment of a name";
    if (kind == STACK && (!strchr(text, '.') || strpbrk(text, "*^$")))
        return "is no run of segments, such as \"experts.down_proj\"";
    if ((kind == STACK || kind == MODULE || kind == MODULES) && !is_pattern(text))
        return "holds something that is no module's name";
    return NULL;
}

/* Of a word, or of one of two, its number. */
static enum tp_code read_word(const struct place *at, const struct field *field,
                              const json_t *value, void *to)
{
    const char *text = json_string_value(value);
    int number = tp_word_of(text, field->words, SIZE_MAX);
    if (number < 0)
        return wrong(at, field->key, text && *text ? "is no known word" : "is no text");
    if (field->kind == WORD)
        memcpy(to, &number, sizeof number);
    else
        *(bool *)to = number == 1;
    return TP_OK;
}

static enum tp_code read_object(const struct place *at, const struct field *fields,
                                const json_t *json, void *out);

_Static_assert(sizeof(struct tp_module_pattern) == sizeof(const char *), "it is its text");

static enum tp_code read_list(const struct place *at, const struct field *field,
                              const json_t *array, char *out)
{
    const size_t size = field->of ? field->size : sizeof(const char *);
    size_t *count = (size_t *)(void *)(out + field->count);
    if (!json_array_size(array))
        return wrong(at, field->key, "is no list of values");
    char *items = tp_os_zalloc(json_array_size(array), size, at->err);
    memcpy(out + field->at, &items, sizeof items);
    enum tp_code code = items ? TP_OK : TP_E_MEMORY;
    while (*count < json_array_size(array) && code == TP_OK) {
        const json_t *value = json_array_get(array, *count);
        const char *text = json_string_value(value);
        struct place in = {field->key, *count, at->err};
        char *item = items + size * (*count)++; /* what is half made is freed as well */
        if (field->of)
            code = read_object(&in, field->of, value, item);
        else if (text_fault(field->kind, text))
            code = wrong(at, field->key, text_fault(field->kind, text));
        else
            memcpy(item, &text, sizeof text);
    }
    return code;
}

static enum tp_code read_field(const struct place *at, const struct field *field,
                               const json_t *value, char *out)
{
    const char *text = json_string_value(value), *fault;
    if (field->kind == YES || field->kind == NO)
        *(bool *)(out + field->at) = value ? json_is_true(value) : field->kind == YES;
    if (!value)
        return field->needed ? wrong(at, field->key, "is missing") : TP_OK;
    switch (field->kind) {
    case YES:
    case NO:
        return json_is_boolean(value) ? TP_OK
                                      : wrong(at, field->key, "is neither true nor false");
    case WORD:
    case SECOND:
        return read_word(at, field, value, out + field->at);
    case TEXTS:
    case MODULES:
    case OBJECTS:
        return read_list(at, field, value, out);
    case OBJECT:
        return read_object(at, field->of, value, out);
    default:
        memcpy(out + field->at, &text, sizeof text);
        fault = text_fault(field->kind, text);
        return fault ? wrong(at, field->key, fault) : TP_OK;
    }
}

/* An object that has known keys only. */
static enum tp_code read_object(const struct place *at, const struct field *fields,
                                const json_t *json, void *out)
{
    const char *key;
    json_t *value;
    enum tp_code code = TP_OK;
    if (!json_is_object(json))
        return wrong(at, at->list ? at->list : "the file", "is no object");
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        size_t i = 0;
        while (fields[i].key && strcmp(fields[i].key, key) != 0)
            i++;
        if (!fields[i].key)
            return wrong(at, key, "is an unknown key");
    }
    for (; fields->key && code == TP_OK; fields++)
        code = read_field(at, fields, json_object_get(json, fields->key), out);
    return code;
}

/* ---- the model ---------------------------------------------------------------------- */

static enum tp_code check_labels(const struct tp_model *model, struct tp_err *err)
{
    for (size_t i = 0; i < model->label_sets; i++) {
        const char *const *matrix = model->labels[i].matrix;
        for (int m = 1; m < TP_EXPERT_MATRICES; m++)
            for (int before = 0; before < m; before++)
                if (matrix[before] && strcmp(matrix[before], matrix[m]) == 0)
                    return wrong(&(struct place){"experts", i, err}, labels[m].key,
                                 "is called as another of the matrices");
    }
    return TP_OK;
}

static enum tp_code parse_all(const json_t *json, struct tp_model *model, struct tp_err *err)
{
    const struct place file = {NULL, 0, err};
    enum tp_code code = read_object(&file, model_fields, json, model);
    if (code == TP_OK && !model->types && strcmp(model->name, TP_MODEL_DEFAULT) != 0)
        code = wrong(&file, "model_type", "is missing");
    return code ? code : check_labels(model, err);
}

enum tp_code tp_model_from(json_t *json, struct tp_model *model, struct tp_err *err)
{
    uint64_t before = tp_json_failures();
    *model = (struct tp_model){.json = json};
    enum tp_code code = tp_json_check(before, parse_all(json, model, err), err);
    if (code)
        tp_model_close(model);
    return code;
}

enum tp_code tp_model_parse(const char *text, size_t size, struct tp_model *model,
                            struct tp_err *err)
{
    json_error_t where;
    uint64_t before = tp_json_failures();
    *model = (struct tp_model){0};
    json_t *json = tp_json_load(text, size, &where);
    enum tp_code code = tp_json_check(before, TP_OK, err);
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

static void free_fields(const struct field *fields, char *item)
{
    for (; fields->key; fields++) {
        char *items = NULL;
        size_t count;
        if (fields->kind == OBJECT)
            free_fields(fields->of, item);
        if (fields->kind < TEXTS || fields->kind == OBJECT)
            continue;
        memcpy(&items, item + fields->at, sizeof items);
        memcpy(&count, item + fields->count, sizeof count);
        for (size_t i = 0; fields->of && i < count; i++)
            free_fields(fields->of, items + i * fields->size);
        free(items);
    }
}

void tp_model_close(struct tp_model *model)
{
    free_fields(model_fields, (char *)model);
    json_decref(model->json);
    *model = (struct tp_model){0};
}
