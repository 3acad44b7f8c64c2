/* The output's place: whether it may be written. What is there already is looked at in
 * commit_again.c, and what is replaced is commit_old.c's.
 *
 * Writes nothing, and removes nothing but what an output that is complete does not need.
 */
#include "pack/commit/commit_build.h"

#include "base/num.h"
#include "pack/commit/partial_name.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* One of its shards. */
static bool is_source(const struct tp_plan *plan, const struct stat *st)
{
    for (size_t i = 0; i < plan->ckpt->file_count; i++)
        if (plan->ckpt->files[i].device == (uint64_t)st->st_dev &&
            plan->ckpt->files[i].inode == (uint64_t)st->st_ino)
            return true;
    return false;
}

/* Never write into what is being read. */
enum tp_code tp_commit_check_not_source(const struct tp_plan *plan, const char *path,
                                        struct tp_err *err)
{
    struct stat out, src;
    if (!tp_os_there(path, &out, err)) /* what does not exist cannot be the source */
        return err->code;
    bool same = tp_os_there(plan->ckpt->path, &src, err) && src.st_dev == out.st_dev &&
                src.st_ino == out.st_ino;
    if (err->code)
        return err->code;
    if (!same && !is_source(plan, &out))
        return TP_OK;
    return tp_refuse_at(err, TP_E_USAGE, path, "choose another output with -o",
                        "output and source are the same");
}

enum tp_code tp_commit_check_name(const char *path, struct tp_err *err)
{
    if (!tp_os.is_mount(path))
        return TP_OK;
    return tp_refuse_at(err, TP_E_USAGE, path,
                        "choose an output in the file system that is mounted there, or beside it, "
                        "with -o",
                        "it is a mount point: the finished output cannot take its place");
}

/* An empty directory is not in the way. */
bool tp_commit_is_empty(const char *path, struct tp_err *err)
{
    struct tp_os_list list;
    struct tp_err ignored = {0};
    bool empty = tp_os_list(path, &list, &ignored) == TP_OK && list.count == 0;
    tp_err_take_unread(err, &ignored);
    tp_os_list_free(&list);
    return empty;
}

enum tp_code tp_commit_paths(struct tp_commit *c)
{
    if (c->partial)
        return TP_OK;
    c->partial = tp_partial_name(c->output, c->plan->single_file && !c->others, c->err);
    c->parent = tp_os_parent(c->output, c->err);
    c->old = tp_beside_name(c->output, "", ".old", 0, c->err);
    return c->partial && c->parent && c->old ? TP_OK : TP_E_MEMORY;
}

enum tp_code tp_commit_check_place(const char *path, int fd, struct tp_err *err)
{
    if (tp_os_has_name(fd, path, err) || err->code)
        return err->code;
    return tp_refuse_at(err, TP_E_USAGE, path, "run the command again",
                        "somebody has removed or replaced the unfinished output");
}

/* ---- what is read ---- */

/* A place that is about to be written, and moved away if it is there. */
struct place {
    const char *path;
    char *real; /* without links */
    struct tp_err *err;
};

/* What does not exist is nowhere. */
static enum tp_code fail_unresolved(const char *path, struct tp_err *err)
{
    return tp_sys_absent(errno) ? TP_OK
                                : tp_os_fail(err, errno, path, "cannot resolve the path");
}

/* TP_E_USAGE when the input is the place, or lies in it. One that is gone is in no place. */
static enum tp_code check_input(const struct place *place, const char *input)
{
    char *real = tp_os.realpath(input, NULL);
    if (!real)
        return fail_unresolved(input, place->err);
    size_t size = strlen(place->real);
    bool inside = strncmp(real, place->real, size) == 0 &&
                  (real[size] == '/' || !real[size] || place->real[size - 1] == '/');
    free(real);
    if (!inside)
        return TP_OK;
    return tp_refuse_at(place->err, TP_E_USAGE, place->path, "choose another output with -o",
                        "it holds what is being read, '%.300s'", input);
}

enum tp_code tp_commit_check_inputs(const struct tp_commit *c, const char *path)
{
    const struct tp_checkpoint *ckpt = c->plan->ckpt;
    struct place place = {path, tp_os.realpath(path, NULL), c->err};
    if (!place.real)
        return fail_unresolved(path, c->err);
    enum tp_code code = check_input(&place, ckpt->path);
    for (size_t i = 0; i < ckpt->file_count && code == TP_OK; i++)
        code = check_input(&place, ckpt->files[i].path);
    for (size_t i = 0; c->request && i < c->request->input_count && code == TP_OK; i++)
        code = check_input(&place, c->request->inputs[i]);
    free(place.real);
    return code;
}

