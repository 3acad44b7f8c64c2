/* Writing a seekable zstd file: cuts the plain bytes into frames, compresses
 * them in threads, appends them in order, and ends with the seek table.
 *
 * Frames pass through a fixed ring of slots, so memory is bounded whatever the
 * file's size. Invariant: written <= take <= put <= written + slots; frame i
 * lives in slot i % slots, and only its present owner (producer, one worker,
 * the appender) touches its buffers. What a frame's bytes are depends on its
 * contents and the level only: each is compressed in a fresh context, so that
 * nothing of an earlier frame, and with it the division among threads, is left.
 */
#include "pack/file/zst_format.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#define ZSTD_STATIC_LINKING_ONLY /* what an encoder takes is asked nowhere else */
#include <zstd.h>

enum { MAX_THREADS = 32 }; /* each may hold two buffers of 4 MiB and an encoder */
enum { MORE_SLOTS = 2 };   /* one is filled, one is written */

struct slot {
    uint8_t *plain, *packed;
    size_t plain_size, packed_size;
    bool done; /* compressed, not yet appended */
};

struct entry {
    uint32_t stored, plain;
};

struct tp_zst_writer {
    int fd, level;
    char *path;
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct slot *slots;
    pthread_t *threads;
    unsigned slot_count, thread_count;
    uint64_t put, take, written; /* frames handed over, begun, appended */
    uint64_t at;                 /* where the next frame goes */
    bool appending, stop, finished;
    struct entry *entries;
    size_t entry_count, entry_capacity;
    struct tp_err err; /* the first failure; every later call returns it */
};

/* Under the lock. Keeps the first failure and wakes everyone. */
static void fail_all(struct tp_zst_writer *w, const struct tp_err *err)
{
    if (w->err.code == TP_OK)
        w->err = *err;
    pthread_cond_broadcast(&w->change);
}

static enum tp_code zstd_failed(const struct tp_zst_writer *w, size_t n, struct tp_err *err)
{
    enum tp_code code = tp_fail(err, TP_E_MEMORY, "compressing failed: %s", ZSTD_getErrorName(n));
    tp_err_path(err, w->path);
    return code;
}

static enum tp_code compress(const struct tp_zst_writer *w, struct slot *s, struct tp_err *err)
{
    size_t bound = ZSTD_compressBound(TP_ZST_FRAME);
    if (!s->packed)
        s->packed = tp_os_alloc(bound, err);
    if (!s->packed)
        return TP_E_MEMORY;
    ZSTD_CCtx *context = ZSTD_createCCtx();
    if (!context)
        return tp_fail(err, TP_E_MEMORY, "out of memory for a zstd encoder");
    size_t n = ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, w->level);
    if (!ZSTD_isError(n))
        n = ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    if (!ZSTD_isError(n))
        n = ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 1);
    if (!ZSTD_isError(n))
        n = ZSTD_compress2(context, s->packed, bound, s->plain, s->plain_size);
    ZSTD_freeCCtx(context);
    if (ZSTD_isError(n))
        return zstd_failed(w, n, err);
    s->packed_size = n;
    return TP_OK;
}

/* Under the lock, which is released while a frame is written. One thread at a
 * time appends; the others only leave their frames for it. */
static void append(struct tp_zst_writer *w)
{
    if (w->appending)
        return;
    w->appending = true;
    while (w->written < w->put && w->err.code == TP_OK) {
        struct slot *s = &w->slots[w->written % w->slot_count];
        if (!s->done)
            break;
        struct tp_err err = {0};
        pthread_mutex_unlock(&w->lock);
        enum tp_code code = tp_os_write(w->fd, s->packed, s->packed_size, w->at, w->path, &err);
        if (!code)
            code = tp_os_grow((void **)&w->entries, &w->entry_capacity, w->entry_count + 1,
                              sizeof *w->entries, &err);
        pthread_mutex_lock(&w->lock);
        if (code) {
            fail_all(w, &err);
            break;
        }
        w->entries[w->entry_count++] = (struct entry){(uint32_t)s->packed_size,
                                                      (uint32_t)s->plain_size};
        w->at += s->packed_size;
        s->plain_size = 0;
        s->done = false;
        w->written++;
        pthread_cond_broadcast(&w->change);
    }
    w->appending = false;
}

