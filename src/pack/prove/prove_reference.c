/* The reference: plain sums in fp64, all rows of activations side by side. */
#include "pack/prove/prove_reference.h"

#include "base/num.h"
#include "kernels/op/scalar.h"
#include "pack/os/os.h"
#include "pack/prove/prove_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 32, BLOCK = 128, LANES = TP_PROVE_LANES };

static const double step_error = 33.0 / 8192, rounding = 1.0 / 256, promotion = 1.0 / (1 << 22);

static uint64_t scales(const struct tp_prove_reference *r)
{
    return r->blocks ? tp_ceil_div(r->box.k, BLOCK) : 1;
}

enum tp_code tp_prove_reference_open(struct tp_prove_reference *r, struct tp_err *err)
{
    size_t results = (size_t)(r->box.e * r->box.n * r->rows);
    r->value = tp_os_zalloc(results, sizeof(double), err);
    r->bound = tp_os_zalloc(results, sizeof(double), err);
    r->x = tp_os_zalloc((size_t)r->box.k * LANES, sizeof(double), err);
    r->scale = tp_os_zalloc((size_t)scales(r) * LANES, sizeof(double), err);
    r->codes = tp_os_alloc((size_t)r->box.k, err);
    if (r->value && r->bound && r->x && r->scale && r->codes)
        return TP_OK;
    tp_prove_reference_close(r);
    return TP_E_MEMORY;
}

void tp_prove_reference_close(struct tp_prove_reference *r)
{
    free(r->value);
    free(r->bound);
    free(r->x);
    free(r->scale);
    free(r->codes);
    r->value = r->bound = r->x = r->scale = NULL;
    r->codes = NULL;
}

void tp_prove_reference_enter(struct tp_prove_reference *r, uint64_t expert)
{
    for (uint32_t lane = 0; lane < r->rows; lane++) {
        tp_prove_row(expert, r->row[lane], r->box.k, r->codes);
        for (uint64_t k = 0; k < r->box.k; k++)
            r->x[k * LANES + lane] = (double)tp_e4m3_value(r->codes[k]);
        for (uint64_t b = 0; b < scales(r); b++)
            r->scale[b * LANES + lane] = (double)tp_prove_row_scale(expert, r->row[lane], b);
    }
}

/* What is summed up side by side, one sum for each row of X. */
struct sums {
    double sum[LANES], error[LANES]; /* of products, without the row's scale */
    double value[LANES], bound[LANES];
};

/* Up to 32 products for each row of X. */
static void add_step(struct sums *s, const double *weights, const double *x, uint64_t count)
{
    double before[LANES], max[LANES];
    for (int i = 0; i < LANES; i++) {
        before[i] = s->sum[i];
        max[i] = fabs(s->sum[i]);
    }
    for (uint64_t k = 0; k < count; k++)
        for (int i = 0; i < LANES; i++) {
            double p = weights[k] * x[k * LANES + (uint64_t)i], size = fabs(p);
            before[i] += p;
            max[i] = size > max[i] ? size : max[i];
        }
    for (int i = 0; i < LANES; i++) {
        double size = fabs(before[i]);
        s->error[i] += step_error * (size > max[i] ? size : max[i]);
        s->sum[i] = before[i];
    }
}

/* Scales what was summed, and begins anew. */
static void end_block(struct sums *s, const double *scale)
{
    for (int i = 0; i < LANES; i++) {
        s->value[i] += s->sum[i] * scale[i];
        s->bound[i] += s->error[i] * scale[i] + promotion * fabs(s->value[i]);
        s->sum[i] = s->error[i] = 0;
    }
}

void tp_prove_reference_add(struct tp_prove_reference *r, uint64_t expert, uint64_t n,
                            const double *weights)
{
    struct sums s = {0};
    uint64_t block = r->blocks ? BLOCK : r->box.k;
    for (uint64_t k = 0, b = 0; k < r->box.k; k += block, b++) {
        uint64_t end = tp_min_u64(k + block, r->box.k);
        for (uint64_t at = k; at < end; at += STEP)
            add_step(&s, weights + at, r->x + at * LANES, tp_min_u64(STEP, end - at));
        end_block(&s, r->scale + b * LANES);
    }
    for (uint32_t lane = 0; lane < r->rows; lane++) {
        size_t at = (size_t)((expert * r->rows + lane) * r->box.n + n);
        r->value[at] = s.value[lane];
        r->bound[at] = s.bound[lane] + rounding * fabs(s.value[lane]);
    }
}
