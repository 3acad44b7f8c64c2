/* Traces: what reading a checkpoint leaves in the page cache, and its removal.
 *
 * For checkpoints that are too large for the cache anyway (budget.h): reading them would
 * push out what others need. What was cached before stays. Knows files, no tensors.
 */
#ifndef TP_PACK_PAGE_CACHE_H
#define TP_PACK_PAGE_CACHE_H

#include "pack/source/checkpoint.h"

#include <stdatomic.h>

/* {0} does nothing. */
struct tp_page_cache {
    const struct tp_checkpoint *ckpt;
    uint8_t **cached; /* per file a bit per 1 MiB on the disk, or NULL: leave the file alone */
    _Atomic uint64_t read;
};

/* Looks at what of the files is cached now. */
enum tp_code tp_page_cache_open(struct tp_page_cache *cache, const struct tp_checkpoint *ckpt,
                                struct tp_err *err);

/* Drops what plain bytes [begin, end) of file f left; thread-safe. */
void tp_page_cache_drop(const struct tp_page_cache *cache, size_t f, uint64_t begin, uint64_t end);

/* For those who read everything once, in any order: so many bytes more were read. Now
 * and then everything is dropped. Thread-safe. */
void tp_page_cache_count(struct tp_page_cache *cache, uint64_t bytes);

/* Drops everything, also of a run that ended early. */
void tp_page_cache_close(struct tp_page_cache *cache);

#endif
