/* What `tilepack prove` and its plug-in say to each other.
 *
 * The program reads checkpoints, makes activations and references, and judges; it knows no
 * GPU. The plug-in, a shared library of its own, moves bytes to a device and runs GEMM kernels
 * on them; it knows no file and judges nothing. A plug-in exports one function:
 *
 *     const struct tilepack_prove_plugin *tilepack_prove_plugin(void);
 *
 * All functions return 0, or another number after writing one line into `message` (of `size`
 * bytes): TP_E_UNSUPPORTED for what is not done, or lacks something on this machine. They are
 * called from one thread, after open(), and wait for the device: what they were asked for is done
 * when they return. Memory of alloc() need not be memory of a GPU: the program never looks into
 * it.
 */
#ifndef TILEPACK_PROVE_H
#define TILEPACK_PROVE_H

#include "pack/schedule/schedule_common.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when anything below does, or struct tp_sched_config: a program takes plug-ins of its own
 * version only. */
#define TILEPACK_PROVE_ABI 2
static_assert(sizeof(void *) != 8 || sizeof(struct tp_sched_config) == 136,
              "struct tp_sched_config has changed: TILEPACK_PROVE_ABI counts up");

/* What a kernel computes, from activations X[e][m][k] in e4m3 and the stored bytes of W[e][n][k]:
 *   out[e][m][n] = bf16(W4A8: channel[e][n] * (row[e][m] * sum over k of X * e4m3(q * group))
 *                       FP8: sum over blocks b of 128 k of (sum over k of b of X * code)
 *                            * row[e][b][m] * scale[e][n / 128][b])
 */
enum tilepack_prove_kind {
    TILEPACK_PROVE_W4A8_GROUPED = 1, /* any number of experts, in one launch */
    TILEPACK_PROVE_W4A8_DENSE = 2,   /* one expert */
    TILEPACK_PROVE_FP8_BLOCK = 3,    /* any number of experts, in one launch: not in the table */
};

/* How the rows of X of several experts lie, for the FP8 GEMM. */
enum tilepack_prove_layout {
    TILEPACK_PROVE_ONE = 0,        /* one expert */
    TILEPACK_PROVE_CONTIGUOUS = 1, /* one behind the other; m is a multiple of 128 */
    TILEPACK_PROVE_MASKED = 2,     /* room for m rows of each */
};

/* m rows of activations for each of e experts. */
struct tilepack_prove_problem {
    uint64_t e, n, k, m;
    uint32_t layout; /* enum tilepack_prove_layout */
};

/* Memory of alloc(), expert after expert without gaps. */
struct tilepack_prove_operands {
    const void *codes;      /* W4A8: the bytes of w4a8-cutlass; FP8: e4m3, [n][k] */
    const void *groups;     /* W4A8: the eight multiples of each e4m3 scale, [k / 128][n][8] */
    const void *scales;     /* fp32. W4A8: channel [n]; FP8: [ceil(n / 128)][ceil(k / 128)] */
    const void *rows;       /* X: e4m3, [m][k] */
    const void *row_scales; /* fp32. W4A8: [m]; FP8: [ceil(k / 128)][m rounded up to 4s], of all
                               rows together where they are CONTIGUOUS */
    const void *row_groups; /* FP8: int32, CONTIGUOUS: the expert of each row; MASKED: rows of each
                               expert. NULL: m of each */
    int shared_rows;        /* W4A8: one expert's rows and row_scales are those of all */
    void *out;              /* bf16, [m][n] */
};

/* One of the schedules that were compiled with the plug-in. */
struct tilepack_prove_kernel {
    const char *name; /* as `tilepack schedule` names it: "Kernel_128x16_2x1x1_Coop" */
    uint32_t kind;
    uint32_t tile_n, tile_m, cluster_n, cluster_m; /* of W's rows, of X's rows */

    /* 0 when the kernel takes the problem. */
    int (*can_run)(const struct tilepack_prove_problem *problem, char *message, size_t size);

    /* Computes set 0. With rounds > 0 also measures: in each round `launches` launches one
     * behind the other, which take the sets in turn, so that weights come out of memory and
     * not out of a cache; microseconds[round] is the mean of one. */
    int (*run)(const struct tilepack_prove_problem *problem,
               const struct tilepack_prove_operands *sets, size_t set_count, uint32_t rounds,
               uint32_t launches, double *microseconds, char *message, size_t size);
};

struct tilepack_prove_device {
    char name[256];
    uint32_t major, minor, sms; /* compute capability; multiprocessors */
    uint64_t free_bytes, cache_bytes;
};

struct tilepack_prove_plugin {
    uint32_t abi;      /* TILEPACK_PROVE_ABI */
    uint32_t kernels;
    const struct tilepack_prove_kernel *const *kernel;
    const char *built; /* what it was made with, for reports */

    /* The FP8 GEMM of any configuration that tilepack plans for DeepGEMM on SM90: compiled when it
     * is first run, and kept. As can_run and run of a kernel. */
    int (*fp8_can_run)(const struct tp_sched_config *config,
                       const struct tilepack_prove_problem *problem, char *message, size_t size);
    int (*fp8_run)(const struct tp_sched_config *config,
                   const struct tilepack_prove_problem *problem,
                   const struct tilepack_prove_operands *sets, size_t set_count, uint32_t rounds,
                   uint32_t launches, double *microseconds, char *message, size_t size);

    /* Takes device `index`. Fails where there is none, or one whose kernels it has not. */
    int (*open)(uint32_t index, struct tilepack_prove_device *device, char *message, size_t size);
    void (*close)(void);

    void *(*alloc)(uint64_t bytes); /* at multiples of 256; NULL: no memory */
    void (*release)(void *memory);  /* NULL does nothing */
    int (*upload)(void *to, const void *from, uint64_t bytes, char *message, size_t size);
    int (*download)(void *to, const void *from, uint64_t bytes, char *message, size_t size);
    int (*copy)(void *to, const void *from, uint64_t bytes, char *message, size_t size);
    int (*fill)(void *to, int byte, uint64_t bytes, char *message, size_t size);

    /* Compares bf16 values: how many differ (the two zeros are equal, a NaN equals nothing),
     * and the index of the first one that does. */
    int (*compare)(const void *expected, const void *got, uint64_t count, uint64_t *differing,
                   uint64_t *first, char *message, size_t size);
};

typedef const struct tilepack_prove_plugin *(*tilepack_prove_plugin_fn)(void);
const struct tilepack_prove_plugin *tilepack_prove_plugin(void);

#ifdef __cplusplus
}
#endif
#endif
