/* Values on the way: decoded from the bytes that a run makes, and compared box by box. */
#include "pack/check/verify_values.h"

#include "base/num.h"
#include "kernels/op/kernel.h"
#include "pack/os/os.h"
#include "pack/run/packed_io.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Buffers of one observation; kept in a list while nobody uses them. */
struct tp_value_buffers {
    struct tp_value_buffers *next;
    struct tp_value_reader reader;
    struct tp_buffer source, decoded, scratch, plain, importance;
};

/* What is measured of a box. Without a search only the first. */
struct tp_box_distances {
    struct tp_distance stored, none, weighted_stored, weighted_none;
};

/* Sums of a unit's boxes until all of them are there. */
struct tp_value_sums {
    struct tp_box_distances *boxes;
    size_t count, capacity; /* count: highest box seen + 1 */
    uint64_t values;        /* seen */
};

static struct tp_value_buffers *take_buffers(struct tp_value_observer *o, struct tp_err *err)
{
    pthread_mutex_lock(&o->lock);
    struct tp_value_buffers *buffers = o->idle;
    if (buffers)
        o->idle = buffers->next;
    pthread_mutex_unlock(&o->lock);
    return buffers ? buffers : tp_os_zalloc(1, sizeof *buffers, err);
}

static void put_buffers(struct tp_value_observer *o, struct tp_value_buffers *buffers)
{
    pthread_mutex_lock(&o->lock);
    buffers->next = o->idle;
    o->idle = buffers;
    pthread_mutex_unlock(&o->lock);
}

/* The source's values of a box: those the run had in its hands, or read again. */
static enum tp_code source_values(struct tp_value_observer *o, const struct tp_observed *seen,
                                  struct tp_value_buffers *buffers, struct tp_err *err)
{
    const struct tp_unit *unit = &o->plan->units[seen->unit];
    struct tp_box box = seen->box;
    uint64_t per_expert = box.size.n * box.size.k, experts = box.size.e;
    enum tp_code code = tp_buffer_room(&buffers->source, experts * per_expert * sizeof(float), err);
    if (code)
        return code;
    if (seen->dtype != TP_DTYPE_NONE && seen->values) {
        tp_widen(seen->dtype, seen->values, experts * per_expert, buffers->source.data);
        return TP_OK;
    }
    box.size.e = 1;
    for (uint64_t e = 0; e < experts && code == TP_OK; e++, box.e++)
        code = tp_read_values(o->source, unit, &box, (float *)buffers->source.data + e * per_expert,
                              &buffers->reader, err);
    return code;
}

static enum tp_code decode(const struct tp_op *op, const struct tp_observed *seen,
                           void *const out[], struct tp_value_buffers *buffers,
                           struct tp_err *err)
{
    struct tp_args args = {.box = seen->box.size, .dtype = TP_F32};
    uint64_t count = args.box.e * args.box.n * args.box.k;
    enum tp_code code = tp_buffer_room(&buffers->decoded, count * sizeof(float), err);
    if (code || (code = tp_buffer_room(&buffers->scratch, tp_encode_scratch(op, args.box), err)))
        return code;
    for (uint32_t i = 0; i < op->outs; i++)
        args.in[i] = out[i];
    args.out[0] = buffers->decoded.data;
    args.scratch = buffers->scratch.data;
    tp_decode_find(op, TP_F32)(op, &args);
    return tp_args_check(&args, err);
}

static void add_box(struct tp_unit_result *unit, const struct tp_box_distances *box)
{
    tp_distance_add(&unit->distance, &box->stored, 0);
    tp_distance_add(&unit->none, &box->none, 0);
    tp_distance_add(&unit->weighted_distance, &box->weighted_stored, 0);
    tp_distance_add(&unit->weighted_none, &box->weighted_none, 0);
}

/* Adds a box; with the unit's last one its sums are added up. */
static enum tp_code keep_sums(struct tp_value_observer *o, const struct tp_observed *seen,
                              const struct tp_box_distances *distances, struct tp_err *err)
{
    const struct tp_unit *unit = &o->plan->units[seen->unit];
    struct tp_value_sums *sums = &o->sums[seen->unit];
    pthread_mutex_lock(&o->lock);
    size_t before = sums->capacity;
    enum tp_code code = tp_os_grow((void **)&sums->boxes, &sums->capacity,
                                   (size_t)seen->box_index + 1, sizeof *sums->boxes, err);
    if (code == TP_OK) {
        memset(sums->boxes + before, 0, (sums->capacity - before) * sizeof *sums->boxes);
        sums->boxes[seen->box_index] = *distances;
        if (seen->box_index >= sums->count)
            sums->count = (size_t)seen->box_index + 1;
        sums->values += distances->stored.count;
        if (sums->values == unit->box.e * unit->box.n * unit->box.k) {
            for (size_t i = 0; i < sums->count; i++)
                add_box(&o->units[seen->unit], &sums->boxes[i]);
            free(sums->boxes);
            *sums = (struct tp_value_sums){0};
        }
    }
    pthread_mutex_unlock(&o->lock);
    return code;
}

/* Encodes the source's values as if there had been no search, and decodes that. The values
 * are those that the run encoded, so that fp32 copies of them give the same scales. */
