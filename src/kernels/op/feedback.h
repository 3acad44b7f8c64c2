/* Error feedback: the codes of a row are chosen one column after the other, and the error that a
 * column leaves is passed on to those behind it, by how their inputs go together
 * (formats/README.md, section 14.7).
 *
 * Every value gets its summands in the order of the columns, each operation rounded once: whatever
 * works on many rows at a time changes no bit. Built for host only.
 */
#ifndef TP_KERNELS_FEEDBACK_H
#define TP_KERNELS_FEEDBACK_H

#include "base/c_linkage.h"
#include "kernels/op/kernel.h"

TP_C_BEGIN

enum { TP_FEEDBACK_RANK = 128 }; /* at most */

/* What is made of the moments of one input of K columns. */
struct tp_feedback {
    uint64_t serial; /* another one for each that is made */
    uint32_t rank;
    const uint32_t *order; /* columns of W, as they are taken */
    const float *g, *v;    /* [K][rank], as they are taken */
    const float *weight;   /* [K] by column of W: the importance in the search of scales */
};

/* Its numbers lie one behind the other: g, v, weight, order. */
static inline uint64_t tp_feedback_size(uint64_t k, uint32_t rank)
{
    return k * (2 * rank + 2) * sizeof(float);
}
static inline struct tp_feedback tp_feedback_at(const void *data, uint64_t k, uint32_t rank,
                                                uint64_t serial)
{
    const float *g = (const float *)data, *weight = g + 2 * k * rank;
    const uint32_t *order = (const uint32_t *)(const void *)(weight + k);
    struct tp_feedback fed = {serial, rank, order, g, g + k * rank, weight};
    return fed;
}

/* Bytes that tp_feedback_make() fills and works in. */
uint64_t tp_feedback_bytes(uint64_t k, uint32_t rank);

/* What is worked in: the symmetric M[whole][whole], q, t and x[whole], where `whole` is the rank in
 * whole lanes; zeros behind x[rank]. */
struct tp_feedback_sums {
    uint32_t rank;
    uint64_t whole;
    double *m, *q, *t, *x;
};

/* One column, from the last one on: g[rank] of it from x, its v, and what is returned, the part of
 * its variance that later columns do not take over, of which d is its own. */
typedef double (*tp_feedback_column_fn)(const struct tp_feedback_sums *s, double d, float *g);
struct tp_feedback_column_row {
    tp_feedback_column_fn column;
    enum tp_isa isa;
};
double tp_feedback_column_ref(const struct tp_feedback_sums *s, double d, float *g);
tp_feedback_column_fn tp_feedback_column_find(void); /* the best of this machine; of `kernels` */

/* From h[K], finite and not negative, and v[K][rank], finite. What is made points into `state`:
 * tp_feedback_bytes(), aligned to 64. */
void tp_feedback_make(tp_feedback_column_fn column, const float *h, const float *v, uint64_t k,
                      uint32_t rank, void *state, struct tp_feedback *made);

/* How the values of one block become codes, and codes numbers again. */
struct tp_feedback_block {
    bool fixed;      /* its codes stay, and leave no error: it was not searched */
    float unit;      /* that values are divided by, or with tp_feedback_multiplies() multiplied */
    float scale;     /* that the number of a code is multiplied by */
    float number[9]; /* of a search for the W4A8 kernel: those of codes 0 to 8 away from zero */
};
bool tp_feedback_multiplies(const struct tp_op *op);

/* The channel scale of a row in a search for the W4A8 kernel, from its scales and its largest
 * magnitude as bits; of any other search 1, and NaN of a row that was not searched. */
float tp_feedback_channel(const struct tp_op *op, const uint16_t *scales, uint64_t groups,
                          uint32_t amax);

/* A block whose largest magnitude and scale are given as bits. */
struct tp_feedback_block tp_feedback_block_of(const struct tp_op *op, uint32_t amax,
                                              uint32_t scale, float global, float channel);

/* Other codes for a row that was searched, values[K] in groups of op->block_k. */
void tp_feedback_row(const struct tp_op *op, const struct tp_feedback *fed, const float *values,
                     uint64_t k, const uint16_t *scales, float global, uint8_t *codes);

TP_C_END

#endif
