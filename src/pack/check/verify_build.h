/* Inside of verify_against.c: what is there before a run is begun (verify_outputs.c), and
 * what is said of it afterwards (verify_differences.c).
 */
#ifndef TP_PACK_VERIFY_BUILD_H
#define TP_PACK_VERIFY_BUILD_H

#include "pack/check/verify.h"
#include "pack/sink/sink.h"

struct tp_comparison {
    const struct tp_side *stored, *source;
    const struct tp_verify_options *options;
    struct tp_verify_report *report;
    const struct tp_plan *plan;     /* made again on the source */
    struct tp_compare_sink sink;    /* of the plan */
    struct tp_err *err;
};

/* Compares names, dtypes and shapes. When a quarter of them differ, it is another model:
 * TP_E_INPUT. */
enum tp_code tp_verify_outputs(const struct tp_comparison *c);

/* After the run: every output whose bytes differ, and the values of its weight. */
enum tp_code tp_verify_differences(const struct tp_comparison *c);

#endif
