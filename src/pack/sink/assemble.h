/* Leaves put together in memory: chunks of a file that come in any order, from any
 * thread, become whole leaves (leafhash.h) that are written and hashed in one go.
 *
 * Knows no files and no hashes. A pool holds the buffers of all files of a sink and
 * never more bytes than it was given; a leaf for which there is no buffer any more
 * when its first chunk comes stays without one for good, and its chunks are written
 * one by one.
 */
#ifndef TP_PACK_ASSEMBLE_H
#define TP_PACK_ASSEMBLE_H

#include "pack/sink/write_queue.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct tp_leaf_buffer {
    struct tp_write write;          /* first: once the leaf is complete */
    struct tp_leaf_buffer *next;    /* of those that are spare */
    struct tp_leaf_buffer *created; /* all of a pool */
    size_t leaf;
    uint8_t *data; /* TP_LEAF_BYTES */
};

struct tp_leaf_pool {
    pthread_mutex_t lock;
    struct tp_leaf_buffer *free_list, *created;
    uint64_t budget; /* bytes that may still be allocated */
};
void tp_leaf_pool_open(struct tp_leaf_pool *pool, uint64_t bytes);
void tp_leaf_pool_close(struct tp_leaf_pool *pool); /* frees every buffer, in use or not */

/* The leaves of one file. {0} is closed. */
struct tp_assembly {
    _Atomic(struct tp_leaf_buffer *) *leaf;
};
enum tp_code tp_assembly_init(struct tp_assembly *a, size_t leaves, struct tp_err *err);
void tp_assembly_close(struct tp_assembly *a);

/* The buffer of leaf i in *buffer, taken from the pool by the first who asks; NULL
 * for a leaf that is written in chunks. */
enum tp_code tp_assembly_buffer(struct tp_assembly *a, struct tp_leaf_pool *pool, size_t i,
                                struct tp_leaf_buffer **buffer, struct tp_err *err);

/* Gives the buffer of a leaf back once no thread writes to it any more. */
void tp_assembly_release(struct tp_assembly *a, struct tp_leaf_pool *pool,
                         struct tp_leaf_buffer *buffer);

#endif
