/* Committing a directory: partial directory, journal, run, rename. What is there already is
 * commit_output.c's.
 *
 * At every moment the output's name is absent, or the old complete content, or
 * the new complete content.
 */
#include "pack/commit/commit_build.h"

#include "base/suffix.h"
#include "pack/commit/manifest_note.h"
#include "pack/os/below.h"
#include "pack/plan/file/command.h"
#include "pack/run/budget.h"
#include "pack/run/run.h"
#include "pack/sink/compress.h"
#include "pack/source/invariants.h"
#include "pack/text/name_set.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static enum tp_code partial_in_the_way(struct tp_commit *c, const char *what)
{
    c->err->reason = tp_found_reason(TP_FOUND_UNFINISHED);
    return tp_refuse_at(c->err, TP_E_EXISTS, c->partial,
                        "move it away, or choose another output with -o", "%s", what);
}

/* A directory under the unfinished name that has no journal is not this program's. */
static enum tp_code check_partial(struct tp_commit *c)
{
    struct stat st;
    char *journal = tp_os_format(c->err, "%s/" TP_JOURNAL_NAME, c->partial);
    char *manifest = tp_os_format(c->err, "%s/" TP_MANIFEST_NAME, c->partial);
    bool own = tp_os_link_there(journal, &st, c->err) || c->err->code ||
               tp_commit_is_empty(c->partial, c->err);
    bool finished = !own && tp_os_link_there(manifest, &st, c->err);
    free(journal);
    free(manifest);
    if (own || c->err->code)
        return c->err->code;
    return partial_in_the_way(c, finished ? "a finished checkpoint has the name under which the "
                                            "unfinished output would be written"
                                          : "this directory is not of tilepack, but has the name "
                                            "under which the unfinished output would be written");
}

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
    if (!S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode))
        return partial_in_the_way(c, "a file is where the unfinished output would be");
    if ((code = tp_commit_check_not_source(c->plan, c->partial, c->err)) ||
        (code = tp_commit_check_inputs(c, c->partial)) ||
        (code = tp_commit_check_name(c->partial, c->err)) ||
        (code = tp_below_open_dir(c->partial, &c->dir, c->err)))
        return code;
    return check_partial(c);
}

/* ---- what an interrupted run left ---- */

/* A sweep of the partial directory. */
struct sweep {
    struct tp_commit *c;
    bool act;  /* remove, and not only look whether all may be removed */
    bool all;  /* the journal and finished shards, too */
    struct tp_name_key *shards; /* sorted: those that the journal has, without .zst */
    size_t shard_count;
    struct tp_name_key *copies; /* sorted: the files of the source that are copied */
};

static bool is_kept(const struct sweep *s, const char *name)
{
    size_t size = strlen(name);
    if (s->all || strcmp(name, TP_JOURNAL_NAME) == 0 || strcmp(name, TP_REPLACES_NAME) == 0)
        return !s->all;
    if (s->c->options->zstd) {
        if (!tp_ends_with(name, TP_ZST_SUFFIX))
            return false;
        size -= strlen(TP_ZST_SUFFIX);
    }
    return tp_names_sorted_have(s->shards, s->shard_count, name, size, '\0');
}

/* Whether a conversion writes a file of that name, of this source or, where it replaces what
 * another one left, by the names that published checkpoints have. */
static bool is_written(const struct sweep *s, const char *name)
{
    static const char *const written[] = {TP_MANIFEST_NAME, TP_MANIFEST_NEW, TP_PART_FILE,
                                          TP_JOURNAL_NAME, TP_REPLACES_NAME,
                                          "config.json", TP_CARD_NAME};
    return tp_word_of(name, written, TP_COUNT(written)) >= 0 || tp_commit_is_shard(name) ||
           tp_commit_is_index(name) ||
           (s->c->options->if_exists == TP_EXISTS_REPLACE && tp_commit_is_usual(name)) ||
           tp_names_sorted_have(s->copies, s->c->plan->ckpt->other_count, name, strlen(name),
                                '\0');
}

static bool is_folder(const struct sweep *s, const char *name)
{
    return tp_names_sorted_have(s->copies, s->c->plan->ckpt->other_count, name, strlen(name), '/');
}

static enum tp_code fail_unknown(const struct tp_commit *c, const char *name, bool folder)
{
    c->err->reason = tp_found_reason(TP_FOUND_UNFINISHED);
    return tp_refuse_at(c->err, TP_E_EXISTS, c->partial,
                        "move it away, or choose another output with -o",
                        "the unfinished output is here, and with it '%.200s%s', which is none of "
                        "its files", name, folder ? "/" : "");
}

static enum tp_code sweep_folder(const struct sweep *s, int dir, const char *folder);

