/* Many small things that live and die together: names, shapes, lists of a few numbers. They lie
 * side by side in blocks, without what malloc() takes for each.
 */
#ifndef TP_PACK_STORE_H
#define TP_PACK_STORE_H

#include "base/error.h"

#include <stddef.h>

struct tp_store_block;
struct tp_store { /* {0} is empty */
    struct tp_store_block *blocks; /* the latest one first */
    size_t used, capacity;         /* of the latest one */
};

/* Memory of zeros, aligned for any number; NULL + TP_E_MEMORY. */
void *tp_store_zalloc(struct tp_store *store, size_t count, size_t size, struct tp_err *err);
/* A copy of `size` bytes, aligned alike. */
void *tp_store_copy(struct tp_store *store, const void *data, size_t size, struct tp_err *err);
/* Room for a text of `size` bytes, NUL included. */
char *tp_store_text(struct tp_store *store, size_t size, struct tp_err *err);
/* The first `size` bytes of `text` and then all of `end`. */
char *tp_store_join(struct tp_store *store, const char *text, size_t size, const char *end,
                    struct tp_err *err);
void tp_store_close(struct tp_store *store); /* legal on {0} and twice */

/* Values of one kind that many things share: of equal ones the first is kept. Only so many are
 * looked through that a file which has each of them differ cannot make this slow. Values are
 * compared byte by byte: what lies between their members has to be zero. */
struct tp_shared { /* {0} is empty */
    struct tp_store store;
    void *latest[32];
    size_t count; /* of all that were added */
};
/* The value to share that equals `value`; NULL + TP_E_MEMORY. */
void *tp_shared_keep(struct tp_shared *shared, const void *value, size_t size, struct tp_err *err);
void tp_shared_close(struct tp_shared *shared); /* legal on {0} and twice */

#endif
