/* The W4A8 search of one group with all four channel scales at once, for processors with tables of
 * words: what is one number for each channel scale is in lanes 0 .. 3 (others mean nothing), the
 * sixteen errors are added up together. A row's largest group, those that are not usual with each
 * of the four, and those with very large errors are left to w4a8_fit(), one scale after the other.
 */
#ifndef TP_KERNELS_CPU_SEARCH_W4A8_FOUR_H
#define TP_KERNELS_CPU_SEARCH_W4A8_FOUR_H

#include "kernels/cpu/cpu_search_group.h"
#include "kernels/cpu/cpu_search_w4a8_error.h"

#define W4A8_ALL_USUAL 0x80808080u
enum { W4A8_MAX_PART = (1 << 30) - 1 }; /* of an error, of four */

/* What a row's groups have in common. */
struct w4a8_row {
    vf reciprocal;
    vu max, total; /* exponents of the largest values; errors so far, 64 bits each */
};

V struct w4a8_row w4a8_open_row(const struct search_strip *s, unsigned l)
{
    uint32_t reciprocal[VL] = {0}, max[VL] = {0};
    for (unsigned r = 0; r < TP_SEARCH_TOPS; r++) {
        reciprocal[r] = tp_f32_bits(s->reciprocal[r][l]);
        max[r] = s->max[r][l] >> 23;
    }
    return (struct w4a8_row){v_floats(v_load(reciprocal)), v_load(max), v_set(0)};
}

V void w4a8_close_row(struct search_strip *s, const struct w4a8_row *row, unsigned l)
{
    uint64_t total[VBYTES / 8];
    v_store(total, row->total);
    for (unsigned r = 0; r < TP_SEARCH_TOPS; r++)
        s->total[r][l] += total[r];
}

V uint32_t w4a8_choices(const struct search_strip *s, uint64_t g, unsigned l)
{
    uint32_t four;
    memcpy(&four, w4a8_choice(s, 0, g, l), sizeof four);
    return four;
}

/* The values as integers, and what errors and roots take of them. */
V void w4a8_take_four(const struct search_strip *s, const struct w4a8_row *row,
                      struct w4a8_group *group)
{
    struct w4a8_four *four = &group->four;
    const vf a = f_mul(f_set(tp_bits_f32(s->amax[16 * group->g + group->l])), row->reciprocal);
    const vu unit = search_unit(v_bits(a)), largest = v_rint(f_mul(a, v_floats(unit)));
    const vu per_place = v_truncate(f_div(f_set(0x1p21f), f_of_ints(v_add(largest, v_set(1)))));
    _Alignas(64) uint32_t factor[VL];
    vu sums[TP_SEARCH_TOPS];
    v_store(factor, v_xor(v_bits(f_mul(row->reciprocal, v_floats(unit))), v_set(group->flip)));
    v_store(four->of.largest, largest);
    v_store(four->per_place, w_both(per_place));
    four->t = v_and(v_of_four(w4a8_choices(s, group->g, group->l)), v_set(0x7F));
    v_store(four->step, v_sub(v_add(four->t, v_srl(unit, 20)), v_set(1128)));
    four->shift = v_sub(row->max, v_srl(v_bits(a), 23));
    UNROLL
    for (unsigned r = 0; r < TP_SEARCH_TOPS; r++) {
        group_take(&group->values, f_set(tp_bits_f32(factor[r])), group->x[r]);
        sums[r] = group_squares(group->x[r]);
    }
    const vu parts = v_sums_of_quarters(v_sums_of_halves(sums[0], sums[1]),
                                        v_sums_of_halves(sums[2], sums[3]));
    v_store(four->of.mean, v_srl(v_sum_quarters(parts), 7));
}

V void w4a8_growths(const struct search_strip *s, struct w4a8_group *group)
{
    (void)s;
    struct w4a8_four *four = &group->four;
    four->usual = group_growth_of_roots(four->roots, &four->of);
}

