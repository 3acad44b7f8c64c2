/* Inside of committing: shared by commit_convert.c (one process, one output),
 * commit_directory.c, commit_output.c (its place), commit_remove.c, commit_done.c and
 * commit_same.c (whether it is complete),
 * commit_inputs.c (what is read), commit_replace.c (what --force may replace),
 * commit_case.c (names that differ in case only),
 * parts_convert.c and merge.c (shares of one plan).
 */
#ifndef TP_PACK_COMMIT_BUILD_H
#define TP_PACK_COMMIT_BUILD_H

#include "pack/commit/commit.h"
#include "pack/commit/journal.h"
#include "pack/run/read_sums.h"
#include "pack/plan/plan.h"

#include <sys/stat.h>

struct tp_contents;
struct tp_sink;

/* One commit on its way. Closed by tp_commit_close(). */
struct tp_commit {
    const struct tp_plan *plan;
    const struct tp_request *request;
    const struct tp_convert_options *options;
    const char *output;
    char *partial, *parent; /* OUTPUT.partial, and the directory that holds both */
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

/* commit_output.c */
enum tp_code tp_commit_paths(struct tp_commit *c); /* sets partial and parent, once */
/* TP_E_IO where the parent may not be opened, without which no name in it is made durable: better
 * said before all work than once the output has its name. */
enum tp_code tp_commit_check_parent(const struct tp_commit *c);
enum tp_code tp_commit_check_not_source(const struct tp_plan *plan, const char *path,
                                        struct tp_err *err);
/* TP_E_USAGE where no rename gives or takes the path's name: a file system is mounted there, or it
 * is another user's in a folder with the sticky bit, as /tmp is. */
enum tp_code tp_commit_check_name(const char *path, struct tp_err *err);
/* What cannot be read, for whatever reason, is not, and that becomes the error: it wins over
 * whatever the caller says then. */
bool tp_commit_is_empty(const char *path, struct tp_err *err);
#define TP_COMMIT_FORCED "--force replaces it once the new output is complete"
/* TP_E_USAGE: OUTPUT is there, with the hint `forced` where --force would replace it. */
enum tp_code tp_commit_in_the_way(struct tp_commit *c, const char *forced);
/* Whether what the output replaced, or its emptied folder, lies under the unfinished name. That is
 * known by the journals: the output keeps its own until the old content is gone, and no other
 * directory of that name is without one. False, and an error: what is there cannot be looked at. */
bool tp_commit_has_old(const char *output, const char *partial, struct tp_err *err);
/* TP_E_USAGE: nothing is deleted unasked, and what an interrupted `what` replaced is there. */
enum tp_code tp_commit_refuse_left(const char *partial, const char *what, struct tp_err *err);
/* Right before a rename: TP_E_USAGE, unless what is at `path` is open as `fd`, and so was written
 * here. */
enum tp_code tp_commit_check_place(const char *path, int fd, struct tp_err *err);
/* Whether OUTPUT may be written; sets result->already_done, and ends then what an interrupted run
 * left to do: TP_E_USAGE where that is to delete, and nobody said --force. */
enum tp_code tp_commit_check_output(struct tp_commit *c, struct tp_convert_result *result);
/* Whether --force replaces OUTPUT, which is there: a file by a file, or a directory by a directory,
 * which nobody writes to now and in which no file lies that the request names. */
enum tp_code tp_commit_check_replaceable(struct tp_commit *c, const struct stat *output);
/* TP_E_USAGE where a finished checkpoint, which somebody gave that name, is in the unfinished
 * output's place. */
enum tp_code tp_commit_check_unfinished(const struct tp_commit *c);
/* Fails when the file system of the directory has no room for the files that are to come: all but
 * those of `skip` (by file of c->plan, or NULL) and of the journal; `copies`: and the copies. */
enum tp_code tp_commit_check_space(const struct tp_commit *c, const char *directory,
                                   const bool *skip, bool copies);

/* commit_remove.c */
/* Of the open directory `dir`, called `path`: no link is followed, whenever it came there. */
/* Removes a file or a link. */
enum tp_code tp_commit_remove_file(int dir, const char *path, const char *name,
                                   struct tp_err *err);
/* The same, or a folder with all that is in it. */
enum tp_code tp_commit_remove_entry(int dir, const char *path, const char *name,
                                    struct tp_err *err);
/* Removes all that is in it, but not the file `keep` (NULL: all). */
enum tp_code tp_commit_empty(int dir, const char *path, const char *keep, struct tp_err *err);
/* Removes the directory NAME of `dir` (AT_FDCWD: of any path). */
enum tp_code tp_commit_remove_directory(int dir, const char *name, const char *path,
                                        struct tp_err *err);
/* Removes the journal from an output, which is open as `dir`; -1: it is where its name leads. */
enum tp_code tp_commit_end_journals(int dir, const char *output, struct tp_err *err);
/* After the rename: the commit is made durable, and only then the journal goes, as without it the
 * directory under its old name would be a stranger's. For the same reason it goes after the old
 * content, if one was `replaced`: an output that has its journal says whose the directory beside
 * it is. Wants the paths, and the plan as tp_commit_check_replace() does. */
enum tp_code tp_commit_end(struct tp_commit *c, bool replaced);

/* commit_copies.c */
/* What tp_commit_run() knows of packed weights that are copied, into *contents, which becomes
 * run->contents: before tp_budget_run(), which counts its memory. Looks at their layout words:
 * TP_E_INPUT where they cannot be. tp_contents_close() is legal also where it fails. */
enum tp_code tp_commit_open_copies(const struct tp_commit *c, struct tp_contents *contents,
                                   struct tp_run_options *run);
/* tp_run() of c->plan; packed weights that are copied are looked at on the way: TP_E_INPUT where
 * padding or scales cannot be. */
enum tp_code tp_commit_run(const struct tp_commit *c, struct tp_sink *sink,
                           struct tp_run_options *run);

/* commit_case.c: TP_E_UNSUPPORTED where two of the output's files would be one. The partial
 * directory must be there. */
enum tp_code tp_commit_check_case(const struct tp_commit *c);

/* commit_inputs.c */
/* TP_E_USAGE when the place, a file or a directory, is or holds something that is being read, at
 * any depth. */
enum tp_code tp_commit_check_inputs(const struct tp_commit *c, const char *path);
/* Identity of the shards that are read, in addition to the plan's: the times at which their inodes
 * were changed last. Of copies it differs. */
enum tp_code tp_commit_source_id(const struct tp_commit *c, uint8_t hash[TP_HASH_BYTES]);

/* commit_done.c: the output is complete and of this very plan, no shard of the source is newer, a
 * sample of them gives the bytes that are stored, and the other files are those that would be
 * written. What cannot be looked at (tp_err_unread()) is false, and becomes the error, as above; it
 * takes no more memory than the run. */
bool tp_commit_is_done(const struct tp_commit *c);

/* commit_same.c */
/* Whether the output's manifest lists what the plan writes there and nothing else, and each file
 * that holds no weights has the bytes that it says, which are those of the source where it is a
 * copy, and of the card. */
bool tp_commit_same_files(const struct tp_commit *c, const struct tp_manifest *manifest,
                          struct tp_err *err);

/* commit_replace.c */
/* Whether --force may replace the directory: a checkpoint, with no file that
 * is none of a checkpoint's, no directory, and no shard that is being read (by `plan`; NULL: no
 * source is open). `begun`: it is an unfinished output, whose files tp_commit_check_begun() looks
 * at; never without a plan. What this user may not delete is refused, too. */
enum tp_code tp_commit_check_replace(const struct tp_plan *plan, const char *path, bool begun,
                                     struct tp_err *err);
/* The same of a file, of which `st` tells: a safetensors file, an archive of one, or empty. */
enum tp_code tp_commit_check_replace_file(const char *path, const struct stat *st,
                                          struct tp_err *err);
/* A name that files of published checkpoints have, and logs or notes beside them have not. */
bool tp_commit_is_usual(const char *name);
/* Whether every file in the directory of an unfinished output is one that a conversion of this
 * source writes, under any options, or (`forced`) one that tp_commit_check_replace() takes for a
 * checkpoint's by its name; TP_E_USAGE names the first other one. */
enum tp_code tp_commit_check_begun(const struct tp_plan *plan, const char *path, bool forced,
                                   struct tp_err *err);
bool tp_commit_is_source(const struct tp_plan *plan, const struct stat *st);
/* A journal, which a finished output does not keep. */
bool tp_commit_is_own(const char *name);
#define TP_PART_FILE "tilepack-part.json" /* in the directory of a part */
bool tp_commit_is_mark(const char *name); /* a file by which a checkpoint is known */
/* Whether a journal lies there. *err: as tp_commit_is_empty(). */
bool tp_commit_holds_own(const char *path, struct tp_err *err);

/* commit_files.c. The list of files has room for all that these add. */
void tp_commit_close(struct tp_commit *c); /* releases the journal's lock */
enum tp_code tp_commit_room(struct tp_commit *c);
enum tp_code tp_commit_record_shard(struct tp_commit *c, uint32_t f);
enum tp_code tp_commit_write_small(struct tp_commit *c, const char *name, const char *data,
                                   size_t size, bool listed);
/* The model card; nothing where no weight is made. */
enum tp_code tp_commit_card(struct tp_commit *c, struct tp_text *text);
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
enum tp_code tp_commit_hash_text(const char *data, size_t size, uint8_t hash[TP_HASH_BYTES],
                                 struct tp_err *err);


#endif
