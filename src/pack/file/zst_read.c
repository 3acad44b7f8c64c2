/* Reading plain bytes of a zstd archive: finds the frames of a range, decodes
 * them, and keeps some of them for the next reader.
 *
 * The frame cache is one for the process, because a checkpoint may be hundreds
 * of archives and memory is bounded for all of them together. Invariant: under
 * the lock, `used` is the sum of what cached frames and running reads hold; it
 * exceeds the limit only while a single read is running that needs more alone.
 * Every running read holds one reservation, a waiting one none, so they cannot
 * wait for each other.
 */
#include "pack/file/zst_format.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zstd.h>

enum { MAX_SLOTS = 256 }; /* the list is searched one by one */

struct slot {
    struct slot *older, *newer;
    const struct tp_zst *zst;
    size_t frame;
    uint32_t users;
    bool ready; /* decoded; until then its first user is at work on it */
    uint8_t *data;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct slot *oldest, *newest;
    unsigned slots, active; /* active: reads that hold a reservation or use a slot */
    uint64_t used, limit;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .change = PTHREAD_COND_INITIALIZER,
           .limit = UINT64_C(64) << 20};

static void unlink_slot(struct slot *s)
{
    *(s->older ? &s->older->newer : &cache.oldest) = s->newer;
    *(s->newer ? &s->newer->older : &cache.newest) = s->older;
    s->older = s->newer = NULL;
}

static void link_newest(struct slot *s)
{
    s->older = cache.newest;
    *(cache.newest ? &cache.newest->newer : &cache.oldest) = s;
    cache.newest = s;
}

/* Under the lock; no thread may be using the slot. */
static void drop(struct slot *s)
{
    unlink_slot(s);
    cache.slots--;
    cache.used -= s->zst->frames[s->frame].plain;
    free(s->data);
    free(s);
}

static struct slot *find(const struct tp_zst *zst, size_t frame)
{
    for (struct slot *s = cache.newest; s; s = s->older)
        if (s->zst == zst && s->frame == frame)
            return s;
    return NULL;
}

static bool drop_oldest(void)
{
    for (struct slot *s = cache.oldest; s; s = s->newer)
        if (s->users == 0) {
            drop(s);
            return true;
        }
    return false;
}

/* Makes room for `bytes` and counts them. False when it had to wait: the lock was
 * released meanwhile, and the caller must look again. */
static bool reserve(uint64_t bytes)
{
    while (cache.used + bytes > cache.limit || cache.slots >= MAX_SLOTS) {
        if (drop_oldest())
            continue;
        if (cache.active == 0)
            break;
        pthread_cond_wait(&cache.change, &cache.lock);
        return false;
    }
    cache.used += bytes;
    cache.active++;
    return true;
}

static void release(uint64_t bytes)
{
    cache.used -= bytes;
    cache.active--;
    pthread_cond_broadcast(&cache.change);
}

static enum tp_code damaged(const struct tp_zst *zst, const struct tp_zst_frame *frame,
                            const char *why, struct tp_err *err)
{
    enum tp_code code = tp_fail(err, TP_E_INPUT, "damaged zstd frame (plain bytes %llu to %llu): "
                                "%s", (unsigned long long)frame->begin,
                                (unsigned long long)frame->begin + frame->plain, why);
    tp_err_path(err, zst->path);
    tp_err_offset(err, frame->at);
    tp_err_hint(err, "`zstd -t %s` checks the archive; get the file again", zst->path);
    return code;
}

