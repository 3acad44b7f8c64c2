/* How far values are from the nearest multiples of a scale that e2m1 has, 0 1 2 3 4 6 8 and 12
 * of its half steps: sums over blocks, for the searches of cpu_search_fp4.h.
 */
#ifndef TP_KERNELS_CPU_SEARCH_E2M1_H
#define TP_KERNELS_CPU_SEARCH_E2M1_H

#include "kernels/cpu/cpu_search.h"
#include "kernels/cpu/cpu_words.h"

#ifdef HAVE_W_TABLE64
struct e2m1_steps {
    vu step, reciprocal, nearest[2];
    bool few; /* no value has 32 half steps, so that half the table will do */
};

V struct e2m1_steps e2m1_steps_of(vu step)
{
    static const uint16_t nearest[64] = {
        0,  1,  1,  2,  2,  3,  3,  4,  4,  4,  6,  6,  6,  6,  8,  8,  8,  8,  8,  8,  12, 12,
        12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12,
        12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12,
    };
    vu m = v_rint(f_div(f_set(0x1p23f), f_of_ints(step)));
    return (struct e2m1_steps){w_both(step), w_both(v_and(m, v_set(0xFFFF))),
                               {v_load(nearest), v_load(nearest + 32)}, false};
}

/* tp_search_nvfp4_step() of a normal scale t, at least SEARCH_MIN_STEP and at most
 * SEARCH_MAX_STEP: one of 8 .. 15 times 16, 32 or 64, and 1024. */
V struct e2m1_steps e2m1_steps_numbered(vu number)
{
    static const uint16_t step[32] = {
        128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416, 448, 480, 512, 576,
        640, 704, 768, 832, 896, 960, 1024,
    };
    static const uint16_t reciprocal[32] = {
        0, 58254, 52429, 47663, 43691, 40330, 37449, 34953, 32768, 29127, 26214, 23831, 21845,
        20165, 18725, 17476, 16384, 14564, 13107, 11916, 10923, 10082, 9362, 8738, 8192,
    };
    struct e2m1_steps s = e2m1_steps_of(v_set(256));
    s.step = w_lookup32(v_load(step), number);
    s.reciprocal = w_lookup32(v_load(reciprocal), number);
    s.few = true;
    return s;
}

V struct e2m1_steps e2m1_steps_normal(vu t, vu unit)
{
    return e2m1_steps_numbered(w_both(v_sub(v_add(t, v_srl(unit, 20)), v_set(1136))));
}

/* From each of two magnitudes to the nearest of 0 1 2 3 4 6 8 12 steps, or less that; a table
 * tells it by how many half steps x has. Let m be 2^23 / s, wrong by 1/2 at most, and 2 x = k s +
 * r, 0 <= r < s. Then 2 x m is k 2^23 + r m, wrong by k s / 2 <= x <= 4096. So its quotient by
 * 2^23 is k, because 4096 + s / 2 < m; or k - 1 where r = 0, and then x has equal
 * distances to what the table has for k - 1 and for k. */
V vu e2m1_distance(vu x, const struct e2m1_steps *s)
{
    vu at = w_srl(w_mul_high(x, s->reciprocal), 6);
    at = s->few ? w_lookup32(s->nearest[0], at) : w_lookup64(s->nearest, at);
    return w_sub(x, w_mul(s->step, at));
}
#else
struct e2m1_steps {
    vu one, two, six, twelve;
};

V struct e2m1_steps e2m1_steps_of(vu step)
{
    const vu s = w_both(step), s2 = w_add(s, s), s6 = w_add(w_add(s2, s2), s2);
    return (struct e2m1_steps){s, s2, s6, w_add(s6, s6)};
}

/* tp_search_nvfp4_step() of a normal scale. */
V struct e2m1_steps e2m1_steps_normal(vu t, vu unit)
{
    return e2m1_steps_of(v_rint(v_floats(v_add(v_sll(t, 20), v_sub(unit, v_set(8u << 23))))));
}

