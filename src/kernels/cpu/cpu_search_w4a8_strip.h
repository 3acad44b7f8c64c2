/* The scale search of INT4 for the error of what the W4A8 kernel computes, 16 rows at a time.
 * What a row's groups have in common is found for VL rows at once, one in each lane; the errors
 * of a group are measured by itself (cpu_search_group.h), with all four channel scales at once or
 * with one after the other (cpu_search_w4a8_four.h, _one.h). Where codes and scales go is
 * cpu_w4a8.h's. Rows whose largest group is not searched go by the rule; those with groups at
 * the low end of e4m3, whose weighted distances need more than a word, go by the reference.
 */
#ifndef TP_KERNELS_CPU_SEARCH_W4A8_STRIP_H
#define TP_KERNELS_CPU_SEARCH_W4A8_STRIP_H

#include "kernels/cpu/cpu_search.h"
#include "kernels/cpu/cpu_search_w4a8_error.h"

/* What is known of 16 rows. */
struct search_strip {
    const struct tp_op *op;
    struct tp_args *args;
    enum tp_dtype dtype;
    uint64_t row, groups;     /* the first row */
    uint32_t *amax;           /* [groups][16] */
    uint8_t *t;               /* [groups][16][TP_SEARCH_TOPS]: group scales, 0 for a dead group;
                                 bit 7: of the largest candidate, that the group is usual, then
                                 of the best, that it is flipped */
    struct w4a8_multiples multiples[W4A8_STEPS];
#ifdef HAVE_W_TABLE64
    struct w4a8_tables tables[W4A8_STEPS]; /* by the least candidate's step */
#endif
    const uint8_t *root;      /* of a file, or NULL */
    uint8_t *codes;           /* [16][K], of rows by the reference */
    uint16_t *scales;         /* [16][groups], of the same */
    bool by_rule[16], by_reference[16];
    uint32_t top[16];         /* index of the largest group */
    uint32_t free_top[TP_SEARCH_TOPS][16]; /* 1: at the floor, so that its scale is free */
    uint32_t max[TP_SEARCH_TOPS][16]; /* bits of the largest a of groups that are not dead */
    uint64_t total[TP_SEARCH_TOPS][16]; /* the error, in units of most's exponent */
    uint16_t top_scale[TP_SEARCH_TOPS][16];
    float channel[TP_SEARCH_TOPS][16], reciprocal[TP_SEARCH_TOPS][16];
    double cost[16];
    uint8_t best[16];         /* which of the channel scales */
};

V vu w4a8_range(const struct tp_op *op, vf a)
{
    vu t = v_e4m3(f_div(a, f_set(tp_search_int4_range(op->search_signed))));
    return v_min(t, v_set(TP_SEARCH_TOP_G));
}

/* All bits of lanes whose group is not dead; *a and *t as in the text. */
V vu w4a8_alive(const struct search_strip *s, unsigned r, uint64_t g, unsigned i, vf *a, vu *t)
{
    vu amax = v_load(s->amax + 16 * g + i);
    *a = f_mul(v_floats(amax), f_load_f32(s->reciprocal[r] + i));
    *t = w4a8_range(s->op, *a);
    return v_and(search_live(amax), v_above(*t, v_set(0)));
}

/* All bits of lanes whose group g is the row's largest one, and bound to scale 56. */
V vu w4a8_fixed(const struct search_strip *s, unsigned r, uint64_t g, unsigned i)
{
    const vu top = v_load(s->top + i), group = v_set((uint32_t)g);
    vu other = v_or(v_above(top, group), v_above(group, top));
    return v_pick(v_set(0), other, v_set(0), v_above(v_set(1), v_load(s->free_top[r] + i)));
}

/* All bits of lanes whose candidates from t down to `min` are normal scales, and the largest
 * magnitude is below 13 times the least, and below 4096 as integer. With e4m3's multiples of
 * 6.67 or more in place of 7, no value is further than SEARCH_MAX_DISTANCE from the last. */
V vu w4a8_usual(vu t, vu min, vf a, vu unit)
{
    const vf last = f_mul(v_floats(v_add(v_sll(min, 20), v_set(120u << 23))), f_set(13.0f));
    const vu id = v_sub(v_add(t, v_srl(unit, 20)), v_set(1128)), all = v_set(0xFFFFFFFFu);
    vu unusual = v_or(v_above(v_set(8), min), v_above(id, v_set(W4A8_STEPS - 1)));
    unusual = v_or(unusual, v_above(v_and(v_bits(a), v_set(0x7FFFFF)), v_set(W4A8_MAX - 1)));
    return v_xor(v_or(unusual, v_above(v_bits(a), v_bits(last))), all);
}