/* NAME of the folder that is open as `dir`; `whole` from the partial directory on. */
static enum tp_code sweep_entry(const struct sweep *s, int dir, const char *name,
                                const char *whole)
{
    struct tp_commit *c = s->c;
    struct stat st;
    int below = -1;
    char *path = tp_os_format(c->err, "%s/%s", c->partial, whole);
    bool there = tp_os_link_there(path, &st, c->err), folder = there && S_ISDIR(st.st_mode);
    enum tp_code code = c->err->code;
    if (code || !there || is_kept(s, whole)) {
        free(path);
        return code;
    }
    if (!(folder ? is_folder : is_written)(s, whole))
        code = fail_unknown(c, whole, folder);
    else if (folder) {
        code = tp_below_open(dir, name, O_RDONLY | O_DIRECTORY, path, &below, c->err);
        if (code == TP_OK)
            code = sweep_folder(s, below, whole);
        tp_os_close(&below);
    }
    if (code == TP_OK && s->act && tp_os.unlinkat(dir, name, folder ? AT_REMOVEDIR : 0))
        code = tp_os_fail(c->err, errno, path, "cannot remove it");
    free(path);
    return code;
}

/* FOLDER is NULL for the partial directory itself. */
static enum tp_code sweep_folder(const struct sweep *s, int dir, const char *folder)
{
    struct tp_commit *c = s->c;
    struct tp_os_list list = {0};
    enum tp_code code = tp_below_list(dir, c->partial, &list, c->err);
    for (size_t i = 0; i < list.count && code == TP_OK; i++) {
        char *whole = tp_os_format(c->err, "%s%s%s", folder ? folder : "", folder ? "/" : "",
                                   list.names[i]);
        code = whole ? sweep_entry(s, dir, list.names[i], whole) : TP_E_MEMORY;
        free(whole);
    }
    tp_os_list_free(&list);
    return code;
}

static enum tp_code sort_known(struct sweep *s)
{
    const struct tp_plan *plan = s->c->plan;
    const size_t others = plan->ckpt->other_count;
    s->shards = tp_os_alloc((plan->file_count + 1) * sizeof *s->shards, s->c->err);
    s->copies = tp_os_alloc((others + 1) * sizeof *s->copies, s->c->err);
    if (!s->shards || !s->copies)
        return TP_E_MEMORY;
    for (size_t f = 0; f < plan->file_count && s->c->journal.done; f++)
        if (s->c->journal.done[f])
            s->shards[s->shard_count++] = (struct tp_name_key){plan->files[f].name, f};
    for (size_t i = 0; i < others; i++)
        s->copies[i] = (struct tp_name_key){plan->ckpt->others[i], i};
    tp_names_sort(s->shards, s->shard_count);
    tp_names_sort(s->copies, others);
    return TP_OK;
}

/* Removes (`act`) what an interrupted run left besides proven shards, which is made anew: the
 * source may have other small files by now. With `all` nothing stays. What no conversion writes is
 * somebody's: then nothing is removed. */
static enum tp_code sweep(struct tp_commit *c, bool act, bool all)
{
    struct sweep s = {.c = c, .all = all};
    enum tp_code code = sort_known(&s);
    if (code == TP_OK)
        code = sweep_folder(&s, c->dir, NULL);
    s.act = true;
    if (code == TP_OK && act)
        code = sweep_folder(&s, c->dir, NULL);
    free(s.shards);
    free(s.copies);
    return code;
}

enum tp_code tp_commit_source_id(const struct tp_commit *c, uint8_t hash[TP_HASH_BYTES])
{
    struct tp_text text = {0};
    const struct tp_checkpoint *ckpt = c->plan->ckpt;
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < ckpt->file_count && code == TP_OK; i++)
        code = tp_text_addf(&text, c->err, "%lld\n", (long long)ckpt->files[i].stamp.ctime_ns);
    if (code == TP_OK)
        tp_hash(text.data, text.size, hash);
    tp_text_free(&text);
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
static enum tp_code check_other_work(struct tp_commit *c, const char *command)
{
    const struct tp_journal *journal = &c->journal;
    bool same = command && journal->command && strcmp(command, journal->command) == 0;
    if (!journal->names_shards || c->options->if_exists == TP_EXISTS_REPLACE ||
        (c->others && journal->other_source))
        return TP_OK;
    if (journal->command && !journal->other_source && !same)
        tp_err_hint(c->err, "finish what is there (%.800s) or move it away; --force replaces it",
                    journal->command);
    else
        tp_err_hint(c->err, "--force starts over; or move this directory away to keep it");
    return partial_in_the_way(
        c, journal->other_source ? "an interrupted run is here, and shards of the source have "
                                   "changed since, or their permissions or links"
           : same ? "an interrupted run of this command is here, and its source has changed since, "
                    "or another file that it reads, or the version of tilepack"
                  : "an interrupted run is here, of another conversion, with other options or of a "
                    "source that has changed since");
}

