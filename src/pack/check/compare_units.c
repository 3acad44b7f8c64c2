/* Two units, element by element, by several threads.
 *
 * The grid depends on the units alone; each box leaves its own sums, which are
 * added in the order of the boxes. Invariant: memory is that of a batch of boxes, whatever
 * the number of experts.
 */
#include "pack/check/values.h"

#include "base/num.h"
#include "pack/os/os.h"
#include "pack/os/threads.h"

#include <stdlib.h>

#define BOX_VALUES (UINT64_C(1) << 19)
#define BATCH (UINT64_C(1) << 16) /* boxes whose sums wait to be added */

struct job {
    const struct tp_side *a, *b;
    const struct tp_unit *unit_a, *unit_b;
    uint64_t n_step, k_step, n_count, k_count, count;
    struct tp_distance *parts; /* of the boxes from `first` to `end` */
    uint64_t first, end;
};

/* What a thread has for itself. */
struct own {
    struct tp_value_reader readers[2];
    struct tp_buffer values[2];
};

/* Smallest steps at which both sides can be decoded without reading more. */
static enum tp_code granule(const struct job *job, uint64_t *n, uint64_t *k, struct tp_err *err)
{
    const struct tp_side *sides[] = {job->a, job->b};
    const struct tp_unit *units[] = {job->unit_a, job->unit_b};
    *n = *k = 1;
    for (int s = 0; s < 2; s++)
        for (uint32_t p = 0; p < units[s]->form->views_per_expert; p++) {
            uint64_t gn, gk;
            const struct tp_weight *weight = &sides[s]->weights->items[units[s]->views[p].weight];
            if (!weight->form->format)
                continue;
            enum tp_code code = tp_op_stored_granule(&weight->form->op, &gn, &gk, err);
            if (code)
                return code;
            gk = gk ? gk : weight->form->box.k;
            if (!tp_lcm_u64(n, *n, gn) || !tp_lcm_u64(k, *k, gk))
                return tp_fail(err, TP_E_UNSUPPORTED, "granule does not fit 64 bits");
        }
    return TP_OK;
}

static enum tp_code choose_grid(struct job *job, struct tp_err *err)
{
    struct tp_box3 box = job->unit_a->form->box;
    uint64_t n, k, blocks;
    enum tp_code code = granule(job, &n, &k, err);
    if (code)
        return code;
    if (box.n == 0 || box.k == 0)
        return TP_OK; /* nothing to compare: job->count stays 0 */
    n = tp_min_u64(n, box.n);
    k = tp_min_u64(k, box.k);
    blocks = tp_max_u64(BOX_VALUES / (n * k), 1); /* whole granules in one box */
    uint64_t wide = tp_max_u64(tp_min_u64(blocks, tp_ceil_div(box.k, k)), 1);
    job->k_step = tp_min_u64(wide * k, box.k);
    job->n_step = tp_min_u64(tp_max_u64(blocks / wide, 1) * n, box.n);
    job->n_count = tp_ceil_div(box.n, job->n_step);
    job->k_count = tp_ceil_div(box.k, job->k_step);
    if (!tp_mul_u64(&job->count, job->n_count * job->k_count, box.e))
        return tp_fail(err, TP_E_UNSUPPORTED, "the tensor is too large");
    return TP_OK;
}

static struct tp_box box_at(const struct job *job, uint64_t i)
{
    struct tp_box3 all = job->unit_a->form->box;
    uint64_t per_expert = job->n_count * job->k_count;
    struct tp_box box = {.e = i / per_expert,
                         .n = i % per_expert / job->k_count * job->n_step,
                         .k = i % job->k_count * job->k_step};
    box.size = (struct tp_box3){1, tp_min_u64(job->n_step, all.n - box.n),
                                tp_min_u64(job->k_step, all.k - box.k)};
    return box;
}

/* The index of a box's element in the whole [E,N,K]. */
static uint64_t whole_index(const struct job *job, const struct tp_box *box, uint64_t i)
{
    struct tp_box3 all = job->unit_a->form->box;
    return (box->e * all.n + box->n + i / box->size.k) * all.k + box->k + i % box->size.k;
}

/* Box number i of the batch. */
static enum tp_code one_box(void *arg, void *memory, uint64_t i, struct tp_err *err)
{
    const struct job *job = arg;
    struct own *own = memory;
    struct tp_box box = box_at(job, job->first + i);
    uint64_t count = box.size.n * box.size.k;
    const struct tp_buffer *values = own->values;
    enum tp_code code;
    if ((code = tp_buffer_reserve(&own->values[0], count * sizeof(float), err)) ||
        (code = tp_buffer_reserve(&own->values[1], count * sizeof(float), err)) ||
        (code = tp_read_values(job->a, job->unit_a, &box, values[0].data, &own->readers[0],
                               err)) ||
        (code = tp_read_values(job->b, job->unit_b, &box, values[1].data, &own->readers[1], err)))
        return code;
    struct tp_distance *part = &job->parts[i];
    tp_distance_of(TP_F32, values[0].data, values[1].data, count, box.size.k, part);
    part->first = whole_index(job, &box, part->first);
    return TP_OK;
}

static void close_own(void *memory)
{
    struct own *own = memory;
    for (int s = 0; s < 2; s++) {
        tp_value_reader_free(&own->readers[s]);
        tp_buffer_free(&own->values[s]);
    }
}

/* Boxes side by side along k share rows, so the first of all elements need not be
 * in the first box that has one. */
static void add_up(const struct job *job, struct tp_distance *distance)
{
    for (uint64_t i = 0; i < job->end - job->first; i++) {
        const struct tp_distance *part = &job->parts[i];
        bool earlier = part->differing && distance->differing && part->first < distance->first;
        tp_distance_add(distance, part, 0);
        if (earlier) {
            distance->first = part->first;
            distance->first_a = part->first_a;
            distance->first_b = part->first_b;
        }
    }
}

enum tp_code tp_compare_units(const struct tp_side *a, const struct tp_unit *unit_a,
                              const struct tp_side *b, const struct tp_unit *unit_b, unsigned jobs,
                              atomic_int *stop, struct tp_distance *distance, struct tp_err *err)
{
    struct job job = {.a = a, .b = b, .unit_a = unit_a, .unit_b = unit_b};
    struct tp_each boxes = {.threads = jobs, .one = one_box, .arg = &job, .own = sizeof(struct own),
                            .close = close_own, .stop = stop};
    enum tp_code code = choose_grid(&job, err);
    if (code)
        return code;
    *distance = (struct tp_distance){0};
    if (!(job.parts = tp_os_alloc(tp_min_u64(job.count, BATCH) * sizeof *job.parts, err)))
        return TP_E_MEMORY;
    for (; job.first < job.count && code == TP_OK; job.first = job.end) {
        job.end = tp_min_u64(job.count, job.first + BATCH);
        boxes.count = job.end - job.first;
        if ((code = tp_each(&boxes, err)) == TP_OK)
            add_up(&job, distance);
    }
    free(job.parts);
    return code;
}
