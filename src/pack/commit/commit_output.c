/* The output's place: whether it may be written. What --force may replace is in
 * commit_replace.c, whether it is complete in commit_done.c.
 *
 * Writes nothing, and removes nothing but what an output that is complete does not need.
 */
#include "pack/commit/commit_build.h"

#include "base/num.h"
#include "pack/commit/partial_name.h"
#include "pack/os/below.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
    if (!same && !tp_commit_is_source(plan, &out))
        return TP_OK;
    tp_err_path(err, path);
    tp_err_hint(err, "choose another output with -o");
    return tp_fail(err, TP_E_USAGE, "output and source are the same");
}

enum tp_code tp_commit_check_name(const char *path, struct tp_err *err)
{
    char *parent = tp_os_parent(path, err);
    bool free_to_take = parent && tp_os.may_take(parent, path);
    free(parent);
    if (err->code)
        return err->code;
    if (!free_to_take) {
        tp_err_path(err, path);
        tp_err_hint(err, "choose another output with -o, or have its owner move it away");
        return tp_fail(err, TP_E_USAGE, "it belongs to another user, and the sticky bit of its "
                       "folder lets nobody else replace it");
    }
    if (!tp_os.is_mount(path))
        return TP_OK;
    tp_err_path(err, path);
    tp_err_hint(err, "choose an output in the file system that is mounted there, or beside it, "
                     "with -o");
    return tp_fail(err, TP_E_USAGE, "it is a mount point: the finished output cannot take its "
                   "place");
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
    c->partial = tp_partial_name(c->output, false, c->err);
    c->parent = tp_os_parent(c->output, c->err);
    return c->partial && c->parent ? TP_OK : TP_E_MEMORY;
}

enum tp_code tp_commit_check_parent(const struct tp_commit *c)
{
    struct tp_err local = {0};
    int fd = -1;
    enum tp_code code = tp_os_open(c->parent, O_RDONLY | O_DIRECTORY, 0, &fd, &local);
    tp_os_close(&fd);
    if (!code || local.sys != EACCES) /* whoever makes something there says the rest */
        return TP_OK;
    tp_err_hint(c->err, "give yourself the right to read it, or choose another output with -o");
    return tp_os_fail(c->err, local.sys, c->parent, "cannot open the folder of the output, so that "
                      "the output's name could not be made durable");
}

enum tp_code tp_commit_check_place(const char *path, int fd, struct tp_err *err)
{
    if (tp_os_has_name(fd, path, err) || err->code)
        return err->code;
    tp_err_path(err, path);
    tp_err_hint(err, "run the command again");
    return tp_fail(err, TP_E_USAGE, "somebody has removed or replaced the unfinished output");
}

/* Whether another process writes there: the unfinished output of one may be the output of this one,
 * by its name. */
static enum tp_code check_at_rest(const struct tp_commit *c)
{
    struct tp_os_list list;
    enum tp_code code = tp_os_list(c->output, &list, c->err);
    for (size_t i = 0; i < list.count && code == TP_OK; i++) {
        struct tp_err ignored = {0};
        bool unlocked;
        int fd = -1;
        char *path = tp_commit_is_own(list.names[i])
                         ? tp_os_format(c->err, "%s/%s", c->output, list.names[i]) : NULL;
        if (path && tp_below_open(AT_FDCWD, path, O_RDWR, path, &fd, &ignored) == TP_OK)
            code = tp_os_lock(fd, path, &unlocked, c->err);
        tp_err_memory(c->err, &ignored);
        tp_os_close(&fd);
        free(path);
        code = code ? code : c->err->code;
    }
    tp_os_list_free(&list);
    return code;
}

enum tp_code tp_commit_check_replaceable(struct tp_commit *c, const struct stat *output)
{
    bool directory = S_ISDIR(output->st_mode);
    if (c->plan->single_file == !directory && (directory || S_ISREG(output->st_mode))) {
        enum tp_code code =
            directory ? tp_commit_check_replace(c->plan, c->output, false, c->err)
                      : tp_commit_check_replace_file(c->output, output, c->err);
        if (code == TP_OK && directory)
            code = check_at_rest(c);
        return code ? code : tp_commit_check_inputs(c, c->output);
    }
    tp_err_path(c->err, c->output);
    tp_err_hint(c->err, "choose another output with -o");
    return tp_fail(c->err, TP_E_USAGE, "the output is a %s already and would become a %s",
                   directory ? "directory" : S_ISREG(output->st_mode) ? "file" : "device or pipe",
                   c->plan->single_file ? "file" : "directory");
}

