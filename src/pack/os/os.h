/* The outside world as a table: every system call and allocation of src/pack
 * goes through `tp_os`, so that a test can make the N-th one fail.
 *
 * The wrappers below add what every caller needs (EINTR, short transfers, an
 * error value with the path); no other file of src/pack calls open, pread,
 * pwrite, fsync, rename or malloc by itself. free() is called directly: it
 * cannot fail.
 */
#ifndef TP_PACK_OS_H
#define TP_PACK_OS_H

#include "base/error.h"

#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

struct tp_os {
    int (*open)(const char *path, int flags, mode_t mode);
    int (*openat)(int directory, const char *name, int flags, mode_t mode);
    int (*close)(int fd);
    ssize_t (*pread)(int fd, void *data, size_t size, off_t offset);
    ssize_t (*pwrite)(int fd, const void *data, size_t size, off_t offset);
    int (*fstat)(int fd, struct stat *st);
    int (*stat)(const char *path, struct stat *st);
    int (*lstat)(const char *path, struct stat *st);
    ssize_t (*readlink)(const char *path, char *target, size_t size);
    ssize_t (*fgetxattr)(int fd, const char *name, void *value, size_t size);
    int (*fsetxattr)(int fd, const char *name, const void *value, size_t size, int flags);
    int (*fsync)(int fd);
    bool (*is_mount)(const char *path); /* itself, not what a link leads to; false: unknown, too */
    int (*free_bytes)(const char *path, uint64_t *bytes); /* that this user may write there */
    int (*start_writeback)(int fd); /* of all dirty pages, without waiting; may do nothing */
    int (*drop_cache)(int fd, off_t offset, off_t size); /* clean pages; size 0: to the end */
    int (*cached)(int fd, off_t offset, size_t size); /* 1: some page is, 0: none, -1: unknown */
    /* posix_fallocate: returns errno. A file system in memory would take each page now,
     * which spares the write that comes no more than it costs: only with `fill`. */
    int (*fallocate)(int fd, off_t offset, off_t size, bool fill);
    int (*ftruncate)(int fd, off_t size);
    int (*rename)(const char *from, const char *to);
    int (*rename_new)(const char *from, const char *to); /* EEXIST: `to` is taken */
    int (*exchange)(const char *a, const char *b); /* swaps two names in one step */
    int (*mkdir)(const char *path, mode_t mode);
    int (*mkdirat)(int directory, const char *name, mode_t mode);
    int (*unlink)(const char *path);
    int (*unlinkat)(int directory, const char *name, int flags);
    int (*fcntl_lock)(int fd, struct flock *lock); /* F_OFD_SETLK */
    void *(*malloc)(size_t size);
    void *(*calloc)(size_t count, size_t size);
    void *(*realloc)(void *memory, size_t size);
    void *(*aligned_alloc)(size_t alignment, size_t size);
    int (*start_thread)(pthread_t *thread, void *(*work)(void *), void *arg); /* returns errno */
    DIR *(*fdopendir)(int fd);
    struct dirent *(*readdir)(DIR *dir);
    int (*closedir)(DIR *dir);
    char *(*realpath)(const char *path, char *resolved); /* resolved = NULL: fresh memory */
    int (*getrlimit)(int what, struct rlimit *limit);
    int (*setrlimit)(int what, const struct rlimit *limit);
};
extern struct tp_os tp_os;

/* tp_fail_sys() with the path and a hint that suits the errno. */
enum tp_code tp_os_fail(struct tp_err *err, int sys, const char *path, const char *what);

/* Whether something is at the path, and what. False with an error in *err: nobody knows, because
 * the system could not look, or there is no path (NULL), whose error is there already. That is
 * never "no": without the error nothing is there, or a link to nothing. */
bool tp_os_there(const char *path, struct stat *st, struct tp_err *err);
/* The same of a link itself. */
bool tp_os_link_there(const char *path, struct stat *st, struct tp_err *err);

/* Reads exactly `size` bytes; a file that ends early is TP_E_INPUT ("truncated"). */
enum tp_code tp_os_read(int fd, void *data, uint64_t size, uint64_t offset, const char *path,
                        struct tp_err *err);
/* Fails unless a file that was read up to `size` bytes ends there: its size is what the system
 * says beforehand, which is 0 of files in /proc, whatever they hold. */
enum tp_code tp_os_read_end(int fd, uint64_t size, const char *path, struct tp_err *err);
/* Writes exactly `size` bytes. A full disk is TP_E_IO with a hint. */
enum tp_code tp_os_write(int fd, const void *data, uint64_t size, uint64_t offset,
                         const char *path, struct tp_err *err);
/* Opens with O_CLOEXEC added. When the process is out of descriptors its soft
 * limit is raised to the hard one first (checkpoints of 1,000 shards exist).
 * *fd is -1 on failure. */
enum tp_code tp_os_open(const char *path, int flags, mode_t mode, int *fd, struct tp_err *err);
/* The same for a name in an open directory (AT_FDCWD: that of the process); `path` is for
 * messages. */
enum tp_code tp_os_openat(int directory, const char *name, int flags, mode_t mode,
                          const char *path, int *fd, struct tp_err *err);
