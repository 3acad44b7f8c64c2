/* Values of weights as fp32 numbers, whatever they are stored as, and how far two
 * of them are apart. Used by verify and diff; nothing here is on the way of bytes
 * that are written.
 */
#ifndef TP_PACK_VALUES_H
#define TP_PACK_VALUES_H

#include "pack/os/buffer.h"
#include "pack/plan/cut/box.h"

#include <stdatomic.h>

/* A checkpoint and what its tensors are. */
struct tp_side {
    const struct tp_checkpoint *ckpt;
    const struct tp_weights *weights;
    bool strict; /* what unpack refuses is refused; else whatever is stored has values */
};

/* Buffers of one reading thread; {0} is empty. What was decoded last stays: weights in act-order
 * are decoded in whole rows, and boxes that follow each other in these cost no second reading.
 * The weights that it reads outlive it. */
struct tp_value_reader {
    struct tp_buffer source[TP_MAX_OUT], decoded, scratch;
    const struct tp_weight *weight; /* whose values of `cover` are in `decoded`; or NULL */
    struct tp_box cover;
};
void tp_value_reader_free(struct tp_value_reader *reader);

/* The values of a box of one expert (box->size.e is 1), row by row: decoded as the
 * consumer's kernel computes them, or plain ones widened. The unit's parts are
 * weights of `side`; the box may cover several parts and need not be aligned. */
enum tp_code tp_read_values(const struct tp_side *side, const struct tp_unit *unit,
                            const struct tp_box *box, float *to, struct tp_value_reader *reader,
                            struct tp_err *err);

/* Bytes that the reader's buffers take for that, at most. */
uint64_t tp_read_values_bytes(const struct tp_weights *weights, const struct tp_unit *unit,
                              const struct tp_box *box);

/* How far b is from a. Sums leave out pairs with a NaN or an infinity. */
struct tp_distance {
    uint64_t count;      /* pairs seen */
    uint64_t differing;  /* pairs that are not equal (two NaN are, and the two zeros) */
    uint64_t nonfinite;  /* pairs left out of the sums */
    double max_abs, error, value; /* the largest |b - a|; sums of (b - a)^2 and a^2 */
    uint64_t runs, lost_runs;     /* of rows, tp_count_runs(): all but empty ones, and lost ones */
    uint64_t first;      /* index of the first differing pair, valid when differing > 0 */
    float first_a, first_b;
};

/* Of rows of so many columns, `count` pairs in all, a as it is stored (F32, BF16 or F16); index 0
 * is the first. */
void tp_distance_of(enum tp_dtype dtype, const void *a, const float *b, uint64_t count,
                    uint64_t columns, struct tp_distance *d);

/* Adds the next box's distance; `first` of `next` counts from its own begin and
 * becomes `base` + first. Sums depend on the order of these calls only. */
void tp_distance_add(struct tp_distance *sum, const struct tp_distance *next, uint64_t base);

/* ||b - a|| / ||a|| (0 when nothing differs), and the same as decibels, 10 log10 of
 * the quotient of the squares; infinite when nothing differs. Both are NAN where there is no
 * figure: pairs differ, and all that do were left out of the sums. */
double tp_distance_relative(const struct tp_distance *d);
double tp_distance_sqnr(const struct tp_distance *d);

/* The share of the source's runs of eight neighbours that are stored as nothing but zeros. Sums of
 * squares are those of the largest values; this shows what these take from the others, whose scales
 * they decide. Of healthy weights it is next to nothing in every format: tp_distance_loses() says
 * that it is more, by TP_LOST_LIMIT and by so many runs that it is no accident. */
double tp_distance_lost(const struct tp_distance *d);
bool tp_distance_loses(const struct tp_distance *d);

/* Compares two units of equal size box by box, by `jobs` threads. first is the index
 * of the element in [E,N,K]. The result does not depend on `jobs`. `stop`: as in
 * tp_run_options, or NULL. */
enum tp_code tp_compare_units(const struct tp_side *a, const struct tp_unit *unit_a,
                              const struct tp_side *b, const struct tp_unit *unit_b, unsigned jobs,
                              atomic_int *stop, struct tp_distance *distance, struct tp_err *err);

#endif
