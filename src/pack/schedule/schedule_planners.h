/* The planners and checks of each consumer; schedule.h chooses among them. A problem that
 * comes here is already known to be in range.
 */
#ifndef TP_PACK_SCHEDULE_PLANNERS_H
#define TP_PACK_SCHEDULE_PLANNERS_H

#include "base/dtype.h"
#include "pack/schedule/schedule_common.h"

enum tp_code tp_sched_plan_2025(const struct tp_sched_problem *problem, size_t want,
                                struct tp_sched_plan *plan, struct tp_err *err);
enum tp_code tp_sched_plan_newest(const struct tp_sched_problem *problem, size_t want,
                                  struct tp_sched_plan *plan, struct tp_err *err);
enum tp_code tp_sched_plan_w4a8(const struct tp_sched_problem *problem, size_t want,
                                struct tp_sched_plan *plan, struct tp_err *err);

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

/* Every assertion of the entry (7.2.x) as a check on the given operands, then the
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

#endif
