/* What `convert` and `unpack --to` measure while they write: what decoding and quantizing
 * again costs, or rounding scales, and what a search of scales gains. Says it afterwards.
 */
#ifndef TP_CLI_MEASURES_H
#define TP_CLI_MEASURES_H

#include "cli/writer.h"
#include "pack/check/requant_error.h"
#include "pack/check/verify_values.h"
#include "pack/run/byte_budget.h"

struct tp_measures {
    struct tp_byte_budget shared_budget; /* of all that is measured */
    struct tp_requant_error requant;
    bool requantizes;
    struct tp_side source;
    struct tp_value_observer values;
    struct tp_unit_result *units; /* of the plan, from a sample of rows; NULL: not measured */
    size_t unit_count;
};

/* Makes *m observe the run that `options` are for. `requantize`: decoded weights completely.
 * `sample`: what searches gain, and what else is lost of packed weights, in some rows. Closed
 * by the caller, also after an error. */
enum tp_code tp_measures_open(struct tp_measures *m, const struct tp_plan *plan, bool requantize,
                              bool sample, struct tp_run_options *options, struct tp_err *err);
void tp_measures_close(struct tp_measures *m); /* legal on {0} */

/* On stderr, what --requantize cost, and whether something was not measured. */
void tp_measures_warn(const struct tp_measures *m);

/* Whether searches are in the sample. */
bool tp_measures_searched(const struct tp_measures *m);

/* What the sample says of losses: lines on stdout, or "globals_inverted", "scales_rounded" and
 * "quantized_again" of JSON. */
void tp_measures_print(const struct tp_measures *m);
void tp_measures_put(struct tp_writer *w, const struct tp_measures *m);

#endif
