/* The errors of a plan's weights: by its whole run, or by boxes of a sample.
 * Invariant: which boxes a sample has depends on the plan alone, and so do its sums. */
#include "pack/check/estimate.h"

#include "base/num.h"
#include "pack/check/box_distances.h"
#include "pack/os/os.h"
#include "pack/os/threads.h"
#include "pack/run/run.h"

#include <math.h>
#include <stdlib.h>

enum { PART_OF = 61, COLUMNS = 2048 };

/* Memory of one worker of a whole run. */
#define WORKER_BYTES (UINT64_C(32) << 20)

/* The boxes of one weight, and how many of them are looked at. */
struct sample {
    uint64_t rows, columns;       /* of a box */
    uint64_t n_count, k_count;    /* boxes of an expert */
    uint64_t total, wanted;
};

struct estimate {
    const struct tp_plan *plan;
    const struct tp_side *source;
    const struct tp_estimate_options *options;
    struct tp_unit_result *results; /* of all units, or: */
    const uint32_t *units;          /* of these */
    struct tp_distance *distances;
    size_t count;     /* of what is to be measured */
    uint64_t thinned;
    uint64_t share;   /* values of a weight that the budget allows */
};

static bool is_encoded(const struct tp_unit *unit)
{
    return unit->form->format && unit->form->kind == TP_UNIT_ENCODE;
}

static uint64_t unit_bytes(const struct tp_unit *unit)
{
    return tp_value_bytes(unit->form->box, unit->form->dtype);
}

/* The i-th of what is to be measured, and where its distance goes. */
static uint32_t unit_at(const struct estimate *e, size_t i)
{
    return e->units ? e->units[i] : (uint32_t)i;
}

static void add_distances(const struct estimate *e, size_t i, const struct tp_box_distances *of)
{
    tp_distance_add(e->units ? &e->distances[i] : &e->results[i].distance, &of->stored, 0);
    if (!e->units && of->weighted_stored.count) {
        e->results[i].weighted = true;
        tp_distance_add(&e->results[i].weighted_distance, &of->weighted_stored, 0);
    }
}

static uint64_t share_of_weights(const struct estimate *e)
{
    uint64_t count = 0;
    for (size_t i = 0; i < e->count; i++)
        count += is_encoded(&e->plan->units[unit_at(e, i)]);
    return TP_ESTIMATE_VALUES / e->thinned / tp_max_u64(count, 1);
}

/* The values of a box when its tiles of n x k are filled up; k = 0: whole rows of `all`. */
static uint64_t tiles_of(const struct sample *s, uint64_t n, uint64_t k, uint64_t all)
{
    return tp_round_up(s->rows, tp_max_u64(n, 1)) * (k ? tp_round_up(s->columns, k) : all);
}

/* As many as work on a box of the sample takes the memory of: what is made of it is codes, a
 * quarter of a value and its copies; what is read for it is decoded whole. */
static uint64_t box_values(const struct estimate *e, const struct tp_unit *unit,
                           const struct sample *s)
{
    const struct tp_weight_form *source = e->plan->weights->items[unit->views[0].weight].form;
    uint64_t n, k, max = s->rows * s->columns;
    if (tp_op_tile(&unit->form->op, &n, &k, NULL) == TP_OK)
        max = tp_max_u64(max, tiles_of(s, n, k, s->columns) / 4);
    if (source->format && tp_op_stored_granule(&source->op, &n, &k, NULL) == TP_OK)
        max = tp_max_u64(max, tiles_of(s, n, k, source->box.k));
    return max;
}

/* Whether the format can lay out so many rows and columns alone: a layout may take rows by 16. */
static bool can_stand_alone(const struct tp_unit *unit, uint64_t rows, uint64_t columns)
{
    const struct tp_op *op = &unit->form->op;
    struct tp_layout layout;
    struct tp_err ignored = {0};
    uint32_t i = 0;
    while (i < op->outs && (!op->out[i].layout ||
                            tp_op_layout(op, i, (struct tp_box3){1, rows, columns}, &layout,
                                         &ignored) == TP_OK))
        i++;
    return i == op->outs;
}

/* Makes boxes of whole rows lower; where a row is too long, none is wanted. */
static void keep_small(const struct estimate *e, const struct tp_unit *unit, bool whole_rows,
                       struct sample *s)
{
    while (whole_rows && s->rows > 1 && s->rows * s->columns > e->options->max &&
           can_stand_alone(unit, tp_ceil_div(s->rows, 2), s->columns))
        s->rows = tp_ceil_div(s->rows, 2);
    if (box_values(e, unit, s) > e->options->max)
        *s = (struct sample){0};
}

