/* The FP8 block GEMM (fp8_gemm.cu) for one configuration of `tilepack schedule`: its text, what it
 * takes, its operands as TMA reads them, its launch. Knows no checkpoint and times nothing.
 */
#ifndef PLUGIN_FP8_GEMM_H
#define PLUGIN_FP8_GEMM_H

#include "gpu.h"
#include "pack/schedule/schedule_common.h"
#include "pack/text/text.h"

enum fp8_layout {
    FP8_DENSE,
    FP8_CONTIGUOUS, /* rows of all groups one behind the other, each group's from a multiple of
                       128 on */
    FP8_MASKED,     /* room for m rows of each group, of which some are there */
};

/* Strides are of rows, in elements; 0: rows lie one behind the other. */
struct fp8_problem {
    uint64_t m, n, k, groups; /* m: rows of all groups; FP8_MASKED: of each */
    enum fp8_layout layout;
    bool fp32_out; /* else bf16 */
    uint64_t a_stride, b_stride, out_stride;
};

/* On the device. */
struct fp8_operands {
    const void *a, *b;       /* e4m3: [m][k]; [groups][n][k] */
    const void *row_scales;  /* fp32 [ceil(k / 128)][m rounded up to 4s]; FP8_MASKED: of each
                                group */
    const void *weight_scales; /* fp32 [groups][ceil(n / 128)][ceil(k / 128)] */
    const void *rows; /* int32. FP8_CONTIGUOUS: the group of each row, or less than 0 for none;
                         the first of 128 says the group of all, so rows of none come behind.
                         FP8_MASKED: how many rows each group has */
    void *out;        /* [m][n]; FP8_MASKED: of each group. Of rows of none, FP8_CONTIGUOUS: zeros
                         where the first of their 64 is of none, else sums of what A holds
                         there; FP8_MASKED: such ones, or what was there before */
};

/* TP_E_UNSUPPORTED, with the rule, where the original would stop with an assertion, or the
 * configuration is none of its SM90 1D2D kernels. */
enum tp_code fp8_check(const struct tp_sched_config *config, const struct fp8_problem *problem,
                       struct tp_err *err);

/* The kernel's text for a configuration that fp8_check() passes. */
enum tp_code fp8_source(const struct tp_sched_config *config, const struct fp8_problem *problem,
                        struct tp_text *source, struct tp_err *err);

/* {0} is closed. */
struct fp8_kernel {
    struct tp_sched_config config;
    struct fp8_problem problem;
    void *module, *function;
    bool cached; /* it had been compiled before */
};

/* Checks, compiles where needed, and loads. */
enum tp_code fp8_open(const struct tp_sched_config *config, const struct fp8_problem *problem,
                      struct fp8_kernel *kernel, struct tp_err *err);
void fp8_close(struct fp8_kernel *kernel); /* legal on {0} and twice */

/* The arguments of a launch, which may be launched again and again. */
struct fp8_arguments {
    struct gpu_map a, row_scales, b, out;
    struct {
        uint32_t m, n, k, groups, band;
        const void *rows;
    } shape;
    const void *weight_scales;
};

enum tp_code fp8_arguments(const struct fp8_kernel *kernel, const struct fp8_operands *operands,
                           struct fp8_arguments *arguments, struct tp_err *err);
enum tp_code fp8_launch(const struct fp8_kernel *kernel, struct fp8_arguments *arguments,
                        void *stream, struct tp_err *err);

#endif
