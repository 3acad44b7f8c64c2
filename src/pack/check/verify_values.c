/* Values on the way: decoded from the bytes that a run makes, and compared box by box. */
#include "pack/check/verify_values.h"

#include "base/num.h"
#include "pack/check/box_distances.h"
#include "pack/os/os.h"
#include "pack/run/byte_budget.h"

#include <stdlib.h>
#include <string.h>

enum {
    ROW_OF = 61,    /* sampled: of so many rows one is looked at, */
    MIN_ROWS = 64   /* but of a weight not fewer than these */
};

/* Sums of a unit until all of it was seen. */
struct tp_value_sums {
    struct tp_box_distances *parts; /* boxes, or sampled granules */
    size_t count, capacity;         /* count: highest part seen + 1 */
    uint64_t values;                /* seen, looked at or not */
};

struct tp_unit_result *tp_unit_results_new(const struct tp_plan *plan, struct tp_err *err)
{
    struct tp_unit_result *units = tp_os_zalloc(plan->unit_count + 1, sizeof *units, err);
    for (size_t u = 0; units && u < plan->unit_count; u++) {
        const struct tp_unit *unit = &plan->units[u];
        units[u].box = unit->form->box;
        units[u].rank = unit->form->rank;
        units[u].format = unit->form->format;
        units[u].search =
            unit->form->kind == TP_UNIT_ENCODE ? tp_op_search(&unit->form->op) : TP_SEARCH_NONE;
        units[u].loss = tp_unit_loss(plan, unit);
        units[u].weighted = unit->form->op.importance == TP_IMPORTANCE_FILE;
        if (!(units[u].name = tp_os_format(err, "%s", unit->name))) {
            tp_unit_results_free(units, u);
            return NULL;
        }
    }
    return units;
}

void tp_unit_results_free(struct tp_unit_result *units, size_t count)
{
    for (size_t u = 0; u < count; u++)
        free(units[u].name);
    free(units);
}

static struct tp_box_buffers *take_buffers(struct tp_value_observer *o, struct tp_err *err)
{
    pthread_mutex_lock(&o->lock);
    struct tp_box_buffers *buffers = o->idle;
    if (buffers)
        o->idle = buffers->next;
    pthread_mutex_unlock(&o->lock);
    return buffers ? buffers : tp_os_zalloc(1, sizeof *buffers, err);
}

static void put_buffers(struct tp_value_observer *o, struct tp_box_buffers *buffers)
{
    pthread_mutex_lock(&o->lock);
    buffers->next = o->idle;
    o->idle = buffers;
    pthread_mutex_unlock(&o->lock);
}

static void add_to_unit(struct tp_unit_result *unit, const struct tp_box_distances *part)
{
    tp_distance_add(&unit->distance, &part->stored, 0);
    tp_distance_add(&unit->none, &part->none, 0);
    tp_distance_add(&unit->weighted_distance, &part->weighted_stored, 0);
    tp_distance_add(&unit->weighted_none, &part->weighted_none, 0);
}

static void add_to_part(struct tp_box_distances *part, const struct tp_box_distances *more)
{
    tp_distance_add(&part->stored, &more->stored, 0);
    tp_distance_add(&part->none, &more->none, 0);
    tp_distance_add(&part->weighted_stored, &more->weighted_stored, 0);
    tp_distance_add(&part->weighted_none, &more->weighted_none, 0);
}

/* Keeps what was measured of a part of the unit. */
static enum tp_code keep_part(struct tp_value_observer *o, uint32_t unit, uint64_t part,
                              const struct tp_box_distances *distances, struct tp_err *err)
{
    struct tp_value_sums *sums = &o->sums[unit];
    pthread_mutex_lock(&o->lock);
    size_t before = sums->capacity;
    enum tp_code code = tp_os_grow((void **)&sums->parts, &sums->capacity, (size_t)part + 1,
                                   sizeof *sums->parts, err);
    if (code == TP_OK) {
        memset(sums->parts + before, 0, (sums->capacity - before) * sizeof *sums->parts);
        add_to_part(&sums->parts[part], distances);
        sums->count = tp_max_u64(sums->count, part + 1);
    }
    pthread_mutex_unlock(&o->lock);
    return code;
}

/* Counts a box; with the unit's last one its sums are added up. */
static void count_box(struct tp_value_observer *o, const struct tp_observed *seen)
{
    const struct tp_unit *unit = &o->plan->units[seen->unit];
    const struct tp_box3 *size = &seen->box.size;
    struct tp_value_sums *sums = &o->sums[seen->unit];
    pthread_mutex_lock(&o->lock);
    sums->values += size->e * size->n * size->k;
    if (sums->values == unit->form->box.e * unit->form->box.n * unit->form->box.k) {
        for (size_t i = 0; i < sums->count; i++)
            add_to_unit(&o->units[seen->unit], &sums->parts[i]);
        free(sums->parts);
        *sums = (struct tp_value_sums){0};
    }
    pthread_mutex_unlock(&o->lock);
}

static enum tp_code measure_box(struct tp_value_observer *o, const struct tp_observed *seen,
                                struct tp_box_buffers *buffers, struct tp_err *err)
{
    struct tp_box_distances distances = {0};
    enum tp_code code =
        tp_box_distances_of(o->plan, o->source, seen, o->units[seen->unit].search != TP_SEARCH_NONE,
                            buffers, &distances, err);
    return code ? code : keep_part(o, seen->unit, seen->box_index, &distances, err);
}

