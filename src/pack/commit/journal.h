/* The journal of a directory that is being written: which shards are finished.
 * Lines of text, fsynced one by one; a line cut off by a crash does not count. The first says
 * which plan; then may come the source, behind "# source ", and the command, behind "# "; then one
 * for each shard: its name, its hash, "read", and SOURCE:SUM of what was read for it
 * (run/read_sums.h).
 */
#ifndef TP_PACK_JOURNAL_H
#define TP_PACK_JOURNAL_H

#include "pack/file/leafhash.h"
#include "pack/run/read_sums.h"

#define TP_JOURNAL_NAME ".tilepack-journal"

/* What the shards of a journal are made of. */
struct tp_journal_work {
    const struct tp_plan *plan;
    const uint8_t *source; /* identity of its files, tp_commit_source_id() */
    const char *command;   /* what a new journal says of itself, one line; NULL: nothing */
    bool zstd;             /* they are archives */
};

struct tp_journal {
    char *path;
    int fd; /* also holds the lock, which dies with the process */
    bool unlocked; /* the file system gives none: no other process is kept out */
    uint64_t size;
    bool *done;                      /* per plan file */
    uint8_t (*hash)[TP_HASH_BYTES];  /* per plan file, valid when done */
    struct tp_read_list *read;       /* the same: what was read for it */
    size_t file_count, done_count; /* of the plan */
    bool names_shards; /* one at least, be it of another plan */
    bool other_source; /* of this plan, but its files were changed or replaced since */
    char *command;     /* that began it; NULL: it does not say */
};

/* Opens or creates DIRECTORY/NAME, DIRECTORY open as `dir`, and locks it. A journal of the
 * same work is read back and every shard it names is proven by its hash; *foreign is set when
 * it is of another plan or source. */
enum tp_code tp_journal_open(int dir, const char *directory, const char *name,
                             const struct tp_journal_work *work, struct tp_journal *journal,
                             bool *foreign, struct tp_err *err);
/* A foreign journal becomes an empty one of this work; the lock is held throughout. */
enum tp_code tp_journal_restart(struct tp_journal *journal, const struct tp_journal_work *work,
                                struct tp_err *err);
/* Enters a finished shard; its fields are valid from then on. Steals the items of *read, in any
 * case. */
enum tp_code tp_journal_add(struct tp_journal *journal, const struct tp_plan *plan, uint32_t file,
                            const uint8_t hash[TP_HASH_BYTES],
                            struct tp_read_list *read, struct tp_err *err);
/* Its text, as it is on the disk; fresh memory. */
enum tp_code tp_journal_text(const struct tp_journal *journal, char **text, size_t *size,
                             struct tp_err *err);
/* Adds what the text of another journal says of shards of the same plan. The shards that it names
 * are done until tp_journal_prove() has looked at them. */
enum tp_code tp_journal_join(struct tp_journal *journal, const struct tp_plan *plan,
                             const char *text, struct tp_err *err);
/* Whether shard f, which the journal names, is what it says: done[f]. */
enum tp_code tp_journal_prove(struct tp_journal *journal, int dir, const struct tp_plan *plan,
                              uint32_t f, bool zstd, struct tp_err *err);
void tp_journal_close(struct tp_journal *journal); /* releases the lock */

#endif
