/* Operations evaluated for the size of a box; see op_at.h. */
#include "kernels/op/op_at.h"

#include "base/num.h"

enum { ALIGN = 64 };

static bool same_box(struct tp_box3 a, struct tp_box3 b)
{
    return a.e == b.e && a.n == b.n && a.k == b.k;
}

enum tp_code tp_op_at(const struct tp_op *op, struct tp_box3 box, bool whole, struct tp_op_at *at,
                      struct tp_err *err)
{
    at->op = op;
    at->box = box;
    at->whole = whole;
    at->total = 0;
    for (uint32_t i = 0; i < op->outs; i++) {
        enum tp_code code = TP_OK;
        if (op->out[i].layout)
            code = (whole ? tp_op_whole_layout : tp_op_layout)(op, i, box, &at->layout[i], err);
        if (code == TP_OK)
            code = tp_op_layout_bytes(op, i, &at->layout[i], &at->bytes[i], err);
        if (code)
            return code;
        at->total += tp_round_up(at->bytes[i], ALIGN);
    }
    return TP_OK;
}

const struct tp_op_at *tp_ops_at(struct tp_ops_at *kept, const struct tp_op *op,
                                 struct tp_box3 box, bool whole, struct tp_err *err)
{
    unsigned oldest = 0;
    kept->count++;
    for (unsigned i = 0; i < TP_OPS_KEPT; i++) {
        const struct tp_op_at *at = &kept->at[i];
        if (at->op == op && at->whole == whole && same_box(at->box, box)) {
            kept->asked[i] = kept->count;
            return at;
        }
        oldest = kept->asked[i] < kept->asked[oldest] ? i : oldest;
    }
    struct tp_op_at *at = &kept->at[oldest];
    kept->asked[oldest] = kept->count;
    if (tp_op_at(op, box, whole, at, err) == TP_OK)
        return at;
    at->op = NULL;
    return NULL;
}

const struct tp_layout *tp_args_layout(const struct tp_args *args, const struct tp_op *op,
                                       uint32_t i, struct tp_layout *own)
{
    const struct tp_op_at *given[] = {args->from_at, args->to_at};
    for (int j = 0; j < 2; j++)
        if (given[j] && given[j]->op == op && !given[j]->whole &&
            same_box(given[j]->box, args->box))
            return &given[j]->layout[i];
    struct tp_err err = {0};
    return tp_op_layout(op, i, args->box, own, &err) == TP_OK ? own : NULL;
}
