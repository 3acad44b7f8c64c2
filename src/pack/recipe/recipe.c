/* Plans and measures each format, and has the budget shared out; see recipe.h. */
#include "pack/recipe/recipe.h"

#include "pack/check/estimate.h"
#include "pack/os/os.h"

#include <math.h>
#include <stdlib.h>

/* Values of a box of the sample, so that memory is bounded. */
#define BOX_VALUES (UINT64_C(1) << 22)

/* Of more weights, which are experts, the sample of each is the smaller: a layer of them is one set,
 * so that the time does not grow with their number. */
enum { MANY = 2048 };

/* What is known of a set in a format, while its weights are looked at. */
struct tally {
    uint64_t bytes;   /* of its outputs */
    uint32_t weights; /* that are converted and read */
    double error, measured; /* of the sample; the weights' values that it stands for */
};

/* One format on the checkpoint. Units become tallies when the sets are known. */
struct trial {
    struct tp_plan plan;
    struct tp_unit_result *units;
    bool *refused; /* of each unit */
};

struct choosing {
    const struct tp_side *source;
    const struct tp_recipe_wish *wish;
    struct tp_recipe *recipe;
    struct tp_importance_file *importance;
    struct trial *trial; /* of each format */
    struct tally *tally; /* of each format, then of each set */
    struct tp_err *err;
};

/* ---- the source ---------------------------------------------------------------------- */

static enum tp_code check_plain(const struct choosing *c)
{
    const struct tp_weights *weights = c->source->weights;
    for (size_t w = 0; w < weights->count; w++) {
        if (!weights->items[w].form->format)
            continue;
        tp_err_path(c->err, c->source->ckpt->path);
        tp_err_tensor(c->err, weights->items[w].name);
        tp_err_hint(c->err, "take the checkpoint that it was made of");
        return tp_fail(c->err, TP_E_UNSUPPORTED, "it is quantized already (%s), and a recipe is "
                       "chosen by the errors of plain weights",
                       weights->items[w].form->format->name);
    }
    return TP_OK;
}

/* Every entry of the file has to belong to some weight. */
static enum tp_code open_importance(struct choosing *c)
{
    const struct tp_weights *weights = c->source->weights;
    if (!c->wish->importance)
        return TP_OK;
    enum tp_code code = tp_importance_open(c->wish->importance, &c->importance, c->err);
    for (size_t w = 0; w < weights->count && code == TP_OK; w++)
        tp_importance_claim(c->importance, weights->items[w].name);
    c->recipe->gradients = code == TP_OK && tp_importance_has_gradients(c->importance);
    return code ? code : tp_importance_all_claimed(c->importance, c->err);
}

/* ---- one format ---------------------------------------------------------------------- */

static enum tp_code measure(struct choosing *c, struct trial *trial)
{
    const struct tp_estimate_options options = {
        .thinned = 1 + (unsigned)(trial->plan.unit_count / MANY),
        .importance = c->importance, .max = BOX_VALUES, .jobs = c->wish->run->jobs,
        .stop = c->wish->run->stop};
    trial->units = tp_unit_results_new(&trial->plan, c->err);
    return trial->units ? tp_estimate(&trial->plan, c->source, &options, trial->units, c->err)
                        : TP_E_MEMORY;
}

static enum tp_code try_format(struct choosing *c, size_t f)
{
    struct tp_recipe_format *format = &c->recipe->format[f];
    struct trial *trial = &c->trial[f];
    struct tp_text why = {0};
    if (!format->format)
        return TP_OK;
    enum tp_code code = tp_plan_convert(c->source->ckpt, c->source->weights, &format->request,
                                        NULL, &trial->plan, c->err);
    if (code == TP_OK && !(trial->refused = tp_os_zalloc(trial->plan.unit_count + 1,
                                                         sizeof *trial->refused, c->err)))
        code = TP_E_MEMORY;
    if (code == TP_OK)
        code = tp_plan_refused(&trial->plan, &c->wish->served, trial->refused, &why, c->err);
    format->refused = why.data;
    return code ? code : measure(c, trial);
}

/* ---- sets ---------------------------------------------------------------------------- */

static bool is_made(const struct trial *trial, size_t u)
{
    const struct tp_unit_form *form = trial->plan.units[u].form;
    return form->format && !form->format->is_bias && !trial->refused[u];
}

/* Weights that the format is made of are wanted. */
static void want_units(const struct trial *trial, bool *wanted)
{
    for (size_t u = 0; u < trial->plan.unit_count; u++)
        for (uint64_t v = 0; is_made(trial, u) && v < tp_unit_views(&trial->plan.units[u]); v++)
            wanted[trial->plan.units[u].views[v].weight] = true;
}

