/* Archives. Boxes finish in any order, an archive is appended to in order: so a
 * shard is written plain first, and compressed from the page cache when it is
 * complete. Frames are cut where a tensor begins, so that reading one tensor
 * decompresses no other.
 */
#include "pack/sink/compress.h"

#include "base/num.h"
#include "pack/file/zst.h"
#include "pack/os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#define CHUNK (UINT64_C(1) << 20)

/* Adds bytes [from, to) of the open plain file, then ends the frame. */
static enum tp_code add_range(struct tp_zst_writer *writer, int fd, uint64_t from, uint64_t to,
                              void *chunk, const char *path, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (uint64_t size; from < to && code == TP_OK; from += size) {
        size = tp_min_u64(CHUNK, to - from);
        if ((code = tp_os_read(fd, chunk, size, from, path, err)) == TP_OK)
            code = tp_zst_add(writer, chunk, size, err);
    }
    return code ? code : tp_zst_cut(writer, err);
}

static enum tp_code add_all(struct tp_zst_writer *writer, const struct tp_plan *plan, uint32_t f,
                            int fd, const char *path, struct tp_err *err)
{
    const struct tp_plan_file *file = &plan->files[f];
    void *chunk = tp_os_alloc(CHUNK, err);
    enum tp_code code = chunk ? add_range(writer, fd, 0, file->header_size, chunk, path, err)
                              : TP_E_MEMORY;
    for (uint32_t i = 0; i < file->output_count && code == TP_OK; i++) {
        const struct tp_output *output = &plan->outputs[file->first_output + i];
        code = add_range(writer, fd, output->offset, output->offset + output->bytes, chunk, path,
                         err);
    }
    free(chunk);
    return code;
}

static enum tp_code compress(const struct tp_file_sink *sink, uint32_t f, int from,
                             const char *plain, int to, const char *path, struct tp_err *err)
{
    struct tp_zst_writer *writer = NULL;
    uint64_t size;
    enum tp_code code = tp_zst_create(to, path, (int)sink->zstd, sink->threads, &writer, err);
    if (code == TP_OK && (code = add_all(writer, sink->plan, f, from, plain, err)) == TP_OK &&
        (code = tp_zst_finish(writer, &size, err)) == TP_OK)
        code = tp_os_fsync(to, path, err);
    tp_zst_abandon(writer);
    return code;
}

enum tp_code tp_compress_shard(struct tp_file_sink *sink, uint32_t f, const char *name,
                               const char *plain, int from, struct tp_err *err)
{
    int to = -1;
    char *path = tp_os_format(err, "%s" TP_ZST_SUFFIX, plain);
    char *made = tp_os_format(err, "%s" TP_ZST_SUFFIX, name);
    enum tp_code code =
        path && made ? tp_below_create(sink->dir, made, sink->mode, path, &to, err) : TP_E_MEMORY;
    if (code == TP_OK)
        code = compress(sink, f, from, plain, to, path, err);
    if (sink->only_path) {
        sink->archive = to;
    } else {
        if (to >= 0 && tp_os.close(to) && code == TP_OK)
            code = tp_os_fail(err, errno, path, "cannot close the output");
        if (code == TP_OK)
            code = tp_below_remove(sink->dir, name, plain, err);
    }
    free(made);
    free(path);
    return code;
}
