/* Checksums of files whose bytes arrive in any order: the bookkeeping of leaves.
 *
 * A leaf's state counts bytes twice: `reserved` before a chunk is looked at and
 * `done` after. Invariant: reserved never exceeds the leaf's size, so whoever
 * brings `done` to that size is the last to touch the leaf, and the only one to
 * queue it; afterwards it belongs to the one thread that takes it from the queue.
 *
 * Counts alone cannot tell a byte reported twice beside one never reported. So
 * each chunk [a,b) also adds mix(b) - mix(a) to the leaf's `cover`. In an exact
 * cover every inner border is once an end and once a beginning, and the sum is
 * mix(size) - mix(0); chunks that overlap or leave a gap miss it but for a chance
 * of 2^-64. Until the leaf is hashed that sum lives where its hash will be.
 */
#include "pack/file/leafhash.h"

#include "base/isa.h"
#include "base/num.h"
#include "pack/file/xxh3.h"
#include "pack/os/os.h"
#include "pack/os/threads.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { FIELD_BITS = 21 };
#define NO_LEAF UINT32_MAX
#define FIELD ((UINT64_C(1) << FIELD_BITS) - 1)
#define HASHED (UINT64_C(1) << 63)

struct tp_leaf {
    union {
        uint8_t hash[TP_HASH_BYTES];
        struct {
            _Atomic uint64_t cover;
            uint32_t next; /* in the queue */
        } open;
    } u;
    _Atomic uint64_t state; /* reserved | done << FIELD_BITS | HASHED */
};

_Static_assert(sizeof(struct tp_leaf) == 24, "the header promises 24 bytes");
_Static_assert(TP_LEAF_BYTES <= FIELD, "a field holds a whole leaf");

static uint64_t done_of(uint64_t state) { return state >> FIELD_BITS & FIELD; }

uint64_t tp_leafhash_leaf_size(const struct tp_leafhash *h, size_t i)
{
    return tp_min_u64(TP_LEAF_BYTES, h->file_size - (uint64_t)i * TP_LEAF_BYTES);
}

/* The hash takes the place of what was counted; gcc knows the union by its other
 * member, so the bytes go by a copy. */
static void set_hash(struct tp_leaf *leaf, const void *data, uint64_t size)
{
    uint8_t hash[TP_HASH_BYTES];
    tp_hash(data, (size_t)size, hash);
    memcpy(leaf->u.hash, hash, sizeof hash);
}

static enum tp_code misuse(uint64_t offset, const char *what, struct tp_err *err)
{
    enum tp_code code = tp_fail(err, TP_E_IO, "internal check: %s; the output is not valid", what);
    tp_err_offset(err, offset);
    tp_err_hint(err, "this is a defect of tilepack: please report it with the command line");
    return code;
}

void tp_hash_blank(void *data, uint64_t size, uint64_t offset, uint64_t place)
{
    for (uint64_t i = 0; place != UINT64_MAX && i < TP_HASH_TEXT - 1; i++)
        if (place + i >= offset && place + i < offset + size)
            ((char *)data)[place + i - offset] = '0';
}

void tp_hash(const void *data, size_t size, uint8_t hash[TP_HASH_BYTES])
{
    XXH128_hash_t value;
    XXH128_canonical_t canonical;
    if (tp_isa_enabled(TP_ISA_AVX512) || tp_isa_enabled(TP_ISA_AVX2)) {
        struct tp_xxh3 fast = (tp_isa_enabled(TP_ISA_AVX512) ? tp_xxh3_avx512
                                                             : tp_xxh3_avx2)(data, size);
        value = (XXH128_hash_t){.low64 = fast.low, .high64 = fast.high};
    } else {
        value = XXH3_128bits(data, size);
    }
    XXH128_canonicalFromHash(&canonical, value);
    memcpy(hash, canonical.digest, TP_HASH_BYTES);
}

enum tp_code tp_leafhash_init(struct tp_leafhash *h, uint64_t file_size, struct tp_err *err)
{
    *h = (struct tp_leafhash){.file_size = file_size, .pending = NO_LEAF};
    uint64_t count = tp_ceil_div(file_size, TP_LEAF_BYTES);
    if (count >= NO_LEAF)
        return tp_fail(err, TP_E_UNSUPPORTED, "a file of %llu bytes is too large to be hashed",
                       (unsigned long long)file_size);
    h->leaves = tp_os_zalloc((size_t)count, sizeof *h->leaves, err);
    if (!h->leaves) {
        h->file_size = 0; /* so that any use of it is out of range */
        return TP_E_MEMORY;
    }
    h->leaf_count = (size_t)count;
    pthread_mutex_init(&h->lock, NULL);
    h->open = true;
    return TP_OK;
}

