/* tilepack.json: what a converted checkpoint consists of, and its checksums.
 * Written last; its presence is the commit. Defined in formats/README.md.
 */
#ifndef TP_PACK_MANIFEST_H
#define TP_PACK_MANIFEST_H

#include "pack/commit/manifest_read.h"
#include "pack/plan/unit/plan.h"
#include "pack/text/text.h"

/* What was read of the source, beside its headers. */
struct tp_manifest_data {
    struct tp_sum *sums; /* per file of the checkpoint, valid where `known` */
    bool *known;
    bool card; /* it has a model card of this size and hash, whose text went into the output's */
    uint64_t card_size;
    uint8_t card_hash[TP_HASH_BYTES];
};

/* The manifest's text for a finished plan; `files` as they lie in the directory. */
enum tp_code tp_manifest_text(const struct tp_plan *plan, const struct tp_request *request,
                              const struct tp_manifest_data *data,
                              const struct tp_manifest_file *files, size_t file_count,
                              struct tp_text *text, struct tp_err *err);

/* Hashes the files in `directory` with SHA-256, `jobs` at a time. */
enum tp_code tp_manifest_digest(const char *directory, struct tp_manifest_file *files,
                                size_t file_count, unsigned jobs, atomic_int *stop,
                                struct tp_err *err);

/* Identity of a conversion without times: request, source names, sizes and header
 * hashes, as 32 hex digits. */
void tp_manifest_plan_id(const struct tp_plan *plan, char text[TP_HASH_TEXT]);

#endif
