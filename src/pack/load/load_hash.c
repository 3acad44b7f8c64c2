/* Hashing what is loaded. Leaves are read one by one, so that each is hashed while the
 * processor's cache holds it.
 */
#include "pack/load/load_hash.h"

#include "base/num.h"
#include "pack/source/descriptor.h"
#include "pack/source/file_hash.h"

#include <string.h>

enum tp_code tp_load_hash_open(const struct tp_checkpoint *ckpt, uint32_t file,
                               struct tp_load_hash *hash, struct tp_err *err)
{
    const struct tp_file *from = &ckpt->files[file];
    const char *digits = tp_st_meta(&from->header, TP_META_HASH);
    *hash = (struct tp_load_hash){.file = file};
    enum tp_code code = tp_file_hash_place(ckpt, file, &hash->place, err);
    if (code)
        return code;
    if (!digits || hash->place == UINT64_MAX ||
        !tp_hash_parse(digits, strlen(digits), hash->stored))
        return tp_refuse_at(err, TP_E_UNSUPPORTED, from->path,
                            "only files that tilepack wrote can be verified while they are loaded",
                            "its header does not hold its hash");
    return tp_leafhash_init(&hash->leaves, from->size, err);
}

void tp_load_hash_close(struct tp_load_hash *hash) { tp_leafhash_close(&hash->leaves); }

enum tp_code tp_load_hash_read(const struct tp_checkpoint *ckpt, struct tp_load_hash *hash,
                               uint8_t *data, uint64_t size, uint64_t offset,
                               struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (uint64_t at = 0; at < size && code == TP_OK; at += TP_LEAF_BYTES) {
        uint64_t leaf = tp_min_u64(TP_LEAF_BYTES, size - at);
        code = tp_checkpoint_read(ckpt, hash->file, data + at, leaf, offset + at, err);
        if (code)
            break;
        tp_hash_blank(data + at, leaf, offset + at, hash->place);
        code = tp_leafhash_written(&hash->leaves, offset + at, data + at, leaf, err);
    }
    return code;
}

enum tp_code tp_load_hash_check(const struct tp_checkpoint *ckpt, struct tp_load_hash *hash,
                                struct tp_err *err)
{
    uint8_t actual[TP_HASH_BYTES];
    char theirs[TP_HASH_TEXT], ours[TP_HASH_TEXT];
    enum tp_code code = tp_leafhash_final(&hash->leaves, actual, err);
    if (code || memcmp(actual, hash->stored, sizeof actual) == 0)
        return code;
    tp_hash_print(hash->stored, theirs);
    tp_hash_print(actual, ours);
    tp_err_path(err, ckpt->files[hash->file].path);
    return tp_fail(err, TP_E_DIFF, "its contents have changed: the hash is %s, its header says %s",
                   ours, theirs);
}
