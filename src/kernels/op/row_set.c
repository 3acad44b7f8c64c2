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

static bool place_fits(enum tp_place row, enum tp_place place)
{
    return row == place || row == TP_PLACE_EVERY || row == TP_PLACE_MOVED;
}

/* Whether a row that writes codes at `place` heeds what `op` says of its scales. */
static bool heeds_least(enum tp_place place, const struct tp_op *op)
{
    return place == TP_PLACE_EVERY || !tp_op_has_least(op);
}

/* Whether a row does what is odd of an operation, where something is: none of a GPU does. */
static bool oddity_fits(const struct tp_encode_row *row, const struct tp_op *op)
{
    if (row->code_place == TP_PLACE_MOVED)
        return tp_op_only_moves(op);
    return !tp_op_is_odd(op) || (row->code_place == TP_PLACE_EVERY &&
                                 row->isa != TP_ISA_CUDA && tp_op_only_scales(op));
}

bool tp_encode_row_fits(const struct tp_encode_row *row, const struct tp_op *op,
                        enum tp_dtype dtype)
{
    return row->codec == op->codec && row->dtype == dtype && !tp_op_needs_reference(op) &&
           oddity_fits(row, op) &&
           place_fits(row->code_place, tp_code_place(op)) &&
           place_fits(row->scale_place, tp_scale_place(op)) &&
           row->search == tp_op_search(op) && heeds_least(row->code_place, op) &&
           tp_isa_enabled(row->isa) &&
           (row->accepts == NULL || row->accepts(op));
}

bool tp_repack_row_fits(const struct tp_repack_row *row, const struct tp_op *from,
                        const struct tp_op *to)
{
    return row->codec == to->codec && !tp_op_needs_reference(from) &&
           !tp_op_needs_reference(to) && !tp_op_is_odd(from) && !tp_op_is_odd(to) &&
           place_fits(row->from_code, tp_code_place(from)) &&
           place_fits(row->to_code, tp_code_place(to)) &&
           place_fits(row->from_scale, tp_scale_place(from)) &&
           place_fits(row->to_scale, tp_scale_place(to)) && heeds_least(row->to_code, to) &&
           tp_isa_enabled(row->isa) &&
           (row->accepts == NULL || row->accepts(from, to));
}

bool tp_decode_row_fits(const struct tp_decode_row *row, const struct tp_op *op,
                        enum tp_dtype dtype)
{
    return row->codec == op->codec && row->dtype == dtype && !tp_op_needs_reference(op) &&
           (!tp_op_is_odd(op) ||
            (row->code_place == TP_PLACE_EVERY && row->isa != TP_ISA_CUDA)) &&
           place_fits(row->code_place, tp_code_place(op)) &&
           place_fits(row->scale_place, tp_scale_place(op)) &&
           tp_isa_enabled(row->isa) && (row->accepts == NULL || row->accepts(op));
}

tp_encode_fn tp_row_set_encode(const struct tp_row_set *set, const struct tp_op *op,
                               enum tp_dtype dtype)
{
    for (size_t i = 0; i < set->encodes; i++)
        if (tp_encode_row_fits(&set->encode[i], op, dtype))
            return set->encode[i].encode;
    return set->any_encode;
}

tp_repack_fn tp_row_set_repack(const struct tp_row_set *set, const struct tp_op *from,
                               const struct tp_op *to)
{
    for (size_t i = 0; i < set->repacks; i++)
        if (tp_repack_row_fits(&set->repack[i], from, to))
            return set->repack[i].repack;
    return set->any_repack;
}

tp_decode_fn tp_row_set_decode(const struct tp_row_set *set, const struct tp_op *op,
                               enum tp_dtype dtype)
{
    for (size_t i = 0; i < set->decodes; i++)
        if (tp_decode_row_fits(&set->decode[i], op, dtype))
            return set->decode[i].decode;
    return set->any_decode;
}

tp_distance_fn tp_row_sets_distance(const struct tp_row_set *const *sets)
{
    for (; *sets; sets++)
        if ((*sets)->distance.distance && tp_isa_enabled((*sets)->distance.isa))
            return (*sets)->distance.distance;
    return NULL;
}
