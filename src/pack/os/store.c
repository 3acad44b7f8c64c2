/* Memory in blocks. Invariant: what was given out stays where it is until the store is closed. */
#include "pack/os/store.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

struct tp_store_block {
    struct tp_store_block *next;
    max_align_t data[];
};

enum { SMALLEST = 4 << 10, LARGEST = 512 << 10 };

/* Room for `size` bytes at a multiple of `align`, a power of two. */
static void *take(struct tp_store *store, size_t size, size_t align, struct tp_err *err)
{
    size_t at = (store->used + align - 1) & ~(align - 1);
    if (!store->blocks || at > store->capacity || size > store->capacity - at) {
        uint64_t capacity = tp_min_u64(tp_max_u64(2 * store->capacity, SMALLEST), LARGEST), bytes;
        capacity = tp_max_u64(capacity, size);
        struct tp_store_block *block =
            tp_add_u64(&bytes, capacity, sizeof *block) ? tp_os_alloc(bytes, err) : NULL;
        if (!block)
            return NULL;
        block->next = store->blocks;
        *store = (struct tp_store){block, 0, capacity};
        at = 0;
    }
    store->used = at + size;
    return (char *)store->blocks->data + at;
}

void *tp_store_zalloc(struct tp_store *store, size_t count, size_t size, struct tp_err *err)
{
    uint64_t bytes;
    if (!tp_mul_u64(&bytes, count, size))
        bytes = PTRDIFF_MAX; /* which no machine has */
    void *memory = take(store, bytes, sizeof(uint64_t), err);
    return memory ? memset(memory, 0, bytes) : NULL;
}

void *tp_store_copy(struct tp_store *store, const void *data, size_t size, struct tp_err *err)
{
    void *memory = take(store, size, sizeof(uint64_t), err);
    return memory ? memcpy(memory, data, size) : NULL;
}

char *tp_store_text(struct tp_store *store, size_t size, struct tp_err *err)
{
    return take(store, size, 1, err);
}

char *tp_store_join(struct tp_store *store, const char *text, size_t size, const char *end,
                    struct tp_err *err)
{
    size_t more = strlen(end) + 1;
    char *joined = tp_store_text(store, size + more, err);
    if (!joined)
        return NULL;
    memcpy(joined, text, size);
    memcpy(joined + size, end, more);
    return joined;
}

void tp_store_close(struct tp_store *store)
{
    while (store->blocks) {
        struct tp_store_block *next = store->blocks->next;
        free(store->blocks);
        store->blocks = next;
    }
    *store = (struct tp_store){0};
}

void *tp_shared_keep(struct tp_shared *shared, const void *value, size_t size, struct tp_err *err)
{
    size_t capacity = sizeof shared->latest / sizeof *shared->latest;
    for (size_t i = 0; i < capacity && i < shared->count; i++) { /* the latest one first */
        void *known = shared->latest[(shared->count - 1 - i) % capacity];
        if (memcmp(known, value, size) == 0)
            return known;
    }
    void *kept = tp_store_copy(&shared->store, value, size, err);
    if (kept)
        shared->latest[shared->count++ % capacity] = kept;
    return kept;
}

void tp_shared_close(struct tp_shared *shared)
{
    tp_store_close(&shared->store);
    *shared = (struct tp_shared){0};
}
