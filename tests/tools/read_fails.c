/* A library to be preloaded: files with a certain end of their name cannot be opened, looked at
 * or read.
 *
 * READ_FAILS_CALL: "open", "stat" or "pread"; READ_FAILS_NAME: the end of the file's name;
 * READ_FAILS_ERRNO: the number of the error.
 */
#include "preload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fails(const char *call, const char *path)
{
    const char *which = getenv("READ_FAILS_CALL"), *name = getenv("READ_FAILS_NAME");
    const char *number = getenv("READ_FAILS_ERRNO");
    if (!which || !name || !number || strcmp(which, call) != 0 || strlen(path) < strlen(name) ||
        strcmp(path + strlen(path) - strlen(name), name) != 0)
        return 0;
    errno = atoi(number);
    return 1;
}

static int fails_reading(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = '\0';
    return fails("pread", path);
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = mode_of(args, flags);
    va_end(args);
    REAL(open);
    return fails("open", path) ? -1 : real(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = mode_of(args, flags);
    va_end(args);
    REAL(openat);
    return fails("open", path) ? -1 : real(dir, path, flags, mode);
}

int stat(const char *restrict path, struct stat *restrict st)
{
    REAL(stat);
    return fails("stat", path) ? -1 : real(path, st);
}

ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
    REAL(pread);
    return fails_reading(fd) ? -1 : real(fd, data, size, offset);
}