static enum tp_code open_partial(struct tp_commit *c)
{
    bool foreign = false;
    struct tp_text command = {0};
    uint8_t source[TP_HASH_BYTES];
    struct tp_journal_work work = {c->plan, source, NULL, c->options->zstd > 0};
    enum tp_code code = tp_commit_paths(c);
    if (code == TP_OK && (code = make_partial(c)) == TP_OK &&
        (code = own_command(c, &command)) == TP_OK &&
        (code = tp_commit_source_id(c, source)) == TP_OK) {
        work.command = command.data;
        code = tp_journal_open(c->dir, c->partial, TP_JOURNAL_NAME, &work, &c->journal, &foreign,
                               c->err);
    }
    if (code == TP_OK && foreign)
        code = check_other_work(c, command.data);
    if (code == TP_OK && (code = sweep(c, false, false)) == TP_OK && foreign)
        code = tp_journal_restart(&c->journal, &work, c->err);
    tp_text_free(&command);
    return code ? code : sweep(c, true, false);
}

static enum tp_code shard_done(void *arg, uint32_t file, const uint8_t hash[TP_HASH_BYTES],
                               struct tp_err *err)
{
    struct tp_commit *c = arg;
    struct tp_read_list read;
    enum tp_code code = tp_read_sums_file(c->sums, file, &read, err);
    pthread_mutex_lock(&c->lock);
    if (code == TP_OK)
        code = tp_journal_add(&c->journal, c->plan, file, hash, &read, err);
    pthread_mutex_unlock(&c->lock);
    free(read.items);
    return code;
}

/* An output that was not there when this one was begun, which is complete by now. */
static enum tp_code fail_late(struct tp_commit *c)
{
    c->err->reason = tp_found_reason(TP_FOUND_LATE);
    tp_err_path(c->err, c->output);
    tp_err_hint(c->err, "it came while this output was written, which is left as %s: move it "
                "away and run the command again, or remove that", c->partial);
    return tp_fail(c->err, TP_E_EXISTS, "the output exists already");
}

/* The moment of commit. */
static enum tp_code publish(struct tp_commit *c)
{
    struct stat st;
    struct tp_err seen = {0};
    enum tp_code code = tp_os_fsync_dir(c->partial, c->err);
    if (code || (code = tp_commit_check_place(c->partial, c->dir, c->err)))
        return code;
    bool replaces = c->options->if_exists == TP_EXISTS_REPLACE &&
                    tp_os_there(c->output, &st, c->err) && !tp_commit_is_empty(c->output, c->err);
    if (c->err->code)
        return c->err->code;
    if (replaces) {
        code = tp_commit_replace(c);
    } else if ((code = tp_commit_remove_file(c->dir, c->partial, TP_REPLACES_NAME, c->err))) {
        return code; /* of a run that was interrupted before it replaced anything */
    } else if (tp_os_rename(c->partial, c->output, &seen)) { /* an empty directory makes way */
        bool taken = seen.sys == ENOTEMPTY || seen.sys == EEXIST || seen.sys == ENOTDIR;
        if (taken && tp_os_there(c->output, &st, c->err))
            return fail_late(c);
        if (!c->err->code)
            *c->err = seen;
        code = c->err->code;
    }
    return code ? code : tp_commit_finalize(c, c->dir);
}

/* Tells the observer, if there is one, that `count` shards (`of` so many) are there already. */
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
    struct tp_invariants copies;
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
    tp_invariants_close(&copies);
    tp_file_sink_close(&sink);
    tp_read_sums_close(&sums);
    return code;
}

static enum tp_code finish(struct tp_commit *c)
{
    enum tp_code code = tp_commit_reserve_files(c);
    for (size_t f = 0; f < c->plan->file_count && code == TP_OK; f++)
        if (!c->others || !c->others[f])
            code = tp_commit_record_shard(c, (uint32_t)f);
    if (code == TP_OK && c->texts)
        code = c->texts(c);
    else if (code == TP_OK && (code = tp_commit_write_texts(c)) == TP_OK)
        code = tp_commit_note_source(c);
    return code ? code : publish(c);
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
    code = complete(c, result);
    if (code && !c->begun && !c->journal.done_count) { /* refused: nothing stays */
        struct tp_err why = *c->err, ignored = {0};
        *c->err = ignored;
        if (tp_os_has_name(c->dir, c->partial, &ignored) && /* not what another process put there */
            sweep(c, true, true) == TP_OK)
            tp_os.unlinkat(AT_FDCWD, c->partial, AT_REMOVEDIR);
        *c->err = why;
    }
    return code;
}
