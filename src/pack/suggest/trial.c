/* Trials; see trial.h. */
#include "pack/suggest/trial.h"

#include "pack/os/os.h"
#include "pack/plan/file/ranks.h"

#include <stdlib.h>
#include <string.h>

/* ---- the plan ------------------------------------------------------------------------ */

/* What is quantized again has a search only where that is said: the one that plain weights have. */
static enum tp_code choose_search(struct tp_trial *trial, bool lossy, struct tp_err *err)
{
    const struct tp_rule *rule = trial->request.rules;
    if (lossy && trial->packed)
        trial->made.said = tp_format_search(rule->format, &rule->settings);
    const struct tp_format_search *said = &trial->made.said;
    const struct tp_search_words words = {said->search ? tp_search_name(said->search) : NULL,
                                          said->is_signed, NULL};
    return tp_request_search(&trial->request, &words, err);
}

static enum tp_code make_request(struct tp_trial *trial, bool lossy, struct tp_err *err)
{
    const struct tp_engine_advice *advice = trial->made.advice;
    const struct tp_engine *engine = trial->wish->engine;
    trial->request = (struct tp_request){.outline = true, .requantize = lossy,
                                         .headers_only = !lossy}; /* others are few, and last */
    if (!advice) { /* what is excluded stays as it is, whatever the others became */
        enum tp_code code =
            tp_request_to(&trial->request, engine->advice[0].format[0], NULL, 0, err);
        return code ? code : tp_request_exclude(&trial->request, ".*", err);
    }
    enum tp_code code = tp_request_to(&trial->request, trial->made.format->name, advice->set,
                                      advice->sets, err);
    return code ? code : choose_search(trial, lossy, err);
}

static uint64_t unit_bytes(const struct tp_plan *plan, const struct tp_unit *unit)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < unit->form->outs; i++)
        bytes += plan->outputs[unit->output[i]].bytes;
    return bytes;
}

/* Bits for each value of what is packed, and of a source as it is the format of most bytes. */
static void add_up(struct tp_trial *trial)
{
    const struct tp_plan *plan = &trial->plan;
    double bits = 0, values = 0;
    for (size_t u = 0; u < plan->unit_count + plan->kept_unit_count; u++) {
        const struct tp_unit *unit = u < plan->unit_count ? &plan->units[u]
                                                          : &plan->kept_units[u - plan->unit_count];
        const struct tp_box3 *box = &unit->form->box;
        if (!unit->form->format || unit->form->format->is_bias)
            continue;
        values += (double)box->e * (double)box->n * (double)box->k;
        if (u < plan->unit_count)
            bits += 8 * (double)unit_bytes(plan, unit);
    }
    for (size_t k = 0; k < plan->kept_count; k++) {
        const struct tp_kept *kept = &plan->kept[k];
        if (kept->unit == UINT32_MAX || kept->made)
            continue;
        bits += 8 * (double)plan->ckpt->tensors[kept->tensor].bytes;
        if (!trial->made.advice)
            trial->made.format = plan->kept_units[kept->unit].form->format;
    }
    trial->made.bits = values > 0 ? bits / values : 0;
    trial->made.bytes = plan->bytes_out;
}

static bool is_of_packed(const struct tp_plan *plan, const struct tp_unit *unit)
{
    return plan->weights->items[unit->views[0].weight].form->format != NULL;
}

/* Whether the run may stop at a value; and what becomes of the weights. */
static bool may_stop(struct tp_trial *trial)
{
    const struct tp_plan *plan = &trial->plan;
    enum tp_suggest_way way = trial->made.advice ? TP_SUGGEST_EXACT : TP_SUGGEST_AS_IS;
    if (plan->scales_unread)
        return true;
    for (size_t u = 0; u < plan->unit_count; u++) {
        const struct tp_unit *unit = &plan->units[u];
        bool packed = is_of_packed(plan, unit);
        if (!unit->form->format || tp_op_is_number(&unit->form->op))
            continue; /* a bias, say */
        enum tp_loss loss = packed ? tp_unit_loss(plan, unit) : TP_LOSS_VALUES;
        if (unit->form->only_exact || loss == TP_LOSS_STOPS)
            return true;
        enum tp_suggest_way is = loss < TP_LOSS_SCALES  ? way
                                 : loss == TP_LOSS_SCALES ? TP_SUGGEST_CODES
                                 : packed && trial->request.requantize ? TP_SUGGEST_REQUANTIZED
                                                                       : TP_SUGGEST_ROUNDED;
        way = is > way ? is : way;
    }
    trial->made.way = way;
    return false;
}

static bool is_calibrated(const struct tp_plan *plan)
{
    for (size_t u = 0; u < plan->unit_count; u++)
        if (plan->units[u].form->format && !plan->units[u].form->format->is_bias &&
            !plan->units[u].form->inputs)
            return false;
    return true;
}

