/* SHA-256 of files, several at a time. A file is read from its beginning to its end. */
#include "pack/file/sha256.h"

#include "base/num.h"
#include "pack/os/os.h"

#include <nettle/sha2.h>
#include <nettle/version.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 256 << 10, MAX_THREADS = 64 };

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

void tp_sha256_print(const uint8_t digest[TP_SHA256_BYTES], char text[TP_SHA256_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < TP_SHA256_BYTES; i++) {
        text[2 * i] = digits[digest[i] >> 4];
        text[2 * i + 1] = digits[digest[i] & 15];
    }
    text[TP_SHA256_TEXT - 1] = '\0';
}

bool tp_sha256_parse(const char *text, uint8_t digest[TP_SHA256_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(text) != TP_SHA256_TEXT - 1)
        return false;
    for (int i = 0; i < TP_SHA256_BYTES; i++) {
        const char *high = strchr(digits, text[2 * i]), *low = strchr(digits, text[2 * i + 1]);
        if (!high || !low)
            return false;
        digest[i] = (uint8_t)((high - digits) << 4 | (low - digits));
    }
    return true;
}

struct work {
    struct tp_sha256_file *files;
    size_t count;
    atomic_size_t next;
    atomic_int *stop;
};

static enum tp_code hash_file(struct tp_sha256_file *file, uint8_t *data, atomic_int *stop)
{
    struct sha256_ctx hash;
    struct stat st;
    int fd = -1;
    enum tp_code code = tp_os_open_regular(file->path, 0, &fd, &st, &file->err);
    file->size = code ? 0 : (uint64_t)st.st_size;
    sha256_init(&hash);
    for (uint64_t at = 0; at < file->size && code == TP_OK; at += READ_BYTES) {
        uint64_t part = tp_min_u64(file->size - at, READ_BYTES);
        int caught = stop ? atomic_load(stop) : 0;
        code = caught ? tp_fail(&file->err, caught == 2 ? TP_E_INTERRUPT : TP_E_TERMINATE,
                                "interrupted")
                      : tp_os_read(fd, data, part, at, file->path, &file->err);
        if (code == TP_OK)
            sha256_update(&hash, (size_t)part, data);
    }
    if (code == TP_OK)
        code = tp_os_read_end(fd, file->size, file->path, &file->err);
    tp_os_close(&fd);
    finish(&hash, file->digest);
    return code;
}

static void *hash_files(void *arg)
{
    struct work *work = arg;
    struct tp_err short_of_memory = {0};
    uint8_t *data = tp_os_alloc(READ_BYTES, &short_of_memory);
    for (size_t i; (i = atomic_fetch_add(&work->next, 1)) < work->count;) {
        if (!data)
            work->files[i].err = short_of_memory;
        else
            hash_file(&work->files[i], data, work->stop);
    }
    free(data);
    return NULL;
}

enum tp_code tp_sha256_files(struct tp_sha256_file *files, size_t count, unsigned jobs,
                             atomic_int *stop, struct tp_err *err)
{
    struct work work = {.files = files, .count = count, .stop = stop};
    pthread_t others[MAX_THREADS];
    unsigned started = 0;
    uint64_t want = tp_min_u64(tp_min_u64(jobs, MAX_THREADS), count);
    while (started + 1 < want && tp_os.start_thread(&others[started], hash_files, &work) == 0)
        started++; /* one fewer if the system has no more: the same digests */
    hash_files(&work);
    for (unsigned i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    for (size_t i = 0; i < count; i++)
        if (files[i].err.code) {
            if (err->code == TP_OK)
                *err = files[i].err;
            return files[i].err.code;
        }
    return TP_OK;
}
