/* What all planners share: a problem, the configurations that a planner chooses from, the
 * checks of a shape, and their arithmetic. Knows no consumer.
 *
 * Units: elements for m, n, k and blocks; bytes for shared memory and swizzle.
 */
#ifndef TP_PACK_SCHEDULE_COMMON_H
#define TP_PACK_SCHEDULE_COMMON_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tp_sched_kernel {
    TP_SCHED_DEEPGEMM_2025, /* get_best_configs of May 2025, SM90 only */
    TP_SCHED_DEEPGEMM,      /* get_best_config of June 2026 */
    TP_SCHED_W4A8,          /* vLLM cutlass_w4a8_mm and cutlass_w4a8_moe_mm */
};

/* Rows of each group of a contiguous grouped GEMM come in multiples of these: engines pad. */
enum { TP_SCHED_GROUP_ROWS = 128 };

/* One GEMM, D[m,n] = A[m,k] B[n,k]^T, as its planner is called. Every number is
 * 1..2^31-1 (the consumers use int); DeepGEMM's planners take k = 0 too. */
struct tp_sched_problem {
    enum tp_sched_kernel kernel;
    uint32_t arch;    /* 9 or 10: the major compute capability */
    uint64_t m;       /* rows; masked: expected rows of one group; else the sum of all groups */
    uint64_t n, k;    /* output and input features */
    uint64_t groups;  /* what the planner is told: 1 for dense and contiguous */
    uint64_t experts; /* weights that exist: what the bytes are counted for */
    uint64_t sms;     /* SMs the kernel may use */
    bool contiguous;  /* m-grouped, rows sorted by group */
    bool masked;      /* m-grouped, [groups, m_max, k] with a count per group */
    bool fp32_out;    /* else bf16 */
    bool accumulate;  /* D += (June 2026 only) */
    bool wgrad;       /* the weight-gradient kernel (May 2025 only) */
    bool one_d;       /* 1D1D scales; else 1D2D (June 2026 only; SM100 is 1D1D) */
};

enum { TP_SCHED_RANKED = 8, TP_SCHED_SMEM = 232448 /* bytes a block may use, SM90 and SM100 */ };

/* Crosses the plug-in's interface: a change of it counts TILEPACK_PROVE_ABI up. */
struct tp_sched_config {
    const char *name;                   /* schedule name where the consumer has one, or NULL */
    uint64_t block_m, block_n, block_k; /* the tile of one thread block */
    uint64_t stages;                    /* pipeline depth; 0: left to the compiler (CUTLASS) */
    uint64_t cluster_m, cluster_n;      /* thread blocks that share loads */
    bool swap_ab;                       /* the weight is the MMA's left operand */
    bool multicast_on_a;                /* May 2025: the shared operand is A */
    uint64_t smem;                      /* shared memory of one block; 0: not known */
    uint64_t swizzle;                   /* of the output tile; 0: none */
    uint64_t padding;                   /* extra columns of the output tile */
    uint64_t threads;
    uint64_t sms;       /* thread blocks launched (the kernels are persistent) */
    uint64_t blocks;    /* output tiles in all */
    uint64_t waves;     /* ceil(blocks / problem.sms) */
    uint64_t last_wave; /* tiles of the last wave, 1..problem.sms */
    int64_t cost;       /* what the planner minimises, or -1 where it compares waves only */
};

/* config[0] is the plan; the others are what the planner would take were the
 * ones before it forbidden. count = 0: the consumer stops with an assertion, and
 * `refused` says which. */
struct tp_sched_plan {
    size_t count;
    struct tp_sched_config config[TP_SCHED_RANKED];
    char refused[256];
};

/* Fills blocks, waves and last_wave of a configuration whose tile is set, for
 * m x n tiles of `groups` groups. TP_E_UNSUPPORTED when they do not fit. */
enum tp_code tp_sched_waves(const struct tp_sched_problem *problem, uint64_t groups,
                            struct tp_sched_config *config, struct tp_err *err);

/* First of 128, 64, 32 and `min` (16 or 32) that divides inner * element bytes, else 0. */
uint64_t tp_sched_swizzle(uint64_t inner, uint64_t element, uint64_t min);

/* Moves the best `want` of `count` configurations to plan->config. Scans in the
 * given order and takes a later one only if better(it, best so far); repeats
 * without the ones taken. The relation need not be transitive. */
typedef bool (*tp_sched_better)(const struct tp_sched_config *a, const struct tp_sched_config *b);
void tp_sched_rank(const struct tp_sched_config *all, size_t count, tp_sched_better better,
                   size_t want, struct tp_sched_plan *plan);

enum tp_sched_level {
    TP_SCHED_ASSERT, /* the consumer stops with an error */
    TP_SCHED_SILENT, /* not checked: wrong results or faults */
    TP_SCHED_GATE,   /* legal, but a serving engine will not choose this kernel */
};

struct tp_sched_check {
    const char *id;   /* "7.2.3": its name, as it is printed */
    const char *text; /* the rule */
    enum tp_sched_level level;
    bool pass;
    char reason[160]; /* the numbers that decided */
};

enum { TP_SCHED_CHECKS = 40 };
struct tp_sched_checks {
    size_t count;
    struct tp_sched_check check[TP_SCHED_CHECKS];
};

/* Appends one check; the reason is printf-like. */
void tp_sched_check_add(struct tp_sched_checks *checks, const char *id,
                        enum tp_sched_level level, const char *text, bool pass,
                        const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* Number of failed checks, gates left out. */
size_t tp_sched_illegal(const struct tp_sched_checks *checks);

#endif
