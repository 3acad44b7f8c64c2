/* Operations whose outputs lie in rows; see place.h. Pure functions of an operation. */
#include "kernels/op/place.h"

#include "kernels/op/row_set.h"

/* How scales are stored is put on behind the rows, or codes are moved, and not both. */
enum {
    STORED_SCALES = TP_NEED_FACTOR | TP_NEED_E5M3,
    TAKEN = TP_NEED_REFERENCE | TP_NEED_SCALE_MIN
};

static bool is_flat(uint32_t needs)
{
    const uint32_t more = needs & ~(uint32_t)TAKEN;
    return more == TP_NEED_MOVED || !(more & ~(uint32_t)STORED_SCALES);
}

static bool stores_scales(const struct tp_op *op) { return tp_op_needs(op) & STORED_SCALES; }

bool tp_flat_possible(const struct tp_op *op)
{
    int codes = tp_op_find(op, TP_ROLE_CODES), scale = tp_op_find(op, TP_ROLE_SCALE);
    if (codes < 0 || tp_op_find(op, TP_ROLE_GROUP8) >= 0 || !is_flat(tp_op_needs(op)))
        return false;
    if (tp_op_per_tensor(op))
        return true;
    return scale >= 0 && op->block_n >= 1 && op->block_n <= TP_PLACE_ROWS &&
           op->out[scale].per_n >= 1 && op->out[scale].per_n <= TP_PLACE_ROWS &&
           (op->out[scale].per_k == 0 || op->out[scale].per_k >= TP_PLACE_MIN_GROUP);
}

bool tp_flat_differs(const struct tp_op *op)
{
    enum tp_place codes = tp_code_place(op), scale = tp_scale_place(op);
    if (codes == TP_PLACE_ANY || codes == TP_PLACE_COL || stores_scales(op))
        return true;
    return !tp_op_per_tensor(op) && (scale == TP_PLACE_ANY || scale == TP_PLACE_COL);
}

size_t tp_flat_bytes(struct tp_box3 box)
{
    return (size_t)(TP_PLACE_ROWS * (box.k + 4 * (box.k / TP_PLACE_MIN_GROUP + 1)) + 4 * 64);
}

/* Numbers as the codec makes them. */
static void plain_scales(struct tp_op *op)
{
    for (uint32_t i = 0; i < op->outs; i++) {
        struct tp_op_out *out = &op->out[i];
        if (out->element == TP_ELEM_E5M3)
            out->element = TP_ELEM_E4M3;
        else if (out->role == TP_ROLE_SCALE && out->factor != 0)
            out->element = TP_ELEM_F32;
        out->factor = 0;
    }
}

void tp_flat_of(const struct tp_op *op, struct tp_flat *flat)
{
    int codes = tp_op_find(op, TP_ROLE_CODES), scale = tp_op_find(op, TP_ROLE_SCALE);
    flat->op = *op;
    if (stores_scales(op))
        plain_scales(&flat->op);
    flat->op.out[codes].layout = &tp_layout_dense;
    flat->op.out[codes].place = TP_PLACE_ROW;
    for (uint8_t i = 0; i < 16; i++)
        flat->op.table[i] = i;
    if (scale < 0)
        return;
    flat->layout = tp_layout_rows(op->out[scale].per_n, op->out[scale].per_k);
    flat->op.out[scale].layout = &flat->layout;
    flat->op.out[scale].place = TP_PLACE_ROW;
    flat->op.out[scale].min = 0;
}
