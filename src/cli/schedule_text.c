/* The text form of a schedule: one line per shape and m, and below the table what
 * does not fit. Computes nothing.
 */
#include "cli/schedule_report.h"

#include "cli/escape.h"
#include "cli/report.h"

#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

enum { CELL = 64 };

const char *tp_schedule_kernel_name(enum tp_sched_kernel kernel)
{
    switch (kernel) {
    case TP_SCHED_DEEPGEMM_2025: return "deepgemm-2025";
    case TP_SCHED_DEEPGEMM: return "deepgemm";
    case TP_SCHED_W4A8: return "w4a8-cutlass";
    }
    return "?";
}

static const char *shape_text(char text[CELL], const struct tp_schedule_case *c)
{
    const struct tp_sched_problem *p = &c->problem;
    if (p->experts > 1)
        snprintf(text, CELL, "%llux%llux%llu", (ull)p->experts, (ull)p->n, (ull)p->k);
    else
        snprintf(text, CELL, "%llux%llu", (ull)p->n, (ull)p->k);
    return text;
}

static const char *kind_text(const struct tp_schedule_case *c)
{
    return c->problem.masked ? "masked" : c->problem.contiguous ? "contiguous" : "dense";
}

static const char *cut_text(char text[CELL], const struct tp_schedule_case *c)
{
    if (c->ranks == 1)
        return "-";
    if (c->cut == TP_SCHED_CUT_NONE)
        return "whole";
    snprintf(text, CELL, "%s/%u", c->cut == TP_SCHED_CUT_N ? "N" : "K", c->ranks);
    return text;
}

static const char *state_text(char text[CELL], const struct tp_schedule_case *c)
{
    size_t gates = 0, illegal = tp_sched_illegal(&c->checks);
    for (size_t i = 0; i < c->checks.count; i++)
        gates += !c->checks.check[i].pass && c->checks.check[i].level == TP_SCHED_GATE;
    if (illegal)
        snprintf(text, CELL, "ILLEGAL (%zu)", illegal);
    else if (gates)
        snprintf(text, CELL, "legal, not taken (%zu)", gates);
    else
        snprintf(text, CELL, "ok");
    return text;
}

static void number_or_dash(char text[CELL], uint64_t value)
{
    if (value)
        snprintf(text, CELL, "%llu", (ull)value);
    else
        snprintf(text, CELL, "-");
}

/* The columns that describe a configuration. */
enum { TILE, STAGES, CLUSTER, SWIZZLE, SMEM, WAVES, LAST, SMS, CONFIG_CELLS };

static void config_cells(char cells[CONFIG_CELLS][CELL], const struct tp_sched_problem *p,
                         const struct tp_sched_config *c)
{
    snprintf(cells[TILE], CELL, "%llux%llux%llu%s", (ull)c->block_m, (ull)c->block_n,
             (ull)c->block_k, c->swap_ab && !c->name ? " swap" : "");
    number_or_dash(cells[STAGES], c->stages);
    snprintf(cells[CLUSTER], CELL, "%llux%llu", (ull)c->cluster_m, (ull)c->cluster_n);
    number_or_dash(cells[SWIZZLE], c->swizzle);
    number_or_dash(cells[SMEM], c->smem);
    snprintf(cells[WAVES], CELL, "%llu", (ull)c->waves);
    snprintf(cells[LAST], CELL, "%.1f%%", 100.0 * (double)c->last_wave / (double)p->sms);
    snprintf(cells[SMS], CELL, "%llu", (ull)c->sms);
}

static void print_heads(const struct tp_schedule_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct tp_schedule_case *c = &cases[i];
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++)
            seen = cases[j].problem.kernel == c->problem.kernel && cases[j].gpu == c->gpu;
        if (!seen)
            printf("%s on %s: SM%u0, %llu of %u SMs, %.0f GB/s, %.0f TFLOPS fp8\n",
                   tp_schedule_kernel_name(c->problem.kernel), c->gpu->title,
                   (unsigned)c->gpu->arch, (ull)c->problem.sms, (unsigned)c->gpu->sms,
                   c->gpu->bandwidth / 1e9, c->gpu->fp8_flops / 1e12);
    }
}

