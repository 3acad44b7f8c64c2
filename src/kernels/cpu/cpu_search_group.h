/* The scale search in one group of 128 values at a time, in their order: values as integers with
 * root weights, and functions of their magnitudes by tables that are the group's own.
 * Does not know which scales are tried: that is cpu_search_w4a8_strip.h's.
 *
 * Bytes stand in the order of b_pack_unsigned(), which b_unpack_lo() and b_unpack_hi() undo.
 */
#ifndef TP_KERNELS_CPU_SEARCH_GROUP_H
#define TP_KERNELS_CPU_SEARCH_GROUP_H

#include "kernels/cpu/cpu_search.h"
#include "kernels/cpu/cpu_words.h"

enum { GROUP_WORDS = 256 / VBYTES, GROUP_BYTES = 128 / VBYTES };

/* The values as floats; of 16 bits, those in even and in odd places in turns. */
struct search_group {
    enum tp_dtype dtype;
    vf x[2 * GROUP_WORDS];
};

/* Magnitudes as words; and as bytes, the low ones less 128: not of 4096, which has 16 in the
 * high byte, so that no growth of it is known. */
struct search_magnitudes {
    vu u[GROUP_WORDS], high[GROUP_BYTES], low[GROUP_BYTES];
};

/* A function of magnitudes below 4096 that grows by 1 at most twice in 256 of them. By the high
 * byte: what it is there at first, and the low bytes, less 128, above which it has grown; 127
 * where it does not. */
struct search_growth {
    vu at, first, second;
};

V void group_load(struct search_group *group, enum tp_dtype dtype, const uint8_t *p)
{
    group->dtype = dtype;
    if (dtype == TP_F32) {
        for (unsigned i = 0; i < 2 * GROUP_WORDS; i++)
            group->x[i] = f_load_f32(p + VBYTES * i);
        return;
    }
    UNROLL
    for (unsigned i = 0; i < GROUP_WORDS; i++) {
        vu r = v_load(p + VBYTES * i), even = v_sll(r, 16), odd = v_and(r, v_set(0xFFFF0000u));
        group->x[2 * i] = dtype == TP_BF16 ? v_floats(even) : search_f16(even);
        group->x[2 * i + 1] = dtype == TP_BF16 ? v_floats(odd) : search_f16(odd);
    }
}

/* Whether the largest positive value exceeds the largest negative: tp_search_flips(). */
V bool group_flips(const struct search_group *group)
{
    vu max[2] = {v_set(0), v_set(0)};
    search_extremes(max, group->x, 2 * GROUP_WORDS);
    return (int32_t)v_hmax(max[0]) > (int32_t)v_hmax(max[1]);
}

/* Values times a factor as integers, words in order. */
V void group_take(const struct search_group *group, vf factor, vu x[GROUP_WORDS])
{
    UNROLL
    for (unsigned i = 0; i < GROUP_WORDS; i++) {
        vu a = v_rint(f_mul(group->x[2 * i], factor));
        vu b = v_rint(f_mul(group->x[2 * i + 1], factor));
        x[i] = group->dtype == TP_F32 ? w_of_high(v_sll(a, 16), v_sll(b, 16)) : w_low(a, b);
    }
}

V void group_split(struct search_magnitudes *m, const vu x[GROUP_WORDS])
{
    UNROLL
    for (unsigned i = 0; i < GROUP_BYTES; i++) {
        vu a = w_abs(x[2 * i]), b = w_abs(x[2 * i + 1]);
        m->u[2 * i] = a;
        m->u[2 * i + 1] = b;
        m->high[i] = b_pack_unsigned(w_srl(a, 8), w_srl(b, 8));
        a = b_pack_unsigned(v_and(a, w_set(0xFF)), v_and(b, w_set(0xFF)));
        m->low[i] = v_xor(a, b_set(0x80));
    }
}

V vu group_grown(const struct search_growth *f, const struct search_magnitudes *m, unsigned i)
{
    vu n = b_lookup(f->at, m->high[i]);
    n = b_count(n, m->low[i], b_lookup(f->first, m->high[i]));
    return b_count(n, m->low[i], b_lookup(f->second, m->high[i]));
}

/* The sums of the lanes of four registers. */
V void group_sums(vu x[4], uint32_t sum[4])
{
    transpose_words(x);
    v_store_sums(sum, v_add(v_add(x[0], x[1]), v_add(x[2], x[3])));
}

V vu group_squares(const vu x[GROUP_WORDS])
{
    vu sum = v_set(0);
    UNROLL
    for (unsigned i = 0; i < GROUP_WORDS; i++)
        sum = w_dot_more(sum, x[i], x[i]);
    return sum;
}

/* ---- roots --------------------------------------------------------------- */

#ifdef HAVE_W_TABLE64

/* The four scales that a group is tried with make integers of the same values, in 2048 or more
 * units of their largest: roots of the four differ only where one of them is reached a little
 * before another. So what they have in common is found once.
 *
 * A place is a 32nd of the magnitudes up to the largest, of the same values with all four. Roots
 * grow by 0.51 at most from its first to its last. As a function of magnitudes they are what is to
 * be added to a magnitude, by its place, so that its high byte becomes the root. */