V void w4a8_roots_four(const struct search_strip *s, struct w4a8_group *group)
{
    const struct w4a8_four *four = &group->four;
    for (unsigned r = 0; r < TP_SEARCH_TOPS && s->root != NULL; r++)
        for (unsigned i = 0; i < GROUP_WORDS; i++)
            group->root[r][i] = v_load(s->root + 2 * 128 * group->g + VBYTES * i);
    if (s->root != NULL)
        return;
    UNROLL
    for (unsigned r = 0; r < TP_SEARCH_TOPS; r++)
        group_roots_of_growth(group->root[r], four->roots[r], four->per_place[r], group->x[r]);
    for (unsigned r = 0; r < TP_SEARCH_TOPS && !four->usual; r++)
        group_roots_of_quotients(group->root[r], group->x[r], four->of.largest[r],
                                 four->of.mean[r]);
}

/* The errors with channel scale r, as v_sums_of_quarters() has them: parts of four lanes. */
V vu w4a8_errors_four(struct search_strip *s, const struct w4a8_group *group, bool weighted,
                      unsigned r)
{
    const unsigned last = TP_SEARCH_GROUPS - 1;
    const struct w4a8_tables *tables = w4a8_tables_at(s->tables, group->four.step[r] - last);
    const vu factor = v_set(0x10001u * tables->factor), max = v_set(INT32_MAX);
    vu place[GROUP_WORDS], total[TP_SEARCH_GROUPS], a, b;
    UNROLL
    for (unsigned i = 0; i < GROUP_WORDS; i++)
        place[i] = w_mul_high_signed(group->x[r][i], factor);
    UNROLL
    for (unsigned c = 0; c < TP_SEARCH_GROUPS; c++)
        total[c] = w4a8_error_four(group->x[r], place, group->root[r], weighted,
                                   &tables->candidate[last - c]);
    a = v_lower(v_sums_of_halves(total[0], total[1]), max);
    b = v_lower(v_sums_of_halves(total[2], total[3]), max);
    return v_lower(v_sums_of_quarters(a, b), v_set(W4A8_MAX_PART));
}

/* The best scale with each channel scale, of a group with four candidates. False: an error is so
 * large that a part of it may be W4A8_MAX_PART instead. Where the least sum is below that, it has
 * no such part, and the others are not less than they seem. */
V bool w4a8_fit_four(struct search_strip *s, struct w4a8_row *row, const struct w4a8_group *group,
                     bool weighted)
{
    static const uint32_t number[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
    const vu beyond = v_set(W4A8_MAX_PART);
    vu part[TP_SEARCH_TOPS], error, min, best;
    uint32_t choice;
    UNROLL
    for (unsigned r = 0; r < TP_SEARCH_TOPS; r++)
        part[r] = w4a8_errors_four(s, group, weighted, r);
    error = v_quarter_sums(part);
    min = v_quarter_min(error);
    best = v_quarter_min(v_pick_same(error, min, v_load(number), beyond));
    if (v_any_gt(v_lower(min, beyond), v_set(W4A8_MAX_PART - 1)))
        return false;
    min = v_srl_by(v_of_quarters(min), v_sll(group->four.shift, 1));
    row->total = d_add(row->total, d_of_lanes(min));
    choice = v_to_four(v_sub(group->four.t, v_of_quarters(best)));
    choice |= group->flip ? W4A8_ALL_USUAL : 0;
    memcpy(w4a8_choice(s, 0, group->g, group->l), &choice, sizeof choice);
    return true;
}

/* Group g of row l as integers. False: it is dead. */
V bool w4a8_begin_group(const struct search_strip *s, const struct w4a8_row *row,
                        struct w4a8_group *group, uint64_t g, unsigned l)
{
    if (w4a8_choices(s, g, l) == 0)
        return false;
    group->g = g;
    group->l = l;
    group_load(&group->values, s->dtype, w4a8_values_at(s, g, l));
    group->flip = s->op->search_signed && group_flips(&group->values) ? 0x80000000u : 0;
    w4a8_take_four(s, row, group);
    return true;
}

V void w4a8_end_group(struct search_strip *s, struct w4a8_row *row, struct w4a8_group *group,
                      bool weighted)
{
    const uint32_t usual = w4a8_choices(s, group->g, group->l) & W4A8_ALL_USUAL;
    bool done = false;
    if (weighted)
        w4a8_roots_four(s, group);
    if (usual == W4A8_ALL_USUAL && group->g != s->top[group->l])
        done = w4a8_fit_four(s, row, group, weighted);
    for (unsigned r = 0; r < TP_SEARCH_TOPS && !done; r++)
        w4a8_fit(s, group, weighted, r);
}

#endif
