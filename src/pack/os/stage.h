/* Where the time of a run goes: seconds of its workers by stage.
 *
 * A worker says what it is about to do; the time since it last said so belongs to
 * the stage before. A thread that was not started here only pays for a test.
 */
#ifndef TP_PACK_STAGE_H
#define TP_PACK_STAGE_H

#include <stdatomic.h>
#include <stdint.h>

enum tp_stage {
    TP_STAGE_OTHER, /* planning boxes, waiting for other workers, opening files */
    TP_STAGE_READ,
    TP_STAGE_KERNEL, /* with a GPU: uploads and downloads too */
    TP_STAGE_HASH,   /* reading back what came in pieces included */
    TP_STAGE_WRITE,
    TP_STAGE_SYNC, /* fsync of finished files */
    TP_STAGES,
};
const char *tp_stage_name(enum tp_stage stage);

/* Nanoseconds, summed over all workers. {0} is empty; runs add to it. */
struct tp_run_stats {
    atomic_uint_fast64_t ns[TP_STAGES];
    atomic_uint workers;
};

/* From here to tp_stage_stop() this thread's time is counted, first as OTHER.
 * NULL: it is not. */
void tp_stage_start(struct tp_run_stats *stats);
void tp_stage_stop(void);

/* Begins a stage; returns the one that ends, to be begun again afterwards. */
enum tp_stage tp_stage_set(enum tp_stage stage);

#endif
