/* Comparing with files that are there. Writes nothing. Invariant: bytes stand where the plan has
 * them; the digits of a file's own hash are no part of that, as they follow from all its bytes. */
#include "pack/sink/same.h"

#include "base/num.h"
#include "pack/file/zst.h"
#include "pack/os/os.h"
#include "pack/sink/compress.h"

#include <stdlib.h>
#include <string.h>

struct tp_same_file {
    char *path;
    int fd;
    struct tp_zst *zst; /* NULL: a plain one */
};

static enum tp_code read_stored(const struct tp_same_file *file, void *data, uint64_t size,
                                uint64_t offset, struct tp_err *err)
{
    return file->zst ? tp_zst_read(file->zst, data, size, offset, err)
                     : tp_os_read(file->fd, data, size, offset, file->path, err);
}

static enum tp_code compare(struct tp_sink *base, uint32_t f, uint32_t output, uint64_t offset,
                            const void *data, uint64_t size, struct tp_err *err)
{
    struct tp_same_sink *sink = (struct tp_same_sink *)base;
    bool header = output == TP_SINK_HEADER;
    uint64_t from = offset + (header ? 0 : sink->plan->outputs[output].offset);
    uint8_t stored[65536];
    enum tp_code code = TP_OK;
    for (uint64_t at = 0; at < size && code == TP_OK && !sink->differs; at += sizeof stored) {
        uint64_t part = tp_min_u64(size - at, sizeof stored);
        code = read_stored(&sink->files[f], stored, part, from + at, err);
        if (code == TP_OK && header)
            tp_hash_blank(stored, part, from + at, sink->plan->files[f].hash_at);
        if (code == TP_OK && memcmp((const uint8_t *)data + at, stored, part) != 0)
            sink->differs = true;
    }
    return code;
}

static enum tp_code open_stored(struct tp_same_file *file, uint64_t planned, bool zstd,
                                struct tp_err *err)
{
    struct stat st;
    enum tp_code code = tp_os_open_regular(file->path, 0, &file->fd, &st, err);
    if (code == TP_OK && zstd)
        code = tp_zst_open(file->fd, (uint64_t)st.st_size, file->path, &file->zst, err);
    if (code == TP_OK &&
        (file->zst ? tp_zst_size(file->zst) : (uint64_t)st.st_size) != planned)
        code = tp_fail(err, TP_E_INPUT, "the file has another size");
    return code;
}

enum tp_code tp_same_sink_open(struct tp_same_sink *sink, const struct tp_plan *plan,
                               const char *directory, bool zstd, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    *sink = (struct tp_same_sink){.sink = {.write = compare}, .plan = plan};
    if (!(sink->files = tp_os_zalloc(plan->file_count + 1, sizeof *sink->files, err)))
        return TP_E_MEMORY;
    for (size_t f = 0; f < plan->file_count; f++)
        sink->files[f].fd = -1;
    for (size_t f = 0; f < plan->file_count && code == TP_OK; f++) {
        struct tp_same_file *file = &sink->files[f];
        file->path = tp_os_format(err, "%s/%s%s", directory, plan->files[f].name,
                                  zstd ? TP_ZST_SUFFIX : "");
        code = file->path ? open_stored(file, plan->files[f].size, zstd, err) : TP_E_MEMORY;
    }
    return code;
}

void tp_same_sink_close(struct tp_same_sink *sink)
{
    for (size_t f = 0; sink->files && f < sink->plan->file_count; f++) {
        tp_zst_close(sink->files[f].zst);
        tp_os_close(&sink->files[f].fd);
        free(sink->files[f].path);
    }
    free(sink->files);
    sink->files = NULL;
}