/* The largest candidate of group g, and the least. */
V vu w4a8_candidates(const struct search_strip *s, unsigned r, uint64_t g, unsigned i, vu *t)
{
    const vu fixed = w4a8_fixed(s, r, g, i), none = v_set(0);
    *t = v_pick(none, fixed, v_set(TP_SEARCH_TOP_G), *t);
    return v_pick(none, fixed, *t, v_max(v_sub(*t, v_set(TP_SEARCH_GROUPS - 1)), v_set(1)));
}

/* The largest candidate of every group g with channel scale r, and largest values so far; with
 * weights, rows whose smallest candidate is so far below a group's largest value that a product
 * would not fit a word go by the reference. */
V vu w4a8_survey_group(const struct search_strip *s, unsigned r, uint64_t g, unsigned i, vu *max,
                       vu *far)
{
    vf a;
    vu t, alive = w4a8_alive(s, r, g, i, &a, &t), unit = search_unit(v_bits(a));
    vu min = w4a8_candidates(s, r, g, i, &t), usual = w4a8_usual(t, min, a, unit), beyond;
    *max = v_max(*max, v_and(v_bits(a), alive));
    if (v_any_gt(alive, v_and(usual, alive)) || v_any_gt(v_and(usual, alive), alive)) {
        beyond = v_sub(v_rint(f_mul(a, v_floats(unit))), w4a8_values_of(min, unit).of[7]);
        *far = v_or(*far, v_and(alive, v_above(beyond, v_set(SEARCH_MAX_DISTANCE))));
    }
    return v_and(alive, v_or(t, v_and(usual, v_set(0x80))));
}

V void w4a8_survey(struct search_strip *s, bool weighted, unsigned i)
{
    vu max[TP_SEARCH_TOPS], far = v_set(0);
    uint32_t is_far[VL];
    for (unsigned r = 0; r < TP_SEARCH_TOPS; r++)
        max[r] = v_set(0);
    for (uint64_t g = 0; g < s->groups; g++) {
        vu all = v_set(0);
        for (unsigned r = 0; r < TP_SEARCH_TOPS; r++)
            all = v_or(all, v_sll(w4a8_survey_group(s, r, g, i, &max[r], &far), 8 * r));
        v_store(s->t + TP_SEARCH_TOPS * (16 * g + i), all);
    }
    for (unsigned r = 0; r < TP_SEARCH_TOPS; r++)
        v_store(s->max[r] + i, max[r]);
    v_store(is_far, far);
    for (unsigned l = 0; l < VL && weighted; l++)
        s->by_reference[i + l] |= is_far[l] && !s->by_rule[i + l];
}

/* ---- one group ------------------------------------------------------------ */

V const uint8_t *w4a8_values_at(const struct search_strip *s, uint64_t g, unsigned l)
{
    const uint64_t k = s->args->box.k;
    return (const uint8_t *)s->args->in[0] + ((s->row + l) * k + 128 * g) * value_bytes(s->dtype);
}

V uint8_t *w4a8_choice(const struct search_strip *s, unsigned r, uint64_t g, unsigned l)
{
    return s->t + TP_SEARCH_TOPS * (16 * g + l) + r;
}

/* The group's largest magnitude, in units of channel scale r. */
V float w4a8_largest(const struct search_strip *s, unsigned r, uint64_t g, unsigned l)
{
    return tp_bits_f32(s->amax[16 * g + l]) * s->reciprocal[r][l];
}

/* search_unit() of one number. */
V float w4a8_unit(float a)
{
    return tp_bits_f32((265u << 23) - (tp_f32_bits(a) & 0x7F800000u));
}

V void w4a8_last(vu last[GROUP_BYTES], const vu x[GROUP_WORDS])
{
    UNROLL
    for (unsigned i = 0; i < GROUP_BYTES; i++)
        last[i] = b_pack_unsigned(w_add(w_srl(x[2 * i], 15), w_set(7)),
                                  w_add(w_srl(x[2 * i + 1], 15), w_set(7)));
}

/* Whether the sums of a lane, of squares of distances times 15 at most, stay below 2^32. The
 * furthest from a multiple is the largest value from the last one of the least scale: the others
 * are at most half of what is between two, and that is less than 600. */
