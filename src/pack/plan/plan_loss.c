/* What becomes of packed weights that are made from packed ones: nothing is lost, scales
 * are rounded, or values are. Knows no bytes: how much is lost is measured (pack/check).
 */
#include "pack/plan/plan.h"

/* Of the scales that a group of integers has. */
static enum tp_element scale_element(const struct tp_op *op)
{
    int scale = tp_op_find(op, TP_ROLE_SCALE);
    return scale < 0 ? TP_ELEM_E4M3X8 : op->out[scale].element;
}

enum tp_loss tp_unit_loss(const struct tp_plan *plan, const struct tp_unit *unit)
{
    const struct tp_weight *source = &plan->weights->items[unit->views[0].weight];
    if (!unit->form->format || !source->form->format)
        return TP_LOSS_NONE;
    if (unit->form->kind == TP_UNIT_ENCODE)
        return TP_LOSS_VALUES;
    if (unit->form->kind != TP_UNIT_REPACK || !tp_op_is_int(&unit->form->op))
        return TP_LOSS_NONE; /* of FP8, FP4 and MX only equal scales are taken over */
    return scale_element(&source->form->op) == scale_element(&unit->form->op) ? TP_LOSS_NONE
                                                                  : TP_LOSS_SCALES;
}
