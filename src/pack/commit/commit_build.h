/* Inside of committing: shared by commit_convert.c (one process, one output), commit_directory.c,
 * commit_output.c (its place), commit_again.c (whether it is there already), commit_found.c (what
 * is said of it), commit_old.c (what it replaces), commit_files.c (what is in it), commit_names.c,
 * parts_convert.c and merge.c (shares of one plan).
 */
#ifndef TP_PACK_COMMIT_BUILD_H
#define TP_PACK_COMMIT_BUILD_H

#include "pack/commit/commit.h"
#include "pack/commit/journal.h"
#include "pack/run/read_sums.h"
#include "pack/plan/unit/plan.h"

#include <sys/stat.h>

struct tp_invariants;
struct tp_sink;

/* One commit on its way. Closed by tp_commit_close(). */
struct tp_commit {
    const struct tp_plan *plan;
    const struct tp_request *request;
    const struct tp_convert_options *options;
    const char *output;
    struct tp_convert_result *result;
    char *partial, *old, *parent; /* OUTPUT.partial, OUTPUT.old, and the directory of all */
    int dir;                /* the partial directory, open; -1: not yet, or a single file */
    struct tp_journal journal;
    struct tp_read_sums *sums; /* while it runs: of what is read */
    struct tp_manifest_data data;
    bool begun;                /* shards may have been written */
    pthread_mutex_t lock; /* of the journal */
    struct tp_manifest_file *files;
    size_t file_count;
    const bool *others; /* of a part, per plan file: those of other parts; or NULL */
    enum tp_code (*take)(struct tp_commit *c);  /* takes over shards that are made, or NULL */
    enum tp_code (*texts)(struct tp_commit *c); /* NULL: tp_commit_write_texts() */
    struct tp_err *err;
};

/* commit_directory.c */
/* The whole of it for a directory: partial directory, journal, shards, finish. */
enum tp_code tp_commit_directory(struct tp_commit *c, struct tp_convert_result *result);

/* Identity of the shards that are read, in addition to the plan's: the times at which their inodes
 * were changed last. Of copies it differs. */
enum tp_code tp_commit_source_id(const struct tp_commit *c, uint8_t hash[TP_HASH_BYTES]);

/* commit_output.c */
enum tp_code tp_commit_paths(struct tp_commit *c); /* sets partial, old and parent, once */
enum tp_code tp_commit_check_not_source(const struct tp_plan *plan, const char *path,
                                        struct tp_err *err);
/* TP_E_USAGE where no rename gives or takes the path's name: a file system is mounted there. */
enum tp_code tp_commit_check_name(const char *path, struct tp_err *err);
/* TP_E_USAGE when the place, a file or a directory, is or holds something that is being read, at
 * any depth. */
enum tp_code tp_commit_check_inputs(const struct tp_commit *c, const char *path);
/* What cannot be read, for whatever reason, is not, and that becomes the error: it wins over
 * whatever the caller says then. */
bool tp_commit_is_empty(const char *path, struct tp_err *err);
/* Right before a rename: TP_E_USAGE, unless what is at `path` is open as `fd`, and so was written
 * here. */
enum tp_code tp_commit_check_place(const char *path, int fd, struct tp_err *err);
/* Before the work: whether OUTPUT may be written, by options->if_exists. Ends what an interrupted
 * run left to do in an output that is complete. TP_OK with result->already_done or
 * result->skipped: it is there, and nothing is to be done. */
enum tp_code tp_commit_check_output(struct tp_commit *c, struct tp_convert_result *result);
/* The output is there and is this one. What cannot be looked at is the error. */
bool tp_commit_is_done(struct tp_commit *c);
/* Fails when the file system of the directory has no room for the files that are to come: all but
 * those of `skip` (by file of c->plan, or NULL) and of the journal; `copies`: and the copies. */
enum tp_code tp_commit_check_space(const struct tp_commit *c, const char *directory,
                                   const bool *skip, bool copies);

/* commit_again.c */
enum tp_found {
    TP_FOUND_SAME,
    TP_FOUND_AGAIN, /* the same: the source's files are others, or newer, and were read again */
    TP_FOUND_MERGED, /* an output that is complete, whose parts are gone */
    TP_FOUND_UNREAD, /* the source's files are others, or newer, and were not to be read */
    TP_FOUND_MAYBE,  /* they are, and the manifest has no sums to compare them with */
    TP_FOUND_SOURCE,  /* the source has changed */
    TP_FOUND_FORMAT,  /* another format */
    TP_FOUND_OPTIONS, /* other options */
    TP_FOUND_VERSION, /* all the same, but of a version that makes something else of it */
    TP_FOUND_INCOMPLETE,
    TP_FOUND_FOREIGN, /* no output of this program */
    TP_FOUND_FILE,    /* a single file: it is not known what it was made of */
    TP_FOUND_KIND,    /* a file in place of a directory, or the reverse */
    TP_FOUND_UNFINISHED, /* something is where the unfinished output would be */
    TP_FOUND_LATE,       /* it came while this one was written */
    TP_FOUND_OLD,        /* OUT.old is there */
    TP_FOUND_PART,       /* a part that is of another plan */
};
struct tp_look {
    enum tp_found found;
    char detail[200]; /* the format, or the file that is missing */
};
/* What the directory OUTPUT is. `read`: the source is read where its files are others, or newer. */
enum tp_code tp_commit_look(struct tp_commit *c, bool read, struct tp_look *look);
/* Beside the manifest of the unfinished output: which files the source has. */
enum tp_code tp_commit_note_source(struct tp_commit *c);

