/* The wrappers. Invariant: without a fault armed they do what the C library does,
 * but for fsync, which is counted and logged only (no test here cuts the power).
 */
#include "world.h"

#include "power.h"

#include "pack/os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRACE = 1 << 20 };

static struct tp_os real;
static atomic_uint_fast64_t calls, at;
static enum fault armed;
static bool sticky, logging;
static enum call hit;
static uint8_t trace[TRACE], kept[TRACE];
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

const char *call_name(enum call call)
{
    static const char *const names[CALL_COUNT] = {
        "open", "create", "close", "pread", "pwrite", "fstat", "stat", "fsync", "fallocate",
        "ftruncate", "rename", "exchange", "mkdir", "unlink", "rmdir", "lock", "opendir",
        "readdir", "closedir", "realpath", "getrlimit", "setrlimit", "thread", "alloc"};
    return names[call];
}

const char *fault_name(enum fault fault)
{
    static const char *const names[FAULT_COUNT] = {
        "none", "ENOSPC", "EIO", "EINTR", "short", "kill before", "kill after", "kill in"};
    return names[fault];
}

bool fault_applies(enum fault fault, enum call call)
{
    switch (fault) {
    case FAULT_NONE:
    case FAULT_COUNT:
        return false;
    case FAULT_ENOSPC:
        return call == CALL_CREATE || call == CALL_PWRITE || call == CALL_FSYNC ||
               call == CALL_FALLOCATE || call == CALL_RENAME || call == CALL_EXCHANGE ||
               call == CALL_MKDIR;
    case FAULT_EIO:
        return call != CALL_GETRLIMIT && call != CALL_SETRLIMIT;
    case FAULT_EINTR:
        return call == CALL_OPEN || call == CALL_CREATE || call == CALL_PREAD ||
               call == CALL_PWRITE || call == CALL_FSYNC || call == CALL_FALLOCATE;
    case FAULT_SHORT:
        return call == CALL_PREAD || call == CALL_PWRITE;
    case FAULT_KILL_HALF:
        return call == CALL_PWRITE;
    case FAULT_KILL_BEFORE:
    case FAULT_KILL_AFTER:
        return call == CALL_CREATE || call == CALL_PWRITE || call == CALL_FSYNC ||
               call == CALL_FALLOCATE || call == CALL_FTRUNCATE || call == CALL_RENAME ||
               call == CALL_EXCHANGE || call == CALL_MKDIR || call == CALL_UNLINK ||
               call == CALL_RMDIR || call == CALL_LOCK || call == CALL_CLOSE;
    }
    return false;
}

bool fault_is_harmless(enum fault fault) { return fault == FAULT_EINTR || fault == FAULT_SHORT; }

static _Noreturn void die(void)
{
    raise(SIGKILL);
    abort();
}

/* Counts a call and says what happens to it. */
static enum fault next(enum call call)
{
    uint64_t n = atomic_fetch_add(&calls, 1) + 1;
    if (n <= TRACE)
        trace[n - 1] = (uint8_t)call;
    if (n == at)
        hit = call;
    if (!at || (n != at && !(sticky && n > at && call == hit)) || !fault_applies(armed, call))
        return FAULT_NONE; /* threads may have brought another call here than was planned */
    if (armed == FAULT_KILL_BEFORE)
        die();
    return armed;
}

static int errno_of(enum fault fault)
{
    return fault == FAULT_ENOSPC ? ENOSPC : fault == FAULT_EINTR ? EINTR : EIO;
}

static bool fails(enum fault fault)
{
    return fault == FAULT_ENOSPC || fault == FAULT_EIO || fault == FAULT_EINTR;
}

static int failed(enum fault fault)
{
    errno = errno_of(fault);
    return -1;
}

/* The end of a call that was carried out. */
static int done(enum fault fault, int result)
{
    if (fault == FAULT_KILL_AFTER)
        die();
    return result;
}

#define LOG(call_that_logs)                                                                        \
    do {                                                                                           \
        int kept_errno = errno;                                                                    \
        pthread_mutex_lock(&log_lock);                                                             \
        if (logging)                                                                               \
            call_that_logs;                                                                        \
        pthread_mutex_unlock(&log_lock);                                                           \
        errno = kept_errno;                                                                        \
    } while (0)

static int my_open(const char *path, int flags, mode_t mode)
{
    enum fault fault = next(flags & O_CREAT ? CALL_CREATE : CALL_OPEN);
    if (fails(fault))
        return failed(fault);
    int fd = real.open(path, flags, mode);
    if (fd >= 0)
        LOG(power_open(fd, path, flags));
    return done(fault, fd);
}

