/* The run loop: workers take jobs from one plan until there are none.
 *
 * Each worker owns its buffers (a context) and does one job from reading to writing;
 * jobs of different workers overlap. The bytes do not depend on the number of
 * workers or on the size of the boxes.
 */
#ifndef TP_PACK_RUN_H
#define TP_PACK_RUN_H

#include "pack/plan/cut/box.h"
#include "pack/run/run_options.h"
#include "pack/sink/sink.h"

/* Carries out the plan into the sink. The first failure ends it; workers stop at
 * their next job. */
enum tp_code tp_run(const struct tp_plan *plan, struct tp_sink *sink,
                    const struct tp_run_options *options, struct tp_err *err);

/* Bytes that a run reports as its progress, for those files of the plan (NULL: all). */
uint64_t tp_run_work(const struct tp_plan *plan, const bool *files);

/* What the boxes of a run with so many workers are to be like; `assembles` is the sink's. */
struct tp_box_hints tp_run_box_hints(const struct tp_run_options *options, unsigned jobs);

#endif
