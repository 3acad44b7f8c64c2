/* Words, lists and pairs of numbers of format files.
 *
 * Strict: an unknown word is an error. Knows no key but what it is asked for.
 */
#include "pack/format/format_words.h"

#include <string.h>

const char *const tp_codec_names[] = {"int4", "fp8", "mxfp8", "mxfp4", "nvfp4", "int8",
                                      "float", NULL};
const char *const tp_role_names[] = {"codes", "scale", "group8", "channel", "global",
                                     "words", "zero", "order", NULL};
const char *const tp_element_names[] = {"int4", "e2m1", "e4m3", "e4m3x8", "e8m0", "bf16",
                                        "f16",  "f32",  "i32",  "i64",    "int8", "uint8b128",
                                        "e5m3", NULL};
const char *tp_codec_name(enum tp_codec codec) { return tp_codec_names[codec]; }
const char *tp_role_name(enum tp_role role) { return tp_role_names[role]; }
const char *tp_element_name(enum tp_element element) { return tp_element_names[element]; }

static int word_index(const char *const names[], const char *word)
{
    for (int i = 0; word && names[i]; i++)
        if (strcmp(names[i], word) == 0)
            return i;
    return -1;
}

enum tp_code tp_format_word(const json_t *object, const char *key, const char *const names[],
                            int *out, struct tp_err *err)
{
    const char *text = json_string_value(json_object_get(object, key));
    *out = word_index(names, text);
    return *out >= 0 ? TP_OK
                     : tp_fail(err, TP_E_INPUT, "\"%s\" is '%s', which is no known word", key,
                               text ? text : "(missing)");
}

/* A number, or "G": the group size, 0 if that is all of K. -1 if neither. */
static int64_t small(const json_t *number, uint64_t group)
{
    json_int_t value = json_integer_value(number);
    if (json_is_string(number) && strcmp(json_string_value(number), "G") == 0 && group)
        return group == TP_GROUP_ROW ? 0 : (int64_t)group;
    return json_is_integer(number) && value <= 65536 ? value : -1;
}

enum tp_code tp_format_pair(const json_t *array, uint64_t group, uint32_t *first, uint32_t *second,
                         struct tp_err *err)
{
    int64_t a = small(json_array_get(array, 0), group);
    int64_t b = small(json_array_get(array, 1), group);
    if (json_array_size(array) != 2 || a < 0 || b < 0)
        return tp_fail(err, TP_E_INPUT, "expected two small numbers [n,k]");
    *first = (uint32_t)a;
    *second = (uint32_t)b;
    return TP_OK;
}

enum tp_code tp_format_strings(const json_t *json, const char *key, const char *list[],
                                  size_t most, struct tp_err *err)
{
    const json_t *array = json_object_get(json, key);
    if (array && !json_is_array(array))
        return tp_fail(err, TP_E_INPUT, "\"%s\" is no list", key);
    if (json_array_size(array) > most)
        return tp_fail(err, TP_E_INPUT, "\"%s\" has more than %zu entries", key, most);
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!(list[i] = json_string_value(json_array_get(array, i))))
            return tp_fail(err, TP_E_INPUT, "\"%s\" holds something that is no string", key);
    return TP_OK;
}
