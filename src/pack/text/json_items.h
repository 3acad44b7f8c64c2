/* A list or an object in an object, whose items are written one by one as jansson indents them by
 * one: for lists that are too long for a tree.
 */
#ifndef TP_PACK_JSON_ITEMS_H
#define TP_PACK_JSON_ITEMS_H

#include "pack/text/text.h"

struct tp_items {
    struct tp_text *text;
    size_t count;
};

/* What stands before an item; `opening` before the first. The text is drained before it. */
enum tp_code tp_items_next(struct tp_items *items, char opening, struct tp_err *err);
/* After the last one; `empty` is the list or object without items. */
enum tp_code tp_items_end(const struct tp_items *items, const char *empty, struct tp_err *err);

#endif
