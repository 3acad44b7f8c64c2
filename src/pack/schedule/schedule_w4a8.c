/* vLLM's W4A8 kernels: the schedules that exist, the one its heuristic takes, and
 * the constraints on a weight. The weight's bytes are the same for all schedules.
 * Names and bounds: vLLM csrc/quantization/cutlass_w4a8, w4a8_grouped_mm_entry.cu
 * (the choice is made in fused_moe/cutlass_moe.py) and w4a8_mm_entry.cu.
 *
 * Tiles are printed as the kernels name them, n first; `block_m` here is the rows
 * of activations. Pipeline depth and shared memory are chosen when CUTLASS is
 * compiled and are left 0.
 */
#include "pack/schedule/schedule_planners.h"

#include "base/num.h"

#include <string.h>

typedef unsigned long long ull;

struct schedule {
    const char *name;
    uint64_t n, m, cluster; /* the cluster stands along n */
};

static const struct schedule grouped[] = {
    {"Kernel_128x16_1x1x1_Coop", 128, 16, 1},   {"Kernel_128x16_2x1x1_Coop", 128, 16, 2},
    {"Kernel_256x16_1x1x1_Coop", 256, 16, 1},   {"Kernel_256x16_2x1x1_Coop", 256, 16, 2},
    {"Kernel_256x32_1x1x1_Coop", 256, 32, 1},   {"Kernel_256x32_2x1x1_Coop", 256, 32, 2},
    {"Kernel_256x64_1x1x1_Coop", 256, 64, 1},   {"Kernel_256x64_2x1x1_Coop", 256, 64, 2},
    {"Kernel_256x128_1x1x1_Coop", 256, 128, 1}, {"Kernel_256x128_2x1x1_Coop", 256, 128, 2},
    {"Kernel_128x256_2x1x1_Coop", 128, 256, 2},
};

static const struct schedule dense[] = {
    {"256x128_1x1x1", 256, 128, 1}, {"256x64_1x1x1", 256, 64, 1},
    {"256x32_1x1x1", 256, 32, 1},   {"256x16_1x1x1", 256, 16, 1},
    {"128x256_2x1x1", 128, 256, 2}, {"128x256_1x1x1", 128, 256, 1},
    {"128x128_1x1x1", 128, 128, 1}, {"128x64_1x1x1", 128, 64, 1},
    {"128x32_1x1x1", 128, 32, 1},   {"128x16_1x1x1", 128, 16, 1},
};

enum { GROUPED = sizeof grouped / sizeof grouped[0], DENSE = sizeof dense / sizeof dense[0] };

/* One line of a heuristic: the first line whose bounds hold is taken. */
struct rule {
    uint64_t m, n, k; /* upper bounds; 0: any */
    const char *name;
};

static const struct rule grouped_rules[] = {
    {16, 0, 0, "Kernel_128x16_2x1x1_Coop"},   {32, 0, 0, "Kernel_256x32_1x1x1_Coop"},
    {64, 0, 0, "Kernel_256x64_1x1x1_Coop"},   {128, 0, 0, "Kernel_256x128_2x1x1_Coop"},
    {0, 0, 0, "Kernel_128x256_2x1x1_Coop"},
};

static const struct rule dense_rules[] = {
    {16, 0, 0, "128x16_1x1x1"},       {32, 0, 0, "128x32_1x1x1"},
    {64, 8192, 8192, "128x32_1x1x1"}, {64, 0, 0, "128x64_1x1x1"},
    {128, 8192, 0, "128x64_1x1x1"},   {128, 0, 0, "128x128_1x1x1"},
    {256, 4096, 0, "128x64_1x1x1"},   {256, 8192, 0, "128x128_1x1x1"},
    {256, 0, 0, "128x256_1x1x1"},     {512, 4096, 0, "128x128_1x1x1"},
    {1024, 0, 0, "128x256_1x1x1"},    {0, 0, 0, "128x256_2x1x1"},
};

/* One shape was tuned on its own. */
static const struct rule dense_18432x16384[] = {
    {16, 0, 0, "256x16_1x1x1"},
    {32, 0, 0, "256x32_1x1x1"},
    {64, 0, 0, "256x64_1x1x1"},
    {128, 0, 0, "256x128_1x1x1"},
};