/* Which weights have the shapes: shapes that are alike differ in how they are cut or stored. */
static void print_weights(const struct tp_schedule_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct tp_schedule_shape *shape = cases[i].shape;
        char text[CELL], more[CELL] = "";
        if (!shape->example || (i && cases[i - 1].shape == shape))
            continue;
        if (shape->count > 1)
            snprintf(more, sizeof more, " and %llu more", (ull)shape->count - 1);
        printf("  %s: ", shape_text(text, &cases[i]));
        tp_print_text(stdout, shape->example);
        printf("%s, %s\n", more, shape->format ? shape->format : "plain");
    }
}

static int print_cases(const struct tp_schedule_case *cases, size_t count)
{
    static const struct tp_column columns[] = {
        {"shape", true, false},  {"kind", false, false},   {"cut", false, false},
        {"m", true, false},      {"tile", false, false},   {"stages", true, false},
        {"cluster", true, false}, {"swizzle", true, false}, {"smem", true, false},
        {"waves", true, false},  {"last", true, false},    {"SMs", true, false},
        {"flop/B", true, false}, {"roofline", true, false}, {"bound", false, false},
        {"state", false, false},
    };
    enum { FIRST = 4, COLUMNS = sizeof columns / sizeof columns[0] };
    struct tp_table *table = tp_table_new(columns, COLUMNS);
    for (size_t i = 0; i < count; i++) {
        const struct tp_schedule_case *c = &cases[i];
        char shape[CELL], cut[CELL], m[CELL], flop[CELL], time[CELL], state[CELL];
        char cells[CONFIG_CELLS][CELL];
        const char *row[COLUMNS] = {shape_text(shape, c), kind_text(c), cut_text(cut, c), m};
        for (int j = 0; j < CONFIG_CELLS; j++)
            row[FIRST + j] = cells[j];
        if (c->plan.count)
            config_cells(cells, &c->problem, &c->plan.config[0]);
        else
            for (int j = 0; j < CONFIG_CELLS; j++)
                strcpy(cells[j], "-");
        snprintf(m, sizeof m, "%llu", (ull)c->problem.m);
        snprintf(flop, sizeof flop, "%.1f", c->cost.intensity);
        snprintf(time, sizeof time, "%.2f us", c->cost.seconds * 1e6);
        row[FIRST + CONFIG_CELLS] = flop;
        row[FIRST + CONFIG_CELLS + 1] = time;
        row[FIRST + CONFIG_CELLS + 2] =
            c->cost.memory_seconds >= c->cost.math_seconds ? "memory" : "math";
        row[FIRST + CONFIG_CELLS + 3] = state_text(state, c);
        tp_table_row(table, row);
    }
    return tp_table_end(table);
}

/* The failed check of c that says the same as `like`, or NULL. */
static const struct tp_sched_check *same_failure(const struct tp_schedule_case *c,
                                                 const struct tp_sched_check *like)
{
    for (size_t i = 0; i < c->checks.count; i++) {
        const struct tp_sched_check *check = &c->checks.check[i];
        if (!check->pass && strcmp(check->id, like->id) == 0 &&
            strcmp(check->reason, like->reason) == 0)
            return check;
    }
    return NULL;
}

/* Cases that differ in m only stand next to each other. */
static bool same_weight(const struct tp_schedule_case *a, const struct tp_schedule_case *b)
{
    return a->shape == b->shape && a->cut == b->cut;
}

static void print_failure(const struct tp_schedule_case *cases, size_t count, size_t at,
                          const struct tp_sched_check *check)
{
    static const char *const words[] = {
        [TP_SCHED_ASSERT] = "illegal", [TP_SCHED_SILENT] = "illegal, and the kernel does not check",
        [TP_SCHED_GATE] = "not taken"};
    const struct tp_schedule_case *c = &cases[at];
    char shape[CELL];
    printf("%s %s m=%llu", tp_schedule_kernel_name(c->problem.kernel), shape_text(shape, c),
           (ull)c->problem.m);
    for (size_t i = at + 1; i < count && same_weight(&cases[i], c); i++)
        if (same_failure(&cases[i], check))
            printf(",%llu", (ull)cases[i].problem.m);
    printf(": %s: %s: %s (check %s)\n", words[check->level], check->text, check->reason,
           check->id);
}

