/* Rows of a box that do not lie side by side in their packed source: rows that are interleaved, or
 * parts that end inside of a tile. What belongs to them is read and put together as a small weight
 * of the same format whose rows and columns lie in order.
 */
#ifndef TP_PACK_GATHER_ROWS_H
#define TP_PACK_GATHER_ROWS_H

#include "pack/plan/unit/plan.h"


/* An operation with the elements of another one, in order. */
struct tp_dense_op {
    struct tp_op op;
    struct tp_layout_expr layout[TP_MAX_OUT];
};
void tp_dense_op(const struct tp_op *op, struct tp_dense_op *dense);

/* Rows of a view that are in a box: row first + j * step of the source is row to + j * pitch of
 * the box, j < count. */
struct tp_share {
    uint64_t first, step, to, pitch, count;
};

/* The share of a run that the box has, which is of one expert of the unit. */
struct tp_share tp_rows_share(const struct tp_box *box, const struct tp_row_run *run);

/* Fills to[], which has room for `dense` at box->size, with the codes, scales and so on of a share
 * with any rows, one after the other: `box` is of its rows alone, and `dense` of the view's weight.
 * TP_E_INPUT, with tensor and file, for codes that are none. */
enum tp_code tp_rows_gather_share(const struct tp_plan *plan, const struct tp_view *view,
                                  const struct tp_box *box, const struct tp_share *share,
                                  const struct tp_op *dense, void *const to[], struct tp_err *err);

/* The same with all shares of the box, which is of one expert of the unit. What a weight has one of
 * for all rows, as a global scale, has to be the same in all views: the last one's is taken. */
enum tp_code tp_rows_gather(const struct tp_plan *plan, const struct tp_unit *unit,
                            const struct tp_box *box, const struct tp_op *dense,
                            void *const to[], struct tp_err *err);

#endif
