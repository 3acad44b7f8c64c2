/* Committing a directory: partial directory, journal, run, rename. What may be replaced is
 * in commit_output.c.
 *
 * At every moment the output's name is absent, or the old complete content, or
 * the new complete content.
 */
#include "pack/commit/commit_build.h"

#include "base/suffix.h"
#include "pack/os/below.h"
#include "pack/plan/command.h"
#include "pack/run/budget.h"
#include "pack/run/run.h"
#include "pack/sink/compress.h"
#include "pack/source/contents.h"
#include "pack/text/name_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Whether --force may replace what is in the partial directory. */
static enum tp_code check_partial(const struct tp_commit *c, struct tp_err *err)
{
    bool begun = tp_commit_holds_own(c->partial, err);
    enum tp_code code = tp_commit_check_replace(c->plan, c->partial, begun, err);
    return code || !begun ? code : tp_commit_check_begun(c->plan, c->partial, true, err);
}

/* Makes room in the partial directory. The journal stays, and with it its lock. */
static enum tp_code clear_partial(struct tp_commit *c)
{
    enum tp_code code = check_partial(c, c->err);
    return code ? code : tp_commit_empty(c->dir, c->partial, TP_JOURNAL_NAME, c->err);
}

/* Whether --force would; no hint promises what it refuses. */
static bool may_replace(struct tp_commit *c)
{
    struct tp_err refused = {0};
    bool may = check_partial(c, &refused) == TP_OK;
    tp_err_memory(c->err, &refused);
    return may;
}

static enum tp_code partial_in_the_way(struct tp_commit *c, const char *what)
{
    tp_err_path(c->err, c->partial);
    tp_err_hint(c->err, may_replace(c) ? "finish what is there or move it away; --force replaces it"
                                       : "move it away, or choose another output with -o");
    return tp_fail(c->err, TP_E_USAGE, "%s", what);
}

/* What the output replaced comes to lie here, too, but then the output has its journal until that
 * is gone: publish(). */
enum tp_code tp_commit_check_unfinished(const struct tp_commit *c)
{
    struct stat st;
    char *manifest = tp_os_format(c->err, "%s/%s", c->partial, TP_MANIFEST_NAME);
    bool finished = tp_os_link_there(manifest, &st, c->err) && !c->err->code &&
                    !tp_commit_holds_own(c->output, c->err);
    free(manifest);
    if (!finished)
        return c->err->code;
    tp_err_path(c->err, c->partial);
    tp_err_hint(c->err, "move it away, or choose another output with -o");
    return tp_fail(c->err, TP_E_USAGE, "a finished checkpoint has the name under which the "
                   "unfinished output would be written");
}

/* The partial directory holds something, and no journal. */
static enum tp_code make_room(struct tp_commit *c)
{
    enum tp_code code = tp_commit_check_unfinished(c);
    if (code)
        return code;
    return c->options->force
               ? clear_partial(c)
               : partial_in_the_way(c, "this directory is not of tilepack, but has the name under "
                                       "which the unfinished output would be written");
}

/* A directory that is not of this program has no journal, but other files. */
static enum tp_code make_partial(struct tp_commit *c)
{
    struct stat st;
    enum tp_code code = TP_OK;
    bool there = tp_os_link_there(c->partial, &st, c->err);
    if (c->err->code)
        return c->err->code;
    if (!there)
        return (code = tp_os_mkdir(c->partial, c->plan->ckpt->dir_mode | 0700, c->err))
                   ? code : tp_below_open_dir(c->partial, &c->dir, c->err);
    if (!S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode)) {
        tp_err_path(c->err, c->partial);
        tp_err_hint(c->err, "move it away, or choose another output with -o");
        return tp_fail(c->err, TP_E_USAGE, "a file is where the unfinished output would be");
    }
    if ((code = tp_commit_check_not_source(c->plan, c->partial, c->err)) ||
        (code = tp_commit_check_inputs(c, c->partial)) ||
        (code = tp_commit_check_name(c->partial, c->err)) ||
        (code = tp_below_open_dir(c->partial, &c->dir, c->err)))
        return code;
    char *journal = tp_os_format(c->err, "%s/%s", c->partial, TP_JOURNAL_NAME);
    if (!tp_os_link_there(journal, &st, c->err) && !c->err->code &&
        !tp_commit_is_empty(c->partial, c->err))
        code = make_room(c);
    else
        code = c->err->code;
    free(journal);
    return code;
}

