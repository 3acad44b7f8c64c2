/* The tables of host rows, and the choice among them.
 *
 * Rows are ordered best instruction set first; the first one that this machine
 * runs, TILEPACK_DISABLE leaves and the operation fits is taken. The reference
 * is not a row: it fits everything and cannot be disabled.
 */
#include "kernels/op/rows.h"

#include <pthread.h>

enum { MAX_ROWS = 256 };

static struct {
    struct tp_encode_row encode[MAX_ROWS];
    struct tp_repack_row repack[MAX_ROWS];
    struct tp_decode_row decode[MAX_ROWS];
    size_t encodes, repacks, decodes;
} all;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void add_set(const struct tp_row_set *set)
{
    for (size_t i = 0; i < set->encodes && all.encodes < MAX_ROWS; i++)
        all.encode[all.encodes++] = set->encode[i];
    for (size_t i = 0; i < set->repacks && all.repacks < MAX_ROWS; i++)
        all.repack[all.repacks++] = set->repack[i];
    for (size_t i = 0; i < set->decodes && all.decodes < MAX_ROWS; i++)
        all.decode[all.decodes++] = set->decode[i];
}

static void prepare(void)
{
    add_set(&tp_rows_avx512);
    add_set(&tp_rows_avx2);
    add_set(&tp_rows_neon);
}

const struct tp_encode_row *tp_encode_rows(size_t *count)
{
    pthread_once(&once, prepare);
    *count = all.encodes;
    return all.encode;
}

const struct tp_repack_row *tp_repack_rows(size_t *count)
{
    pthread_once(&once, prepare);
    *count = all.repacks;
    return all.repack;
}

const struct tp_decode_row *tp_decode_rows(size_t *count)
{
    pthread_once(&once, prepare);
    *count = all.decodes;
    return all.decode;
}

tp_encode_fn tp_encode_find(const struct tp_op *op, enum tp_dtype dtype)
{
    pthread_once(&once, prepare);
    for (size_t i = 0; i < all.encodes; i++)
        if (tp_isa_enabled(all.encode[i].isa) && tp_encode_row_fits(&all.encode[i], op, dtype))
            return all.encode[i].encode;
    return tp_encode_ref;
}

tp_repack_fn tp_repack_find(const struct tp_op *from, const struct tp_op *to)
{
    enum tp_place from_code = tp_op_code_place(from), from_scale = tp_op_scale_place(from);
    enum tp_place to_code = tp_op_code_place(to), to_scale = tp_op_scale_place(to);
    pthread_once(&once, prepare);
    for (size_t i = 0; i < all.repacks; i++) {
        const struct tp_repack_row *row = &all.repack[i];
        if (row->codec == to->codec && row->from_code == from_code &&
            row->from_scale == from_scale && row->to_code == to_code &&
            row->to_scale == to_scale && tp_isa_enabled(row->isa) &&
            (row->accepts == NULL || row->accepts(from, to)))
            return row->repack;
    }
    return tp_repack_ref;
}

tp_decode_fn tp_decode_find(const struct tp_op *op, enum tp_dtype dtype)
{
    enum tp_place code = tp_op_code_place(op), scale = tp_op_scale_place(op);
    pthread_once(&once, prepare);
    for (size_t i = 0; i < all.decodes && !tp_op_needs_reference(op); i++) {
        const struct tp_decode_row *row = &all.decode[i];
        if (row->codec == op->codec && row->dtype == dtype && row->code_place == code &&
            row->scale_place == scale && tp_isa_enabled(row->isa) &&
            (row->accepts == NULL || row->accepts(op)))
            return row->decode;
    }
    return tp_decode_ref;
}