static void print_failures(const struct tp_schedule_case *cases, size_t count)
{
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        size_t begin = i;
        while (begin > 0 && same_weight(&cases[begin - 1], &cases[i]))
            begin--;
        for (size_t j = 0; j < cases[i].checks.count; j++) {
            const struct tp_sched_check *check = &cases[i].checks.check[j];
            bool told = check->pass;
            for (size_t k = begin; k < i && !told; k++)
                told = same_failure(&cases[k], check) != NULL;
            if (told)
                continue;
            if (first)
                putchar('\n');
            first = false;
            print_failure(cases, count, i, check);
        }
    }
}

static void print_launch(const struct tp_schedule_case *c)
{
    struct tp_sched_launch launch;
    if (c->problem.kernel != TP_SCHED_DEEPGEMM_2025 || c->plan.count == 0)
        return;
    tp_sched_launch_2025(&c->problem, &c->plan.config[0], &launch);
    printf("  launch: %llu threads, grid %llu, cluster %llu; TMA boxes A %llux%llu, B %llux%llu "
           "(swizzle 128), scales %llux1 of %llux%llu, D %llux%llu (swizzle %llu)\n",
           (ull)launch.threads, (ull)launch.grid, (ull)launch.cluster, (ull)launch.a.outer,
           (ull)launch.a.inner, (ull)launch.b.outer, (ull)launch.b.inner,
           (ull)launch.scales_a.inner, (ull)launch.scales_a_rows, (ull)launch.scales_a_columns,
           (ull)launch.d.outer, (ull)launch.d.inner, (ull)launch.d.swizzle);
    printf("  compiled for: %s\n", launch.jit_key);
}

static const char *order_text(const struct tp_sched_problem *p)
{
    if (p->kernel == TP_SCHED_W4A8)
        return "vLLM's heuristic looks at m (dense: n and k too) only; the others by cost = "
               "waves x tile area";
    if (p->kernel == TP_SCHED_DEEPGEMM_2025)
        return "fewest waves, then fullest last wave, then the tie rules";
    if (p->arch == 10)
        return p->contiguous || p->masked
                   ? "grouped kernels have one layout"
                   : "one wave, then larger cluster, fewer waves, fuller last wave, smaller tile";
    return "lowest cost = cycles of the busier of L1 and L2 / wave efficiency";
}

static int print_ranked(const struct tp_schedule_case *c)
{
    static const struct tp_column columns[] = {
        {"#", true, false},      {"schedule", false, false}, {"tile", false, false},
        {"stages", true, false}, {"cluster", true, false},   {"swizzle", true, false},
        {"smem", true, false},   {"waves", true, false},     {"last", true, false},
        {"SMs", true, false},    {"cost", true, false},
    };
    enum { FIRST = 2, COLUMNS = sizeof columns / sizeof columns[0] };
    char shape[CELL];
    printf("\n%s %s m=%llu: %s\n", tp_schedule_kernel_name(c->problem.kernel),
           shape_text(shape, c), (ull)c->problem.m, order_text(&c->problem));
    if (c->plan.count == 0) {
        printf("  refused: %s\n", c->plan.refused);
        return TP_OK;
    }
    struct tp_table *table = tp_table_new(columns, COLUMNS);
    for (size_t i = 0; i < c->plan.count; i++) {
        const struct tp_sched_config *config = &c->plan.config[i];
        char cells[CONFIG_CELLS][CELL], rank[CELL], cost[CELL] = "-";
        const char *row[COLUMNS] = {rank, config->name ? config->name : "-"};
        config_cells(cells, &c->problem, config);
        for (int j = 0; j < CONFIG_CELLS; j++)
            row[FIRST + j] = cells[j];
        snprintf(rank, sizeof rank, "%zu", i + 1);
        if (config->cost == INT64_MAX)
            snprintf(cost, sizeof cost, "never");
        else if (config->cost >= 0)
            snprintf(cost, sizeof cost, "%lld", (long long)config->cost);
        row[COLUMNS - 1] = cost;
        tp_table_row(table, row);
    }
    int status = tp_table_end(table);
    print_launch(c);
    return status;
}

int tp_schedule_print_text(const struct tp_schedule_case *cases, size_t count, bool why)
{
    print_heads(cases, count);
    print_weights(cases, count);
    int status = print_cases(cases, count);
    if (!status)
        print_failures(cases, count);
    for (size_t i = 0; why && !status && i < count; i++)
        status = print_ranked(&cases[i]);
    return status;
}
