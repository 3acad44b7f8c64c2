/* One format on a checkpoint: its plan, the errors of its weights, and their order. */
#include "pack/check/cost.h"

#include "pack/os/os.h"
#include "pack/plan/unit/plan.h"

#include <stdlib.h>
#include <string.h>

/* The request is for weights as if alone where the source has no activation scales. */
static bool lacks_inputs(const struct tp_plan *plan)
{
    bool lacks = false;
    for (size_t u = 0; u < plan->unit_count; u++) {
        const struct tp_unit_form *form = plan->units[u].form;
        lacks |= form->format && !form->format->is_bias && form->format->inputs.why &&
                 !form->inputs;
    }
    return lacks;
}

static enum tp_code measure(const struct tp_side *source, const struct tp_plan *plan,
                            const struct tp_estimate_options *options, struct tp_cost *cost,
                            struct tp_err *err)
{
    cost->bytes = plan->bytes_out;
    cost->kept = plan->kept_count;
    cost->weights_only = lacks_inputs(plan);
    if (!(cost->ranks = tp_os_zalloc(plan->unit_count + 1, sizeof *cost->ranks, err)) ||
        !(cost->units = tp_unit_results_new(plan, err)))
        return TP_E_MEMORY;
    cost->unit_count = plan->unit_count;
    enum tp_code code = tp_estimate(plan, source, options, cost->units, err);
    if (code)
        return code;
    tp_estimate_add_up(plan, cost->units, &cost->sum);
    cost->rank_count = tp_estimate_order(cost->units, cost->unit_count, cost->ranks);
    return TP_OK;
}

/* What of `code` is an answer: a source that this format cannot be made of. */
static enum tp_code refuse(struct tp_cost *cost, enum tp_code code, struct tp_err *err)
{
    const struct tp_format *format = cost->format;
    if (code == TP_OK || (code != TP_E_UNSUPPORTED && !err->of_format))
        return code;
    char *why = err->of_format ? tp_os_format(NULL, "tensor '%s': %s", err->tensor, err->what)
                               : strdup(err->what);
    *err = (struct tp_err){0};
    if (!why)
        return tp_fail(err, TP_E_MEMORY, "out of memory");
    tp_cost_close(cost);
    *cost = (struct tp_cost){.format = format, .refused = why};
    return TP_OK;
}

enum tp_code tp_cost_of(const struct tp_side *source, struct tp_request *request,
                        const struct tp_estimate_options *options, struct tp_cost *cost,
                        struct tp_err *err)
{
    struct tp_plan plan = {0};
    enum tp_code code =
        tp_plan_convert(source->ckpt, source->weights, request, NULL, &plan, err);
    if (code == TP_OK && options->total)
        options->total(options->progress_arg, tp_estimate_work(&plan, options->full));
    if (code == TP_OK)
        code = measure(source, &plan, options, cost, err);
    code = refuse(cost, code, err);
    tp_plan_close(&plan);
    return code;
}

void tp_cost_close(struct tp_cost *cost)
{
    free(cost->refused);
    free(cost->ranks);
    tp_unit_results_free(cost->units, cost->unit_count);
    *cost = (struct tp_cost){0};
}