/* The whole path of a name in an open directory, for the log. */
static const char *whole(int directory, const char *name, char path[4096])
{
    char link[40], folder[2048];
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    if (directory == AT_FDCWD)
        return name;
    ssize_t size = readlink(link, folder, sizeof folder - 1);
    folder[size > 0 ? size : 0] = '\0';
    snprintf(path, 4096, "%s%s%.2000s", folder, strcmp(name, ".") ? "/" : "",
             strcmp(name, ".") ? name : "");
    return path;
}

static int my_openat(int directory, const char *name, int flags, mode_t mode)
{
    char path[4096];
    enum fault fault = next(flags & O_CREAT ? CALL_CREATE : CALL_OPEN);
    if (fails(fault))
        return failed(fault);
    int fd = real.openat(directory, name, flags, mode);
    if (fd >= 0)
        LOG(power_open(fd, whole(directory, name, path), flags));
    return done(fault, fd);
}

static int my_close(int fd)
{
    enum fault fault = next(CALL_CLOSE);
    LOG(power_close(fd));
    int result = real.close(fd);
    return fails(fault) ? failed(fault) : done(fault, result);
}

static ssize_t my_pread(int fd, void *data, size_t size, off_t offset)
{
    enum fault fault = next(CALL_PREAD);
    if (fails(fault))
        return failed(fault);
    return real.pread(fd, data, fault == FAULT_SHORT ? (size + 1) / 2 : size, offset);
}

static ssize_t my_pwrite(int fd, const void *data, size_t size, off_t offset)
{
    enum fault fault = next(CALL_PWRITE);
    if (fails(fault))
        return failed(fault);
    if (fault == FAULT_SHORT || fault == FAULT_KILL_HALF)
        size = (size + 1) / 2;
    ssize_t put = real.pwrite(fd, data, size, offset);
    if (put > 0)
        LOG(power_write(fd, data, (size_t)put, offset));
    if (fault == FAULT_KILL_HALF || fault == FAULT_KILL_AFTER)
        die();
    return put;
}

static int my_fstat(int fd, struct stat *st)
{
    enum fault fault = next(CALL_FSTAT);
    return fails(fault) ? failed(fault) : real.fstat(fd, st);
}

static int my_stat(const char *path, struct stat *st)
{
    enum fault fault = next(CALL_STAT);
    return fails(fault) ? failed(fault) : real.stat(path, st);
}

static int my_lstat(const char *path, struct stat *st)
{
    enum fault fault = next(CALL_STAT);
    return fails(fault) ? failed(fault) : real.lstat(path, st);
}

static ssize_t my_readlink(const char *path, char *target, size_t size)
{
    enum fault fault = next(CALL_STAT);
    return fails(fault) ? failed(fault) : real.readlink(path, target, size);
}

static int my_fsync(int fd)
{
    enum fault fault = next(CALL_FSYNC);
    if (fails(fault))
        return failed(fault);
    LOG(power_fsync(fd));
    return done(fault, 0);
}

static int my_fallocate(int fd, off_t offset, off_t size, bool fill)
{
    enum fault fault = next(CALL_FALLOCATE);
    if (fails(fault))
        return errno_of(fault);
    int result = real.fallocate(fd, offset, size, fill);
    if (!result)
        LOG(power_extend(fd, offset + size));
    return done(fault, result);
}

static int my_ftruncate(int fd, off_t size)
{
    enum fault fault = next(CALL_FTRUNCATE);
    if (fails(fault))
        return failed(fault);
    int result = real.ftruncate(fd, size);
    if (!result)
        LOG(power_truncate(fd, size));
    return done(fault, result);
}

static int my_rename(const char *from, const char *to)
{
    enum fault fault = next(CALL_RENAME);
    if (fails(fault))
        return failed(fault);
    int result = real.rename(from, to);
    if (!result)
        LOG(power_rename(from, to, false));
    return done(fault, result);
}

static int my_rename_new(const char *from, const char *to)
{
    enum fault fault = next(CALL_RENAME);
    if (fails(fault))
        return failed(fault);
    int result = real.rename_new(from, to);
    if (!result)
        LOG(power_rename(from, to, false));
    return done(fault, result);
}

static int my_exchange(const char *a, const char *b)
{
    enum fault fault = next(CALL_EXCHANGE);
    if (fails(fault))
        return failed(fault);
    int result = real.exchange(a, b);
    if (!result)
        LOG(power_rename(a, b, true));
    return done(fault, result);
}

static int my_mkdir(const char *path, mode_t mode)
{
    enum fault fault = next(CALL_MKDIR);
    if (fails(fault))
        return failed(fault);
    int result = real.mkdir(path, mode);
    if (!result)
        LOG(power_mkdir(path));
    return done(fault, result);
}

