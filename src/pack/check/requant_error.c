/* The cost of quantizing again: source and result decoded to fp32 and compared.
 *
 * Reads the source of each box a second time (it is in the page cache) rather than
 * ask the run for values that may never have left a GPU. Sums are taken in double,
 * box by box; their last digits depend on the order of the boxes.
 */
#include "pack/check/requant_error.h"

#include "base/num.h"
#include "pack/check/box_distances.h"
#include "pack/os/os.h"
#include "pack/run/byte_budget.h"

#include <stdlib.h>

enum tp_code tp_requant_error_open(const struct tp_plan *plan, struct tp_requant_error *e,
                                   bool *measures, struct tp_err *err)
{
    *e = (struct tp_requant_error){.plan = plan};
    *measures = false;
    for (size_t u = 0; u < plan->unit_count; u++)
        *measures |= tp_unit_loss(plan, &plan->units[u]) == TP_LOSS_VALUES;
    if (!*measures)
        return TP_OK;
    e->units = tp_os_zalloc(plan->unit_count, sizeof *e->units, err);
    e->values = tp_os_zalloc(plan->unit_count, sizeof *e->values, err);
    *measures = e->units && e->values;
    if (!*measures) {
        free(e->units);
        free(e->values);
        return TP_E_MEMORY;
    }
    pthread_mutex_init(&e->lock, NULL);
    return TP_OK;
}

void tp_requant_error_close(struct tp_requant_error *e)
{
    pthread_mutex_destroy(&e->lock);
    free(e->units);
    free(e->values);
}

size_t tp_requant_count(const struct tp_requant_error *e, uint64_t *values)
{
    size_t count = 0;
    *values = 0;
    for (size_t u = 0; u < e->plan->unit_count; u++) {
        *values += e->values[u];
        count += e->values[u] > 0;
    }
    return count;
}

struct tp_distance tp_requant_total(const struct tp_requant_error *e, size_t *units, size_t *worst)
{
    struct tp_distance total = {0};
    *units = *worst = 0;
    for (size_t u = 0; u < e->plan->unit_count; u++) {
        if (!e->units[u].count)
            continue;
        if (++*units == 1 || e->units[u].max_abs > total.max_abs)
            *worst = u;
        tp_distance_add(&total, &e->units[u], 0);
    }
    return total;
}

static void count_box(struct tp_requant_error *e, const struct tp_observed *seen)
{
    const struct tp_box3 *size = &seen->box.size;
    pthread_mutex_lock(&e->lock);
    e->values[seen->unit] += size->e * size->n * size->k;
    pthread_mutex_unlock(&e->lock);
}

static void add(struct tp_requant_error *e, size_t unit, const struct tp_distance *distance)
{
    pthread_mutex_lock(&e->lock);
    tp_distance_add(&e->units[unit], distance, 0);
    pthread_mutex_unlock(&e->lock);
}

static enum tp_code measure(struct tp_requant_error *e, const struct tp_observed *seen,
                            const struct tp_box *part, struct tp_box_buffers *buffers,
                            struct tp_err *err)
{
    struct tp_side source = {.ckpt = e->plan->ckpt, .weights = e->plan->weights};
    struct tp_box_distances distances = {0};
    struct tp_observed rows;
    void *out[TP_MAX_OUT] = {0};
    enum tp_code code =
        tp_box_rows(&e->plan->units[seen->unit], seen, part, buffers, out, &rows, err);
    if (code == TP_OK)
        code = tp_box_distances_of(e->plan, &source, &rows, false, buffers, &distances, err);
    if (code == TP_OK)
        add(e, seen->unit, &distances.stored);
    return code;
}

/* Part by part, as few rows as can be taken alone: workers share the room for it. */
enum tp_code tp_requant_error_observe(void *arg, const struct tp_observed *seen,
                                      struct tp_err *err)
{
    struct tp_requant_error *e = arg;
    struct tp_box_buffers buffers = {0};
    const struct tp_box *box = &seen->box;
    struct tp_box part = {.e = box->e, .n = box->n, .k = box->k};
    uint64_t granule, columns;
    enum tp_code code = TP_OK;
    if (tp_unit_loss(e->plan, &e->plan->units[seen->unit]) != TP_LOSS_VALUES)
        return TP_OK;
    count_box(e, seen);
    if ((code = tp_op_granule(&e->plan->units[seen->unit].form->op, &granule, &columns, err)))
        return code;
    granule = granule ? granule : box->size.n; /* 0: rows cannot be parted */
    part.size = (struct tp_box3){1, tp_min_u64(granule, box->size.n), box->size.k};
    const uint64_t bytes = tp_box_distances_bytes(e->plan, seen, &part, false);
    if (!tp_byte_budget_acquire(seen->shared_budget, bytes))
        return TP_OK;
    for (; part.e < box->e + box->size.e; part.e++)
        for (part.n = box->n; part.n < box->n + box->size.n && code == TP_OK; part.n += granule) {
            part.size.n = tp_min_u64(granule, box->n + box->size.n - part.n);
            code = measure(e, seen, &part, &buffers, err);
        }
    tp_box_buffers_free(&buffers);
    tp_byte_budget_release(seen->shared_budget, bytes);
    return code;
}
