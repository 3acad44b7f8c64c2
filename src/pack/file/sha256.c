/* SHA-256 of files, several at a time. A file is read from its beginning to its end.
 * Invariant: what is held does not grow with the number of files. */
#include "pack/file/sha256.h"

#include "base/num.h"
#include "pack/file/hash_text.h"
#include "pack/os/os.h"
#include "pack/os/threads.h"

#include <nettle/sha2.h>
#include <nettle/version.h>
#include <stdlib.h>
#include <string.h>

enum {
    READ_BYTES = 256 << 10,
    BATCH = 256, /* files at a time: each has an error of its own */
};

static void finish(struct sha256_ctx *hash, uint8_t digest[TP_SHA256_BYTES])
{
#if NETTLE_VERSION_MAJOR >= 4
    sha256_digest(hash, digest);
#else
    sha256_digest(hash, TP_SHA256_BYTES, digest);
#endif
}

void tp_sha256(const void *data, size_t size, uint8_t digest[TP_SHA256_BYTES])
{
    struct sha256_ctx hash;
    sha256_init(&hash);
    sha256_update(&hash, size, data);
    finish(&hash, digest);
}

/* A digest has the bytes of two hashes. */
void tp_sha256_print(const uint8_t digest[TP_SHA256_BYTES], char text[TP_SHA256_TEXT])
{
    tp_hash_print(digest, text);
    tp_hash_print(digest + TP_HASH_BYTES, text + 2 * TP_HASH_BYTES);
}

bool tp_sha256_parse(const char *text, uint8_t digest[TP_SHA256_BYTES])
{
    const size_t half = TP_HASH_TEXT - 1;
    return strlen(text) == 2 * half && tp_hash_parse(text, half, digest) &&
           tp_hash_parse(text + half, half, digest + TP_HASH_BYTES);
}

struct work {
    struct tp_sha256_file *files;
    atomic_int *stop;
};

static void hash_file(struct tp_sha256_file *file, uint8_t *data, atomic_int *stop)
{
    struct sha256_ctx hash;
    struct stat st;
    int fd = -1;
    enum tp_code code = tp_os_open_regular(file->path, 0, &fd, &st, &file->err);
    file->size = code ? 0 : (uint64_t)st.st_size;
    sha256_init(&hash);
    for (uint64_t at = 0; at < file->size && code == TP_OK; at += READ_BYTES) {
        uint64_t part = tp_min_u64(file->size - at, READ_BYTES);
        if ((code = tp_stopped(stop, &file->err)) == TP_OK &&
            (code = tp_os_read(fd, data, part, at, file->path, &file->err)) == TP_OK)
            sha256_update(&hash, (size_t)part, data);
    }
    if (code == TP_OK)
        tp_os_read_end(fd, file->size, file->path, &file->err);
    tp_os_close(&fd);
    finish(&hash, file->digest);
}

static enum tp_code hash_one(void *arg, void *data, uint64_t i, struct tp_err *err)
{
    const struct work *work = arg;
    (void)err; /* each file has its own */
    hash_file(&work->files[i], data, work->stop);
    return TP_OK;
}

/* `count` files from number `first` on. */
static enum tp_code do_batch(const struct tp_sha256_list *list, size_t first, size_t count,
                             struct tp_sha256_file *files, unsigned jobs, atomic_int *stop,
                             struct tp_err *err)
{
    enum tp_code code = TP_OK;
    struct work work = {files, stop};
    const struct tp_each each = {.count = count, .threads = jobs, .one = hash_one, .arg = &work,
                                 .own = READ_BYTES};
    size_t named = 0;
    for (; named < count && code == TP_OK; named++) {
        files[named] = (struct tp_sha256_file){.path = list->path(list->arg, first + named, err)};
        code = files[named].path ? TP_OK : err->code;
    }
    if (code == TP_OK)
        code = tp_each(&each, err);
    for (size_t i = 0; i < named; i++) {
        if (code == TP_OK)
            code = list->take(list->arg, first + i, &files[i], err);
        free(files[i].path);
    }
    return code;
}

enum tp_code tp_sha256_each(const struct tp_sha256_list *list, unsigned jobs, atomic_int *stop,
                            struct tp_err *err)
{
    size_t max = tp_min_u64(list->count, BATCH);
    struct tp_sha256_file *files = tp_os_alloc(max * sizeof *files, err);
    enum tp_code code = files ? TP_OK : TP_E_MEMORY;
    for (size_t i = 0; i < list->count && code == TP_OK; i += BATCH)
        code = do_batch(list, i, tp_min_u64(list->count - i, BATCH), files, jobs, stop, err);
    free(files);
    return code;
}
