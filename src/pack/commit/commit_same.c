/* Whether the small files of an output are those that would be written now: index, config, card,
 * and copies of the source's.
 *
 * Writes nothing, and compares by contents alone. Index and config follow from the plan, whose
 * identity the manifest has. Invariant: the files of the manifest come in the order in which
 * commit_files.c records them.
 */
#include "pack/commit/commit_build.h"

#include "pack/sink/compress.h"
#include "pack/source/index.h"

#include <stdlib.h>
#include <string.h>

/* The files of a manifest behind its shards, one after the other. */
struct listing {
    const struct tp_commit *c;
    const struct tp_manifest *manifest;
    size_t next; /* the file that comes now */
    struct tp_err *err;
};

/* Whether the open file is the one that the manifest lists; closes it. */
static bool is_listed(int fd, const struct stat *st, const char *path,
                      const struct tp_manifest_file *file, struct tp_err *err)
{
    uint8_t hash[TP_HASH_BYTES];
    bool same = (uint64_t)st->st_size == file->size &&
                tp_leafhash_fd(fd, path, file->size, hash, err) == TP_OK &&
                memcmp(hash, file->hash, sizeof hash) == 0;
    tp_os_close(&fd);
    return same;
}

/* The next file of the list, if it has that name; the output has it as the list says. */
static const struct tp_manifest_file *take(struct listing *list, const char *name)
{
    const struct tp_manifest *manifest = list->manifest;
    const struct tp_manifest_file *file =
        list->next < manifest->file_count ? &manifest->files[list->next] : NULL;
    struct stat st;
    int fd;
    if (!file || strcmp(file->name, name) != 0)
        return NULL;
    char *path = tp_os_format(list->err, "%s/%s", list->c->output, name);
    bool same = path && tp_os_open_regular(path, 0, &fd, &st, list->err) == TP_OK &&
                is_listed(fd, &st, path, file, list->err);
    free(path);
    list->next += same;
    return same ? file : NULL;
}

static bool take_shards(struct listing *list)
{
    const struct tp_manifest *manifest = list->manifest;
    bool same = manifest->file_count >= list->c->plan->file_count;
    for (; same && list->next < list->c->plan->file_count; list->next++) {
        const char *name = list->c->plan->files[list->next].name;
        const char *listed = manifest->files[list->next].name;
        size_t size = strlen(name);
        same = strncmp(listed, name, size) == 0 &&
               strcmp(listed + size, list->c->options->zstd ? TP_ZST_SUFFIX : "") == 0;
    }
    return same;
}

static bool take_copy(struct listing *list, const char *name)
{
    const struct tp_checkpoint *ckpt = list->c->plan->ckpt;
    const struct tp_manifest_file *file = take(list, name);
    struct stat st;
    int fd = -1;
    char *path = file ? tp_os_format(list->err, "%s/%s", ckpt->path, name) : NULL;
    bool same = path && tp_commit_open_other(ckpt, path, &fd, &st, list->err) == TP_OK &&
                is_listed(fd, &st, path, file, list->err);
    free(path);
    return same;
}

static bool take_card(struct listing *list)
{
    uint8_t hash[TP_HASH_BYTES];
    struct tp_text card = {0};
    const struct tp_manifest_file *file = take(list, TP_CARD_NAME);
    bool same = file && tp_commit_card((struct tp_commit *)list->c, &card) == TP_OK && card.size == file->size &&
                tp_commit_hash_text(card.data, card.size, hash, list->err) == TP_OK &&
                memcmp(hash, file->hash, sizeof hash) == 0;
    tp_text_free(&card);
    return same;
}

static bool is_next(const struct listing *list, const char *name)
{
    return list->next < list->manifest->file_count &&
           strcmp(list->manifest->files[list->next].name, name) == 0;
}

bool tp_commit_same_files(const struct tp_commit *c, const struct tp_manifest *manifest,
                          struct tp_err *err)
{
    struct listing list = {c, manifest, 0, err};
    const struct tp_checkpoint *ckpt = c->plan->ckpt;
    bool made = c->plan->unit_count > 0;
    bool same = take_shards(&list) && take(&list, TP_INDEX_NAME) &&
                (!is_next(&list, "config.json") || take(&list, "config.json"));
    for (size_t i = 0; i <= ckpt->other_count && same; i++) {
        const char *name = i < ckpt->other_count ? ckpt->others[i] : NULL;
        if (made && is_next(&list, TP_CARD_NAME)) {
            same = take_card(&list);
            made = false;
        }
        if (same && name && tp_commit_copies(c->plan, name))
            same = take_copy(&list, name);
    }
    return same && !made && list.next == manifest->file_count;
}
