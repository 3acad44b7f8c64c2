/* DeepGEMM's planner of June 2026: SM90 by a model of L1 and L2 cycles, SM100 by
 * waves and clusters. The planner of May 2025 is in schedule_deepgemm.c.
 *
 * Invariant: the cost is computed as the consumer computes it, 64-bit integers
 * and then one division in binary32, because its rounding decides near-ties.
 */
#include "pack/schedule/schedule_planners.h"

#include "base/num.h"

#include <stdio.h>

enum { MAX_LAYOUTS = 256, BLOCK_K = 128, CONTIGUOUS_ROWS = 128, TENSOR_MEMORY = 512 };

struct layouts {
    size_t count;
    struct tp_sched_config config[MAX_LAYOUTS];
};

/* What the cost is computed for: contiguous calls are planned as one group. */
static uint64_t cost_groups(const struct tp_sched_problem *p)
{
    return p->contiguous ? 1 : p->groups;
}

static uint64_t out_bytes(const struct tp_sched_problem *p)
{
    return p->fp32_out ? 4 : 2;
}

/* --- SM90 --- */

static size_t sm90_block_ms(const struct tp_sched_problem *p, uint64_t block_ms[8])
{
    size_t count = 0;
    if (p->contiguous) {
        block_ms[count++] = CONTIGUOUS_ROWS;
        return count;
    }
    block_ms[count++] = 64;
    block_ms[count++] = 128;
    if (p->masked)
        return count;
    if (p->m <= 16)
        block_ms[count++] = 16;
    if (p->m <= 32)
        block_ms[count++] = 32;
    if (!p->fp32_out)
        block_ms[count++] = 256;
    return count;
}

static size_t sm90_block_ns(const struct tp_sched_problem *p, uint64_t block_ns[16])
{
    size_t count = 0;
    uint64_t first = 16;
    if (p->one_d && p->fp32_out) { /* odd multiples of 8 avoid bank conflicts */
        block_ns[count++] = 16;
        first = 24;
    }
    for (uint64_t bn = first; bn <= (p->one_d ? 160u : 192u); bn += 16)
        block_ns[count++] = bn;
    return count;
}

static void sm90_pipeline(const struct tp_sched_problem *p, struct tp_sched_config *c)
{
    uint64_t bm = c->block_m, bn = c->block_n;
    uint64_t extra = tp_round_up(bm * bn * out_bytes(p), 1024) + 256;
    if (!p->one_d)
        extra += tp_round_up(tp_ceil_div(p->k, BLOCK_K) * 4 * (BLOCK_K % bn == 0 ? 1 : 2), 8);
    uint64_t stage = bm * BLOCK_K + bn * BLOCK_K + tp_round_up(bm * 4, 128) +
                     (p->one_d ? tp_round_up(bn * 4, 128) : 0);
    c->stages = extra < TP_SCHED_SMEM ? tp_min_u64((TP_SCHED_SMEM - extra) / stage, 16) : 0;
    c->smem = extra + c->stages * stage;
    c->swizzle = p->fp32_out ? 0 : tp_sched_swizzle(bn, 2, 16);
    c->threads = 128 + (bm <= 64 ? 128 : 256);
}

static bool sm90_legal(const struct tp_sched_problem *p, const struct tp_sched_config *c)
{
    uint64_t bm = c->block_m, bn = c->block_n;
    if (!p->one_d && bn > BLOCK_K && bn % (bn - BLOCK_K) != 0 && BLOCK_K % (bn - BLOCK_K) != 0)
        return false;
    if (p->masked && tp_ceil_div(p->n, bn) % (c->cluster_m * c->cluster_n) != 0)
        return false;
    if (bm > 128 && bn > 128)
        return false;
    return c->stages >= 4 || (c->stages == 3 && bm * bn >= 128 * 192);
}

