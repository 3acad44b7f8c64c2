/* An open checkpoint: its tensors by name, its bytes by position. Whatever a file is stored
 * as, offsets are those of the plain one.
 */
#include "pack/source/checkpoint.h"

#include "base/num.h"
#include "pack/file/zst.h"
#include "pack/os/os.h"
#include "pack/os/stage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum tp_code tp_file_read(const struct tp_file *file, void *data, uint64_t size, uint64_t offset,
                          struct tp_err *err)
{
    if (file->zst)
        return tp_zst_read(file->zst, data, size, offset, err);
    return tp_os_read(file->fd, data, size, offset, file->path, err);
}

void tp_checkpoint_close(struct tp_checkpoint *ckpt)
{
    for (size_t i = 0; i < ckpt->file_count; i++) {
        struct tp_file *file = &ckpt->files[i];
        tp_zst_close(file->zst);
        tp_os_close(&file->fd);
        tp_st_close(&file->header);
        free(file->path);
        free(file->name);
    }
    for (size_t i = 0; i < ckpt->other_count; i++)
        free(ckpt->others[i]);
    for (size_t i = 0; i < ckpt->left_count; i++)
        free(ckpt->left[i]);
    free(ckpt->left);
    free(ckpt->files);
    free(ckpt->tensors);
    free(ckpt->by_data);
    free(ckpt->config);
    free(ckpt->index_name);
    for (size_t i = 0; i < TP_ODDS; i++)
        free(ckpt->odds[i]);
    free(ckpt->others);
    free(ckpt->other_stamps);
    for (size_t i = 0; i < ckpt->unread_count; i++)
        free(ckpt->unread[i]);
    free(ckpt->unread);
    free(ckpt->path);
    *ckpt = (struct tp_checkpoint){0};
}

static int compare_name(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct tp_tensor *)tensor)->name);
}

uint64_t tp_checkpoint_largest_frame(const struct tp_checkpoint *ckpt, const char **path)
{
    uint64_t largest = 0;
    for (size_t f = 0; f < ckpt->file_count; f++) {
        uint64_t frame = ckpt->files[f].zst ? tp_zst_largest(ckpt->files[f].zst) : 0;
        if (frame > largest && path)
            *path = ckpt->files[f].path;
        largest = tp_max_u64(largest, frame);
    }
    return largest;
}

const struct tp_tensor *tp_checkpoint_find(const struct tp_checkpoint *ckpt, const char *name)
{
    if (!ckpt->tensor_count)
        return NULL;
    return bsearch(name, ckpt->tensors, ckpt->tensor_count, sizeof *ckpt->tensors, compare_name);
}

enum { NEAR = 8 }; /* neighbours that are looked at one by one */

const struct tp_tensor *tp_checkpoint_near(const struct tp_checkpoint *ckpt, uint32_t from,
                                           const char *name)
{
    int first = 0;
    for (size_t i = from, steps = 0; i < ckpt->tensor_count && steps < NEAR; steps++) {
        int order = strcmp(name, ckpt->tensors[i].name);
        if (order == 0)
            return &ckpt->tensors[i];
        if (first && (order < 0) != (first < 0))
            return NULL; /* it would have been between these two */
        first = order;
        i += order < 0 ? SIZE_MAX : 1; /* before 0: ends as behind the last one does */
    }
    return tp_checkpoint_find(ckpt, name);
}

static _Thread_local struct {
    tp_checkpoint_seen *seen;
    void *arg;
} told;

void tp_checkpoint_tell(tp_checkpoint_seen *seen, void *arg)
{
    told.seen = seen;
    told.arg = arg;
}

