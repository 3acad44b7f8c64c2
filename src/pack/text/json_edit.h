/* Editing a JSON file as text around one top-level key, so that everything else
 * (numbers, `Infinity`, escapes, order, spacing) stays byte for byte as it was.
 *
 * The text must be exactly one JSON object: strict RFC 8259 in UTF-8, plus the
 * literals NaN, Infinity and -Infinity, which Python's json writes. No top-level
 * key may appear twice; strings hold no U+0000; values are nested 64 deep at most.
 * Otherwise TP_E_INPUT with the offset. The caller adds the path.
 */
#ifndef TP_PACK_JSON_EDIT_H
#define TP_PACK_JSON_EDIT_H

#include "pack/text/text.h"

/* Part of a text that the caller owns; data is NULL when there is no such key. */
struct tp_json_span {
    const char *data;
    size_t size;
};

/* Finds the value of a top-level key (given decoded: "a", not "\u0061"). */
enum tp_code tp_json_get_key(const char *text, size_t size, const char *key,
                             struct tp_json_span *value, struct tp_err *err);

/* The same of an object that is a value in `text`, of which the offset of a failure is. */
enum tp_code tp_json_get_inner(const char *text, struct tp_json_span object, const char *key,
                               struct tp_json_span *value, struct tp_err *err);

/* Appends the text to *out with the key's value replaced, or the key inserted last,
 * or, when `value` is NULL, the key removed (it may be absent). `value` is any one
 * JSON value; it is laid out as the file is: its indentation by spaces or tabs, its
 * line ends, or on one line. On failure *out is as before. */
enum tp_code tp_json_set_key(const char *text, size_t size, const char *key, const char *value,
                             struct tp_text *out, struct tp_err *err);

#endif
