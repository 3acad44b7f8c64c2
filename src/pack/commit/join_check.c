/* Checking a rank before it is joined. Reads each of its shards once, and the small files that are
 * taken over; writes nothing. */
#include "pack/commit/join_check.h"

#include "pack/commit/commit_build.h"
#include "pack/file/leafhash.h"
#include "pack/os/os.h"
#include "pack/source/file_hash.h"
#include "pack/source/index.h"

#include <stdlib.h>
#include <string.h>

struct pass {
    const struct tp_checkpoint *rank;
    const struct tp_run_options *options;
    uint32_t file;
    uint64_t place; /* of the file's own digits */
};

static enum tp_code read_leaf(void *arg, void *data, uint64_t size, uint64_t offset,
                              struct tp_err *err)
{
    const struct pass *pass = arg;
    atomic_int *stop = pass->options->stop;
    if (stop && atomic_load(stop))
        return tp_fail(err, atomic_load(stop) == 2 ? TP_E_INTERRUPT : TP_E_TERMINATE,
                       "interrupted");
    enum tp_code code = tp_checkpoint_read(pass->rank, pass->file, data, size, offset, err);
    if (code == TP_OK)
        tp_hash_blank(data, size, offset, pass->place);
    return code;
}

/* The manifest's entry of a shard, which may be an archive there. */
static const struct tp_manifest_file *entry_of(const struct tp_manifest *manifest,
                                               const char *name, struct tp_err *err)
{
    const struct tp_manifest_file *entry = tp_manifest_find(manifest, name);
    char *archive = entry ? NULL : tp_os_format(err, "%s.zst", name);
    if (archive)
        entry = tp_manifest_find(manifest, archive);
    free(archive);
    return entry;
}

#define CHANGED "its contents have changed: its hash is not that of the manifest"

static enum tp_code refuse(const char *path, const char *why, struct tp_err *err)
{
    tp_err_path(err, path);
    tp_err_hint(err, "take the file of that conversion, or convert again");
    return tp_fail(err, TP_E_INPUT, "%s", why);
}

static enum tp_code check_shard(struct pass *pass, const struct tp_manifest *manifest,
                                struct tp_err *err)
{
    const struct tp_file *file = &pass->rank->files[pass->file];
    const struct tp_manifest_file *entry = entry_of(manifest, file->name, err);
    uint8_t hash[TP_HASH_BYTES];
    enum tp_code code = err->code ? err->code
                                  : tp_file_hash_place(pass->rank, pass->file, &pass->place, err);
    if (code == TP_OK)
        code = tp_leafhash_file(file->size, pass->options->jobs, read_leaf, pass, hash, err);
    if (code || (entry && memcmp(entry->hash, hash, sizeof hash) == 0))
        return code;
    return refuse(file->path, entry ? CHANGED : "this shard is not in the manifest", err);
}

static enum tp_code check_copy(const struct tp_checkpoint *rank, const char *path,
                               const struct tp_manifest_file *entry, struct tp_err *err)
{
    int fd = -1;
    struct stat st;
    uint8_t hash[TP_HASH_BYTES];
    if (!tp_os_link_there(path, &st, err))
        return err->code ? err->code : refuse(path, "the file is missing, which the manifest of "
                                                    "the rank lists", err);
    enum tp_code code = tp_commit_open_other(rank, path, &fd, &st, err);
    bool same = code == TP_OK && (uint64_t)st.st_size == entry->size;
    if (same && (code = tp_leafhash_fd(fd, path, entry->size, hash, err)) == TP_OK)
        same = memcmp(hash, entry->hash, sizeof hash) == 0;
    tp_os_close(&fd);
    return code || same ? code : refuse(path, CHANGED, err);
}

static bool is_other(const struct tp_checkpoint *rank, const char *name)
{
    for (size_t i = 0; i < rank->other_count; i++)
        if (strcmp(rank->others[i], name) == 0)
            return true;
    return false;
}

static bool is_shard(const struct tp_checkpoint *rank, const struct tp_manifest_file *entry)
{
    for (size_t f = 0; f < rank->file_count; f++) {
        const char *name = rank->files[f].name;
        size_t size = strlen(name);
        if (strncmp(entry->name, name, size) == 0 &&
            (!entry->name[size] || strcmp(entry->name + size, ".zst") == 0))
            return true;
    }
    return false;
}

/* What stands beside the shards, but for what is stored beside the ranks. */
static enum tp_code check_copies(const struct tp_checkpoint *rank,
                                 const struct tp_manifest *manifest, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < manifest->file_count && code == TP_OK; i++) {
        const struct tp_manifest_file *entry = &manifest->files[i];
        if (is_shard(rank, entry) || strcmp(entry->name, TP_INDEX_NAME) == 0 ||
            strcmp(entry->name, "config.json") == 0)
            continue;
        char *path = tp_os_format(err, "%s/%s", rank->path, entry->name);
        code = path ? check_copy(rank, path, entry, err) : TP_E_MEMORY;
        if (code == TP_OK && !is_other(rank, entry->name))
            code = refuse(path, "the folder that it is in has become a link, or a checkpoint of "
                          "its own", err);
        free(path);
    }
    for (size_t i = 0; i < rank->other_count && code == TP_OK; i++) {
        if (tp_manifest_has(manifest, rank->others[i], strlen(rank->others[i])))
            continue;
        char *path = tp_os_format(err, "%s/%s", rank->path, rank->others[i]);
        tp_err_path(err, path ? path : rank->path);
        tp_err_hint(err, "move it out of the rank");
        code = tp_fail(err, TP_E_INPUT, "the conversion did not write it, and the whole would have "
                       "it");
        free(path);
    }
    return code;
}

enum tp_code tp_join_check_rank(const struct tp_checkpoint *rank, bool copied,
                                const struct tp_run_options *options, struct tp_err *err)
{
    struct tp_manifest manifest;
    struct pass pass = {.rank = rank, .options = options};
    enum tp_code code = tp_manifest_read(rank->path, &manifest, err);
    if (code == TP_OK && !manifest.intact)
        code = refuse(rank->path, TP_MANIFEST_NAME " has changed: its own hash is wrong", err);
    if (code == TP_OK && copied)
        code = check_copies(rank, &manifest, err);
    for (; pass.file < rank->file_count && code == TP_OK; pass.file++)
        code = check_shard(&pass, &manifest, err);
    tp_manifest_close(&manifest);
    return code;
}