static const char *first_match(const struct rule *rules, size_t count, uint64_t m, uint64_t n,
                               uint64_t k)
{
    for (size_t i = 0; i < count; i++)
        if ((!rules[i].m || m <= rules[i].m) && (!rules[i].n || n <= rules[i].n) &&
            (!rules[i].k || k <= rules[i].k))
            return rules[i].name;
    return NULL;
}

static const char *heuristic(const struct tp_sched_problem *p, bool is_grouped, uint64_t m)
{
    if (is_grouped)
        return first_match(grouped_rules, sizeof grouped_rules / sizeof grouped_rules[0], m,
                           p->n, p->k);
    const char *name = NULL;
    if (p->n == 18432 && p->k == 16384)
        name = first_match(dense_18432x16384,
                           sizeof dense_18432x16384 / sizeof dense_18432x16384[0], m, p->n, p->k);
    return name ? name
                : first_match(dense_rules, sizeof dense_rules / sizeof dense_rules[0], m, p->n,
                              p->k);
}

/* The heuristic ranks nothing, so the schedules behind the chosen one stand by
 * tile area times waves: what each SM computes, padding included. */
static bool better(const struct tp_sched_config *a, const struct tp_sched_config *best)
{
    return a->cost < best->cost;
}

enum tp_code tp_sched_plan_w4a8(const struct tp_sched_problem *p, size_t want,
                                struct tp_sched_plan *plan, struct tp_err *err)
{
    bool is_grouped = p->contiguous || p->experts > 1;
    if (p->masked)
        return tp_refuse(err, TP_E_USAGE, "the grouped kernel takes contiguous groups",
                         "the W4A8 kernels have no masked form");
    const struct schedule *table = is_grouped ? grouped : dense;
    size_t count = is_grouped ? GROUPED : DENSE;
    /* The heuristic divides the rows by the experts; the tiles are counted as if
     * they were spread evenly over the experts that can have one. */
    uint64_t per_expert = p->m / p->experts;
    uint64_t active = tp_min_u64(p->experts, p->m);
    struct tp_sched_problem each = *p;
    each.m = tp_ceil_div(p->m, active);
    const char *chosen = heuristic(p, is_grouped, is_grouped ? per_expert : p->m);
    struct tp_sched_config first = {0}, others[GROUPED];
    size_t rest = 0;
    for (size_t i = 0; i < count; i++) {
        const struct schedule *s = &table[i];
        struct tp_sched_config c = {.name = s->name, .block_m = s->m, .block_n = s->n,
                                    .block_k = 128, .cluster_m = 1, .cluster_n = s->cluster,
                                    .swap_ab = true, .threads = 384, .sms = p->sms};
        enum tp_code code = tp_sched_waves(&each, active, &c, err);
        if (code)
            return code;
        c.cost = (int64_t)tp_min_u64(c.waves, INT32_MAX) * (int64_t)(s->m * s->n);
        if (strcmp(c.name, chosen) == 0)
            first = c;
        else
            others[rest++] = c;
    }
    tp_sched_rank(others, rest, better, want - 1, plan);
    memmove(&plan->config[1], &plan->config[0], plan->count * sizeof plan->config[0]);
    plan->config[0] = first;
    plan->count++;
    return TP_OK;
}

void tp_sched_w4a8_operands(const struct tp_sched_problem *p, struct tp_sched_w4a8 *ops)
{
    *ops = (struct tp_sched_w4a8){
        .grouped = p->contiguous || p->experts > 1,
        .arch = p->arch,
        .e = p->experts,
        .n = p->n,
        .k = p->k,
        .group_size = 128,
        .bits = 4,
        .symmetric = true,
        .contiguous = true,
        .weight = TP_I32,
        .group_scale = TP_F8_E4M3,
        .channel_scale = TP_F32,
        .token_scale = TP_F32,
        .activation = TP_F8_E4M3,
        .out = p->fp32_out ? TP_F32 : TP_BF16,
        .offsets = TP_I64,
    };
}