/* Whether there is no use for such a plan. */
static bool is_useless(struct tp_trial *trial)
{
    const struct tp_engine_advice *advice = trial->made.advice;
    return may_stop(trial) ||
           (advice && (!trial->plan.unit_count ||
                       (advice->needs & TP_ADVICE_CODES && trial->made.way > TP_SUGGEST_CODES) ||
                       (advice->needs & TP_ADVICE_CALIBRATED && !is_calibrated(&trial->plan))));
}

static enum tp_code set_why(struct tp_trial *trial, const char *why, struct tp_err *err)
{
    free(trial->why);
    trial->why = tp_os_format(err, "%s", why);
    return trial->why ? TP_OK : TP_E_MEMORY;
}

enum tp_code tp_trial_plan(struct tp_trial *trial, const struct tp_checkpoint *ckpt,
                           const struct tp_weights *weights, bool lossy, struct tp_err *err)
{
    struct tp_err refused = {0};
    enum tp_code code = make_request(trial, lossy, err);
    if (code)
        return code;
    code = tp_plan_convert(ckpt, weights, &trial->request, NULL, &trial->plan, &refused);
    if (code == TP_E_UNSUPPORTED || (code && refused.of_format))
        return set_why(trial, refused.what, err);
    if (code) {
        *err = refused;
        return code;
    }
    trial->useless = is_useless(trial);
    add_up(trial);
    return TP_OK;
}

/* ---- its place ----------------------------------------------------------------------- */

/* The verdict on one place. */
static enum tp_code ask(struct tp_trial *trial, unsigned ranks, bool whole_experts, bool *reads,
                        struct tp_err *err)
{
    struct tp_suggestion *made = &trial->made;
    struct tp_text why = {0};
    made->wish = (struct tp_wish){.engine = trial->wish->engine, .sm = trial->wish->chip->sm,
                                  .ranks = ranks, .whole_experts = whole_experts, .alone = true};
    tp_served_close(&made->served);
    enum tp_code code = tp_plan_served(&trial->plan, &made->wish, &made->served, err);
    *reads = made->served.server != NULL;
    if (code || *reads)
        return code;
    if (!trial->why && (code = tp_served_why(&made->served, &made->wish, &why, err)) == TP_OK)
        code = set_why(trial, why.data, err);
    tp_text_free(&why);
    return code;
}

/* The place with so many ranks: they divide layers alike, or experts by their number. A verdict
 * takes long: other ranks than there are GPUs need to have heads first, and more also room. */
static enum tp_code try_ranks(struct tp_trial *trial, unsigned ranks, bool *fits,
                              struct tp_err *err)
{
    const bool can = ranks > 1 && trial->experts && trial->wish->engine->wholes;
    enum tp_code code = TP_OK;
    *fits = false;
    if (ranks != trial->wish->gpus && !tp_ranks_have_heads(&trial->plan.weights->facts, ranks))
        return TP_OK;
    for (int whole = 0; whole <= (int)can && !*fits && code == TP_OK; whole++) {
        bool reads = false;
        uint64_t bytes = tp_plan_rank_bytes(&trial->plan, &(struct tp_wish){.ranks = ranks});
        if ((ranks > trial->wish->gpus && bytes > trial->room) ||
            (code = ask(trial, ranks, whole, &reads, err)) || !reads)
            continue;
        trial->runs = trial->runs || ranks == trial->wish->gpus;
        *fits = bytes <= trial->room;
        if (*fits)
            trial->made.place = (struct tp_placement){ranks, whole, bytes};
        else if (ranks <= trial->wish->gpus && (!trial->too_large || bytes < trial->too_large))
            trial->too_large = bytes;
    }
    return code;
}

enum tp_code tp_trial_place(struct tp_trial *trial, struct tp_err *err)
{
    enum { MOST = 64 };
    const unsigned gpus = trial->wish->gpus;
    bool fits = false;
    enum tp_code code = TP_OK;
    for (unsigned ranks = gpus; ranks && !fits && !trial->too_large && code == TP_OK; ranks--)
        code = try_ranks(trial, ranks, &fits, err); /* of fewer each has as much, or more */
    for (unsigned ranks = gpus + 1; ranks <= MOST && trial->too_large && !trial->gpus &&
                                    code == TP_OK; ranks++) {
        bool more = false;
        if ((code = try_ranks(trial, ranks, &more, err)) == TP_OK && more)
            trial->gpus = ranks;
    }
    if (fits) { /* what spoke against other places is a note */
        trial->made.note = trial->why;
        trial->why = NULL;
        trial->too_large = 0;
    }
    return code;
}

/* ---- */

void tp_suggestion_close(struct tp_suggestion *made)
{
    tp_served_close(&made->served);
    free(made->note);
    *made = (struct tp_suggestion){0};
}

void tp_trial_close(struct tp_trial *trial)
{
    tp_suggestion_close(&trial->made);
    tp_plan_close(&trial->plan);
    tp_request_close(&trial->request);
    free(trial->why);
    *trial = (struct tp_trial){0};
}
