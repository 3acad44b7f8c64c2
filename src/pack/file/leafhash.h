/* Checksums of files whose bytes arrive in any order.
 *
 * Normative (this is what a manifest's checksum means):
 *   1. The file's bytes are cut into leaves of 1048576 bytes: leaf i is bytes
 *      [i * 1048576, min((i + 1) * 1048576, size)). A file of 0 bytes has none.
 *   2. The hash of a leaf is XXH3-128 (seed 0, the default secret) of its bytes,
 *      in canonical form: 16 bytes, the high 64-bit half first, each half
 *      big-endian. That is the order in which `xxhsum -H2` prints it.
 *   3. The file's hash is XXH3-128, in the same form, over: the file's size as
 *      8 bytes little-endian, then the hashes of all leaves in order.
 *   4. As text a hash is its 16 bytes as 32 lower-case hexadecimal digits (hash_text.h).
 *
 * A leaf that one call reports whole is hashed from memory at once. A leaf that
 * comes in chunks is noted when its last chunk comes, and hashed by a later
 * tp_leafhash_finalize(), which reads it back. Every byte must be reported exactly
 * once: a file with a hole, or with two boxes on the same bytes, has no hash.
 */
#ifndef TP_PACK_LEAFHASH_H
#define TP_PACK_LEAFHASH_H

#include "base/error.h"
#include "pack/file/hash_text.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TP_LEAF_BYTES UINT64_C(1048576)

struct tp_leaf; /* 24 bytes for each leaf of the file */

/* {0} is a valid closed object. All but init, final and close may be called by
 * any number of threads. */
struct tp_leafhash {
    uint64_t file_size;
    size_t leaf_count;
    struct tp_leaf *leaves;
    pthread_mutex_t lock; /* of `pending`, the first complete leaf not yet hashed */
    uint32_t pending;
    bool open;
};

/* Reads `size` bytes at `offset` of the file. Must be thread-safe. */
typedef enum tp_code (*tp_leafhash_read)(void *arg, void *data, uint64_t size, uint64_t offset,
                                         struct tp_err *err);

enum tp_code tp_leafhash_init(struct tp_leafhash *h, uint64_t file_size, struct tp_err *err);
void tp_leafhash_close(struct tp_leafhash *h); /* legal on {0} and twice */

/* Reports that `size` bytes at `offset` are in the file. `data` holds them, or is
 * NULL if they are not in memory (a copy made by the kernel): then all their
 * leaves are left for finalize. Must be called after the bytes were written, as finalize may read
 * them at once. TP_E_IO if a byte is outside the file or is reported twice; what slips through here
 * fails in final(). */
enum tp_code tp_leafhash_written(struct tp_leafhash *h, uint64_t offset, const void *data,
                                 uint64_t size, struct tp_err *err);

/* Chunks of one leaf that are put together in memory instead (assemble.h), reported
 * many at once: add() notes the chunk [from, from + size) of the leaf, share() reports
 * what was noted. *complete is true for the one that brings the last chunk: it owns
 * the leaf now and owes set(). TP_E_IO as for written(). */
struct tp_leaf_share {
    size_t leaf;
    uint64_t size, cover; /* 0 at first */
    uint64_t last;        /* where the last chunk began */
};

/* A bijection without structure (the finalizer of splitmix64). */
static inline uint64_t tp_leaf_mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static inline void tp_leaf_share_add(struct tp_leaf_share *share, uint64_t from, uint64_t size)
{
    share->size += size;
    share->cover += tp_leaf_mix(from + size) - tp_leaf_mix(from);
    share->last = from;
}
enum tp_code tp_leafhash_share(struct tp_leafhash *h, const struct tp_leaf_share *share,
                               bool *complete, struct tp_err *err);

/* Hashes leaf i from all its bytes. */
void tp_leafhash_set(struct tp_leafhash *h, size_t i, const void *data);
uint64_t tp_leafhash_leaf_size(const struct tp_leafhash *h, size_t i);

/* True if there are leaves for finalize to hash (a hint: others may take them). */
bool tp_leafhash_pending(struct tp_leafhash *h);

/* Hashes the leaves that are complete but not hashed, one after the other, until
 * none is left; several threads share the work. Takes 1 MiB while it runs. */
enum tp_code tp_leafhash_finalize(struct tp_leafhash *h, tp_leafhash_read read, void *arg,
                                  struct tp_err *err);

/* The file's hash, after all writers and finalizers have returned. TP_E_IO, with
 * the offset of the leaf, unless every byte was reported once and finalized. */
enum tp_code tp_leafhash_final(struct tp_leafhash *h, uint8_t root[TP_HASH_BYTES],
                               struct tp_err *err);

/* Hashes a file that exists, by `threads` threads (1 MiB of memory each, at most
 * 64). The first failure of a read is returned. */
enum tp_code tp_leafhash_file(uint64_t file_size, unsigned threads, tp_leafhash_read read,
                              void *arg, uint8_t root[TP_HASH_BYTES], struct tp_err *err);
/* The same of an open file, by one thread; `path` is for errors. */
enum tp_code tp_leafhash_fd(int fd, const char *path, uint64_t file_size,
                            uint8_t root[TP_HASH_BYTES], struct tp_err *err);

/* Bytes [offset, offset + size) of a file, with the digits of its own hash, which stand at
 * `place`, as zeros: that is how they are hashed. UINT64_MAX: it has none. */
void tp_hash_blank(void *data, uint64_t size, uint64_t offset, uint64_t place);

/* XXH3-128 of bytes in memory, in the canonical form of 2. above. */
void tp_hash(const void *data, size_t size, uint8_t hash[TP_HASH_BYTES]);

#endif
