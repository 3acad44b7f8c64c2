/* One part at work: its journal, its note, its shards. The merge is merge.c.
 *
 * Invariant: two processes never write the same shard. A part's shards follow from
 * the plan, its journal's lock keeps a second process of the same part out, and its
 * note, which is there before its first shard, keeps other plans out.
 */
#include "pack/commit/parts_notes.h"

#include "pack/commit/commit_build.h"
#include "pack/os/below.h"
#include "pack/run/budget.h"
#include "pack/text/json_tree.h"
#include "pack/text/json_scan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One part at work. */
struct work {
    struct tp_commit c;
    struct tp_share share;
    struct tp_parts note; /* what is to be noted; owns its strings */
    bool *skip;           /* per plan file */
    bool entered;         /* a run of this part was here before, and may have left shards */
};

/* Compares with the notes of all parts, an old one of this part included. */
static enum tp_code check_notes(struct work *work)
{
    struct tp_err *err = work->c.err;
    struct tp_os_list list;
    struct tp_share other;
    enum tp_code code = tp_os_list(work->c.partial, &list, err);
    for (size_t i = 0; i < list.count && code == TP_OK; i++) {
        struct tp_parts note;
        if (!tp_part_of_name(list.names[i], &other))
            continue;
        if ((code = tp_part_read(work->c.dir, work->c.partial, list.names[i], &note, err)))
            break;
        note.count = other.count;
        const char *differs = tp_parts_differ(&work->note, &note);
        if (differs) {
            tp_err_path(err, work->c.partial);
            tp_err_hint(err, "give all parts the same source and options; to start over, stop "
                             "them all and remove this directory");
            code = tp_fail(err, TP_E_USAGE, "part %u/%u of another plan is here: %s", other.index,
                           other.count, differs);
        }
        tp_parts_close(&note);
    }
    tp_os_list_free(&list);
    return code;
}

/* Written beside its name and renamed, so that it is never read half. */
static enum tp_code write_note(struct work *work)
{
    struct tp_commit *c = &work->c;
    char hash[TP_HASH_TEXT];
    tp_hash_print(work->note.hash, hash);
    char *name = tp_part_file(TP_PART_NAME, work->share, c->err);
    char *made = name ? tp_os_format(c->err, "%s" TP_PART_NEW, name) : NULL;
    char *from = made ? tp_os_format(c->err, "%s/%s", c->partial, made) : NULL;
    char *to = name ? tp_os_format(c->err, "%s/%s", c->partial, name) : NULL;
    uint64_t mark = tp_json_mark();
    json_t *json = json_pack("{s:i,s:s,s:s,s:i,s:o}", "tilepack_part", 1, "plan", hash,
                             "source", work->note.source, "zstd", (int)work->note.zstd,
                             "request", tp_request_record(c->request));
    char *text = json ? tp_json_dump(json, JSON_INDENT(1)) : NULL;
    json_decref(json);
    enum tp_code code = TP_OK;
    if (!from || !to)
        code = TP_E_MEMORY;
    else if (!text)
        code = tp_fail(c->err, TP_E_MEMORY, "out of memory for the note of the part");
    if ((code = tp_json_check(mark, code, c->err)) == TP_OK)
        code = tp_commit_write_small(c, made, text, strlen(text), false);
    if (code == TP_OK && (code = tp_os_rename(from, to, c->err)) == TP_OK)
        code = tp_os_fsync_dir(c->partial, c->err);
    free(text);
    free(from);
    free(to);
    free(made);
    free(name);
    return code;
}

static bool is_own_note(struct work *work, const char *entry)
{
    char *name = tp_part_file(TP_PART_NAME, work->share, work->c.err);
    bool is = name && strcmp(name, entry) == 0;
    free(name);
    return is;
}

