/* Merging: all parts of one plan, proven shard by shard, become the output.
 *
 * The plan is made again from the source rather than stored by the parts: so the
 * small files come from the very code that a single process runs, and the source is
 * proven unchanged at the moment of commit, as it is there.
 */
#include "pack/commit/commit_build.h"

#include "base/suffix.h"
#include "pack/commit/partial_name.h"
#include "pack/os/below.h"
#include "pack/commit/parts_notes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* As it was written, and what it lists. One that cannot be read is none, and that becomes the error,
 * as does a file that has gone. */
static bool has_manifest(const char *directory, struct tp_err *err)
{
    struct tp_manifest manifest;
    struct tp_err seen = {0};
    bool found = tp_manifest_read(directory, &manifest, &seen) == TP_OK && manifest.intact;
    tp_err_take_unread(err, &seen);
    const struct tp_manifest_file *file = found ? tp_manifest_lacks(&manifest, directory, true, err)
                                                : NULL;
    if (file) {
        tp_err_path(err, directory);
        tp_err_hint(err, "bring the file back, or convert again with --force");
        tp_fail(err, TP_E_INPUT, "'%.200s' is in its manifest, and is missing or has another size",
                file->name);
    }
    tp_manifest_close(&manifest);
    return found && !err->code;
}

/* There is no partial directory: was the output made already? */
static enum tp_code without_partial(const char *output, struct tp_parts *parts,
                                    struct tp_err *err)
{
    if (has_manifest(output, err)) {
        parts->already_done = true;
        return tp_commit_end_journals(-1, output, err);
    }
    if (err->code)
        return err->code;
    tp_err_path(err, output);
    if (tp_ends_with(output, ".partial"))
        tp_err_hint(err, "name the output as the parts were given it, and not as it is called "
                         "until it is complete");
    tp_err_hint(err, "run 'tilepack convert SRC -o DST --to FORMAT --part I/P' for every part "
                     "first");
    return tp_fail(err, TP_E_USAGE, "there are no parts of this output");
}

static enum tp_code end_exchanged(const char *output, const char *partial, bool force,
                                  struct tp_err *err)
{
    struct tp_commit c = {.output = output, .err = err, .dir = -1, .journal = {.fd = -1}};
    if (!force)
        return tp_commit_refuse_left(partial, "merge", err);
    pthread_mutex_init(&c.lock, NULL);
    enum tp_code code = tp_commit_paths(&c);
    if (code == TP_OK)
        code = tp_commit_end(&c, true);
    tp_commit_close(&c);
    return code;
}

static enum tp_code no_notes(const char *output, const char *partial,
                             const struct tp_os_list *list, bool force, struct tp_parts *parts,
                             struct tp_err *err)
{
    bool whole = false;
    /* A merge was interrupted behind the exchange, before the old content was gone: the complete
     * output has its notes still. */
    if (tp_commit_has_old(output, partial, err) && has_manifest(output, err)) {
        parts->already_done = true;
        return end_exchanged(output, partial, force || !list->count, err);
    }
    if (err->code)
        return err->code;
    for (size_t i = 0; i < list->count; i++)
        whole = whole || strcmp(list->names[i], TP_JOURNAL_NAME) == 0;
    tp_err_path(err, partial);
    tp_err_hint(err, whole ? "run the same command again: it goes on from here"
                           : "run the parts first");
    return tp_fail(err, TP_E_USAGE, "%s",
                   whole ? "an interrupted conversion that was not cut into parts is here"
                         : "no part has begun here");
}

/* Keeps the first note and compares the others with it. */
static enum tp_code add_note(int dir, const char *partial, const char *name, struct tp_share share,
                             struct tp_share *first, struct tp_parts *parts, struct tp_err *err)
{
    struct tp_parts note;
    enum tp_code code = tp_part_read(dir, partial, name, &note, err);
    if (code)
        return code;
    note.count = share.count;
    if (!parts->source) {
        *parts = note;
        *first = share;
        return TP_OK;
    }
    const char *differs = tp_parts_differ(parts, &note);
    struct stat st;
    struct tp_err ignored = {0}; /* a part saw it elsewhere, maybe where this user may not look */
    if (!differs && !tp_os_there(parts->source, &st, &ignored)) {
        char *source = parts->source;
        parts->source = note.source;
        note.source = source;
    }
    tp_parts_close(&note);
    if (!differs)
        return TP_OK;
    tp_err_path(err, partial);
    tp_err_hint(err, "keep the parts of one plan: remove the files %s.I-of-P of the others and "
                     "run those parts again", TP_PART_NAME);
    return tp_fail(err, TP_E_INPUT, "part %u/%u and part %u/%u are of different plans: %s",
                   first->index, first->count, share.index, share.count, differs);
}

