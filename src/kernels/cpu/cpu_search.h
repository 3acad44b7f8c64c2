/* The scale search (formats/README.md, section 14), VL blocks at a time, one in each lane:
 * values as integers with root weights, sums of squares, and their comparison. What the
 * candidates are and how far a value is from the nearest is in cpu_search_<codec>.inc.
 *
 * A register holds two consecutive values of every block, as signed words. Invariant: a root
 * weight times a distance fits a signed word; whoever calls sees to that, or takes the slow way.
 */
#ifndef TP_KERNELS_CPU_SEARCH_H
#define TP_KERNELS_CPU_SEARCH_H

#include "kernels/cpu/cpu_run.h"
#include "kernels/cpu/cpu_words.h"

/* Bounds that keep everything in signed words, of a step (12 of them, less a value) and of a
 * distance (times a root weight); and from where on a reciprocal of a step is a word. Only
 * scales at the ends of e4m3 are beyond them. */
enum { SEARCH_MIN_STEP = 129, SEARCH_MAX_STEP = 1092, SEARCH_MAX_DISTANCE = 2184 };

enum { SEARCH_PAIRS = 64 }; /* of the largest block */

struct search_ints {
    unsigned size; /* values of a block, or of a lane's part of one: a multiple of 8 */
    vu x[SEARCH_PAIRS], root[SEARCH_PAIRS];
};

/* Where VL blocks lie: `stride` bytes from one to the next. Their roots of a file, one word
 * for each column, `root_stride` bytes apart; NULL: they are made of the values. */
struct search_source {
    enum tp_dtype dtype;
    const uint8_t *values;
    uint64_t stride;
    const uint8_t *root;
    uint64_t root_stride;
};

/* A sum: of weighted squares high * 2^16 + low, below 2^47; of others high alone, below 2^31. */
struct search_sum {
    vu high, low;
};

V vu w_both(vu a) { return v_or(a, v_sll(a, 16)); }
V vu w_apart(vu a, vu b) { return w_abs(w_sub(a, b)); }

/* Four lanes' worth of 16 bytes of every block: x[i] has the i-th 32 bits of each. */
V void search_words(const uint8_t *p, uint64_t stride, vu x[4])
{
    UNROLL
    for (unsigned i = 0; i < 4; i++)
        x[i] = v_load_lanes(p + i * stride, 4 * stride);
    transpose_words(x);
}

/* Words as floats; finite ones only. */
V vf search_f16(vu high)
{
    vu magnitude = v_srl(v_and(high, v_set(0x7FFF0000u)), 3);
    vu bits = v_or(magnitude, v_and(high, v_set(0x80000000u)));
    return f_mul(v_floats(bits), f_set(0x1p112f));
}

/* Eight values of every block from place i on. */
V void search_load8(const struct search_source *from, unsigned i, vf x[8])
{
    const uint8_t *p = from->values + i * value_bytes(from->dtype);
    vu r[4];
    for (unsigned j = 0; j < 8 && from->dtype == TP_F32; j += 4) {
        search_words(p + 4 * j, from->stride, r);
        for (unsigned w = 0; w < 4; w++)
            x[j + w] = v_floats(r[w]);
    }
    if (from->dtype == TP_F32)
        return;
    search_words(p, from->stride, r);
    UNROLL
    for (unsigned w = 0; w < 4; w++) {
        vu even = v_sll(r[w], 16), odd = v_and(r[w], v_set(0xFFFF0000u));
        x[2 * w] = from->dtype == TP_BF16 ? v_floats(even) : search_f16(even);
        x[2 * w + 1] = from->dtype == TP_BF16 ? v_floats(odd) : search_f16(odd);
    }
}

/* 2^(11-e) for magnitudes of exponent e, as bits. */
V vu search_unit(vu amax)
{
    return v_sub(v_set(265u << 23), v_and(amax, v_set(0x7F800000u)));
}

/* All bits of the lanes where a is above b. */
V vu v_above(vu a, vu b) { return v_pick(a, b, v_set(0xFFFFFFFFu), v_set(0)); }

