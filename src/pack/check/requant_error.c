/* The cost of quantizing again: source and result decoded to fp32 and compared.
 *
 * Reads the source of each box a second time (it is in the page cache) rather than
 * ask the run for values that may never have left a GPU. Sums are taken in double,
 * box by box; their last digits depend on the order of the boxes.
 */
#include "pack/check/requant_error.h"

#include "pack/os/buffer.h"
#include "pack/os/os.h"
#include "pack/run/packed_io.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    *measures = e->units != NULL;
    if (!e->units)
        return TP_E_MEMORY;
    pthread_mutex_init(&e->lock, NULL);
    return TP_OK;
}

void tp_requant_error_close(struct tp_requant_error *e)
{
    pthread_mutex_destroy(&e->lock);
    free(e->units);
}

double tp_requant_share(const struct tp_requant_sum *sum)
{
    return sum->value2 > 0 ? sqrt(sum->error2 / sum->value2) : 0;
}

struct tp_requant_sum tp_requant_total(const struct tp_requant_error *e, size_t *units,
                                       size_t *worst)
{
    struct tp_requant_sum total = {0};
    *units = *worst = 0;
    for (size_t u = 0; u < e->plan->unit_count; u++) {
        const struct tp_requant_sum *sum = &e->units[u];
        if (!sum->values)
            continue;
        if (++*units == 1 || sum->largest > total.largest) {
            total.largest = sum->largest;
            *worst = u;
        }
        total.values += sum->values;
        total.error2 += sum->error2;
        total.value2 += sum->value2;
    }
    return total;
}

/* Buffers of one comparison. */
struct work {
    struct tp_buffer source[TP_MAX_OUT], before, after, scratch;
};

static void work_free(struct work *work)
{
    for (int i = 0; i < TP_MAX_OUT; i++)
        tp_buffer_free(&work->source[i]);
    tp_buffer_free(&work->before);
    tp_buffer_free(&work->after);
    tp_buffer_free(&work->scratch);
}

static enum tp_code decode(const struct tp_op *op, struct tp_box3 size, void *const in[],
                           struct tp_buffer *values, struct tp_buffer *scratch, struct tp_err *err)
{
    struct tp_args args = {.box = size, .dtype = TP_F32};
    enum tp_code code = tp_buffer_room(values, size.e * size.n * size.k * sizeof(float), err);
    if (code || (code = tp_buffer_room(scratch, tp_encode_scratch(op, size), err)))
        return code;
    for (uint32_t i = 0; i < op->outs; i++)
        args.in[i] = in[i];
    args.out[0] = values->data;
    args.scratch = scratch->data;
    tp_decode_find(op, TP_F32)(op, &args);
    return tp_args_check(&args, err);
}

/* Decodes what the box came from; *cover is the part of the source that was. */
static enum tp_code decode_source(const struct tp_plan *plan, const struct tp_unit *unit,
                                  const struct tp_box *box, struct work *work, struct tp_box *cover,
                                  uint64_t *row, struct tp_err *err)
{
    uint64_t rows;
    const struct tp_view *view = tp_unit_view(unit, box->e, box->n, row, &rows);
    const struct tp_weight *weight = &plan->weights->items[view->weight];
    void *in[TP_MAX_OUT];
    *cover = (struct tp_box){.e = view->expert};
    enum tp_code code =
        tp_weight_cover(weight, *row, box->size.n, box->k, box->size.k, cover, err);
    if (code || (code = tp_packed_read(plan->ckpt, weight, cover, work->source, err)))
        return code;
    for (int i = 0; i < TP_MAX_OUT; i++)
        in[i] = work->source[i].data;
    return decode(&weight->form->op, cover->size, in, &work->before, &work->scratch, err);
}

static void compare(struct tp_requant_error *e, const struct tp_observed *seen,
                    const struct tp_box *cover, uint64_t row, const struct work *work)
{
    const float *before = work->before.data, *after = work->after.data;
    struct tp_box3 size = seen->box.size;
    double error2 = 0, value2 = 0, largest = 0;
    for (uint64_t n = 0; n < size.n; n++)
        for (uint64_t k = 0; k < size.k; k++) {
            double x = before[(row - cover->n + n) * cover->size.k + seen->box.k - cover->k + k];
            double d = fabs(after[n * size.k + k] - x);
            error2 += d * d;
            value2 += x * x;
            largest = d > largest ? d : largest;
        }
    pthread_mutex_lock(&e->lock);
    struct tp_requant_sum *sum = &e->units[seen->unit];
    sum->values += size.n * size.k;
    sum->error2 += error2;
    sum->value2 += value2;
    sum->largest = largest > sum->largest ? largest : sum->largest;
    pthread_mutex_unlock(&e->lock);
}

enum tp_code tp_requant_error_observe(void *arg, const struct tp_observed *seen,
                                      struct tp_err *err)
{
    struct tp_requant_error *e = arg;
    const struct tp_unit *unit = &e->plan->units[seen->unit];
    struct work work = {.before = {0}};
    struct tp_box cover;
    uint64_t row;
    if (tp_unit_loss(e->plan, unit) != TP_LOSS_VALUES)
        return TP_OK;
    enum tp_code code = decode_source(e->plan, unit, &seen->box, &work, &cover, &row, err);
    if (code == TP_OK && (code = decode(&unit->form->op, seen->box.size, seen->out, &work.after,
                                        &work.scratch, err)) == TP_OK)
        compare(e, seen, &cover, row, &work);
    work_free(&work);
    return code;
}
