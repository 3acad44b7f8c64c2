/* The values of each weight that a run makes, against those of its source: an observer of
 * the run (tp_run_options.observe), which has the bytes of a box in its hands anyway.
 *
 * Sums are kept per box and added in the order of the boxes, and the boxes do not
 * depend on the number of threads, so the figures are the same on every run.
 */
#ifndef TP_PACK_VERIFY_VALUES_H
#define TP_PACK_VERIFY_VALUES_H

#include "pack/check/verify.h"

struct tp_value_observer {
    const struct tp_plan *plan;
    const struct tp_side *source;
    struct tp_unit_result *units;       /* of the report: receive the distances */
    struct tp_value_sums *sums;         /* per unit */
    struct tp_value_buffers *idle;
    pthread_mutex_t lock;               /* of sums and idle */
};

/* `units`: one for each of the plan. */
enum tp_code tp_value_observer_open(struct tp_value_observer *observer, const struct tp_plan *plan,
                                    const struct tp_side *source, struct tp_unit_result *units,
                                    struct tp_err *err);
/* Legal on {0}, and when a run has left sums that are not complete. */
void tp_value_observer_close(struct tp_value_observer *observer);

/* One box; from any thread. `observer` is a struct tp_value_observer. */
enum tp_code tp_value_observe(void *observer, const struct tp_observed *seen, struct tp_err *err);

#endif
