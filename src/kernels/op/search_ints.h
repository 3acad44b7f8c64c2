/* What every scale search compares: the values of a block as integers with root weights, and
 * the error of a candidate scale, a sum of integers. Does not know candidates.
 */
#ifndef TP_KERNELS_SEARCH_INTS_H
#define TP_KERNELS_SEARCH_INTS_H

#include "kernels/op/kernel.h"

/* A block in integers: values in units of 2^(e-11), and root weights. */
struct tp_search_ints {
    uint64_t count;
    int32_t *x, *root;
    int e;
};

/* The values of the sixteen codes (one may come twice) with a candidate scale. */
struct tp_search_values {
    int32_t of[16];
};

/* x = values * factor as integers, negated when `flip`; then the root weights. */
void tp_search_take(struct tp_search_ints *ints, const struct tp_op *op, const float *values,
                    float factor, bool flip, const float *importance);

/* Sum of the squares of root weight times distance to the nearest of the values. */
uint64_t tp_search_error(const struct tp_search_ints *ints, const struct tp_search_values *values);

/* True when the largest positive value exceeds the largest negative one, so that a negative
 * scale lets it have the code -8. */
bool tp_search_flips(const float *values, uint64_t count);

#endif
