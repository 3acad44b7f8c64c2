/* The scales of one int4 row, searched for the least error of what the W4A8 kernel computes:
 * e4m3(q * g) times the row's channel scale.
 *
 * The scale of the largest group fixes the channel scale; with each of four, every group
 * takes the best of four group scales, and the four are compared by their sums. Does not: make
 * the channel scale; tp_channel_scale() makes it from the bf16 scales that come out here,
 * exactly as it was searched for.
 */
#include "base/num.h"
#include "kernels/op/codec.h"
#include "kernels/op/search.h"
#include "kernels/op/search_ints.h"
#include "kernels/op/search_scalar.h"

/* The best of one group with one channel scale. */
struct fit {
    uint64_t error; /* in units of 2^(2e-22), and the channel scale squared */
    int e;
    uint8_t g; /* e4m3; 0: the group is dead, all its codes are zero */
};

struct channel {
    uint16_t top; /* the bf16 scale of the largest group */
    float scale, reciprocal;
    bool min; /* the channel scale is as small as it gets, so that g of the top is free */
};

struct row {
    const struct tp_op *op;
    const float *values, *importance;
    uint64_t k, groups, top;
    uint32_t *amax;
    struct fit *fit, *best;
    struct tp_search_ints ints;
};

static uint64_t group_size(const struct row *row, uint64_t j)
{
    return tp_min_u64(row->op->block_k, row->k - j * row->op->block_k);
}

static const float *group_values(const struct row *row, uint64_t j)
{
    return row->values + j * row->op->block_k;
}

static struct row open_row(const struct tp_op *op, const float *values, uint64_t k,
                           const float *importance, void *scratch)
{
    struct row row = {.op = op, .values = values, .importance = importance, .k = k};
    uint64_t block_k = tp_min_u64(op->block_k, k);
    row.groups = tp_ceil_div(k, op->block_k);
    row.fit = scratch;
    row.best = row.fit + row.groups;
    row.amax = (uint32_t *)(row.best + row.groups);
    row.ints.x = (int32_t *)(row.amax + row.groups);
    row.ints.root = row.ints.x + block_k;
    for (uint64_t j = 0; j < row.groups; j++) {
        row.amax[j] = tp_amax_bits(group_values(&row, j), group_size(&row, j));
        if (row.amax[j] > row.amax[row.top])
            row.top = j;
    }
    return row;
}

/* Scales stored without a channel scale are searched for the rules that divide. */
enum tp_channel_rule tp_search_channel_rule(const struct tp_op *op)
{
    bool stored = tp_op_find(op, TP_ROLE_CHANNEL) >= 0;
    return stored ? (enum tp_channel_rule)op->channel_rule : TP_CHANNEL_CPU;
}

static struct channel channel_of(const struct row *row, int r)
{
    struct channel c;
    c.top = tp_search_w4a8_top(row->amax[row->top], row->op->search_signed, r);
    float sc = tp_channel_quotient(c.top, tp_search_channel_rule(row->op));
    c.min = sc == tp_channel_quotient(0, TP_CHANNEL_CPU);
    c.scale = sc * 8.0f;
    c.reciprocal = 1.0f / c.scale;
    return c;
}

/* The values of codes -8..7 times group scale g, as integers. */
static struct tp_search_values multiples(uint8_t g, int e)
{
    struct tp_search_values v;
    for (int q = -8; q < 8; q++) {
        int32_t t = tp_search_w4a8_multiple(g, q < 0 ? -q : q, e);
        v.of[q + 8] = q < 0 ? -t : t;
    }
    return v;
}

static bool flips(const struct row *row, uint64_t j)
{
    return row->op->search_signed && tp_search_flips(group_values(row, j), group_size(row, j));
}

/* The group's values in units of the channel scale, as integers of exponent e. */
static void take_group(struct row *row, const struct channel *c, uint64_t j, int e)
{
    const float *importance = row->importance ? row->importance + j * row->op->block_k : NULL;
    row->ints.count = group_size(row, j);
    row->ints.e = e;
    tp_search_take(&row->ints, row->op, group_values(row, j), c->reciprocal, flips(row, j),
                   importance);
}

/* The first of the `count` group scales from `g` downwards that has the least error. */
static struct fit best_scale(const struct row *row, uint8_t g, int count)
{
    struct fit best = {UINT64_MAX, row->ints.e, g};
    for (int i = 0; i < count && g - i > 0; i++) {
        struct tp_search_values v = multiples((uint8_t)(g - i), row->ints.e);
        uint64_t error = tp_search_error(&row->ints, &v);
        if (error < best.error) {
            best.error = error;
            best.g = (uint8_t)(g - i);
        }
    }
    return best;
}

