/* DeepGEMM's planner of May 2025 (SM90): the tile is chosen by waves and the use
 * of the last wave, then stages and multicast follow from it. The entry's checks
 * are in schedule_checks.c; the planner of 2026 is in schedule_deepgemm_newest.c.
 *
 * Invariant: the order of the candidates is the consumer's, because "better" is
 * not a total order and the scan order decides ties.
 */
#include "pack/schedule/schedule_planners.h"

#include "base/num.h"

#include <stdio.h>

enum { MAX_TILES = 64, BLOCK_K = 128 };

/* The tile widths in the order of the scan; returns how many. */
static size_t tile_widths(const struct tp_sched_problem *p, uint64_t widths[MAX_TILES])
{
    size_t count = 0;
    for (uint64_t bn = 16; bn <= 128; bn += 8)
        widths[count++] = bn;
    widths[count++] = p->wgrad ? 136 : 144;
    widths[count++] = p->wgrad ? 152 : 160;
    if (!p->fp32_out)
        return count;
    size_t kept = 0; /* fp32 results: odd multiples of 8 avoid bank conflicts */
    for (size_t i = 0; i < count; i++)
        if (widths[i] % 16 == 8)
            widths[kept++] = widths[i];
    return kept;
}

static bool better(const struct tp_sched_config *a, const struct tp_sched_config *best)
{
    if (a->waves != best->waves)
        return a->waves < best->waves;
    if (a->last_wave != best->last_wave)
        return a->last_wave > best->last_wave;
    return (a->block_m == best->block_m && a->block_n < best->block_n) ||
           (a->block_n == best->block_n && a->block_m < best->block_m) ||
           (a->block_m != best->block_m && a->block_n > best->block_n);
}

/* Columns added to an unswizzled output tile in shared memory; 0 for every tile
 * that the planner can choose, kept because the consumer computes it. */
static uint64_t tile_padding(uint64_t bn)
{
    int64_t pad = (4 - (int64_t)(bn * 2 / 4)) % 8;
    return (uint64_t)(pad < 0 ? pad + 8 : pad) * 4 / 2;
}

static uint64_t shared_memory(const struct tp_sched_problem *p, const struct tp_sched_config *c,
                              uint64_t stages)
{
    uint64_t bm = c->block_m, bn = c->block_n;
    uint64_t out = bm * (bn + c->padding) * (p->fp32_out ? 4 : 2);
    uint64_t weight_scales = p->wgrad ? tp_ceil_div(bn * 4, 128) * 128 : 0;
    uint64_t stage = bm * BLOCK_K + bm * 4 + bn * BLOCK_K + weight_scales;
    uint64_t column = p->wgrad ? 0 : tp_ceil_div(p->k, BLOCK_K) * 4;
    uint64_t scales = tp_ceil_div(column * (BLOCK_K % bn == 0 ? 1 : 2), 8) * 8;
    return out + stages * stage + scales + stages * 16;
}

/* The deepest pipeline that fits; leaves stages at 0 when none does. */
static void choose_stages(const struct tp_sched_problem *p, struct tp_sched_config *c)
{
    uint64_t bn = c->block_n;
    bool unrolled = BLOCK_K % bn != 0 && BLOCK_K / tp_gcd_u64(BLOCK_K, bn) <= 4;
    uint64_t max = unrolled ? 4 : 8;
    max = tp_min_u64(max, tp_max_u64(p->k / BLOCK_K, 1));
    c->swizzle = tp_sched_swizzle(bn, 2, 32);
    c->padding = c->swizzle ? 0 : tile_padding(bn);
    for (uint64_t stages = max; stages >= 1; stages--) {
        c->smem = shared_memory(p, c, stages);
        if (c->smem <= TP_SCHED_SMEM) {
            c->stages = stages;
            return;
        }
    }
}

static void choose_multicast(const struct tp_sched_problem *p, struct tp_sched_config *c)
{
    bool pairs = p->sms % 2 == 0;
    bool on_a = pairs && (!p->masked || tp_ceil_div(p->n, c->block_n) % 2 == 0);
    bool on_b = pairs && !p->masked;
    c->multicast_on_a = true;
    c->cluster_m = 1;
    c->cluster_n = 1;
    if (p->m < 512 || (!on_a && !on_b))
        return;
    bool a_first = c->block_m > c->block_n;
    c->multicast_on_a = a_first ? on_a : !on_b;
    if (c->multicast_on_a)
        c->cluster_n = 2; /* two neighbours along n share a block of A */
    else
        c->cluster_m = 2;
}

