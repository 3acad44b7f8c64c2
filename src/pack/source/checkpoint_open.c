/* Opening a checkpoint: opens the files, reads their headers, checks them against the
 * index, and makes one sorted table of tensors. Which files there are is
 * ckpt_dir.c's business. Invariant: every tensor of an open checkpoint lies
 * inside its file, and its name is unique.
 */
#include "pack/source/checkpoint.h"

#include "pack/file/zst.h"
#include "pack/os/os.h"
#include "pack/source/ckpt_dir.h"
#include "pack/source/ckpt_links.h"
#include "pack/source/descriptor.h"
#include "pack/source/hub.h"
#include "pack/text/name_set.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

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
    enum tp_code code = tp_file_read(file, prefix, sizeof prefix, 0, err);
    if (!code)
        code = tp_st_header_size(prefix, file->size, &size, err);
    if (code)
        return code;
    char *text = tp_os_alloc((size_t)size + 8, err);
    if (!text)
        return TP_E_MEMORY;
    memcpy(text, prefix, sizeof prefix);
    code = tp_file_read(file, text + 8, size, 8, err);
    if (code) {
        free(text);
        return code;
    }
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(text, (size_t)size + 8));
    memcpy(file->header_hash, hash.digest, sizeof file->header_hash);
    return tp_st_parse_here(text, size, file->size, &file->header, err);
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

/* A rank's shards recorded, in the request, which one of how many they are of. In no text of the
 * request can this stand: there quotes are escaped. */
static bool is_of_rank(const struct tp_st_header *header)
{
    const char *request = tp_st_meta(header, TP_META_REQUEST);
    return request && strstr(request, "\"tp\":{\"rank\":");
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
        code = tp_ckpt_inside(root, path, TP_STRICT_LINK_HINT, &real, err);
    if (!code)
        code = tp_os_open_regular(real ? real : path, real ? O_NOFOLLOW : 0, &file->fd, &st, err);
    free(real);
    if (!code) {
        ckpt->mode &= st.st_mode;
        file->disk_size = (uint64_t)st.st_size;
        file->stamp = tp_stamp_of(&st);
        file->device = st.st_dev;
        file->inode = st.st_ino;
        code = open_plain_or_zst(file, err);
    }
    if (!code)
        code = read_header(file, err);
    if (!code && is_of_rank(&file->header))
        code = tp_ckpt_fail_rank(err);
    if (code)
        tp_err_path(err, path);
    return code;
}

/* A tensor by its name: `index` is the number of its file and, in the lower half, its own in the
 * header, so that tensors are in the order of their data by it. */
static struct tp_name_key key_of(const struct tp_checkpoint *ckpt, size_t file, size_t i)
{
    return (struct tp_name_key){ckpt->files[file].header.tensors[i].name, file << 32 | i};
}

static size_t file_of(const struct tp_name_key *key) { return key->index >> 32; }

static size_t number_of(const struct tp_name_key *key) { return key->index & UINT32_MAX; }

/* How index and shards may differ: what is said of a tensor. */
enum odd { UNLISTED, TWICE, ELSEWHERE, ABSENT };
static const char *const odd_text[TP_ODDS] = {
    [UNLISTED] = "in a shard, but not in the index: left out",
    [TWICE] = "in several shards: read from the one that the index names",
    [ELSEWHERE] = "in another shard than the index says: read from there",
    [ABSENT] = "in the index, but in no shard",
};

struct odds {
    const char *first[TP_ODDS];
    size_t count[TP_ODDS];
};

static void note(struct odds *odds, enum odd what, const char *name)
{
    if (!odds->count[what]++)
        odds->first[what] = name;
}

static enum tp_code print_odds(struct tp_checkpoint *ckpt, const struct odds *odds,
                               struct tp_err *err)
{
    for (int i = 0; i < TP_ODDS; i++)
        if (odds->count[i] == 1)
            ckpt->odds[i] = tp_os_format(err, "the tensor '%.200s' is %s", odds->first[i],
                                         odd_text[i]);
        else if (odds->count[i])
            ckpt->odds[i] = tp_os_format(err, "%zu tensors, the first of them '%.200s', are %s",
                                         odds->count[i], odds->first[i], odd_text[i]);
    return err->code;
}

/* One of `count` tensors of the name of an entry of the index: that of its file, or the only one
 * there is; NULL: none. */
static const struct tp_name_key *pick(const struct tp_name_key *keys, size_t count, size_t file)
{
    for (size_t i = 0; i < count; i++)
        if (file_of(&keys[i]) == file)
            return &keys[i];
    return count == 1 ? keys : NULL;
}

