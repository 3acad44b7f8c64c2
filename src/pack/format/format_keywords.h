/* Words, lists and pairs of numbers of format files; inside of reading them, but for the names of
 * codecs, roles and elements.
 */
#ifndef TP_PACK_FORMAT_KEYWORDS_H
#define TP_PACK_FORMAT_KEYWORDS_H

#include "pack/format/format.h"

#include <stddef.h>

const char *tp_codec_name(enum tp_codec codec);
const char *tp_role_name(enum tp_role role);
const char *tp_element_name(enum tp_element element);

/* *out: which of the names, NULL at the end, object[key] is. */
enum tp_code tp_format_word(const json_t *object, const char *key, const char *const names[],
                            int *out, struct tp_err *err);

/* object["codec"], ["role"] and ["element"]. */
enum tp_code tp_format_codec(const json_t *object, enum tp_codec *codec, struct tp_err *err);
enum tp_code tp_format_role(const json_t *object, enum tp_role *role, struct tp_err *err);
enum tp_code tp_format_element(const json_t *object, enum tp_element *element,
                               struct tp_err *err);

/* [n,k], each a small number, or "G" and "R": group and row_group of the format (NULL: no letters),
 * and 0 where that is TP_GROUP_ROW. */
enum tp_code tp_format_pair(const json_t *array, const struct tp_format *format, uint32_t *first,
                            uint32_t *second, struct tp_err *err);

/* json[key]: up to `max` strings; the rest of the list stays NULL. */
enum tp_code tp_format_strings(const json_t *json, const char *key, const char *list[],
                               size_t max, struct tp_err *err);

#endif
