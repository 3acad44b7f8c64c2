/* Merging: the parts of one plan become the output.
 *
 * The plan is made again from the source, and merging is a conversion that finds its shards made:
 * they are moved into the unfinished output and proven by their hashes. All else is written and
 * published by the very code that a single process runs, and the source is proven unchanged at the
 * moment of commit, as it is there.
 */
#include "pack/commit/part_file.h"

#include "base/suffix.h"
#include "pack/commit/partial_name.h"
#include "pack/sink/compress.h"
#include "pack/os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which parts there are ---- */

/* Was the output made already? */
static enum tp_code without_parts(const char *output, struct tp_parts *parts, struct tp_err *err)
{
    struct tp_manifest manifest;
    struct tp_err seen = {0};
    parts->already_done = tp_manifest_read(output, &manifest, &seen) == TP_OK && manifest.intact;
    tp_err_take_unread(err, &seen);
    tp_manifest_close(&manifest);
    parts->reason = tp_found_reason(TP_FOUND_MERGED);
    if (parts->already_done || err->code)
        return err->code;
    return tp_refuse_at(err, TP_E_USAGE, output,
                        "run 'tilepack convert SRC -o DST --to FORMAT --part I/P' for every part "
                        "first", "there are no parts of this output");
}

/* Why two parts are not of the same plan, or NULL. */
static const char *differ(const struct tp_done_part *a, const struct tp_done_part *b)
{
    if (a->share.count != b->share.count)
        return "the work was cut into another number of parts";
    if (strcmp(a->request, b->request) != 0 || a->zstd != b->zstd)
        return "their options differ";
    if (memcmp(a->hash, b->hash, sizeof a->hash) != 0)
        return "their sources differ (a file's name, size, time or header), or the versions of "
               "tilepack do";
    return NULL;
}

/* Keeps the part and compares it with the first one. */
static enum tp_code add_part(const char *path, struct tp_share share, size_t *capacity,
                             struct tp_parts *parts, struct tp_err *err)
{
    void *items = parts->items;
    enum tp_code code = tp_os_grow(&items, capacity, parts->count + 1, sizeof *parts->items, err);
    parts->items = items;
    if (code || (code = tp_part_read(path, &parts->items[parts->count], err)))
        return code;
    struct tp_done_part *first = parts->items, *part = &first[parts->count++];
    part->share = share;
    const char *why = differ(first, part);
    if (!why)
        return TP_OK;
    return tp_refuse_at(err, TP_E_INPUT, path,
                        "give all parts the same source and options: remove the directories of the "
                        "others and run those parts again",
                        "part %u/%u and part %u/%u are of different plans: %s", first->share.index,
                        first->share.count, share.index, share.count, why);
}

enum tp_code tp_parts_read(const char *output, struct tp_parts *parts, struct tp_err *err)
{
    struct tp_os_list list = {0};
    struct tp_share share;
    size_t capacity = 0;
    *parts = (struct tp_parts){0};
    char *all = tp_part_path(output, (struct tp_share){0}, err);
    char *parent = tp_os_parent(output, err);
    enum tp_code code = all && parent ? tp_os_list(parent, &list, err) : TP_E_MEMORY;
    const char *slash = all ? strrchr(all, '/') : NULL, *begin = slash ? slash + 1 : all;
    for (size_t i = 0; i < list.count && code == TP_OK; i++) {
        const char *name = list.names[i];
        if (!tp_begins_with(name, begin) ||
            sscanf(name + strlen(begin), "%u-of-%u", &share.index, &share.count) != 2 ||
            share.index < 1 || share.index > share.count)
            continue;
        char *path = tp_part_path(output, share, err);
        if (!path)
            code = TP_E_MEMORY;
        else if (strcmp(name, path + (begin - all)) == 0 && /* to the letter, and not unfinished */
                 !tp_part_is_empty(path))
            code = add_part(path, share, &capacity, parts, err);
        free(path);
    }
    if (code == TP_OK && !parts->count)
        code = without_parts(output, parts, err);
    tp_os_list_free(&list);
    free(all);
    free(parent);
    if (code)
        tp_parts_close(parts);
    return code;
}

void tp_parts_close(struct tp_parts *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        tp_part_close(&parts->items[i]);
    free(parts->items);
    *parts = (struct tp_parts){0};
}

/* ---- making one output of them ---- */

struct merge {
    struct tp_commit c; /* first: see take_shards() */
    const struct tp_parts *parts;
};

/* The part that has file f of the plan, or NULL. */
static const struct tp_done_part *part_of(const struct merge *m, size_t f)
{
    for (size_t i = 0; i < m->parts->count; i++)
        if (tp_share_has(m->parts->items[i].share, f))
            return &m->parts->items[i];
    return NULL;
}

