/* Sums of the source (file/sums.h), gained from what a run reads anyway.
 *
 * Each tensor is read for one file of the plan, that of the first output made of it, and counts
 * there: so the sums of a finished file can be written down, and a run that goes on, or one that
 * does another part, need not read for it again. Of a block that comes in pieces, as columns of a
 * matrix do, what has come is counted (16 groups). What of such a tensor came in other pieces, or
 * for other files, is read once more when the file is complete.
 */
#ifndef TP_PACK_READ_SUMS_H
#define TP_PACK_READ_SUMS_H

#include "pack/file/sums.h"
#include "pack/plan/unit/plan.h"

#include <pthread.h>
#include <stdatomic.h>

/* What was read for a file of the plan, by file of the source. */
struct tp_read_sum {
    uint32_t source;
    struct tp_sum sum;
};
struct tp_read_list {
    struct tp_read_sum *items;
    size_t count;
    bool known; /* else not counted */
};

struct tp_read_sums {
    const struct tp_plan *plan;
    uint32_t *owner;         /* per tensor of the source: a file of the plan, or TP_READ_BY_NONE */
    uint64_t *first_block;   /* per tensor: the number of its first block */
    _Atomic uint64_t *seen;  /* a bit for each block */
    struct tp_read_chunk **chunks; /* of blocks of which parts were seen */
    size_t chunk_count;
    struct tp_read_list *of; /* per file of the plan */
    pthread_mutex_t lock;    /* of what is in `of` and `chunks` */
};
#define TP_READ_BY_NONE UINT32_MAX

enum tp_code tp_read_sums_open(struct tp_read_sums *sums, const struct tp_plan *plan,
                               struct tp_err *err);
void tp_read_sums_close(struct tp_read_sums *sums); /* legal on {0} and twice */

/* One worker: what its thread reads is for that file of the plan. */
struct tp_read_watch {
    struct tp_read_sums *sums;
    uint32_t file; /* TP_READ_BY_NONE: does not count */
};
/* A tp_checkpoint_seen, of which `arg` is the watch. */
enum tp_code tp_read_sums_note(void *arg, const struct tp_checkpoint *ckpt, uint32_t file,
                               const void *data, uint64_t size, uint64_t offset,
                               struct tp_err *err);

/* With the plan's file f complete: reads what is left of its tensors, and hands over what was read
 * for it, to be freed also where it fails. */
enum tp_code tp_read_sums_file(struct tp_read_sums *sums, uint32_t f, struct tp_read_list *list,
                               struct tp_err *err);

/* The sums of the source's files from the lists of all files of the plan, and whether each is
 * known: all of its tensors were read, and counted. */
enum tp_code tp_read_sums_total(const struct tp_plan *plan, const struct tp_read_list *lists,
                                struct tp_sum *sums, bool *known, struct tp_err *err);

#endif
