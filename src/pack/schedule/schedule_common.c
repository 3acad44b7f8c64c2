/* Waves, swizzles, ranking and the list of checks. */
#include "pack/schedule/schedule_common.h"

#include "base/num.h"

#include <stdarg.h>
#include <stdio.h>

enum tp_code tp_sched_waves(const struct tp_sched_problem *problem, uint64_t groups,
                            struct tp_sched_config *config, struct tp_err *err)
{
    uint64_t rows = tp_ceil_div(problem->m, config->block_m);
    uint64_t columns = tp_ceil_div(problem->n, config->block_n);
    uint64_t blocks;
    if (!tp_mul_u64(&blocks, rows * columns, groups) || blocks > INT64_MAX)
        return tp_fail(err, TP_E_UNSUPPORTED, "the number of output tiles does not fit 63 bits");
    config->blocks = blocks;
    config->waves = tp_ceil_div(blocks, problem->sms);
    uint64_t rest = blocks % problem->sms;
    config->last_wave = rest ? rest : problem->sms;
    return TP_OK;
}

uint64_t tp_sched_swizzle(uint64_t inner, uint64_t element, uint64_t min)
{
    for (uint64_t size = 128; size >= min; size /= 2)
        if (inner * element % size == 0)
            return size;
    return 0;
}

void tp_sched_rank(const struct tp_sched_config *all, size_t count, tp_sched_better better,
                   size_t want, struct tp_sched_plan *plan)
{
    size_t taken[TP_SCHED_RANKED];
    plan->count = 0;
    while (plan->count < want) {
        const struct tp_sched_config *best = NULL;
        for (size_t i = 0; i < count; i++) {
            bool free_one = true;
            for (size_t t = 0; t < plan->count; t++)
                free_one = free_one && taken[t] != i;
            if (free_one && (!best || better(&all[i], best)))
                best = &all[i];
        }
        if (!best)
            return;
        taken[plan->count] = (size_t)(best - all);
        plan->config[plan->count++] = *best;
    }
}

void tp_sched_check_add(struct tp_sched_checks *checks, const char *id,
                        enum tp_sched_level level, const char *text, bool pass,
                        const char *fmt, ...)
{
    if (checks->count == TP_SCHED_CHECKS)
        return;
    struct tp_sched_check *check = &checks->check[checks->count++];
    check->id = id;
    check->text = text;
    check->level = level;
    check->pass = pass;
    va_list args;
    va_start(args, fmt);
    vsnprintf(check->reason, sizeof check->reason, fmt, args);
    va_end(args);
}

size_t tp_sched_illegal(const struct tp_sched_checks *checks)
{
    size_t count = 0;
    for (size_t i = 0; i < checks->count; i++)
        count += !checks->check[i].pass && checks->check[i].level != TP_SCHED_GATE;
    return count;
}
