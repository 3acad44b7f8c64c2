/* Opening below a directory: the last name of a path is never followed. */
#include "pack/os/below.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum tp_code fail_link(struct tp_err *err, const char *path)
{
    return tp_refuse_at(err, TP_E_USAGE, path,
                        "remove the link, or choose an output in a directory that only you can "
                        "write to: somebody may have put it there", "a link is in its place");
}

static bool is_link(const char *path)
{
    struct stat st;
    return tp_os.lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

bool tp_below_is_dir(const char *path, struct tp_err *err)
{
    struct stat st;
    return tp_os_link_there(path, &st, err) && S_ISDIR(st.st_mode);
}

/* Opens one name; a link is told from other failures. */
static enum tp_code open_name(int dir, const char *name, int flags, mode_t mode, const char *path,
                              int *fd, struct tp_err *err)
{
    struct tp_err local = {0};
    enum tp_code code = tp_os_openat(dir, name, flags | O_NOFOLLOW, mode, path, fd, &local);
    if (code && (local.sys == ELOOP || (local.sys == ENOTDIR && is_link(path))))
        return fail_link(err, path);
    if (code && err && !err->code) {
        tp_err_hint(&local, "%s", err->hint);
        *err = local;
    }
    return code;
}

enum tp_code tp_below_open_dir(const char *path, int *fd, struct tp_err *err)
{
    return open_name(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, path, fd, err);
}

enum tp_code tp_below_mkdir(int dir, const char *name, mode_t mode, const char *path,
                            struct tp_err *err)
{
    return tp_os.mkdirat(dir, name, mode | 0700) == 0 || errno == EEXIST
               ? TP_OK : tp_os_fail(err, errno, path, "cannot make the directory");
}

enum tp_code tp_below_list(int dir, const char *path, struct tp_os_list *list, struct tp_err *err)
{
    return tp_os_list_at(dir, ".", 0, path, list, err);
}

enum tp_code tp_below_remove(int dir, const char *name, const char *path, struct tp_err *err)
{
    return tp_os.unlinkat(dir, name, 0) == 0 || errno == ENOENT
               ? TP_OK : tp_os_fail(err, errno, path, "cannot remove it");
}

enum tp_code tp_below_open(int dir, const char *name, int flags, const char *path, int *fd,
                           struct tp_err *err)
{
    return open_name(dir, name, flags, 0, path, fd, err);
}

static enum tp_code make(int dir, const char *name, mode_t mode, const char *path, int *fd,
                         struct tp_err *err)
{
    return open_name(dir, name, O_RDWR | O_CREAT | O_EXCL, (mode & 0666) | 0600, path, fd, err);
}

enum tp_code tp_below_create(int dir, const char *name, mode_t mode, const char *path, int *fd,
                             struct tp_err *err)
{
    struct tp_err local = {0};
    enum tp_code code = make(dir, name, mode, path, fd, &local);
    if (code && local.sys == EEXIST && tp_os.unlinkat(dir, name, 0) == 0)
        return make(dir, name, mode, path, fd, err);
    if (code && err && !err->code)
        *err = local;
    return code;
}

enum tp_code tp_below_write(int dir, const char *name, mode_t mode, const char *path,
                            const void *data, size_t size, struct tp_err *err)
{
    int fd = -1;
    enum tp_code code = tp_below_create(dir, name, mode, path, &fd, err);
    if (code == TP_OK && (code = tp_os_write(fd, data, size, 0, path, err)) == TP_OK)
        code = tp_os_fsync(fd, path, err);
    if (fd >= 0 && tp_os.close(fd) && code == TP_OK)
        code = tp_os_fail(err, errno, path, "cannot close the output");
    return code;
}

static enum tp_code fail_kind(struct tp_err *err, const char *path)
{
    return tp_refuse_at(err, TP_E_USAGE, path, "remove it: tilepack makes it anew",
                        "not a regular file");
}

enum tp_code tp_below_open_own(int dir, const char *name, mode_t mode, const char *path, int *fd,
                               struct tp_err *err)
{
    struct tp_err local = {0};
    enum tp_code code = make(dir, name, mode, path, fd, &local);
    if (code == TP_OK || local.sys != EEXIST) {
        if (code && err && !err->code)
            *err = local;
        return code;
    }
    struct stat st; /* directories and sockets do not open, others may wait */
    bool there = tp_os_link_there(path, &st, err);
    if (there && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return fail_kind(err, path);
    return err->code ? err->code : open_name(dir, name, O_RDWR, 0, path, fd, err);
}

enum tp_code tp_below_open_regular(int dir, const char *name, const char *path, int *fd,
                                   struct stat *st, struct tp_err *err)
{
    struct tp_err local = {0};
    enum tp_code code = tp_below_open(dir, name, O_RDONLY | O_NONBLOCK, path, fd, &local);
    bool special = code && tp_sys_special(local.sys);
    if (code && !special) {
        if (err && !err->code)
            *err = local;
        return code;
    }
    if (!special && tp_os.fstat(*fd, st) != 0)
        code = tp_os_fail(err, errno, path, "cannot read the file's size");
    else if (special || !S_ISREG(st->st_mode))
        code = tp_fail(err, TP_E_INPUT, "not a regular file");
    if (code) {
        tp_err_path(err, path);
        tp_os_close(fd);
    }
    return code;
}

enum tp_code tp_below_slurp(int dir, const char *name, const char *path, uint64_t limit,
                            char **data, size_t *size, struct tp_err *err)
{
    int fd;
    struct stat st;
    *data = NULL;
    *size = 0;
    enum tp_code code = tp_below_open_regular(dir, name, path, &fd, &st, err);
    if (code == TP_OK && (code = tp_os_slurp_fd(fd, &st, path, limit, data, size, err)))
        tp_err_path(err, path);
    tp_os_close(&fd);
    return code;
}
