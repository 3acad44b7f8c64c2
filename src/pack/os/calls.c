/* System calls as all of src/pack makes them: errno becomes an error value. memory.c has those of
 * memory.
 *
 * Does no buffering and keeps no state. Invariant: a wrapper that returns TP_OK did all that it was
 * asked for, however often it was interrupted or cut short on the way; one that fails says which
 * file and why.
 */
#include "pack/os/os.h"

#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The kernel moves at most 2 GiB less a page per call; stay well below. */
static const uint64_t max_transfer = UINT64_C(1) << 30;

/* What to do about an errno, where that is the same for every call. */
static void hint_sys(struct tp_err *err, int sys)
{
    switch (sys) {
    case EACCES:
    case EPERM:
        tp_err_hint(err, "check the permissions of the file and of its directories");
        break;
    case ENOENT:
        tp_err_hint(err, "check the path (a link that leads nowhere counts as missing)");
        break;
    case ENOTDIR:
        tp_err_hint(err, "check the path: a part of it is a file, not a directory");
        break;
    case ELOOP:
        tp_err_hint(err, "check the path: its symbolic links go round in a circle");
        break;
    case ENAMETOOLONG:
        tp_err_hint(err, "choose a shorter name");
        break;
    case EROFS:
        tp_err_hint(err, "that file system is mounted read-only: choose another one");
        break;
    case ENOSPC:
    case EDQUOT:
        tp_err_hint(err, "make room on that file system and run the same command again");
        break;
    case EFBIG:
        tp_err_hint(err, "raise the limit of file sizes (ulimit -f), write to a file system that "
                         "allows larger files, or choose a smaller --shard-size");
        break;
    case ENOMEM:
        tp_err_hint(err, "free memory or give the process more");
        break;
    case EMFILE:
    case ENFILE:
        tp_err_hint(err, "raise the limit of open files (ulimit -n)");
        break;
    default:
        tp_err_hint(err, "the operating system's log (dmesg) may say more; if it was a passing "
                         "fault, run the same command again");
    }
}

enum tp_code tp_os_fail(struct tp_err *err, int sys, const char *path, const char *what)
{
    enum tp_code code = tp_fail_sys(err, sys, "%s", what);
    tp_err_path(err, path);
    hint_sys(err, sys);
    return code;
}

/* False when a position is beyond what off_t can say. */
static bool range_fits(uint64_t size, uint64_t offset)
{
    uint64_t end;
    return tp_add_u64(&end, size, offset) && end <= (uint64_t)INT64_MAX;
}

enum tp_code tp_os_read(int fd, void *data, uint64_t size, uint64_t offset, const char *path,
                        struct tp_err *err)
{
    if (!range_fits(size, offset))
        return tp_os_fail(err, EOVERFLOW, path, "cannot read");
    char *to = data;
    uint64_t done = 0;
    while (done < size) {
        size_t part = (size_t)tp_min_u64(size - done, max_transfer);
        ssize_t got = tp_os.pread(fd, to + done, part, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            enum tp_code code = tp_os_fail(err, errno, path, "cannot read");
            tp_err_offset(err, offset + done);
            return code;
        }
        if (got == 0) {
            enum tp_code code =
                tp_fail(err, TP_E_INPUT, "truncated: the file ends %llu bytes too early",
                        (unsigned long long)(size - done));
            tp_err_path(err, path);
            tp_err_offset(err, offset + done);
            tp_err_hint(err, "the file is incomplete or shrank while it was read: "
                             "copy or download it again");
            return code;
        }
        done += (uint64_t)got;
    }
    return TP_OK;
}

enum tp_code tp_os_read_end(int fd, uint64_t size, const char *path, struct tp_err *err)
{
    char beyond;
    ssize_t got;
    do
        got = tp_os.pread(fd, &beyond, 1, (off_t)size);
    while (got < 0 && errno == EINTR);
    if (got == 0)
        return TP_OK;
    if (got < 0)
        return tp_os_fail(err, errno, path, "cannot read");
    return tp_refuse_at(err, TP_E_INPUT, path, "it grew while it was read, or is no file of a disk",
                        "it holds more than the %llu bytes that are its size",
                        (unsigned long long)size);
}

