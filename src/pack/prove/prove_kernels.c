/* Predictions, and kernels that match them. CUTLASS has not every tile that DeepGEMM's planner
 * chooses: the nearest one stands for it, by the tile first and then by the cluster. */
#include "pack/prove/prove_kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

static void name_config(const struct tp_sched_config *c, char name[TP_PROVE_NAME])
{
    if (c->name)
        snprintf(name, TP_PROVE_NAME, "%s", c->name);
    else
        snprintf(name, TP_PROVE_NAME, "%llux%llu_%llux%llu", (ull)c->block_m, (ull)c->block_n,
                 (ull)c->cluster_m, (ull)c->cluster_n);
}

enum tp_code tp_prove_predict(uint32_t kind, const struct tilepack_prove_problem *problem,
                              uint32_t sms, struct tp_prove_prediction *prediction,
                              struct tp_err *err)
{
    bool w4a8 = kind != TILEPACK_PROVE_FP8_BLOCK;
    struct tp_sched_plan plan;
    *prediction = (struct tp_prove_prediction){
        .problem = {.kernel = w4a8 ? TP_SCHED_W4A8 : TP_SCHED_DEEPGEMM, .arch = 9,
                    .m = problem->m * problem->e, .n = problem->n, .k = problem->k, .groups = 1,
                    .experts = problem->e, .sms = sms,
                    .contiguous = w4a8 ? kind == TILEPACK_PROVE_W4A8_GROUPED : problem->e > 1}};
    enum tp_code code = tp_sched_plan(&prediction->problem, 1, &plan, err);
    if (code || !plan.count)
        return code;
    prediction->config = plan.config[0];
    name_config(&prediction->config, prediction->name);
    return TP_OK;
}

bool tp_prove_takes(const struct tilepack_prove_plugin *plugin, uint32_t i, uint32_t kind,
                    const struct tilepack_prove_problem *problem)
{
    char message[256];
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
    const struct tp_sched_config *c = &prediction->config;
    if (strcmp(kernel->name, prediction->name) == 0)
        return -1;
    return 4 * far(kernel->tile_m, c->block_m) + 4 * far(kernel->tile_n, c->block_n) +
           far(kernel->cluster_m, c->cluster_m) + far(kernel->cluster_n, c->cluster_n);
}

const struct tilepack_prove_kernel *tp_prove_nearest(const struct tilepack_prove_plugin *plugin,
                                                     uint32_t kind,
                                                     const struct tilepack_prove_problem *problem,
                                                     const struct tp_prove_prediction *prediction)
{
    const struct tilepack_prove_kernel *best = NULL;
    for (uint32_t i = 0; i < plugin->kernels; i++)
        if (tp_prove_takes(plugin, i, kind, problem) &&
            (!best || distance(plugin->kernel[i], prediction) < distance(best, prediction)))
            best = plugin->kernel[i];
    return best;
}