static enum tp_code fail_unclear(const struct tp_checkpoint *ckpt, const char *path,
                                 const char *name, struct tp_err *err)
{
    tp_err_path(err, path ? path : ckpt->path);
    tp_err_tensor(err, name);
    tp_err_hint(err, "index and shards are not of one checkpoint: download both again");
    return name ? tp_fail(err, TP_E_INPUT, "this tensor is in several shards, but not in the one "
                          "that the index names")
                : tp_fail(err, TP_E_INPUT, "no shard holds a tensor that the index names");
}

/* Leaves those keys of tensors, both in the order of names, that the index means. */
static enum tp_code apply_index(struct tp_checkpoint *ckpt, const struct tp_ckpt_dir *dir,
                                struct tp_name_key *keys, size_t *count, struct tp_err *err)
{
    const struct tp_index *index = &dir->index;
    struct odds odds = {0};
    size_t kept = 0, at = 0;
    for (size_t i = 0; i < index->count; i++) {
        const struct tp_index_entry *entry = &index->entries[index->sorted[i]];
        const size_t file = dir->shard_of[entry->shard];
        int order = -1;
        for (; at < *count && (order = strcmp(keys[at].name, entry->name)) < 0; at++)
            note(&odds, UNLISTED, keys[at].name);
        size_t same = 0;
        while (at + same < *count && order == 0 &&
               (same == 0 || strcmp(keys[at + same].name, entry->name) == 0))
            same++;
        const struct tp_name_key *one = pick(&keys[at], same, file);
        if (same && !one)
            return fail_unclear(ckpt, dir->index_path, entry->name, err);
        if (!one || same > 1 || file_of(one) != file)
            note(&odds, !one ? ABSENT : same > 1 ? TWICE : ELSEWHERE, entry->name);
        if (one)
            keys[kept++] = *one;
        at += same;
    }
    for (; at < *count; at++)
        note(&odds, UNLISTED, keys[at].name);
    *count = kept;
    return kept ? print_odds(ckpt, &odds, err) : fail_unclear(ckpt, dir->index_path, NULL, err);
}

static void set_tensor(struct tp_checkpoint *ckpt, const struct tp_name_key *key,
                       struct tp_tensor *out)
{
    const struct tp_st_header *header = &ckpt->files[file_of(key)].header;
    const struct tp_st_tensor *from = &header->tensors[number_of(key)];
    *out = (struct tp_tensor){.name = from->name, .dtype = from->dtype, .rank = from->rank,
                              .file = (uint32_t)file_of(key),
                              .offset = header->data_start + from->begin, /* the sum was checked */
                              .bytes = from->end - from->begin};
    memcpy(out->shape, from->shape, sizeof out->shape);
}

/* The keys of all tensors, file by file in the order of their data, then sorted. */
static struct tp_name_key *sorted_keys(const struct tp_checkpoint *ckpt, size_t count,
                                       struct tp_err *err)
{
    struct tp_name_key *keys = tp_os_alloc(count * sizeof *keys, err);
    size_t n = 0;
    for (size_t f = 0; keys && f < ckpt->file_count; f++)
        for (size_t i = 0; i < ckpt->files[f].header.count; i++)
            keys[n++] = key_of(ckpt, f, i);
    if (keys)
        tp_names_sort(keys, count);
    return keys;
}

/* The table of all tensors, for which their headers' own are needed no more; `all` is how many are
 * in these. */
static enum tp_code take_tensors(struct tp_checkpoint *ckpt, const struct tp_name_key *keys,
                                 size_t count, size_t all, struct tp_err *err)
{
    size_t *first = tp_os_alloc(ckpt->file_count * sizeof *first, err), before = 0;
    ckpt->tensors = tp_os_alloc(count * sizeof *ckpt->tensors, err);
    ckpt->by_data = tp_os_alloc(all * sizeof *ckpt->by_data, err);
    if (!first || !ckpt->tensors || !ckpt->by_data) {
        free(first);
        return TP_E_MEMORY;
    }
    for (size_t f = 0; f < ckpt->file_count; f++) {
        first[f] = before;
        before += ckpt->files[f].header.count;
    }
    for (size_t i = 0; i < all; i++)
        ckpt->by_data[i] = UINT32_MAX;
    for (size_t t = 0; t < count; t++) {
        set_tensor(ckpt, &keys[t], &ckpt->tensors[t]);
        ckpt->by_data[first[file_of(&keys[t])] + number_of(&keys[t])] = (uint32_t)t;
    }
    for (size_t i = 0, n = 0; i < all; i++)
        if (ckpt->by_data[i] != UINT32_MAX) /* one that the index does not mean */
            ckpt->by_data[n++] = ckpt->by_data[i];
    for (size_t f = 0; f < ckpt->file_count; f++) {
        free(ckpt->files[f].header.tensors);
        ckpt->files[f].header.tensors = NULL;
        ckpt->files[f].header.count = 0;
    }
    free(first);
    ckpt->tensor_count = count;
    return TP_OK;
}

