/* Which kernels a weight will meet, and how they are run: schedules that were compiled with the
 * plug-in, and the FP8 GEMM in any configuration.
 */
#ifndef TP_PACK_PROVE_KERNELS_H
#define TP_PACK_PROVE_KERNELS_H

#include "base/layout.h"
#include "pack/prove/prove_load.h"
#include "pack/schedule/schedule.h"

enum { TP_PROVE_NAME = 64 };

/* What the consumer's planner says of m rows for each expert. */
struct tp_prove_prediction {
    struct tp_sched_problem problem; /* m: of all experts; masked: of each */
    struct tp_sched_plan plan;       /* the first is the prediction, where the planner has one */
    char name[TP_PROVE_NAME]; /* as `tilepack schedule` prints it: a name, or the tile; "" when
                                 the planner refuses */
};

/* One that can be run. */
struct tp_prove_kernel {
    const struct tilepack_prove_kernel *built; /* NULL: the FP8 GEMM, as `config` says */
    struct tp_sched_config config;
    uint32_t layout; /* of the rows of several experts: enum tilepack_prove_layout */
    char name[TP_PROVE_NAME];
};

/* The problem of a kernel of that kind (enum tilepack_prove_kind): the FP8 GEMM takes rows of
 * experts contiguously where each has whole blocks of 128, else masked. */
struct tilepack_prove_problem tp_prove_problem_of(uint32_t kind, struct tp_box3 box, uint64_t m);

/* `want` as in tp_sched_plan(). */
enum tp_code tp_prove_predict(uint32_t kind, const struct tilepack_prove_problem *problem,
                              uint32_t sms, size_t want, struct tp_prove_prediction *prediction,
                              struct tp_err *err);

/* The FP8 GEMM in configuration i of the prediction. TP_E_UNSUPPORTED when it does not take the
 * problem. */
enum tp_code tp_prove_fp8(const struct tilepack_prove_plugin *plugin,
                          const struct tilepack_prove_problem *problem,
                          const struct tp_prove_prediction *prediction, size_t i,
                          struct tp_prove_kernel *kernel, struct tp_err *err);

/* Schedule i of the plug-in's table. */
void tp_prove_built(const struct tilepack_prove_plugin *plugin, uint32_t i,
                    struct tp_prove_kernel *kernel);

/* The number of the schedule in the plug-in's table that is nearest to the prediction: that one
 * itself where it was built. False when no schedule of that kind takes the problem. */
bool tp_prove_nearest(const struct tilepack_prove_plugin *plugin, uint32_t kind,
                      const struct tilepack_prove_problem *problem,
                      const struct tp_prove_prediction *prediction, uint32_t *nearest);

/* Whether schedule i of the table is of that kind and takes the problem. */
bool tp_prove_takes(const struct tilepack_prove_plugin *plugin, uint32_t i, uint32_t kind,
                    const struct tilepack_prove_problem *problem);

bool tp_prove_same(const struct tp_prove_kernel *a, const struct tp_prove_kernel *b);

/* As run of a kernel of the plug-in, of `count` sets. */
struct tp_prove_launches {
    uint32_t rounds, launches;
    double *microseconds;
};
enum tp_code tp_prove_run_kernel(const struct tp_prover *prover,
                                 const struct tp_prove_kernel *kernel,
                                 const struct tilepack_prove_problem *problem,
                                 const struct tilepack_prove_operands *sets, size_t count,
                                 struct tp_prove_launches launches, struct tp_err *err);

#endif