static enum tp_code decode_unsearched(const struct tp_unit *unit, const struct tp_observed *seen,
                                      struct tp_value_buffers *buffers, struct tp_err *err)
{
    struct tp_op op = unit->op;
    struct tp_args args = {.box = seen->box.size, .dtype = TP_F32, .in = {buffers->source.data}};
    uint64_t total = 0, bytes[TP_MAX_OUT];
    enum tp_code code = TP_OK;
    op.search = TP_SEARCH_NONE;
    for (uint32_t i = 0; i < op.outs && code == TP_OK; i++) {
        code = tp_op_bytes(&op, i, args.box, &bytes[i], err);
        total += tp_round_up(bytes[i], 64);
    }
    if (code || (code = tp_buffer_room(&buffers->plain, total + 64, err)) ||
        (code = tp_buffer_room(&buffers->scratch, tp_encode_scratch(&op, args.box), err)))
        return code;
    total = 0;
    for (uint32_t i = 0; i < op.outs; i++) {
        args.out[i] = op.out[i].role == TP_ROLE_WORDS ? NULL
                                                      : (uint8_t *)buffers->plain.data + total;
        total += tp_round_up(bytes[i], 64);
    }
    args.global = seen->global;
    args.scratch = buffers->scratch.data;
    tp_encode_find(&op, TP_F32)(&op, &args);
    code = tp_args_check(&args, err);
    return code ? code : decode(&op, seen, args.out, buffers, err);
}

/* Rows times the square roots of the importance of their columns. */
static void weigh(const struct tp_box3 size, const float *importance, float *values)
{
    for (uint64_t e = 0; e < size.e; e++)
        for (uint64_t n = 0; n < size.n; n++)
            for (uint64_t k = 0; k < size.k; k++)
                values[(e * size.n + n) * size.k + k] *= sqrtf(importance[e * size.k + k]);
}

/* Of what stands in `decoded` to what stands in `source`. */
static void measure(const struct tp_observed *seen, struct tp_value_buffers *buffers,
                    struct tp_distance *distance)
{
    const struct tp_box3 *size = &seen->box.size;
    tp_distance_of(buffers->source.data, buffers->decoded.data, size->e * size->n * size->k,
                   distance);
}

/* What a searched box would be without the search; and all with importance. */
static enum tp_code measure_search(struct tp_value_observer *o, const struct tp_observed *seen,
                                   struct tp_value_buffers *buffers,
                                   struct tp_box_distances *distances, struct tp_err *err)
{
    const struct tp_unit *unit = &o->plan->units[seen->unit];
    const float *importance;
    enum tp_code code = decode_unsearched(unit, seen, buffers, err);
    if (code)
        return code;
    measure(seen, buffers, &distances->none);
    code = tp_box_importance(o->plan, unit, &seen->box, &buffers->importance, &importance, err);
    if (code || !importance)
        return code;
    weigh(seen->box.size, importance, buffers->source.data);
    weigh(seen->box.size, importance, buffers->decoded.data);
    measure(seen, buffers, &distances->weighted_none);
    if ((code = decode(&unit->op, seen, seen->out, buffers, err)))
        return code;
    weigh(seen->box.size, importance, buffers->decoded.data);
    measure(seen, buffers, &distances->weighted_stored);
    return TP_OK;
}

enum tp_code tp_value_observe(void *arg, const struct tp_observed *seen, struct tp_err *err)
{
    struct tp_value_observer *o = arg;
    const struct tp_unit *unit = &o->plan->units[seen->unit];
    struct tp_box_distances distances = {0};
    if (!unit->format)
        return TP_OK;
    struct tp_value_buffers *buffers = take_buffers(o, err);
    if (!buffers)
        return TP_E_MEMORY;
    enum tp_code code = source_values(o, seen, buffers, err);
    if (code == TP_OK && (code = decode(&unit->op, seen, seen->out, buffers, err)) == TP_OK) {
        measure(seen, buffers, &distances.stored);
        if (o->units[seen->unit].search != TP_SEARCH_NONE)
            code = measure_search(o, seen, buffers, &distances, err);
    }
    if (code == TP_OK)
        code = keep_sums(o, seen, &distances, err);
    put_buffers(o, buffers);
    return code;
}

enum tp_code tp_value_observer_open(struct tp_value_observer *o, const struct tp_plan *plan,
                                    const struct tp_side *source, struct tp_unit_result *units,
                                    struct tp_err *err)
{
    *o = (struct tp_value_observer){.plan = plan, .source = source, .units = units};
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
        free(o->sums[u].boxes);
    free(o->sums);
    while (o->idle) {
        struct tp_value_buffers *buffers = o->idle;
        o->idle = buffers->next;
        tp_value_reader_free(&buffers->reader);
        tp_buffer_free(&buffers->source);
        tp_buffer_free(&buffers->decoded);
        tp_buffer_free(&buffers->scratch);
        tp_buffer_free(&buffers->plain);
        tp_buffer_free(&buffers->importance);
        free(buffers);
    }
    pthread_mutex_destroy(&o->lock);
    *o = (struct tp_value_observer){0};
}
