/* What --force replaces, and what is left to do once an output has its name.
 *
 * In one step the new output and what was there change places; what was there then becomes OUT.old.
 * All of it is removed where all of it is as this program has written it, by its own manifest; else
 * none of it, and whoever called says where it lies. That there is something to end stands in the
 * output itself (TP_REPLACES_NAME), beside its journal, until it is done: so the next run ends what
 * an interrupted one has left.
 *
 * Invariant: nothing is removed but by its name in a directory that is open, and a directory only
 * when it is empty.
 */
#include "pack/commit/commit_build.h"

#include "base/suffix.h"
#include "pack/commit/shard_file.h"
#include "pack/os/below.h"
#include "pack/sink/compress.h"
#include "pack/source/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL (UINT64_C(1) << 20) /* files below it are compared by their hash, too */

/* ---- whether it is as it was written ---- */

/* Whether a small file has the hash that the manifest says. */
static bool has_hash(int fd, const struct tp_manifest_file *file, struct tp_err *err)
{
    uint8_t hash[TP_HASH_BYTES];
    struct tp_shard_file shard;
    bool archive = tp_ends_with(file->name, ".safetensors" TP_ZST_SUFFIX);
    bool weights = archive || tp_ends_with(file->name, ".safetensors");
    bool has = tp_shard_open(&shard, fd, file->size, archive, file->name, err) == TP_OK &&
               (!weights || tp_shard_find_digits(&shard, err) == TP_OK) &&
               tp_shard_hash(&shard, 1, hash, err) == TP_OK &&
               memcmp(hash, file->hash, sizeof hash) == 0;
    tp_shard_close(&shard);
    return has;
}

/* A file of the directory that is judged; *why: it is not as it was written. */
static enum tp_code judge_file(int dir, const struct tp_manifest *manifest, const char *name,
                               const char **why, struct tp_err *err)
{
    const struct tp_manifest_file *file = tp_manifest_find(manifest, name);
    bool own = strcmp(name, TP_MANIFEST_NAME) == 0;
    struct tp_err seen = {0};
    struct stat st;
    int fd = -1;
    *why = NULL;
    if (tp_below_open_regular(dir, name, name, &fd, &st, &seen))
        *why = "no plain file";
    else if (!own && !file)
        *why = "not in its manifest";
    else if (st.st_nlink != 1)
        *why = "a file of several names";
    else if (!own && (uint64_t)st.st_size != file->size)
        *why = "of another size than its manifest says";
    else if (!own && file->size < SMALL && !has_hash(fd, file, &seen))
        *why = "changed since it was written";
    tp_os_close(&fd);
    tp_err_take_unread(err, &seen);
    return err->code;
}

/* Why the directory is not to be removed, in c->result->old_why; "": it is. */
static enum tp_code judge(const struct tp_commit *c, int dir, const struct tp_os_list *list)
{
    struct tp_manifest manifest = {0};
    struct tp_err seen = {0};
    char *say = c->result->old_why;
    const size_t capacity = sizeof c->result->old_why;
    const char *why;
    if (!list->count) /* the rest of a removal */
        return TP_OK;
    tp_manifest_read(c->old, &manifest, &seen);
    tp_err_take_unread(c->err, &seen);
    if (!manifest.intact)
        snprintf(say, capacity, "it has no manifest, as tilepack writes one");
    for (size_t i = 0; i < list->count && !*say && !c->err->code; i++)
        if (judge_file(dir, &manifest, list->names[i], &why, c->err) == TP_OK && why)
            snprintf(say, capacity, "'%.150s' in it is %s", list->names[i], why);
    tp_manifest_close(&manifest);
    return c->err->code;
}

/* ---- removing it ---- */

/* A right that is missing keeps what is there, and no more is lost by that. */
static bool is_refused(const struct tp_err *err)
{
    return err->sys == EACCES || err->sys == EPERM || err->sys == EROFS;
}

/* The manifest goes last: what an interrupted removal leaves is then judged in the same way. */
static enum tp_code remove_files(int dir, const char *path, const struct tp_os_list *list,
                                 struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (int last = 0; last < 2; last++)
        for (size_t i = 0; i < list->count && code == TP_OK; i++)
            if ((strcmp(list->names[i], TP_MANIFEST_NAME) == 0) == last)
                code = tp_commit_remove_file(dir, path, list->names[i], err);
    return code;
}

