/* tilepack.json: what a converted checkpoint consists of, and its checksums.
 * Written last; its presence is the commit. Defined in formats/README.md.
 */
#ifndef TP_PACK_MANIFEST_H
#define TP_PACK_MANIFEST_H

#include "pack/commit/manifest_read.h"
#include "pack/plan/plan.h"
#include "pack/text/text.h"

/* The manifest's text for a finished plan; `files` as they lie in the directory. */
enum tp_code tp_manifest_text(const struct tp_plan *plan, const struct tp_request *request,
                              const struct tp_manifest_file *files, size_t file_count,
                              struct tp_text *text, struct tp_err *err);

/* Hashes the files in `directory` with SHA-256, `jobs` at a time. */
enum tp_code tp_manifest_digest(const char *directory, struct tp_manifest_file *files,
                                size_t file_count, unsigned jobs, atomic_int *stop,
                                struct tp_err *err);

/* Whether a manifest's text lists SHA-256 for its files. */
enum tp_code tp_manifest_has_digests(const char *stored, size_t size, bool *has,
                                     struct tp_err *err);

/* A manifest's text with the hashes of the files that were written, in the order in
 * which it lists them: as tp_manifest_text() would have made it. TP_E_INPUT where it lists
 * others, or knows another size or hash of one. */
enum tp_code tp_manifest_refill(const char *stored, size_t size,
                                const struct tp_manifest_file *files, size_t file_count,
                                struct tp_text *text, struct tp_err *err);

/* Identity of a conversion without times: request, source names, sizes and header
 * hashes, as 32 hex digits. */
void tp_manifest_plan_id(const struct tp_plan *plan, char text[TP_HASH_TEXT]);

/* Identity of the files that a manifest lists: the hash of their names and hashes, in its order,
 * as 32 hex digits. Unlike the plan's it is of contents; digests and notes do not change it. */
enum tp_code tp_manifest_files_id(const struct tp_manifest_file *files, size_t count,
                                  char id[TP_HASH_TEXT], struct tp_err *err);

#endif