/* commit_found.c */
const char *tp_found_reason(enum tp_found found); /* a word for programs */
/* TP_E_EXISTS, with what was found. */
enum tp_code tp_commit_fail_found(const struct tp_commit *c, const struct tp_look *look);

/* commit_old.c */
#define TP_REPLACES_NAME ".tilepack-replaces" /* in an output: it has replaced something */
/* The finished directory takes the place of the output that is there, which comes to be OUT.old, or
 * OUT.partial until tp_commit_finalize(). */
enum tp_code tp_commit_replace(struct tp_commit *c);
/* OUTPUT, open as `dir`, has its name: makes that durable, ends what was replaced, and then removes
 * the journal. What is kept of what was replaced is in c->result. */
enum tp_code tp_commit_finalize(struct tp_commit *c, int dir);
/* The same for an output that an interrupted run has left so; else nothing. TP_E_LOCKED: that run
 * is another process, and at work. */
enum tp_code tp_commit_finalize_former(struct tp_commit *c);
/* TP_E_LOCKED: the journal in the directory is locked by another process. */
enum tp_code tp_commit_check_at_rest(const char *directory, struct tp_err *err);
/* TP_E_EXISTS: OUT.old is there. */
enum tp_code tp_commit_fail_old(const struct tp_commit *c);
/* Whether the single file has a header of this program's and the size that it says, or no content.
 * What cannot be read is the error. */
bool tp_commit_is_own_file(const char *path, struct tp_err *err);
/* A single file that is there and is none of this program's gets the name OUT.old with `act`;
 * TP_E_EXISTS where that is there already. */
enum tp_code tp_commit_keep_file(struct tp_commit *c, bool act);

/* commit_names.c */
/* A name that files of published checkpoints have, and logs or notes beside them have not. */
bool tp_commit_is_usual(const char *name);
/* That of a shard to the letter, whatever the options: "model.safetensors",
 * "model-00001-of-00002.safetensors" (plan/file/files.c), and archives. */
bool tp_commit_is_shard(const char *name);
bool tp_commit_is_index(const char *name); /* "model.safetensors.index.json" and its like */
#define TP_PART_FILE "tilepack-part.json" /* in the directory of a part */

/* commit_copies.c */
/* What tp_commit_run() knows of packed weights that are copied, into *contents, which becomes
 * run->invariants: before tp_budget_run(), which counts its memory. Looks at their layout words:
 * TP_E_INPUT where they cannot be. tp_invariants_close() is legal also where it fails. */
enum tp_code tp_commit_open_copies(const struct tp_commit *c, struct tp_invariants *invariants,
                                   struct tp_run_options *run);
/* tp_run() of c->plan; packed weights that are copied are looked at on the way: TP_E_INPUT where
 * padding or scales cannot be. */
enum tp_code tp_commit_run(const struct tp_commit *c, struct tp_sink *sink,
                           struct tp_run_options *run);

/* commit_files.c. The list of files has room for all that these add. */
void tp_commit_close(struct tp_commit *c); /* releases the journal's lock */
/* Removes a file or a link of the open directory `dir`, called `path`; one that is gone is fine. */
enum tp_code tp_commit_remove_file(int dir, const char *path, const char *name,
                                   struct tp_err *err);
enum tp_code tp_commit_reserve_files(struct tp_commit *c);
enum tp_code tp_commit_record_shard(struct tp_commit *c, uint32_t f);
/* As of a file that is made here. */
enum tp_code tp_commit_hash_text(const char *data, size_t size, uint8_t hash[TP_HASH_BYTES],
                                 struct tp_err *err);
enum tp_code tp_commit_write_small(struct tp_commit *c, const char *name, const char *data,
                                   size_t size, bool listed);
/* Whether a file of the source is copied as it is: not where the output has one of its own, and
 * not what the config makes stale. */
bool tp_commit_copies(const struct tp_plan *plan, const char *name);
/* Opens one for reading. It may be another file than when the source was opened: a pipe must not
 * block, a link not lead outside. */
enum tp_code tp_commit_open_other(const struct tp_checkpoint *ckpt, const char *path, int *fd,
                                  struct stat *st, struct tp_err *err);
/* What those copies take; a file that cannot be looked at counts nothing. */
uint64_t tp_commit_copied_bytes(const struct tp_commit *c);
enum tp_code tp_commit_write_texts(struct tp_commit *c);

#endif