static void *work(void *arg)
{
    struct tp_zst_writer *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->take == w->put && !w->stop && w->err.code == TP_OK)
            pthread_cond_wait(&w->change, &w->lock);
        if (w->take == w->put || w->err.code != TP_OK)
            break;
        struct slot *s = &w->slots[w->take++ % w->slot_count];
        pthread_mutex_unlock(&w->lock);
        struct tp_err err = {0};
        enum tp_code code = compress(w, s, &err);
        pthread_mutex_lock(&w->lock);
        if (code) {
            fail_all(w, &err);
        } else {
            s->done = true;
            append(w);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static enum tp_code start_threads(struct tp_zst_writer *w, unsigned threads, struct tp_err *err)
{
    for (unsigned i = 0; i < threads; i++) {
        int sys = tp_os.start_thread(&w->threads[i], work, w);
        if (sys && i == 0)
            return tp_fail(err, TP_E_MEMORY, "out of memory or of threads: zstd's first one does "
                           "not start (error %d)", sys);
        if (sys)
            break; /* fewer threads give the same bytes */
        w->thread_count++;
    }
    return TP_OK;
}

uint64_t tp_zst_memory(int level, unsigned threads)
{
    uint64_t count = tp_min_u64(threads ? threads : 1, MAX_THREADS);
    ZSTD_compressionParameters params = ZSTD_getCParams(level, TP_ZST_FRAME, 0);
    uint64_t slot = TP_ZST_FRAME + ZSTD_compressBound(TP_ZST_FRAME);
    return count * ZSTD_estimateCCtxSize_usingCParams(params) + (count + MORE_SLOTS) * slot;
}

enum tp_code tp_zst_create(int fd, const char *path, int level, unsigned threads,
                           struct tp_zst_writer **writer, struct tp_err *err)
{
    *writer = NULL;
    if (level < 1 || level > ZSTD_maxCLevel()) {
        enum tp_code code = tp_fail(err, TP_E_USAGE, "zstd level %d does not exist", level);
        tp_err_hint(err, "levels are 1 to %d", ZSTD_maxCLevel());
        return code;
    }
    threads = (unsigned)tp_min_u64(threads ? threads : 1, MAX_THREADS);
    struct tp_zst_writer *w = tp_os_zalloc(1, sizeof *w, err);
    if (!w)
        return TP_E_MEMORY;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->change, NULL);
    w->fd = fd;
    w->level = level;
    w->slot_count = threads + MORE_SLOTS;
    enum tp_code code = TP_E_MEMORY;
    w->path = tp_os_format(err, "%s", path);
    w->slots = w->path ? tp_os_zalloc(w->slot_count, sizeof *w->slots, err) : NULL;
    w->threads = w->slots ? tp_os_zalloc(threads, sizeof *w->threads, err) : NULL;
    if (w->threads)
        code = start_threads(w, threads, err);
    if (code) {
        tp_zst_abandon(w);
        return code;
    }
    *writer = w;
    return TP_OK;
}

/* Copies the writer's failure to the caller. */
static enum tp_code failed(struct tp_zst_writer *w, struct tp_err *err)
{
    pthread_mutex_lock(&w->lock);
    enum tp_code code = w->err.code;
    if (code && err && err->code == TP_OK)
        *err = w->err;
    pthread_mutex_unlock(&w->lock);
    return code;
}

/* The slot that plain bytes go to; waits until it is free. */
static enum tp_code open_slot(struct tp_zst_writer *w, struct slot **slot, struct tp_err *err)
{
    pthread_mutex_lock(&w->lock);
    while (w->put - w->written == w->slot_count && w->err.code == TP_OK)
        pthread_cond_wait(&w->change, &w->lock);
    *slot = &w->slots[w->put % w->slot_count];
    pthread_mutex_unlock(&w->lock);
    enum tp_code code = failed(w, err);
    if (code)
        return code;
    if (!(*slot)->plain)
        (*slot)->plain = tp_os_alloc(TP_ZST_FRAME, err);
    return (*slot)->plain ? TP_OK : TP_E_MEMORY;
}

static void hand_over(struct tp_zst_writer *w)
{
    pthread_mutex_lock(&w->lock);
    w->put++;
    pthread_cond_broadcast(&w->change);
    pthread_mutex_unlock(&w->lock);
}

