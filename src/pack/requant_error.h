/* What decoding and quantizing again costs: the difference between the values of
 * packed sources and those of what was made from them, measured box by box while
 * the run goes on.
 */
#ifndef TP_PACK_REQUANT_ERROR_H
#define TP_PACK_REQUANT_ERROR_H

#include "pack/run.h"

#include <pthread.h>

struct tp_requant_error {
    const struct tp_plan *plan;
    pthread_mutex_t lock;
    uint64_t values, weights;    /* compared so far; weights: that had a first box */
    double error2, value2;       /* sums of squares of the differences and of the values */
    double largest;              /* difference */
    uint32_t unit;               /* where it is */
};

/* True when the plan has units to measure; opens *e (then to be closed). */
bool tp_requant_error_open(const struct tp_plan *plan, struct tp_requant_error *e);
void tp_requant_error_close(struct tp_requant_error *e);

/* The observer for tp_run_options; `arg` is the struct. Units that are taken over
 * or come from plain weights are passed by. */
enum tp_code tp_requant_error_observe(void *arg, const struct tp_observed *seen,
                                      struct tp_err *err);

#endif
