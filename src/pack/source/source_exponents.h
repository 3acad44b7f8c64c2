/* Between which powers of two the scales of an MXFP4 weight lie. They are read while planning:
 * whether the weight can be NVFP4 as it is depends on them.
 */
#ifndef TP_PACK_SOURCE_EXPONENTS_H
#define TP_PACK_SOURCE_EXPONENTS_H

#include "kernels/op/recast.h"
#include "pack/source/weights.h"

/* Rows of one expert: `rows` of them from `row` on, each `step` behind the last. */
struct tp_expert_rows {
    uint64_t expert, row, rows, step;
};

/* Adds the exponents of the blocks of those rows to *exponents, NaN left out. With `held` only
 * those of blocks that hold anything but zeros, for which the codes are read. */
enum tp_code tp_source_exponents(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                 const struct tp_expert_rows *rows, bool held,
                                 struct tp_exponents *exponents, struct tp_err *err);

#endif