static enum tp_code find_sets(struct choosing *c)
{
    const struct tp_weights *weights = c->source->weights;
    struct tp_recipe *recipe = c->recipe;
    bool *wanted = tp_os_zalloc(weights->count + 1, sizeof *wanted, c->err);
    for (size_t f = 0; wanted && f < recipe->formats; f++)
        if (recipe->format[f].format)
            want_units(&c->trial[f], wanted);
    enum tp_code code =
        wanted ? tp_weight_sets_find(c->source->ckpt, weights, wanted, &recipe->sets, c->err)
               : TP_E_MEMORY;
    for (size_t w = 0; wanted && w < weights->count; w++)
        recipe->left += !wanted[w];
    free(wanted);
    if (code || recipe->sets.count)
        return code;
    for (size_t f = 0; f < recipe->formats; f++)
        if (recipe->format[f].refused)
            return tp_fail(c->err, TP_E_UNSUPPORTED, "%s reads no weight in any of the formats: "
                           "%.800s", c->wish->served.engine->title, recipe->format[f].refused);
    return tp_fail(c->err, TP_E_UNSUPPORTED, "no weight can be converted to any of the formats");
}

/* ---- figures ------------------------------------------------------------------------- */

static struct tally *tally_of(const struct choosing *c, size_t f, uint32_t set)
{
    return &c->tally[f * c->recipe->sets.count + set];
}

/* The weights of a unit are each counted once: views of a stack may be of several experts. */
static void count_weights(const struct choosing *c, size_t f, const struct tp_unit *unit,
                          uint32_t *last)
{
    for (uint64_t v = 0; v < tp_unit_views(unit); v++) {
        const uint32_t w = unit->views[v].weight;
        if (last[w] == f + 1)
            continue;
        last[w] = (uint32_t)f + 1;
        tally_of(c, f, c->recipe->sets.of[w])->weights++;
    }
}

static void add_unit(const struct choosing *c, size_t f, size_t u, uint32_t *last)
{
    const struct trial *trial = &c->trial[f];
    const struct tp_unit *unit = &trial->plan.units[u];
    const struct tp_unit_result *result = &trial->units[u];
    const struct tp_distance *distance =
        c->importance ? &result->weighted_distance : &result->distance;
    struct tally *tally = tally_of(c, f, c->recipe->sets.of[unit->views[0].weight]);
    const double values =
        (double)unit->form->box.e * (double)unit->form->box.n * (double)unit->form->box.k;
    for (uint32_t i = 0; i < unit->form->outs; i++)
        tally->bytes += trial->plan.outputs[unit->output[i]].bytes;
    count_weights(c, f, unit, last);
    if (!distance->count || distance->count == distance->nonfinite)
        return;
    tally->error += distance->error / (double)(distance->count - distance->nonfinite) * values;
    tally->measured += values;
}

/* What the weights are now. */
static void add_plain(const struct choosing *c, size_t f)
{
    const struct tp_weights *weights = c->source->weights;
    for (size_t w = 0; w < weights->count; w++) {
        if (c->recipe->sets.of[w] == TP_NO_SET)
            continue;
        struct tally *tally = tally_of(c, f, c->recipe->sets.of[w]);
        tally->bytes += c->source->ckpt->tensors[weights->items[w].tensor[0]].bytes;
        tally->weights++;
        tally->measured = 1;
    }
}

static enum tp_code add_up(struct choosing *c)
{
    struct tp_recipe *recipe = c->recipe;
    uint32_t *last = tp_os_zalloc(c->source->weights->count + 1, sizeof *last, c->err);
    c->tally = last ? tp_os_zalloc(recipe->formats * recipe->sets.count + 1, sizeof *c->tally,
                                   c->err) : NULL;
    for (size_t f = 0; c->tally && f < recipe->formats; f++) {
        if (!recipe->format[f].format)
            add_plain(c, f);
        for (size_t u = 0; u < c->trial[f].plan.unit_count; u++)
            if (is_made(&c->trial[f], u))
                add_unit(c, f, u, last);
    }
    free(last);
    return c->tally ? TP_OK : TP_E_MEMORY;
}

/* ---- the choice ---------------------------------------------------------------------- */

static enum tp_code fail_unmeasured(const struct choosing *c, uint32_t set, size_t f)
{
    tp_err_tensor(c->err, c->recipe->sets.item[set].name);
    if (c->importance) {
        tp_err_path(c->err, c->wish->importance);
        tp_err_hint(c->err, "make the file with all layers of this model (samples/importance.py), "
                    "or leave --importance out");
        return tp_fail(c->err, TP_E_INPUT, "the file has no importance of any of its weights%s",
                       c->recipe->gradients
                           ? ", or no gradient beside it as of others" : "");
    }
    return tp_fail(c->err, TP_E_UNSUPPORTED, "its error in %s cannot be measured",
                   c->recipe->format[f].name);
}

