/* Checkpoints: opens the files, reads their headers, checks them against the
 * index, and makes one sorted table of tensors. Which files there are is
 * ckpt_dir.c's business. Invariant: every tensor of an open checkpoint lies
 * inside its file, and its name is unique.
 */
#include "pack/checkpoint.h"

#include "pack/ckpt_dir.h"
#include "pack/os.h"
#include "pack/zst.h"
#include "pack/stage.h"

#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static enum tp_code read_plain(const struct tp_file *file, void *data, uint64_t size,
                               uint64_t offset, struct tp_err *err)
{
    if (file->zst)
        return tp_zst_read(file->zst, data, size, offset, err);
    return tp_os_read(file->fd, data, size, offset, file->path, err);
}

static enum tp_code fail_short(const struct tp_file *file, struct tp_err *err)
{
    enum tp_code code = tp_fail(err, TP_E_INPUT,
                                "only %llu bytes, which is too short for a safetensors file",
                                (unsigned long long)file->size);
    tp_err_hint(err, "the file is probably incomplete: copy or download it again");
    return code;
}

static enum tp_code read_header(struct tp_file *file, struct tp_err *err)
{
    uint8_t prefix[8];
    uint64_t size;
    if (file->size < sizeof prefix)
        return fail_short(file, err);
    enum tp_code code = read_plain(file, prefix, sizeof prefix, 0, err);
    if (!code)
        code = tp_st_header_size(prefix, file->size, &size, err);
    if (code)
        return code;
    char *text = tp_os_alloc((size_t)size + 8, err);
    if (!text)
        return TP_E_MEMORY;
    memcpy(text, prefix, sizeof prefix);
    code = read_plain(file, text + 8, size, 8, err);
    if (!code) {
        XXH128_canonical_t hash;
        XXH128_canonicalFromHash(&hash, XXH3_128bits(text, (size_t)size + 8));
        memcpy(file->header_hash, hash.digest, sizeof file->header_hash);
        code = tp_st_parse(text + 8, size, file->size, &file->header, err);
    }
    free(text);
    return code;
}

static enum tp_code open_plain_or_zst(struct tp_file *file, struct tp_err *err)
{
    uint8_t magic[4];
    file->size = file->disk_size;
    if (file->disk_size < 8)
        return fail_short(file, err);
    enum tp_code code = tp_os_read(file->fd, magic, sizeof magic, 0, file->path, err);
    if (code || !tp_zst_detect(magic))
        return code;
    code = tp_zst_open(file->fd, file->disk_size, file->path, &file->zst, err);
    if (!code)
        file->size = tp_zst_size(file->zst);
    return code;
}

/* Opens one file. `root`, if given, is a directory that it may not lead out of. */
static enum tp_code open_file(struct tp_checkpoint *ckpt, const char *path, const char *name,
                              const char *root, struct tp_err *err)
{
    struct tp_file *file = &ckpt->files[ckpt->file_count++];
    struct stat st;
    char *real = NULL;
    file->fd = -1;
    file->path = tp_os_format(err, "%s", path);
    file->name = tp_ckpt_plain_name(name, err);
    enum tp_code code = file->path && file->name ? TP_OK : TP_E_MEMORY;
    if (!code && root)
        code = tp_os_inside(root, path, &real, err);
    if (!code)
        code = tp_os_open_regular(real ? real : path, real ? O_NOFOLLOW : 0, &file->fd, &st, err);
    free(real);
    if (!code) {
        file->disk_size = (uint64_t)st.st_size;
        file->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        file->device = st.st_dev;
        file->inode = st.st_ino;
        code = open_plain_or_zst(file, err);
    }
    if (!code)
        code = read_header(file, err);
    if (code)
        tp_err_path(err, path);
    return code;
}

static void set_tensor(const struct tp_checkpoint *ckpt, size_t file, size_t i,
                       struct tp_tensor *out)
{
    const struct tp_st_header *header = &ckpt->files[file].header;
    const struct tp_st_tensor *from = &header->tensors[i];
    out->name = from->name;
    out->dtype = from->dtype;
    out->rank = from->rank;
    memcpy(out->shape, from->shape, sizeof out->shape);
    out->file = (uint32_t)file;
    out->offset = header->data_start + from->begin; /* the parser checked the sum */
    out->bytes = from->end - from->begin;
}