static enum tp_code fail_write(struct tp_err *err, int sys, const char *path, uint64_t offset)
{
    enum tp_code code = tp_os_fail(err, sys, path, "cannot write");
    tp_err_offset(err, offset);
    return code;
}

enum tp_code tp_os_write(int fd, const void *data, uint64_t size, uint64_t offset,
                         const char *path, struct tp_err *err)
{
    if (!range_fits(size, offset))
        return tp_os_fail(err, EOVERFLOW, path, "cannot write");
    const char *from = data;
    uint64_t done = 0;
    while (done < size) {
        size_t part = (size_t)tp_min_u64(size - done, max_transfer);
        ssize_t put = tp_os.pwrite(fd, from + done, part, (off_t)(offset + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) /* 0 for a request that is not empty: the device takes no more */
            return fail_write(err, put < 0 ? errno : ENOSPC, path, offset + done);
        done += (uint64_t)put;
    }
    return TP_OK;
}

/* True when the soft limit of descriptors could be raised. */
static bool raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (tp_os.getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
        return false;
    limit.rlim_cur = limit.rlim_max;
    return tp_os.setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

enum tp_code tp_os_open(const char *path, int flags, mode_t mode, int *fd, struct tp_err *err)
{
    return tp_os_openat(AT_FDCWD, path, flags, mode, path, fd, err);
}

/* The descriptor, or -1 and errno. */
static int open_name(int directory, const char *name, int flags, mode_t mode)
{
    bool raised = false;
    for (;;) {
        int fd = directory == AT_FDCWD ? tp_os.open(name, flags | O_CLOEXEC, mode)
                                       : tp_os.openat(directory, name, flags | O_CLOEXEC, mode);
        int sys = errno;
        if (fd < 0 && sys == EINTR)
            continue;
        if (fd < 0 && sys == EMFILE && !raised && raise_descriptor_limit()) {
            raised = true;
            continue;
        }
        errno = sys;
        return fd;
    }
}

enum tp_code tp_os_openat(int directory, const char *name, int flags, mode_t mode,
                          const char *path, int *fd, struct tp_err *err)
{
    *fd = open_name(directory, name, flags, mode);
    if (*fd >= 0)
        return TP_OK;
    int sys = errno;
    if (sys == ENOENT && (flags & O_CREAT))
        tp_err_hint(err, "make the directory above it first, or choose another output");
    return tp_os_fail(err, sys, path, "cannot open");
}

bool tp_sys_special(int sys)
{
    return sys == ENXIO || sys == ENODEV;
}

#define SPECIAL "pipe, socket or device"

static enum tp_code fail_kind(struct tp_err *err, const char *path, const char *kind)
{
    return tp_refuse_at(err, TP_E_INPUT, path, "a plain file, or a link to one, belongs here",
                        "not a regular file but a %s", kind);
}

enum tp_code tp_os_open_regular(const char *path, int flags, int *fd, struct stat *st,
                                struct tp_err *err)
{
    /* O_NONBLOCK: opening a named pipe that has no writer must not hang. */
    *fd = open_name(AT_FDCWD, path, O_RDONLY | O_NOCTTY | O_NONBLOCK | flags, 0);
    if (*fd < 0)
        return tp_sys_special(errno) ? fail_kind(err, path, SPECIAL)
                                     : tp_os_fail(err, errno, path, "cannot open");
    enum tp_code code = TP_OK;
    if (tp_os.fstat(*fd, st) != 0)
        code = tp_os_fail(err, errno, path, "cannot read the file's size");
    else if (!S_ISREG(st->st_mode))
        code = fail_kind(err, path, S_ISDIR(st->st_mode) ? "directory" : SPECIAL);
    if (code)
        tp_os_close(fd);
    return code;
}

void tp_os_close(int *fd)
{
    if (*fd >= 0)
        tp_os.close(*fd);
    *fd = -1;
}

enum tp_code tp_os_fsync(int fd, const char *path, struct tp_err *err)
{
    while (tp_os.fsync(fd) != 0) {
        if (errno == EINTR)
            continue;
        int sys = errno;
        if (sys == EIO)
            tp_err_hint(err, "the device may have lost data: check it, then run the command "
                             "again");
        return tp_os_fail(err, sys, path, "cannot flush to the disk");
    }
    return TP_OK;
}

char *tp_os_parent(const char *path, struct tp_err *err)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return tp_os_format(err, ".");
    return slash == path ? tp_os_format(err, "/")
                         : tp_os_format(err, "%.*s", (int)(slash - path), path);
}

enum tp_code tp_os_fsync_dir(const char *path, struct tp_err *err)
{
    int fd;
    enum tp_code code = tp_os_open(path, O_RDONLY | O_DIRECTORY, 0, &fd, err);
    if (code)
        return code;
    int sys = 0;
    while (tp_os.fsync(fd) != 0) {
        sys = errno;
        if (sys != EINTR)
            break;
        sys = 0;
    }
    /* Some network file systems cannot flush a directory and say so. */
    if (sys && sys != EINVAL && sys != ENOTSUP)
        code = tp_os_fail(err, sys, path, "cannot flush the directory to the disk");
    tp_os_close(&fd);
    return code;
}

static enum tp_code fail_rename(struct tp_err *err, int sys, const char *from, const char *to)
{
    enum tp_code code = tp_fail_sys(err, sys, "cannot rename to '%.400s'", to);
    tp_err_path(err, from);
    hint_sys(err, sys);
    return code;
}

enum tp_code tp_os_rename(const char *from, const char *to, struct tp_err *err)
{
    return tp_os.rename(from, to) == 0 ? TP_OK : fail_rename(err, errno, from, to);
}

enum tp_code tp_os_rename_new(const char *from, const char *to, bool *taken, struct tp_err *err)
{
    *taken = false;
    if (tp_os.rename_new(from, to) == 0)
        return TP_OK;
    if (errno == EINVAL || errno == ENOSYS)
        return tp_os_rename(from, to, err);
    *taken = errno == EEXIST;
    return *taken ? TP_OK : fail_rename(err, errno, from, to);
}

static bool answer(int failed, const char *path, struct tp_err *err)
{
    if (failed && !tp_sys_absent(errno))
        tp_os_fail(err, errno, path, "cannot look at the file");
    return !failed;
}

bool tp_os_there(const char *path, struct stat *st, struct tp_err *err)
{
    return path && answer(tp_os.stat(path, st), path, err);
}

bool tp_os_link_there(const char *path, struct stat *st, struct tp_err *err)
{
    return path && answer(tp_os.lstat(path, st), path, err);
}

static bool is_open_as(int fd, const struct stat *there, const char *path, struct tp_err *err)
{
    struct stat here;
    if (tp_os.fstat(fd, &here) == 0)
        return here.st_dev == there->st_dev && here.st_ino == there->st_ino;
    tp_os_fail(err, errno, path, "cannot look at the file");
    return false;
}

bool tp_os_has_name(int fd, const char *path, struct tp_err *err)
{
    struct stat there;
    return tp_os_link_there(path, &there, err) && is_open_as(fd, &there, path, err);
}

enum tp_code tp_os_lock(int fd, const char *path, bool *unlocked, struct tp_err *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat there;
    tp_err_path(err, path);
    *unlocked = tp_os.fcntl_lock(fd, &whole) != 0;
    if (*unlocked && (errno == EACCES || errno == EAGAIN)) {
        *unlocked = false;
        return tp_refuse(err, TP_E_LOCKED,
                         "wait for the other process to end, or choose another output",
                         "another tilepack is writing this output");
    }
    /* Its last holder may have renamed or removed the file since it was opened. */
    bool is = tp_os_there(path, &there, err) && is_open_as(fd, &there, path, err);
    if (err->code)
        return err->code;
    if (!is)
        return tp_refuse(err, TP_E_LOCKED, "run the command again",
                         "another tilepack has just finished writing this output");
    if (err)
        err->path[0] = '\0';
    return TP_OK;
}

enum tp_code tp_os_mkdir(const char *path, mode_t mode, struct tp_err *err)
{
    if (tp_os.mkdir(path, mode) == 0)
        return TP_OK;
    int sys = errno;
    if (sys == ENOENT)
        tp_err_hint(err, "make the directory above it first, or choose another output");
    return tp_os_fail(err, sys, path, "cannot make the directory");
}

enum tp_code tp_os_slurp_fd(int fd, const struct stat *st, const char *path, uint64_t limit,
                            char **data, size_t *size, struct tp_err *err)
{
    uint64_t bytes = (uint64_t)st->st_size;
    enum tp_code code;
    *data = NULL;
    *size = 0;
    if (bytes > limit)
        return tp_refuse_at(err, TP_E_INPUT, path,
                            "this is not the kind of file that its name says: check it",
                            "%llu bytes, where at most %llu are expected",
                            (unsigned long long)bytes, (unsigned long long)limit);
    char *text = tp_os_alloc((size_t)bytes + 1, err);
    if (!text) {
        tp_err_path(err, path);
        return TP_E_MEMORY;
    }
    if ((code = tp_os_read(fd, text, bytes, 0, path, err)) ||
        (code = tp_os_read_end(fd, bytes, path, err))) {
        free(text);
        return code;
    }
    text[bytes] = '\0';
    *data = text;
    *size = (size_t)bytes;
    return TP_OK;
}

enum tp_code tp_os_slurp(const char *path, uint64_t limit, char **data, size_t *size,
                         struct tp_err *err)
{
    int fd;
    struct stat st;
    *data = NULL;
    *size = 0;
    enum tp_code code = tp_os_open_regular(path, 0, &fd, &st, err);
    if (code == TP_OK)
        code = tp_os_slurp_fd(fd, &st, path, limit, data, size, err);
    tp_os_close(&fd);
    return code;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum tp_code add_name(struct tp_os_list *list, const char *name, struct tp_err *err)
{
    enum tp_code code = tp_os_grow((void **)&list->names, &list->capacity, list->count + 1,
                                   sizeof *list->names, err);
    if (code)
        return code;
    list->names[list->count] = tp_os_copy(err, name);
    if (!list->names[list->count])
        return TP_E_MEMORY;
    list->count++;
    return TP_OK;
}

static enum tp_code read_names(DIR *dir, const char *path, struct tp_os_list *list,
                               struct tp_err *err)
{
    for (;;) {
        errno = 0; /* readdir tells its end from a failure by errno alone */
        const struct dirent *entry = tp_os.readdir(dir);
        if (!entry)
            return errno ? tp_os_fail(err, errno, path, "cannot read the directory") : TP_OK;
        bool itself = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        enum tp_code code = itself ? TP_OK : add_name(list, entry->d_name, err);
        if (code)
            return code;
    }
}

enum tp_code tp_os_list(const char *path, struct tp_os_list *list, struct tp_err *err)
{
    return tp_os_list_at(AT_FDCWD, path, 0, path, list, err);
}

enum tp_code tp_os_list_at(int directory, const char *name, int flags, const char *path,
                           struct tp_os_list *list, struct tp_err *err)
{
    *list = (struct tp_os_list){0};
    int fd = open_name(directory, name, O_RDONLY | O_DIRECTORY | flags, 0);
    DIR *dir = fd < 0 ? NULL : tp_os.fdopendir(fd);
    if (!dir) {
        int sys = errno;
        tp_os_close(&fd);
        return tp_os_fail(err, sys, path, "cannot open the directory");
    }
    enum tp_code code = read_names(dir, path, list, err);
    tp_os.closedir(dir);
    if (code)
        tp_os_list_free(list);
    else if (list->count)
        qsort(list->names, list->count, sizeof *list->names, compare_names);
    return code;
}

void tp_os_list_free(struct tp_os_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->names[i]);
    free(list->names);
    *list = (struct tp_os_list){0};
}

enum tp_code tp_os_inside(const char *root, const char *path, char **resolved,
                          struct tp_err *err)
{
    *resolved = NULL;
    char *base = tp_os.realpath(root, NULL);
    if (!base)
        return tp_os_fail(err, errno, root, "cannot resolve the path");
    enum tp_code code = TP_OK;
    char *real = tp_os.realpath(path, NULL);
    if (!real) {
        code = tp_os_fail(err, errno, path, "cannot resolve the path");
        free(base);
        return code;
    }
    size_t length = strlen(base);
    /* The root directory is the one whose resolved path ends in a slash. */
    bool slash = base[length - 1] == '/';
    if (strncmp(real, base, length) != 0 || (!slash && real[length] != '/')) {
        code = tp_fail(err, TP_E_INPUT, "a link leads out of the directory, to '%s'", real);
        tp_err_path(err, path);
        free(real);
    } else {
        *resolved = real;
    }
    free(base);
    return code;
}