/* A sweep of the partial directory. */
struct sweep {
    struct tp_commit *c;
    struct tp_name_key *kept; /* sorted: the shards that the journal names, without .zst */
    size_t kept_count;
};

static bool is_shard(const struct sweep *s, const char *name)
{
    size_t size = strlen(name);
    if (s->c->options->zstd) {
        if (!tp_ends_with(name, TP_ZST_SUFFIX))
            return false;
        size -= strlen(TP_ZST_SUFFIX);
    }
    return tp_names_sorted_have(s->kept, s->kept_count, name, size, '\0');
}

/* What an interrupted run left besides proven shards is made anew: the source may
 * have other small files by now. */
static enum tp_code sweep(struct tp_commit *c)
{
    const struct tp_plan *plan = c->plan;
    struct tp_os_list list = {0};
    struct sweep s = {.c = c, .kept = tp_os_alloc((plan->file_count + 1) * sizeof *s.kept, c->err)};
    if (!s.kept)
        return TP_E_MEMORY;
    for (size_t f = 0; f < plan->file_count; f++)
        if (c->journal.done[f])
            s.kept[s.kept_count++] = (struct tp_name_key){plan->files[f].name, f};
    tp_names_sort(s.kept, s.kept_count);
    enum tp_code code = tp_below_list(c->dir, c->partial, &list, c->err);
    for (size_t i = 0; i < list.count && code == TP_OK; i++)
        if (!tp_commit_is_own(list.names[i]) && !is_shard(&s, list.names[i]))
            code = tp_commit_remove_entry(c->dir, c->partial, list.names[i], c->err);
    tp_os_list_free(&list);
    free(s.kept);
    return code;
}

/* What the journal says of this run, for one of another plan that finds it. */
static enum tp_code own_command(const struct tp_commit *c, struct tp_text *text)
{
    const struct tp_request *request = c->request;
    if (c->others) /* the output has another name */
        return TP_OK;
    enum tp_code code = tp_command_text(request, c->plan->ckpt->path, c->output, text, c->err);
    if (code == TP_OK && request->shard_size)
        code = tp_text_addf(text, c->err, " --shard-size %llu",
                            (unsigned long long)request->shard_size);
    if (code == TP_OK && c->options->zstd)
        code = tp_text_addf(text, c->err, " --zstd=%u", c->options->zstd);
    return code || !request->digests ? code
                                     : tp_text_add_word(text, " --digest sha256", c->err);
}

/* The journal is of another plan. Shards that it names were work; what a run left that
 * finished none is in nobody's way. A part may go on beside another copy of the source, on another
 * machine: its own shards alone are made anew. */
static enum tp_code start_over(struct tp_commit *c, const struct tp_journal_work *work)
{
    bool stops = c->journal.names_shards && !c->options->force &&
                 !(c->others && c->journal.other_source);
    if (stops && c->journal.other_source) {
        tp_err_path(c->err, c->partial);
        tp_err_hint(c->err, "--force starts over; or move this directory away to keep it");
        return tp_fail(c->err, TP_E_USAGE, "an interrupted run is here, and shards of the source "
                       "have changed since, or their permissions or links");
    }
    if (stops) {
        if (c->journal.command && may_replace(c))
            tp_err_hint(c->err, "finish what is there (%.800s) or move it away; --force replaces "
                                "it", c->journal.command);
        return partial_in_the_way(c, "an interrupted run is here, of another conversion, with "
                                  "other options or of a source that has changed since");
    }
    enum tp_code code = clear_partial(c);
    return code ? code : tp_journal_restart(&c->journal, work, c->err);
}