static struct fit fit_group(struct row *row, const struct channel *c, uint64_t j)
{
    float a = tp_bits_f32(row->amax[j]) * c->reciprocal;
    uint8_t g = tp_search_w4a8_group(a, row->op->search_signed);
    if (!tp_search_live(row->amax[j]) || g == 0)
        return (struct fit){0};
    take_group(row, c, j, tp_search_exponent(tp_f32_bits(a)));
    if (j == row->top && !c->min)
        return best_scale(row, TP_SEARCH_TOP_G, 1);
    return best_scale(row, g, TP_SEARCH_GROUPS);
}

/* The error of the whole row: those of the groups in units of the largest exponent. */
static double cost_of(const struct row *row, const struct channel *c)
{
    int max = -126;
    uint64_t total = 0;
    for (uint64_t j = 0; j < row->groups; j++)
        if (row->fit[j].g != 0 && row->fit[j].e > max)
            max = row->fit[j].e;
    for (uint64_t j = 0; j < row->groups; j++) {
        int shift = 2 * (max - row->fit[j].e);
        if (row->fit[j].g != 0 && shift < 64)
            total += row->fit[j].error >> shift;
    }
    return ldexp((double)total * ((double)c->scale * (double)c->scale), 2 * max);
}

/* Fits every group with each channel scale; row->best has those of the least cost. */
static struct channel search_channel(struct row *row)
{
    struct channel best = channel_of(row, 0);
    double min = 0.0;
    for (int r = 0; r < TP_SEARCH_TOPS; r++) {
        struct channel c = channel_of(row, r);
        if (r > 0 && c.min)
            continue;
        for (uint64_t j = 0; j < row->groups; j++)
            row->fit[j] = fit_group(row, &c, j);
        double cost = cost_of(row, &c);
        if (r == 0 || cost < min) {
            struct fit *other = row->best;
            row->best = row->fit;
            row->fit = other;
            best = c;
            min = cost;
        }
    }
    return best;
}

/* The code of the nearest value; of two the one next to zero. */
static uint8_t nearest(int32_t x, const struct tp_search_values *v)
{
    int best = 0;
    int32_t min = x < 0 ? -x : x;
    for (int m = 1; m <= 8; m++) {
        int q = x < 0 ? -m : m;
        int32_t d = q > 7 ? INT32_MAX : x - v->of[q + 8];
        d = d < 0 ? -d : d;
        if (d < min) {
            min = d;
            best = q;
        }
    }
    return (uint8_t)(best + 8);
}

static uint16_t store_group(struct row *row, const struct channel *c, uint64_t j, uint8_t *codes)
{
    const struct fit *fit = &row->best[j];
    uint16_t scale;
    if (fit->g == 0) {
        memset(codes, 8, group_size(row, j));
        return c->top;
    }
    take_group(row, c, j, fit->e);
    struct tp_search_values v = multiples(fit->g, fit->e);
    for (uint64_t i = 0; i < row->ints.count; i++)
        codes[i] = nearest(row->ints.x[i], &v);
    scale = tp_f32_to_bf16(tp_e4m3_value(fit->g) * c->scale);
    return flips(row, j) ? scale | 0x8000 : scale;
}

static bool row_by_rule(const struct row *row, uint8_t *codes, uint16_t *scales)
{
    bool nonfinite = false;
    for (uint64_t j = 0; j < row->groups; j++) {
        uint32_t scale;
        nonfinite |= tp_codec_encode(row->op, group_values(row, j), group_size(row, j), 1.0f,
                                     codes + j * row->op->block_k, &scale);
        scales[j] = (uint16_t)scale;
    }
    return nonfinite;
}

bool tp_search_row(const struct tp_op *op, const float *values, uint64_t k,
                   const float *importance, void *scratch, uint8_t *codes, uint16_t *scales)
{
    struct row row = open_row(op, values, k, importance, scratch);
    if (!tp_search_live(row.amax[row.top]))
        return row_by_rule(&row, codes, scales);
    struct channel channel = search_channel(&row);
    for (uint64_t j = 0; j < row.groups; j++)
        scales[j] = store_group(&row, &channel, j, codes + j * op->block_k);
    return false;
}
