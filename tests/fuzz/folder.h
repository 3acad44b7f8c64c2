/* For fuzz targets: a condition that must hold, and a folder of the process in memory
 * (FUZZ_TMPDIR, else /dev/shm, else TMPDIR, else /tmp), in which it works, for functions that
 * take a path. The folder goes when the process ends by itself.
 */
#ifndef TP_FUZZ_FOLDER_H
#define TP_FUZZ_FOLDER_H

#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void must(int holds)
{
    if (!holds)
        abort();
}

static char fuzz_path[256];

static inline int fuzz_remove(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    return at->level ? remove(path) : 0;
}

/* Takes everything out of the folder, which must be entered. */
static inline void fuzz_empty(void)
{
    must(nftw(".", fuzz_remove, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

static inline void fuzz_leave(void)
{
    if (chdir(fuzz_path) == 0)
        nftw(".", fuzz_remove, 16, FTW_DEPTH | FTW_PHYS);
    rmdir(fuzz_path);
}

/* Makes and enters the folder, once. */
static inline void fuzz_enter(void)
{
    const char *roots[] = {getenv("FUZZ_TMPDIR"), "/dev/shm", getenv("TMPDIR"), "/tmp"};
    for (size_t i = 0; i < sizeof roots / sizeof *roots && !*fuzz_path; i++) {
        if (!roots[i] || strlen(roots[i]) > 200)
            continue;
        snprintf(fuzz_path, sizeof fuzz_path, "%s/tilepack-fuzz.XXXXXX", roots[i]);
        if (!mkdtemp(fuzz_path))
            *fuzz_path = '\0';
    }
    must(*fuzz_path && chdir(fuzz_path) == 0);
    atexit(fuzz_leave);
}

/* A file below the folder, of a fixed time: a plan's identity counts times. */
static inline void fuzz_write(const char *name, const void *data, size_t size)
{
    static const struct timespec times[2] = {{.tv_sec = 1700000000}, {.tv_sec = 1700000000}};
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    must(fd >= 0 && write(fd, data, size) == (ssize_t)size && futimens(fd, times) == 0);
    close(fd);
}

/* A .safetensors file of this header and `rest` bytes, which are BF16 numbers from 0.5 to 2. */
static inline void fuzz_write_tensors(const char *name, const char *header, size_t size,
                                      size_t rest)
{
    char *file = calloc(1, 8 + size + rest);
    must(file != NULL);
    for (int i = 0; i < 8; i++)
        file[i] = (char)(size >> 8 * i);
    memcpy(file + 8, header, size);
    for (size_t i = 0; i < rest; i++)
        file[8 + size + i] = (char)(i & 1 ? 0x3f : i * 29);
    fuzz_write(name, file, 8 + size + rest);
    free(file);
}

#endif
