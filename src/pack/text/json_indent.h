/* Compact JSON text, indented as jansson does it: for lists that are too long for a tree. */
#ifndef TP_PACK_JSON_INDENT_H
#define TP_PACK_JSON_INDENT_H

#include "pack/text/text.h"

/* Appends the value `compact`, which must be legal JSON without spaces between its parts, as
 * tp_json_dump() with JSON_INDENT(1) writes it `depth` levels deep. */
enum tp_code tp_json_indent(const char *compact, unsigned depth, struct tp_text *out,
                            struct tp_err *err);

#endif