static enum tp_code make_tensors(struct tp_checkpoint *ckpt, const struct tp_ckpt_dir *dir,
                                 struct tp_err *err)
{
    uint64_t count = 0; /* at most 1,000,000 per file: cannot overflow */
    for (size_t f = 0; f < ckpt->file_count; f++)
        count += ckpt->files[f].header.count;
    if (count > TP_INDEX_MAX_TENSORS) {
        enum tp_code code =
            tp_fail(err, TP_E_UNSUPPORTED, "%llu tensors, more than the limit of %llu",
                    (unsigned long long)count, (unsigned long long)TP_INDEX_MAX_TENSORS);
        tp_err_path(err, ckpt->path);
        tp_err_hint(err, "convert the checkpoint in parts, one shard at a time");
        return code;
    }
    struct tp_name_key *keys = sorted_keys(ckpt, (size_t)count, err);
    enum tp_code code = keys ? TP_OK : TP_E_MEMORY;
    size_t meant = (size_t)count;
    if (code == TP_OK && dir->index_path)
        code = apply_index(ckpt, dir, keys, &meant, err);
    if (code == TP_OK)
        code = take_tensors(ckpt, keys, meant, (size_t)count, err);
    free(keys);
    return code;
}

static enum tp_code open_all(struct tp_checkpoint *ckpt, struct tp_ckpt_dir *dir,
                             struct tp_err *err)
{
    enum tp_code code = TP_OK;
    if (ckpt->directory)
        code = tp_ckpt_dir_read(ckpt, dir, err);
    size_t count = ckpt->directory ? dir->shard_count : 1;
    if (!code)
        ckpt->files = tp_os_zalloc(count, sizeof *ckpt->files, err);
    if (!code && !ckpt->files)
        code = TP_E_MEMORY;
    if (!code && !ckpt->directory) {
        const char *slash = strrchr(ckpt->path, '/');
        ckpt->base = tp_stem_of(slash ? slash + 1 : ckpt->path);
        code = open_file(ckpt, ckpt->path, slash ? slash + 1 : ckpt->path, NULL, err);
    }
    for (size_t i = 0; i < dir->shard_count && !code; i++)
        code = open_file(ckpt, dir->shards[i].path, dir->shards[i].name,
                         ckpt->strict ? ckpt->path : NULL, err);
    return code ? code : make_tensors(ckpt, dir, err);
}

enum tp_code tp_checkpoint_open(const char *path, unsigned flags, struct tp_checkpoint *ckpt,
                                struct tp_err *err)
{
    return tp_checkpoint_open_copying(path, flags, NULL, 0, ckpt, err);
}

enum tp_code tp_checkpoint_open_copying(const char *path, unsigned flags, const char *const *copy,
                                        size_t copies, struct tp_checkpoint *ckpt,
                                        struct tp_err *err)
{
    struct stat st;
    struct tp_ckpt_dir dir = {0};
    *ckpt = (struct tp_checkpoint){.copy = copy, .copy_count = copies};
    if (!(ckpt->path = tp_hub_find(path, err)))
        return err->code;
    if (tp_os.stat(ckpt->path, &st) != 0) {
        enum tp_code failed = tp_os_fail(err, errno, ckpt->path, "cannot open");
        tp_checkpoint_close(ckpt);
        return failed;
    }
    ckpt->directory = S_ISDIR(st.st_mode);
    ckpt->strict = flags & TP_CHECKPOINT_STRICT;
    ckpt->copies = flags & TP_CHECKPOINT_COPIES;
    ckpt->folders = flags & TP_CHECKPOINT_FOLDERS;
    ckpt->mode = ckpt->dir_mode = 0777;
    if (ckpt->directory)
        ckpt->dir_mode &= st.st_mode;
    enum tp_code code = open_all(ckpt, &dir, err);
    tp_ckpt_dir_close(&dir);
    if (code)
        tp_checkpoint_close(ckpt);
    return code;
}
