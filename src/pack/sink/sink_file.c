/* The file sink: positioned writes, checksums on the way, one fsync per file.
 *
 * What comes in chunks is put together to whole leaves (assemble.h), which are hashed
 * from memory; whole leaves are written as they come. One worker at a time writes a
 * file (write_queue.h).
 *
 * A file is opened by the first write and finished by the worker whose write was
 * the last; its invariant is that every byte is written and hashed exactly once.
 */
#include "pack/sink/open_file.h"

#include "base/num.h"
#include "pack/os/os.h"
#include "pack/os/stage.h"
#include "pack/sink/compress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The disk starts on what is written every so often, not at the fsync. */
#define WRITEBACK_BYTES (UINT64_C(32) << 20)

/* Reserves the space, so that a full disk is found before hours of work. File
 * systems that cannot reserve just say so. */
static enum tp_code reserve(const struct tp_open_file *file, uint64_t size, bool fill,
                            struct tp_err *err)
{
    int failed;
    do
        failed = tp_os.fallocate(file->fd, 0, (off_t)size, fill);
    while (failed == EINTR);
    if (failed == 0 || failed == EOPNOTSUPP || failed == EINVAL || failed == ENOSYS)
        return TP_OK;
    if (failed == ENOSPC || failed == EDQUOT)
        tp_err_hint(err, "make room there: this file needs %llu bytes; or choose another output "
                         "with -o", (unsigned long long)size);
    return tp_os_fail(err, failed, file->path, "cannot reserve space");
}

/* What the file is called in sink->dir. */
static const char *name_of(const struct tp_file_sink *sink, uint32_t f)
{
    return sink->dir == AT_FDCWD ? sink->files[f].path : sink->plan->files[f].name;
}

/* A single file was made by the process that locked it: another one may have its name by now. */
static enum tp_code make_file(struct tp_file_sink *sink, uint32_t f, struct tp_err *err)
{
    struct tp_open_file *file = &sink->files[f];
    if (!sink->only_path)
        return tp_below_create(sink->dir, name_of(sink, f), sink->mode, file->path, &file->fd,
                               err);
    file->fd = sink->only_fd;
    return tp_os.ftruncate(file->fd, 0)
               ? tp_os_fail(err, errno, file->path, "cannot empty the file") : TP_OK;
}

/* As close(2), but that a single file stays open. */
static int close_file(const struct tp_file_sink *sink, struct tp_open_file *file)
{
    int fd = file->fd;
    file->fd = -1;
    return fd < 0 || sink->only_path ? 0 : tp_os.close(fd);
}

static enum tp_code open_file(struct tp_file_sink *sink, uint32_t f, bool fill,
                              struct tp_err *err)
{
    struct tp_open_file *file = &sink->files[f];
    uint64_t size = sink->plan->files[f].size;
    enum tp_code code;
    if ((code = make_file(sink, f, err)))
        return code;
    if ((code = tp_leafhash_init(&file->hash, size, err)) == TP_OK &&
        (code = tp_assembly_init(&file->assembly, file->hash.leaf_count, err)) == TP_OK)
        code = reserve(file, size, fill, err);
    if (code)
        close_file(sink, file);
    return code;
}