static enum tp_code open_partial(struct tp_commit *c)
{
    bool foreign = false;
    struct tp_text command = {0};
    uint8_t source[TP_HASH_BYTES];
    struct tp_journal_work work = {c->plan, source, NULL, c->options->zstd > 0};
    enum tp_code code = tp_commit_paths(c);
    if (code == TP_OK && (code = tp_commit_check_parent(c)) == TP_OK &&
        (code = make_partial(c)) == TP_OK &&
        (code = own_command(c, &command)) == TP_OK &&
        (code = tp_commit_source_id(c, source)) == TP_OK) {
        work.command = command.data;
        code = tp_journal_open(c->dir, c->partial, TP_JOURNAL_NAME, &work, &c->journal, &foreign,
                               c->err);
    }
    if (code == TP_OK)
        code = tp_commit_check_begun(c->plan, c->partial, c->options->force, c->err);
    if (code == TP_OK && foreign)
        code = start_over(c, &work);
    tp_text_free(&command);
    return code ? code : sweep(c);
}

static enum tp_code shard_done(void *arg, uint32_t file, const uint8_t hash[TP_HASH_BYTES],
                               struct tp_err *err)
{
    struct tp_commit *c = arg;
    const struct tp_read_list *read;
    enum tp_code code = tp_read_sums_file(c->sums, file, &read, err);
    pthread_mutex_lock(&c->lock);
    if (code == TP_OK)
        code = tp_journal_add(&c->journal, c->plan, file, hash, read, err);
    pthread_mutex_unlock(&c->lock);
    return code;
}

/* An output that was not there when this one was begun, which is complete by now. */
static enum tp_code refuse_late(struct tp_commit *c, enum tp_code code)
{
    if (code == TP_E_USAGE) {
        c->err->hint[0] = '\0';
        tp_err_hint(c->err, "it came while this output was written, which is left as %s: move it "
                    "away and run the command again, or remove that", c->partial);
    }
    return code;
}

/* What came to the output's name since the last look at it stays. */
static enum tp_code publish_new(struct tp_commit *c)
{
    struct stat st;
    struct tp_err local = {0};
    enum tp_code code = tp_os_rename(c->partial, c->output, &local);
    bool taken = local.sys == ENOTEMPTY || local.sys == EEXIST || local.sys == ENOTDIR;
    if (code && taken && tp_os_there(c->output, &st, c->err))
        return refuse_late(c, tp_commit_in_the_way(c, TP_COMMIT_FORCED));
    if (code && !c->err->code)
        *c->err = local;
    return c->err->code;
}

/* The output that is replaced may have its journal still, by which what lay beside it was known.
 * That made room for this run; with a journal the output would not be known for what it is now. */
static enum tp_code end_former(struct tp_commit *c)
{
    if (!tp_commit_holds_own(c->output, c->err))
        return c->err->code;
    enum tp_code code = tp_commit_end_journals(-1, c->output, c->err);
    return code ? code : tp_os_fsync_dir(c->output, c->err);
}

/* The names were looked at before; a link that came meanwhile has been renamed in place of what was
 * written. */
static enum tp_code check_published(const struct tp_commit *c)
{
    if (tp_os_has_name(c->dir, c->output, c->err) || c->err->code)
        return c->err->code;
    tp_err_path(c->err, c->output);
    tp_err_hint(c->err, "see who else may write there, and run the command again");
    return tp_fail(c->err, TP_E_USAGE, "somebody has replaced the unfinished output at the last "
                   "moment: what has its name now is not of this run");
}

/* The moment of commit. Existing content is exchanged, then removed; it is looked at
 * once more, as it may have come while the new one was written. */
static enum tp_code publish(struct tp_commit *c)
{
    struct stat st;
    struct tp_convert_result ignored;
    enum tp_code code = tp_os_fsync_dir(c->partial, c->err);
    if (code)
        return code;
    if ((code = tp_commit_check_output(c, &ignored)))
        return refuse_late(c, code);
    bool exists = tp_os_there(c->output, &st, c->err) && !tp_commit_is_empty(c->output, c->err);
    if (c->err->code)
        return c->err->code;
    if ((exists && (code = end_former(c))) ||
        (code = tp_commit_check_place(c->partial, c->dir, c->err)))
        return code;
    if (!exists) {
        code = publish_new(c);
    } else if (tp_os.exchange(c->partial, c->output)) {
        int sys = errno;
        tp_err_hint(c->err, "the new output is complete in %s: move it yourself", c->partial);
        return tp_os_fail(c->err, sys, c->output, "cannot exchange the old output for the new");
    }
    if (code || (code = check_published(c)))
        return code;
    return tp_commit_end(c, exists);
}

