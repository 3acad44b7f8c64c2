/* Buffers of leaves. Invariant: whether a leaf has a buffer is decided once, by its
 * first chunk, and the same for all that follow.
 */
#include "pack/sink/assemble.h"

#include "pack/file/leafhash.h"
#include "pack/os/os.h"

#include <stdlib.h>

enum { LINE = 64, HEAD = 2 * LINE }; /* the struct lies in front, on cache lines of its own */
_Static_assert(sizeof(struct tp_leaf_buffer) <= HEAD, "the head has room");

static struct tp_leaf_buffer in_chunks; /* stands for: this leaf has no buffer */

void tp_leaf_pool_open(struct tp_leaf_pool *pool, uint64_t bytes)
{
    *pool = (struct tp_leaf_pool){.budget = bytes};
    pthread_mutex_init(&pool->lock, NULL);
}

void tp_leaf_pool_close(struct tp_leaf_pool *pool)
{
    for (struct tp_leaf_buffer *buffer = pool->created, *next; buffer; buffer = next) {
        next = buffer->created;
        free(buffer);
    }
    pthread_mutex_destroy(&pool->lock);
    *pool = (struct tp_leaf_pool){0};
}

enum tp_code tp_assembly_init(struct tp_assembly *a, size_t leaves, struct tp_err *err)
{
    a->leaf = tp_os_zalloc(leaves, sizeof *a->leaf, err);
    return a->leaf ? TP_OK : TP_E_MEMORY;
}

void tp_assembly_close(struct tp_assembly *a)
{
    free(a->leaf);
    a->leaf = NULL;
}

/* Called with the pool's lock held. NULL with TP_OK: there is no room. */
static enum tp_code take(struct tp_leaf_pool *pool, struct tp_leaf_buffer **buffer,
                         struct tp_err *err)
{
    *buffer = pool->free_list;
    if (*buffer) {
        pool->free_list = (*buffer)->next;
        return TP_OK;
    }
    if (pool->budget < TP_LEAF_BYTES + HEAD)
        return TP_OK;
    struct tp_leaf_buffer *made = tp_os.aligned_alloc(LINE, TP_LEAF_BYTES + HEAD);
    if (!made)
        return tp_fail(err, TP_E_MEMORY, "out of memory for a buffer of %llu bytes",
                       (unsigned long long)TP_LEAF_BYTES);
    pool->budget -= TP_LEAF_BYTES + HEAD;
    *made = (struct tp_leaf_buffer){.created = pool->created, .data = (uint8_t *)made + HEAD};
    pool->created = *buffer = made;
    return TP_OK;
}

enum tp_code tp_assembly_buffer(struct tp_assembly *a, struct tp_leaf_pool *pool, size_t i,
                                struct tp_leaf_buffer **buffer, struct tp_err *err)
{
    struct tp_leaf_buffer *found = atomic_load_explicit(&a->leaf[i], memory_order_acquire);
    enum tp_code code = TP_OK;
    if (!found) {
        pthread_mutex_lock(&pool->lock);
        found = atomic_load_explicit(&a->leaf[i], memory_order_relaxed);
        if (!found && (code = take(pool, &found, err)) == TP_OK) {
            if (!found)
                found = &in_chunks;
            else
                found->leaf = i;
            atomic_store_explicit(&a->leaf[i], found, memory_order_release);
        }
        pthread_mutex_unlock(&pool->lock);
    }
    *buffer = found == &in_chunks ? NULL : found;
    return code;
}

void tp_assembly_release(struct tp_assembly *a, struct tp_leaf_pool *pool,
                         struct tp_leaf_buffer *buffer)
{
    pthread_mutex_lock(&pool->lock);
    /* Bytes that come once more find the leaf in chunks, and the accounts refuse them. */
    atomic_store_explicit(&a->leaf[buffer->leaf], &in_chunks, memory_order_release);
    buffer->next = pool->free_list;
    pool->free_list = buffer;
    pthread_mutex_unlock(&pool->lock);
}
