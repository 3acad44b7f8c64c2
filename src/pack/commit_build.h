/* Inside of committing: shared by commit.c (one process, one output), parts.c
 * (shares of one plan, and their merge), tp_commit.c (ranks) and commit_files.c.
 */
#ifndef TP_PACK_COMMIT_BUILD_H
#define TP_PACK_COMMIT_BUILD_H

#include "pack/commit.h"
#include "pack/journal.h"

/* One commit on its way. Closed by tp_commit_close(). */
struct tp_commit {
    const struct tp_plan *plan;
    const struct tp_request *request;
    const struct tp_convert_options *options;
    const char *output;
    char *partial, *parent; /* OUTPUT.partial, and the directory that holds both */
    struct tp_journal journal;
    pthread_mutex_t lock; /* of the journal */
    struct tp_manifest_file *files;
    size_t file_count;
    struct tp_err *err;
};

/* commit.c */
void tp_commit_close(struct tp_commit *c); /* releases the journal's lock */
enum tp_code tp_commit_paths(struct tp_commit *c); /* sets partial and parent */
enum tp_code tp_commit_check_not_source(const struct tp_plan *plan, const char *path,
                                        struct tp_err *err);
bool tp_commit_is_done(const struct tp_plan *plan, const char *output);
bool tp_commit_is_empty(const char *path);
enum tp_code tp_commit_in_the_way(const char *path, struct tp_err *err);
enum tp_code tp_commit_remove_file(const char *directory, const char *name, struct tp_err *err);
/* Whether OUTPUT may be written; sets result->already_done. */
enum tp_code tp_commit_check_output(struct tp_commit *c, struct tp_convert_result *result);
/* Runs the plan into shards of the partial directory, less those that `skip` names,
 * and enters each in the journal. */
enum tp_code tp_commit_run_shards(struct tp_commit *c, const bool *skip);
/* Removes from the partial directory what is neither a journal nor a shard that
 * c->journal.done names. */
enum tp_code tp_commit_sweep(struct tp_commit *c);
/* With all shards there and c->journal.hash filled in: small files, manifest, rename. */
enum tp_code tp_commit_finish(struct tp_commit *c);
/* Journals and what belongs to parts: names that a finished output does not keep. */
#define TP_PART_NAME ".tilepack-plan"
bool tp_commit_is_own(const char *name);
enum tp_code tp_commit_end_journals(const char *output, struct tp_err *err);

/* commit_files.c. The list of files has room for all that these add. */
enum tp_code tp_commit_room(struct tp_commit *c);
enum tp_code tp_commit_record_shard(struct tp_commit *c, uint32_t f);
enum tp_code tp_commit_write_small(struct tp_commit *c, const char *name, const char *data,
                                   size_t size, bool listed);
enum tp_code tp_commit_write_texts(struct tp_commit *c);

#endif
