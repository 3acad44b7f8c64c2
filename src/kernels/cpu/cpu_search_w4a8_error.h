/* The errors of one group of 128 values with the four candidates of one channel scale of the
 * W4A8 search: with usual scales by tables of their multiples, else by comparing with each.
 * Does not know which candidates there are, nor where groups lie: that is
 * cpu_search_w4a8_strip.h's.
 *
 * A usual scale is 8 .. 15 times 16, 32, 64 or 128 in the values' units, which is its step; and no
 * magnitude is above 13 times the least candidate.
 */
#ifndef TP_KERNELS_CPU_SEARCH_W4A8_ERROR_H
#define TP_KERNELS_CPU_SEARCH_W4A8_ERROR_H

#include "kernels/cpu/cpu_run.h"
#include "kernels/cpu/cpu_search.h"
#include "kernels/cpu/cpu_search_group.h"
#include "kernels/cpu/cpu_words.h"

enum { W4A8_STEPS = 32, W4A8_MAX = 0x7FF800 }; /* the mantissa of 4095.5, a tie */

/* The multiples of a usual scale as the kernel rounds them. A magnitude's code grows in the
 * middle between two of them, which are 128 or more from each other. */
struct w4a8_multiples {
    uint8_t at[16], first[16], second[16]; /* see search_growth */
    uint8_t high[16], low[16];             /* of T_0 .. T_8 */
};

/* Nine values between 0 and the last, T_8. */
struct w4a8_values {
    vu of[9];
};

#ifdef HAVE_W_TABLE64
/* What is one number for each channel scale, in lanes 0 .. 3: see cpu_search_w4a8_four.h. */
struct w4a8_four {
    struct search_fours of;
    _Alignas(64) uint32_t per_place[VL], step[VL]; /* of roots; the largest candidate's */
    vu t, shift; /* the largest candidate; what the exponent is below the row's largest */
    bool usual; /* roots are these functions */
    vu roots[TP_SEARCH_TOPS];
};
#endif

/* Group g of row l, and its values in units of the channel scales. */
struct w4a8_group {
    uint64_t g;
    unsigned l;
    uint32_t flip; /* the sign bit, or 0 */
    struct search_group values;
    vu last[GROUP_BYTES]; /* the last code that a value's sign allows, 7 or 8 */
    vu x[TP_SEARCH_TOPS][GROUP_WORDS], root[TP_SEARCH_TOPS][GROUP_WORDS];
#ifdef HAVE_W_TABLE64
    struct w4a8_four four;
    struct search_magnitudes magnitudes[1]; /* for codes only */
#else
    struct search_magnitudes magnitudes[TP_SEARCH_TOPS];
    /* Of importance "magnitude": the largest integer, the sum of squares, and where it is usual,
     * the roots as a function. */
    uint32_t squares[TP_SEARCH_TOPS], largest[TP_SEARCH_TOPS];
    bool usual[TP_SEARCH_TOPS];
    struct search_roots roots[TP_SEARCH_TOPS];
#endif
};

/* The candidates of one group with one channel scale. Those below the least one are the least
 * one again, which does not win a second time. */
struct w4a8_range {
    uint8_t t, min;
    uint32_t unit, largest; /* the largest magnitude as integer */
};

V unsigned w4a8_candidate(const struct w4a8_range *range, unsigned c)
{
    return range->t >= range->min + c ? range->t - c : range->min;
}

V unsigned w4a8_step(const struct w4a8_range *range, unsigned t)
{
    return t + (range->unit >> 20) - 1128;
}

/* How errors are summed up: without weights, with, and with where lanes stay below 2^32. */
enum w4a8_sum { W4A8_PLAIN, W4A8_WEIGHTED, W4A8_NARROW };

V void w4a8_add(struct search_total *total, const vu *root, enum w4a8_sum how, vu a, vu b)
{
    if (how != W4A8_PLAIN) {
        a = w_mul(a, root[0]);
        b = w_mul(b, root[1]);
    }
    search_add(total, v_add(w_dot(a, a), w_dot(b, b)), how == W4A8_WEIGHTED);
}

