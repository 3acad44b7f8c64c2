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

/* An archive that cannot be read in parts may be one that lost its end between two frames: its
 * header then tells of more than they hold. One that does not lie near its beginning is not looked
 * at. */
static enum tp_code check_cut(const struct tp_file *file, struct tp_err *err)
{
    uint8_t prefix[8];
    uint64_t said, size;
    struct tp_err none = {0};
    struct tp_st_header header = {0};
    enum tp_code code = tp_zst_said(file->fd, file->disk_size, file->path, &said, err);
    if (code || said == UINT64_MAX ||
        !tp_zst_peek(file->fd, file->disk_size, prefix, sizeof prefix, err) ||
        tp_st_header_size(prefix, UINT64_MAX, &size, &none))
        return err->code;
    if ((code = tp_st_header_size(prefix, said, &size, err)))
        return code;
    char *text = tp_os_alloc((size_t)size + 8, err);
    if (!text || !tp_zst_peek(file->fd, file->disk_size, text, (size_t)size + 8, err)) {
        free(text);
        return err->code;
    }
    code = tp_st_parse_here(text, size, said, &header, err);
    tp_st_close(&header);
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
    struct tp_err cut = {0};
    if (code == TP_E_UNSUPPORTED && check_cut(file, &cut)) {
        *err = cut;
        code = cut.code;
    }
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

static enum tp_code set_tensor(struct tp_checkpoint *ckpt, size_t file, size_t i,
                               struct tp_tensor *out, struct tp_err *err)
{
    const struct tp_st_header *header = &ckpt->files[file].header;
    const struct tp_st_tensor *from = &header->tensors[i];
    out->name = from->name;
    out->dtype = from->dtype;
    out->rank = from->rank;
    out->shape = tp_shared_keep(&ckpt->shapes, from->shape, sizeof from->shape, err);
    out->file = (uint32_t)file;
    out->offset = header->data_start + from->begin; /* the parser checked the sum */
    out->bytes = from->end - from->begin;
    return out->shape ? TP_OK : TP_E_MEMORY;
}

/* The tensors of one file, which its header then needs no more. */
static enum tp_code take_tensors(struct tp_checkpoint *ckpt, size_t f, const uint32_t *place,
                                 struct tp_err *err)
{
    struct tp_st_header *header = &ckpt->files[f].header;
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < header->count && code == TP_OK; i++)
        code = set_tensor(ckpt, f, i, &ckpt->tensors[place[i]], err);
    free(header->tensors);
    header->tensors = NULL;
    header->count = 0;
    return code;
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

/* Where the tensors of a file are looked for in the index. A shard mostly holds those of
 * one dtype in the order in which the index names them, so the next ones of that shard
 * are tried, and then its first ones; a table of its names is made when that has
 * failed. */
struct matcher {
    const struct tp_ckpt_dir *dir;
    uint32_t *next;  /* per entry: the next one of the same file, or NO_ENTRY */
    uint32_t *first; /* per file: its first entry */
    bool *found;     /* per entry: its tensor is there */
    struct tp_names names; /* of the entries of one file, or empty */
    uint32_t *entries;     /* by number of the name */
};

enum { LOOK_AHEAD = 8 };
#define NO_ENTRY UINT32_MAX

static size_t file_of(const struct matcher *m, size_t entry)
{
    return m->dir->shard_of[m->dir->index.entries[entry].shard];
}

static enum tp_code open_matcher(struct matcher *m, size_t files, struct tp_err *err)
{
    size_t entries = m->dir->index.count;
    m->next = tp_os_alloc(entries * sizeof *m->next, err);
    m->first = tp_os_alloc(files * sizeof *m->first, err);
    m->found = tp_os_zalloc(entries, sizeof *m->found, err);
    m->entries = tp_os_alloc(entries * sizeof *m->entries, err);
    if (!m->next || !m->first || !m->found || !m->entries)
        return TP_E_MEMORY;
    memset(m->first, 0xff, files * sizeof *m->first);
    for (size_t i = entries; i-- > 0;) {
        uint32_t *first = &m->first[file_of(m, i)];
        m->next[i] = *first;
        *first = (uint32_t)i;
    }
    return TP_OK;
}

static void close_matcher(struct matcher *m)
{
    free(m->next);
    free(m->first);
    free(m->found);
    free(m->entries);
    tp_names_close(&m->names);
}

/* The entry of that name among a few of one file, beginning with `entry`, or NO_ENTRY. */
static uint32_t look_ahead(const struct matcher *m, uint32_t entry, const char *name)
{
    for (int i = 0; i < LOOK_AHEAD && entry != NO_ENTRY; i++) {
        if (strcmp(m->dir->index.entries[entry].name, name) == 0)
            return entry;
        entry = m->next[entry];
    }
    return NO_ENTRY;
}

/* The same among all entries of file f. */
static enum tp_code find_by_name(struct matcher *m, size_t f, const char *name, uint32_t *entry,
                                 struct tp_err *err)
{
    if (!m->names.count)
        for (uint32_t i = m->first[f]; i != NO_ENTRY; i = m->next[i]) {
            const char *other = m->dir->index.entries[i].name;
            uint32_t number;
            enum tp_code code = tp_names_add(&m->names, other, strlen(other), &number, err);
            if (code)
                return code;
            m->entries[number] = i;
        }
    int64_t number = tp_names_find(&m->names, name, strlen(name));
    *entry = number < 0 ? NO_ENTRY : m->entries[number];
    return TP_OK;
}

/* Where the index expects a tensor that is in another file, or NULL. */
static const struct tp_file *expected_file(const struct tp_checkpoint *ckpt,
                                           const struct matcher *m, const char *name)
{
    const struct tp_index *index = &m->dir->index;
    for (size_t i = 0; i < index->count; i++)
        if (strcmp(index->entries[i].name, name) == 0)
            return &ckpt->files[file_of(m, i)];
    return NULL;
}

static enum tp_code match_file(const struct tp_checkpoint *ckpt, struct matcher *m, size_t f,
                               uint32_t *place, struct tp_err *err)
{
    const struct tp_file *file = &ckpt->files[f];
    uint32_t next = m->first[f];
    for (size_t i = 0; i < file->header.count; i++) {
        const char *name = file->header.tensors[i].name;
        uint32_t entry = look_ahead(m, next, name);
        enum tp_code code = TP_OK;
        if (entry == NO_ENTRY)
            entry = look_ahead(m, m->first[f], name);
        if (entry == NO_ENTRY)
            code = find_by_name(m, f, name, &entry, err);
        if (code)
            return code;
        if (entry == NO_ENTRY)
            return fail_stray(file, expected_file(ckpt, m, name), name, err);
        m->found[entry] = true;
        next = m->next[entry];
        place[i] = m->dir->index.entries[entry].place;
    }
    tp_names_close(&m->names);
    return TP_OK;
}

/* Fills by_data from the index, with which the headers have to agree: each tensor is
 * where the index says, and there is nothing besides. */
static enum tp_code match_index(struct tp_checkpoint *ckpt, const struct tp_ckpt_dir *dir,
                                struct tp_err *err)
{
    struct matcher m = {.dir = dir};
    uint32_t *place = ckpt->by_data;
    enum tp_code code = open_matcher(&m, ckpt->file_count, err);
    for (size_t f = 0; f < ckpt->file_count && !code; f++) {
        code = match_file(ckpt, &m, f, place, err);
        place += ckpt->files[f].header.count;
    }
    for (size_t i = 0; i < dir->index.count && !code; i++)
        if (!m.found[i])
            code = fail_missing(&ckpt->files[file_of(&m, i)], dir->index.entries[i].name, err);
    close_matcher(&m);
    return code;
}

/* Fills by_data for a file without an index. */
static enum tp_code sort_names(struct tp_checkpoint *ckpt, struct tp_err *err)
{
    const struct tp_st_header *header = &ckpt->files[0].header;
    struct tp_name_key *keys = tp_os_alloc(header->count * sizeof *keys, err);
    if (!keys)
        return TP_E_MEMORY;
    for (size_t i = 0; i < header->count; i++)
        keys[i] = (struct tp_name_key){.name = header->tensors[i].name, .index = i};
    tp_names_sort(keys, header->count);
    for (size_t i = 0; i < header->count; i++)
        ckpt->by_data[keys[i].index] = (uint32_t)i;
    free(keys);
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
    ckpt->tensors = tp_os_alloc((size_t)count * sizeof *ckpt->tensors, err);
    ckpt->by_data = tp_os_alloc((size_t)count * sizeof *ckpt->by_data, err);
    if (!ckpt->tensors || !ckpt->by_data)
        return TP_E_MEMORY;
    enum tp_code code = dir->index_path ? match_index(ckpt, dir, err) : sort_names(ckpt, err);
    if (code)
        return code;
    ckpt->tensor_count = (size_t)count;
    const uint32_t *place = ckpt->by_data;
    for (size_t f = 0; f < ckpt->file_count && code == TP_OK; f++) {
        size_t here = ckpt->files[f].header.count;
        code = take_tensors(ckpt, f, place, err);
        place += here;
    }
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
    struct stat st;
    struct tp_ckpt_dir dir = {0};
    *ckpt = (struct tp_checkpoint){0};
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