/* Of how many granules one is looked at. */
static uint64_t sample_step(const struct tp_unit *unit, uint64_t granule)
{
    uint64_t step = unit->form->box.e * unit->form->box.n / tp_max_u64(granule, MIN_ROWS);
    step = tp_min_u64(tp_max_u64(step, 1), ROW_OF);
    return step - (step % 2 == 0);
}

static enum tp_code measure_part(struct tp_value_observer *o, const struct tp_observed *seen,
                                 const struct tp_box *part, uint64_t index,
                                 struct tp_box_buffers *buffers, struct tp_err *err)
{
    struct tp_box_distances distances = {0};
    struct tp_observed rows;
    void *out[TP_MAX_OUT] = {0};
    enum tp_code code =
        tp_box_rows(&o->plan->units[seen->unit], seen, part, buffers, out, &rows, err);
    bool search = o->units[seen->unit].search != TP_SEARCH_NONE;
    if (code || (code = tp_box_distances_of(o->plan, o->source, &rows, search, buffers, &distances,
                                            err)))
        return code;
    return keep_part(o, seen->unit, index, &distances, err);
}

/* The same within the observers' room: buffers of which it is a part are not kept, and what does
 * not fit is not measured. */
static enum tp_code measure_rows(struct tp_value_observer *o, const struct tp_observed *seen,
                                 const struct tp_box *part, uint64_t index,
                                 struct tp_box_buffers *buffers, struct tp_err *err)
{
    struct tp_box_buffers own = {0};
    bool search = o->units[seen->unit].search != TP_SEARCH_NONE;
    if (!seen->shared_budget)
        return measure_part(o, seen, part, index, buffers, err);
    const uint64_t bytes = tp_box_distances_bytes(o->plan, seen, part, search);
    if (!tp_byte_budget_acquire(seen->shared_budget, bytes))
        return TP_OK;
    enum tp_code code = measure_part(o, seen, part, index, &own, err);
    tp_box_buffers_free(&own);
    tp_byte_budget_release(seen->shared_budget, bytes);
    return code;
}

/* The granules of the box that are in the sample. */
static enum tp_code sample_box(struct tp_value_observer *o, const struct tp_observed *seen,
                               struct tp_box_buffers *buffers, struct tp_err *err)
{
    const struct tp_unit *unit = &o->plan->units[seen->unit];
    const struct tp_box *box = &seen->box;
    uint64_t granule, columns;
    enum tp_code code = tp_op_granule(&unit->form->op, &granule, &columns, err);
    if (code)
        return code;
    granule = granule ? granule : unit->form->box.n; /* 0: rows cannot be parted */
    uint64_t step = sample_step(unit, granule), count = tp_ceil_div(unit->form->box.n, granule);
    for (uint64_t e = 0; e < box->size.e; e++)
        for (uint64_t n = 0; n < box->size.n && code == TP_OK; n += granule) {
            struct tp_box part = {.e = box->e + e, .n = box->n + n, .k = box->k};
            uint64_t index = part.e * count + part.n / granule;
            part.size = (struct tp_box3){1, tp_min_u64(granule, box->size.n - n), box->size.k};
            if (index % step == 0)
                code = measure_rows(o, seen, &part, index / step, buffers, err);
        }
    return code;
}

static bool wants(const struct tp_value_observer *o, uint32_t unit)
{
    const struct tp_unit_result *result = &o->units[unit];
    return o->plan->units[unit].form->format && (!o->sampled || result->search != TP_SEARCH_NONE ||
                                           result->loss != TP_LOSS_NONE);
}

enum tp_code tp_value_observe(void *arg, const struct tp_observed *seen, struct tp_err *err)
{
    struct tp_value_observer *o = arg;
    if (!wants(o, seen->unit))
        return TP_OK;
    struct tp_box_buffers *buffers = take_buffers(o, err);
    if (!buffers)
        return TP_E_MEMORY;
    enum tp_code code = o->sampled ? sample_box(o, seen, buffers, err)
                                   : measure_box(o, seen, buffers, err);
    if (code == TP_OK)
        count_box(o, seen);
    put_buffers(o, buffers);
    return code;
}

enum tp_code tp_value_observer_open(struct tp_value_observer *o, const struct tp_plan *plan,
                                    const struct tp_side *source, bool sampled,
                                    struct tp_unit_result *units, struct tp_err *err)
{
    *o = (struct tp_value_observer){.plan = plan, .source = source, .sampled = sampled,
                                    .units = units};
    o->sums = tp_os_zalloc(plan->unit_count + 1, sizeof *o->sums, err);
    if (!o->sums)
        return TP_E_MEMORY;
    pthread_mutex_init(&o->lock, NULL);
    return TP_OK;
}

void tp_value_observer_close(struct tp_value_observer *o)
{
    if (!o->sums)
        return;
    for (size_t u = 0; u < o->plan->unit_count; u++)
        free(o->sums[u].parts);
    free(o->sums);
    while (o->idle) {
        struct tp_box_buffers *buffers = o->idle;
        o->idle = buffers->next;
        tp_box_buffers_free(buffers);
        free(buffers);
    }
    pthread_mutex_destroy(&o->lock);
    *o = (struct tp_value_observer){0};
}