void tp_leafhash_close(struct tp_leafhash *h)
{
    if (h->open)
        pthread_mutex_destroy(&h->lock);
    free(h->leaves);
    *h = (struct tp_leafhash){0};
}

/* Claims `size` more bytes of a leaf; false when that is more than it has. */
static bool claim(struct tp_leaf *leaf, uint64_t size, uint64_t limit)
{
    uint64_t state = atomic_load_explicit(&leaf->state, memory_order_relaxed);
    do {
        if ((state & FIELD) + size > limit)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&leaf->state, &state, state + size,
                                                    memory_order_acq_rel, memory_order_relaxed));
    return true;
}

/* True if a complete leaf was covered exactly. */
static bool covered(struct tp_leaf *leaf, uint64_t size)
{
    return atomic_load_explicit(&leaf->u.open.cover, memory_order_relaxed) ==
           tp_leaf_mix(size) - tp_leaf_mix(0);
}

static void queue_leaf(struct tp_leafhash *h, size_t i)
{
    pthread_mutex_lock(&h->lock);
    h->leaves[i].u.open.next = h->pending;
    h->pending = (uint32_t)i;
    pthread_mutex_unlock(&h->lock);
}

enum tp_code tp_leafhash_share(struct tp_leafhash *h, const struct tp_leaf_share *share,
                               bool *complete, struct tp_err *err)
{
    struct tp_leaf *leaf = &h->leaves[share->leaf];
    uint64_t whole = tp_leafhash_leaf_size(h, share->leaf);
    uint64_t begin = (uint64_t)share->leaf * TP_LEAF_BYTES;
    *complete = false;
    if (!claim(leaf, share->size, whole))
        return misuse(begin + share->last, "bytes of a file were written twice", err);
    atomic_fetch_add_explicit(&leaf->u.open.cover, share->cover, memory_order_relaxed);
    uint64_t state = atomic_fetch_add_explicit(&leaf->state, share->size << FIELD_BITS,
                                               memory_order_acq_rel);
    if (done_of(state) + share->size < whole)
        return TP_OK;
    if (!covered(leaf, whole))
        return misuse(begin, "some bytes of a leaf were written twice and others never", err);
    *complete = true;
    return TP_OK;
}

void tp_leafhash_set(struct tp_leafhash *h, size_t i, const void *data)
{
    set_hash(&h->leaves[i], data, tp_leafhash_leaf_size(h, i));
    atomic_fetch_or_explicit(&h->leaves[i].state, HASHED, memory_order_release);
}

/* The part [from, from + size) of leaf i; data may be NULL. */
static enum tp_code written_part(struct tp_leafhash *h, size_t i, uint64_t from,
                                 const uint8_t *data, uint64_t size, struct tp_err *err)
{
    struct tp_leaf_share share = {.leaf = i};
    bool complete;
    tp_leaf_share_add(&share, from, size);
    enum tp_code code = tp_leafhash_share(h, &share, &complete, err);
    if (code || !complete)
        return code;
    if (data && size == tp_leafhash_leaf_size(h, i))
        tp_leafhash_set(h, i, data);
    else
        queue_leaf(h, i);
    return TP_OK;
}

enum tp_code tp_leafhash_written(struct tp_leafhash *h, uint64_t offset, const void *data,
                                 uint64_t size, struct tp_err *err)
{
    uint64_t end;
    if (!tp_add_u64(&end, offset, size) || end > h->file_size)
        return misuse(offset, "bytes were written behind the end of a file", err);
    const uint8_t *p = data;
    while (offset < end) {
        size_t i = (size_t)(offset / TP_LEAF_BYTES);
        uint64_t from = offset % TP_LEAF_BYTES;
        uint64_t part = tp_min_u64(end - offset, TP_LEAF_BYTES - from);
        enum tp_code code = written_part(h, i, from, p, part, err);
        if (code)
            return code;
        offset += part;
        p = p ? p + part : NULL;
    }
    return TP_OK;
}

static bool take_pending(struct tp_leafhash *h, size_t *i)
{
    pthread_mutex_lock(&h->lock);
    bool any = h->pending != NO_LEAF;
    if (any) {
        *i = h->pending;
        h->pending = h->leaves[*i].u.open.next;
    }
    pthread_mutex_unlock(&h->lock);
    return any;
}

