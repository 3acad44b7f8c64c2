/* What a run is told besides its plan and its sink, and what it tells of a box. */
#ifndef TP_PACK_RUN_OPTIONS_H
#define TP_PACK_RUN_OPTIONS_H

#include "base/dtype.h"
#include "base/error.h"
#include "base/layout.h"
#include "pack/os/stage.h"

#include <stdatomic.h>

struct tp_invariants;
struct tp_read_sums;
struct tp_devices;
struct tp_byte_budget;

/* What one box was, for those who look at values (verify --against). */
struct tp_observed {
    uint32_t unit;
    uint64_t box_index;
    struct tp_box box;
    enum tp_dtype dtype;                  /* of values; TP_DTYPE_NONE when taken over */
    const void *values;                   /* source values of the box, compact */
    void *const *out;                     /* the unit's outputs for the box */
    float global;                         /* as tp_args.global was */
    struct tp_byte_budget *shared_budget; /* of the run's options */
};

/* Global scales that are 1, as the dtype of the values does not hold them:
 * tp_codec_global_lost(). */
struct tp_lost_globals {
    size_t count;     /* of sets of weights, or experts, that share one */
    uint32_t unit;    /* the first of them in the plan that is run, */
    const char *name; /* of that plan, */
    enum tp_dtype dtype;
    float amax;       /* and its largest value */
};

struct tp_run_options {
    unsigned jobs;             /* worker threads, at least 1 */
    struct tp_devices *devices; /* GPUs that do the boxes (slots may be halved), or NULL */
    uint64_t memory;           /* bytes that all contexts together may take; 0 = default */
    uint64_t work;             /* of which tp_budget_run() gives them no more, where it is enough;
                                  0: all */
    unsigned zstd;             /* level at which the sink compresses; 0: not at all */
    bool drop_source;          /* what was read leaves the page cache, unless it was there */
    uint64_t box_target;       /* preferred bytes per box; 0 = default (tests vary it) */
    bool same_boxes;           /* with devices the boxes that jobs and memory give without them,
                                  so that what is summed by box is the same; those that do not
                                  fit into a slot are the CPU's */
    bool keep_nonfinite;
    atomic_uint_fast64_t *nonfinite; /* per unit: receives how many of the values that are written
                                        plain are NaN or infinite; or NULL */
    struct tp_lost_globals *lost;     /* receives them, or NULL */
    struct tp_invariants *invariants; /* what is known of tensors that are copied; or NULL */
    struct tp_read_sums *sums; /* of what is read (read_sums.h); or NULL */
    const bool *skip_file;     /* per plan file: already done; or NULL */
    atomic_int *stop;          /* becomes a signal number when the user interrupts; or NULL */
    void (*progress)(void *arg, uint64_t bytes, const char *tensor); /* or NULL */
    void *progress_arg;
    enum tp_code (*observe)(void *arg, const struct tp_observed *seen, struct tp_err *err);
    void *observe_arg;
    struct tp_byte_budget
        *shared_budget; /* what observers may take together, as tp_budget_run() sets it; NULL: all
                                             that they need */
    struct tp_run_stats *stats; /* receives the time of each stage, or NULL */
};

#endif