enum tp_code tp_checkpoint_read(const struct tp_checkpoint *ckpt, uint32_t file, void *data,
                                uint64_t size, uint64_t offset, struct tp_err *err)
{
    const struct tp_file *from = &ckpt->files[file];
    uint64_t end;
    enum tp_code code;
    if (!tp_add_u64(&end, offset, size) || end > from->size) {
        code = tp_fail(err, TP_E_INPUT, "%llu bytes at this offset are beyond the file's end",
                       (unsigned long long)size);
        tp_err_offset(err, offset);
    } else {
        enum tp_stage before = tp_stage_set(TP_STAGE_READ);
        code = tp_file_read(from, data, size, offset, err);
        tp_stage_set(before);
        if (code == TP_OK && told.seen)
            code = told.seen(told.arg, ckpt, file, data, size, offset, err);
    }
    if (code)
        tp_err_path(err, from->path);
    return code;
}

uint64_t tp_checkpoint_bytes(const struct tp_checkpoint *ckpt)
{
    uint64_t bytes = 0; /* a file has less than 2^63: what wraps around is no disk */
    for (size_t i = 0; i < ckpt->file_count; i++)
        bytes += ckpt->files[i].disk_size;
    return bytes;
}

mode_t tp_checkpoint_file_mode(const struct tp_checkpoint *ckpt)
{
    const mode_t enters = ckpt->dir_mode & 0111;
    return ckpt->mode & (enters | enters << 1 | enters << 2);
}

struct tp_stamp tp_stamp_of(const struct stat *st)
{
    return (struct tp_stamp){
        (uint64_t)st->st_size, (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
        (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec};
}

/* `failed`: it could not be looked at, errno says why. */
static enum tp_code check_stamp(const char *path, const struct tp_stamp *stamp, bool failed,
                                const struct stat *st, struct tp_err *err)
{
    enum tp_code code;
    if (failed) {
        code = tp_fail_sys(err, errno, "cannot look at the file");
    } else {
        struct tp_stamp now = tp_stamp_of(st);
        if (now.size == stamp->size && now.mtime_ns == stamp->mtime_ns &&
            now.ctime_ns == stamp->ctime_ns)
            return TP_OK;
        bool rewritten = now.size != stamp->size || now.mtime_ns != stamp->mtime_ns;
        code = tp_fail(err, TP_E_INPUT, "the file changed while it was read%s",
                       rewritten ? "" : ", or its permissions or links did");
    }
    tp_err_hint(err, "wait until nothing writes to the checkpoint, then run the command again");
    tp_err_path(err, path);
    return code;
}

static enum tp_code check_other(const struct tp_checkpoint *ckpt, const char *name,
                                const struct tp_stamp *stamp, struct tp_err *err)
{
    struct stat st;
    char *path = tp_os_format(err, "%s/%s", ckpt->path, name);
    enum tp_code code = TP_E_MEMORY;
    if (path) {
        bool failed = tp_os.stat(path, &st) != 0;
        code = check_stamp(path, stamp, failed, &st, err);
    }
    free(path);
    return code;
}

enum tp_code tp_checkpoint_unchanged(const struct tp_checkpoint *ckpt, struct tp_err *err)
{
    enum tp_code code =
        ckpt->index_name ? check_other(ckpt, ckpt->index_name, &ckpt->index_stamp, err) : TP_OK;
    for (size_t i = 0; i < ckpt->file_count && code == TP_OK; i++) {
        const struct tp_file *file = &ckpt->files[i];
        struct stat st;
        bool failed = tp_os.fstat(file->fd, &st) != 0;
        code = check_stamp(file->path, &file->stamp, failed, &st, err);
    }
    return code;
}

enum tp_code tp_checkpoint_others_unchanged(const struct tp_checkpoint *ckpt,
                                            bool (*counts)(const char *name), struct tp_err *err)
{
    enum tp_code code =
        ckpt->config ? check_other(ckpt, "config.json", &ckpt->config_stamp, err) : TP_OK;
    for (size_t i = 0; i < ckpt->other_count && code == TP_OK; i++)
        if (counts(ckpt->others[i]))
            code = check_other(ckpt, ckpt->others[i], &ckpt->other_stamps[i], err);
    return code;
}
