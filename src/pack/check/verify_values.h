/* The values of each weight that a run makes, against those of its source: an observer of
 * the run (tp_run_options.observe), which has the bytes of a box in its hands anyway.
 *
 * All values of all weights, or, sampled, some rows of the weights whose scales are
 * searched, or that are made of packed ones and may lose something: one granule of rows (those
 * that lie together, one in most formats) of 61, more of a small weight, so that 64 are looked at.
 * Their number is odd, so that they are not always the same row of each attention head.
 *
 * Sums are kept per box (sampled: per granule) and added in that order, so that the figures do
 * not depend on the threads, for boxes of the same size. Granules do not depend on boxes either,
 * but where rows are so long that they are cut: then by the last digits.
 */
#ifndef TP_PACK_VERIFY_VALUES_H
#define TP_PACK_VERIFY_VALUES_H

#include "pack/check/values.h"
#include "pack/run/run_options.h"

#include <pthread.h>

/* How a converted weight relates to its source. */
struct tp_unit_result {
    char *name;
    struct tp_box3 box;
    int rank;
    const struct tp_format *format;
    struct tp_distance distance; /* a: the source's values, b: the stored operands'; of no
                                    values: it was not measured, or not whole */
    enum tp_search search;       /* of its scales, NONE: there was none; with a search: */
    struct tp_distance none;     /* as `distance`, of what would be stored without the search */
    bool weighted;               /* a file's importance was used: */
    struct tp_distance weighted_distance, weighted_none; /* errors and values times its root */
    enum tp_loss loss;           /* what it may lose, of a packed source */
    bool differs;                /* stored bytes are not those that the source gives */
};

/* One for each unit of the plan, with nothing measured. NULL: no memory. */
struct tp_unit_result *tp_unit_results_new(const struct tp_plan *plan, struct tp_err *err);
void tp_unit_results_free(struct tp_unit_result *units, size_t count); /* legal on NULL */

struct tp_value_observer {
    const struct tp_plan *plan;
    const struct tp_side *source;
    bool sampled;
    struct tp_unit_result *units;       /* of the plan: receive the distances */
    struct tp_value_sums *sums;         /* per unit */
    struct tp_box_buffers *idle;
    pthread_mutex_t lock;               /* of sums and idle */
};

enum tp_code tp_value_observer_open(struct tp_value_observer *observer, const struct tp_plan *plan,
                                    const struct tp_side *source, bool sampled,
                                    struct tp_unit_result *units, struct tp_err *err);
/* Legal on {0}, and when a run has left sums that are not complete. */
void tp_value_observer_close(struct tp_value_observer *observer);

/* One box; from any thread. `observer` is a struct tp_value_observer. */
enum tp_code tp_value_observe(void *observer, const struct tp_observed *seen, struct tp_err *err);

#endif