/* No hint promises what --force refuses. */
enum tp_code tp_commit_in_the_way(struct tp_commit *c, const char *forced)
{
    struct stat st;
    struct tp_err refused = {0}, *err = c->err;
    if (!tp_os_there(c->output, &st, err))
        return err->code ? err->code : tp_fail(err, TP_E_USAGE, "the output exists already");
    c->err = &refused;
    bool may = tp_commit_check_replaceable(c, &st) == TP_OK;
    c->err = err;
    tp_err_memory(err, &refused);
    tp_err_path(err, c->output);
    tp_err_hint(err, "%s",
                may ? forced
                : S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)
                    ? "choose another output with -o"
                    : "it is a device or pipe: choose another output with -o");
    return tp_fail(err, TP_E_USAGE, "the output exists already");
}

bool tp_commit_has_old(const char *output, const char *partial, struct tp_err *err)
{
    struct tp_err of_output = {0}; /* an output that cannot be looked at is met again */
    bool owns = tp_below_is_dir(partial, err) && tp_commit_holds_own(output, &of_output);
    tp_err_memory(err, &of_output);
    return owns && !err->code && !tp_commit_holds_own(partial, err) && !err->code;
}

enum tp_code tp_commit_refuse_left(const char *partial, const char *what, struct tp_err *err)
{
    tp_err_path(err, partial);
    tp_err_hint(err, "the output is complete; --force deletes what is here, or do it yourself");
    return tp_fail(err, TP_E_USAGE, "what the output has replaced is still here: the %s was "
                   "interrupted before it was deleted", what);
}

/* The output is complete, and all that is left to do is what an interrupted run had no time for. */
static enum tp_code end_interrupted(struct tp_commit *c, bool left)
{
    enum tp_code code;
    if (!left)
        return tp_commit_end_journals(-1, c->output, c->err);
    if (!c->options->force && !tp_commit_is_empty(c->partial, c->err))
        return c->err->code ? c->err->code : tp_commit_refuse_left(c->partial, "run", c->err);
    code = tp_commit_check_inputs(c, c->partial);
    return code ? code : tp_commit_end(c, true);
}

enum tp_code tp_commit_check_output(struct tp_commit *c, struct tp_convert_result *result)
{
    struct stat st;
    enum tp_code code = tp_commit_check_not_source(c->plan, c->output, c->err);
    if (code)
        return code;
    if (!tp_os_there(c->output, &st, c->err))
        return c->err->code;
    if (c->options->force && (code = tp_commit_check_replaceable(c, &st)))
        return code;
    bool directory = S_ISDIR(st.st_mode) && !c->plan->single_file;
    if (directory && (code = tp_commit_paths(c)))
        return code;
    bool left = directory && tp_commit_has_old(c->output, c->partial, c->err);
    if (c->err->code)
        return c->err->code;
    if (directory && (!c->options->force || left) && tp_commit_is_done(c)) {
        result->already_done = true;
        return end_interrupted(c, left);
    }
    if (c->err->code || tp_commit_check_name(c->output, c->err))
        return c->err->code;
    if (c->options->force)
        return TP_OK;
    if (S_ISDIR(st.st_mode) && tp_commit_is_empty(c->output, c->err))
        return TP_OK;
    return tp_commit_in_the_way(c, TP_COMMIT_FORCED);
}

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
    uint64_t room, need = shard_bytes(c, skip) + (copies ? tp_commit_copied_bytes(c) : 0);
    if (c->err->code)
        return c->err->code;
    if (tp_os.free_bytes(directory, &room) || room >= need)
        return TP_OK;
    tp_err_path(c->err, directory);
    tp_err_hint(c->err, "make room, or choose an output on another file system with -o");
    return tp_fail(c->err, TP_E_IO, "the output takes %s%llu MB, but only %llu MB are free there",
                   c->options->zstd ? "at least " : "",
                   (unsigned long long)(need / 1000000 + (need % 1000000 != 0)),
                   (unsigned long long)(room / 1000000));
}