/* The multiples for the scale of a step. */
static void w4a8_multiples_of(struct w4a8_multiples *of, unsigned step)
{
    int32_t multiple[9], middle[10];
    for (int m = 0; m <= 8; m++) {
        multiple[m] = tp_search_w4a8_multiple((uint8_t)(step + 8), m, -2);
        of->low[m] = (uint8_t)multiple[m];
        of->high[m] = (uint8_t)(multiple[m] >> 8);
    }
    for (int m = 0; m < 10; m++)
        middle[m] = m < 8 ? (multiple[m] + multiple[m + 1]) / 2 : INT32_MAX;
    for (int i = 0, m = 0; i < 16; i++) {
        while (middle[m] < 256 * i)
            m++;
        of->at[i] = (uint8_t)m;
        of->first[i] = (uint8_t)(middle[m] >> 8 == i ? (middle[m] & 255) - 128 : 127);
        of->second[i] = (uint8_t)(middle[m + 1] >> 8 == i ? (middle[m + 1] & 255) - 128 : 127);
    }
}

V vu w4a8_grown(const struct w4a8_multiples *of, const vu last[GROUP_BYTES],
                const struct search_magnitudes *m, unsigned i)
{
    const struct search_growth f = {b_table(of->at), b_table(of->first), b_table(of->second)};
    return b_min(group_grown(&f, m, i), last[i]);
}

/* ---- usual scales --------------------------------------------------------- */

#ifdef HAVE_W_TABLE64

/* By the place of a signed value, places being as wide as the least distance between two middles
 * or less, so that none has two of them: the value is as far from the nearest multiple as its
 * distance from `middle` is from `half`. */
struct w4a8_places {
    _Alignas(64) int16_t middle[32], half[32];
};

/* Tables of the four candidates from a least one upwards; places are the high word of a value times
 * `factor`, -16 .. 15 modulo 32. */
struct w4a8_tables {
    struct w4a8_places candidate[TP_SEARCH_GROUPS];
    uint16_t factor; /* 0: not made yet */
};

/* The multiples of codes -8 .. 7. */
static void w4a8_signed_multiples(int32_t of[16], unsigned step)
{
    for (int q = -8; q < 8; q++) {
        int32_t t = tp_search_w4a8_multiple((uint8_t)(step + 8), q < 0 ? -q : q, -2);
        of[q + 8] = q < 0 ? -t : t;
    }
}

/* So that a place is not wider than what is between two middles. */
static uint16_t w4a8_factor(unsigned min)
{
    int32_t distance = INT32_MAX, of[16];
    for (unsigned c = 0; c < TP_SEARCH_GROUPS && min + c < W4A8_STEPS; c++) {
        w4a8_signed_multiples(of, min + c);
        for (int q = 0; q < 14; q++)
            if ((of[q + 2] - of[q]) / 2 < distance)
                distance = (of[q + 2] - of[q]) / 2;
    }
    return (uint16_t)((65536 + distance - 1) / distance);
}

/* The first value of a place. */
static int32_t w4a8_first(int32_t place, int32_t factor)
{
    return (65536 * place + (place > 0 ? factor - 1 : 0)) / factor;
}

static void w4a8_places_of(struct w4a8_places *places, unsigned step, int32_t factor)
{
    int32_t of[16];
    w4a8_signed_multiples(of, step);
    for (int32_t i = -16, q = 0; i < 16; i++) {
        const int32_t first = w4a8_first(i, factor), end = w4a8_first(i + 1, factor);
        while (q < 15 && of[q] + of[q + 1] <= 2 * first)
            q++;
        places->middle[i & 31] = (int16_t)of[q];
        places->half[i & 31] = 0;
        if (q < 15 && of[q] + of[q + 1] < 2 * (end - 1)) {
            places->middle[i & 31] = (int16_t)((of[q] + of[q + 1]) / 2);
            places->half[i & 31] = (int16_t)((of[q + 1] - of[q]) / 2);
        }
    }
}