/* The folder may be there already, with other parts of the same plan in it. */
static enum tp_code enter_partial(struct work *work)
{
    struct tp_commit *c = &work->c;
    struct tp_os_list list;
    bool own = false;
    if (tp_os.mkdir(c->partial, c->plan->ckpt->dir_mode | 0700) != 0 && errno != EEXIST)
        return tp_os_fail(c->err, errno, c->partial, "cannot make the directory");
    enum tp_code code = tp_commit_check_not_source(c->plan, c->partial, c->err);
    if (code || (code = tp_commit_check_name(c->partial, c->err)) ||
        (code = tp_below_open_dir(c->partial, &c->dir, c->err)) ||
        (code = tp_os_list(c->partial, &list, c->err)))
        return code;
    for (size_t i = 0; i < list.count && code == TP_OK; i++) {
        own = own || tp_commit_is_own(list.names[i]);
        work->entered |= is_own_note(work, list.names[i]);
        if (strcmp(list.names[i], TP_JOURNAL_NAME) == 0) {
            tp_err_hint(c->err, "finish it without --part, or remove this directory");
            code = tp_fail(c->err, TP_E_USAGE, "an interrupted conversion that was not cut into "
                           "parts is here");
        }
    }
    if (code == TP_OK && list.count && !own && (code = tp_commit_check_unfinished(c)) == TP_OK) {
        tp_err_hint(c->err, "move it away, or choose another output with -o");
        code = tp_fail(c->err, TP_E_USAGE, "this directory is not of tilepack, but has the name "
                       "under which the unfinished output would be written");
    }
    if (code)
        tp_err_path(c->err, c->partial);
    tp_os_list_free(&list);
    return code;
}

static enum tp_code lock_part(struct work *work)
{
    struct tp_commit *c = &work->c;
    struct tp_err local = {0};
    bool foreign = false;
    uint8_t source[TP_HASH_BYTES];
    struct tp_journal_work made = {c->plan, source, NULL, c->options->zstd > 0};
    char *name = tp_part_file(TP_JOURNAL_NAME, work->share, c->err);
    enum tp_code code = name ? tp_commit_source_id(c, source) : TP_E_MEMORY;
    if (code == TP_OK)
        code = tp_journal_open(c->dir, c->partial, name, &made, &c->journal, &foreign, &local);
    free(name);
    if (code == TP_E_USAGE && c->journal.fd >= 0) { /* open, and somebody else's */
        tp_err_path(c->err, c->partial);
        tp_err_hint(c->err, "wait for it to end, or give this one another number");
        return tp_fail(c->err, code, "part %u/%u is at work in another process", work->share.index,
                       work->share.count);
    }
    if (code) {
        if (local.code)
            *c->err = local;
        return code;
    }
    if (foreign && c->journal.other_source) /* its own shards alone have to be made anew */
        return tp_journal_restart(&c->journal, &made, c->err);
    if (foreign) {
        tp_err_path(c->err, c->partial);
        tp_err_hint(c->err, "stop all parts and remove this directory to start over");
        return tp_fail(c->err, TP_E_USAGE, "an interrupted part of another plan is here");
    }
    return TP_OK;
}

/* Leaves nothing of a part that turned out to be of another plan. */
static void withdraw(struct work *work)
{
    const char *const kinds[] = {TP_PART_NAME, TP_JOURNAL_NAME};
    for (int i = 0; i < 2; i++) {
        struct tp_err ignored = {0};
        char *name = tp_part_file(kinds[i], work->share, &ignored);
        if (name)
            tp_commit_remove_file(work->c.dir, work->c.partial, name, &ignored);
        free(name);
    }
}

static enum tp_code skip_others(struct work *work, struct tp_convert_result *result)
{
    struct tp_commit *c = &work->c;
    size_t count = c->plan->file_count;
    unsigned *owner = tp_os_zalloc(count + 1, sizeof *owner, c->err);
    bool *resumed = tp_os_zalloc(count + 1, sizeof *resumed, c->err);
    work->skip = tp_os_zalloc(count + 1, sizeof *work->skip, c->err);
    enum tp_code code = owner && resumed && work->skip
                            ? tp_parts_assign(c->plan, work->share.count, owner, c->err)
                            : TP_E_MEMORY;
    for (size_t f = 0; f < count && code == TP_OK; f++) {
        bool mine = owner[f] == work->share.index;
        bool done = c->journal.done && c->journal.done[f];
        work->skip[f] = !mine || done;
        resumed[f] = mine && done;
        result->shards += mine;
        result->resumed += resumed[f];
    }
    if (code == TP_OK)
        tp_commit_tell_resumed(c, resumed, result->resumed, result->shards);
    free(resumed);
    free(owner);
    return code;
}

