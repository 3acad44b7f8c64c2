/* The choice; see suggest.h. Rows are taken in the order of the engine's file, after the source as
 * it is. Invariants: what is exact comes before what is not, and only where nothing else fits is a
 * packed source quantized again; no row is worse in all respects than one before it.
 */
#include "pack/suggest/suggest.h"

#include "pack/check/estimate_card.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/plan/file/ranks.h"
#include "pack/suggest/trial.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLED = 128 }; /* weights of which a sample is measured: seconds, whatever the model */

/* So much larger than a packed source a kernel's padding may make it, and so much smaller it has to
 * be where it is quantized again. */
#define GROWS 1.25
#define SHRINKS 0.75

struct choice {
    const struct tp_checkpoint *ckpt;
    const struct tp_weights *weights;
    const struct tp_suggest_wish *wish;
    struct tp_suggestions *out;
    bool packed, experts; /* the source has such weights */
    double bits;          /* of the packed ones */
    struct tp_err *err;
};

/* ---- the source ---------------------------------------------------------------------- */

static void look(struct choice *c)
{
    const struct tp_weight *shown = NULL;
    for (size_t w = 0; w < c->weights->count; w++) {
        const struct tp_weight *weight = &c->weights->items[w];
        if (!shown || (weight->form->format && !c->packed))
            shown = weight;
        c->packed |= weight->form->format != NULL;
        c->experts = c->experts || weight->form->rank == 3 ||
                     tp_name_use(&c->weights->facts, weight->name) == TP_USE_EXPERTS;
    }
    if (shown)
        tp_weight_source(shown, c->out->form, sizeof c->out->form);
    for (size_t t = 0; t < c->ckpt->tensor_count; t++)
        c->out->bytes += c->ckpt->tensors[t].bytes;
    c->out->memory = (uint64_t)c->wish->chip->mib << 20;
    c->out->room = c->out->memory / 100 * c->wish->engine->memory;
}

/* ---- what is made of a trial --------------------------------------------------------- */

/* Whether the same was said already: of the format, of one as large, or in these words. */
static bool is_said(const struct tp_passed_over *other, const struct tp_trial *trial)
{
    if (other->format == trial->made.format)
        return true;
    if (!trial->too_large)
        return other->why && trial->why && strcmp(other->why, trial->why) == 0;
    return !other->why &&
           (other->advice == trial->made.advice || other->bytes == trial->too_large);
}

static enum tp_code pass_over(const struct choice *c, struct tp_trial *trial)
{
    struct tp_suggestions *out = c->out;
    for (size_t i = 0; i < out->others; i++)
        if (is_said(&out->other[i], trial))
            return TP_OK;
    enum tp_code code = tp_os_grow((void **)&out->other, &out->capacity, out->others + 1,
                                   sizeof *out->other, c->err);
    if (code)
        return code;
    out->other[out->others++] = (struct tp_passed_over){
        trial->made.advice, trial->made.format, trial->too_large ? NULL : trial->why,
        trial->too_large, trial->gpus};
    if (!trial->too_large)
        trial->why = NULL;
    return TP_OK;
}

/* A row before it is as fast, as small and as exact; or a packed source is that, and smaller. */
static bool is_needless(const struct choice *c, const struct tp_suggestion *made)
{
    for (size_t i = 0; i < c->out->count; i++) {
        const struct tp_suggestion *before = &c->out->row[i];
        if (before->row->speed <= made->row->speed && before->way <= made->way &&
            (double)before->bytes <= 1.02 * (double)made->bytes)
            return true;
    }
    return c->packed && (double)made->bytes > GROWS * (double)c->out->bytes;
}

static enum tp_code take(struct choice *c, struct tp_trial *trial)
{
    struct tp_suggestion *made = &trial->made;
    enum tp_code code = TP_OK;
    made->cost = (struct tp_card_use){.format = made->format};
    if (made->way >= TP_SUGGEST_ROUNDED && !c->wish->unmeasured)
        code = tp_estimate_uses(&trial->plan, c->wish->run, SAMPLED, &made->cost, 1, c->err);
    made->cost.worst = made->cost.loser = NULL; /* of the plan */
    c->out->row[c->out->count++] = *made;
    *made = (struct tp_suggestion){0};
    return code;
}

/* Whether a plan, or that there is none, is worth a word; *done: it is needless. A packed source is
 * quantized again in a turn of its own. */
