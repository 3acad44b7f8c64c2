/* Opening below a directory: names are never followed, owners are looked at.
 *
 * Invariant: a descriptor that is returned is of a file that lies in the directory itself, be
 * it renamed or replaced by whom it may meanwhile.
 */
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

static enum tp_code fail_owner(struct tp_err *err, const char *path)
{
    return tp_refuse_at(err, TP_E_USAGE, path,
                        "choose an output in a directory that only you can write to",
                        "it belongs to another user");
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

static void leave(int dir, int parent)
{
    if (parent != dir)
        tp_os_close(&parent);
}

/* Goes from *parent into the folder with which the name begins. */
static enum tp_code go_down(int dir, const char *name, const char *slash, const char *path,
                            int *parent, struct tp_err *err)
{
    int above = *parent, below = -1;
    char *at = tp_os_join(err, path, strlen(path) - strlen(slash), "");
    enum tp_code code = at ? open_name(above, at + strlen(at) - (slash - name),
                                       O_PATH | O_DIRECTORY, 0, at, &below, err)
                           : TP_E_MEMORY;
    free(at);
    leave(dir, above);
    *parent = below;
    return code;
}

/* The directory that holds a name, and what it is called there. */
static enum tp_code enter(int dir, const char *name, const char *path, int *parent,
                          const char **base, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    *parent = dir;
    *base = name;
    for (const char *slash; dir != AT_FDCWD && code == TP_OK && (slash = strchr(*base, '/'));
         *base = slash + 1)
        code = go_down(dir, *base, slash, path, parent, err);
    return code;
}

/* Whose a new file in the directory would be: a file system may give all to one user. */
static bool makes_files_of(int fd, uid_t owner)
{
    static const char name[] = TP_BELOW_OWNER;
    struct stat st;
    tp_os.unlinkat(fd, name, 0);
    int made = tp_os.openat(fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool same = made >= 0 && tp_os.fstat(made, &st) == 0 && st.st_uid == owner;
    if (made >= 0)
        tp_os.unlinkat(fd, name, 0);
    tp_os_close(&made);
    return same;
}

enum tp_code tp_below_open_dir(const char *path, int *fd, struct tp_err *err)
{
    struct stat st;
    enum tp_code code = open_name(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, path, fd, err);
    if (code)
        return code;
    if (tp_os.fstat(*fd, &st) != 0)
        code = tp_os_fail(err, errno, path, "cannot look at the directory");
    else if (st.st_uid != tp_os.geteuid() && !makes_files_of(*fd, st.st_uid))
        code = fail_owner(err, path);
    if (code)
        tp_os_close(fd);
    return code;
}

enum tp_code tp_below_mkdir(int dir, const char *name, mode_t mode, const char *path,
                            struct tp_err *err)
{
    int parent;
    const char *base;
    enum tp_code code = enter(dir, name, path, &parent, &base, err);
    if (code)
        return code;
    mode |= 0700;
    int sys = tp_os.mkdirat(parent, base, mode) ? errno : 0;
    if (sys == EEXIST) {
        if (tp_os.unlinkat(parent, base, 0) == 0)
            sys = tp_os.mkdirat(parent, base, mode) ? errno : 0;
        else
            sys = errno == EISDIR ? 0 : errno;
    }
    leave(dir, parent);
    return sys ? tp_os_fail(err, sys, path, "cannot make the directory") : TP_OK;
}

enum tp_code tp_below_list(int dir, const char *path, struct tp_os_list *list, struct tp_err *err)
{
    return tp_os_list_at(dir, ".", 0, path, list, err);
}

enum tp_code tp_below_remove(int dir, const char *name, const char *path, bool *directory,
                             struct tp_err *err)
{
    int parent;
    const char *base;
    if (directory)
        *directory = false;
    enum tp_code code = enter(dir, name, path, &parent, &base, err);
    if (code)
        return code;
    int sys = tp_os.unlinkat(parent, base, 0) && errno != ENOENT ? errno : 0;
    leave(dir, parent);
    if (sys == EISDIR && directory)
        *directory = true;
    else if (sys)
        code = tp_os_fail(err, sys, path, "cannot remove it");
    return code;
}

enum tp_code tp_below_open(int dir, const char *name, int flags, const char *path, int *fd,
                           struct tp_err *err)
{
    int parent;
    const char *base;
    *fd = -1;
    enum tp_code code = enter(dir, name, path, &parent, &base, err);
    if (code)
        return code;
    code = open_name(parent, base, flags, 0, path, fd, err);
    leave(dir, parent);
    return code;
}

static enum tp_code make(int dir, const char *name, mode_t mode, const char *path, int *fd,
                         struct tp_err *err)
{
    return open_name(dir, name, O_RDWR | O_CREAT | O_EXCL, (mode & 0666) | 0600, path, fd, err);
}

enum tp_code tp_below_create(int dir, const char *name, mode_t mode, const char *path, int *fd,
                             struct tp_err *err)
{
    int parent;
    const char *base;
    struct tp_err local = {0};
    *fd = -1;
    enum tp_code code = enter(dir, name, path, &parent, &base, err);
    if (code)
        return code;
    code = make(parent, base, mode, path, fd, &local);
    if (code && local.sys == EEXIST && tp_os.unlinkat(parent, base, 0) == 0) {
        local = (struct tp_err){0};
        code = make(parent, base, mode, path, fd, &local);
    }
    if (code && err && !err->code)
        *err = local;
    leave(dir, parent);
    return code;
}

static enum tp_code fail_kind(struct tp_err *err, const char *path, const char *what)
{
    return tp_refuse_at(err, TP_E_USAGE, path, "remove it: tilepack makes it anew", "%s", what);
}

/* The same of the directory that holds the path. */
static bool makes_beside(const char *path, uid_t owner, struct tp_err *err)
{
    int fd = -1;
    char *parent = tp_os_parent(path, err);
    bool same = parent && tp_os_open(parent, O_RDONLY | O_DIRECTORY, 0, &fd, err) == TP_OK &&
                makes_files_of(fd, owner);
    tp_os_close(&fd);
    free(parent);
    return same;
}

/* Whether the open directory gives all new files to that owner, as tp_below_open_dir() has found of
 * one that is another's; of AT_FDCWD the one that holds the path. */
static bool is_given_away(int dir, const char *path, uid_t owner, struct tp_err *err)
{
    struct stat st;
    return dir == AT_FDCWD ? makes_beside(path, owner, err)
                           : tp_os.fstat(dir, &st) == 0 && st.st_uid == owner;
}

static enum tp_code check_own(int dir, int fd, const char *path, struct tp_err *err)
{
    struct stat st;
    if (tp_os.fstat(fd, &st) != 0)
        return tp_os_fail(err, errno, path, "cannot look at the file");
    if (st.st_uid != tp_os.geteuid() && !is_given_away(dir, path, st.st_uid, err))
        return fail_owner(err, path);
    if (!S_ISREG(st.st_mode))
        return fail_kind(err, path, "not a regular file");
    return st.st_nlink <= 1 ? TP_OK
                            : fail_kind(err, path, "the file has other names, too, under which it "
                                                   "would be overwritten");
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
    if (tp_os_link_there(path, &st, err) && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return fail_kind(err, path, "not a regular file");
    if (err->code)
        return err->code;
    code = open_name(dir, name, O_RDWR | O_NONBLOCK, 0, path, fd, err);
    if (code == TP_OK && (code = check_own(dir, *fd, path, err)))
        tp_os_close(fd);
    return code;
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
