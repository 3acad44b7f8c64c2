/* A run has one observer: here it is handed on to those that measure something. */
#include "cli/measures.h"

#include "cli/report.h"

/* What --requantize cost, on stderr: stdout is for the result. */
void tp_measures_warn(const struct tp_measures *m)
{
    const struct tp_requant_error *e = &m->requant;
    size_t units, worst;
    if (!m->requantizes)
        return;
    struct tp_requant_sum total = tp_requant_total(e, &units, &worst);
    for (size_t u = 0; u < e->plan->unit_count; u++)
        if (e->units[u].values)
            tp_note("%s: root mean square error %.3g %%, largest difference %.3g",
                    e->plan->units[u].name, 100 * tp_requant_share(&e->units[u]),
                    e->units[u].largest);
    if (units)
        tp_warn("%zu weight%s decoded and quantized again: root mean square error %.3g %% of the "
                "source's values, largest difference %.3g in %s", units,
                units == 1 ? " was" : "s were", 100 * tp_requant_share(&total), total.largest,
                e->plan->units[worst].name);
}

static enum tp_code observe(void *arg, const struct tp_observed *seen, struct tp_err *err)
{
    struct tp_measures *m = arg;
    enum tp_code code = m->requantizes ? tp_requant_error_observe(&m->requant, seen, err) : TP_OK;
    return code || !m->units ? code : tp_value_observe(&m->values, seen, err);
}

static bool is_searched(const struct tp_plan *plan)
{
    for (size_t u = 0; u < plan->unit_count; u++)
        if (plan->units[u].kind == TP_UNIT_ENCODE &&
            tp_op_search(&plan->units[u].op) != TP_SEARCH_NONE)
            return true;
    return false;
}

enum tp_code tp_measures_open(struct tp_measures *m, const struct tp_plan *plan, bool requantize,
                              bool search, struct tp_run_options *options, struct tp_err *err)
{
    *m = (struct tp_measures){.source = {plan->ckpt, plan->weights},
                              .unit_count = plan->unit_count};
    enum tp_code code = TP_OK;
    if (requantize && (code = tp_requant_error_open(plan, &m->requant, &m->requantizes, err)))
        return code;
    if (search && is_searched(plan)) {
        m->units = tp_unit_results_new(plan, err);
        code = m->units ? tp_value_observer_open(&m->values, plan, &m->source, true, m->units, err)
                        : TP_E_MEMORY;
    }
    if (m->requantizes || m->units) {
        options->observe = observe;
        options->observe_arg = m;
    }
    return code;
}

void tp_measures_close(struct tp_measures *m)
{
    if (m->requantizes)
        tp_requant_error_close(&m->requant);
    tp_value_observer_close(&m->values);
    if (m->units)
        tp_unit_results_free(m->units, m->unit_count);
    *m = (struct tp_measures){0};
}