/* All bits of the lanes that are searched at all: tp_search_live(). */
V vu search_live(vu amax)
{
    return v_and(v_above(amax, v_set(TP_SEARCH_MIN - 1)),
                 v_above(v_set(TP_F32_INF_BITS), amax));
}

/* The sign bit of the lanes whose largest positive value exceeds the largest negative; of
 * values that are loaded, and of others. */
V void search_extremes(vu max[2], const vf *x, unsigned count)
{
    for (unsigned j = 0; j < count; j++) {
        max[0] = v_max(max[0], v_bits(x[j]));
        max[1] = v_max(max[1], v_sub(v_bits(x[j]), v_set(0x80000000u)));
    }
}

V vu search_flips(const struct search_source *from, unsigned size)
{
    vu max[2] = {v_set(0), v_set(0)};
    for (unsigned i = 0; i < size; i += 8) {
        vf x[8];
        search_load8(from, i, x);
        search_extremes(max, x, 8);
    }
    return v_and(v_above(max[0], max[1]), v_set(0x80000000u));
}

V vu search_pair(vf even, vf odd) { return w_low(v_rint(even), v_rint(odd)); }

/* Values times a factor: their unit's, times what else they are multiplied with before. It is
 * a power of two, so that it makes no difference which product is rounded. Its sign negates. */
V void search_take(struct search_ints *ints, const struct search_source *from, vf factor)
{
    for (unsigned i = 0; i < ints->size; i += 8) {
        vf x[8];
        search_load8(from, i, x);
        UNROLL
        for (unsigned j = 0; j < 8; j += 2)
            ints->x[(i + j) / 2] = search_pair(f_mul(x[j], factor), f_mul(x[j + 1], factor));
    }
}

/* tp_search_root() of weights over the largest. */
V vu search_root(vu w, vf max)
{
    vu r = v_rint(f_mul(f_set((float)TP_SEARCH_MAX_ROOT), f_sqrt(f_div(f_of_ints(w), max))));
    return v_max(r, v_set(1));
}

/* The least fp32 numbers of which the root is 2, 3 .. 15; and two that no quotient reaches. */
static const uint32_t root_min[16] = {
    0x3C23D70A, 0x3CE38E3C, 0x3D5F0123, 0x3DB851EE, 0x3E09ABCE, 0x3E4048D3, 0x3E800000, 0x3EA468AE,
    0x3ECD5E6E, 0x3EFAE149, 0x3F16789A, 0x3F31C71D, 0x3F4F5C28, 0x3F6F37C3, 0x40000000, 0x40000000,
};

/* Thresholds: from which magnitudes on the root is 2, 3 .. 15. Those that every magnitude
 * reaches are not among them, but in `base`. */
struct search_levels {
    unsigned count;
    vu base, below[TP_SEARCH_MAX_ROOT]; /* words: the root is more above `below` */
};

/* Let q be root_least of k. A magnitude u has k or more when the
 * quotient of u^2 + mean by the largest weight, m, is not less than q. The least such u is about
 * sqrt(m q - mean), whose square is wrong by 4 at most, as the weights are below 2^26: so from
 * 5 on it is that number, rounded, or the next. False: one of them is too small to tell. */
V bool search_levels_of(struct search_levels *levels, vu mean, vf max)
{
    const vf zero = f_set(0.0f), mean_float = f_of_ints(mean);
    levels->count = 0;
    levels->base = w_set(1);
    for (unsigned k = 0; k < TP_SEARCH_MAX_ROOT - 1; k++) {
        vf square = f_sub(f_mul(max, v_floats(v_set(root_min[k]))), mean_float);
        vu u = v_rint(f_sqrt(f_max(square, zero))), q, near;
        near = v_and(v_above(v_set(5), u), v_above(v_rint(square), v_set((uint32_t)-8)));
        if (v_any_gt(v_set(0), near))
            return false;
        q = v_bits(f_div(f_of_ints(v_add(w_dot(u, u), mean)), max));
        u = v_pick(v_set(root_min[k]), q, u, v_sub(u, v_set(1)));
        if (v_any_gt(u, v_set(0xFFFFFFFFu)))
            levels->below[levels->count++] = w_both(v_and(u, v_set(0xFFFF)));
        else
            levels->base = w_add(levels->base, w_set(1));
    }
    return true;
}

