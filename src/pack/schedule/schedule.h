/* Schedules: which kernel configuration a consumer will pick for a weight, what
 * it costs, and which of the consumer's assertions a shape breaks.
 *
 * Three planners, each exactly its consumer's: DeepGEMM of May 2025 (SM90),
 * DeepGEMM of June 2026 (SM90 and SM100), and vLLM's W4A8 CUTLASS kernels
 * (grouped and dense). Planners are pure functions of numbers: no file, no GPU.
 * Only the two functions at the end read anything (a checkpoint's headers, a
 * table of cases). Nothing here prints.
 *
 * Units: elements for m, n, k and blocks; bytes for shared memory and swizzle.
 */
#ifndef TP_PACK_SCHEDULE_H
#define TP_PACK_SCHEDULE_H

#include "base/dtype.h"
#include "base/error.h"
#include "pack/text/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tp_sched_kernel {
    TP_SCHED_DEEPGEMM_2025, /* get_best_configs of May 2025, SM90 only */
    TP_SCHED_DEEPGEMM,      /* get_best_config of June 2026 */
    TP_SCHED_W4A8,          /* vLLM cutlass_w4a8_mm and cutlass_w4a8_moe_mm */
};

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

/* Plans one problem; lists at most `want` configurations (1..TP_SCHED_RANKED).
 * TP_E_USAGE: a number out of range, or a combination that the kernel does not
 * have; TP_E_UNSUPPORTED: the cost does not fit 63 bits. A refusal is no error. */
enum tp_code tp_sched_plan(const struct tp_sched_problem *problem, size_t want,
                           struct tp_sched_plan *plan, struct tp_err *err);

/* The three planners behind it; the problem is already known to be in range. */
enum tp_code tp_sched_plan_2025(const struct tp_sched_problem *problem, size_t want,
                                struct tp_sched_plan *plan, struct tp_err *err);
enum tp_code tp_sched_plan_newest(const struct tp_sched_problem *problem, size_t want,
                                  struct tp_sched_plan *plan, struct tp_err *err);
enum tp_code tp_sched_plan_w4a8(const struct tp_sched_problem *problem, size_t want,
                                struct tp_sched_plan *plan, struct tp_err *err);

/* Fills blocks, waves and last_wave of a configuration whose tile is set, for
 * m x n tiles of `groups` groups. TP_E_UNSUPPORTED when they do not fit. */
enum tp_code tp_sched_waves(const struct tp_sched_problem *problem, uint64_t groups,
                            struct tp_sched_config *config, struct tp_err *err);

/* First of 128, 64, 32 and `least` (16 or 32) that divides inner * element bytes, else 0. */
uint64_t tp_sched_swizzle(uint64_t inner, uint64_t element, uint64_t least);

/* Moves the best `want` of `count` configurations to plan->config. Scans in the
 * given order and takes a later one only if better(it, best so far); repeats
 * without the ones taken. The relation need not be transitive. */
typedef bool (*tp_sched_better)(const struct tp_sched_config *a, const struct tp_sched_config *b);
void tp_sched_rank(const struct tp_sched_config *all, size_t count, tp_sched_better better,
                   size_t want, struct tp_sched_plan *plan);

/* --- May 2025: launch numbers ------------------------------------------------- */

/* A two-dimensional TMA box: inner x outer elements, swizzle in bytes. */
struct tp_sched_tma {
    uint64_t inner, outer, swizzle;
};

struct tp_sched_launch {
    uint64_t threads, grid, cluster, block_k;
    struct tp_sched_tma a, b, scales_a, d;
    uint64_t scales_a_rows, scales_a_columns; /* the tensor behind the scale box */
    uint64_t last_stages;                     /* wgrad: ceil(k/128) % stages, else 0 */
    char jit_key[256]; /* what the just-in-time kernel is compiled for; m is not in it */
};

void tp_sched_launch_2025(const struct tp_sched_problem *problem,
                          const struct tp_sched_config *config, struct tp_sched_launch *launch);

/* --- Checks ------------------------------------------------------------------- */

enum tp_sched_level {
    TP_SCHED_ASSERT, /* the consumer stops with an error */
    TP_SCHED_SILENT, /* nobody checks: wrong results or faults */
    TP_SCHED_GATE,   /* legal, but a serving engine will not choose this kernel */
};