static __attribute__((noinline)) void w4a8_make_tables(struct w4a8_tables *tables, unsigned min)
{
    tables->factor = w4a8_factor(min);
    for (unsigned c = 0; c < TP_SEARCH_GROUPS && min + c < W4A8_STEPS; c++)
        w4a8_places_of(&tables->candidate[c], min + c, tables->factor);
}

V const struct w4a8_tables *w4a8_tables_at(struct w4a8_tables *all, unsigned min)
{
    if (all[min].factor == 0)
        w4a8_make_tables(&all[min], min);
    return &all[min];
}

/* The sums of a lane, 2^31 - 1 at most. */
V vu w4a8_error_four(const vu x[GROUP_WORDS], const vu place[GROUP_WORDS],
                     const vu root[GROUP_WORDS], bool weighted, const struct w4a8_places *places)
{
    const vu middle = v_load(places->middle), half = v_load(places->half);
    vu sum = v_set(0);
    UNROLL
    for (unsigned i = 0; i < GROUP_WORDS; i++) {
        vu d = w_abs(w_sub(x[i], w_lookup32(middle, place[i])));
        d = w_sub(d, w_lookup32(half, place[i]));
        if (weighted)
            d = w_mul(d, root[i]);
        sum = w_dot_max(sum, d, d);
    }
    return sum;
}

V struct search_total w4a8_error_usual(const vu x[GROUP_WORDS], const vu place[GROUP_WORDS],
                                       const vu root[GROUP_WORDS], enum w4a8_sum how,
                                       const struct w4a8_places *places)
{
    const vu middle = v_load(places->middle), half = v_load(places->half);
    struct search_total total = {v_set(0), v_set(0)};
    UNROLL
    for (unsigned i = 0; i < GROUP_WORDS; i++) {
        vu d = w_abs(w_sub(x[i], w_lookup32(middle, place[i])));
        d = w_sub(d, w_lookup32(half, place[i]));
        if (how != W4A8_PLAIN)
            d = w_mul(d, root[i]);
        if (how == W4A8_WEIGHTED)
            search_add(&total, w_dot(d, d), true);
        else
            total.sum = w_dot_more(total.sum, d, d);
    }
    return total;
}

V void w4a8_totals_usual(struct w4a8_tables *all, const struct w4a8_group *group,
                         enum w4a8_sum how, unsigned r, const struct w4a8_range *range,
                         struct search_total total[TP_SEARCH_GROUPS])
{
    const unsigned min = w4a8_step(range, range->min);
    const struct w4a8_tables *tables = w4a8_tables_at(all, min);
    const vu factor = w_set(tables->factor);
    vu place[GROUP_WORDS];
    UNROLL
    for (unsigned i = 0; i < GROUP_WORDS; i++)
        place[i] = w_mul_high_signed(group->x[r][i], factor);
    UNROLL
    for (unsigned c = 0; c < TP_SEARCH_GROUPS; c++)
        total[c] = w4a8_error_usual(group->x[r], place, group->root[r], how,
                                    &tables->candidate[w4a8_candidate(range, c) - range->min]);
}

#else

/* By codes: the distance is taken to the code's multiple. */
V struct search_total w4a8_error_usual(const struct w4a8_group *group, enum w4a8_sum how,
                                       unsigned r, const struct w4a8_multiples *of)
{
    const vu low = b_table(of->low), high = b_table(of->high);
    const struct search_magnitudes *m = &group->magnitudes[r];
    struct search_total total = {v_set(0), v_set(0)};
    UNROLL
    for (unsigned i = 0; i < GROUP_BYTES; i++) {
        vu code = w4a8_grown(of, group->last, m, i);
        vu of_low = b_lookup(low, code), of_high = b_lookup(high, code);
        w4a8_add(&total, group->root[r] + 2 * i, how,
                 w_sub(m->u[2 * i], b_unpack_lo(of_low, of_high)),
                 w_sub(m->u[2 * i + 1], b_unpack_hi(of_low, of_high)));
    }
    return total;
}

