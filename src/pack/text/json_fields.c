/* Objects of JSON files as structs, by tables; see json_fields.h. */
#include "pack/text/json_fields.h"

#include "base/suffix.h"
#include "pack/os/os.h"
#include "pack/text/module_pattern.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum tp_code tp_json_wrong(const struct tp_json_place *at, const char *key, const char *what)
{
    if (at->list)
        return tp_fail(at->err, TP_E_INPUT, "%s[%zu]: \"%s\" %s", at->list, at->index, key, what);
    return tp_fail(at->err, TP_E_INPUT, "\"%s\" %s", key, what);
}

/* A text of that kind. Returns what is wrong with it, or NULL. */
static const char *read_text(enum tp_json_kind kind, const char *text, char *to)
{
    const bool modules = kind == TP_JSON_MODULE || kind == TP_JSON_MODULES;
    struct tp_module_pattern pattern;
    if (!text || (!*text && kind != TP_JSON_ANY))
        return kind == TP_JSON_TEXTS || kind == TP_JSON_MODULES ? "holds something that is no text"
                                                                : "is no text";
    if (kind == TP_JSON_SEGMENT && strpbrk(text, ".*^$"))
        return "is no segment of a name";
    if (kind == TP_JSON_STACK && (!strchr(text, '.') || strpbrk(text, "*^$")))
        return "is no run of segments, such as \"experts.down_proj\"";
    if ((modules || kind == TP_JSON_STACK) && !tp_module_pattern_of(text, &pattern))
        return "holds something that is no module's name";
    if (modules)
        memcpy(to, &pattern, sizeof pattern);
    else
        memcpy(to, &text, sizeof text);
    return NULL;
}

/* Of a word, or of one of two, its number. */
static enum tp_code read_word(const struct tp_json_place *at, const struct tp_json_field *field,
                              const json_t *value, void *to)
{
    const char *text = json_string_value(value);
    int number = tp_word_of(text, field->words, SIZE_MAX);
    if (number < 0)
        return tp_json_wrong(at, field->key, text && *text ? "is no known word" : "is no text");
    if (field->kind == TP_JSON_WORD)
        memcpy(to, &number, sizeof number);
    else
        *(bool *)to = number == 1;
    return TP_OK;
}

static enum tp_code read_bits(const struct tp_json_place *at, const struct tp_json_field *field,
                              const json_t *array, unsigned *bits)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *text = json_string_value(json_array_get(array, i));
        int number = tp_word_of(text, field->words, SIZE_MAX);
        if (number < 0)
            return tp_json_wrong(at, field->key, "holds no known word");
        *bits |= 1u << number;
    }
    return *bits ? TP_OK : tp_json_wrong(at, field->key, "is no list of words");
}

static enum tp_code read_number(const struct tp_json_place *at, const struct tp_json_field *field,
                                const json_t *value, uint64_t *number)
{
    json_int_t is = json_integer_value(value);
    *number = is > 0 ? (uint64_t)is : 0;
    return is > 0 ? TP_OK : tp_json_wrong(at, field->key, "is no number of at least 1");
}

static enum tp_code read_list(const struct tp_json_place *at, const struct tp_json_field *field,
                              const json_t *array, char *out)
{
    const size_t size = field->of                        ? field->size
                        : field->kind == TP_JSON_MODULES ? sizeof(struct tp_module_pattern)
                                                         : sizeof(const char *);
    size_t *count = (size_t *)(void *)(out + field->count);
    if (!json_array_size(array))
        return tp_json_wrong(at, field->key, "is no list of values");
    char *items = tp_os_zalloc(json_array_size(array) + 1, size, at->err);
    memcpy(out + field->at, &items, sizeof items);
    enum tp_code code = items ? TP_OK : TP_E_MEMORY;
    while (*count < json_array_size(array) && code == TP_OK) {
        const json_t *value = json_array_get(array, *count);
        struct tp_json_place in = {field->key, *count, at->err};
        char *item = items + size * (*count)++; /* what is half made is freed as well */
        const char *fault =
            field->of ? NULL : read_text(field->kind, json_string_value(value), item);
        if (field->of)
            code = tp_json_fields(&in, field->of, value, item);
        else if (fault)
            code = tp_json_wrong(at, field->key, fault);
    }
    return code;
}

static enum tp_code read_field(const struct tp_json_place *at, const struct tp_json_field *field,
                               const json_t *value, char *out)
{
    const char *fault;
    if (field->kind == TP_JSON_YES || field->kind == TP_JSON_NO)
        *(bool *)(out + field->at) = value ? json_is_true(value) : field->kind == TP_JSON_YES;
    if (!value)
        return field->needed ? tp_json_wrong(at, field->key, "is missing") : TP_OK;
    switch (field->kind) {
    case TP_JSON_YES:
    case TP_JSON_NO:
        return json_is_boolean(value) ? TP_OK
                                      : tp_json_wrong(at, field->key, "is neither true nor false");
    case TP_JSON_WORD:
    case TP_JSON_SECOND:
        return read_word(at, field, value, out + field->at);
    case TP_JSON_TEXTS:
    case TP_JSON_MODULES:
    case TP_JSON_OBJECTS:
        return read_list(at, field, value, out);
    case TP_JSON_OBJECT:
        return tp_json_fields(at, field->of, value, out);
    case TP_JSON_NUMBER:
        return read_number(at, field, value, (uint64_t *)(void *)(out + field->at));
    case TP_JSON_BITS:
        return read_bits(at, field, value, (unsigned *)(void *)(out + field->at));
    case TP_JSON_TREE:
        memcpy(out + field->at, &value, sizeof value);
        return json_is_object(value) ? TP_OK : tp_json_wrong(at, field->key, "is no object");
    case TP_JSON_MOVED:
        return tp_json_wrong(at, field->key, "is no key any more: what readers take, refuse and "
                                             "misread stands in engines/");
    default:
        fault = read_text(field->kind, json_string_value(value), out + field->at);
        return fault ? tp_json_wrong(at, field->key, fault) : TP_OK;
    }
}

/* An object that has known keys only. */
enum tp_code tp_json_fields(const struct tp_json_place *at, const struct tp_json_field *fields,
                            const json_t *json, void *out)
{
    const char *key;
    json_t *value;
    enum tp_code code = TP_OK;
    if (!json_is_object(json))
        return tp_json_wrong(at, at->list ? at->list : "the file", "is no object");
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        size_t i = 0;
        while (fields[i].key && strcmp(fields[i].key, key) != 0)
            i++;
        if (!fields[i].key)
            return tp_json_wrong(at, key, "is an unknown key");
    }
    for (; fields->key && code == TP_OK; fields++)
        code = read_field(at, fields, json_object_get(json, fields->key), out);
    return code;
}

void tp_json_fields_free(const struct tp_json_field *fields, void *from)
{
    char *item = from;
    for (; fields->key; fields++) {
        char *items = NULL;
        size_t count;
        if (fields->kind == TP_JSON_OBJECT)
            tp_json_fields_free(fields->of, item);
        if (fields->kind < TP_JSON_TEXTS || fields->kind == TP_JSON_OBJECT)
            continue;
        memcpy(&items, item + fields->at, sizeof items);
        memcpy(&count, item + fields->count, sizeof count);
        for (size_t i = 0; fields->of && i < count; i++)
            tp_json_fields_free(fields->of, items + i * fields->size);
        free(items);
    }
}