enum tp_code tp_parts_read(const char *output, bool force, struct tp_parts *parts,
                           struct tp_err *err)
{
    struct tp_os_list list = {0};
    struct tp_share share, first = {0, 0};
    struct stat st;
    memset(parts, 0, sizeof *parts);
    char *partial = tp_partial_name(output, false, err);
    int dir = -1;
    bool there = tp_os_link_there(partial, &st, err);
    enum tp_code code = err->code;
    if (code == TP_OK && !there) {
        code = without_partial(output, parts, err);
        free(partial);
        return code;
    }
    if (code == TP_OK && (code = tp_below_open_dir(partial, &dir, err)) == TP_OK)
        code = tp_os_list(partial, &list, err);
    for (size_t i = 0; i < list.count && code == TP_OK; i++)
        if (tp_part_of_name(list.names[i], &share))
            code = add_note(dir, partial, list.names[i], share, &first, parts, err);
    if (code == TP_OK && !parts->source)
        code = no_notes(output, partial, &list, force, parts, err);
    tp_os_list_free(&list);
    tp_os_close(&dir);
    free(partial);
    if (code)
        tp_parts_close(parts);
    return code;
}

struct merge {
    struct tp_commit c;
    const struct tp_parts *parts;
    struct tp_journal *journals; /* per part that has shards; open ones hold their locks */
    unsigned part_count;
    unsigned *owner; /* per plan file */
    size_t *missing, *total; /* shards per part */
};

/* Opens the journal of a part that has begun; its shards are proven by that. */
static enum tp_code open_part(struct merge *m, unsigned i)
{
    struct tp_commit *c = &m->c;
    struct tp_share share = {i, m->parts->count};
    struct tp_err local = {0};
    struct stat st;
    bool foreign = false;
    char *name = tp_part_file(TP_JOURNAL_NAME, share, c->err);
    char *path = name ? tp_os_format(c->err, "%s/%s", c->partial, name) : NULL;
    bool begun = tp_os_there(path, &st, c->err);
    enum tp_code code = c->err->code;
    if (begun) {
        /* the part may have read another copy of the source, on another machine */
        struct tp_journal_work work = {c->plan, NULL, NULL, c->options->zstd > 0};
        code = tp_journal_open(c->dir, c->partial, name, &work, &m->journals[i - 1], &foreign,
                               &local);
        if (code == TP_E_USAGE && m->journals[i - 1].fd >= 0) { /* open, and somebody else's */
            tp_err_hint(c->err, "wait for it to end, then merge");
            code = tp_fail(c->err, code, "part %u/%u is still at work", i, share.count);
        } else if (code) {
            *c->err = local;
        } else if (foreign) {
            tp_err_hint(c->err, "remove this file and run the part again");
            code = tp_fail(c->err, TP_E_INPUT, "the journal of part %u/%u is of another plan", i,
                           share.count);
        }
        tp_err_path(c->err, path);
        if (code == TP_OK)
            c->err->path[0] = '\0';
    }
    free(path);
    free(name);
    return code;
}

/* Nothing is known of what the part wrote. */
static enum tp_code fail_unread(struct merge *m, const struct tp_err *unread)
{
    char *path = tp_os_format(m->c.err, "%s/%s", m->c.partial, unread->path);
    if (!path)
        return TP_E_MEMORY;
    *m->c.err = *unread;
    m->c.err->path[0] = '\0';
    tp_err_path(m->c.err, path);
    free(path);
    return unread->code;
}

static enum tp_code fail_lost(struct merge *m, uint32_t f)
{
    const struct tp_plan *written = m->c.plan;
    char *path = tp_os_format(m->c.err, "%s/%s", m->c.partial, written->files[f].name);
    if (path)
        tp_err_path(m->c.err, path);
    free(path);
    unsigned part = m->owner[f];
    tp_err_hint(m->c.err, "run part %u/%u again: it writes just this shard anew", part,
                m->parts->count);
    return tp_fail(m->c.err, TP_E_INPUT, "this shard is not what part %u/%u wrote: it is gone, or "
                   "its hash differs", part, m->parts->count);
}

/* Collects hashes; counts what is missing. */
static enum tp_code collect(struct merge *m)
{
    struct tp_commit *c = &m->c;
    const struct tp_plan *written = c->plan;
    for (uint32_t f = 0; f < written->file_count; f++) {
        unsigned part = m->owner[f] - 1;
        const struct tp_journal *journal = &m->journals[part];
        m->total[part]++;
        if (journal->path && journal->done[f]) {
            c->journal.done[f] = true;
            memcpy(c->journal.hash[f], journal->hash[f], TP_HASH_BYTES);
            if (tp_read_list_copy(&c->journal.read[f], &journal->read[f], c->err))
                return TP_E_MEMORY;
        } else if (journal->path && journal->lost[f]) {
            return journal->unread.code ? fail_unread(m, &journal->unread) : fail_lost(m, f);
        } else {
            m->missing[part]++;
        }
    }
    return TP_OK;
}