V void search_roots_by_levels(struct search_ints *ints, const struct search_levels *levels)
{
    for (unsigned i = 0; i < ints->size / 2; i += 4) {
        vu u[4], root[4];
        UNROLL
        for (unsigned j = 0; j < 4; j++) {
            u[j] = w_abs(ints->x[i + j]);
            root[j] = levels->base;
        }
        for (unsigned k = 0; k < levels->count; k++) {
            const vu below = levels->below[k];
            UNROLL
            for (unsigned j = 0; j < 4; j++)
                root[j] = w_count(root[j], u[j], below);
        }
        UNROLL
        for (unsigned j = 0; j < 4; j++)
            ints->root[i + j] = root[j];
    }
}

/* A division and a root for each value. */
V void search_roots_of_quotients(vu *root, const vu *x, unsigned pairs, vu mean, vf max)
{
    for (unsigned i = 0; i < pairs; i++) {
        vu u = w_abs(x[i]), even = v_and(u, v_set(0xFFFF)), odd = v_srl(u, 16);
        even = search_root(v_add(w_dot(even, even), mean), max);
        odd = search_root(v_add(w_dot(odd, odd), mean), max);
        root[i] = v_or(even, v_sll(odd, 16));
    }
}

/* The sum of the squares of each lane's values, 2^31 at most, and their largest magnitude. */
V void search_squares(const struct search_ints *ints, vu *sum, vu *big)
{
    vu both = v_set(0);
    *sum = v_set(0);
    for (unsigned i = 0; i < ints->size / 2; i++) {
        *sum = v_add(*sum, w_dot(ints->x[i], ints->x[i]));
        both = w_max_signed(both, w_abs(ints->x[i]));
    }
    *big = v_max(v_srl(both, 16), v_and(both, v_set(0xFFFF)));
}

/* Roots of w = x^2 + mean x^2, with the largest magnitude of a block. Levels pay for many
 * values. */
V void search_roots_about(struct search_ints *ints, vu mean, vu big)
{
    const vf max = f_of_ints(v_max(v_add(w_dot(big, big), mean), v_set(1)));
    struct search_levels levels;
    if (ints->size >= 64 && search_levels_of(&levels, mean, max))
        search_roots_by_levels(ints, &levels);
    else
        search_roots_of_quotients(ints->root, ints->x, ints->size / 2, mean, max);
}

/* Importance "magnitude" of blocks of 16, 32, 64 or 128 values. */
V void search_roots_of_magnitude(struct search_ints *ints)
{
    vu sum, big;
    search_squares(ints, &sum, &big);
    search_roots_about(ints,
                       v_srl(sum, ints->size == 16 ? 4 : ints->size == 32 ? 5
                                                     : ints->size == 64 ? 6 : 7),
                       big);
}

V void search_roots_of_file(struct search_ints *ints, const struct search_source *from)
{
    for (unsigned i = 0; i < ints->size / 2; i += 4)
        search_words(from->root + 4 * i, from->root_stride, ints->root + i);
}

V void search_roots(struct search_ints *ints, const struct search_source *from)
{
    if (from->root == NULL)
        search_roots_of_magnitude(ints);
    else
        search_roots_of_file(ints, from);
}

/* Whether the errors of this operation are weighted. */
V bool search_weighted(const struct tp_op *op, const struct tp_args *args)
{
    return op->importance == TP_IMPORTANCE_MAGNITUDE ||
           (op->importance == TP_IMPORTANCE_FILE && args->importance != NULL);
}

/* ---- sums ---------------------------------------------------------------- */

