/* JSON as a tree of jansson's values: reading, building, and the numbers of Python.
 *
 * jansson passes over a failed allocation: its reader and its writer lose bytes, an object that is
 * built lacks a key, without an error. So texts are read here, by the strict scanner, trees are
 * built and written with the functions below, and failures are counted per thread. A function that
 * reads or builds JSON asks for the count of failures first and hands its code through the check
 * last.
 */
#ifndef TP_PACK_JSON_TREE_H
#define TP_PACK_JSON_TREE_H

#include "base/error.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

uint64_t tp_json_failures(void);
/* TP_E_MEMORY, whatever else was recorded, if memory was short in this thread since the count was
 * taken; else the code. */
enum tp_code tp_json_check(uint64_t before, enum tp_code code, struct tp_err *err);
/* Counts a failure of this thread that was met on the way to a tree. */
void tp_json_no_memory(void);

/* A new reference to the tree of an object or a list; NULL where the text is none (*where, if not
 * NULL, says why) or memory is short: tp_json_check() tells. A tree takes up to 25 times the bytes
 * of its text, which must fit into what --max-memory has left. */
json_t *tp_json_load(const char *text, size_t size, json_error_t *where);

/* The same of an object that tp_json_get_key() has checked, or found in a text, as Python's json
 * reads it: of a key that comes twice the last; NaN, Infinity, -Infinity and numbers beyond 64 bits
 * or a double become strings: U+0000, which no other string has, then the number as it was written.
 * So nothing takes them for numbers or words. No such text is TP_E_INPUT, no memory TP_E_MEMORY. */
enum tp_code tp_json_load_python(const char *text, size_t size, json_t **value,
                                 struct tp_err *err);
/* json_dumps(), with such numbers as they were; NULL without memory, which is counted. */
char *tp_json_dump(const json_t *value, size_t flags);

/* Take the value over. Without one, as after a failed allocation, a failure is counted. */
void tp_json_set(json_t *object, const char *key, json_t *value);
void tp_json_append(json_t *array, json_t *value);
/* json_object_update(); without `with` it does nothing. */
void tp_json_update(json_t *object, const json_t *with);
/* The object, which is taken over, with the members of `with` in the place of its own, and where
 * both are objects with those of both. A new one: the members are shared, and neither is
 * changed. */
json_t *tp_json_merge(json_t *object, const json_t *with);

#endif