/* ---- what is there ---- */

static enum tp_code fail_kind(const struct tp_commit *c, const struct stat *output)
{
    c->err->reason = tp_found_reason(TP_FOUND_KIND);
    return tp_refuse_at(c->err, TP_E_EXISTS, c->output, "choose another output with -o",
                        "the output is a %s already and would become a %s",
                        S_ISDIR(output->st_mode)   ? "directory"
                        : S_ISREG(output->st_mode) ? "file" : "device or pipe",
                        c->plan->single_file ? "file" : "directory");
}

/* Whether it may be replaced, which is said before the work. */
static enum tp_code check_replaced(struct tp_commit *c)
{
    struct stat st;
    enum tp_code code;
    if ((code = tp_commit_check_inputs(c, c->output)) ||
        (code = tp_commit_check_name(c->output, c->err)))
        return code;
    if (c->plan->single_file)
        return tp_commit_keep_file(c, false);
    return tp_os_link_there(c->old, &st, c->err) ? tp_commit_fail_old(c) : c->err->code;
}

/* What is there is not replaced. */
static enum tp_code compare(struct tp_commit *c, struct tp_convert_result *result)
{
    const enum tp_if_exists if_exists = c->options->if_exists;
    struct tp_look look = {.found = TP_FOUND_FILE};
    if (!c->plan->single_file)
        tp_commit_look(c, if_exists == TP_EXISTS_COMPARE, &look);
    else if (!tp_commit_is_own_file(c->output, c->err))
        look.found = TP_FOUND_FOREIGN;
    if (c->err->code)
        return c->err->code;
    bool same = look.found <= TP_FOUND_AGAIN;
    result->reason = tp_found_reason(look.found);
    result->skipped = if_exists == TP_EXISTS_SKIP;
    result->already_done = same && if_exists != TP_EXISTS_FAIL;
    return result->skipped || result->already_done ? TP_OK : tp_commit_fail_found(c, &look);
}

enum tp_code tp_commit_check_output(struct tp_commit *c, struct tp_convert_result *result)
{
    struct stat st;
    enum tp_code code = tp_commit_check_not_source(c->plan, c->output, c->err);
    if (code || (code = tp_commit_paths(c)))
        return code;
    if (!tp_os_there(c->output, &st, c->err))
        return c->err->code;
    bool directory = S_ISDIR(st.st_mode);
    if (directory == c->plan->single_file || (!directory && !S_ISREG(st.st_mode)))
        return fail_kind(c, &st);
    if (directory && (code = tp_commit_finalize_former(c)))
        return code;
    if (directory && tp_commit_is_empty(c->output, c->err))
        return tp_commit_check_name(c->output, c->err);
    if (c->err->code)
        return c->err->code;
    return c->options->if_exists == TP_EXISTS_REPLACE ? check_replaced(c) : compare(c, result);
}

bool tp_commit_is_done(struct tp_commit *c)
{
    struct tp_look look;
    return tp_commit_look(c, true, &look) == TP_OK && look.found <= TP_FOUND_AGAIN;
}

/* ---- room ---- */

/* Bytes of weights that are to come. Of archives, whose sizes nobody knows, the largest file: it
 * is written as it is before it is packed. */
static uint64_t shard_bytes(const struct tp_commit *c, const bool *skip)
{
    const struct tp_plan *plan = c->plan;
    uint64_t sum = 0, largest = 0;
    for (size_t f = 0; f < plan->file_count; f++) {
        if ((skip && skip[f]) || (c->journal.done && c->journal.done[f]))
            continue;
        sum += plan->files[f].size;
        largest = tp_max_u64(largest, plan->files[f].size);
    }
    return c->options->zstd ? largest : sum;
}

enum tp_code tp_commit_check_space(const struct tp_commit *c, const char *directory,
                                   const bool *skip, bool copies)
{
    uint64_t available, need = shard_bytes(c, skip) + (copies ? tp_commit_copied_bytes(c) : 0);
    if (c->err->code)
        return c->err->code;
    if (tp_os.free_bytes(directory, &available) || available >= need)
        return TP_OK;
    return tp_refuse_at(c->err, TP_E_IO, directory,
                        "make room, or choose an output on another file system with -o",
                        "the output takes %s%llu MB, but only %llu MB are free there",
                        c->options->zstd ? "at least " : "",
                        (unsigned long long)(need / 1000000 + (need % 1000000 != 0)),
                        (unsigned long long)(available / 1000000));
}
