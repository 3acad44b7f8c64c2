/* Words, lists and pairs of numbers of format files.
 *
 * Strict: an unknown word is an error. Knows no key but what it is asked for.
 */
#include "pack/format/format_keywords.h"

#include "base/suffix.h"
#include "kernels/op/traits.h"

#include <string.h>

const char *tp_codec_name(enum tp_codec codec) { return tp_codecs[codec].name; }
const char *tp_role_name(enum tp_role role) { return tp_role_names[role]; }
const char *tp_element_name(enum tp_element element) { return tp_elements[element].name; }

static enum tp_code unknown_word(const char *key, const char *text, struct tp_err *err)
{
    return tp_fail(err, TP_E_INPUT, "\"%s\" is '%s', which is no known word", key,
                   text ? text : "(missing)");
}

enum tp_code tp_format_word(const json_t *object, const char *key, const char *const names[],
                            int *out, struct tp_err *err)
{
    const char *text = json_string_value(json_object_get(object, key));
    *out = tp_word_of(text, names, SIZE_MAX);
    return *out >= 0 ? TP_OK : unknown_word(key, text, err);
}

/* *row: the number of the row of a table of traits whose name object[key] is. */
static enum tp_code named_row(const json_t *object, const char *key,
                              const char *(*name)(unsigned row), unsigned rows, unsigned *row,
                              struct tp_err *err)
{
    const char *text = json_string_value(json_object_get(object, key));
    for (unsigned i = 0; text && i < rows; i++)
        if (strcmp(name(i), text) == 0) {
            *row = i;
            return TP_OK;
        }
    return unknown_word(key, text, err);
}

enum tp_code tp_format_codec(const json_t *object, enum tp_codec *codec, struct tp_err *err)
{
    return named_row(object, "codec", tp_codec_name, TP_CODEC_COUNT, codec, err);
}

enum tp_code tp_format_role(const json_t *object, enum tp_role *role, struct tp_err *err)
{
    return named_row(object, "role", tp_role_name, TP_ROLE_COUNT, role, err);
}

enum tp_code tp_format_element(const json_t *object, enum tp_element *element, struct tp_err *err)
{
    return named_row(object, "element", tp_element_name, TP_ELEM_COUNT, element, err);
}

/* A number, or "G" and "R": the columns and rows of a group, 0 if that is all of K. -1 if
 * neither. */
static int64_t small(const json_t *number, const struct tp_format *format)
{
    json_int_t value = json_integer_value(number);
    const char *letter = json_string_value(number);
    uint64_t size = !letter || !format         ? 0
                    : strcmp(letter, "G") == 0 ? format->group
                    : strcmp(letter, "R") == 0 ? format->row_group
                                               : 0;
    if (size)
        return size == TP_GROUP_ROW ? 0 : (int64_t)size;
    return json_is_integer(number) && value <= 65536 ? value : -1;
}

enum tp_code tp_format_pair(const json_t *array, const struct tp_format *format, uint32_t *first,
                            uint32_t *second, struct tp_err *err)
{
    int64_t a = small(json_array_get(array, 0), format);
    int64_t b = small(json_array_get(array, 1), format);
    if (json_array_size(array) != 2 || a < 0 || b < 0)
        return tp_fail(err, TP_E_INPUT, "expected two small numbers [n,k]");
    *first = (uint32_t)a;
    *second = (uint32_t)b;
    return TP_OK;
}

enum tp_code tp_format_strings(const json_t *json, const char *key, const char *list[],
                                  size_t max, struct tp_err *err)
{
    const json_t *array = json_object_get(json, key);
    if (array && !json_is_array(array))
        return tp_fail(err, TP_E_INPUT, "\"%s\" is no list", key);
    if (json_array_size(array) > max)
        return tp_fail(err, TP_E_INPUT, "\"%s\" has more than %zu entries", key, max);
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!(list[i] = json_string_value(json_array_get(array, i))))
            return tp_fail(err, TP_E_INPUT, "\"%s\" holds something that is no string", key);
    return TP_OK;
}
