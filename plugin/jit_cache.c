/* The cache's files. */
#include "jit_cache.h"

#include "pack/file/sha256.h"
#include "pack/os/os.h"
#include "pack/text/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_BYTES = 64 << 20 /* bytes of a file that is looked at */ };

static const char *value_of(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] == '/' ? value : NULL; /* a relative one is to be ignored */
}

/* Makes the directory of a path and those above it, of which the first are there. */
static void make_directories(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        tp_os.mkdir(path, 0700);
        *slash = '/';
    }
}

/* The file of a kernel, in fresh memory; NULL where there is no place for it. */
static char *path_of(const char *const *parts, struct tp_err *err)
{
    const char *cache = value_of("XDG_CACHE_HOME"), *home = value_of("HOME");
    struct tp_text all = {0};
    uint8_t digest[TP_SHA256_BYTES];
    char name[TP_SHA256_TEXT];
    if (!cache && !home)
        return NULL;
    for (; *parts; parts++) /* with its end: "ab","c" is not "a","bc" */
        if (tp_text_add(&all, *parts, strlen(*parts) + 1, err))
            break;
    if (!err->code) {
        tp_sha256(all.data, all.size, digest);
        tp_sha256_print(digest, name);
    }
    tp_text_free(&all);
    if (err->code)
        return NULL;
    return tp_os_format(err, "%s%s/tilepack/kernels/%s", cache ? cache : home,
                        cache ? "" : "/.cache", name);
}

/* Whether the file's directory and the one above it are of this user, and nobody else writes there:
 * what is in them is run. */
static bool is_safe(const char *path)
{
    char *above = strdup(path);
    bool safe = above != NULL;
    for (int i = 0; i < 2 && safe; i++) {
        struct stat st;
        *strrchr(above, '/') = 0;
        safe = tp_os.lstat(above, &st) == 0 && S_ISDIR(st.st_mode) &&
               st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH));
    }
    free(above);
    return safe;
}

static bool is_whole(const char *data, size_t size)
{
    uint8_t digest[TP_SHA256_BYTES];
    if (size <= TP_SHA256_BYTES)
        return false;
    tp_sha256(data, size - TP_SHA256_BYTES, digest);
    return memcmp(digest, data + size - TP_SHA256_BYTES, TP_SHA256_BYTES) == 0;
}

bool jit_cache_read(const char *const *parts, char **data, size_t *size)
{
    struct tp_err err = {0};
    char *path = path_of(parts, &err);
    *data = NULL;
    bool found = path && is_safe(path) && tp_os_slurp(path, MAX_BYTES, data, size, &err) == TP_OK &&
                 is_whole(*data, *size);
    free(path);
    if (!found) {
        free(*data);
        *data = NULL;
        return false;
    }
    *size -= TP_SHA256_BYTES;
    return true;
}

/* Under a name of this process, and then under the kernel's. */
static void write_file(const char *path, const char *data, size_t size, struct tp_err *err)
{
    uint8_t digest[TP_SHA256_BYTES];
    char *partial = tp_os_format(err, "%s.%ld", path, (long)getpid());
    int fd = -1;
    tp_sha256(data, size, digest);
    if (partial)
        tp_os.unlink(partial); /* of a process that had the number and was killed */
    if (!partial || tp_os_open(partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600, &fd, err)) {
        free(partial);
        return;
    }
    bool good = tp_os_write(fd, data, size, 0, partial, err) == TP_OK &&
                tp_os_write(fd, digest, sizeof digest, size, partial, err) == TP_OK;
    tp_os_close(&fd);
    if (!good || tp_os_rename(partial, path, err))
        tp_os.unlink(partial);
    free(partial);
}

void jit_cache_write(const char *const *parts, const char *data, size_t size)
{
    struct tp_err err = {0};
    char *path = path_of(parts, &err);
    if (path) {
        make_directories(path);
        if (is_safe(path))
            write_file(path, data, size, &err);
    }
    free(path);
}
