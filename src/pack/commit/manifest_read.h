/* What is read of a manifest: the files that a checkpoint consists of. */
#ifndef TP_PACK_MANIFEST_READ_H
#define TP_PACK_MANIFEST_READ_H

#include "pack/file/leafhash.h"
#include "pack/file/sha256.h"
#include "pack/file/sums.h"

#define TP_MANIFEST_NAME "tilepack.json"
enum { TP_MANIFEST_FILES = 1 << 20 }; /* at most in one */

struct tp_manifest_file {
    char *name;
    uint64_t size;
    uint8_t hash[TP_HASH_BYTES];
    bool has_sha256;
    uint8_t sha256[TP_SHA256_BYTES]; /* of its bytes on the disk */
};

/* A file of the source. Other versions may have written less of it. */
struct tp_manifest_source {
    char *name;
    uint64_t size;
    bool has_header, has_data;
    uint8_t header[TP_HASH_BYTES]; /* or of all of a file that is not safetensors */
    struct tp_sum data;
};

struct tp_name_key;

struct tp_manifest {
    char *plan; /* hash of request and source, as text */
    bool intact; /* the text is what was written: its own hash is right */
    struct tp_manifest_file *files; /* shards first, then the others, as written */
    size_t file_count;
    struct tp_manifest_source *sources;
    size_t source_count;
    uint64_t request_at, request_size; /* where the file has what was asked for, as JSON */
    struct tp_name_key *sorted; /* their names, for tp_manifest_find() */
};

/* Reads DIRECTORY/tilepack.json, of any size. TP_E_INPUT when it is not a manifest. */
enum tp_code tp_manifest_read(const char *directory, struct tp_manifest *manifest,
                              struct tp_err *err);
/* The entry of that name, or NULL. */
const struct tp_manifest_file *tp_manifest_find(const struct tp_manifest *manifest,
                                                const char *name);
/* The first file that DIRECTORY has not, or not in its size; NULL: it has them all, or err says
 * what cannot be looked at. */
const struct tp_manifest_file *tp_manifest_lacks(const struct tp_manifest *manifest,
                                                 const char *directory, struct tp_err *err);
/* Whether a file of that name of `length` bytes is listed; whether one in that folder is. */
bool tp_manifest_has(const struct tp_manifest *manifest, const char *name, size_t length);
bool tp_manifest_has_folder(const struct tp_manifest *manifest, const char *folder);
void tp_manifest_close(struct tp_manifest *manifest);

#endif