static enum tp_code decode_packed(const struct tp_zst *zst, const struct tp_zst_frame *frame,
                                  const uint8_t *packed, uint8_t *plain, struct tp_err *err)
{
    struct tp_zst_head head;
    if (!tp_zst_parse_head(packed, frame->stored, &head))
        return damaged(zst, frame, "no frame header", err);
    if (head.sized && head.plain != frame->plain)
        return damaged(zst, frame, "its header and the seek table state different sizes", err);
    size_t n = ZSTD_findFrameCompressedSize(packed, frame->stored);
    if (ZSTD_isError(n))
        return damaged(zst, frame, ZSTD_getErrorName(n), err);
    if (n != frame->stored)
        return damaged(zst, frame, "it ends before the next one begins", err);
    ZSTD_DCtx *context = ZSTD_createDCtx();
    if (!context)
        return tp_fail(err, TP_E_MEMORY, "out of memory for a zstd decoder");
    n = ZSTD_decompressDCtx(context, plain, frame->plain, packed, frame->stored);
    ZSTD_freeDCtx(context);
    if (ZSTD_isError(n))
        return damaged(zst, frame, ZSTD_getErrorName(n), err);
    if (n != frame->plain)
        return damaged(zst, frame, "it holds fewer bytes than the seek table says", err);
    if (frame->has_checksum && (uint32_t)XXH64(plain, n, 0) != frame->checksum)
        return damaged(zst, frame, "its bytes do not match the seek table's checksum", err);
    return TP_OK;
}

/* Memory for a frame, stored or plain. A frame is unpacked as a whole: where it is more than
 * --max-memory has left, headers and the plan are not what is to blame. */
static uint8_t *allocate(const struct tp_zst *zst, const struct tp_zst_frame *frame, uint64_t size,
                         struct tp_err *err)
{
    struct tp_err local = {0};
    uint8_t *memory = tp_os_alloc(size, &local);
    if (!memory && size > tp_os_heap_left()) {
        tp_err_path(err, zst->path);
        tp_err_hint(err, "allow it more with --max-memory, or unpack it first: zstd -d %s",
                    zst->path);
        tp_fail(err, TP_E_MEMORY, "a frame of this archive is unpacked as a whole, for which "
                "--max-memory does not leave the %llu MiB",
                (unsigned long long)(((uint64_t)frame->stored + frame->plain) >> 20) + 1);
    } else if (!memory && err && !err->code) {
        *err = local;
    }
    return memory;
}

static enum tp_code decode(const struct tp_zst *zst, const struct tp_zst_frame *frame,
                           uint8_t *plain, struct tp_err *err)
{
    uint8_t *packed = allocate(zst, frame, frame->stored, err);
    if (!packed)
        return TP_E_MEMORY;
    enum tp_code code = tp_os_read(zst->fd, packed, frame->stored, frame->at, zst->path, err);
    if (!code)
        code = decode_packed(zst, frame, packed, plain, err);
    free(packed);
    return code;
}

/* Takes the frame from the cache, decoding it when it is not there; on success
 * the slot is in use by the caller until put_back(). */
static enum tp_code take(const struct tp_zst *zst, size_t index, struct slot **slot,
                         struct tp_err *err)
{
    const struct tp_zst_frame *frame = &zst->frames[index];
    struct slot *fresh = tp_os_zalloc(1, sizeof *fresh, err);
    if (!fresh)
        return TP_E_MEMORY;
    *fresh = (struct slot){.zst = zst, .frame = index, .users = 1};
    pthread_mutex_lock(&cache.lock);
    for (;;) {
        struct slot *s = find(zst, index);
        if (s && s->ready) {
            s->users++;
            cache.active++;
            unlink_slot(s);
            link_newest(s);
            pthread_mutex_unlock(&cache.lock);
            free(fresh);
            *slot = s;
            return TP_OK;
        }
        if (s)
            pthread_cond_wait(&cache.change, &cache.lock);
        else if (reserve((uint64_t)frame->stored + frame->plain))
            break;
    }
    link_newest(fresh);
    cache.slots++;
    pthread_mutex_unlock(&cache.lock);
    fresh->data = allocate(zst, frame, frame->plain, err);
    enum tp_code code = fresh->data ? decode(zst, frame, fresh->data, err) : TP_E_MEMORY;
    pthread_mutex_lock(&cache.lock);
    cache.used -= frame->stored;
    fresh->ready = true;
    if (code) {
        drop(fresh);
        cache.active--;
    }
    pthread_cond_broadcast(&cache.change);
    pthread_mutex_unlock(&cache.lock);
    *slot = fresh;
    return code;
}

