/* Text of strangers on a terminal, and in JSON. */
#ifndef TP_CLI_ESCAPE_H
#define TP_CLI_ESCAPE_H

#include "base/escape.h"
#include "pack/text/json_tree.h"
#include "pack/text/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* tp_escape() in parts that end where a character does, each handed to `put`, so that text of any
 * length takes no memory. False as soon as `put` says so. */
typedef bool tp_escaped_part(const char *text, size_t size, FILE *out);
bool tp_escape_parts(const char *text, size_t size, bool json, tp_escaped_part *put, FILE *out);

/* Prints text so. */
void tp_print_text(FILE *out, const char *text);
/* Prints JSON so, which stays the same JSON, but for what tp_json_text() has put for bytes. False
 * when it could not be written. */
bool tp_print_json(FILE *out, const char *text, size_t size);

/* A string of a file, and whatever else a stranger has named. A byte NN that is no UTF-8, which
 * JSON cannot carry, is printed as \udcNN by the above, and so are the bytes of the few characters
 * that stand for one until then; no such string may go to tp_print_json() another way. Where memory
 * ends, NULL, and tp_json_check() knows it. */
json_t *tp_json_text(const char *text);
/* The same, added to a text of JSON. */
enum tp_code tp_add_json_text(struct tp_text *to, const char *text, struct tp_err *err);

#endif