static enum tp_code ensure_open(struct tp_file_sink *sink, uint32_t f, bool fill,
                                struct tp_err *err)
{
    struct tp_open_file *file = &sink->files[f];
    enum tp_code code = TP_OK;
    if (atomic_load_explicit(&file->opened, memory_order_acquire) && file->fd >= 0)
        return TP_OK;
    pthread_mutex_lock(&file->lock);
    if (!file->opened) {
        if ((code = open_file(sink, f, fill, err)))
            file->open_error = *err;
        atomic_store_explicit(&file->opened, true, memory_order_release);
    } else if (file->fd < 0) { /* it failed in another worker */
        *err = file->open_error;
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
    if ((code = tp_leafhash_finalize(&file->hash, read_back, file, err)) ||
        (code = tp_leafhash_final(&file->hash, root, err)))
        return code;
    tp_stage_set(TP_STAGE_SYNC);
    tp_hash_print(root, digits);
    if ((code = tp_os_write(file->fd, digits, TP_HASH_TEXT - 1, planned->hash_at, file->path,
                            err)))
        return code;
    tp_writeback_end(&sink->writeback, file);
    if ((code = tp_os_fsync(file->fd, file->path, err)))
        return code;
    if (sink->writeback.drop)
        tp_os.drop_cache(file->fd, 0, 0);
    tp_leafhash_close(&file->hash);
    tp_assembly_close(&file->assembly);
    if (sink->zstd) {
        pthread_mutex_lock(&sink->compressing);
        code = tp_compress_shard(sink, f, name_of(sink, f), file->path, file->fd, err);
        pthread_mutex_unlock(&sink->compressing);
    }
    if (close_file(sink, file) && code == TP_OK)
        code = tp_os_fail(err, errno, file->path, "cannot close the output");
    if (code)
        return code;
    return sink->done ? sink->done(sink->done_arg, f, root, err) : TP_OK;
}

/* `size` more bytes are in the file and will not be touched again. */
static enum tp_code account(struct tp_file_sink *sink, uint32_t f, uint64_t size,
                            struct tp_err *err)
{
    struct tp_open_file *file = &sink->files[f];
    uint64_t missing = atomic_fetch_sub(&file->missing, size);
    if (missing == size)
        return finish_file(sink, f, err);
    if (missing / WRITEBACK_BYTES != (missing - size) / WRITEBACK_BYTES)
        tp_writeback_request(&sink->writeback, file);
    return TP_OK;
}

/* A file of a sink. */
struct owner {
    struct tp_file_sink *sink;
    uint32_t file;
};

/* Writes one item of the queue. One that is not lent is the buffer of a leaf that was assembled
 * here, which goes back to the pool afterwards. */
static enum tp_code write_now(void *arg, struct tp_write *w, struct tp_err *err)
{
    const struct owner *owner = arg;
    struct tp_open_file *file = &owner->sink->files[owner->file];
    uint64_t size = w->size;
    tp_stage_set(TP_STAGE_WRITE);
    enum tp_code code = tp_os_write(file->fd, w->data, size, w->offset, file->path, err);
    if (w->lent)
        return code;
    tp_assembly_release(&file->assembly, &owner->sink->pool, (struct tp_leaf_buffer *)w);
    return code ? code : account(owner->sink, owner->file, size, err);
}

/* Bytes that are written as they come: whole leaves, and chunks that found no room. */
static enum tp_code write_through(struct tp_file_sink *sink, uint32_t f, uint64_t offset,
                                  const void *data, uint64_t size, struct tp_err *err)
{
    struct tp_open_file *file = &sink->files[f];
    struct tp_write write = {.data = data, .offset = offset, .size = size, .lent = true};
    enum tp_code code;
    tp_stage_set(TP_STAGE_WRITE);
    if ((code = tp_write_queue_put(&file->queue, &write, write_now, &(struct owner){sink, f}, err)))
        return code;
    tp_stage_set(TP_STAGE_HASH);
    if ((code = tp_leafhash_written(&file->hash, offset, data, size, err)))
        return code;
    if (tp_leafhash_pending(&file->hash) &&
        (code = tp_leafhash_finalize(&file->hash, read_back, file, err)))
        return code;
    return account(sink, f, size, err);
}

/* Hands a complete leaf over. */
static enum tp_code write_leaf(struct tp_file_sink *sink, uint32_t f,
                               struct tp_leaf_buffer *buffer, struct tp_err *err)
{
    struct tp_open_file *file = &sink->files[f];
    tp_stage_set(TP_STAGE_HASH);
    tp_leafhash_set(&file->hash, buffer->leaf, buffer->data);
    tp_stage_set(TP_STAGE_WRITE);
    buffer->write = (struct tp_write){.data = buffer->data,
                                      .offset = buffer->leaf * TP_LEAF_BYTES,
                                      .size = tp_leafhash_leaf_size(&file->hash, buffer->leaf)};
    return tp_write_queue_put(&file->queue, &buffer->write, write_now, &(struct owner){sink, f},
                              err);
}

/* Reports what was copied into a leaf, and passes it on when it is complete. */
static enum tp_code flush_share(struct tp_file_sink *sink, uint32_t f,
                                struct tp_leaf_buffer *buffer, const struct tp_leaf_share *share,
                                struct tp_err *err)
{
    struct tp_open_file *file = &sink->files[f];
    bool complete = false;
    enum tp_code code =
        share->size ? tp_leafhash_share(&file->hash, share, &complete, err) : TP_OK;
    return code || !complete ? code : write_leaf(sink, f, buffer, err);
}

/* The leaf that chunks are being copied to. */
struct target {
    struct tp_leaf_buffer *buffer; /* NULL: none */
    struct tp_leaf_share share;
};

/* A chunk that lies inside of one leaf and is not all of it. */
static enum tp_code put_chunk(struct tp_file_sink *sink, uint32_t f, uint64_t offset,
                              const void *data, uint64_t size, struct target *to,
                              struct tp_err *err)
{
    struct tp_open_file *file = &sink->files[f];
    size_t leaf = (size_t)(offset / TP_LEAF_BYTES);
    uint64_t from = offset % TP_LEAF_BYTES;
    enum tp_code code = TP_OK;
    if (!to->buffer || to->share.leaf != leaf) {
        if (to->buffer)
            code = flush_share(sink, f, to->buffer, &to->share, err);
        *to = (struct target){.share = {.leaf = leaf}};
        if (code || (code = tp_assembly_buffer(&file->assembly, &sink->pool, leaf, &to->buffer,
                                               err)))
            return code;
    }
    if (!to->buffer)
        return write_through(sink, f, offset, data, size, err);
    memcpy(to->buffer->data + from, data, size);
    tp_leaf_share_add(&to->share, from, size);
    return TP_OK;
}

/* Any bytes: whole leaves go straight through, the ends are chunks. */
static enum tp_code put(struct tp_file_sink *sink, uint32_t f, uint64_t offset, const void *data,
                        uint64_t size, struct target *to, struct tp_err *err)
{
    const struct tp_leafhash *hash = &sink->files[f].hash;
    const uint8_t *from = data;
    enum tp_code code = TP_OK;
    if (offset > hash->file_size || size > hash->file_size - offset)
        return tp_leafhash_written(&sink->files[f].hash, offset, data, size, err); /* refuses */
    while (size > 0 && code == TP_OK) {
        uint64_t at = offset % TP_LEAF_BYTES, part = tp_min_u64(size, TP_LEAF_BYTES - at);
        bool end = offset + size == hash->file_size;
        if (at == 0 && (part == TP_LEAF_BYTES || end)) {
            part = end ? size : size / TP_LEAF_BYTES * TP_LEAF_BYTES;
            code = write_through(sink, f, offset, from, part, err);
        } else {
            code = put_chunk(sink, f, offset, from, part, to, err);
            tp_stage_set(TP_STAGE_WRITE);
        }
        offset += part;
        from += part;
        size -= part;
    }
    return code;
}

static enum tp_code write_many(struct tp_sink *base, uint32_t f, uint32_t output,
                               const struct tp_chunk *chunks, size_t count, struct tp_err *err)
{
    struct tp_file_sink *sink = (struct tp_file_sink *)base;
    struct target to = {0};
    enum tp_stage before = tp_stage_set(TP_STAGE_OTHER);
    uint64_t begin = output == TP_SINK_HEADER ? 0 : sink->plan->outputs[output].offset;
    enum tp_code code = ensure_open(sink, f, false, err);
    tp_stage_set(TP_STAGE_WRITE);
    for (size_t i = 0; i < count && code == TP_OK; i++) {
        const struct tp_chunk *chunk = &chunks[i];
        uint64_t at = begin + chunk->offset - to.share.leaf * TP_LEAF_BYTES;
        if (to.buffer && at < TP_LEAF_BYTES && chunk->size < TP_LEAF_BYTES - at) {
            memcpy(to.buffer->data + at, chunk->data, chunk->size); /* as put() would, quickly */
            tp_leaf_share_add(&to.share, at, chunk->size);
        } else {
            code = put(sink, f, begin + chunk->offset, chunk->data, chunk->size, &to, err);
        }
    }
    if (code == TP_OK && to.buffer)
        code = flush_share(sink, f, to.buffer, &to.share, err);
    tp_stage_set(before);
    return code;
}

static enum tp_code prepare_file(struct tp_sink *base, uint32_t f, struct tp_err *err)
{
    return ensure_open((struct tp_file_sink *)base, f, true, err);
}

static enum tp_code write_file(struct tp_sink *base, uint32_t f, uint32_t output, uint64_t offset,
                               const void *data, uint64_t size, struct tp_err *err)
{
    struct tp_chunk chunk = {offset, data, size};
    return write_many(base, f, output, &chunk, 1, err);
}

enum tp_code tp_file_sink_open(struct tp_file_sink *sink, const struct tp_plan *plan,
                               const char *directory, const char *only_path, uint64_t memory,
                               bool drop, struct tp_err *err)
{
    *sink = (struct tp_file_sink){.sink = {.write = write_file, .write_many = write_many,
                                           .prepare = prepare_file, .assembles = memory},
                                  .plan = plan, .directory = directory, .only_path = only_path,
                                  .dir = AT_FDCWD, .archive = -1, .mode = 0666};
    sink->files = tp_os_zalloc(plan->file_count + 1, sizeof *sink->files, err);
    if (!sink->files)
        return TP_E_MEMORY;
    pthread_mutex_init(&sink->compressing, NULL);
    tp_leaf_pool_open(&sink->pool, memory);
    tp_writeback_open(&sink->writeback, drop);
    for (size_t f = 0; f < plan->file_count; f++) {
        struct tp_open_file *file = &sink->files[f];
        pthread_mutex_init(&file->lock, NULL);
        tp_write_queue_open(&file->queue);
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
    if (sink->files) {
        tp_writeback_close(&sink->writeback);
        tp_leaf_pool_close(&sink->pool);
        pthread_mutex_destroy(&sink->compressing);
    }
    for (size_t f = 0; sink->files && f < sink->plan->file_count; f++) {
        struct tp_open_file *file = &sink->files[f];
        if (file->opened)
            close_file(sink, file);
        tp_leafhash_close(&file->hash);
        tp_assembly_close(&file->assembly);
        tp_write_queue_close(&file->queue);
        free(file->path);
    }
    free(sink->files);
    memset(sink, 0, sizeof *sink);
}
