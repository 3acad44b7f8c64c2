/* A shard that is written, read back: plain, or an archive, of which the plain bytes count. */
#ifndef TP_PACK_SHARD_FILE_H
#define TP_PACK_SHARD_FILE_H

#include "pack/file/leafhash.h"

struct tp_zst;

struct tp_shard_file {
    int fd;
    const char *path;
    struct tp_zst *zst;
    uint64_t size;    /* of the plain file */
    uint64_t hash_at; /* where it has the digits of its own hash; UINT64_MAX: nowhere */
};

/* Reads the file that is open as `fd`, `size` bytes on the disk; `hash_at` is nowhere. */
enum tp_code tp_shard_open(struct tp_shard_file *shard, int fd, uint64_t size, bool archive,
                           const char *path, struct tp_err *err);
void tp_shard_close(struct tp_shard_file *shard); /* but for `fd`; legal where opening failed */

/* Sets hash_at by what its header says; only for small files, whose header is read as a whole. */
enum tp_code tp_shard_find_digits(struct tp_shard_file *shard, struct tp_err *err);
/* Its hash, with its own digits as zeros. */
enum tp_code tp_shard_hash(const struct tp_shard_file *shard, unsigned threads,
                           uint8_t hash[TP_HASH_BYTES], struct tp_err *err);
/* Whether those digits are of this hash. */
bool tp_shard_has_digits(const struct tp_shard_file *shard, const uint8_t hash[TP_HASH_BYTES],
                         struct tp_err *err);

#endif
