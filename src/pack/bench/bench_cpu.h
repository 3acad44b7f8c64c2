/* The CPU half of the benchmark. Inside of bench.c. */
#ifndef TP_PACK_BENCH_CPU_H
#define TP_PACK_BENCH_CPU_H

#include "pack/bench/bench_case.h"

struct tp_bench_cpu;

/* Measures a case; *cpu is made when first needed, and serves the next case too. */
enum tp_code tp_bench_cpu(struct tp_bench_cpu **cpu, const struct tp_bench_options *options,
                          const struct tp_bench_case *c, struct tp_bench_result *result,
                          struct tp_err *err);
void tp_bench_cpu_close(struct tp_bench_cpu *cpu); /* NULL is legal */

#endif