static bool file_has(const struct tp_file *file, const char *name)
{
    for (size_t i = 0; i < file->header.count; i++)
        if (strcmp(file->header.tensors[i].name, name) == 0)
            return true;
    return false;
}

/* A tensor of `file` that the index does not expect there. `expected` is the file
 * that the index names for it, or NULL. */
static enum tp_code fail_stray(const struct tp_file *file, const struct tp_file *expected,
                               const char *name, struct tp_err *err)
{
    enum tp_code code;
    if (!expected)
        code = tp_fail(err, TP_E_INPUT, "this shard holds a tensor that the index does not name");
    else if (file_has(expected, name))
        code = tp_fail(err, TP_E_INPUT, "this tensor is in two shards, here and in '%.200s'",
                       expected->name);
    else
        code = tp_fail(err, TP_E_INPUT,
                       "this tensor is here, but the index says that it is in '%.200s'",
                       expected->name);
    tp_err_path(err, file->path);
    tp_err_tensor(err, name);
    tp_err_hint(err, "index and shards are not of one checkpoint: download both again");
    return code;
}

static enum tp_code fail_missing(const struct tp_file *file, const char *name, struct tp_err *err)
{
    enum tp_code code =
        tp_fail(err, TP_E_INPUT, "the index says that this tensor is in this shard; it is not");
    tp_err_path(err, file->path);
    tp_err_tensor(err, name);
    tp_err_hint(err, "index and shards are not of one checkpoint: download both again");
    return code;
}

/* Fills ckpt->tensors in the order of the index, with which every header has to
 * agree: each tensor where the index says, and nothing besides. */
static enum tp_code match_index(struct tp_checkpoint *ckpt, const struct tp_ckpt_dir *dir,
                                struct tp_err *err)
{
    const struct tp_index *index = &dir->index;
    for (size_t f = 0; f < ckpt->file_count; f++) {
        const struct tp_file *file = &ckpt->files[f];
        for (size_t i = 0; i < file->header.count; i++) {
            const char *name = file->header.tensors[i].name;
            int64_t at = tp_names_find(&index->names, name, strlen(name));
            size_t expected = at >= 0 ? dir->shard_of[index->entries[at].shard] : SIZE_MAX;
            if (expected != f)
                return fail_stray(file, at >= 0 ? &ckpt->files[expected] : NULL, name, err);
            set_tensor(ckpt, f, i, &ckpt->tensors[at]);
        }
    }
    for (size_t i = 0; i < index->count; i++)
        if (!ckpt->tensors[i].name)
            return fail_missing(&ckpt->files[dir->shard_of[index->entries[i].shard]],
                                index->entries[i].name, err);
    return TP_OK;
}

static enum tp_code sort_tensors(struct tp_checkpoint *ckpt, struct tp_err *err)
{
    size_t count = ckpt->tensor_count, moved = 0;
    struct tp_name_key *keys = tp_os_alloc(count * sizeof *keys, err);
    if (!keys)
        return TP_E_MEMORY;
    for (size_t i = 0; i < count; i++)
        keys[i] = (struct tp_name_key){.name = ckpt->tensors[i].name, .index = i};
    tp_names_sort(keys, count);
    for (size_t i = 0; i < count; i++)
        moved += keys[i].index != i;
    struct tp_tensor *sorted = moved ? tp_os_alloc(count * sizeof *sorted, err) : NULL;
    enum tp_code code = moved && !sorted ? TP_E_MEMORY : TP_OK;
    if (sorted) {
        for (size_t i = 0; i < count; i++)
            sorted[i] = ckpt->tensors[keys[i].index];
        free(ckpt->tensors);
        ckpt->tensors = sorted;
    }
    free(keys);
    return code;
}