struct tp_sched_check {
    const char *id;   /* "7.2.3": section and number in the specification */
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

/* One tensor as a kernel's entry sees it: strides in elements. rank 0: absent. */
struct tp_sched_tensor {
    enum tp_dtype dtype;
    uint32_t rank; /* 0..3 */
    uint64_t shape[3], stride[3];
};

/* The operands of a DeepGEMM entry. */
struct tp_sched_operands {
    struct tp_sched_tensor lhs, lhs_scales, rhs, rhs_scales, out;
    struct tp_sched_tensor m_indices; /* contiguous: I32 [m] */
    struct tp_sched_tensor masked_m;  /* masked: I32 [groups] */
    uint64_t device_sms;              /* what set_num_sms is held against */
};

/* A row-major contiguous tensor of that shape. */
void tp_sched_tensor_set(struct tp_sched_tensor *tensor, enum tp_dtype dtype, uint32_t rank,
                         const uint64_t *shape);

/* The operands that a caller with contiguous tensors of this problem passes. */
void tp_sched_operands(const struct tp_sched_problem *problem, struct tp_sched_operands *ops);

/* Every entry assertion (section 7.2) as a check on the given operands, then the
 * static ones of the kernel and the planner's own, decided by `plan`. */
void tp_sched_checks_2025(const struct tp_sched_problem *problem,
                          const struct tp_sched_operands *ops, const struct tp_sched_plan *plan,
                          struct tp_sched_checks *checks);
void tp_sched_checks_newest(const struct tp_sched_problem *problem,
                            const struct tp_sched_operands *ops,
                            const struct tp_sched_plan *plan, struct tp_sched_checks *checks);
/* Added to both: SGLang's and vLLM's conditions for choosing DeepGEMM. */
void tp_sched_checks_gates(const struct tp_sched_problem *problem,
                           const struct tp_sched_operands *ops, struct tp_sched_checks *checks);

/* A weight and its operands as vLLM's W4A8 kernels see them. */
struct tp_sched_w4a8 {
    bool grouped; /* cutlass_w4a8_moe_mm; else cutlass_w4a8_mm */
    uint32_t arch;
    uint64_t e, n, k;
    uint64_t group_size; /* of the weight scales, along k */
    uint32_t bits;
    bool symmetric, act_order, contiguous;
    enum tp_dtype weight, group_scale, channel_scale, token_scale, activation, out, offsets;
};
/* The operands that the w4a8-cutlass format makes for this problem. */
void tp_sched_w4a8_operands(const struct tp_sched_problem *problem, struct tp_sched_w4a8 *ops);
void tp_sched_checks_w4a8(const struct tp_sched_w4a8 *ops, struct tp_sched_checks *checks);

/* Checks of the problem's own kernel with the operands of contiguous tensors. */
void tp_sched_checks(const struct tp_sched_problem *problem, uint64_t device_sms,
                     const struct tp_sched_plan *plan, struct tp_sched_checks *checks);

/* --- Roofline ------------------------------------------------------------------ */

/* Each operand is read once and the result written once. Groups that can have
 * no row (fewer rows, or 128-row segments, than groups) are not read. */
struct tp_sched_cost {
    double flops, bytes;
    double intensity;      /* flops per byte */
    double memory_seconds; /* bytes / bandwidth */
    double math_seconds;   /* flops / peak */
    double seconds;        /* the larger of the two */
};

/* bandwidth in bytes/s, peak in flops/s of the SMs in use. */
void tp_sched_roofline(const struct tp_sched_problem *problem, double bandwidth, double peak,
                       struct tp_sched_cost *cost);

/* --- Shapes of a checkpoint, and tables of cases ------------------------------- */

/* How tensor parallelism cuts a weight. */
enum tp_sched_cut {
    TP_SCHED_CUT_NONE, /* replicated on each rank (router, MLA down projections) */
    TP_SCHED_CUT_N,    /* column parallel: q, k, v, gate, up */
    TP_SCHED_CUT_K,    /* row parallel: o, down */
    TP_SCHED_CUT_ANY,  /* the name does not tell */
};

struct tp_schedule_shape {
    uint64_t e, n, k; /* e > 1: a stacked tensor, or numbered experts of one layer */
    uint64_t count;   /* weights (stacks) of this shape in the checkpoint */
    enum tp_sched_cut cut;
    const char *format; /* name of the format they are stored in; NULL: plain floats */
    char *example;      /* name of one of them; "{e}" stands for an expert's number */
};

/* Distinct (e,n,k,cut,format) of the weights of a checkpoint, largest n*k first.
 * Weights that are kept unquantized by default (embeddings, norms, routers, output
 * head) are left out unless they are packed. Numbered experts of one layer count
 * as one stack. The caller frees with tp_schedule_shapes_free(). */
enum tp_code tp_schedule_shapes(const char *path, struct tp_schedule_shape **shapes,
                                size_t *count, struct tp_err *err);
void tp_schedule_shapes_free(struct tp_schedule_shape *shapes, size_t count);

/* How the weight called `name` is cut; its last part decides, ".weight" left out. */
enum tp_sched_cut tp_sched_cut_of(const char *name);

/* Adds the check that weights stored in `format` (NULL: plain, nothing to check)
 * are what the problem's kernel reads. */
void tp_sched_check_format(const struct tp_sched_problem *problem, const char *format,
                           struct tp_sched_checks *checks);

enum tp_sched_table { TP_SCHED_TABLE_2025, TP_SCHED_TABLE_NEWEST };

/* Plans every row of a table: `text` holds a header line with the input columns
 * of one of the two tables (in any order, output columns are ignored) and rows of
 * numbers; *out gets the table's full header and the rows with all columns. Which
 * table it is follows from the columns and is stored in *table. Bad rows are
 * TP_E_INPUT with the line and column. */
enum tp_code tp_sched_csv(const char *text, size_t size, const char *path,
                          enum tp_sched_table *table, struct tp_text *out, struct tp_err *err);

#endif
