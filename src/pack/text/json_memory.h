/* Memory of the JSON trees that jansson makes.
 *
 * Its calls nest and pass over a failed one: a key would be missing, and nobody
 * told. So its allocations are made through tp_os and failures counted per thread.
 * A function that builds or parses JSON takes a mark first and hands its code
 * through the check last.
 */
#ifndef TP_PACK_JSON_MEMORY_H
#define TP_PACK_JSON_MEMORY_H

#include "base/error.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

uint64_t tp_json_mark(void);
/* TP_E_MEMORY, whatever else was recorded, if an allocation of this thread has failed
 * since the mark was taken; else the code. */
enum tp_code tp_json_check(uint64_t mark, enum tp_code code, struct tp_err *err);
/* Counts a failure of this thread that was met on the way to a tree. */
void tp_json_no_memory(void);

/* json_loadb(), but NULL when memory is short: jansson's own reader then goes on with
 * half a string, and reads behind its end. NULL, too, where the tree would take so much more
 * than its text, or more than --max-memory allows: tp_json_check() says which. `where`
 * may be NULL. */
#define TP_JSON_MOST (UINT64_C(2) << 30)
json_t *tp_json_load(const char *text, size_t size, size_t flags, json_error_t *where);

#endif