static int my_mkdirat(int directory, const char *name, mode_t mode)
{
    char path[4096];
    enum fault fault = next(CALL_MKDIR);
    if (fails(fault))
        return failed(fault);
    int result = real.mkdirat(directory, name, mode);
    if (!result)
        LOG(power_mkdir(whole(directory, name, path)));
    return done(fault, result);
}

static int my_unlinkat(int directory, const char *name, int flags)
{
    char path[4096];
    enum fault fault = next(flags & AT_REMOVEDIR ? CALL_RMDIR : CALL_UNLINK);
    if (fails(fault))
        return failed(fault);
    int result = real.unlinkat(directory, name, flags);
    if (!result)
        LOG(power_remove(whole(directory, name, path)));
    return done(fault, result);
}

static int my_unlink(const char *path)
{
    enum fault fault = next(CALL_UNLINK);
    if (fails(fault))
        return failed(fault);
    int result = real.unlink(path);
    if (!result)
        LOG(power_remove(path));
    return done(fault, result);
}

static int my_lock(int fd, struct flock *lock)
{
    enum fault fault = next(CALL_LOCK);
    return fails(fault) ? failed(fault) : done(fault, real.fcntl_lock(fd, lock));
}

static DIR *my_fdopendir(int fd)
{
    enum fault fault = next(CALL_OPENDIR);
    if (!fails(fault))
        return real.fdopendir(fd);
    errno = errno_of(fault);
    return NULL;
}

static struct dirent *my_readdir(DIR *dir)
{
    enum fault fault = next(CALL_READDIR);
    if (!fails(fault))
        return real.readdir(dir);
    errno = errno_of(fault);
    return NULL;
}

static int my_closedir(DIR *dir)
{
    enum fault fault = next(CALL_CLOSEDIR);
    int result = real.closedir(dir);
    return fails(fault) ? failed(fault) : result;
}

static char *my_realpath(const char *path, char *resolved)
{
    enum fault fault = next(CALL_REALPATH);
    if (!fails(fault))
        return real.realpath(path, resolved);
    errno = errno_of(fault);
    return NULL;
}

static int my_start_thread(pthread_t *thread, void *(*work)(void *), void *arg)
{
    return fails(next(CALL_THREAD)) ? EAGAIN : real.start_thread(thread, work, arg);
}

static bool no_memory(void)
{
    if (!fails(next(CALL_ALLOC)))
        return false;
    errno = ENOMEM;
    return true;
}

static void *my_malloc(size_t size) { return no_memory() ? NULL : real.malloc(size); }
static void *my_calloc(size_t n, size_t size) { return no_memory() ? NULL : real.calloc(n, size); }
static void *my_realloc(void *p, size_t size) { return no_memory() ? NULL : real.realloc(p, size); }
static void *my_aligned_alloc(size_t alignment, size_t size)
{
    return no_memory() ? NULL : real.aligned_alloc(alignment, size);
}

void world_install(void)
{
    real = tp_os;
    tp_os.open = my_open;
    tp_os.openat = my_openat;
    tp_os.close = my_close;
    tp_os.pread = my_pread;
    tp_os.pwrite = my_pwrite;
    tp_os.fstat = my_fstat;
    tp_os.stat = my_stat;
    tp_os.lstat = my_lstat;
    tp_os.readlink = my_readlink;
    tp_os.fsync = my_fsync;
    tp_os.fallocate = my_fallocate;
    tp_os.ftruncate = my_ftruncate;
    tp_os.rename = my_rename;
    tp_os.rename_new = my_rename_new;
    tp_os.exchange = my_exchange;
    tp_os.mkdir = my_mkdir;
    tp_os.mkdirat = my_mkdirat;
    tp_os.unlink = my_unlink;
    tp_os.unlinkat = my_unlinkat;
    tp_os.fcntl_lock = my_lock;
    tp_os.fdopendir = my_fdopendir;
    tp_os.readdir = my_readdir;
    tp_os.closedir = my_closedir;
    tp_os.realpath = my_realpath;
    tp_os.start_thread = my_start_thread;
    tp_os.malloc = my_malloc;
    tp_os.calloc = my_calloc;
    tp_os.realloc = my_realloc;
    tp_os.aligned_alloc = my_aligned_alloc;
    json_set_alloc_funcs(my_malloc, free);
}

void world_arm(uint64_t number, enum fault fault, bool stays)
{
    atomic_store(&calls, 0);
    atomic_store(&at, number);
    armed = fault;
    sticky = stays;
}

uint64_t world_calls(void) { return atomic_load(&calls); }
void world_keep_trace(void) { memcpy(kept, trace, sizeof kept); }
enum call world_call(uint64_t n) { return n <= TRACE ? (enum call)kept[n - 1] : CALL_ALLOC; }
void world_log(bool on) { logging = on; }