static enum tp_code make_sample(const struct estimate *e, const struct tp_unit *unit,
                                struct sample *s, struct tp_err *err)
{
    const struct tp_box3 *all = &unit->form->box;
    uint64_t n, k, values = all->e * all->n * all->k;
    uint64_t target = tp_min_u64(e->share, tp_max_u64(values / PART_OF, TP_ESTIMATE_MAX));
    target = tp_max_u64(target, TP_ESTIMATE_MIN / e->thinned);
    *s = (struct sample){0};
    enum tp_code code = tp_op_granule(&unit->form->op, &n, &k, err);
    if (code || !values)
        return code;
    bool whole = values <= target;
    s->rows = n && !whole ? tp_min_u64(n, all->n) : all->n;
    s->columns = all->k;
    if (k && !whole)
        s->columns = tp_round_up(tp_min_u64(COLUMNS, tp_max_u64(target / s->rows, 1)), k);
    s->columns = tp_min_u64(s->columns, all->k);
    if (e->options->max)
        keep_small(e, unit, n && !k, s);
    if (!s->rows)
        return TP_OK;
    s->n_count = tp_ceil_div(all->n, s->rows);
    s->k_count = tp_ceil_div(all->k, s->columns);
    s->total = all->e * s->n_count * s->k_count;
    s->wanted = tp_min_u64(tp_ceil_div(target, s->rows * s->columns), s->total);
    return TP_OK;
}

/* Box number i of the sample: somewhere in the i-th of `wanted` equal parts of all boxes, and
 * never at the same place of it twice, so that no pattern of rows or columns is followed. */
static struct tp_box sample_box(const struct tp_unit *unit, const struct sample *s, uint64_t i)
{
    const double golden = 0.6180339887498949;
    double within = (double)i * golden - (double)(uint64_t)((double)i * golden);
    double part = (double)s->total / (double)s->wanted;
    uint64_t index = s->wanted == s->total ? i : (uint64_t)(((double)i + within) * part);
    index = tp_min_u64(index, s->total - 1);
    struct tp_box box = {.e = index / (s->n_count * s->k_count),
                         .n = index / s->k_count % s->n_count * s->rows,
                         .k = index % s->k_count * s->columns};
    box.size = (struct tp_box3){1, tp_min_u64(s->rows, unit->form->box.n - box.n),
                                tp_min_u64(s->columns, unit->form->box.k - box.k)};
    return box;
}

/* What a thread has for itself. */
struct own {
    struct tp_box_buffers buffers;
    struct tp_buffer weights;
};

/* Times the mean square of the gradients of what comes out, if the file has such; not known: -1. */
static enum tp_code weigh_outputs(const struct estimate *e, const struct tp_unit *unit,
                                  const struct tp_box *box, float *weights, float *square,
                                  struct tp_err *err)
{
    const struct tp_importance_file *file = e->options->importance;
    *square = 1;
    enum tp_code code = tp_importance_has_gradients(file)
                            ? tp_unit_gradient(e->plan, file, unit, box->e, square, err) : TP_OK;
    for (uint64_t k = 0; k < box->size.k && code == TP_OK; k++)
        weights[k] *= *square;
    return code;
}

/* The numbers of the box's columns, if there is a file and it has them; else NULL. */
static enum tp_code weights_of(const struct estimate *e, const struct tp_unit *unit,
                               const struct tp_box *box, struct tp_buffer *buffer,
                               const float **weights, struct tp_err *err)
{
    struct tp_importance_ref ref;
    const struct tp_importance_file *file = e->options->importance;
    *weights = NULL;
    enum tp_code code =
        file ? tp_unit_importance(e->plan, file, unit, box->e, &ref, err) : TP_OK;
    if (code || !file || ref.entry == TP_NO_IMPORTANCE)
        return code;
    code = tp_buffer_reserve(buffer, box->size.k * sizeof(float), err);
    if (code == TP_OK)
        code = tp_importance_read(file, ref, unit->form->box.k, box->k, box->size.k, buffer->data,
                                  err);
    float square = 1;
    if (code == TP_OK)
        code = weigh_outputs(e, unit, box, buffer->data, &square, err);
    *weights = square < 0 ? NULL : buffer->data;
    return code;
}

static enum tp_code one_box(const struct estimate *e, uint32_t u, const struct tp_box *box,
                            struct own *own, struct tp_box_distances *distances,
                            struct tp_err *err)
{
    const float *weights;
    enum tp_code code = weights_of(e, &e->plan->units[u], box, &own->weights, &weights, err);
    return code ? code : tp_box_trial(e->plan, e->source, u, box, weights, &own->buffers,
                                      distances, err);
}

static enum tp_code one_unit(void *arg, void *own, uint64_t at, struct tp_err *err)
{
    const struct estimate *e = arg;
    uint32_t u = unit_at(e, at);
    const struct tp_unit *unit = &e->plan->units[u];
    struct sample sample;
    if (!is_encoded(unit))
        return TP_OK;
    enum tp_code code = make_sample(e, unit, &sample, err);
    for (uint64_t i = 0; i < sample.wanted && code == TP_OK &&
                         (code = tp_stopped(e->options->stop, err)) == TP_OK; i++) {
        struct tp_box box = sample_box(unit, &sample, i);
        struct tp_box_distances distances = {0};
        code = one_box(e, u, &box, own, &distances, err);
        add_distances(e, at, &distances);
    }
    if (e->options->progress)
        e->options->progress(e->options->progress_arg, unit_bytes(unit), unit->name);
    if (code)
        tp_err_tensor(err, unit->name);
    return code;
}

