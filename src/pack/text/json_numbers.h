/* Numbers of Python's json that jansson has no type for: NaN, Infinity, -Infinity, and what goes
 * beyond 64 bits or a double. Published files have them, often far from what is asked for.
 *
 * In a tree such a number is a string: U+0000, which no other string of the text has, then the
 * number as it was written. So nothing takes it for a number or a word, and what is written of
 * the tree has it as it was.
 */
#ifndef TP_PACK_JSON_NUMBERS_H
#define TP_PACK_JSON_NUMBERS_H

#include "base/error.h"

#include <jansson.h>
#include <stddef.h>

/* An object that tp_json_get_key() has checked, or found in a text; of a key that comes twice the
 * last, as in Python. What jansson refuses is TP_E_INPUT; without memory TP_E_MEMORY. *value is a
 * new reference, NULL after a failure. */
enum tp_code tp_json_load_python(const char *text, size_t size, json_t **value,
                                 struct tp_err *err);

/* json_dumps() of a tree that has values of such a text; NULL without memory. */
char *tp_json_dump_python(const json_t *value, size_t flags);

#endif