V void w4a8_totals_usual(struct w4a8_multiples *multiples, const struct w4a8_group *group,
                         enum w4a8_sum how, unsigned r, const struct w4a8_range *range,
                         struct search_total total[TP_SEARCH_GROUPS])
{
    UNROLL
    for (unsigned c = 0; c < TP_SEARCH_GROUPS; c++)
        total[c] = w4a8_error_usual(group, how, r,
                                    &multiples[w4a8_step(range, w4a8_candidate(range, c))]);
}

#endif

/* ---- any scale ------------------------------------------------------------ */

V struct w4a8_values w4a8_values_of(vu t, vu unit)
{
    struct w4a8_values v;
    v.of[0] = v_set(0);
    for (int m = 1; m <= 8; m++) {
        vf product = f_of_e4m3(v_e4m3(f_mul(f_of_e4m3(t), f_set((float)m))));
        v.of[m] = v_rint(f_mul(product, v_floats(unit)));
    }
    return v;
}

/* Distances of two values to the nearest of the eight, or nine, that their sign allows. */
V vu w4a8_apart(vu x, const struct w4a8_values *v)
{
    const vu u = w_abs(x);
    vu d = w_min(u, w_abs(w_add(x, v->of[8])));
    UNROLL
    for (unsigned m = 1; m < 8; m++)
        d = w_min(d, w_apart(u, v->of[m]));
    return d;
}

/* Errors with any scale. */
V struct search_total w4a8_error(const struct w4a8_group *group, enum w4a8_sum how, unsigned r,
                                 struct w4a8_values v)
{
    const vu *x = group->x[r];
    struct search_total total = {v_set(0), v_set(0)};
    for (unsigned m = 1; m <= 8; m++)
        v.of[m] = w_both(v.of[m]);
    for (unsigned i = 0; i < GROUP_WORDS; i += 2)
        w4a8_add(&total, group->root[r] + i, how, w4a8_apart(x[i], &v),
                 w4a8_apart(x[i + 1], &v));
    return total;
}

V void w4a8_totals(const struct w4a8_group *group, enum w4a8_sum how, unsigned r,
                   const struct w4a8_range *range, struct search_total total[TP_SEARCH_GROUPS])
{
    for (unsigned c = 0; c < TP_SEARCH_GROUPS; c++) {
        vu t = v_set(w4a8_candidate(range, c));
        total[c] = w4a8_error(group, how, r, w4a8_values_of(t, v_set(range->unit)));
    }
}

/* ---- the least ------------------------------------------------------------ */

/* The sums of four candidates' errors. */
V void w4a8_sums(const struct search_total total[TP_SEARCH_GROUPS], enum w4a8_sum how,
                 uint64_t error[TP_SEARCH_GROUPS])
{
    uint32_t high[4], low[4];
    vu a[4], b[4];
    UNROLL
    for (unsigned c = 0; c < TP_SEARCH_GROUPS; c++) {
        a[c] = how == W4A8_WEIGHTED ? total[c].high : d_pairs(total[c].sum);
        b[c] = v_sub(total[c].sum, v_sll(a[c], 16));
    }
    if (how != W4A8_WEIGHTED) {
        d_store_sums(error, d_add(d_unpack_lo(a[0], a[1]), d_unpack_hi(a[0], a[1])),
                     d_add(d_unpack_lo(a[2], a[3]), d_unpack_hi(a[2], a[3])));
        return;
    }
    group_sums(a, high);
    group_sums(b, low);
    for (unsigned c = 0; c < TP_SEARCH_GROUPS; c++)
        error[c] = ((uint64_t)high[c] << 16) + low[c];
}

/* The least error times 4, and its number: without branches: they would be mispredicted. Errors are
 * below 2^47. */
V uint64_t w4a8_min(const uint64_t error[TP_SEARCH_GROUPS])
{
    uint64_t min = 4 * error[0];
    UNROLL
    for (unsigned c = 1; c < TP_SEARCH_GROUPS; c++) {
        uint64_t other = 4 * error[c] + c;
        min = other < min ? other : min;
    }
    return min;
}

#endif
