/* Between which bytes the scales of an MXFP4 or NVFP4 weight lie. They are read while planning: how
 * the weight becomes NVFP4 of another kind depends on them.
 */
#ifndef TP_PACK_SOURCE_BYTES_H
#define TP_PACK_SOURCE_BYTES_H

#include "pack/source/weights.h"

/* Rows of one expert: `rows` of them from `row` on, each `step` behind the last. */
struct tp_expert_rows {
    uint64_t expert, row, rows, step;
};

/* Scale bytes, which order as the numbers do; NaN and negative ones are left out. */
struct tp_byte_range {
    int min, max; /* none: min > max */
};
#define TP_NO_BYTES ((struct tp_byte_range){256, -1})

/* Adds the scale bytes of the blocks of those rows to *range. With `held` only those of blocks
 * that hold anything but zeros, for which the codes are read. */
enum tp_code tp_source_bytes(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                             const struct tp_expert_rows *rows, bool held,
                             struct tp_byte_range *range, struct tp_err *err);

#endif
