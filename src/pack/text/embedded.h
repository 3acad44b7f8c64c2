/* Files that are embedded in the program, and the lists that are parsed from them. */
#ifndef TP_PACK_EMBEDDED_H
#define TP_PACK_EMBEDDED_H

#include "base/error.h"

#include <stddef.h>

/* Written by scripts/embed.sh: rows ended by {NULL, NULL}. */
struct tp_embedded {
    const char *name, *text;
};

/* What was parsed, sorted by name. An item begins with its name, a const char *. */
struct tp_embedded_list {
    void *items;
    size_t count;
    struct tp_err err; /* of the first file that was left out, or of a lack of memory */
};

/* Fills the empty list with items of `size` bytes. A file whose `parse` fails is left out; an
 * item of it is zero then. */
void tp_embedded_parse(const struct tp_embedded *files, size_t size,
                       enum tp_code (*parse)(const char *text, void *item, struct tp_err *err),
                       struct tp_embedded_list *list);
/* The item of that name, or NULL. */
const void *tp_embedded_find(const struct tp_embedded_list *list, size_t size, const char *name);

#endif