static bool is_wanted(const struct choice *c, struct tp_trial *trial, bool lossy, bool *done)
{
    struct tp_suggestion *made = &trial->made;
    bool early = c->packed && made->advice && !lossy;
    if (trial->useless || !made->format)
        return false;
    if (trial->why)
        return !early;
    made->row = tp_engine_best_row(c->wish->engine, made->format->name, c->wish->chip->sm);
    if (made->row && is_needless(c, made))
        *done = true;
    return !*done && !(early && made->way >= TP_SUGGEST_ROUNDED);
}

/* Whether the source is read on all GPUs: by the verdict, or of a plain one, on which there is
 * none, by what ranks have of the model. */
static bool runs_as_is(const struct choice *c, const struct tp_trial *trial)
{
    const struct tp_wish wish = {.ranks = c->wish->gpus};
    return c->packed ? trial->runs : tp_plan_has_parts(&trial->plan, &wish);
}

/* One format of an advice; *done: it is a row, or needless. */
static enum tp_code try_format(struct choice *c, const struct tp_engine_advice *advice,
                               const struct tp_format *format, bool lossy, bool *done)
{
    struct tp_trial trial = {.wish = c->wish, .packed = c->packed, .experts = c->experts,
                             .room = c->out->room, .made = {.advice = advice, .format = format}};
    enum tp_code code = tp_trial_plan(&trial, c->ckpt, c->weights, lossy, c->err);
    if (code == TP_OK && !advice)
        c->bits = trial.made.bits;
    if (code == TP_OK && is_wanted(c, &trial, lossy, done)) {
        if (!trial.why)
            code = tp_trial_place(&trial, c->err);
        *done = code == TP_OK && !trial.why && !trial.too_large;
        if (code == TP_OK)
            code = *done ? take(c, &trial) : pass_over(c, &trial);
    }
    if (code == TP_OK && !advice && runs_as_is(c, &trial))
        c->out->rank_bytes = tp_plan_rank_bytes(&trial.plan,
                                                &(struct tp_wish){.ranks = c->wish->gpus});
    tp_trial_close(&trial);
    return code;
}

static bool is_there(const struct tp_engine_advice *advice, unsigned sm)
{
    return tp_sms_of(advice->gpu, advice->gpus, sm) >> TP_SM_OTHER & 1;
}

/* The first format of each advice that fits. */
static enum tp_code try_all(struct choice *c, bool lossy)
{
    const struct tp_engine *engine = c->wish->engine;
    enum tp_code code = TP_OK;
    for (size_t a = 0; a < engine->advices; a++) {
        const struct tp_engine_advice *advice = &engine->advice[a];
        bool done = !is_there(advice, c->wish->chip->sm);
        for (size_t f = 0; f < advice->formats && !done && code == TP_OK &&
                           c->out->count < TP_SUGGESTIONS; f++) {
            const struct tp_format *format = tp_format_find(advice->format[f]);
            bool small = !lossy || tp_format_bits(format) <= SHRINKS * c->bits;
            if (format && !format->input_only && small)
                code = try_format(c, advice, format, lossy, &done);
        }
    }
    return code;
}

/* What takes the fewest GPUs; of the same number the first, which is preferred. */
static const struct tp_passed_over *find_least(const struct tp_suggestions *out)
{
    const struct tp_passed_over *least = NULL;
    for (size_t i = 0; i < out->others && !out->count; i++)
        if (out->other[i].gpus && (!least || out->other[i].gpus < least->gpus))
            least = &out->other[i];
    return least;
}

enum tp_code tp_suggest(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                        const struct tp_suggest_wish *wish, struct tp_suggestions *out,
                        struct tp_err *err)
{
    struct choice c = {.ckpt = ckpt, .weights = weights, .wish = wish, .out = out, .err = err};
    bool done = false;
    enum tp_code code = tp_formats_check(err); /* all are found from here on */
    look(&c);
    if (code == TP_OK)
        code = try_format(&c, NULL, NULL, false, &done);
    if (code == TP_OK)
        code = try_all(&c, false);
    if (code == TP_OK && c.packed && !out->count)
        code = try_all(&c, true);
    out->least = find_least(out);
    return code;
}

void tp_suggestions_close(struct tp_suggestions *out)
{
    for (size_t i = 0; i < out->count; i++)
        tp_suggestion_close(&out->row[i]);
    for (size_t i = 0; i < out->others; i++)
        free(out->other[i].why);
    free(out->other);
    *out = (struct tp_suggestions){0};
}
