/* The FP8 GEMM as `prove` runs it: loaded kernels are kept, and launches are timed.
 */
#ifndef PLUGIN_FP8_RUN_H
#define PLUGIN_FP8_RUN_H

#include "fp8_gemm.h"
#include "pack/prove/tilepack_prove.h"

struct fp8_problem fp8_problem_of(const struct tilepack_prove_problem *problem);

struct fp8_times {
    uint32_t rounds, launches; /* rounds 0: none are taken */
    double *microseconds;      /* of one launch, for each round */
};

/* Computes set 0 and waits for it; with rounds also times launches that take the sets in turn. */
enum tp_code fp8_run(const struct tp_sched_config *config,
                     const struct tilepack_prove_problem *problem,
                     const struct tilepack_prove_operands *sets, size_t set_count,
                     const struct fp8_times *times, struct tp_err *err);
void fp8_run_close(void); /* lets go of all kernels */

#endif
