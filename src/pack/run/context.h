/* Contexts: one worker, and its work on one box. Inside of run.c. */
#ifndef TP_PACK_CONTEXT_H
#define TP_PACK_CONTEXT_H

#include "pack/run/compute.h"
#include "pack/run/packed_io.h"
#include "pack/run/run_options.h"

struct tp_context {
    const struct tp_plan *plan;
    struct tp_sink *sink;
    const struct tp_run_options *options;
    const struct tp_grid *grid; /* of the unit whose box is worked on */
    struct tp_compute compute;
    struct tp_ops_at ops; /* of the plan's operations, at the sizes of boxes and of wholes */
    struct tp_buffer panel, cropped, importance, extrema;
    struct tp_moments moments;
    struct tp_err err;
};

/* Reads, converts and writes one box. `global` is the global scale (tp_codec_global())
 * when the unit's codec has one. */
enum tp_code tp_context_box(struct tp_context *ctx, uint32_t unit, const struct tp_grid *grid,
                            uint64_t index, float global);

/* Reads one box and returns the largest absolute value: the stats phase. */
enum tp_code tp_context_stats(struct tp_context *ctx, uint32_t unit, const struct tp_grid *grid,
                              uint64_t index, float *amax);

/* Copies bytes [offset, offset + size) of a kept tensor. */
enum tp_code tp_context_copy(struct tp_context *ctx, uint32_t output, uint64_t offset,
                             uint64_t size);

void tp_context_close(struct tp_context *ctx);

#endif
