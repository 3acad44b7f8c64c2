/* One conversion by one process: a directory (commit_directory.c), or a single file, which
 * is written beside its name and renamed. A single file is not resumed.
 *
 * Invariant: the file under the unfinished name is locked from before its first byte until after
 * it has the output's name; so no second process writes what is published.
 */
#include "pack/commit/commit_build.h"

#include "pack/os/below.h"
#include "pack/run/budget.h"
#include "pack/run/run.h"
#include "pack/sink/compress.h"
#include "pack/source/invariants.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A file that came since the last look at the output's name stays; a link that leads
 * nowhere is no content, and makes way. */
static enum tp_code publish_file(struct tp_commit *c)
{
    struct stat st;
    bool taken = false, replaces = c->options->if_exists == TP_EXISTS_REPLACE;
    enum tp_code code = replaces ? tp_commit_keep_file(c, true)
                                 : tp_os_rename_new(c->partial, c->output, &taken, c->err);
    if (code || (!replaces && !taken))
        return code;
    if (!replaces && tp_os_there(c->output, &st, c->err))
        return tp_commit_fail_found(c, &(struct tp_look){.found = TP_FOUND_LATE});
    return c->err->code ? c->err->code : tp_os_rename(c->partial, c->output, c->err);
}

/* The archive, open as *packed, takes the place, and *lock, of the plain file that it was made of,
 * which is *packed then. */
static enum tp_code take_archive(struct tp_commit *c, const char *archive, int *packed, int *lock)
{
    int plain = *lock;
    bool unlocked;
    enum tp_code code = tp_commit_check_place(c->partial, *lock, c->err);
    if (code || (code = tp_commit_check_place(archive, *packed, c->err)) ||
        (code = tp_os_lock(*packed, archive, &unlocked, c->err)) ||
        (code = tp_os_rename(archive, c->partial, c->err)))
        return code;
    *lock = *packed;
    *packed = plain;
    return TP_OK;
}

/* Into the file that is locked; *packed is the archive that was made of it, open, or -1. */
static enum tp_code write_file(struct tp_commit *c, struct tp_run_options *run,
                               const struct tp_budget *budget, int lock, int *packed)
{
    struct tp_file_sink sink = {0};
    enum tp_code code = tp_file_sink_open(&sink, c->plan, c->parent, c->partial, budget->leaves,
                                          budget->drop, c->err);
    sink.only_fd = lock;
    sink.mode = tp_checkpoint_file_mode(c->plan->ckpt);
    sink.zstd = c->options->zstd;
    sink.threads = budget->encoders;
    if (code == TP_OK)
        code = tp_commit_run(c, &sink.sink, run);
    *packed = sink.archive;
    tp_file_sink_close(&sink);
    return code ? code : tp_checkpoint_unchanged(c->plan->ckpt, c->err);
}

/* With the unfinished file locked. A single file is not resumed: what fails leaves none. */
static enum tp_code make_file(struct tp_commit *c, struct tp_run_options *run,
                              const struct tp_budget *budget, int *lock)
{
    struct tp_err gone = {0};
    int packed = -1;
    char *archive = tp_os_format(c->err, "%s" TP_ZST_SUFFIX, c->partial);
    enum tp_code code = archive ? write_file(c, run, budget, *lock, &packed) : TP_E_MEMORY;
    if (code == TP_OK && run->zstd)
        code = take_archive(c, archive, &packed, lock);
    if (code == TP_OK && (code = tp_commit_check_place(c->partial, *lock, c->err)) == TP_OK)
        code = publish_file(c);
    if (code && packed >= 0 && tp_os_has_name(packed, archive, &gone)) /* not another process's */
        tp_os.unlink(archive);
    if (code && tp_os_has_name(*lock, c->partial, &gone))
        tp_os.unlink(c->partial);
    tp_os_close(&packed);
    free(archive);
    return code;
}

static enum tp_code lock_file(struct tp_commit *c, struct tp_run_options *run,
                              const struct tp_budget *budget, struct tp_convert_result *result)
{
    enum tp_code code;
    int lock = -1;
    if ((code = tp_commit_paths(c)) ||
        (code = tp_commit_check_name(c->partial, c->err)) ||
        (code = tp_commit_check_not_source(c->plan, c->partial, c->err)) ||
        (code = tp_commit_check_inputs(c, c->partial)) ||
        (code = tp_commit_check_space(c, c->parent, NULL, false)))
        return code;
    code = tp_below_open_own(AT_FDCWD, c->partial, tp_checkpoint_file_mode(c->plan->ckpt),
                             c->partial, &lock, c->err);
    if (code == TP_OK && (code = tp_os_lock(lock, c->partial, &result->unlocked, c->err)) == TP_OK)
        code = make_file(c, run, budget, &lock);
    tp_os_close(&lock);
    if (code == TP_OK && (code = tp_os_fsync_dir(c->parent, c->err))) {
        c->err->hint[0] = '\0';
        tp_err_hint(c->err, "the output is complete and in its place, which the power may still "
                            "take from it: sync the file system");
    }
    return code;
}

static enum tp_code run_file(struct tp_commit *c, struct tp_convert_result *result)
{
    struct tp_run_options run = c->options->run;
    struct tp_invariants copies;
    struct tp_budget budget;
    run.zstd = c->options->zstd;
    enum tp_code code = tp_commit_open_copies(c, &copies, &run);
    if (code == TP_OK && (code = tp_budget_run(c->plan, &run, &budget, c->err)) == TP_OK)
        code = lock_file(c, &run, &budget, result);
    tp_invariants_close(&copies);
    return code;
}

enum tp_code tp_convert(const struct tp_plan *plan, const struct tp_request *request,
                        const char *output, const struct tp_convert_options *options,
                        struct tp_convert_result *result, struct tp_err *err)
{
    struct tp_commit c = {.plan = plan, .request = request, .options = options, .output = output,
                       .result = result, .err = err, .dir = -1, .journal = {.fd = -1}};
    *result = (struct tp_convert_result){.bytes_in = plan->bytes_in, .bytes_out = plan->bytes_out};
    if (options->discard) {
        struct tp_run_options run = options->run;
        struct tp_budget ignored;
        enum tp_code code = tp_budget_run(plan, &run, &ignored, err);
        return code ? code : tp_run(plan, &tp_discard_sink, &run, err);
    }
    pthread_mutex_init(&c.lock, NULL);
    enum tp_code code = tp_commit_check_output(&c, result);
    if (code == TP_OK && !result->already_done && !result->skipped)
        code = plan->single_file ? run_file(&c, result) : tp_commit_directory(&c, result);
    tp_commit_close(&c);
    return code;
}
