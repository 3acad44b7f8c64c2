/* What decoding and quantizing again costs: the difference between the values of
 * packed sources and those of what was made from them, measured box by box while
 * the run goes on.
 */
#ifndef TP_PACK_REQUANT_ERROR_H
#define TP_PACK_REQUANT_ERROR_H

#include "pack/check/values.h"
#include "pack/run/run.h"

#include <pthread.h>

struct tp_requant_error {
    const struct tp_plan *plan;
    struct tp_distance *units; /* as in the plan; count = 0: not decoded, not run, or no room */
    uint64_t *values;          /* of each unit those that were decoded and quantized again */
    pthread_mutex_t lock;
};

/* Sets *measures when the plan has units to measure; then *e is to be closed. */
enum tp_code tp_requant_error_open(const struct tp_plan *plan, struct tp_requant_error *e,
                                   bool *measures, struct tp_err *err);
void tp_requant_error_close(struct tp_requant_error *e);

/* Units that were decoded and quantized again so far, measured or not, and *values of them. */
size_t tp_requant_count(const struct tp_requant_error *e, uint64_t *values);

/* That of all units; *units is how many there are, *worst where `max_abs` is. */
struct tp_distance tp_requant_total(const struct tp_requant_error *e, size_t *units,
                                    size_t *worst);

/* The observer for tp_run_options; `arg` is the struct. Units that are taken over
 * or come from plain weights are passed by. */
enum tp_code tp_requant_error_observe(void *arg, const struct tp_observed *seen,
                                      struct tp_err *err);

#endif
