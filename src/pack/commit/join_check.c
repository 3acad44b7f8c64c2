/* Checking a rank before it is joined. Reads each of its shards once, writes nothing. */
#include "pack/commit/join_check.h"

#include "pack/file/leafhash.h"
#include "pack/os/os.h"
#include "pack/source/file_hash.h"

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
    tp_err_path(err, file->path);
    tp_err_hint(err, "take the file of that conversion, or convert again");
    return tp_fail(err, TP_E_INPUT, entry ? "its contents have changed: its hash is not that of "
                                            "the manifest"
                                          : "this shard is not in the manifest");
}

enum tp_code tp_join_check_rank(const struct tp_checkpoint *rank,
                                const struct tp_run_options *options, struct tp_err *err)
{
    struct tp_manifest manifest;
    struct pass pass = {.rank = rank, .options = options};
    enum tp_code code = tp_manifest_read(rank->path, &manifest, err);
    if (code == TP_OK && !manifest.intact) {
        tp_err_path(err, rank->path);
        tp_err_hint(err, "take the file of that conversion, or convert again");
        code = tp_fail(err, TP_E_INPUT, TP_MANIFEST_NAME " has changed: its own hash is wrong");
    }
    for (; pass.file < rank->file_count && code == TP_OK; pass.file++)
        code = check_shard(&pass, &manifest, err);
    tp_manifest_close(&manifest);
    return code;
}
