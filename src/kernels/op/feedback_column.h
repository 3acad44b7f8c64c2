/* The sums in binary64 that error feedback makes for one column, compiled for each instruction set:
 * each number has its own sum, in the order of the other index.
 */
#ifndef TP_KERNELS_FEEDBACK_COLUMN_H
#define TP_KERNELS_FEEDBACK_COLUMN_H

#include "kernels/op/feedback.h"

#include <string.h>

enum { FEEDBACK_LANES = 8 }; /* numbers that are worked on together */

/* sum += factor * x, or less that: `count` is of whole lanes. */
static inline void feedback_add(double *restrict sum, const double *restrict x, double factor,
                                uint64_t count)
{
    for (uint64_t i = 0; i < count; i += FEEDBACK_LANES)
        for (int j = 0; j < FEEDBACK_LANES; j++)
            sum[i + j] += x[i + j] * factor;
}

static inline void feedback_less(double *restrict sum, const double *restrict x, double factor,
                                 uint64_t count)
{
    for (uint64_t i = 0; i < count; i += FEEDBACK_LANES)
        for (int j = 0; j < FEEDBACK_LANES; j++)
            sum[i + j] -= x[i + j] * factor;
}

/* M - q t', whose element (a,b) is q of the smaller index times t of the larger: M is symmetric. */
static inline void feedback_reduce(double *m, const double *q, const double *t, uint64_t whole)
{
    for (uint64_t a = 0; a < whole; a++) {
        const uint64_t from = a / FEEDBACK_LANES * FEEDBACK_LANES, to = from + FEEDBACK_LANES;
        double *row = m + a * whole;
        feedback_less(row, q, t[a], from);
        for (uint64_t b = from; b < to; b++)
            row[b] -= b < a ? q[b] * t[a] : q[a] * t[b];
        feedback_less(row + to, t + to, q[a], whole - to);
    }
}

/* One column, as tp_feedback_column_ref(). */
static inline double feedback_column(const struct tp_feedback_sums *s, double d, float *g)
{
    const uint64_t whole = s->whole;
    double *restrict q = s->q;
    memset(q, 0, whole * sizeof *q);
    for (uint32_t b = 0; b < s->rank; b++)
        feedback_add(q, s->m + b * whole, s->x[b], whole);
    for (uint32_t a = 0; a < s->rank; a++)
        d += s->x[a] * q[a];
    for (uint64_t a = 0; a < whole; a++)
        s->t[a] = q[a] / d;
    for (uint32_t a = 0; a < s->rank; a++)
        g[a] = (float)s->t[a];
    feedback_reduce(s->m, q, s->t, whole);
    return d;
}

#endif