bool tp_leafhash_pending(struct tp_leafhash *h)
{
    pthread_mutex_lock(&h->lock);
    bool any = h->pending != NO_LEAF;
    pthread_mutex_unlock(&h->lock);
    return any;
}

/* Reads and hashes one leaf that the caller owns. */
static enum tp_code hash_leaf(struct tp_leafhash *h, size_t i, uint8_t *buffer,
                              tp_leafhash_read read, void *arg, struct tp_err *err)
{
    uint64_t size = tp_leafhash_leaf_size(h, i);
    enum tp_code code = read(arg, buffer, size, (uint64_t)i * TP_LEAF_BYTES, err);
    if (code)
        return code;
    tp_leafhash_set(h, i, buffer);
    return TP_OK;
}

enum tp_code tp_leafhash_finalize(struct tp_leafhash *h, tp_leafhash_read read, void *arg,
                                  struct tp_err *err)
{
    if (!tp_leafhash_pending(h))
        return TP_OK;
    uint8_t *buffer = tp_os_alloc(TP_LEAF_BYTES, err);
    if (!buffer)
        return TP_E_MEMORY;
    enum tp_code code = TP_OK;
    size_t i;
    while (!code && take_pending(h, &i)) {
        code = hash_leaf(h, i, buffer, read, arg, err);
        if (code)
            queue_leaf(h, i);
    }
    free(buffer);
    return code;
}

static void root_hash(struct tp_leafhash *h, XXH3_state_t *state, uint8_t root[TP_HASH_BYTES])
{
    uint8_t size[8];
    for (int i = 0; i < 8; i++)
        size[i] = (uint8_t)(h->file_size >> 8 * i);
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, size, sizeof size);
    for (size_t i = 0; i < h->leaf_count; i++)
        XXH3_128bits_update(state, h->leaves[i].u.hash, TP_HASH_BYTES);
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    memcpy(root, canonical.digest, TP_HASH_BYTES);
}

enum tp_code tp_leafhash_final(struct tp_leafhash *h, uint8_t root[TP_HASH_BYTES],
                               struct tp_err *err)
{
    for (size_t i = 0; i < h->leaf_count; i++) {
        uint64_t state = atomic_load_explicit(&h->leaves[i].state, memory_order_acquire);
        uint64_t at = (uint64_t)i * TP_LEAF_BYTES;
        if (done_of(state) < tp_leafhash_leaf_size(h, i))
            return misuse(at, "some bytes of a file were never written", err);
        if (!(state & HASHED))
            return misuse(at, "a part of a file was written but not hashed", err);
    }
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return tp_fail(err, TP_E_MEMORY, "out of memory for a checksum");
    root_hash(h, state, root);
    XXH3_freeState(state);
    return TP_OK;
}

struct scan {
    struct tp_leafhash h;
    tp_leafhash_read read;
    void *arg;
};

static enum tp_code scan_leaf(void *arg, void *buffer, uint64_t i, struct tp_err *err)
{
    struct scan *s = arg;
    uint64_t size = tp_leafhash_leaf_size(&s->h, (size_t)i);
    atomic_store(&s->h.leaves[i].state, size | size << FIELD_BITS);
    return hash_leaf(&s->h, (size_t)i, buffer, s->read, s->arg, err);
}

enum tp_code tp_leafhash_file(uint64_t file_size, unsigned threads, tp_leafhash_read read,
                              void *arg, uint8_t root[TP_HASH_BYTES], struct tp_err *err)
{
    struct scan s = {.read = read, .arg = arg};
    enum tp_code code = tp_leafhash_init(&s.h, file_size, err);
    const struct tp_each leaves = {.count = s.h.leaf_count, .threads = threads, .one = scan_leaf,
                                   .arg = &s, .own = TP_LEAF_BYTES};
    if (!code && !(code = tp_each(&leaves, err)))
        code = tp_leafhash_final(&s.h, root, err);
    tp_leafhash_close(&s.h);
    return code;
}

struct open_file {
    int fd;
    const char *path;
};

static enum tp_code read_open(void *arg, void *data, uint64_t size, uint64_t offset,
                              struct tp_err *err)
{
    const struct open_file *file = arg;
    return tp_os_read(file->fd, data, size, offset, file->path, err);
}

enum tp_code tp_leafhash_fd(int fd, const char *path, uint64_t file_size,
                            uint8_t root[TP_HASH_BYTES], struct tp_err *err)
{
    struct open_file file = {fd, path};
    return tp_leafhash_file(file_size, 1, read_open, &file, root, err);
}
