/* Jobs: what the workers of a run do next, made on demand from the plan.
 *
 * Several files are worked on at once (workers that write one file wait for its
 * lock), each by a cursor of its own. Nothing here grows with the checkpoint. Not
 * thread-safe: the run loop calls with its lock held. Inside of run.c.
 */
#ifndef TP_PACK_JOBS_H
#define TP_PACK_JOBS_H

#include "pack/plan/cut/box.h"

enum tp_job_kind {
    TP_JOB_HEADER,
    TP_JOB_STATS,
    TP_JOB_BOX,
    TP_JOB_COPY,
    TP_JOB_CONSTANT,
    TP_JOB_NONE,
};

struct tp_job {
    enum tp_job_kind kind;
    uint32_t file, output, unit;
    uint64_t index; /* box number, or offset of a copy */
};

/* Bytes of a copy job that begins at `index` of an output: up to the end of a leaf of
 * the file (leafhash.h), which then is written and hashed as it comes. */
uint64_t tp_copy_bytes(const struct tp_output *output, uint64_t index);

enum { TP_MAX_CURSORS = 8 };

struct tp_cursor {
    bool open, header_issued;
    uint32_t file, output;
    uint64_t index;
};

/* How far the stats jobs of a group are issued. */
struct tp_issue {
    uint32_t unit; /* within the group */
    uint64_t index;
};

struct tp_jobs {
    const struct tp_plan *plan;
    const struct tp_grid **grids; /* per unit */
    const bool *skip_file;       /* or NULL */
    struct tp_cursor cursors[TP_MAX_CURSORS];
    unsigned cursor_count;
    uint32_t next_file;
    struct tp_issue *issues; /* per stats group; the run's to free */
};

/* The group that box `index` of a unit belongs to: a stack has one per expert. */
uint32_t tp_jobs_group(const struct tp_jobs *jobs, uint32_t unit, uint64_t index);

/* The next job for a worker, TP_JOB_NONE when all are issued. A box whose unit needs
 * stats is issued after the last stats job of its group, so a worker that waits for
 * them waits for jobs that others hold already. */
struct tp_job tp_jobs_next(struct tp_jobs *jobs, unsigned worker);

#endif
