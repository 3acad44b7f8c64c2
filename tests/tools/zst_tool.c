/* A command line around pack/zst.h, for tests/cli/zst.sh only:
 *
 *     zst_tool pack LEVEL THREADS CUT IN OUT   writes OUT, a cut every CUT bytes (0: none)
 *     zst_tool read FILE OFFSET SIZE           plain bytes to stdout (SIZE -1: to the end)
 *     zst_tool flip FILE PLAIN COUNT SEED      random single-bit flips of FILE, each of
 *                                              which must be refused or change nothing
 *
 * Exit status: that of the error, whose text goes to stderr.
 */
#include "pack/os/os.h"
#include "pack/file/zst.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum tp_code open_archive(const char *path, int *fd, struct tp_zst **zst,
                                 struct tp_err *err)
{
    struct stat st;
    enum tp_code code = tp_os_open(path, O_RDONLY, 0, fd, err);
    if (code)
        return code;
    if (tp_os.fstat(*fd, &st))
        return tp_fail(err, TP_E_IO, "fstat");
    return tp_zst_open(*fd, (uint64_t)st.st_size, path, zst, err);
}

static enum tp_code pack(char **args, struct tp_err *err)
{
    uint64_t cut = strtoull(args[2], NULL, 10), size = 0;
    struct tp_zst_writer *w = NULL;
    FILE *in = fopen(args[3], "rb");
    char *data = malloc(1 << 20);
    int fd = -1;
    if (!in || !data)
        return tp_fail(err, TP_E_IO, "cannot read %s", args[3]);
    enum tp_code code = tp_os_open(args[4], O_RDWR | O_CREAT | O_TRUNC, 0666, &fd, err);
    if (!code)
        code = tp_zst_create(fd, args[4], atoi(args[0]), (unsigned)atoi(args[1]), &w, err);
    for (uint64_t at = 0; !code;) {
        uint64_t want = cut && cut - at % cut < 1 << 20 ? cut - at % cut : 1 << 20;
        size_t n = fread(data, 1, want, in);
        if (n == 0)
            break;
        code = tp_zst_add(w, data, n, err);
        at += n;
        if (!code && cut && at % cut == 0)
            code = tp_zst_cut(w, err);
    }
    if (!code)
        code = tp_zst_finish(w, &size, err);
    tp_zst_abandon(w);
    close(fd);
    fclose(in);
    free(data);
    return code;
}

static enum tp_code read_range(char **args, struct tp_err *err)
{
    struct tp_zst *zst = NULL;
    int fd = -1;
    enum tp_code code = open_archive(args[0], &fd, &zst, err);
    if (!code) {
        uint64_t at = strtoull(args[1], NULL, 10);
        uint64_t size = args[2][0] == '-' ? tp_zst_size(zst) - at : strtoull(args[2], NULL, 10);
        char *data = malloc(size + 1);
        code = data ? tp_zst_read(zst, data, size, at, err) : TP_E_MEMORY;
        if (!code && fwrite(data, 1, size, stdout) != size)
            code = tp_fail(err, TP_E_IO, "cannot write");
        free(data);
    }
    tp_zst_close(zst);
    close(fd);
    return code;
}

/* What was read from the flipped file; true if it is an error or the truth. */
static bool sound(int fd, uint64_t size, const char *plain, uint64_t plain_size, char *scratch,
                  int *refused)
{
    struct tp_err err = {0};
    struct tp_zst *zst;
    enum tp_code code = tp_zst_open(fd, size, "flipped", &zst, &err);
    bool same = false;
    if (!code) {
        uint64_t n = tp_zst_size(zst);
        if (n > plain_size)
            code = tp_zst_read(zst, scratch, plain_size, 0, &err);
        else
            code = tp_zst_read(zst, scratch, n, 0, &err);
        same = !code && n == plain_size && memcmp(scratch, plain, n) == 0;
    }
    tp_zst_close(zst);
    *refused += code != TP_OK;
    return code ? err.code == code && err.what[0] : same;
}

static enum tp_code flip(char **args, struct tp_err *err)
{
    char *packed = NULL, *plain = NULL, *scratch = NULL;
    size_t size = 0, plain_size = 0;
    int refused = 0, count = atoi(args[2]), fd = -1;
    srandom((unsigned)atoi(args[3]));
    enum tp_code code = tp_os_slurp(args[0], 1 << 28, &packed, &size, err);
    if (!code)
        code = tp_os_slurp(args[1], 1 << 28, &plain, &plain_size, err);
    if (!code)
        code = tp_os_open(args[0], O_RDWR, 0, &fd, err);
    if (!code)
        scratch = malloc(plain_size + 1);
    for (int i = 0; !code && i < count; i++) {
        /* A quarter in the last 64 bytes, where the seek table ends. */
        size_t at = i % 4 ? (size_t)random() % size : size - 1 - (size_t)random() % 64;
        char bad = packed[at] ^ (char)(1 << random() % 8);
        if (pwrite(fd, &bad, 1, (off_t)at) != 1)
            code = tp_fail(err, TP_E_IO, "cannot write");
        else if (!sound(fd, size, plain, plain_size, scratch, &refused))
            code = tp_fail(err, TP_E_DIFF, "byte %zu: 0x%02x -> 0x%02x was not noticed", at,
                           (unsigned char)packed[at], (unsigned char)bad);
        else if (pwrite(fd, packed + at, 1, (off_t)at) != 1)
            code = tp_fail(err, TP_E_IO, "cannot write");
    }
    printf("%d flips: %d refused, %d harmless\n", count, refused, count - refused);
    close(fd);
    free(packed);
    free(plain);
    free(scratch);
    return code;
}

int main(int argc, char **argv)
{
    struct tp_err err = {0};
    enum tp_code code = TP_E_USAGE;
    if (argc == 7 && strcmp(argv[1], "pack") == 0)
        code = pack(argv + 2, &err);
    else if (argc == 5 && strcmp(argv[1], "read") == 0)
        code = read_range(argv + 2, &err);
    else if (argc == 6 && strcmp(argv[1], "flip") == 0)
        code = flip(argv + 2, &err);
    if (code)
        fprintf(stderr, "%s: %s [%s]\n", err.path, err.what, err.hint);
    return (int)code;
}
