/* What comes out for a few rows of random activations, in fp64, and how far a right kernel may
 * be from it.
 *
 * The bound, for W's row n and X's row m with products p(k) = W[n,k] * X[m,k] of decoded values:
 * tensor cores of Hopper add 32 products to a sum at a time, all of them cut off behind 13 bits
 * of the largest: an error of at most 33 * 2^-13 * max(|sum before|, |sum after|, |p|) for each
 * step. FP8 sums of 128 products are then scaled and added in fp32. Rounding to bf16, and the
 * products with scales, are within 2^-8 of the result.
 */
#ifndef TP_PACK_PROVE_REFERENCE_H
#define TP_PACK_PROVE_REFERENCE_H

#include "base/layout.h"

#include <stdbool.h>

enum { TP_PROVE_LANES = 16 }; /* most rows of a reference */

struct tp_prove_reference {
    struct tp_box3 box; /* of W */
    bool blocks;        /* X has a scale for each 128 columns, sums begin anew there */
    uint64_t row[TP_PROVE_LANES]; /* of X, in every expert */
    uint32_t rows;
    double *value, *bound; /* [e][rows][n] */
    double *x;             /* of the expert worked on: [k][TP_PROVE_LANES] */
    double *scale;         /* and its scales: [ceil(k / 128), or 1][TP_PROVE_LANES] */
    uint8_t *codes;        /* one row */
};

/* Memory for a weight of that size; row and rows are chosen by then. */
enum tp_code tp_prove_reference_open(struct tp_prove_reference *reference, struct tp_err *err);
void tp_prove_reference_close(struct tp_prove_reference *reference); /* legal on {0} */

/* From now on rows of W are of that expert. */
void tp_prove_reference_enter(struct tp_prove_reference *reference, uint64_t expert);

/* One row of W, decoded. */
void tp_prove_reference_add(struct tp_prove_reference *reference, uint64_t expert, uint64_t n,
                            const double *weights);

#endif
