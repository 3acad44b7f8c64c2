/* What a conversion's weights lose, for its model card: by a sample so thin that it is a small
 * part of the conversion. Invariant: the figures follow from the plan and the source's bytes alone,
 * not from threads, devices, parts, or where a run was interrupted.
 */
#ifndef TP_PACK_ESTIMATE_CARD_H
#define TP_PACK_ESTIMATE_CARD_H

#include "pack/plan/file/card.h"
#include "pack/run/run_options.h"

/* For tp_convert_options.errors. Of `run`: jobs, memory and stop. Weights with rows so long that
 * a box of them (estimate.h) takes more than the least memory of a run are not measured. At most
 * TP_CARD_WEIGHTS weights are looked at, spread over the plan, so that memory and time do not grow
 * with their number. */
#define TP_CARD_WEIGHTS 8192
enum tp_code tp_estimate_card(const struct tp_plan *plan, const struct tp_run_options *run,
                              struct tp_card_use *uses, size_t count, struct tp_err *err);
/* The same of `most` weights; what it reads stays in the page cache. */
enum tp_code tp_estimate_uses(const struct tp_plan *plan, const struct tp_run_options *run,
                              size_t most, struct tp_card_use *uses, size_t count,
                              struct tp_err *err);

#endif
