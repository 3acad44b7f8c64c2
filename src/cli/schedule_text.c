/* The text form of a schedule: one line per shape and m, and below the table what
 * does not fit. Computes nothing.
 */
#include "cli/schedule_report.h"

#include "cli/report.h"
#include "cli/table.h"

#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

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
        char text[TP_SHAPE_TEXT], more[40] = "";
        if (!shape->example || (i && cases[i - 1].shape == shape))
            continue;
        if (shape->count > 1)
            snprintf(more, sizeof more, " and %llu more", (ull)shape->count - 1);
        printf("  %s: ", tp_schedule_shape(text, &cases[i]));
        tp_print_text(stdout, shape->example);
        printf("%s, %s\n", more, shape->format ? shape->format : "plain");
    }
}

static int print_cases(const struct tp_schedule *all)
{
    static const struct tp_field fields[] = {
        {"shape", "shape", TP_RIGHT},          {"kind", "kind", TP_LEFT},
        {"cut", "cut_", TP_LEFT},              {"m", "m", TP_RIGHT},
        {"tile", "plan.tile", TP_LEFT},        {"stages", "plan.stages", TP_RIGHT},
        {"cluster", "plan.cluster", TP_RIGHT}, {"swizzle", "plan.swizzle_", TP_RIGHT},
        {"smem", "plan.smem", TP_RIGHT},       {"waves", "plan.waves", TP_RIGHT},
        {"last", "plan.last", TP_RIGHT},       {"SMs", "plan.sms", TP_RIGHT},
        {"flop/B", "roofline.flops_per_byte %.1f", TP_RIGHT},
        {"roofline", "roofline.us %.2f us", TP_RIGHT},
        {"bound", "roofline.bound", TP_LEFT},  {"state", "state", TP_LEFT},
    };
    return tp_table_print(fields, sizeof fields / sizeof *fields, "schedules",
                          tp_list("schedules", all->count, tp_schedule_put, all));
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
    char shape[TP_SHAPE_TEXT];
    printf("%s %s m=%llu", tp_schedule_kernel_name(c->problem.kernel), tp_schedule_shape(shape, c),
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
    static const struct tp_field fields[] = {
        {"#", "rank", TP_RIGHT},         {"schedule", "name", TP_LEFT},
        {"tile", "tile", TP_LEFT},       {"stages", "stages", TP_RIGHT},
        {"cluster", "cluster", TP_RIGHT}, {"swizzle", "swizzle_", TP_RIGHT},
        {"smem", "smem", TP_RIGHT},      {"waves", "waves", TP_RIGHT},
        {"last", "last", TP_RIGHT},      {"SMs", "sms", TP_RIGHT},
        {"cost", "cost_", TP_RIGHT},
    };
    struct tp_table table;
    char shape[TP_SHAPE_TEXT];
    printf("\n%s %s m=%llu: %s\n", tp_schedule_kernel_name(c->problem.kernel),
           tp_schedule_shape(shape, c), (ull)c->problem.m, order_text(&c->problem));
    if (c->plan.count == 0) {
        printf("  refused: %s\n", c->plan.refused);
        return TP_OK;
    }
    tp_table_open(&table, fields, sizeof fields / sizeof *fields, NULL);
    for (size_t i = 0; i < c->plan.count; i++)
        tp_schedule_put_config(&table.w, NULL, c, i);
    int status = tp_table_end(&table);
    print_launch(c);
    return status;
}

int tp_schedule_print(const struct tp_schedule *all, bool json)
{
    if (json)
        return tp_json_result(tp_list("schedules", all->count, tp_schedule_put, all));
    print_heads(all->cases, all->count);
    print_weights(all->cases, all->count);
    int status = print_cases(all);
    if (!status)
        print_failures(all->cases, all->count);
    for (size_t i = 0; all->why && !status && i < all->count; i++)
        status = print_ranked(&all->cases[i]);
    return status;
}
