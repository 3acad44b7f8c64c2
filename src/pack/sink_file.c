/* The file sink: positioned writes, checksums on the way, one fsync per file.
 *
 * A file is opened by the first write and finished by the worker whose write was
 * the last; its invariant is that every byte is written and hashed exactly once.
 */
#include "pack/sink.h"

#include "pack/compress.h"
#include "pack/os.h"
#include "pack/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The disk starts on what is written every so often, not at the fsync. */
#define WRITEBACK_BYTES (UINT64_C(32) << 20)

struct tp_open_file {
    pthread_mutex_t lock;
    char *path;
    int fd; /* -1: not open yet, failed, or finished */
    bool opened;
    atomic_uint_fast64_t missing; /* bytes not written yet */
    struct tp_leafhash hash;
};

/* Reserves the space, so that a full disk is found before hours of work. File
 * systems that cannot reserve just say so. */
static enum tp_code reserve(const struct tp_open_file *file, uint64_t size, struct tp_err *err)
{
    int failed;
    do
        failed = tp_os.fallocate(file->fd, 0, (off_t)size);
    while (failed == EINTR);
    if (failed == 0 || failed == EOPNOTSUPP || failed == EINVAL || failed == ENOSYS)
        return TP_OK;
    if (failed == ENOSPC || failed == EDQUOT)
        tp_err_hint(err, "make room there: this file needs %llu bytes; or choose another output "
                         "with -o", (unsigned long long)size);
    return tp_os_fail(err, failed, file->path, "cannot reserve space");
}

static enum tp_code open_file(struct tp_file_sink *sink, uint32_t f, struct tp_err *err)
{
    struct tp_open_file *file = &sink->files[f];
    uint64_t size = sink->plan->files[f].size;
    enum tp_code code;
    file->opened = true;
    if ((code = tp_os_open(file->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666, &file->fd,
                           err)))
        return code;
    if ((code = tp_leafhash_init(&file->hash, size, err)) == TP_OK)
        code = reserve(file, size, err);
    if (code) {
        tp_os.close(file->fd);
        file->fd = -1;
    }
    return code;
}

static enum tp_code ensure_open(struct tp_file_sink *sink, uint32_t f, struct tp_err *err)
{
    static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER; /* two files may fail at once */
    struct tp_open_file *file = &sink->files[f];
    enum tp_code code = TP_OK;
    pthread_mutex_lock(&file->lock);
    bool fails = !file->opened && (code = open_file(sink, f, err));
    bool failed = !fails && file->fd < 0; /* in another worker: for the same reason */
    if (fails || failed) {
        pthread_mutex_lock(&error_lock);
        if (fails)
            sink->open_error = *err;
        else
            *err = sink->open_error;
        pthread_mutex_unlock(&error_lock);
        code = err->code;
    }
    pthread_mutex_unlock(&file->lock);
    return code;
}

static enum tp_code read_back(void *arg, void *data, uint64_t size, uint64_t offset,
                              struct tp_err *err)
{
    const struct tp_open_file *file = arg;
    return tp_os_read(file->fd, data, size, offset, file->path, err);
}

static enum tp_code finish_file(struct tp_file_sink *sink, uint32_t f, struct tp_err *err)
{
    struct tp_open_file *file = &sink->files[f];
    const struct tp_plan_file *planned = &sink->plan->files[f];
    uint8_t root[TP_HASH_BYTES];
    char digits[TP_HASH_TEXT];
    enum tp_code code;
    tp_stage_set(TP_STAGE_HASH);
    if ((code = tp_leafhash_settle(&file->hash, read_back, file, err)) ||
        (code = tp_leafhash_final(&file->hash, root, err)))
        return code;
    tp_stage_set(TP_STAGE_SYNC);
    tp_hash_print(root, digits);
    if ((code = tp_os_write(file->fd, digits, TP_HASH_TEXT - 1, planned->hash_at, file->path,
                            err)) ||
        (code = tp_os_fsync(file->fd, file->path, err)))
        return code;
    int failed = tp_os.close(file->fd);
    file->fd = -1;
    if (failed)
        return tp_os_fail(err, errno, file->path, "cannot close the output");
    tp_leafhash_close(&file->hash);
    if (sink->zstd &&
        (code = tp_compress_shard(sink->plan, f, file->path, sink->zstd, sink->threads, err)))
        return code;
    return sink->done ? sink->done(sink->done_arg, f, root, err) : TP_OK;
}

static enum tp_code take_bytes(struct tp_sink *base, uint32_t f, uint32_t output, uint64_t offset,
                               const void *data, uint64_t size, struct tp_err *err)
{
    struct tp_file_sink *sink = (struct tp_file_sink *)base;
    struct tp_open_file *file = &sink->files[f];
    enum tp_code code = ensure_open(sink, f, err);
    if (output != TP_SINK_HEADER)
        offset += sink->plan->outputs[output].offset;
    tp_stage_set(TP_STAGE_WRITE);
    if (code || (code = tp_os_write(file->fd, data, size, offset, file->path, err)))
        return code;
    tp_stage_set(TP_STAGE_HASH);
    if ((code = tp_leafhash_written(&file->hash, offset, data, size, err)))
        return code;
    if (tp_leafhash_pending(&file->hash) &&
        (code = tp_leafhash_settle(&file->hash, read_back, file, err)))
        return code;
    uint64_t missing = atomic_fetch_sub(&file->missing, size);
    if (missing == size)
        return finish_file(sink, f, err);
    if (missing / WRITEBACK_BYTES != (missing - size) / WRITEBACK_BYTES)
        tp_os.start_writeback(file->fd); /* a hint: the fsync at the end then waits less */
    return TP_OK;
}

static enum tp_code write_file(struct tp_sink *base, uint32_t f, uint32_t output, uint64_t offset,
                               const void *data, uint64_t size, struct tp_err *err)
{
    enum tp_stage before = tp_stage_set(TP_STAGE_OTHER);
    enum tp_code code = take_bytes(base, f, output, offset, data, size, err);
    tp_stage_set(before);
    return code;
}

enum tp_code tp_file_sink_open(struct tp_file_sink *sink, const struct tp_plan *plan,
                               const char *directory, const char *only_path, struct tp_err *err)
{
    *sink = (struct tp_file_sink){.sink = {.write = write_file}, .plan = plan, .directory = directory,
                                  .only_path = only_path};
    sink->files = tp_os_zalloc(plan->file_count + 1, sizeof *sink->files, err);
    if (!sink->files)
        return TP_E_MEMORY;
    for (size_t f = 0; f < plan->file_count; f++) {
        struct tp_open_file *file = &sink->files[f];
        pthread_mutex_init(&file->lock, NULL);
        file->fd = -1;
        atomic_init(&file->missing, plan->files[f].size);
        file->path = only_path ? tp_os_format(err, "%s", only_path)
                               : tp_os_format(err, "%s/%s", directory, plan->files[f].name);
        if (!file->path)
            return TP_E_MEMORY;
    }
    return TP_OK;
}

void tp_file_sink_close(struct tp_file_sink *sink)
{
    for (size_t f = 0; sink->files && f < sink->plan->file_count; f++) {
        struct tp_open_file *file = &sink->files[f];
        if (file->fd >= 0 && file->opened)
            tp_os.close(file->fd);
        tp_leafhash_close(&file->hash);
        free(file->path);
    }
    free(sink->files);
    memset(sink, 0, sizeof *sink);
}