/* "part 2/4 (not begun), part 3/4 (1 of 3 shards done)". */
static enum tp_code list_missing(const struct merge *m, struct tp_text *text, size_t *parts)
{
    enum tp_code code = TP_OK;
    *parts = 0;
    for (unsigned i = 0; i < m->part_count && code == TP_OK; i++) {
        if (!m->missing[i] || (*parts)++ >= 8)
            continue;
        code = tp_text_addf(text, m->c.err, "%spart %u/%u", text->size ? ", " : "", i + 1,
                            m->parts->count);
        if (code == TP_OK && m->journals[i].path)
            code = tp_text_addf(text, m->c.err, " (%zu of %zu shards done)",
                                m->total[i] - m->missing[i], m->total[i]);
        else if (code == TP_OK)
            code = tp_text_addf(text, m->c.err, " (not begun)");
    }
    return code || *parts <= 8 ? code
                               : tp_text_addf(text, m->c.err, " and %zu more", *parts - 8);
}

static enum tp_code check_missing(struct merge *m)
{
    struct tp_err *err = m->c.err;
    struct tp_text text = {0};
    size_t parts;
    enum tp_code code = list_missing(m, &text, &parts);
    if (code == TP_OK && parts) {
        tp_err_path(err, m->c.partial);
        tp_err_hint(err, "run %s again with the same arguments, then merge",
                    parts > 1 ? "these parts" : "it");
        code = tp_fail(err, TP_E_INPUT, "not all parts are there: %s", text.data);
    }
    tp_text_free(&text);
    return code;
}

static enum tp_code prove(struct merge *m)
{
    struct tp_commit *c = &m->c;
    size_t files = c->plan->file_count, written = c->plan->file_count;
    enum tp_code code = TP_OK;
    m->part_count = m->parts->count < files ? m->parts->count : (unsigned)files;
    m->journals = tp_os_zalloc(m->part_count + 1, sizeof *m->journals, c->err);
    m->owner = tp_os_zalloc(files + 1, sizeof *m->owner, c->err);
    m->missing = tp_os_zalloc(m->part_count + 1, sizeof *m->missing, c->err);
    m->total = tp_os_zalloc(m->part_count + 1, sizeof *m->total, c->err);
    c->journal.done = tp_os_zalloc(written + 1, sizeof *c->journal.done, c->err);
    c->journal.hash = tp_os_zalloc(written + 1, sizeof *c->journal.hash, c->err);
    c->journal.read = tp_os_zalloc(written + 1, sizeof *c->journal.read, c->err);
    c->journal.file_count = written;
    if (!m->journals || !m->owner || !m->missing || !m->total || !c->journal.done ||
        !c->journal.hash || !c->journal.read)
        return TP_E_MEMORY;
    for (unsigned i = 0; i < m->part_count; i++)
        m->journals[i].fd = -1;
    code = tp_parts_assign(c->plan, m->parts->count, m->owner, c->err);
    for (unsigned i = 1; i <= m->part_count && code == TP_OK; i++)
        code = open_part(m, i);
    if (code == TP_OK && (code = collect(m)) == TP_OK)
        code = check_missing(m);
    return code;
}

/* For the copies: the shards are there. */
static enum tp_code check_room(struct tp_commit *c)
{
    tp_err_hint(c->err, "make room on that file system and merge again");
    enum tp_code code = tp_commit_check_space(c, c->partial, NULL, true);
    if (code == TP_OK)
        c->err->hint[0] = '\0';
    return code;
}

static enum tp_code merge(struct merge *m)
{
    struct tp_commit *c = &m->c;
    enum tp_code code = tp_commit_paths(c);
    if (code)
        return code;
    if (memcmp(c->plan->hash, m->parts->hash, sizeof m->parts->hash) != 0) {
        tp_err_path(c->err, c->plan->ckpt->path);
        tp_err_hint(c->err, "--source names it if it has moved (copies must keep their times); if "
                            "it has changed, remove %s and start over", c->partial);
        return tp_fail(c->err, TP_E_INPUT, "the source is not the one that the parts converted: a "
                       "file's name, size, time or header differs");
    }
    if ((code = tp_commit_check_parent(c)) == TP_OK &&
        (code = tp_commit_check_name(c->partial, c->err)) == TP_OK &&
        (code = tp_commit_check_inputs(c, c->partial)) == TP_OK &&
        (code = tp_below_open_dir(c->partial, &c->dir, c->err)) == TP_OK &&
        (code = prove(m)) == TP_OK &&
        (code = tp_commit_check_begun(c->plan, c->partial, c->options->force, c->err)) == TP_OK &&
        (code = tp_commit_sweep(c)) == TP_OK && (code = check_room(c)) == TP_OK)
        code = tp_commit_finish(c);
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
                            .err = err, .dir = -1, .journal = {.fd = -1}}};
    own.zstd = parts->zstd;
    *result = (struct tp_convert_result){.bytes_in = plan->bytes_in, .bytes_out = plan->bytes_out,
                                         .shards = plan->file_count};
    pthread_mutex_init(&m.c.lock, NULL);
    enum tp_code code = tp_commit_check_output(&m.c, result);
    result->already_done = false; /* the parts are there: they are what is asked for */
    if (code == TP_OK)
        code = merge(&m);
    for (unsigned i = 0; m.journals && i < m.part_count; i++) {
        result->unlocked |= m.journals[i].unlocked;
        tp_journal_close(&m.journals[i]);
    }
    free(m.journals);
    free(m.owner);
    free(m.missing);
    free(m.total);
    tp_commit_close(&m.c);
    return code;
}