/* Of four scales; lanes from the fourth on mean nothing. */
struct search_fours {
    _Alignas(64) uint32_t largest[VL], mean[VL];
};

/* Of each place the least root, or one less where that is hardly reached: what is between
 * the four scales, and errors, is less than the 0.2 that it is less for. With 0.51 more and as
 * much for rounding the place has that root and the next one, and no other. */
V vu group_roots_of_places(float mean, float largest)
{
    static const float squares[32] = {
        0x0p-10f,   0x1p-10f,   0x4p-10f,   0x9p-10f,   0x10p-10f,  0x19p-10f,  0x24p-10f,
        0x31p-10f,  0x40p-10f,  0x51p-10f,  0x64p-10f,  0x79p-10f,  0x90p-10f,  0xA9p-10f,
        0xC4p-10f,  0xE1p-10f,  0x100p-10f, 0x121p-10f, 0x144p-10f, 0x169p-10f, 0x190p-10f,
        0x1B9p-10f, 0x1E4p-10f, 0x211p-10f, 0x240p-10f, 0x271p-10f, 0x2A4p-10f, 0x2D9p-10f,
        0x310p-10f, 0x349p-10f, 0x384p-10f, 0x3C1p-10f};
    const float max = largest * largest, scale = 225.0f / (max + mean);
    const vf part = f_set(mean * scale), all = f_set(max * scale);
    vu root[2];
    UNROLL
    for (unsigned i = 0; i < 2; i++) {
        vf w = f_mul_add(f_load_f32(squares + i * VL), all, part);
        root[i] = v_rint(f_sub(f_mul(w, f_inverse_root(w)), f_set(0.2f)));
    }
    return w_max_signed(w_of_two(root[0], root[1]), w_set(1));
}

/* Above which magnitudes the root is 2, 3 .. 15, of weights u^2 + mean over the largest, `max`,
 * which is 2^22 at least, as search_levels_of() finds them, but without a division and a square
 * root. *near: the least distance of a square to 6. The square root is wrong by 2^-14 of it, which
 * leaves it one of the same two.
 *
 * Let c be one of root_least and h half of what is between it and the number before. A quotient
 * w / m is rounded to c or more when w - c m + h m > 0: it is never in the middle of two numbers.
 * The difference is rounded once, and not at all near -h m, where it is an integer below 2^24 in
 * units of the last place. */
V vu group_levels_near(uint32_t mean, uint32_t max, vf *near)
{
    static const uint32_t half[16] = {
        0x30000000, 0x30800000, 0x31000000, 0x31800000, 0x32000000, 0x32000000,
        0x32000000, 0x32800000, 0x32800000, 0x32800000, 0x33000000, 0x33000000,
        0x33000000, 0x33000000, 0x33800000, 0x33800000,
    };
    const vf all = f_of_ints(v_set(max)), part = f_of_ints(v_set(mean));
    const vf min = f_load_f32(root_min);
    vf square = f_mul_sub(all, min, part), w, beyond;
    vu u;
    *near = f_min(*near, f_abs(f_sub(square, f_set(6.0f))));
    square = f_max(square, f_set(0x1p-40f));
    u = v_rint(f_mul(square, f_inverse_root(square)));
    w = f_of_ints(v_add(w_dot(u, u), v_set(mean)));
    beyond = f_mul_add(f_load_f32(half), all, f_sub_mul(w, min, all));
    return v_min(v_pick(v_set(0), v_bits(beyond), u, v_sub(u, v_set(1))), v_set(4095));
}

/* False: a level is too small to tell, or 4096 is there. */
V bool group_growth_of_roots(vu add[4], const struct search_fours *of)
{
    static const uint16_t starts[32] = {
        0x0000, 0x0800, 0x1000, 0x1800, 0x2000, 0x2800, 0x3000, 0x3800, 0x4000, 0x4800, 0x5000,
        0x5800, 0x6000, 0x6800, 0x7000, 0x7800, 0x8000, 0x8800, 0x9000, 0x9800, 0xA000, 0xA800,
        0xB000, 0xB800, 0xC000, 0xC800, 0xD000, 0xD800, 0xE000, 0xE800, 0xF000, 0xF800};
    const vu root = group_roots_of_places((float)of->mean[0], (float)of->largest[0]);
    const vu before = w_sub(root, w_set(1)), base = w_add(w_sll(root, 8), w_set(255));
    vf near = f_set(0x1p20f);
    uint32_t max = 0;
    UNROLL
    for (unsigned r = 0; r < 4; r++) {
        const uint32_t largest = of->largest[r];
        const vu level = group_levels_near(of->mean[r], largest * largest + of->mean[r], &near);
        const vu start = w_mul_high(v_load(starts), w_set((uint16_t)(largest + 1)));
        /* how far into the place the level is, -1 before it */
        vu next = w_sub(w_lookup32(w_of_lanes(level), before), start);
        next = w_min_signed(w_max_signed(next, w_set(0xFFFF)), w_set(255));
        add[r] = w_sub(w_sub(base, start), next);
        max = largest > max ? largest : max;
    }
    return max < 4096 && !v_any_gt(v_bits(f_set(16.0f)), v_bits(near));
}

