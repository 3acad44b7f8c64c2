/* The hashes of files that are loaded, made of the leaves on the way, and compared with what
 * the files' headers say. */
#ifndef TP_PACK_LOAD_HASH_H
#define TP_PACK_LOAD_HASH_H

#include "pack/file/leafhash.h"
#include "pack/source/checkpoint.h"

struct tp_load_hash {
    struct tp_leafhash leaves;
    uint64_t place; /* of the file's own digits */
    uint8_t stored[TP_HASH_BYTES];
    uint32_t file;
};

/* TP_E_UNSUPPORTED where the file's header holds no hash. */
enum tp_code tp_load_hash_open(const struct tp_checkpoint *ckpt, uint32_t file,
                               struct tp_load_hash *hash, struct tp_err *err);
void tp_load_hash_close(struct tp_load_hash *hash); /* legal on {0} and twice */

/* Reads bytes of the file that begin with a leaf and end with one. Thread-safe. */
enum tp_code tp_load_hash_read(const struct tp_checkpoint *ckpt, struct tp_load_hash *hash,
                               uint8_t *data, uint64_t size, uint64_t offset,
                               struct tp_err *err);

/* After every byte was read: TP_E_DIFF when the file is not what its header says. */
enum tp_code tp_load_hash_check(const struct tp_checkpoint *ckpt, struct tp_load_hash *hash,
                                struct tp_err *err);

#endif
