/* What a conversion leaves as it is, and why: said where it leaves most weights or all. */
#ifndef TP_CLI_PLAN_KEPT_H
#define TP_CLI_PLAN_KEPT_H

#include "cli/writer.h"
#include "pack/plan/unit/plan.h"

struct tp_kept_reason {
    const char *why; /* of the plan; NULL: several, which the list has no room for */
    size_t weights;
    uint64_t bytes; /* in the source */
};

enum { TP_KEPT_REASONS = 16 };

struct tp_kept_sum {
    struct tp_kept_reason reason[TP_KEPT_REASONS + 1]; /* the largest first, NULL last */
    size_t reasons;
    uint64_t kept, all; /* bytes of weights in the source */
    bool same;          /* some weights are in the format already: they are not counted as kept */
};

/* By reason, the weights that the plan copies. Norms, biases and the like are no weights. */
void tp_kept_find(const struct tp_plan *plan, struct tp_kept_sum *sum);

/* TP_E_UNSUPPORTED with the reasons where no weight is converted, nor in the format already. */
enum tp_code tp_kept_check(const struct tp_plan *plan, const struct tp_kept_sum *sum,
                           struct tp_err *err);
/* A warning with the reasons where some weights are converted, but under half of their bytes. */
void tp_kept_warn(const struct tp_plan *plan, const struct tp_kept_sum *sum);

/* Adds "weight_bytes", "weight_bytes_kept", "kept_weights" and the warning to a result's JSON. */
void tp_kept_put(struct tp_writer *w, const struct tp_plan *plan, const struct tp_kept_sum *sum);

#endif