/* `per_place`: words, both; a magnitude's place is the high word of its product with it. */
V void group_roots_of_growth(vu root[GROUP_WORDS], vu add, uint32_t per_place,
                             const vu x[GROUP_WORDS])
{
    UNROLL
    for (unsigned i = 0; i < GROUP_WORDS; i++) {
        vu u = w_abs(x[i]);
        root[i] = w_srl(w_add(w_lookup32(add, w_mul_high(u, v_set(per_place))), u), 8);
    }
}

#else

/* Above which magnitudes the root is 2, 3 .. 15, of weights u^2 + mean over the largest, `max`,
 * which is 2^22 at least: the roots grow by less than 1.9 in 256. search_levels_of() has the
 * reasons. False: a level is too small to tell. */
V bool group_levels(vu level[16 / VL], uint32_t mean, uint32_t max)
{
    const vf zero = f_set(0.0f), all = f_of_ints(v_set(max)), part = f_of_ints(v_set(mean));
    vu near = v_set(0);
    UNROLL
    for (unsigned i = 0; i < 16 / VL; i++) {
        const vu min = v_load(root_min + i * VL);
        vf square = f_sub(f_mul(all, v_floats(min)), part);
        vu u = v_rint(f_sqrt(f_max(square, zero))), q;
        vu small = v_above(v_set(5), u);
        near = v_or(near, v_and(small, v_above(v_rint(square), v_set((uint32_t)-8))));
        q = v_bits(f_div(f_of_ints(v_add(w_dot(u, u), v_set(mean))), all));
        level[i] = v_min(v_pick(min, q, u, v_sub(u, v_set(1))), v_set(4095));
    }
    return !v_any_gt(v_set(0), near);
}

/* From where the `next`-th level counts, the levels' bytes given: their low byte, less 128, where
 * their high byte is that of the place. */
V vu group_level(vu high, vu low, vu next)
{
    static const uint8_t place[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const uint8_t other[16] = {0, 255, 255, 255, 255, 255, 255, 255,
                                      255, 255, 255, 255, 255, 255, 255, 255};
    const vu beyond = v_and(b_sub(b_lookup(high, next), b_table(place)), b_set(15));
    return v_xor(v_or(b_lookup(low, next), b_lookup(b_table(other), beyond)), b_set(0x80));
}

/* The roots of 256 times 0 .. 15, by the high bytes of the levels: one more for each level
 * below, in turns in lanes of 128 bits. A level of -1, which every magnitude exceeds, is below
 * all. */
V vu group_roots_above(vu level)
{
    static const uint8_t place[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const uint8_t turn[64] = {
        0, 1, 2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
        4, 5, 6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 0,  1,  2,  3,
        8, 9, 10, 11, 12, 13, 14, 15, 0,  1,  2,  3,  4,  5,  6,  7,
        12, 13, 14, 15, 0, 1, 2,  3,  4,  5,  6,  7,  8,  9,  10, 11};
    vu n = v_set(0);
    level = b_lookup(level, v_load(turn));
    UNROLL
    for (unsigned i = 0; i < 16; i++)
        if (i / 4 % LANES == 0)
            n = b_count(n, b_table(place), b_lookup(level, b_set(i)));
    return b_sub(b_sum_lanes(n), b_set(0xFF));
}

struct search_roots {
    struct search_growth grown;
};

/* False: a level is too small to tell, or 4096 is there. */
V bool group_growth_of_roots(struct search_roots *roots, uint32_t largest, uint32_t squares)
{
    const uint32_t mean = squares / 128;
    struct search_growth *f = &roots->grown;
    vu level[16 / VL], high, low;
    const bool certain = group_levels(level, mean, largest * largest + mean);
    b_split_lanes(level, &low, &high);
    f->at = group_roots_above(high);
    f->first = group_level(high, low, b_sub(f->at, b_set(1)));
    f->second = group_level(high, low, f->at);
    return certain && largest < 4096;
}

V void group_roots_of_growth(vu root[GROUP_WORDS], const struct search_roots *f,
                             const struct search_magnitudes *m)
{
    const vu zero = v_set(0);
    UNROLL
    for (unsigned i = 0; i < GROUP_BYTES; i++) {
        vu n = group_grown(&f->grown, m, i);
        root[2 * i] = b_unpack_lo(n, zero);
        root[2 * i + 1] = b_unpack_hi(n, zero);
    }
}

#endif

V void group_roots_of_quotients(vu root[GROUP_WORDS], const vu x[GROUP_WORDS], uint32_t largest,
                                uint32_t mean)
{
    search_roots_of_quotients(root, x, GROUP_WORDS, v_set(mean),
                              f_of_ints(v_set(largest * largest + mean)));
}

#endif