static void put_back(struct slot *s)
{
    pthread_mutex_lock(&cache.lock);
    s->users--;
    release(0);
    pthread_mutex_unlock(&cache.lock);
}

/* A whole frame goes straight to its destination and leaves the cache alone,
 * unless it is there already. */
static enum tp_code read_whole(const struct tp_zst *zst, size_t index, uint8_t *data, bool *done,
                               struct tp_err *err)
{
    const struct tp_zst_frame *frame = &zst->frames[index];
    pthread_mutex_lock(&cache.lock);
    bool cached;
    do
        cached = find(zst, index);
    while (!cached && !reserve(frame->stored));
    pthread_mutex_unlock(&cache.lock);
    *done = !cached;
    if (cached)
        return TP_OK;
    enum tp_code code = decode(zst, frame, data, err);
    pthread_mutex_lock(&cache.lock);
    release(frame->stored);
    pthread_mutex_unlock(&cache.lock);
    return code;
}

static enum tp_code read_part(const struct tp_zst *zst, size_t index, uint64_t from, uint64_t size,
                              uint8_t *data, struct tp_err *err)
{
    bool done = false;
    if (size == zst->frames[index].plain) {
        enum tp_code code = read_whole(zst, index, data, &done, err);
        if (code || done)
            return code;
    }
    struct slot *slot;
    enum tp_code code = take(zst, index, &slot, err);
    if (code)
        return code;
    memcpy(data, slot->data + from, size);
    put_back(slot);
    return TP_OK;
}

/* Index of the frame that holds the plain byte at `offset` < zst->size. */
static size_t frame_of(const struct tp_zst *zst, uint64_t offset)
{
    size_t low = 0, high = zst->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (zst->frames[middle].begin <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void tp_zst_stored(const struct tp_zst *zst, uint64_t *begin, uint64_t *end)
{
    const struct tp_zst_frame *last = &zst->frames[frame_of(zst, *end - 1)];
    *begin = zst->frames[frame_of(zst, *begin)].at;
    *end = last->at + last->stored;
}

enum tp_code tp_zst_read(struct tp_zst *zst, void *data, uint64_t size, uint64_t offset,
                         struct tp_err *err)
{
    uint64_t end;
    if (!tp_add_u64(&end, offset, size) || end > zst->size) {
        enum tp_code code = tp_fail(err, TP_E_INPUT, "bytes %llu + %llu are beyond the end of the "
                                    "archive's contents (%llu)", (unsigned long long)offset,
                                    (unsigned long long)size, (unsigned long long)zst->size);
        tp_err_path(err, zst->path);
        return code;
    }
    uint8_t *out = data;
    for (size_t i = size ? frame_of(zst, offset) : 0; offset < end; i++) {
        const struct tp_zst_frame *frame = &zst->frames[i];
        uint64_t from = offset - frame->begin;
        uint64_t part = tp_min_u64(frame->plain - from, end - offset);
        enum tp_code code = read_part(zst, i, from, part, out, err);
        if (code)
            return code;
        out += part;
        offset += part;
    }
    return TP_OK;
}

void tp_zst_cache_limit(uint64_t bytes)
{
    pthread_mutex_lock(&cache.lock);
    cache.limit = bytes;
    while (cache.used > cache.limit && drop_oldest())
        ;
    pthread_mutex_unlock(&cache.lock);
}

void tp_zst_close(struct tp_zst *zst)
{
    if (!zst)
        return;
    pthread_mutex_lock(&cache.lock);
    for (struct slot *s = cache.oldest, *next; s; s = next) {
        next = s->newer;
        if (s->zst == zst)
            drop(s);
    }
    pthread_cond_broadcast(&cache.change);
    pthread_mutex_unlock(&cache.lock);
    tp_zst_free(zst);
}
