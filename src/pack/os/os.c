/* The table of system calls as the C library has them, and what of them it does not have in a form
 * for a table.
 *
 * Keeps no state but the table, and knows no error values: calls.c and memory.c turn errno into
 * those.
 */
#include "pack/os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <sys/vfs.h>
#include <unistd.h>

/* open() is variadic, and the C library types the resource argument as an enum. */
static int real_open(const char *path, int flags, mode_t mode) { return open(path, flags, mode); }
static int real_openat(int directory, const char *name, int flags, mode_t mode)
{
    return openat(directory, name, flags, mode);
}
static int real_start_writeback(int fd)
{
    return sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}
static int real_drop_cache(int fd, off_t offset, off_t size)
{
    return posix_fadvise(fd, offset, size, POSIX_FADV_DONTNEED);
}

/* The pages are mapped but never touched, so a file that shrinks does no harm. */
static int real_cached(int fd, off_t offset, size_t size)
{
    unsigned char pages[256]; /* 1 MiB of pages of 4 KiB */
    size_t page = (size_t)sysconf(_SC_PAGE_SIZE), count = (size + page - 1) / page;
    if (count > sizeof pages)
        return -1;
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, offset);
    if (map == MAP_FAILED)
        return -1;
    int any = mincore(map, size, pages) ? -1 : 0;
    for (size_t i = 0; i < count && any == 0; i++)
        any = pages[i] & 1;
    munmap(map, size);
    return any;
}
static int real_fallocate(int fd, off_t offset, off_t size, bool fill)
{
    struct statfs fs;
    if (!fill && fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC)
        return ftruncate(fd, offset + size) ? errno : 0;
    return posix_fallocate(fd, offset, size);
}

static int real_start_thread(pthread_t *thread, void *(*work)(void *), void *arg)
{
    return pthread_create(thread, NULL, work, arg);
}

static int real_rename_new(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
}
static int real_exchange(const char *a, const char *b)
{
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}
static int real_lock(int fd, struct flock *lock) { return fcntl(fd, F_OFD_SETLK, lock); }
static int real_getrlimit(int what, struct rlimit *limit) { return getrlimit(what, limit); }
static int real_setrlimit(int what, const struct rlimit *limit) { return setrlimit(what, limit); }

#ifndef STATX_ATTR_MOUNT_ROOT /* of older C libraries */
#define STATX_ATTR_MOUNT_ROOT 0x2000
#endif
/* Of two mounts of one file system the device is the same: the kernel says it (Linux 5.8). */
static bool real_is_mount(const char *path)
{
    struct statx st;
    return statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, 0, &st) == 0 &&
           (st.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

/* A file system that counts nothing, as some of networks do, says nothing. */
static int real_free_bytes(const char *path, uint64_t *bytes)
{
    struct statvfs st;
    if (statvfs(path, &st) || !st.f_blocks)
        return -1;
    *bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}

struct tp_os tp_os = {
    .open = real_open,
    .openat = real_openat,
    .close = close,
    .pread = pread,
    .pwrite = pwrite,
    .fstat = fstat,
    .stat = stat,
    .lstat = lstat,
    .readlink = readlink,
    .fgetxattr = fgetxattr,
    .fsetxattr = fsetxattr,
    .fsync = fsync,
    .is_mount = real_is_mount,
    .free_bytes = real_free_bytes,
    .start_writeback = real_start_writeback,
    .drop_cache = real_drop_cache,
    .cached = real_cached,
    .fallocate = real_fallocate,
    .ftruncate = ftruncate,
    .rename = rename,
    .rename_new = real_rename_new,
    .exchange = real_exchange,
    .mkdir = mkdir,
    .mkdirat = mkdirat,
    .unlink = unlink,
    .unlinkat = unlinkat,
    .fcntl_lock = real_lock,
    .start_thread = real_start_thread,
    .malloc = malloc,
    .calloc = calloc,
    .realloc = realloc,
    .aligned_alloc = aligned_alloc,
    .fdopendir = fdopendir,
    .readdir = readdir,
    .closedir = closedir,
    .realpath = realpath,
    .getrlimit = real_getrlimit,
    .setrlimit = real_setrlimit,
};