static enum tp_code sm90_cost(const struct tp_sched_problem *p, struct tp_sched_config *c,
                              struct tp_err *err)
{
    uint64_t bm = c->block_m, bn = c->block_n, tile = bm * bn * out_bytes(p);
    uint64_t l2_rate = (uint64_t)(64.0 * (double)p->sms < 8e6 / 1.3e3 ? 64.0 * (double)p->sms
                                                                     : 8e6 / 1.3e3);
    uint64_t l2 = p->k * (bm / c->cluster_n + bn / c->cluster_m);
    uint64_t l1 = p->k * (bm + bn) + p->k * (tp_max_u64(64, bm) + bn) + tile;
    uint64_t out = tile * (p->accumulate ? 2 : 1);
    uint64_t l2_cycles, l1_cycles;
    if (!tp_mul_u64(&l2_cycles, l2 + out, c->blocks) ||
        !tp_mul_u64(&l1_cycles, l1 + out, c->blocks) || l1_cycles > INT64_MAX ||
        l2_cycles > INT64_MAX)
        return tp_fail(err, TP_E_UNSUPPORTED,
                       "m %llu, n %llu, k %llu: the planner's cost does not fit 63 bits",
                       (unsigned long long)p->m, (unsigned long long)p->n,
                       (unsigned long long)p->k);
    uint64_t cycles = tp_max_u64(l2_cycles / l2_rate, l1_cycles / (128 * p->sms));
    float efficiency = (float)c->blocks / (float)(c->waves * p->sms);
    float cost = (float)(int64_t)cycles / efficiency;
    bool idle = c->cluster_m * c->cluster_n > 1 && c->waves <= 1;
    c->cost = idle || cost >= 0x1p63f ? INT64_MAX : (int64_t)cost;
    return TP_OK;
}

static bool sm90_better(const struct tp_sched_config *a, const struct tp_sched_config *best)
{
    return a->cost < best->cost;
}

static enum tp_code sm90_add(const struct tp_sched_problem *p, uint64_t bm, uint64_t cm,
                             uint64_t cn, struct layouts *list, struct tp_err *err)
{
    uint64_t block_ns[16];
    size_t count = sm90_block_ns(p, block_ns);
    for (size_t i = 0; i < count; i++) {
        struct tp_sched_config *c = &list->config[list->count];
        *c = (struct tp_sched_config){.block_m = bm, .block_n = block_ns[i], .block_k = BLOCK_K,
                                      .cluster_m = cm, .cluster_n = cn, .sms = p->sms};
        sm90_pipeline(p, c);
        if (!sm90_legal(p, c))
            continue;
        enum tp_code code = tp_sched_waves(p, cost_groups(p), c, err);
        if (!code)
            code = sm90_cost(p, c, err);
        if (code)
            return code;
        list->count++;
    }
    return TP_OK;
}

static enum tp_code sm90_layouts(const struct tp_sched_problem *p, struct layouts *list,
                                 struct tp_err *err)
{
    static const uint64_t clusters[3][2] = {{1, 1}, {1, 2}, {2, 1}};
    uint64_t block_ms[8];
    size_t ms = sm90_block_ms(p, block_ms);
    for (size_t i = 0; i < 3; i++) {
        if (p->sms % (clusters[i][0] * clusters[i][1]) != 0)
            continue;
        for (size_t j = 0; j < ms; j++) {
            enum tp_code code =
                sm90_add(p, block_ms[j], clusters[i][0], clusters[i][1], list, err);
            if (code)
                return code;
        }
    }
    return TP_OK;
}

/* --- SM100 --- */

static void sm100_pipeline(const struct tp_sched_problem *p, struct tp_sched_config *c)
{
    uint64_t es = out_bytes(p);
    c->swizzle = tp_sched_swizzle(c->block_n, es, 16);
    uint64_t out = c->swap_ab ? 16 * c->block_n * es * 2
                              : tp_min_u64(128, c->block_m) * c->swizzle * 2;
    uint64_t extra = out + 808 + 4; /* barriers, tensor memory pointer */
    uint64_t stage = c->block_m / c->cluster_n * BLOCK_K + c->block_n / c->cluster_m * BLOCK_K +
                     512 * tp_ceil_div(c->block_m, 128) + 512 * tp_ceil_div(c->block_n, 128);
    c->stages = tp_min_u64((TP_SCHED_SMEM - extra) / stage, 32);
    c->smem = extra + c->stages * stage;
    c->threads = 256;
}

static bool sm100_legal(const struct tp_sched_problem *p, const struct tp_sched_config *c)
{
    if (c->block_m / c->cluster_n % 8 != 0 || c->block_n / c->cluster_m % 8 != 0)
        return false;
    if (tp_ceil_div(p->m, c->block_m) % c->cluster_m != 0 ||
        tp_ceil_div(p->n, c->block_n) % c->cluster_n != 0)
        return false;
    uint64_t columns = 2 * (c->swap_ab ? c->block_m : c->block_n) +
                       4 * tp_ceil_div(c->block_m, 128) + 4 * tp_ceil_div(c->block_n, 128);
    return columns <= TENSOR_MEMORY;
}