/* From each of two magnitudes to the nearest of 0 1 2 3 4 6 8 12 steps. */
V vu e2m1_distance(vu x, const struct e2m1_steps *s)
{
    vu two = w_apart(x, s->two), one = w_apart(two, s->one), six = w_apart(x, s->six);
    vu low = w_min(one, w_apart(one, s->one)), high = w_min(six, w_apart(six, s->two));
    return w_min(w_min(low, high), w_apart(x, s->twelve));
}
#endif

/* The squares of distances of pair i. */
V vu e2m1_squares(const struct search_ints *ints, bool weighted, unsigned i,
                  const struct e2m1_steps *steps)
{
    vu d = e2m1_distance(ints->x[i], steps);
    if (weighted)
        d = w_mul(d, ints->root[i]);
    return w_dot(d, d);
}

V struct search_sum e2m1_error(const struct search_ints *ints, bool weighted,
                               struct e2m1_steps steps)
{
    struct search_total total = {v_set(0), v_set(0)};
    for (unsigned i = 0; i < ints->size / 2; i += 2) {
        vu part = v_add(e2m1_squares(ints, weighted, i, &steps),
                        e2m1_squares(ints, weighted, i + 1, &steps));
        search_add(&total, part, weighted);
    }
    return search_end(&total, weighted);
}

#ifdef HAVE_B_E2M1
/* The same sums without weights, less the sum of x^2, which no step changes, and times 4: of
 * 2 v s (2 v s - 4 x) over values, where v is what the table has. They are not above 0, as v = 0
 * is in the table, and not below -2^30 for blocks of 16. Magnitudes, 4 x = 256 high + low, are
 * taken apart into bytes with a sign: those of two registers in turns, so that a lane keeps to
 * one block. Their products with v come second because processors take that from memory. */
struct e2m1_bytes {
    unsigned pairs;
    vu four[SEARCH_PAIRS / 4]; /* words: 4 x */
    vu high[SEARCH_PAIRS / 8], low[SEARCH_PAIRS / 8];
};

/* Words: a step twice, and the reciprocal of one times 2^23. */
struct e2m1_step {
    vu twice, reciprocal;
};

V struct e2m1_step e2m1_step_of(vu step)
{
    vu m = v_rint(f_div(f_set(0x1p23f), f_of_ints(step)));
    return (struct e2m1_step){w_both(v_add(step, step)), w_both(v_and(m, v_set(0xFFFF)))};
}

/* Normal scales have numbers that grow with them by E2M1_NUMBER, from 1 for a step of 9 times 16
 * to 24 for 8 times 128. */
enum { E2M1_LAST = 24 };
#ifdef HAVE_W_TABLE64
#define E2M1_NUMBER 0x10001u /* both words */

V vu e2m1_number(vu n) { return v_mul(n, v_set(E2M1_NUMBER)); }

V struct e2m1_step e2m1_step_normal(vu number)
{
    const struct e2m1_steps s = e2m1_steps_numbered(number);
    return (struct e2m1_step){w_add(s.step, s.step), s.reciprocal};
}
#else
#define E2M1_NUMBER 0x02020202u /* where a word is, in a table of eight, for both */

V vu e2m1_number(vu n)
{
    return v_add(v_mul(v_sub(n, v_set(1)), v_set(E2M1_NUMBER)), v_set(0x01000100));
}

/* At least 144 and at most 1024: 9 .. 16 times 16, 32 or 64. Reciprocals of the first are rounded
 * down to multiples of 4, so that both words can be shifted at once: less than 4 is missing,
 * or 2 or 1 of the others. So 2 x m, of e2m1_distance(), is wrong by less than 32768, 16384 or
 * 8192, and that is below m. */
