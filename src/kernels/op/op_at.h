/* An operation evaluated for a weight of one size: where its elements lie, and how many bytes they
 * are. Boxes of a unit have few sizes, and each size is evaluated once.
 */
#ifndef TP_KERNELS_OP_AT_H
#define TP_KERNELS_OP_AT_H

#include "kernels/op/kernel.h"

struct tp_op_at {
    const struct tp_op *op;
    struct tp_box3 box;
    bool whole;                  /* of a whole weight, with all of its segments; else of a box of
                                    one segment */
    uint64_t bytes[TP_MAX_OUT];  /* including padding */
    uint64_t total;              /* of all, each rounded up to 64 */
    struct tp_layout layout[TP_MAX_OUT]; /* of outputs that have one */
};

enum tp_code tp_op_at(const struct tp_op *op, struct tp_box3 box, bool whole, struct tp_op_at *at,
                      struct tp_err *err);

/* What was asked for last. {0} is empty; operations outlive it. */
enum { TP_OPS_KEPT = 8 };
struct tp_ops_at {
    struct tp_op_at at[TP_OPS_KEPT];
    uint64_t asked[TP_OPS_KEPT], count; /* when each was asked for last */
};

/* tp_op_at(), which stays until TP_OPS_KEPT others were asked for since; NULL with the error
 * set. */
const struct tp_op_at *tp_ops_at(struct tp_ops_at *kept, const struct tp_op *op,
                                 struct tp_box3 box, bool whole, struct tp_err *err);

/* The layout of output i for the box of a call: as the caller has it, else evaluated to *own. NULL
 * where it cannot be. */
const struct tp_layout *tp_args_layout(const struct tp_args *args, const struct tp_op *op,
                                       uint32_t i, struct tp_layout *own);

#endif