static void check_encode(const struct tp_sched_w4a8 *o, struct tp_sched_checks *checks)
{
    enum tp_sched_level level = o->grouped ? TP_SCHED_ASSERT : TP_SCHED_SILENT;
    tp_sched_check_add(checks, "f.1", TP_SCHED_ASSERT, "the packed weight is I32 and contiguous",
                       o->weight == TP_I32 && o->contiguous, "%s, %s", tp_dtype_name(o->weight),
                       o->contiguous ? "contiguous" : "not contiguous");
    tp_sched_check_add(checks, "f.2", level, "K % 256 == 0 (else writes out of bounds)",
                       o->k % 256 == 0, "K %llu, K %% 256 = %llu", (ull)o->k,
                       (ull)(o->k % 256));
    tp_sched_check_add(checks, "f.3", level, "N % 16 == 0 (else writes out of bounds)",
                       o->n % 16 == 0, "N %llu, N %% 16 = %llu", (ull)o->n, (ull)(o->n % 16));
    uint64_t size = 0;
    bool fits = tp_mul_u64(&size, o->n, o->k);
    if (!o->grouped) {
        tp_sched_check_add(checks, "f.4", TP_SCHED_ASSERT, "(N * K) % 32 == 0",
                           fits && size % 32 == 0, "N * K = %llu", (ull)size);
        tp_sched_check_add(checks, "f.5", TP_SCHED_SILENT, "N * K fits an int: <= 2147483647",
                           fits && size <= INT32_MAX, "N * K = %llu", (ull)size);
    }
    tp_sched_check_add(checks, "f.6", TP_SCHED_ASSERT, "group scales are F8_E4M3, contiguous",
                       o->group_scale == TP_F8_E4M3, "%s", tp_dtype_name(o->group_scale));
}

static void check_linear(const struct tp_sched_w4a8 *o, struct tp_sched_checks *checks)
{
    tp_sched_check_add(checks, "f.7", TP_SCHED_GATE,
                       "vLLM's linear layer wants K % 128 == 0 and N % 128 == 0 per rank",
                       o->k % 128 == 0 && o->n % 128 == 0, "K %% 128 = %llu, N %% 128 = %llu",
                       (ull)(o->k % 128), (ull)(o->n % 128));
}

static void check_grouped(const struct tp_sched_w4a8 *o, struct tp_sched_checks *checks)
{
    tp_sched_check_add(checks, "f.8", TP_SCHED_GATE,
                       "vLLM's MoE layer wants hidden and intermediate size % 256 == 0",
                       o->k % 256 == 0 && o->n % 256 == 0, "K %% 256 = %llu, N %% 256 = %llu",
                       (ull)(o->k % 256), (ull)(o->n % 256));
    tp_sched_check_add(checks, "f.9", TP_SCHED_ASSERT, "at most 1024 experts", o->e <= 1024,
                       "%llu experts", (ull)o->e);
    tp_sched_check_add(checks, "f.10", TP_SCHED_ASSERT, "expert_offsets are I64",
                       o->offsets == TP_I64, "%s", tp_dtype_name(o->offsets));
}

void tp_sched_checks_w4a8(const struct tp_sched_w4a8 *o, struct tp_sched_checks *checks)
{
    check_encode(o, checks);
    if (o->grouped)
        check_grouped(o, checks);
    else
        check_linear(o, checks);
    tp_sched_check_add(checks, "f.11", TP_SCHED_ASSERT,
                       "A is F8_E4M3, out BF16, token and channel scales F32",
                       o->activation == TP_F8_E4M3 && o->out == TP_BF16 &&
                           o->token_scale == TP_F32 && o->channel_scale == TP_F32,
                       "A %s, out %s, scales %s and %s", tp_dtype_name(o->activation),
                       tp_dtype_name(o->out), tp_dtype_name(o->token_scale),
                       tp_dtype_name(o->channel_scale));
    tp_sched_check_add(checks, "f.12", TP_SCHED_SILENT, "group size is K or a multiple of 128",
                       o->group_size == o->k || (o->group_size && o->group_size % 128 == 0),
                       "group size %llu, K %llu", (ull)o->group_size, (ull)o->k);
    tp_sched_check_add(checks, "f.13", TP_SCHED_GATE,
                       "vLLM wants int4, symmetric, group 128, no act-order",
                       o->bits == 4 && o->symmetric && o->group_size == 128 && !o->act_order,
                       "int%u, %s, group %llu, %s", (unsigned)o->bits,
                       o->symmetric ? "symmetric" : "asymmetric", (ull)o->group_size,
                       o->act_order ? "act-order" : "no act-order");
    tp_sched_check_add(checks, "f.14", TP_SCHED_ASSERT, "the device has to be SM90", o->arch == 9,
                       "SM%u0", (unsigned)o->arch);
}
