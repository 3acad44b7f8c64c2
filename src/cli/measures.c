/* A run has one observer: here it is handed on to those that measure something. */
#include "cli/measures.h"

#include "cli/report.h"

enum { ERROR_TEXT = 128 };

/* What the errors of a weight, or of all of them, come to. */
static const char *error_text(char text[ERROR_TEXT], const struct tp_distance *d)
{
    if (d->differing && !d->error)
        snprintf(text, ERROR_TEXT, "no figure, as all that differs is NaN or infinite,");
    else
        snprintf(text, ERROR_TEXT, "root mean square error %.3g %% of the source's values, largest "
                 "difference %.3g", 100 * tp_distance_relative(d), d->max_abs);
    return text;
}

/* What --requantize cost, on stderr: stdout is for the result. */
void tp_measures_warn(const struct tp_measures *m)
{
    const struct tp_requant_error *e = &m->requant;
    char text[ERROR_TEXT];
    size_t units, worst;
    if (m->shared_budget.refused)
        tp_warn("errors of some weights are not measured: the least part of them that can be "
                "decoded does not fit into --max-memory");
    if (!m->requantizes)
        return;
    struct tp_distance total = tp_requant_total(e, &units, &worst);
    uint64_t values;
    size_t all = tp_requant_count(e, &values);
    for (size_t u = 0; u < e->plan->unit_count; u++)
        if (e->units[u].count)
            tp_note("%s: %s", e->plan->units[u].name, error_text(text, &e->units[u]));
    if (units)
        tp_warn("%zu weight%s decoded and quantized again%s: %s in %s", all,
                all == 1 ? " was" : "s were", total.count < values ? ", and measured in part" : "",
                error_text(text, &total), e->plan->units[worst].name);
    else if (all)
        tp_warn("%zu weight%s decoded and quantized again", all, all == 1 ? " was" : "s were");
}

static enum tp_code observe(void *arg, const struct tp_observed *seen, struct tp_err *err)
{
    struct tp_measures *m = arg;
    enum tp_code code = m->requantizes ? tp_requant_error_observe(&m->requant, seen, err) : TP_OK;
    return code || !m->units ? code : tp_value_observe(&m->values, seen, err);
}

/* Whether rows of some unit are worth looking at: its search, or what it loses. */
static bool is_sampled(const struct tp_plan *plan)
{
    for (size_t u = 0; u < plan->unit_count; u++) {
        const struct tp_unit *unit = &plan->units[u];
        if (tp_unit_loss(plan, unit) != TP_LOSS_NONE ||
            (unit->form->kind == TP_UNIT_ENCODE && tp_op_search(&unit->form->op) != TP_SEARCH_NONE))
            return true;
    }
    return false;
}

/* What --requantize measures completely needs no sample. */
static void drop_measured(const struct tp_measures *m)
{
    for (size_t u = 0; u < m->unit_count && m->requantizes; u++)
        if (m->units[u].loss == TP_LOSS_VALUES)
            m->units[u].loss = TP_LOSS_NONE;
}

enum tp_code tp_measures_open(struct tp_measures *m, const struct tp_plan *plan, bool requantize,
                              bool sample, struct tp_run_options *options, struct tp_err *err)
{
    *m = (struct tp_measures){.source = {.ckpt = plan->ckpt, .weights = plan->weights},
                              .unit_count = plan->unit_count};
    tp_byte_budget_open(&m->shared_budget);
    enum tp_code code = TP_OK;
    if (requantize && (code = tp_requant_error_open(plan, &m->requant, &m->requantizes, err)))
        return code;
    if (sample && is_sampled(plan)) {
        if (!(m->units = tp_unit_results_new(plan, err)))
            return TP_E_MEMORY;
        drop_measured(m);
        code = tp_value_observer_open(&m->values, plan, &m->source, true, m->units, err);
    }
    if (m->requantizes || m->units) {
        options->shared_budget = &m->shared_budget;
        options->observe = observe;
        options->observe_arg = m;
    }
    return code;
}

bool tp_measures_searched(const struct tp_measures *m)
{
    for (size_t u = 0; u < m->unit_count && m->units; u++)
        if (m->units[u].search != TP_SEARCH_NONE)
            return true;
    return false;
}

/* All units that lose something in this way, as if they were one. */
static struct tp_distance total_loss(const struct tp_measures *m, enum tp_loss loss, size_t *count)
{
    struct tp_distance total = {0};
    *count = 0;
    for (size_t u = 0; u < m->unit_count && m->units; u++)
        if (m->units[u].loss == loss && m->units[u].distance.count) {
            ++*count;
            tp_distance_add(&total, &m->units[u].distance, 0);
        }
    return total;
}

static void print_loss(const struct tp_measures *m, enum tp_loss loss, const char *what)
{
    size_t count;
    struct tp_distance total = total_loss(m, loss, &count);
    for (size_t u = 0; u < m->unit_count && m->units; u++)
        if (m->units[u].loss == loss && m->units[u].distance.count)
            tp_note("%s: %s, error %.3g %%", m->units[u].name, what,
                    100 * tp_distance_relative(&m->units[u].distance));
    if (!count)
        return;
    if (!total.differing) /* not even in the sample: nothing to warn of */
        printf("%s: %zu weight%s, no error (a sample of rows)\n", what, count,
               count == 1 ? "" : "s");
    else if (!total.error)
        printf("%s: %zu weight%s, no figure: what differs is NaN or infinite (a sample of rows)\n",
               what, count, count == 1 ? "" : "s");
    else
        printf("%s: %zu weight%s, root mean square error %.3g %% of the source's values, %.1f dB "
               "(a sample of rows)\n", what, count, count == 1 ? "" : "s",
               100 * tp_distance_relative(&total), tp_distance_sqnr(&total));
}

void tp_measures_print(const struct tp_measures *m)
{
    print_loss(m, TP_LOSS_GLOBAL, "codes and scales taken over, global scales inverted");
    print_loss(m, TP_LOSS_SCALES, "codes taken over, scales rounded");
    print_loss(m, TP_LOSS_VALUES, "decoded and quantized again");
}

static void put_loss(struct tp_writer *w, const struct tp_measures *m, enum tp_loss loss,
                     const char *key)
{
    size_t count;
    struct tp_distance total = total_loss(m, loss, &count);
    if (count)
        tp_object(w, key, tp_num("weights", count),
                  tp_real("relative", tp_distance_relative(&total)));
}

void tp_measures_put(struct tp_writer *w, const struct tp_measures *m)
{
    put_loss(w, m, TP_LOSS_GLOBAL, "globals_inverted");
    put_loss(w, m, TP_LOSS_SCALES, "scales_rounded");
    put_loss(w, m, TP_LOSS_VALUES, "quantized_again");
}

void tp_measures_close(struct tp_measures *m)
{
    if (m->requantizes)
        tp_requant_error_close(&m->requant);
    tp_value_observer_close(&m->values);
    if (m->units)
        tp_unit_results_free(m->units, m->unit_count);
    tp_byte_budget_close(&m->shared_budget);
    *m = (struct tp_measures){0};
}
