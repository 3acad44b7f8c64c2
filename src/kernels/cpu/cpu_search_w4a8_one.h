/* The W4A8 search of one group with one channel scale after the other, by the bytes of magnitudes;
 * with tables of words it is cpu_search_w4a8_four.h's.
 */
#ifndef TP_KERNELS_CPU_SEARCH_W4A8_ONE_H
#define TP_KERNELS_CPU_SEARCH_W4A8_ONE_H

#include "kernels/cpu/cpu_search_group.h"
#include "kernels/cpu/cpu_search_w4a8_error.h"

struct w4a8_row {
    unsigned unused;
};

V struct w4a8_row w4a8_open_row(const struct search_strip *s, unsigned l)
{
    (void)s, (void)l;
    return (struct w4a8_row){0};
}

V void w4a8_close_row(struct search_strip *s, const struct w4a8_row *row, unsigned l)
{
    (void)s, (void)row, (void)l;
}

/* The values as integers, with each channel scale. The unit is a power of two: the product with
 * it is the same in either order. */
V void w4a8_take(const struct search_strip *s, struct w4a8_group *group)
{
    const uint64_t g = group->g;
    const unsigned l = group->l;
    vu sums[4];
    UNROLL
    for (unsigned r = 0; r < TP_SEARCH_TOPS; r++) {
        float factor = s->reciprocal[r][l] * w4a8_unit(w4a8_largest(s, r, g, l));
        factor = tp_bits_f32(tp_f32_bits(factor) | group->flip);
        group_take(&group->values, f_set(factor), group->x[r]);
        group_split(&group->magnitudes[r], group->x[r]);
        sums[r] = group_squares(group->x[r]);
    }
    group_sums(sums, group->squares);
    w4a8_last(group->last, group->x[0]);
}

V void w4a8_growths(const struct search_strip *s, struct w4a8_group *group)
{
    UNROLL
    for (unsigned r = 0; r < TP_SEARCH_TOPS; r++) {
        float a = w4a8_largest(s, r, group->g, group->l);
        group->largest[r] = (uint32_t)rintf(a * w4a8_unit(a));
        group->usual[r] =
            group_growth_of_roots(&group->roots[r], group->largest[r], group->squares[r]);
    }
}

V void w4a8_roots(const struct search_strip *s, struct w4a8_group *group)
{
    for (unsigned r = 0; r < TP_SEARCH_TOPS; r++)
        if (s->root != NULL)
            for (unsigned i = 0; i < GROUP_WORDS; i++)
                group->root[r][i] = v_load(s->root + 2 * 128 * group->g + VBYTES * i);
        else if (group->usual[r])
            group_roots_of_growth(group->root[r], &group->roots[r], &group->magnitudes[r]);
        else
            group_roots_of_quotients(group->root[r], group->x[r], group->largest[r],
                                     group->squares[r] / 128);
}

/* Group g of row l as integers. False: it is dead. */
V bool w4a8_begin_group(const struct search_strip *s, const struct w4a8_row *row,
                        struct w4a8_group *group, uint64_t g, unsigned l)
{
    uint8_t any = 0;
    (void)row;
    for (unsigned r = 0; r < TP_SEARCH_TOPS; r++)
        any |= *w4a8_choice(s, r, g, l);
    if (!any)
        return false;
    group->g = g;
    group->l = l;
    group_load(&group->values, s->dtype, w4a8_values_at(s, g, l));
    group->flip = s->op->search_signed && group_flips(&group->values) ? 0x80000000u : 0;
    w4a8_take(s, group);
    return true;
}

V void w4a8_end_group(struct search_strip *s, struct w4a8_row *row, struct w4a8_group *group,
                      bool weighted)
{
    (void)row;
    if (weighted)
        w4a8_roots(s, group);
    for (unsigned r = 0; r < TP_SEARCH_TOPS; r++)
        w4a8_fit(s, group, weighted, r);
}

#endif