enum tp_code tp_zst_add(struct tp_zst_writer *writer, const void *data, uint64_t size,
                        struct tp_err *err)
{
    const uint8_t *from = data;
    while (size) {
        struct slot *s;
        enum tp_code code = open_slot(writer, &s, err);
        if (code)
            return code;
        size_t part = (size_t)tp_min_u64(size, TP_ZST_FRAME - s->plain_size);
        memcpy(s->plain + s->plain_size, from, part);
        s->plain_size += part;
        from += part;
        size -= part;
        if (s->plain_size == TP_ZST_FRAME)
            hand_over(writer);
    }
    return TP_OK;
}

enum tp_code tp_zst_cut(struct tp_zst_writer *writer, struct tp_err *err)
{
    struct slot *s;
    enum tp_code code = open_slot(writer, &s, err);
    if (!code && s->plain_size)
        hand_over(writer);
    return code;
}

static void join_threads(struct tp_zst_writer *w)
{
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->change);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->thread_count; i++)
        pthread_join(w->threads[i], NULL);
    w->thread_count = 0;
}

static enum tp_code write_table(struct tp_zst_writer *w, struct tp_err *err)
{
    uint64_t bytes = (uint64_t)w->entry_count * 8 + TP_ZST_FOOTER;
    if (w->entry_count > TP_ZST_MAX_FRAMES) {
        enum tp_code code = tp_fail(err, TP_E_UNSUPPORTED, "more than %d zstd frames in one file",
                                    TP_ZST_MAX_FRAMES);
        tp_err_path(err, w->path);
        tp_err_hint(err, "use a smaller --shard-size");
        return code;
    }
    uint8_t *table = tp_os_alloc((size_t)bytes + TP_ZST_SKIP_HEAD, err);
    if (!table)
        return TP_E_MEMORY;
    tp_zst_put_u32(table, TP_ZST_TABLE_MAGIC);
    tp_zst_put_u32(table + 4, (uint32_t)bytes);
    uint8_t *p = table + TP_ZST_SKIP_HEAD;
    for (size_t i = 0; i < w->entry_count; i++, p += 8) {
        tp_zst_put_u32(p, w->entries[i].stored);
        tp_zst_put_u32(p + 4, w->entries[i].plain);
    }
    tp_zst_put_u32(p, (uint32_t)w->entry_count);
    p[4] = 0; /* no checksums: each frame has its own */
    tp_zst_put_u32(p + 5, TP_ZST_SEEK_MAGIC);
    enum tp_code code = tp_os_write(w->fd, table, bytes + TP_ZST_SKIP_HEAD, w->at, w->path, err);
    free(table);
    if (!code)
        w->at += bytes + TP_ZST_SKIP_HEAD;
    return code;
}

enum tp_code tp_zst_finish(struct tp_zst_writer *writer, uint64_t *file_size, struct tp_err *err)
{
    struct tp_zst_writer *w = writer;
    if (!w->finished) {
        struct slot *s;
        enum tp_code code = open_slot(w, &s, err);
        if (code)
            return code;
        if (s->plain_size || w->put == 0) /* an empty file is one empty frame */
            hand_over(w);
        join_threads(w);
        code = failed(w, err);
        if (code)
            return code;
        struct tp_err table_err = {0};
        if (write_table(w, &table_err)) {
            pthread_mutex_lock(&w->lock);
            fail_all(w, &table_err);
            pthread_mutex_unlock(&w->lock);
            return failed(w, err);
        }
        w->finished = true;
    }
    *file_size = w->at;
    return TP_OK;
}

void tp_zst_abandon(struct tp_zst_writer *writer)
{
    struct tp_zst_writer *w = writer;
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->take = w->put; /* what is not begun is not wanted any more */
    pthread_mutex_unlock(&w->lock);
    join_threads(w);
    for (unsigned i = 0; w->slots && i < w->slot_count; i++) {
        free(w->slots[i].plain);
        free(w->slots[i].packed);
    }
    pthread_cond_destroy(&w->change);
    pthread_mutex_destroy(&w->lock);
    free(w->slots);
    free(w->threads);
    free(w->entries);
    free(w->path);
    free(w);
}
