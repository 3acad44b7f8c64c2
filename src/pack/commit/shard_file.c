/* Reading shards back. A finished file's hash counts its own digits as zeros. */
#include "pack/commit/shard_file.h"

#include "base/num.h"
#include "pack/file/zst.h"
#include "pack/os/os.h"
#include "pack/source/descriptor.h"

#include <stdlib.h>
#include <string.h>

#define MAX_HEADER (UINT64_C(1) << 20)

enum tp_code tp_shard_open(struct tp_shard_file *shard, int fd, uint64_t size, bool archive,
                           const char *path, struct tp_err *err)
{
    *shard = (struct tp_shard_file){.fd = fd, .path = path, .size = size, .hash_at = UINT64_MAX};
    enum tp_code code = archive ? tp_zst_open(fd, size, path, &shard->zst, err) : TP_OK;
    if (shard->zst)
        shard->size = tp_zst_size(shard->zst);
    return code;
}

void tp_shard_close(struct tp_shard_file *shard)
{
    tp_zst_close(shard->zst);
    shard->zst = NULL;
}

static enum tp_code read_plain(const struct tp_shard_file *shard, void *data, uint64_t size,
                               uint64_t offset, struct tp_err *err)
{
    return shard->zst ? tp_zst_read(shard->zst, data, size, offset, err)
                      : tp_os_read(shard->fd, data, size, offset, shard->path, err);
}

enum tp_code tp_shard_find_digits(struct tp_shard_file *shard, struct tp_err *err)
{
    static const char marker[] = "\"" TP_META_HASH "\":\"";
    size_t size = (size_t)tp_min_u64(shard->size, MAX_HEADER);
    char *text = tp_os_alloc(size + 1, err);
    enum tp_code code = text ? read_plain(shard, text, size, 0, err) : TP_E_MEMORY;
    const char *found = code ? NULL : memmem(text, size, marker, strlen(marker));
    if (found)
        shard->hash_at = (uint64_t)(found - text) + strlen(marker);
    free(text);
    return code;
}

static enum tp_code read_blank(void *arg, void *data, uint64_t size, uint64_t offset,
                               struct tp_err *err)
{
    const struct tp_shard_file *shard = arg;
    enum tp_code code = read_plain(shard, data, size, offset, err);
    if (code == TP_OK)
        tp_hash_blank(data, size, offset, shard->hash_at);
    return code;
}

enum tp_code tp_shard_hash(const struct tp_shard_file *shard, unsigned threads,
                           uint8_t hash[TP_HASH_BYTES], struct tp_err *err)
{
    struct tp_shard_file file = *shard;
    return tp_leafhash_file(file.size, threads, read_blank, &file, hash, err);
}

bool tp_shard_has_digits(const struct tp_shard_file *shard, const uint8_t hash[TP_HASH_BYTES],
                         struct tp_err *err)
{
    char digits[TP_HASH_TEXT], stored[TP_HASH_TEXT - 1];
    tp_hash_print(hash, digits);
    return read_plain(shard, stored, sizeof stored, shard->hash_at, err) == TP_OK &&
           memcmp(stored, digits, sizeof stored) == 0;
}
