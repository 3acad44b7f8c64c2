/* The way in: range checks, the choice among the planners and their checks, and the
 * roofline. It knows no consumer's rules; those are in schedule_deepgemm.c,
 * schedule_deepgemm_newest.c and schedule_w4a8.c.
 *
 * Invariant: a planner is only called with numbers of 1..2^31-1, so that sums of
 * a few of them, and products of two, fit 64 bits without a check.
 */
#include "pack/schedule/schedule.h"

#include "base/num.h"

#include <string.h>

static enum tp_code check_range(const char *name, uint64_t value, uint64_t min,
                                struct tp_err *err)
{
    if (value >= min && value <= INT32_MAX)
        return TP_OK;
    enum tp_code code =
        tp_fail(err, TP_E_USAGE, "%s is %llu, but a kernel takes %llu..2147483647", name,
                (unsigned long long)value, (unsigned long long)min);
    tp_err_hint(err, "give a number that the kernel's C int can hold");
    return code;
}

static enum tp_code check_problem(const struct tp_sched_problem *p, struct tp_err *err)
{
    const struct {
        const char *name;
        uint64_t value, min;
    } numbers[] = {{"m", p->m, 1},
                   {"n", p->n, 1},
                   {"k", p->k, p->kernel == TP_SCHED_W4A8}, /* a group may be empty */
                   {"num_groups", p->groups, 1},
                   {"experts", p->experts, 1},
                   {"num_sms", p->sms, 1}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (check_range(numbers[i].name, numbers[i].value, numbers[i].min, err))
            return TP_E_USAGE;
    if (p->arch != 9 && p->arch != 10)
        return tp_fail(err, TP_E_USAGE, "arch is %u, but the planners know SM90 (9) and SM100 (10)",
                       (unsigned)p->arch);
    return TP_OK;
}

enum tp_code tp_sched_plan(const struct tp_sched_problem *problem, size_t want,
                           struct tp_sched_plan *plan, struct tp_err *err)
{
    memset(plan, 0, sizeof *plan);
    enum tp_code code = check_problem(problem, err);
    if (code)
        return code;
    if (want < 1)
        want = 1;
    if (want > TP_SCHED_RANKED)
        want = TP_SCHED_RANKED;
    switch (problem->kernel) {
    case TP_SCHED_DEEPGEMM_2025:
        return tp_sched_plan_2025(problem, want, plan, err);
    case TP_SCHED_DEEPGEMM:
        return tp_sched_plan_newest(problem, want, plan, err);
    case TP_SCHED_W4A8:
        return tp_sched_plan_w4a8(problem, want, plan, err);
    }
    return tp_fail(err, TP_E_USAGE, "unknown kernel %d", (int)problem->kernel);
}

void tp_sched_checks(const struct tp_sched_problem *problem, uint64_t device_sms,
                     const struct tp_sched_plan *plan, struct tp_sched_checks *checks)
{
    checks->count = 0;
    if (problem->kernel == TP_SCHED_W4A8) {
        struct tp_sched_w4a8 ops;
        tp_sched_w4a8_operands(problem, &ops);
        tp_sched_checks_w4a8(&ops, checks);
        return;
    }
    struct tp_sched_operands ops;
    tp_sched_operands(problem, &ops);
    ops.device_sms = device_sms;
    if (problem->kernel == TP_SCHED_DEEPGEMM_2025)
        tp_sched_checks_2025(problem, &ops, plan, checks);
    else
        tp_sched_checks_newest(problem, &ops, plan, checks);
    tp_sched_checks_gates(problem, &ops, checks);
}

/* Weights, activations and result of one GEMM whose rows are already multiplied
 * out, in bytes: the formats' own arithmetic, in double because it is a sum of
 * products of three numbers of 31 bits. */
static double bytes_w4a8(const struct tp_sched_problem *p, double weights)
{
    double m = (double)p->m, n = (double)p->n, k = (double)p->k;
    double per_weight = n * k / 2 + n * (double)tp_ceil_div(p->k, 128) * 8 + n * 4;
    return weights * per_weight + m * k + m * 4 + m * n * 2;
}

static double bytes_deepgemm(const struct tp_sched_problem *p, double rows, double weights)
{
    double n = (double)p->n, k = (double)p->k;
    double columns = (double)tp_ceil_div(p->k, 128) * 4; /* bytes of fp32 scales along k */
    double weight_rows = (double)tp_ceil_div(p->n, 128);
    if (p->arch == 10) { /* packed powers of two, one byte per row and 128 of k */
        columns = (double)tp_ceil_div(p->k, 512) * 4;
        weight_rows = n;
    }
    if (p->wgrad || (p->arch == 9 && p->one_d))
        weight_rows = n; /* both operands have 1 x 128 scales */
    double result = rows * n * (p->fp32_out ? 4 : 2) * (p->accumulate || p->wgrad ? 2 : 1);
    return weights * (n * k + weight_rows * columns) + rows * (k + columns) + result;
}

void tp_sched_roofline(const struct tp_sched_problem *p, double bandwidth, double peak,
                       struct tp_sched_cost *cost)
{
    double rows = p->masked ? (double)p->m * (double)p->groups : (double)p->m;
    uint64_t segments = p->kernel == TP_SCHED_W4A8 ? p->m : tp_ceil_div(p->m, 128);
    uint64_t weights = p->masked ? p->groups : tp_min_u64(p->experts, segments);
    cost->flops = 2 * rows * (double)p->n * (double)p->k;
    cost->bytes = p->kernel == TP_SCHED_W4A8 ? bytes_w4a8(p, (double)weights)
                                             : bytes_deepgemm(p, rows, (double)weights);
    cost->intensity = cost->flops / cost->bytes;
    cost->memory_seconds = cost->bytes / bandwidth;
    cost->math_seconds = cost->flops / peak;
    cost->seconds = cost->memory_seconds > cost->math_seconds ? cost->memory_seconds
                                                              : cost->math_seconds;
}
