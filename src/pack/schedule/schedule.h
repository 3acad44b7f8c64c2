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

#include "pack/model/model_facts.h"
#include "pack/schedule/schedule_planners.h"
#include "pack/text/text.h"

/* Plans one problem; lists at most `want` configurations (1..TP_SCHED_RANKED).
 * TP_E_USAGE: a number out of range, or a combination that the kernel does not
 * have; TP_E_UNSUPPORTED: the cost does not fit 63 bits. A refusal is no error. */
enum tp_code tp_sched_plan(const struct tp_sched_problem *problem, size_t want,
                           struct tp_sched_plan *plan, struct tp_err *err);

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

/* Distinct (e,n,k,cut,format) of the weights of a checkpoint, largest n*k first; `cut` is NONE
 * unless they are to be shared among ranks.
 * Weights that are kept unquantized by default (embeddings, norms, routers, output
 * head) are left out unless they are packed. Numbered experts of one layer count
 * as one stack. `choice`: what the user says of the model (NULL: nothing). The caller frees
 * with tp_schedule_shapes_free(). */
enum tp_code tp_schedule_shapes(const char *path, const struct tp_model_choice *choice,
                                bool shared, struct tp_schedule_shape **shapes, size_t *count,
                                struct tp_err *err);
void tp_schedule_shapes_free(struct tp_schedule_shape *shapes, size_t count);

/* How the weight called `name` is cut. */
enum tp_sched_cut tp_sched_cut_of(const struct tp_model_facts *facts, const char *name);

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
