/* Pages go by the extent of 1 MiB. Invariant: a extent of which any page was cached at
 * the start is never touched. Of an archive the frames behind the plain bytes go.
 */
#include "pack/source/page_cache.h"

#include "base/num.h"
#include "pack/file/zst.h"
#include "pack/os/os.h"

#include <stdlib.h>

#define EXTENT (UINT64_C(1) << 20)
/* The cache holds pages together up to this size, and keeps them all when only some are
 * to go: so each time those before are asked for again. */
#define TOGETHER (UINT64_C(4) << 20)
/* What tp_page_cache_count() lets stand. */
#define MAX_BYTES (UINT64_C(256) << 20)

static bool was_cached(const uint8_t *cached, uint64_t extent)
{
    return cached[extent / 8] >> extent % 8 & 1;
}

/* One bit for each extent of a file; NULL without a message when that cannot be known. */
static uint8_t *look(const struct tp_file *file)
{
    uint64_t extents = tp_ceil_div(file->disk_size, EXTENT);
    struct tp_err ignored = {0};
    uint8_t *cached = tp_os_zalloc((size_t)extents / 8 + 1, 1, &ignored);
    for (uint64_t i = 0; cached && i < extents; i++) {
        uint64_t size = tp_min_u64(EXTENT, file->disk_size - i * EXTENT);
        int any = tp_os.cached(file->fd, (off_t)(i * EXTENT), (size_t)size);
        if (any < 0) {
            free(cached);
            return NULL;
        }
        cached[i / 8] |= (uint8_t)(any << i % 8);
    }
    return cached;
}

enum tp_code tp_page_cache_open(struct tp_page_cache *cache, const struct tp_checkpoint *ckpt,
                                struct tp_err *err)
{
    cache->ckpt = ckpt;
    atomic_init(&cache->read, 0);
    cache->cached = tp_os_zalloc(ckpt->file_count + 1, sizeof *cache->cached, err);
    if (!cache->cached)
        return TP_E_MEMORY;
    for (size_t f = 0; f < ckpt->file_count; f++)
        cache->cached[f] = look(&ckpt->files[f]);
    return TP_OK;
}

/* Drops the extents of bytes on the disk that were not cached, neighbours together. */
static void drop(const struct tp_file *file, const uint8_t *cached, uint64_t begin, uint64_t end)
{
    begin -= tp_min_u64(begin, TOGETHER);
    for (uint64_t at = begin, next; at < end; at = next) {
        bool keep = was_cached(cached, at / EXTENT);
        next = at;
        while (next < end && was_cached(cached, next / EXTENT) == keep)
            next = tp_min_u64(next / EXTENT * EXTENT + EXTENT, end);
        if (!keep) /* to the end of the file with its last, incomplete page */
            tp_os.drop_cache(file->fd, (off_t)at,
                             next == file->disk_size ? 0 : (off_t)(next - at));
    }
}

void tp_page_cache_drop(const struct tp_page_cache *cache, size_t f, uint64_t begin, uint64_t end)
{
    if (!cache->cached || !cache->cached[f] || begin == end)
        return;
    const struct tp_file *file = &cache->ckpt->files[f];
    if (file->zst)
        tp_zst_stored(file->zst, &begin, &end);
    drop(file, cache->cached[f], begin, end);
}

static void drop_all(const struct tp_page_cache *cache)
{
    for (size_t f = 0; cache->cached && f < cache->ckpt->file_count; f++)
        if (cache->cached[f])
            drop(&cache->ckpt->files[f], cache->cached[f], 0, cache->ckpt->files[f].disk_size);
}

void tp_page_cache_count(struct tp_page_cache *cache, uint64_t bytes)
{
    uint64_t before = cache->cached ? atomic_fetch_add(&cache->read, bytes) : 0;
    if (cache->cached && before / MAX_BYTES != (before + bytes) / MAX_BYTES)
        drop_all(cache);
}

void tp_page_cache_close(struct tp_page_cache *cache)
{
    drop_all(cache);
    for (size_t f = 0; cache->cached && f < cache->ckpt->file_count; f++)
        free(cache->cached[f]);
    free(cache->cached);
    cache->cached = NULL;
}
