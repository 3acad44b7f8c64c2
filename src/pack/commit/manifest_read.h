/* What is read of a manifest: the files that a checkpoint consists of. */
#ifndef TP_PACK_MANIFEST_READ_H
#define TP_PACK_MANIFEST_READ_H

#include "pack/file/leafhash.h"
#include "pack/file/sha256.h"

#define TP_MANIFEST_NAME "tilepack.json"
enum { TP_MANIFEST_FILES = 1 << 20 }; /* at most in one */

struct tp_manifest_file {
    char *name;
    uint64_t size;
    uint8_t hash[TP_HASH_BYTES];
    bool has_sha256;
    uint8_t sha256[TP_SHA256_BYTES]; /* of its bytes on the disk */
    uint64_t hash_at, sha256_at;     /* where the text that was read has the digits, or 0 */
};

struct tp_manifest {
    char *plan; /* hash of request and source, as text */
    bool intact; /* the text is what was written: its own hash is right */
    struct tp_manifest_file *files; /* shards first, then the others, as written */
    size_t file_count;
};

/* Reads DIRECTORY/tilepack.json, of any size. TP_E_INPUT when it is not a manifest. */
enum tp_code tp_manifest_read(const char *directory, struct tp_manifest *manifest,
                              struct tp_err *err);
/* The same of a text in memory; `intact` stays false. */
enum tp_code tp_manifest_parse(const char *text, size_t size, struct tp_manifest *manifest,
                               struct tp_err *err);
void tp_manifest_close(struct tp_manifest *manifest);

#endif