/* Moves one shard of a part to its place, unless it is there. */
static enum tp_code take_shard(struct tp_commit *c, const struct tp_done_part *part, uint32_t f)
{
    const char *suffix = c->options->zstd ? TP_ZST_SUFFIX : "";
    struct stat st;
    char *from = tp_os_format(c->err, "%s/%s%s", part->path, c->plan->files[f].name, suffix);
    char *to = tp_os_format(c->err, "%s/%s%s", c->partial, c->plan->files[f].name, suffix);
    enum tp_code code = from && to ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK && tp_os_link_there(from, &st, c->err) && S_ISREG(st.st_mode))
        code = tp_os_rename(from, to, c->err);
    if (code == TP_OK && (code = c->err->code) == TP_OK)
        code = tp_journal_prove(&c->journal, c->dir, c->plan, f, c->options->zstd > 0, c->err);
    free(from);
    free(to);
    return code;
}

/* Makes room for the copies alone, as the shards are there. The journal says what they are before
 * they are moved, so a run that goes on from here knows them, wherever they lie. */
static enum tp_code take_shards(struct tp_commit *c)
{
    const struct merge *m = (struct merge *)c;
    size_t count = c->plan->file_count;
    bool *all = tp_os_alloc(count + 1, c->err), *had = tp_os_alloc(count + 1, c->err);
    enum tp_code code = all && had ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK) {
        memset(all, true, count + 1);
        memcpy(had, c->journal.done, count + 1);
        code = tp_commit_check_space(c, c->partial, all, true);
    }
    c->begun = code == TP_OK;
    for (size_t i = 0; i < m->parts->count && code == TP_OK; i++)
        code = tp_journal_join(&c->journal, c->plan, m->parts->items[i].journal, c->err);
    for (uint32_t f = 0; f < count && code == TP_OK; f++)
        if (c->journal.done[f] && !had[f])
            code = take_shard(c, part_of(m, f), f);
    free(all);
    free(had);
    return code;
}

static bool is_at_work(const struct merge *m, struct tp_share share)
{
    struct tp_err seen = {0};
    char *path = tp_part_path(m->c.output, share, m->c.err);
    char *partial = path ? tp_partial_name(path, false, m->c.err) : NULL;
    bool is = partial && tp_commit_check_at_rest(partial, &seen) == TP_E_LOCKED;
    tp_err_memory(m->c.err, &seen);
    free(path);
    free(partial);
    return is;
}

static enum tp_code fail_missing(const struct merge *m, size_t missing, unsigned which)
{
    unsigned count = m->parts->items[0].share.count;
    if (is_at_work(m, (struct tp_share){which, count}))
        return tp_refuse_at(m->c.err, TP_E_LOCKED, m->c.output, "wait for it to end, then merge",
                            "part %u/%u is still being written", which, count);
    return tp_refuse_at(m->c.err, TP_E_INPUT, m->c.output,
                        "run every part to its end with the same arguments, then merge",
                        "%zu of %u parts are not complete, part %u/%u first", missing, count, which,
                        count);
}

/* A merge that was interrupted while it removed the parts may have left some, and is *done. */
static enum tp_code check_parts(struct merge *m, bool *done)
{
    const struct tp_done_part *first = m->parts->items;
    struct tp_err *err = m->c.err;
    size_t missing = 0;
    unsigned which = 0;
    if (memcmp(m->c.plan->hash, first->hash, TP_HASH_BYTES) != 0)
        return tp_refuse_at(err, TP_E_INPUT, m->c.plan->ckpt->path,
                            "--source names it if it has moved (copies must keep their times); if "
                            "it has changed, remove the directories of the parts and start over",
                            "the source is not the one that the parts converted: a file's name, "
                            "size, time or header differs");
    for (unsigned i = 0; i < first->share.count && i < m->c.plan->file_count; i++)
        if (!part_of(m, i) && !missing++)
            which = i + 1;
    *done = missing && tp_commit_is_done(&m->c);
    return err->code || !missing || *done ? err->code : fail_missing(m, missing, which);
}

static enum tp_code remove_parts(const struct tp_parts *parts, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < parts->count && code == TP_OK; i++)
        code = tp_part_remove(&parts->items[i], err);
    if (code) {
        err->hint[0] = '\0';
        tp_err_hint(err, "the output is complete; remove what is left of its parts yourself");
    }
    return code;
}

enum tp_code tp_merge(const struct tp_plan *plan, const struct tp_request *request,
                      const struct tp_parts *parts, const char *output,
                      const struct tp_convert_options *options,
                      struct tp_convert_result *result, struct tp_err *err)
{
    struct tp_convert_options own = *options;
    struct merge m = {.parts = parts,
                      .c = {.plan = plan, .request = request, .options = &own, .output = output,
                            .result = result,
                            .take = take_shards, .err = err, .dir = -1, .journal = {.fd = -1}}};
    own.zstd = parts->items[0].zstd;
    *result = (struct tp_convert_result){.bytes_in = plan->bytes_in, .bytes_out = plan->bytes_out,
                                         .shards = plan->file_count};
    pthread_mutex_init(&m.c.lock, NULL);
    enum tp_code code = tp_commit_check_output(&m.c, result);
    if (code == TP_OK && !result->already_done && !result->skipped &&
        (code = check_parts(&m, &result->already_done)) == TP_OK && !result->already_done)
        code = tp_commit_directory(&m.c, result);
    if (code == TP_OK && !result->skipped)
        code = remove_parts(parts, err);
    tp_commit_close(&m.c);
    return code;
}
