/* Committing ranks: a directory for each, complete as a checkpoint of its own, and
 * beside them one file that says how they are put together again (ranks_text.c).
 */
#include "pack/commit/commit_build.h"

#include "pack/os/below.h"

#include <stdlib.h>
#include <string.h>

enum tp_code tp_commit_rank_directories(struct tp_commit *c)
{
    enum tp_code code = TP_OK;
    for (unsigned r = 0; c->options->ranks && r < c->options->ranks->count && code == TP_OK; r++) {
        char *path = tp_os_format(c->err, "%s/" TP_RANK_PREFIX "%u", c->partial, r);
        if (!path)
            code = TP_E_MEMORY;
        else
            code = tp_below_mkdir(c->dir, strrchr(path, '/') + 1, c->plan->ckpt->dir_rights, path,
                                  c->err);
        free(path);
    }
    return code;
}

/* The commit of one rank, as far as its small files; *own is to be closed. */
static enum tp_code write_rank(struct tp_commit *c, unsigned r, const struct tp_text *card,
                               struct tp_commit *own)
{
    const struct tp_ranks *ranks = c->options->ranks;
    size_t files = c->plan->file_count;
    *own = (struct tp_commit){.plan = &ranks->plans[r], .request = &ranks->requests[r],
                              .options = c->options, .output = c->output, .err = c->err,
                              .card = card, .dir = -1, .journal = {.fd = -1}};
    pthread_mutex_init(&own->lock, NULL);
    own->partial = tp_os_format(c->err, "%s/" TP_RANK_PREFIX "%u", c->partial, r);
    own->journal.hash = tp_os_zalloc(files + 1, sizeof *own->journal.hash, c->err);
    enum tp_code code = own->partial && own->journal.hash ? tp_commit_room(own) : TP_E_MEMORY;
    if (code == TP_OK)
        code = tp_below_open(c->dir, strrchr(own->partial, '/') + 1, O_RDONLY | O_DIRECTORY,
                             own->partial, &own->dir, c->err);
    if (code == TP_OK)
        code = tp_below_limit_dir(own->dir, c->plan->ckpt->dir_rights, own->partial, c->err);
    for (size_t f = 0; f < files && code == TP_OK; f++) {
        memcpy(own->journal.hash[f], c->journal.hash[f * ranks->count + r], TP_HASH_BYTES);
        code = tp_commit_record_shard(own, (uint32_t)f);
    }
    if (code == TP_OK && (code = tp_commit_write_texts(own)) == TP_OK)
        code = tp_os_fsync_dir(own->partial, c->err);
    return code;
}

enum tp_code tp_commit_write_ranks(struct tp_commit *c)
{
    struct tp_text card = {0};
    unsigned count = c->options->ranks->count;
    c->rank_files = tp_os_zalloc(count, sizeof *c->rank_files, c->err);
    enum tp_code code = c->rank_files ? tp_commit_card(c, &card) : TP_E_MEMORY;
    for (unsigned r = 0; r < count && code == TP_OK; r++) {
        struct tp_commit own;
        code = write_rank(c, r, &card, &own);
        if (code == TP_OK)
            code = tp_manifest_files_id(own.files, own.file_count, c->rank_files[r], c->err);
        if (code == TP_OK && r + 1 == count)
            code = tp_commit_write_join(c, &own);
        tp_commit_close(&own);
    }
    tp_text_free(&card);
    free(c->rank_files);
    c->rank_files = NULL;
    return code;
}
