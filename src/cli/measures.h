/* What `convert` measures while it writes: what decoding and quantizing again costs, and
 * what a search of scales gains. Says it afterwards.
 */
#ifndef TP_CLI_MEASURES_H
#define TP_CLI_MEASURES_H

#include "pack/check/requant_error.h"
#include "pack/check/verify_values.h"

struct tp_measures {
    struct tp_requant_error requant;
    bool requantizes;
    struct tp_side source;
    struct tp_value_observer values;
    struct tp_unit_result *units; /* of the plan; NULL: its search is not measured */
    size_t unit_count;
};

/* Makes *m observe the run that `options` are for. `search`: also what searches gain, if
 * there are any. Closed by the caller, also after an error. */
enum tp_code tp_measures_open(struct tp_measures *m, const struct tp_plan *plan, bool requantize,
                              bool search, struct tp_run_options *options, struct tp_err *err);
void tp_measures_close(struct tp_measures *m); /* legal on {0} */

/* On stderr, what --requantize cost. */
void tp_measures_warn(const struct tp_measures *m);

#endif
