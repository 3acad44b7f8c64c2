/* Fuzz target: any bytes as a zstd archive, opened and read.
 * Build: make fuzz.
 *
 * Beyond not crashing: reads are repeatable, parts equal the whole, a failure
 * carries a message, and what is accepted whole is what libzstd restores.
 */
#include "pack/os/os.h"
#include "pack/file/zst.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LARGEST = 1 << 20 }; /* larger contents are only probed: this is about bounds */

static const uint8_t *file;
static size_t file_size;

static ssize_t read_file(int fd, void *data, size_t size, off_t offset)
{
    (void)fd;
    if (offset < 0 || (size_t)offset >= file_size)
        return 0;
    size_t rest = file_size - (size_t)offset;
    size_t part = size < rest ? size : rest;
    memcpy(data, file + offset, part);
    return (ssize_t)part;
}

static void require(int condition)
{
    if (!condition)
        abort();
}

static void read_parts(struct tp_zst *zst, const uint8_t *whole, uint64_t size)
{
    uint8_t part[300];
    for (uint64_t at = 0; at < size; at += size / 7 + 1) {
        struct tp_err err = {0};
        uint64_t n = size - at < sizeof part ? size - at : sizeof part;
        require(tp_zst_read(zst, part, n, at, &err) == TP_OK);
        require(memcmp(part, whole + at, n) == 0);
    }
}

/* The frames of a range lie in the archive; nothing is behind its end. */
static void check_ends(struct tp_zst *zst, uint64_t size)
{
    struct tp_err err = {0};
    uint8_t byte;
    uint64_t begin = 0, end = size;
    require(tp_zst_read(zst, &byte, 1, size, &err) == TP_E_INPUT && err.what[0]);
    if (!size)
        return;
    tp_zst_stored(zst, &begin, &end);
    require(begin < end && end <= file_size);
}

/* libzstd reads the whole file, seek table and all, to the same bytes. */
static void compare_with_libzstd(const uint8_t *whole, uint64_t size)
{
    uint8_t *all = malloc(size + 1);
    require(all != NULL);
    size_t n = ZSTD_decompress(all, size, file, file_size);
    require(!ZSTD_isError(n) && n == size && memcmp(all, whole, n) == 0);
    free(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    file = data;
    file_size = size;
    tp_os.pread = read_file;
    struct tp_err err = {0};
    struct tp_zst *zst;
    tp_zst_cache_limit(size % 2 ? 1 << 16 : 64 << 20); /* what is kept makes way, or not */
    enum tp_code code = tp_zst_open(-1, size, "fuzz.zst", &zst, &err);
    if (!code) {
        uint64_t n = tp_zst_size(zst);
        check_ends(zst, n);
        uint64_t part = n < LARGEST ? n : LARGEST;
        uint8_t *whole = malloc(part + 1);
        require(whole != NULL);
        code = tp_zst_read(zst, whole, part, 0, &err);
        if (!code) {
            read_parts(zst, whole, part);
            require(tp_zst_largest(zst) >= (n > 0));
            if (part == n)
                compare_with_libzstd(whole, n);
        }
        if (n > part && !code) {
            uint8_t last;
            code = tp_zst_read(zst, &last, 1, n - 1, &err);
        }
        free(whole);
    }
    if (code)
        require(err.code == code && err.what[0]);
    require(!code || code == TP_E_INPUT || code == TP_E_UNSUPPORTED);
    tp_zst_close(zst);
    return 0;
}
