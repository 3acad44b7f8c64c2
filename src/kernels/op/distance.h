/* How far decoded values are from others: sums over one short block, in an order that does
 * not depend on the instruction set, and counts of runs that became zero. What the sums of blocks
 * mean is pack/check's.
 */
#ifndef TP_KERNELS_DISTANCE_H
#define TP_KERNELS_DISTANCE_H

#include "kernels/op/kernel.h"

enum {
    TP_DISTANCE_LANES = 8,   /* sums side by side: pair i belongs to lane i % 8 */
    TP_DISTANCE_BLOCK = 4096, /* the most pairs of one block */
    TP_RUN = 8                /* neighbours of a row that are looked at together, see below */
};

/* Of each lane, added up in the order of its pairs, all in double: (b - a)^2, a^2, the
 * largest |b - a|, and how many pairs differ. With a NaN or an infinity among the pairs
 * `error` or `value` of a lane is not finite, and nothing of it means anything. */
struct tp_block_distance {
    double error[TP_DISTANCE_LANES], value[TP_DISTANCE_LANES], max[TP_DISTANCE_LANES];
    uint64_t differing[TP_DISTANCE_LANES];
};

/* Of `count` pairs, at most TP_DISTANCE_BLOCK: `a` as it is stored (F32, BF16 or F16), b in
 * fp32. Every row gives the reference's bits. */
typedef void (*tp_distance_fn)(enum tp_dtype dtype, const void *a, const float *b, uint64_t count,
                               struct tp_block_distance *block);
struct tp_distance_row {
    enum tp_isa isa;
    tp_distance_fn distance; /* NULL: the set has none */
};

void tp_distance_ref(enum tp_dtype dtype, const void *a, const float *b, uint64_t count,
                     struct tp_block_distance *block);

/* The best row whose instruction set is enabled; the reference fits every machine. */
tp_distance_fn tp_distance_find(void);

/* Of healthy weights a smaller share of the runs below is lost, in every format. */
#define TP_LOST_LIMIT 0.01

/* Rows of values are cut into runs of TP_RUN, from their first column on; the last run of a row may
 * be shorter. A run counts where a or b holds anything but zeros, and is lost where all of b is
 * zero. Both zeros are zero, a NaN is not. Adds to *count and *lost what `rows` rows of `columns`
 * have; integers, so that it does not matter how they are grouped. */
void tp_count_runs(enum tp_dtype dtype, const void *a, const float *b, uint64_t rows,
                   uint64_t columns, uint64_t *count, uint64_t *lost);

/* F32, BF16 or F16 to fp32. */
void tp_widen(enum tp_dtype dtype, const void *from, uint64_t count, float *to);

#endif