static enum tp_code make_tensors(struct tp_checkpoint *ckpt, const struct tp_ckpt_dir *dir,
                                 struct tp_err *err)
{
    uint64_t count = 0; /* at most 1,000,000 per file: cannot overflow */
    for (size_t f = 0; f < ckpt->file_count; f++)
        count += ckpt->files[f].header.count;
    if (count > TP_ST_MAX_TENSORS) {
        enum tp_code code =
            tp_fail(err, TP_E_UNSUPPORTED, "%llu tensors, more than the limit of %llu",
                    (unsigned long long)count, (unsigned long long)TP_ST_MAX_TENSORS);
        tp_err_path(err, ckpt->path);
        tp_err_hint(err, "convert the checkpoint in parts, one shard at a time");
        return code;
    }
    bool indexed = dir->index_path != NULL;
    size_t room = indexed ? dir->index.count : (size_t)count;
    ckpt->tensors = tp_os_zalloc(room, sizeof *ckpt->tensors, err);
    if (!ckpt->tensors)
        return TP_E_MEMORY;
    if (indexed) {
        enum tp_code code = match_index(ckpt, dir, err);
        if (code)
            return code;
    } else {
        for (size_t i = 0; i < room; i++)
            set_tensor(ckpt, 0, i, &ckpt->tensors[i]);
    }
    ckpt->tensor_count = room;
    return sort_tensors(ckpt, err);
}

static enum tp_code open_all(struct tp_checkpoint *ckpt, unsigned flags, struct tp_ckpt_dir *dir,
                             struct tp_err *err)
{
    enum tp_code code = TP_OK;
    if (ckpt->directory)
        code = tp_ckpt_dir_read(ckpt, flags, dir, err);
    size_t count = ckpt->directory ? dir->shard_count : 1;
    if (!code)
        ckpt->files = tp_os_zalloc(count, sizeof *ckpt->files, err);
    if (!code && !ckpt->files)
        code = TP_E_MEMORY;
    if (!code && !ckpt->directory) {
        const char *slash = strrchr(ckpt->path, '/');
        code = open_file(ckpt, ckpt->path, slash ? slash + 1 : ckpt->path, NULL, err);
    }
    for (size_t i = 0; i < dir->shard_count && !code; i++)
        code = open_file(ckpt, dir->shards[i].path, dir->shards[i].name,
                         flags & TP_CHECKPOINT_STRICT ? ckpt->path : NULL, err);
    return code ? code : make_tensors(ckpt, dir, err);
}

enum tp_code tp_checkpoint_open(const char *path, unsigned flags, struct tp_checkpoint *ckpt,
                                struct tp_err *err)
{
    struct stat st;
    struct tp_ckpt_dir dir = {0};
    *ckpt = (struct tp_checkpoint){0};
    if (tp_os.stat(path, &st) != 0) {
        enum tp_code code = tp_fail_sys(err, errno, "cannot open");
        tp_err_path(err, path);
        tp_err_hint(err, "check the path: a .safetensors file or a checkpoint's directory");
        return code;
    }
    ckpt->directory = S_ISDIR(st.st_mode);
    ckpt->path = tp_os_format(err, "%s", path);
    enum tp_code code = ckpt->path ? open_all(ckpt, flags, &dir, err) : TP_E_MEMORY;
    tp_ckpt_dir_close(&dir);
    if (code)
        tp_checkpoint_close(ckpt);
    return code;
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
    free(ckpt->files);
    free(ckpt->tensors);
    free(ckpt->config);
    free(ckpt->others);
    free(ckpt->path);
    *ckpt = (struct tp_checkpoint){0};
}

static int compare_name(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct tp_tensor *)tensor)->name);
}

const struct tp_tensor *tp_checkpoint_find(const struct tp_checkpoint *ckpt, const char *name)
{
    if (!ckpt->tensor_count)
        return NULL;
    return bsearch(name, ckpt->tensors, ckpt->tensor_count, sizeof *ckpt->tensors, compare_name);
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
        code = read_plain(from, data, size, offset, err);
        tp_stage_set(before);
    }
    if (code)
        tp_err_path(err, from->path);
    return code;
}

enum tp_code tp_checkpoint_unchanged(const struct tp_checkpoint *ckpt, struct tp_err *err)
{
    for (size_t i = 0; i < ckpt->file_count; i++) {
        const struct tp_file *file = &ckpt->files[i];
        struct stat st;
        enum tp_code code = TP_OK;
        if (tp_os.fstat(file->fd, &st) != 0) {
            code = tp_fail_sys(err, errno, "cannot read the file's size");
        } else if ((uint64_t)st.st_size != file->disk_size ||
                   (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec !=
                       file->mtime_ns) {
            code = tp_fail(err, TP_E_INPUT, "the file changed while it was read");
            tp_err_hint(err, "wait until nothing writes to the checkpoint, then run the command "
                             "again");
        }
        if (code) {
            tp_err_path(err, file->path);
            return code;
        }
    }
    return TP_OK;
}