static enum tp_code remove_old(struct tp_commit *c, int dir, const struct tp_os_list *list)
{
    struct tp_err seen = {0};
    enum tp_code code = remove_files(dir, c->old, list, &seen);
    if (code == TP_OK && tp_os.unlinkat(AT_FDCWD, c->old, AT_REMOVEDIR))
        code = tp_os_fail(&seen, errno, c->old, "cannot remove it");
    if (code == TP_OK)
        return tp_os_fsync_dir(c->parent, c->err);
    if (!is_refused(&seen)) {
        *c->err = seen;
        return code;
    }
    snprintf(c->result->old_why, sizeof c->result->old_why, "%.200s", seen.what);
    return TP_OK;
}

/* Of what lies at OUT.old. */
static enum tp_code dispose(struct tp_commit *c)
{
    struct tp_os_list list = {0};
    struct tp_err seen = {0};
    int dir = -1;
    char *say = c->result->old_why;
    *say = '\0';
    if (tp_below_open(AT_FDCWD, c->old, O_RDONLY | O_DIRECTORY, c->old, &dir, &seen) ||
        tp_below_list(dir, c->old, &list, &seen)) {
        if (!is_refused(&seen))
            tp_err_take_unread(c->err, &seen);
        snprintf(say, sizeof c->result->old_why, "%.200s", seen.what);
    }
    enum tp_code code = c->err->code;
    if (code == TP_OK && !*say && (code = judge(c, dir, &list)) == TP_OK && !*say)
        code = remove_old(c, dir, &list);
    tp_os_list_free(&list);
    tp_os_close(&dir);
    if (code == TP_OK && *say && !(c->result->old = tp_os_copy(c->err, c->old)))
        code = TP_E_MEMORY;
    return code;
}

/* ---- the step, and what follows it ---- */

/* Where a file system knows no exchange: for a moment nothing has the name. */
static enum tp_code replace_in_two(struct tp_commit *c)
{
    bool taken = false;
    enum tp_code code = tp_os_rename_new(c->output, c->old, &taken, c->err);
    if (code == TP_OK && taken)
        return tp_commit_fail_old(c);
    if (code == TP_OK && (code = tp_os_rename(c->partial, c->output, c->err)))
        tp_os.rename(c->old, c->output);
    return code;
}

enum tp_code tp_commit_replace(struct tp_commit *c)
{
    enum tp_code code = tp_commit_write_small(c, TP_REPLACES_NAME, "", 0, false);
    if (code == TP_OK)
        code = tp_os_fsync_dir(c->partial, c->err);
    if (code || tp_os.exchange(c->partial, c->output) == 0)
        return code;
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)
        return replace_in_two(c);
    int sys = errno;
    tp_err_hint(c->err, "the new output is complete in %s: move it yourself", c->partial);
    return tp_os_fail(c->err, sys, c->output, "cannot exchange the old output for the new");
}

/* Whether a file is there that only an output has which is being written, or is not finalized. */
static bool has(const struct tp_commit *c, const char *name)
{
    struct stat st;
    char *path = tp_os_format(c->err, "%s/%s", c->output, name);
    bool is = tp_os_link_there(path, &st, c->err);
    free(path);
    return is;
}

/* What was replaced: it has the name of the unfinished output, or OUT.old, or is gone. */
static enum tp_code finalize_old(struct tp_commit *c)
{
    struct stat st;
    bool taken = false;
    enum tp_code code = TP_OK;
    if (tp_os_link_there(c->partial, &st, c->err))
        code = tp_os_rename_new(c->partial, c->old, &taken, c->err);
    if (code || c->err->code)
        return c->err->code;
    if (taken) {
        snprintf(c->result->old_why, sizeof c->result->old_why, "there is another OUT.old");
        return (c->result->old = tp_os_copy(c->err, c->partial)) ? TP_OK : TP_E_MEMORY;
    }
    /* no power cut may take the step back once files of the old content are gone */
    if ((code = tp_os_fsync_dir(c->parent, c->err)))
        return code;
    return tp_os_link_there(c->old, &st, c->err) ? dispose(c) : c->err->code;
}