/* What the set may take. Weights of it that were not measured have the mean error of the others. */
static enum tp_code offer(struct choosing *c, uint32_t s)
{
    struct tp_recipe *recipe = c->recipe;
    const struct tp_weight_set *set = &recipe->sets.item[s];
    for (size_t f = 0; f < recipe->formats; f++) {
        const struct tally *tally = tally_of(c, f, s);
        struct tp_share_choice *choice = &recipe->choices[s].choice[f];
        if (tally->weights != set->weights)
            continue;
        if (!(tally->measured > 0))
            return fail_unmeasured(c, s, f);
        *choice = (struct tp_share_choice){
            true, tally->bytes, tally->error / tally->measured * (double)set->values};
        if (!recipe->format[f].format)
            choice->cost = 0;
        recipe->format[f].sets++;
    }
    recipe->values += set->values;
    return TP_OK;
}

/* A set that no format takes as a whole, though each of its weights takes one, stays as it is. */
static void keep_whole(const struct choosing *c, uint32_t s)
{
    struct tp_share_choice *choice = c->recipe->choices[s].choice;
    bool any = false;
    for (size_t f = 0; f < c->recipe->formats; f++)
        any |= choice[f].can;
    if (any)
        return;
    c->recipe->values -= c->recipe->sets.item[s].values;
    c->recipe->left += c->recipe->sets.item[s].weights;
    choice[TP_SHARE_CHOICES - 1].can = true; /* of no bytes and no cost: it counts in no figure */
}

static enum tp_code share(struct choosing *c)
{
    struct tp_recipe *recipe = c->recipe;
    recipe->budget = (uint64_t)floor(c->wish->bits * (double)recipe->values / 8);
    recipe->share.taken = recipe->taken;
    enum tp_code code = tp_share_out(recipe->choices, recipe->sets.count, recipe->budget,
                                     &recipe->share, c->err);
    if (code == TP_E_UNSUPPORTED) {
        *c->err = (struct tp_err){0};
        tp_err_hint(c->err, "ask for more bits, or name smaller formats as well");
        return tp_fail(c->err, code, "%.4g bits for each weight are less than the smallest of the "
                       "formats take, %.4f", c->wish->bits,
                       tp_bits_of(recipe->share.bytes, recipe->values));
    }
    for (size_t s = 0; s < recipe->sets.count && code == TP_OK; s++)
        if (recipe->taken[s] < recipe->formats)
            recipe->format[recipe->taken[s]].taken++;
    return code;
}

static enum tp_code choose(struct choosing *c)
{
    struct tp_recipe *recipe = c->recipe;
    const size_t count = recipe->sets.count + 1;
    recipe->choices = tp_os_zalloc(count, sizeof *recipe->choices, c->err);
    recipe->taken =
        recipe->choices ? tp_os_zalloc(count, sizeof *recipe->taken, c->err) : NULL;
    enum tp_code code = recipe->taken ? TP_OK : TP_E_MEMORY;
    for (uint32_t s = 0; s < recipe->sets.count && code == TP_OK; s++) {
        code = offer(c, s);
        keep_whole(c, s);
    }
    return code ? code : share(c);
}

/* ---- */

static void close_trials(struct choosing *c)
{
    for (size_t f = 0; c->trial && f < c->recipe->formats; f++) {
        tp_unit_results_free(c->trial[f].units, c->trial[f].plan.unit_count);
        free(c->trial[f].refused);
        tp_plan_close(&c->trial[f].plan);
    }
    free(c->trial);
    free(c->tally);
    tp_importance_close(c->importance);
}

enum tp_code tp_recipe_choose(const struct tp_side *source, const struct tp_recipe_wish *wish,
                              struct tp_recipe_format *format, size_t formats,
                              struct tp_recipe *recipe, struct tp_err *err)
{
    struct choosing c = {.source = source, .wish = wish, .recipe = recipe, .err = err};
    recipe->format = format;
    recipe->formats = formats;
    enum tp_code code = check_plain(&c);
    if (code == TP_OK)
        code = open_importance(&c);
    if (code == TP_OK && !(c.trial = tp_os_zalloc(formats + 1, sizeof *c.trial, err)))
        code = TP_E_MEMORY;
    for (size_t f = 0; f < formats && code == TP_OK; f++)
        code = try_format(&c, f);
    if (code == TP_OK && (code = find_sets(&c)) == TP_OK && (code = add_up(&c)) == TP_OK)
        code = choose(&c);
    close_trials(&c);
    return code;
}

void tp_recipe_close(struct tp_recipe *recipe)
{
    for (size_t f = 0; f < recipe->formats; f++) {
        free(recipe->format[f].refused);
        recipe->format[f].refused = NULL;
    }
    tp_weight_sets_close(&recipe->sets);
    free(recipe->choices);
    free(recipe->taken);
    *recipe = (struct tp_recipe){0};
}