static void finish(const struct tp_sched_problem *p, struct tp_sched_config *c)
{
    choose_stages(p, c);
    choose_multicast(p, c);
    uint64_t even = tp_ceil_div(c->blocks, c->waves);
    c->sms = tp_round_up(even, c->cluster_m * c->cluster_n);
    c->threads = (c->block_m == 64 ? 1 : 2) * 128 + 128;
}

/* Appends the tiles of one block_m in the order of the scan. */
static enum tp_code add_tiles(const struct tp_sched_problem *p, uint64_t bm,
                              struct tp_sched_config *tiles, size_t *count, struct tp_err *err)
{
    uint64_t widths[MAX_TILES];
    size_t width_count = tile_widths(p, widths);
    for (size_t i = 0; i < width_count; i++) {
        if (bm > 128 && widths[i] > 128)
            continue;
        struct tp_sched_config *c = &tiles[*count];
        *c = (struct tp_sched_config){
            .block_m = bm, .block_n = widths[i], .block_k = BLOCK_K, .cost = -1};
        enum tp_code code = tp_sched_waves(p, p->groups, c, err);
        if (code)
            return code;
        ++*count;
    }
    return TP_OK;
}

enum tp_code tp_sched_plan_2025(const struct tp_sched_problem *p, size_t want,
                                struct tp_sched_plan *plan, struct tp_err *err)
{
    struct tp_sched_config tiles[MAX_TILES];
    size_t count = 0;
    uint64_t first = p->contiguous ? 128 : 64;
    uint64_t last = p->contiguous || p->fp32_out ? 128 : 256;
    for (uint64_t bm = first; bm <= last; bm *= 2) {
        enum tp_code code = add_tiles(p, bm, tiles, &count, err);
        if (code)
            return code;
    }
    tp_sched_rank(tiles, count, better, want, plan);
    for (size_t i = 0; i < plan->count; i++)
        finish(p, &plan->config[i]);
    if (plan->config[0].stages == 0) {
        snprintf(plan->refused, sizeof plan->refused,
                 "no pipeline depth fits: tile %llux%llu needs %llu bytes of shared memory with "
                 "one stage, %d exist (k = %llu is too long for this tile)",
                 (unsigned long long)plan->config[0].block_m,
                 (unsigned long long)plan->config[0].block_n,
                 (unsigned long long)plan->config[0].smem, TP_SCHED_SMEM,
                 (unsigned long long)p->k);
        plan->count = 0;
    }
    return TP_OK;
}

void tp_sched_launch_2025(const struct tp_sched_problem *p, const struct tp_sched_config *c,
                          struct tp_sched_launch *launch)
{
    uint64_t k_blocks = tp_ceil_div(p->k, BLOCK_K);
    *launch = (struct tp_sched_launch){
        .threads = c->threads,
        .grid = c->sms,
        .cluster = c->cluster_m * c->cluster_n,
        .block_k = BLOCK_K,
        .a = {BLOCK_K, c->block_m, 128},
        .b = {BLOCK_K, c->block_n, 128},
        .scales_a = {c->block_m, 1, 0},
        .d = {c->swizzle ? c->swizzle / 2 : c->block_n, c->block_m, c->swizzle},
        .scales_a_rows = tp_round_up(p->m, 4),
        .scales_a_columns = k_blocks * (p->masked ? p->groups : 1),
        .last_stages = p->wgrad && c->stages ? k_blocks % c->stages : 0,
    };
    int length = snprintf(
        launch->jit_key, sizeof launch->jit_key,
        "n=%llu k=%llu block_m=%llu block_n=%llu swizzle=%llu padding=%llu stages=%llu "
        "multicast=%llu on_a=%d",
        (unsigned long long)p->n,
        (unsigned long long)(p->contiguous || p->masked ? p->k : k_blocks * BLOCK_K),
        (unsigned long long)c->block_m, (unsigned long long)c->block_n,
        (unsigned long long)c->swizzle, (unsigned long long)c->padding,
        (unsigned long long)c->stages, (unsigned long long)launch->cluster, c->multicast_on_a);
    if ((p->contiguous || p->masked) && length > 0 && (size_t)length < sizeof launch->jit_key)
        snprintf(launch->jit_key + length, sizeof launch->jit_key - (size_t)length,
                 " groups=%llu type=%s", (unsigned long long)p->experts,
                 p->contiguous ? "contiguous" : "masked");
}
