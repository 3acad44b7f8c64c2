/* What one format would cost a checkpoint, in bytes and in errors: planned and measured, nothing
 * written. For `compare`, and for whoever chooses among formats.
 */
#ifndef TP_PACK_COST_H
#define TP_PACK_COST_H

#include "pack/check/estimate.h"
#include "pack/plan/unit/request.h"

struct tp_cost { /* {0} is empty */
    const struct tp_format *format;
    char *refused;             /* why it cannot be written, or NULL; then nothing else is valid */
    uint64_t bytes;            /* of all tensors, the kept ones included */
    size_t kept;               /* tensors that stay as they are */
    bool weights_only;         /* convert wants that said: the source lacks activation scales */
    struct tp_unit_result *units;
    size_t unit_count;
    struct tp_estimate_sum sum;
    struct tp_estimate_rank *ranks; /* the worst weight first */
    size_t rank_count;
};

/* Fills *cost, in which the caller has set `format` alone, with what `request` would make of the
 * source; the request is for that format (tp_request_to()), and for a sample may be an outline. A
 * source that the format cannot be made of is no error: its plan or its values say why, and that is
 * `refused`. The source outlives the cost. Errors: of reading the source, and TP_E_MEMORY. Closed
 * by the caller, also after an error. */
enum tp_code tp_cost_of(const struct tp_side *source, struct tp_request *request,
                        const struct tp_estimate_options *options, struct tp_cost *cost,
                        struct tp_err *err);
void tp_cost_close(struct tp_cost *cost); /* legal on {0} */

#endif
