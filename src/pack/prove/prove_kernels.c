/* Predictions, and kernels that match them. The FP8 GEMM runs in the very configuration that is
 * predicted; of W4A8 the plug-in has the schedules that were built, and the nearest one stands for
 * the others, by the tile first and then by the cluster. */
#include "pack/prove/prove_kernels.h"


#include <math.h>
#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

enum { MESSAGE = 512, GROUP_ROWS = 128 /* contiguous groups begin at multiples of it */ };

static void name_config(const struct tp_sched_config *c, char name[TP_PROVE_NAME])
{
    if (c->name)
        snprintf(name, TP_PROVE_NAME, "%s", c->name);
    else
        snprintf(name, TP_PROVE_NAME, "%llux%llu_%llux%llu", (ull)c->block_m, (ull)c->block_n,
                 (ull)c->cluster_m, (ull)c->cluster_n);
}

struct tilepack_prove_problem tp_prove_problem_of(uint32_t kind, struct tp_box3 box, uint64_t m)
{
    bool grouped = kind == TILEPACK_PROVE_FP8_BLOCK && box.e > 1;
    return (struct tilepack_prove_problem){
        .e = box.e, .n = box.n, .k = box.k, .m = m,
        .layout = !grouped                ? TILEPACK_PROVE_ONE
                  : m % GROUP_ROWS == 0 ? TILEPACK_PROVE_CONTIGUOUS
                                          : TILEPACK_PROVE_MASKED};
}

enum tp_code tp_prove_predict(uint32_t kind, const struct tilepack_prove_problem *p, uint32_t sms,
                              size_t want, struct tp_prove_prediction *prediction,
                              struct tp_err *err)
{
    bool w4a8 = kind != TILEPACK_PROVE_FP8_BLOCK, masked = p->layout == TILEPACK_PROVE_MASKED;
    *prediction = (struct tp_prove_prediction){
        .problem = {.kernel = w4a8 ? TP_SCHED_W4A8 : TP_SCHED_DEEPGEMM, .arch = 9,
                    .m = masked ? p->m : p->m * p->e, .n = p->n, .k = p->k,
                    .groups = masked ? p->e : 1, .experts = p->e, .sms = sms, .masked = masked,
                    .contiguous = w4a8 ? kind == TILEPACK_PROVE_W4A8_GROUPED
                                       : p->layout == TILEPACK_PROVE_CONTIGUOUS}};
    enum tp_code code = tp_sched_plan(&prediction->problem, want, &prediction->plan, err);
    if (code == TP_OK && prediction->plan.count)
        name_config(&prediction->plan.config[0], prediction->name);
    return code;
}

enum tp_code tp_prove_fp8(const struct tilepack_prove_plugin *plugin,
                          const struct tilepack_prove_problem *problem,
                          const struct tp_prove_prediction *prediction, size_t i,
                          struct tp_prove_kernel *kernel, struct tp_err *err)
{
    const struct tp_sched_plan *plan = &prediction->plan;
    char message[MESSAGE] = "";
    if (i >= plan->count)
        return tp_fail(err, TP_E_UNSUPPORTED, "the planner refuses m = %llu: %s", (ull)problem->m,
                       plan->refused);
    *kernel = (struct tp_prove_kernel){.config = plan->config[i], .layout = problem->layout};
    name_config(&kernel->config, kernel->name);
    if (plugin->fp8_can_run(&kernel->config, problem, message, sizeof message))
        return tp_fail(err, TP_E_UNSUPPORTED, "%s", message);
    return TP_OK;
}

void tp_prove_built(const struct tilepack_prove_plugin *plugin, uint32_t i,
                    struct tp_prove_kernel *kernel)
{
    *kernel = (struct tp_prove_kernel){.built = plugin->kernel[i]};
    snprintf(kernel->name, sizeof kernel->name, "%s", kernel->built->name);
}

bool tp_prove_takes(const struct tilepack_prove_plugin *plugin, uint32_t i, uint32_t kind,
                    const struct tilepack_prove_problem *problem)
{
    char message[MESSAGE];
    return plugin->kernel[i]->kind == kind &&
           plugin->kernel[i]->can_run(problem, message, sizeof message) == 0;
}

static double far(uint32_t size, uint64_t wanted)
{
    return wanted ? fabs(log2((double)size / (double)wanted)) : 0;
}

static double distance(const struct tilepack_prove_kernel *kernel,
                       const struct tp_prove_prediction *prediction)
{
    const struct tp_sched_config *c = &prediction->plan.config[0];
    if (strcmp(kernel->name, prediction->name) == 0)
        return -1;
    return 4 * far(kernel->tile_m, c->block_m) + 4 * far(kernel->tile_n, c->block_n) +
           far(kernel->cluster_m, c->cluster_m) + far(kernel->cluster_n, c->cluster_n);
}

bool tp_prove_nearest(const struct tilepack_prove_plugin *plugin, uint32_t kind,
                      const struct tilepack_prove_problem *problem,
                      const struct tp_prove_prediction *prediction, uint32_t *nearest)
{
    bool found = false;
    for (uint32_t i = 0; i < plugin->kernels; i++)
        if (tp_prove_takes(plugin, i, kind, problem) &&
            (!found || distance(plugin->kernel[i], prediction) <
                           distance(plugin->kernel[*nearest], prediction))) {
            *nearest = i;
            found = true;
        }
    return found;
}

bool tp_prove_same(const struct tp_prove_kernel *a, const struct tp_prove_kernel *b)
{
    return strcmp(a->name, b->name) == 0 && a->built == b->built && a->layout == b->layout &&
           a->config.stages == b->config.stages;
}

enum tp_code tp_prove_run_kernel(const struct tp_prover *prover,
                                 const struct tp_prove_kernel *kernel,
                                 const struct tilepack_prove_problem *problem,
                                 const struct tilepack_prove_operands *sets, size_t count,
                                 struct tp_prove_launches l, struct tp_err *err)
{
    char message[MESSAGE] = "";
    int status = kernel->built
                     ? kernel->built->run(problem, sets, count, l.rounds, l.launches,
                                          l.microseconds, message, sizeof message)
                     : prover->plugin->fp8_run(&kernel->config, problem, sets, count, l.rounds,
                                               l.launches, l.microseconds, message,
                                               sizeof message);
    enum tp_code code = tp_prover_check(status, message, err);
    if (code)
        tp_err_hint(err, "the kernel was %s, with %llu rows for each expert", kernel->name,
                    (ull)problem->m);
    return code;
}