/* A sum in the making: parts of 32 bits each go to their sum modulo 2^32 and to the sum of
 * their high halves, which together tell the sum of the low halves. */
struct search_total {
    vu sum, high;
};

/* Without weights sums stay below 2^31: 128 times 2184^2. */
V void search_add(struct search_total *t, vu part, bool weighted)
{
    t->sum = v_add(t->sum, part);
    if (weighted)
        t->high = v_add(t->high, v_srl(part, 16));
}

V struct search_sum search_end(const struct search_total *t, bool weighted)
{
    vu low;
    if (!weighted)
        return (struct search_sum){t->sum, v_set(0)};
    low = v_sub(t->sum, v_sll(t->high, 16));
    return (struct search_sum){v_add(t->high, v_srl(low, 16)), v_and(low, v_set(0xFFFF))};
}

/* The best so far: which candidate, and its error. */
struct search_best {
    struct search_sum min;
    vu choice;
};

V struct search_best search_begin(vu choice)
{
    const struct search_sum max = {v_set(0x7FFFFFFFu), v_set(0)};
    return (struct search_best){max, choice};
}

/* Keeps a candidate where its error is less. Without weights the low half decides nothing:
 * high is the whole sum. */
V void search_offer(struct search_best *best, struct search_sum sum, bool weighted, vu choice)
{
    const vu high = best->min.high, low = best->min.low, none = v_set(0);
    vu less;
    if (!weighted) {
        best->choice = v_pick(high, sum.high, choice, best->choice);
        best->min.high = v_min(high, sum.high);
        return;
    }
    less = v_pick(high, sum.high, v_set(0xFFFFFFFFu),
                  v_pick(sum.high, high, none, v_above(low, sum.low)));
    best->min.high = v_pick(none, less, sum.high, high);
    best->min.low = v_pick(none, less, sum.low, low);
    best->choice = v_pick(none, less, choice, best->choice);
}

/* ---- roots of a file ------------------------------------------------------ */

/* One word for each of `k` columns, in blocks of `size`, which divides them. */
NOINLINE void search_file_roots(const float *importance, uint64_t k, uint64_t size, uint16_t *root)
{
    for (uint64_t at = 0; at < k; at += size) {
        float max = tp_bits_f32(tp_amax_bits(importance + at, size));
        bool any = max >= tp_bits_f32(TP_SEARCH_MIN);
        for (uint64_t i = 0; i < size; i++)
            root[at + i] = (uint16_t)(any ? tp_search_root(importance[at + i] / max) : 1);
    }
}

/* The roots of expert e's columns, in the last part of the scratch; NULL: not from a file. */
NOINLINE const uint8_t *search_expert_roots(const struct tp_op *op, const struct tp_args *args,
                                            uint64_t e)
{
    const struct tp_box3 box = args->box;
    uint8_t *end = (uint8_t *)args->scratch + tp_encode_scratch(op, box);
    uint16_t *root = (uint16_t *)((uintptr_t)(end - tp_search_scratch(op, box) + 7) / 8 * 8);
    if (op->importance != TP_IMPORTANCE_FILE || args->importance == NULL)
        return NULL;
    search_file_roots(args->importance + e * box.k, box.k, op->block_k ? op->block_k : box.k, root);
    return (const uint8_t *)root;
}

/* One block as the reference searches it, its values from `first` on, column k. */
NOINLINE void search_slow(const struct tp_op *op, struct tp_args *args, uint64_t first,
                          uint8_t *codes, uint32_t *scale)
{
    const struct tp_box3 box = args->box;
    float values[128];
    int32_t scratch[2 * 128];
    const uint64_t e = first / (box.n * box.k), k = first % box.k;
    for (uint64_t i = 0; i < op->block_k; i++)
        values[i] = tp_load_value(args->in[0], args->dtype, first + i);
    if (tp_search_block(op, values, op->block_k, args->global,
                        args->importance ? args->importance + e * box.k + k : NULL, scratch,
                        codes, scale))
        args->flags |= TP_SAW_NONFINITE;
}

#endif
