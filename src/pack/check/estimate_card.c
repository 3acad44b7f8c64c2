/* Picks the weights, has them sampled, and adds up by format. Reads nothing itself. */
#include "pack/check/estimate_card.h"

#include "base/num.h"
#include "pack/check/estimate.h"
#include "pack/os/os.h"
#include "pack/source/page_cache.h"

#include <math.h>
#include <stdlib.h>

/* The sample is so many times smaller than that of `compare`. */
enum { THINNED = 16 };

/* What a box may have, so that a worker fits into the least memory that a run is allowed, and
 * what one takes then. The first decides what is measured, so it is the same for every run. */
#define BOX_VALUES (UINT64_C(1) << 19)
#define WORKER_BYTES (UINT64_C(16) << 20)

static unsigned workers(const struct tp_run_options *run)
{
    uint64_t fit = tp_max_u64(run->memory / WORKER_BYTES, 2) - 1; /* the program is one more */
    return run->memory ? (unsigned)tp_min_u64(run->jobs, fit) : run->jobs;
}

/* All units, or of each so many one, never at the same place of them twice: the units of a layer
 * follow each other in the same order. */
static void pick(size_t units, uint32_t *picked, size_t count)
{
    const double golden = 0.6180339887498949, part = (double)units / (double)count;
    for (size_t i = 0; i < count; i++) {
        double within = (double)i * golden - floor((double)i * golden);
        size_t unit = units == count ? i : (size_t)(((double)i + within) * part);
        picked[i] = (uint32_t)tp_min_u64(unit, units - 1);
    }
}

static void add(const struct tp_unit *unit, const struct tp_distance *distance,
                struct tp_card_use *use)
{
    double db = tp_distance_sqnr(distance);
    if (!distance->count || !isfinite(db))
        return;
    use->mean_db += db;
    use->relative += pow(10, -db / 10);
    if (!use->measured++ || db < use->worst_db) {
        use->worst_db = db;
        use->worst = unit->name;
    }
    if (tp_distance_lost(distance) > use->most_lost) {
        use->most_lost = tp_distance_lost(distance);
        use->loser = unit->name;
    }
    use->losing += tp_distance_loses(distance);
}

static void add_up(const struct tp_plan *plan, const uint32_t *picked,
                   const struct tp_distance *distances, size_t picks, struct tp_card_use *uses,
                   size_t count)
{
    for (size_t i = 0; i < picks; i++)
        for (size_t use = 0; use < count; use++)
            if (tp_card_is_of(&uses[use], plan->units[picked[i]].form->format))
                add(&plan->units[picked[i]], &distances[i], &uses[use]);
    for (size_t use = 0; use < count; use++) {
        double measured = uses[use].measured ? (double)uses[use].measured : 1;
        uses[use].mean_db /= measured;
        uses[use].relative = sqrt(uses[use].relative / measured);
    }
}

enum tp_code tp_estimate_uses(const struct tp_plan *plan, const struct tp_run_options *run,
                              size_t most, struct tp_card_use *uses, size_t count,
                              struct tp_err *err)
{
    struct tp_side source = {.ckpt = plan->ckpt, .weights = plan->weights};
    struct tp_estimate_options options = {.thinned = THINNED, .max = BOX_VALUES,
                                          .jobs = workers(run), .stop = run->stop};
    size_t picks = plan->unit_count < most ? plan->unit_count : most;
    uint32_t *picked = tp_os_zalloc(picks + 1, sizeof *picked, err);
    struct tp_distance *distances =
        picked ? tp_os_zalloc(picks + 1, sizeof *distances, err) : NULL;
    enum tp_code code = distances ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK) {
        pick(plan->unit_count, picked, picks);
        code = tp_estimate_some(plan, &source, &options, picked, picks, distances, err);
    }
    if (code == TP_OK)
        add_up(plan, picked, distances, picks, uses, count);
    free(distances);
    free(picked);
    return code;
}

enum tp_code tp_estimate_card(const struct tp_plan *plan, const struct tp_run_options *run,
                              struct tp_card_use *uses, size_t count, struct tp_err *err)
{
    struct tp_page_cache cache = {0}; /* the conversion may have dropped what it read */
    enum tp_code code = tp_page_cache_open(&cache, plan->ckpt, err);
    if (code == TP_OK)
        code = tp_estimate_uses(plan, run, TP_CARD_WEIGHTS, uses, count, err);
    tp_page_cache_close(&cache);
    return code;
}
