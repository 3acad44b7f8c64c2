/* A library to be preloaded: another user who may write to a folder, and puts a link into the place
 * of a folder in it just before the program's N-th call that names the folder.
 *
 * SWAPS_FOLDER: its path; SWAPS_AWAY: where it goes; SWAPS_TO: what the link leads to; SWAPS_N.
 */
#include "preload.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the folder's name is one of the path's. */
static int names(const char *path, const char *folder)
{
    const char *name = strrchr(folder, '/') + 1;
    size_t size = strlen(name);
    for (const char *at = path; (at = strstr(at, name)); at += size)
        if ((at == path || at[-1] == '/') && (at[size] == '/' || !at[size]))
            return 1;
    return 0;
}

static void meet(const char *path)
{
    static atomic_int met;
    const char *folder = getenv("SWAPS_FOLDER");
    if (!folder || !names(path, folder) || ++met != atoi(getenv("SWAPS_N")))
        return;
    fprintf(stderr, "[call %s]\n", getenv("SWAPS_N"));
    if (rename(folder, getenv("SWAPS_AWAY")) == 0 && symlink(getenv("SWAPS_TO"), folder) != 0)
        abort();
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = mode_of(args, flags);
    va_end(args);
    REAL(open);
    meet(path);
    return real(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = mode_of(args, flags);
    va_end(args);
    REAL(openat);
    meet(path);
    return real(dir, path, flags, mode);
}

DIR *opendir(const char *path)
{
    REAL(opendir);
    meet(path);
    return real(path);
}

int unlink(const char *path)
{
    REAL(unlink);
    meet(path);
    return real(path);
}

int unlinkat(int dir, const char *path, int flags)
{
    REAL(unlinkat);
    meet(path);
    return real(dir, path, flags);
}

int mkdirat(int dir, const char *path, mode_t mode)
{
    REAL(mkdirat);
    meet(path);
    return real(dir, path, mode);
}