V bool w4a8_narrow(const struct search_strip *s, const struct w4a8_range *range)
{
    const uint32_t max = VBYTES == 64 ? 1544 : VBYTES == 32 ? 1092 : 772;
    const struct w4a8_multiples *of = &s->multiples[w4a8_step(range, range->min)];
    return range->largest <= max + of->low[7] + 256u * of->high[7];
}

V void w4a8_errors_usual(struct search_strip *s, const struct w4a8_group *group,
                         enum w4a8_sum how, unsigned r, const struct w4a8_range *range,
                         uint64_t error[TP_SEARCH_GROUPS])
{
    struct search_total total[TP_SEARCH_GROUPS];
#ifdef HAVE_W_TABLE64
    w4a8_totals_usual(s->tables, group, how, r, range, total);
#else
    w4a8_totals_usual(s->multiples, group, how, r, range, total);
#endif
    w4a8_sums(total, how, error);
}

V void w4a8_errors(const struct w4a8_group *group, enum w4a8_sum how, unsigned r,
                   const struct w4a8_range *range, uint64_t error[TP_SEARCH_GROUPS])
{
    struct search_total total[TP_SEARCH_GROUPS];
    w4a8_totals(group, how, r, range, total);
    w4a8_sums(total, how, error);
}

/* The best scale with channel scale r. */
V void w4a8_fit(struct search_strip *s, const struct w4a8_group *group, bool weighted, unsigned r)
{
    uint8_t *choice = w4a8_choice(s, r, group->g, group->l), t = *choice & 0x7F;
    const float a = w4a8_largest(s, r, group->g, group->l), unit = w4a8_unit(a);
    const bool top = group->g == s->top[group->l] && !s->free_top[r][group->l];
    const uint8_t min = top ? t : t > TP_SEARCH_GROUPS ? t - (TP_SEARCH_GROUPS - 1) : 1;
    const struct w4a8_range range = {t, min, tp_f32_bits(unit), (uint32_t)rintf(a * unit)};
    const uint32_t shift = 2 * ((s->max[r][group->l] >> 23) - (tp_f32_bits(a) >> 23));
    uint64_t error[TP_SEARCH_GROUPS], best;
    if (t == 0)
        return;
    if (!(*choice & 0x80))
        w4a8_errors(group, weighted ? W4A8_WEIGHTED : W4A8_PLAIN, r, &range, error);
    else if (!weighted)
        w4a8_errors_usual(s, group, W4A8_PLAIN, r, &range, error);
    else if (w4a8_narrow(s, &range))
        w4a8_errors_usual(s, group, W4A8_NARROW, r, &range, error);
    else
        w4a8_errors_usual(s, group, W4A8_WEIGHTED, r, &range, error);
    best = w4a8_min(error);
    if (shift < 64)
        s->total[r][group->l] += best / 4 >> shift;
    *choice = (uint8_t)((t - best % 4) | group->flip >> 24);
}

#ifdef HAVE_W_TABLE64
#include "kernels/cpu/cpu_search_w4a8_four.h"
#else
#include "kernels/cpu/cpu_search_w4a8_one.h"
#endif

/* The next group begins before one ends, and what roots are made of comes last: it takes a
 * processor long to wait for, and little to do. */
V void w4a8_fit_row(struct search_strip *s, bool weighted, unsigned l)
{
    struct w4a8_group group[2];
    struct w4a8_row row = w4a8_open_row(s, l);
    bool live[2] = {false, false};
    for (uint64_t g = 0; g <= s->groups; g++) {
        const unsigned now = g % 2, before = 1 - now;
        live[now] = g < s->groups && w4a8_begin_group(s, &row, &group[now], g, l);
        if (live[before])
            w4a8_end_group(s, &row, &group[before], weighted);
        if (live[now] && weighted && s->root == NULL)
            w4a8_growths(s, &group[now]);
    }
    w4a8_close_row(s, &row, l);
}

/* The channel scale of the least error, for each row. */
static void w4a8_choose(struct search_strip *s)
{
    for (unsigned r = 0; r < TP_SEARCH_TOPS; r++)
        for (unsigned l = 0; l < 16; l++) {
            double chan = (double)s->channel[r][l];
            int e = s->max[r][l] ? tp_search_exponent(s->max[r][l]) : -126;
            double cost = ldexp((double)s->total[r][l] * (chan * chan), 2 * e);
            if (r == 0 || (!s->free_top[r][l] && cost < s->cost[l])) {
                s->cost[l] = cost;
                s->best[l] = (uint8_t)r;
            }
        }
}

