/* The choice of a row in a set. Knows the facts that rows state, not their functions. */
#include "kernels/op/row_set.h"

static enum tp_place place_of(const struct tp_op *op, int output)
{
    return output < 0 ? TP_PLACE_ANY : op->out[output].place;
}

enum tp_place tp_code_place(const struct tp_op *op)
{
    return place_of(op, tp_op_find(op, TP_ROLE_CODES));
}

enum tp_place tp_scale_place(const struct tp_op *op)
{
    int scale = tp_op_find(op, TP_ROLE_SCALE);
    return place_of(op, scale < 0 ? tp_op_find(op, TP_ROLE_GROUP8) : scale);
}

/* Rows for moved bits are for nothing else. */
static bool place_fits(enum tp_place row, enum tp_place place, uint32_t needs)
{
    return row == TP_PLACE_MOVED ? needs & TP_NEED_MOVED
                                 : row == place || row == TP_PLACE_EVERY;
}

static bool heeds_all(uint32_t heeds, uint32_t needs) { return (heeds & needs) == needs; }

bool tp_encode_row_fits(const struct tp_encode_row *row, const struct tp_op *op,
                        enum tp_dtype dtype)
{
    const uint32_t needs = tp_encode_needs(op);
    return row->codec == op->codec && row->dtype == dtype && heeds_all(row->heeds, needs) &&
           place_fits(row->code_place, tp_code_place(op), needs) &&
           place_fits(row->scale_place, tp_scale_place(op), needs) &&
           row->search == tp_op_search(op) && tp_isa_enabled(row->isa) &&
           (row->accepts == NULL || row->accepts(op));
}

bool tp_repack_row_fits(const struct tp_repack_row *row, const struct tp_op *from,
                        const struct tp_op *to)
{
    const uint32_t needs = tp_op_needs(from), written = tp_op_needs(to);
    return row->codec == to->codec && heeds_all(row->heeds | TP_NEED_SCALE_MIN, needs) &&
           heeds_all(row->heeds, written) &&
           place_fits(row->from_code, tp_code_place(from), needs) &&
           place_fits(row->to_code, tp_code_place(to), written) &&
           place_fits(row->from_scale, tp_scale_place(from), needs) &&
           place_fits(row->to_scale, tp_scale_place(to), written) &&
           tp_isa_enabled(row->isa) && (row->accepts == NULL || row->accepts(from, to));
}

bool tp_decode_row_fits(const struct tp_decode_row *row, const struct tp_op *op,
                        enum tp_dtype dtype)
{
    const uint32_t needs = tp_op_needs(op);
    return row->codec == op->codec && row->dtype == dtype &&
           heeds_all(row->heeds | TP_NEED_SCALE_MIN, needs) &&
           place_fits(row->code_place, tp_code_place(op), needs) &&
           place_fits(row->scale_place, tp_scale_place(op), needs) &&
           tp_isa_enabled(row->isa) && (row->accepts == NULL || row->accepts(op));
}

tp_encode_fn tp_row_set_encode(const struct tp_row_set *set, const struct tp_op *op,
                               enum tp_dtype dtype)
{
    for (size_t i = 0; i < set->encodes; i++)
        if (tp_encode_row_fits(&set->encode[i], op, dtype))
            return set->encode[i].encode;
    return heeds_all(set->any_heeds, tp_encode_needs(op)) ? set->any_encode : NULL;
}

tp_repack_fn tp_row_set_repack(const struct tp_row_set *set, const struct tp_op *from,
                               const struct tp_op *to)
{
    for (size_t i = 0; i < set->repacks; i++)
        if (tp_repack_row_fits(&set->repack[i], from, to))
            return set->repack[i].repack;
    return heeds_all(set->any_heeds, tp_op_needs(from) | tp_op_needs(to)) ? set->any_repack : NULL;
}

tp_decode_fn tp_row_set_decode(const struct tp_row_set *set, const struct tp_op *op,
                               enum tp_dtype dtype)
{
    for (size_t i = 0; i < set->decodes; i++)
        if (tp_decode_row_fits(&set->decode[i], op, dtype))
            return set->decode[i].decode;
    return heeds_all(set->any_heeds, tp_op_needs(op)) ? set->any_decode : NULL;
}

tp_distance_fn tp_row_sets_distance(const struct tp_row_set *const *sets)
{
    for (; *sets; sets++)
        if ((*sets)->distance.distance && tp_isa_enabled((*sets)->distance.isa))
            return (*sets)->distance.distance;
    return NULL;
}

tp_feedback_column_fn tp_row_sets_feedback(const struct tp_row_set *const *sets)
{
    for (; *sets; sets++)
        if ((*sets)->feedback.column && tp_isa_enabled((*sets)->feedback.isa))
            return (*sets)->feedback.column;
    return NULL;
}