V struct e2m1_step e2m1_step_normal(vu number)
{
    static const uint16_t reciprocal[8] = {58252, 52428, 47660, 43688, 40328, 37448, 34952, 32768};
    static const uint16_t twice[8] = {0x120, 0x140, 0x160, 0x180, 0x1A0, 0x1C0, 0x1E0, 0x200};
    const vu power = v_srl(number, 28);
    return (struct e2m1_step){
        v_sll_by(b_lookup(b_table((const uint8_t *)twice), number), power),
        v_srl_by(b_lookup(b_table((const uint8_t *)reciprocal), number), power)};
}
#endif

/* The high bytes of the words of both, those of `even` in even places. */
V vu b_high(vu even, vu odd) { return v_or_and(w_srl(even, 8), odd, v_set(0xFF00FF00)); }

V struct e2m1_bytes e2m1_bytes_of(const struct search_ints *ints)
{
    struct e2m1_bytes x;
    x.pairs = ints->size / 2;
    UNROLL
    for (unsigned i = 0; i < ints->size / 2; i += 2) {
        vu a = w_sll(ints->x[i], 2), b = w_sll(ints->x[i + 1], 2);
        x.four[i] = a;
        x.four[i + 1] = b;
        x.high[i / 2] = b_high(w_add(a, w_set(128)), w_add(b, w_set(128)));
        x.low[i / 2] = v_or_and(w_sll(b, 8), a, v_set(0x00FF00FF));
    }
    return x;
}

/* The numbers of half steps, k of e2m1_distance(), of two registers: high bytes of products. */
V vu e2m1_halves(const struct e2m1_bytes *x, unsigned i, struct e2m1_step s)
{
    vu a = w_mul_high(x->four[i], s.reciprocal), b = w_mul_high(x->four[i + 1], s.reciprocal);
    return b_high(a, b);
}

/* Sums of v times the bytes of x, and of v^2. */
struct e2m1_sums {
    vu high, low, squares;
};

V struct e2m1_sums e2m1_begin(void) { return (struct e2m1_sums){v_set(0), v_set(0), v_set(0)}; }

V void e2m1_add(struct e2m1_sums *sums, const struct e2m1_bytes *x, unsigned i, vu v)
{
    vu high = b_dot(sums->high, v, x->high[i / 2]);
    vu low = b_dot(sums->low, v, x->low[i / 2]);
    vu squares = b_dot(sums->squares, v, v);
    /* One after the other: a tree of sums, which compilers make, leaves no registers. */
    __asm__("" : "+v"(high), "+v"(low), "+v"(squares));
    *sums = (struct e2m1_sums){high, low, squares};
}

V vu e2m1_end(const struct e2m1_sums *sums, vu twice)
{
    vu product = v_add(b_dot_lanes(sums->low, 0), b_dot_lanes(sums->high, 8));
    vu sum = v_sub(w_dot(sums->squares, twice), product);
    return v_mul(sum, v_and(twice, v_set(0xFFFF)));
}

V vu e2m1_relative(const struct e2m1_bytes *x, struct e2m1_step s)
{
    struct e2m1_sums sums = e2m1_begin();
    UNROLL
    for (unsigned i = 0; i < x->pairs; i += 2)
        e2m1_add(&sums, x, i, b_e2m1(e2m1_halves(x, i, s)));
    return e2m1_end(&sums, s.twice);
}

/* Of steps of which no value has 32 halves, and of twice these, `other`. A value of k halves
 * of a step, or less by one, has k / 2 of the other, with the same error. */
V vu e2m1_relative_both(const struct e2m1_bytes *x, struct e2m1_step s, vu *other)
{
    struct e2m1_sums once = e2m1_begin(), twice = once;
    UNROLL
    for (unsigned i = 0; i < x->pairs; i += 2) {
        vu k = e2m1_halves(x, i, s);
        e2m1_add(&once, x, i, b_e2m1(k));
        e2m1_add(&twice, x, i, b_e2m1_of_twice(k));
    }
    *other = e2m1_end(&twice, w_add(s.twice, s.twice));
    return e2m1_end(&once, s.twice);
}
#endif

#endif
