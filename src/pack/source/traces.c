/* Pages go by the stretch of 1 MiB. Invariant: a stretch of which any page was cached at
 * the start is never touched. Of an archive the frames behind the plain bytes go.
 */
#include "pack/source/traces.h"

#include "base/num.h"
#include "pack/file/zst.h"
#include "pack/os/os.h"

#include <stdlib.h>

#define STRETCH (UINT64_C(1) << 20)
/* The cache holds pages together up to this size, and keeps them all when only some are
 * to go: so each time those before are asked for again. */
#define TOGETHER (UINT64_C(4) << 20)
/* What tp_traces_count() lets stand. */
#define MOST (UINT64_C(256) << 20)

static bool was_cached(const uint8_t *cached, uint64_t stretch)
{
    return cached[stretch / 8] >> stretch % 8 & 1;
}

/* One bit for each stretch of a file; NULL without a message when that cannot be known. */
static uint8_t *look(const struct tp_file *file)
{
    uint64_t stretches = tp_ceil_div(file->disk_size, STRETCH);
    struct tp_err ignored = {0};
    uint8_t *cached = tp_os_zalloc((size_t)stretches / 8 + 1, 1, &ignored);
    for (uint64_t i = 0; cached && i < stretches; i++) {
        uint64_t size = tp_min_u64(STRETCH, file->disk_size - i * STRETCH);
        int any = tp_os.cached(file->fd, (off_t)(i * STRETCH), (size_t)size);
        if (any < 0) {
            free(cached);
            return NULL;
        }
        cached[i / 8] |= (uint8_t)(any << i % 8);
    }
    return cached;
}

enum tp_code tp_traces_open(struct tp_traces *traces, const struct tp_checkpoint *ckpt,
                            struct tp_err *err)
{
    traces->ckpt = ckpt;
    atomic_init(&traces->read, 0);
    traces->cached = tp_os_zalloc(ckpt->file_count + 1, sizeof *traces->cached, err);
    if (!traces->cached)
        return TP_E_MEMORY;
    for (size_t f = 0; f < ckpt->file_count; f++)
        traces->cached[f] = look(&ckpt->files[f]);
    return TP_OK;
}

/* Drops the stretches of bytes on the disk that were not cached, neighbours together. */
static void drop(const struct tp_file *file, const uint8_t *cached, uint64_t begin, uint64_t end)
{
    begin -= tp_min_u64(begin, TOGETHER);
    for (uint64_t at = begin, next; at < end; at = next) {
        bool keep = was_cached(cached, at / STRETCH);
        next = at;
        while (next < end && was_cached(cached, next / STRETCH) == keep)
            next = tp_min_u64(next / STRETCH * STRETCH + STRETCH, end);
        if (!keep) /* to the end of the file with its last, incomplete page */
            tp_os.drop_cache(file->fd, (off_t)at,
                             next == file->disk_size ? 0 : (off_t)(next - at));
    }
}

void tp_traces_drop(const struct tp_traces *traces, size_t f, uint64_t begin, uint64_t end)
{
    if (!traces->cached || !traces->cached[f] || begin == end)
        return;
    const struct tp_file *file = &traces->ckpt->files[f];
    if (file->zst)
        tp_zst_stored(file->zst, &begin, &end);
    drop(file, traces->cached[f], begin, end);
}

static void drop_all(const struct tp_traces *traces)
{
    for (size_t f = 0; traces->cached && f < traces->ckpt->file_count; f++)
        if (traces->cached[f])
            drop(&traces->ckpt->files[f], traces->cached[f], 0, traces->ckpt->files[f].disk_size);
}

void tp_traces_count(struct tp_traces *traces, uint64_t bytes)
{
    uint64_t before = traces->cached ? atomic_fetch_add(&traces->read, bytes) : 0;
    if (traces->cached && before / MOST != (before + bytes) / MOST)
        drop_all(traces);
}

void tp_traces_close(struct tp_traces *traces)
{
    drop_all(traces);
    for (size_t f = 0; traces->cached && f < traces->ckpt->file_count; f++)
        free(traces->cached[f]);
    free(traces->cached);
    traces->cached = NULL;
}