static void close_own(void *memory)
{
    struct own *own = memory;
    tp_box_buffers_free(&own->buffers);
    tp_buffer_free(&own->weights);
}

static enum tp_code run_sample(struct estimate *e, struct tp_err *err)
{
    const struct tp_each units = {.count = e->count, .threads = e->options->jobs, .one = one_unit,
                                  .arg = e, .own = sizeof(struct own), .close = close_own,
                                  .stop = e->options->stop};
    e->thinned = tp_max_u64(e->options->thinned, 1);
    e->share = share_of_weights(e);
    return tp_each(&units, err);
}

static enum tp_code run_full(struct estimate *e, struct tp_err *err)
{
    struct tp_value_observer observer;
    struct tp_run_options options = {
        .jobs = e->options->jobs,
        .memory = WORKER_BYTES * e->options->jobs,
        .keep_nonfinite = true,
        .stop = e->options->stop,
        .progress = e->options->progress,
        .progress_arg = e->options->progress_arg,
        .observe = tp_value_observe,
        .observe_arg = &observer,
    };
    enum tp_code code =
        tp_value_observer_open(&observer, e->plan, e->source, false, e->results, err);
    if (code == TP_OK)
        code = tp_run(e->plan, &tp_discard_sink, &options, err);
    tp_value_observer_close(&observer);
    return code;
}

uint64_t tp_estimate_work(const struct tp_plan *plan, bool full)
{
    uint64_t bytes = 0;
    if (full)
        return tp_run_work(plan, NULL);
    for (size_t u = 0; u < plan->unit_count; u++)
        if (is_encoded(&plan->units[u]))
            bytes += unit_bytes(&plan->units[u]);
    return bytes;
}

enum tp_code tp_estimate(const struct tp_plan *plan, const struct tp_side *source,
                         const struct tp_estimate_options *options,
                         struct tp_unit_result *units, struct tp_err *err)
{
    struct estimate e = {.plan = plan, .source = source, .options = options, .results = units,
                         .count = plan->unit_count};
    return options->full ? run_full(&e, err) : run_sample(&e, err);
}

enum tp_code tp_estimate_some(const struct tp_plan *plan, const struct tp_side *source,
                              const struct tp_estimate_options *options, const uint32_t *units,
                              size_t count, struct tp_distance *distances, struct tp_err *err)
{
    struct estimate e = {.plan = plan, .source = source, .options = options, .units = units,
                         .count = count, .distances = distances};
    return run_sample(&e, err);
}

static bool has_error(const struct tp_unit_result *unit)
{
    return unit->format && unit->distance.count && isfinite(tp_distance_sqnr(&unit->distance));
}

static double stored_bits(const struct tp_plan *plan, const struct tp_unit *unit)
{
    double bytes = 0;
    for (uint32_t i = 0; i < unit->form->outs; i++)
        bytes += (double)plan->outputs[unit->output[i]].bytes;
    return 8 * bytes;
}

void tp_estimate_add_up(const struct tp_plan *plan, const struct tp_unit_result *units,
                        struct tp_estimate_sum *sum)
{
    double min = INFINITY, values = 0, squares = 0;
    *sum = (struct tp_estimate_sum){0};
    for (size_t u = 0; u < plan->unit_count; u++) {
        const struct tp_box3 *box = &plan->units[u].form->box;
        if (!plan->units[u].form->format)
            continue;
        sum->weights++;
        sum->bits += stored_bits(plan, &plan->units[u]);
        values += (double)box->e * (double)box->n * (double)box->k;
        sum->most_lost = fmax(sum->most_lost, tp_distance_lost(&units[u].distance));
        sum->losing += tp_distance_loses(&units[u].distance);
        if (!has_error(&units[u]))
            continue;
        double db = tp_distance_sqnr(&units[u].distance);
        sum->measured++;
        sum->mean_db += db;
        squares += pow(10, -db / 10);
        if (db < min) {
            min = db;
            sum->worst = u;
        }
    }
    sum->bits /= values > 0 ? values : 1;
    sum->mean_db /= sum->measured ? (double)sum->measured : 1;
    sum->relative = sqrt(squares / (sum->measured ? (double)sum->measured : 1));
}

static int by_ratio(const void *left, const void *right)
{
    const struct tp_estimate_rank *a = left, *b = right;
    int by = (a->db > b->db) - (a->db < b->db);
    return by ? by : (a->unit > b->unit) - (a->unit < b->unit);
}

size_t tp_estimate_order(const struct tp_unit_result *units, size_t count,
                         struct tp_estimate_rank *ranks)
{
    size_t found = 0;
    for (size_t u = 0; u < count; u++)
        if (has_error(&units[u]))
            ranks[found++] = (struct tp_estimate_rank){tp_distance_sqnr(&units[u].distance),
                                                       (uint32_t)u};
    qsort(ranks, found, sizeof *ranks, by_ratio);
    return found;
}
