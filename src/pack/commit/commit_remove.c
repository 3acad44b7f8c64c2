/* How what is replaced goes, and what an interrupted run left.
 *
 * What may be removed is in commit_replace.c. Invariant: what is removed is a directory of plain
 * files and folders, as this program writes them; no link is followed.
 */
#include "pack/commit/commit_build.h"

#include "pack/os/below.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum tp_code tp_commit_remove_file(int dir, const char *path, const char *name,
                                   struct tp_err *err)
{
    char *whole = tp_os_format(err, "%s/%s", path, name);
    enum tp_code code = whole ? tp_below_remove(dir, name, whole, NULL, err) : TP_E_MEMORY;
    free(whole);
    return code;
}

enum tp_code tp_commit_remove_entry(int dir, const char *path, const char *name,
                                    struct tp_err *err)
{
    bool directory = false;
    char *whole = tp_os_format(err, "%s/%s", path, name);
    enum tp_code code = whole ? tp_below_remove(dir, name, whole, &directory, err) : TP_E_MEMORY;
    if (directory)
        code = tp_commit_remove_directory(dir, name, whole, err);
    free(whole);
    return code;
}

/* What shows that a directory is a checkpoint goes last, so that what an interrupted removal
 * leaves is still one that --force may replace. */
enum tp_code tp_commit_empty(int dir, const char *path, const char *keep, struct tp_err *err)
{
    struct tp_os_list list;
    enum tp_code code = tp_below_list(dir, path, &list, err);
    for (int last = 0; last < 2; last++)
        for (size_t i = 0; i < list.count && code == TP_OK; i++)
            if (tp_commit_is_mark(list.names[i]) == last &&
                (!keep || strcmp(list.names[i], keep) != 0))
                code = tp_commit_remove_entry(dir, path, list.names[i], err);
    tp_os_list_free(&list);
    return code;
}

enum tp_code tp_commit_remove_directory(int dir, const char *name, const char *path,
                                        struct tp_err *err)
{
    int fd;
    enum tp_code code = tp_below_open(dir, name, O_RDONLY | O_DIRECTORY, path, &fd, err);
    if (code)
        return code;
    code = tp_commit_empty(fd, path, NULL, err);
    tp_os_close(&fd);
    if (code == TP_OK && tp_os.unlinkat(dir, name, AT_REMOVEDIR))
        code = tp_os_fail(err, errno, path, "cannot remove it");
    return code;
}

enum tp_code tp_commit_end_journals(int dir, const char *output, struct tp_err *err)
{
    struct tp_os_list list = {0};
    int own = -1;
    enum tp_code code = dir < 0 ? tp_os_open(output, O_RDONLY | O_DIRECTORY, 0, &own, err) : TP_OK;
    if (dir < 0)
        dir = own;
    if (code == TP_OK)
        code = tp_below_list(dir, output, &list, err);
    for (size_t i = 0; i < list.count && code == TP_OK; i++)
        if (tp_commit_is_own(list.names[i]))
            code = tp_commit_remove_file(dir, output, list.names[i], err);
    tp_os_list_free(&list);
    tp_os_close(&own);
    return code;
}

/* Something came into the old content after the last look at it: all of it stays. The output is
 * complete, and needs no journal. */
static enum tp_code keep_old(struct tp_commit *c, const struct tp_err *why)
{
    struct tp_err ignored = {0};
    tp_commit_end_journals(c->dir, c->output, &ignored);
    tp_err_path(c->err, c->partial);
    tp_err_hint(c->err, "the new output is complete; remove this one, which it replaced, yourself");
    return tp_fail(c->err, TP_E_USAGE, "%s", why->what);
}

/* The old content, which has changed places with the new one. */
static enum tp_code remove_old(struct tp_commit *c)
{
    struct tp_err why = {0};
    if (tp_commit_check_replace(c->plan, c->partial, false, &why)) {
        if (!tp_err_unread(&why))
            return keep_old(c, &why);
        *c->err = why; /* the journal stays: the same command with --force ends it */
        return why.code;
    }
    struct tp_err failed = {0};
    tp_err_hint(&failed, "the new output is complete; remove the rest of the old one yourself");
    enum tp_code code = tp_commit_remove_directory(AT_FDCWD, c->partial, c->partial, &failed);
    if (code)
        *c->err = failed;
    return code;
}

enum tp_code tp_commit_end(struct tp_commit *c, bool replaced)
{
    enum tp_code code = tp_os_fsync_dir(c->parent, c->err);
    if (code == TP_OK && replaced && (code = remove_old(c)) == TP_OK)
        code = tp_os_fsync_dir(c->parent, c->err); /* no power cut may take the journal alone */
    if (code == TP_OK && (code = tp_commit_end_journals(c->dir, c->output, c->err)) == TP_OK)
        code = tp_os_fsync_dir(c->output, c->err);
    if (code && !c->err->hint[0])
        tp_err_hint(c->err, "the output is complete and in its place; the same command again ends "
                            "what is left to do");
    return code;
}