/* Says, to whoever wants to know, that `count` shards (`of` so many) are there already. */
static void tell_resumed(const struct tp_commit *c, size_t count, size_t of)
{
    if (count && c->options->resumed)
        c->options->resumed(c->options->run.progress_arg, count, of,
                            tp_run_work(c->plan, c->journal.done));
}

static enum tp_code run_shards(struct tp_commit *c, const bool *skip)
{
    struct tp_file_sink sink = {0};
    struct tp_run_options run = c->options->run;
    struct tp_contents copies;
    struct tp_budget budget = {0};
    struct tp_read_sums sums;
    run.zstd = c->options->zstd;
    run.skip_file = skip;
    run.sums = c->sums = &sums;
    enum tp_code code = tp_read_sums_open(&sums, c->plan, c->err), copied;
    if ((copied = tp_commit_open_copies(c, &copies, &run)) && code == TP_OK)
        code = copied;
    if (code == TP_OK)
        code = tp_budget_run(c->plan, &run, &budget, c->err);
    c->begun = code == TP_OK;
    if (code == TP_OK)
        code = tp_file_sink_open(&sink, c->plan, c->partial, NULL, budget.leaves, budget.drop,
                                 c->err);
    sink.dir = c->dir;
    sink.mode = c->plan->ckpt->mode;
    sink.done = shard_done;
    sink.done_arg = c;
    sink.zstd = c->options->zstd;
    sink.threads = budget.encoders;
    if (code == TP_OK)
        code = tp_commit_run(c, &sink.sink, &run);
    tp_contents_close(&copies);
    tp_file_sink_close(&sink);
    tp_read_sums_close(&sums);
    return code;
}

static enum tp_code finish(struct tp_commit *c)
{
    enum tp_code code = tp_commit_room(c);
    for (size_t f = 0; f < c->plan->file_count && code == TP_OK; f++)
        if (!c->others || !c->others[f])
            code = tp_commit_record_shard(c, (uint32_t)f);
    if (code == TP_OK && (code = c->texts ? c->texts(c) : tp_commit_write_texts(c)) == TP_OK)
        code = publish(c);
    return code;
}

/* The shards that the journal lacks, and the rest. */
static enum tp_code complete(struct tp_commit *c, struct tp_convert_result *result)
{
    const size_t count = c->plan->file_count;
    bool *skip = tp_os_zalloc(count + 1, sizeof *skip, c->err);
    enum tp_code code = !skip ? TP_E_MEMORY : c->take ? c->take(c) : TP_OK;
    size_t own = 0;
    result->resumed = c->journal.done_count;
    for (size_t f = 0; f < count && code == TP_OK; f++) {
        own += !c->others || !c->others[f];
        skip[f] = c->journal.done[f] || (c->others && c->others[f]);
    }
    if (code == TP_OK)
        code = tp_commit_check_space(c, c->partial, skip, !c->others);
    if (code == TP_OK) {
        tell_resumed(c, result->resumed, own);
        code = run_shards(c, skip);
    }
    free(skip);
    return code ? code : finish(c);
}

enum tp_code tp_commit_directory(struct tp_commit *c, struct tp_convert_result *result)
{
    enum tp_code code = open_partial(c);
    result->unlocked = c->journal.unlocked;
    if (code)
        return code;
    if ((code = tp_commit_check_case(c)) == TP_OK)
        code = complete(c, result);
    if (code && !c->begun && !c->journal.done_count) { /* refused: nothing stays */
        struct tp_err ignored = {0};
        if (tp_os_has_name(c->dir, c->partial, &ignored)) /* not what another process put there */
            tp_commit_remove_directory(AT_FDCWD, c->partial, c->partial, &ignored);
    }
    return code;
}