V void w4a8_fit_rows(struct search_strip *s, bool weighted)
{
    for (unsigned i = 0; i < 16; i += VL)
        w4a8_survey(s, weighted, i);
    for (unsigned l = 0; l < 16; l++)
        if (!s->by_rule[l] && !s->by_reference[l])
            w4a8_fit_row(s, weighted, l);
}

static __attribute__((noinline)) void w4a8_try_all(struct search_strip *s)
{
    memset(s->total, 0, sizeof s->total);
    if (search_weighted(s->op, s->args))
        w4a8_fit_rows(s, true);
    else
        w4a8_fit_rows(s, false);
    w4a8_choose(s);
}

/* The groups' largest magnitudes, and which of them is the largest one. */
static uint32_t w4a8_survey_row(struct search_strip *s, unsigned l)
{
    uint32_t max = 0, amax[16];
    s->top[l] = 0;
    for (uint64_t g = 0; g < s->groups; g++) {
        if (g % 16 == 0)
            block_amax16(s->dtype, w4a8_values_at(s, g, l), 128,
                         (unsigned)tp_min_u64(16, s->groups - g), amax);
        s->amax[16 * g + l] = amax[g % 16];
        if (amax[g % 16] > max) {
            max = amax[g % 16];
            s->top[l] = (uint32_t)g;
        }
    }
    return max;
}

/* Largest magnitudes, the largest groups, and the channel scales that these have. */
static void w4a8_survey_rows(struct search_strip *s)
{
    const struct tp_op *op = s->op;
    const bool stored = tp_op_find(op, TP_ROLE_CHANNEL) >= 0;
    const enum tp_channel_rule rule = stored ? op->channel_rule : TP_CHANNEL_CPU;
    for (unsigned l = 0; l < 16; l++) {
        const uint32_t max = w4a8_survey_row(s, l);
        s->by_rule[l] = !tp_search_live(max);
        s->by_reference[l] = false;
        for (int r = 0; r < TP_SEARCH_TOPS; r++) {
            uint16_t top = tp_search_w4a8_top(max, op->search_signed, r);
            float sc = tp_channel_quotient(top, rule);
            s->top_scale[r][l] = top;
            s->free_top[r][l] = sc == tp_channel_quotient(0, TP_CHANNEL_CPU);
            s->channel[r][l] = sc * 8.0f;
            s->reciprocal[r][l] = 1.0f / s->channel[r][l];
        }
    }
}

static void w4a8_reference(struct search_strip *s, unsigned l)
{
    const uint64_t k = s->args->box.k, row = s->row + l, e = row / s->args->box.n;
    float *values = (float *)(s->codes + 16 * k);
    void *scratch = values + k;
    for (uint64_t i = 0; i < k; i++)
        values[i] = tp_load_value(s->args->in[0], s->dtype, row * k + i);
    if (tp_search_row(s->op, values, k, s->args->importance ? s->args->importance + e * k : NULL,
                      scratch, s->codes + l * k, s->scales + l * s->groups))
        s->args->flags |= TP_SAW_NONFINITE;
}

static void w4a8_open_search(struct search_strip *s, const struct tp_op *op, struct tp_args *args,
                             enum tp_dtype dtype, void *scratch)
{
    *s = (struct search_strip){.op = op, .args = args, .dtype = dtype};
    s->groups = args->box.k / 128;
    s->amax = scratch;
    s->t = (uint8_t *)(s->amax + 16 * s->groups);
    s->scales = (uint16_t *)(s->t + 16 * TP_SEARCH_TOPS * s->groups);
    s->codes = (uint8_t *)(s->scales + (16 * s->groups + 3) / 4 * 4);
    for (unsigned step = 0; step < W4A8_STEPS; step++)
        w4a8_multiples_of(&s->multiples[step], step);
}

/* Chooses everything for the 16 rows from `row` on. */
static void w4a8_search(struct search_strip *s, uint64_t row)
{
    s->row = row;
    w4a8_survey_rows(s);
    w4a8_try_all(s);
    for (unsigned l = 0; l < 16; l++)
        if (s->by_reference[l])
            w4a8_reference(s, l);
}

#endif