static enum tp_code run_part(struct work *work, struct tp_convert_result *result)
{
    struct tp_commit *c = &work->c;
    enum tp_code code = tp_commit_paths(c);
    if (code || (code = tp_commit_check_parent(c)) || (code = enter_partial(work)) ||
        (code = tp_commit_check_case(c)) || (code = check_notes(work)) || (code = lock_part(work)))
        return code;
    result->unlocked = c->journal.unlocked;
    if ((code = write_note(work)))
        return code;
    if ((code = check_notes(work))) { /* another plan began at the same moment */
        withdraw(work);
        return code;
    }
    if ((code = skip_others(work, result)) == TP_OK &&
        (code = tp_commit_check_space(c, c->partial, work->skip, false)) == TP_OK &&
        (code = tp_commit_run_shards(c, work->skip)) == TP_OK &&
        (code = tp_checkpoint_unchanged(c->plan->ckpt, c->err)) == TP_OK)
        code = tp_os_fsync_dir(c->partial, c->err);
    if (code && !c->begun && !work->entered) /* refused: nothing stays, unless it was there */
        withdraw(work);
    return code;
}

/* An output that is complete needs no parts; any other is left for the merge. */
static enum tp_code check_output(struct work *work, struct tp_convert_result *result)
{
    struct tp_commit *c = &work->c;
    struct stat st;
    enum tp_code code = tp_commit_check_not_source(c->plan, c->output, c->err);
    if (code || !tp_os_there(c->output, &st, c->err))
        return c->err->code;
    if (S_ISDIR(st.st_mode) && tp_commit_is_done(c)) {
        result->already_done = true;
        return TP_OK;
    }
    if (c->err->code || tp_commit_check_name(c->output, c->err))
        return c->err->code;
    if (c->options->force)
        return tp_commit_check_replaceable(c, &st);
    if (tp_commit_is_empty(c->output, c->err))
        return c->err->code;
    return tp_commit_in_the_way(c, "give --force to the parts and to 'tilepack merge' to replace "
                                   "it");
}

static enum tp_code make_note(struct work *work)
{
    struct tp_commit *c = &work->c;
    work->note = (struct tp_parts){.count = work->share.count, .zstd = c->options->zstd};
    memcpy(work->note.hash, c->plan->hash, sizeof work->note.hash);
    uint64_t mark = tp_json_mark();
    json_t *request = tp_request_record(c->request);
    work->note.request = tp_json_dump(request, JSON_COMPACT);
    json_decref(request);
    work->note.source = tp_os.realpath(c->plan->ckpt->path, NULL);
    if (!work->note.source)
        return tp_os_fail(c->err, errno, c->plan->ckpt->path, "cannot resolve the path");
    if (!tp_is_utf8(work->note.source)) {
        tp_err_path(c->err, work->note.source);
        tp_err_hint(c->err, "rename the folder, or convert without --part");
        return tp_fail(c->err, TP_E_UNSUPPORTED, "the path of the source is not UTF-8: parts "
                       "cannot name it to each other");
    }
    return tp_json_check(mark, TP_OK, c->err);
}

enum tp_code tp_convert_part(const struct tp_plan *plan, const struct tp_request *request,
                             const char *output, struct tp_share share,
                             const struct tp_convert_options *options,
                             struct tp_convert_result *result, struct tp_err *err)
{
    struct work work = {.share = share,
                        .c = {.plan = plan, .request = request, .options = options,
                              .output = output, .err = err, .dir = -1, .journal = {.fd = -1}}};
    enum tp_code code;
    *result = (struct tp_convert_result){.bytes_in = plan->bytes_in, .bytes_out = plan->bytes_out};
    pthread_mutex_init(&work.c.lock, NULL);
    if (options->discard) {
        struct tp_run_options run = options->run;
        struct tp_budget ignored;
        code = skip_others(&work, result);
        run.skip_file = work.skip;
        if (code == TP_OK && (code = tp_budget_run(plan, &run, &ignored, err)) == TP_OK)
            code = tp_run(plan, &tp_discard_sink, &run, err);
    } else if ((code = make_note(&work)) == TP_OK &&
               (code = check_output(&work, result)) == TP_OK && !result->already_done) {
        code = run_part(&work, result);
    }
    tp_parts_close(&work.note);
    free(work.skip);
    tp_commit_close(&work.c);
    return code;
}
