/* Prints text from untrusted input, on a terminal and as JSON. */
#ifndef TP_CLI_PRINT_TEXT_H
#define TP_CLI_PRINT_TEXT_H

#include "base/escape.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* tp_escape() in parts that end where a character does, each handed to `put`, so that text of any
 * length takes no memory. False as soon as `put` says so. */
typedef bool tp_escaped_part(const char *text, size_t size, void *to);
bool tp_escape_parts(const char *text, size_t size, bool json, tp_escaped_part *put, void *to);

/* Prints text so. */
void tp_print_text(FILE *out, const char *text);
/* Prints JSON so, which stays the same JSON, but for what tp_add_string() of writer.h has put for
 * bytes. False when it could not be written. */
bool tp_print_json(FILE *out, const char *text, size_t size);

#endif