static bool sm100_better(const struct tp_sched_config *a, const struct tp_sched_config *best)
{
    if ((a->waves == 1) != (best->waves == 1))
        return a->waves == 1;
    if (a->cluster_m * a->cluster_n != best->cluster_m * best->cluster_n)
        return a->cluster_m * a->cluster_n > best->cluster_m * best->cluster_n;
    if (a->waves != best->waves)
        return a->waves < best->waves;
    if (a->last_wave != best->last_wave)
        return a->last_wave > best->last_wave;
    if (a->block_m + a->block_n != best->block_m + best->block_n)
        return a->block_m + a->block_n < best->block_m + best->block_n;
    return a->block_m * a->block_n < best->block_m * best->block_n;
}

static enum tp_code sm100_add(const struct tp_sched_problem *p, struct tp_sched_config config,
                              bool always, struct layouts *list, struct tp_err *err)
{
    config.block_k = BLOCK_K;
    config.sms = p->sms;
    config.cost = -1;
    if (!always && !sm100_legal(p, &config))
        return TP_OK;
    sm100_pipeline(p, &config);
    enum tp_code code = tp_sched_waves(p, cost_groups(p), &config, err);
    if (!code)
        list->config[list->count++] = config;
    return code;
}

/* The weight on the right: narrow tiles in m, any width in n. */
static enum tp_code sm100_straight(const struct tp_sched_problem *p, uint64_t cm,
                                   struct layouts *list, struct tp_err *err)
{
    uint64_t bm = p->m <= 32 ? 32 : p->m <= 64 ? 64 : 128;
    uint64_t last = p->k <= 256 ? 128 : 256;
    for (uint64_t bn = 16; bn <= last; bn += bn == 16 ? 16 : 32) {
        struct tp_sched_config c = {
            .block_m = bm, .block_n = bn, .cluster_m = cm, .cluster_n = 1};
        enum tp_code code = sm100_add(p, c, false, list, err);
        if (code)
            return code;
    }
    return TP_OK;
}

/* The weight on the left: 128 of n, any height in m. */
static enum tp_code sm100_swapped(const struct tp_sched_problem *p, uint64_t cn,
                                  struct layouts *list, struct tp_err *err)
{
    for (uint64_t bm = 16; bm <= 256; bm += 16) {
        struct tp_sched_config c = {
            .block_m = bm, .block_n = 128, .cluster_m = 1, .cluster_n = cn, .swap_ab = true};
        enum tp_code code = sm100_add(p, c, false, list, err);
        if (code)
            return code;
    }
    return TP_OK;
}

static enum tp_code sm100_layouts(const struct tp_sched_problem *p, struct layouts *list,
                                  struct tp_err *err)
{
    if (p->contiguous || p->masked) {
        bool pairs = tp_ceil_div(p->n, 128) % 2 == 0 && p->sms % 2 == 0;
        struct tp_sched_config c = {.block_m = CONTIGUOUS_ROWS, .block_n = 128, .cluster_m = 1,
                                    .cluster_n = pairs ? 2 : 1, .swap_ab = true};
        return sm100_add(p, c, true, list, err);
    }
    enum tp_code code = TP_OK;
    for (uint64_t cm = 1; !code && cm <= 2; cm++)
        if (p->sms % cm == 0)
            code = sm100_straight(p, cm, list, err);
    for (uint64_t cn = 1; !code && cn <= 2; cn++)
        if (p->sms % cn == 0)
            code = sm100_swapped(p, cn, list, err);
    return code;
}

enum tp_code tp_sched_plan_newest(const struct tp_sched_problem *p, size_t want,
                                  struct tp_sched_plan *plan, struct tp_err *err)
{
    if (p->contiguous && p->masked)
        return tp_fail(err, TP_E_USAGE, "a grouped GEMM is contiguous or masked, not both");
    if (p->arch == 10 && !p->one_d)
        return tp_fail(err, TP_E_USAGE, "SM100 has 1D1D kernels only, 1D2D was asked for");
    if (p->wgrad)
        return tp_fail(err, TP_E_USAGE, "the 2026 planner has no separate weight-gradient call");
    if (p->sms % 2 != 0) {
        snprintf(plan->refused, sizeof plan->refused,
                 "the number of SMs must be even, %llu is not", (unsigned long long)p->sms);
        return TP_OK;
    }
    struct layouts list = {0};
    enum tp_code code =
        p->arch == 9 ? sm90_layouts(p, &list, err) : sm100_layouts(p, &list, err);
    if (code)
        return code;
    tp_sched_rank(list.config, list.count, p->arch == 9 ? sm90_better : sm100_better, want,
                  plan);
    if (plan->count == 0)
        snprintf(plan->refused, sizeof plan->refused,
                 "no tile leaves room for enough pipeline stages in %d bytes of shared memory "
                 "(k = %llu)", TP_SCHED_SMEM, (unsigned long long)p->k);
    return TP_OK;
}