enum tp_code tp_commit_finalize(struct tp_commit *c, int dir)
{
    enum tp_code code = c->err->code;
    if (code == TP_OK && has(c, TP_REPLACES_NAME))
        code = finalize_old(c);
    else if (code == TP_OK && (code = c->err->code) == TP_OK)
        code = tp_os_fsync_dir(c->parent, c->err);
    if (code == TP_OK &&
        (code = tp_commit_remove_file(dir, c->output, TP_REPLACES_NAME, c->err)) == TP_OK &&
        (code = tp_commit_remove_file(dir, c->output, TP_JOURNAL_NAME, c->err)) == TP_OK)
        code = tp_os_fsync_dir(c->output, c->err);
    if (code && !c->err->hint[0])
        tp_err_hint(c->err, "the output is complete and in its place; the same command again ends "
                            "what is left to do");
    return code;
}

enum tp_code tp_commit_check_at_rest(const char *directory, struct tp_err *err)
{
    struct tp_err seen = {0};
    bool unlocked;
    int fd = -1;
    char *path = tp_os_format(err, "%s/" TP_JOURNAL_NAME, directory);
    enum tp_code code = path ? TP_OK : TP_E_MEMORY;
    if (path && tp_below_open(AT_FDCWD, path, O_RDWR | O_NONBLOCK, path, &fd, &seen) == TP_OK)
        code = tp_os_lock(fd, path, &unlocked, err);
    tp_err_memory(err, &seen);
    tp_os_close(&fd);
    free(path);
    return code ? code : err->code;
}

enum tp_code tp_commit_finalize_former(struct tp_commit *c)
{
    struct tp_manifest manifest;
    struct tp_err seen = {0};
    int dir = -1;
    bool left = has(c, TP_JOURNAL_NAME) || has(c, TP_REPLACES_NAME);
    enum tp_code code = c->err->code;
    if (code || !left || (code = tp_commit_check_at_rest(c->output, c->err)))
        return code;
    bool complete = tp_manifest_read(c->output, &manifest, &seen) == TP_OK && manifest.intact &&
                    !tp_manifest_lacks(&manifest, c->output, &seen) && !seen.code;
    tp_manifest_close(&manifest);
    tp_err_take_unread(c->err, &seen);
    if (c->err->code || !complete) /* the unfinished output of another one */
        return c->err->code;
    code = tp_below_open(AT_FDCWD, c->output, O_RDONLY | O_DIRECTORY, c->output, &dir, c->err);
    if (code == TP_OK)
        code = tp_commit_finalize(c, dir);
    tp_os_close(&dir);
    return code;
}

enum tp_code tp_commit_fail_old(const struct tp_commit *c)
{
    c->err->reason = tp_found_reason(TP_FOUND_OLD);
    return tp_refuse_at(c->err, TP_E_EXISTS, c->old, "look at it, and remove it or move it away",
                        "what an earlier --force has replaced is here, where this one would put "
                        "what it replaces");
}

/* ---- single files ---- */

bool tp_commit_is_own_file(const char *path, struct tp_err *err)
{
    struct stat st;
    struct tp_checkpoint ckpt;
    struct tp_err seen = {0};
    if (!tp_os_link_there(path, &st, err) || S_ISLNK(st.st_mode) || !st.st_size)
        return true;
    bool own = tp_checkpoint_open(path, 0, &ckpt, &seen) == TP_OK &&
               tp_st_meta(&ckpt.files[0].header, TP_META_HASH);
    tp_checkpoint_close(&ckpt);
    tp_err_take_unread(err, &seen);
    return own;
}

enum tp_code tp_commit_keep_file(struct tp_commit *c, bool act)
{
    struct stat st;
    bool taken = false;
    if (tp_commit_is_own_file(c->output, c->err) || c->err->code)
        return c->err->code;
    if (!act)
        return tp_os_link_there(c->old, &st, c->err) ? tp_commit_fail_old(c) : c->err->code;
    enum tp_code code = tp_os_rename_new(c->output, c->old, &taken, c->err);
    if (code || taken)
        return code ? code : tp_commit_fail_old(c);
    snprintf(c->result->old_why, sizeof c->result->old_why, "it is no file of tilepack's");
    return (c->result->old = tp_os_copy(c->err, c->old)) ? TP_OK : TP_E_MEMORY;
}