/* Whether an errno of open() says that what is there is no regular file: a socket, say, or a device
 * that nobody drives, which cannot be opened. */
bool tp_sys_special(int sys);
/* Opens a regular file for reading and says what it is. Anything else (a
 * directory, a pipe, a socket, a device) is TP_E_INPUT and never blocks. */
enum tp_code tp_os_open_regular(const char *path, int flags, int *fd, struct stat *st,
                                struct tp_err *err);
/* Closes *fd unless it is negative and sets it to -1. For files that were only
 * read, or that were fsynced before: a failure can no longer lose data. */
void tp_os_close(int *fd);
/* A failed fsync is final: the kernel may have dropped the pages, so the file
 * has to be written again. Never called twice for the same bytes. */
enum tp_code tp_os_fsync(int fd, const char *path, struct tp_err *err);
char *tp_os_parent(const char *path, struct tp_err *err); /* its directory; fresh memory */
/* Makes names in a directory durable; file systems that cannot are accepted. */
enum tp_code tp_os_fsync_dir(const char *path, struct tp_err *err);
enum tp_code tp_os_rename(const char *from, const char *to, struct tp_err *err);
/* The same, but replaces nothing: with *taken set nothing was done. A file system that
 * cannot promise that renames plainly. */
enum tp_code tp_os_rename_new(const char *from, const char *to, bool *taken, struct tp_err *err);
/* Whether that path is the open file or directory itself, not a link to it. What cannot be looked
 * at is false, and becomes the error. */
bool tp_os_has_name(int fd, const char *path, struct tp_err *err);
/* Takes the exclusive lock of an open file: it belongs to this descriptor and dies
 * with the process. TP_E_LOCKED when another process holds it, or has meanwhile put
 * another file (or none) in the path's place. A file system that gives no lock, for
 * whatever reason, is used without one, and *unlocked is set: nobody is kept out then. */
enum tp_code tp_os_lock(int fd, const char *path, bool *unlocked, struct tp_err *err);
/* `mode` less the umask. An existing directory is an error (EEXIST). */
enum tp_code tp_os_mkdir(const char *path, mode_t mode, struct tp_err *err);

/* Whole small file into a malloc'ed, NUL-terminated buffer; refuses files larger
 * than `limit` bytes (TP_E_INPUT) and anything that is not a regular file. */
enum tp_code tp_os_slurp(const char *path, uint64_t limit, char **data, size_t *size,
                         struct tp_err *err);

/* The same for a file whose text is in reach by its descriptor. */
enum tp_code tp_os_slurp_fd(int fd, const struct stat *st, const char *path, uint64_t limit,
                            char **data, size_t *size, struct tp_err *err);

/* Names in a directory, without "." and "..", in byte order. Free with
 * tp_os_list_free(), which is legal on {0} and twice. */
struct tp_os_list {
    char **names;
    size_t count, capacity;
};
enum tp_code tp_os_list(const char *path, struct tp_os_list *list, struct tp_err *err);
/* The same for the directory NAME in an open one (AT_FDCWD: that of the process), opened with
 * these flags more; `path` is for messages. */
enum tp_code tp_os_list_at(int directory, const char *name, int flags, const char *path,
                           struct tp_os_list *list, struct tp_err *err);
void tp_os_list_free(struct tp_os_list *list);

/* Fails with TP_E_INPUT (and no hint) if `path`, all links resolved, does not lie inside the
 * directory `root`. *resolved (free with free()) is the path without links. */
enum tp_code tp_os_inside(const char *root, const char *path, char **resolved,
                          struct tp_err *err);

/* NULL + TP_E_MEMORY in *err when memory is short; free with free(). */
void *tp_os_alloc(size_t size, struct tp_err *err);
void *tp_os_zalloc(size_t count, size_t size, struct tp_err *err);

/* What a process takes beside its heap: code, libraries, stacks, and what the heap wastes. */
#define TP_OS_PROGRAM_BYTES (UINT64_C(16) << 20)
/* Bytes that the heap has taken from the system; 0 where that is not known. */
uint64_t tp_os_heap_bytes(void);
/* From now on allocations fail when the heap would grow beyond `max` bytes (0: never), of small
 * ones the first of each some, and what is large goes back to the system when it is freed.
 * Not thread-safe. */
void tp_os_limit_heap(uint64_t max);
/* What the heap may still grow by; UINT64_MAX without a limit. */
uint64_t tp_os_heap_left(void);
/* TP_E_MEMORY: --max-memory is too little. */
enum tp_code tp_os_fail_limit(struct tp_err *err);

/* Makes room in a growing array for `need` items of `size` bytes; *capacity is updated. */
enum tp_code tp_os_grow(void **items, size_t *capacity, size_t need, size_t size,
                        struct tp_err *err);
/* The first `size` bytes of `text` and then all of `end`, in fresh memory. */
char *tp_os_join(struct tp_err *err, const char *text, size_t size, const char *end);
char *tp_os_copy(struct tp_err *err, const char *text);
/* printf into fresh memory. */
char *tp_os_format(struct tp_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
