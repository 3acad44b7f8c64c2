/* The rows of the host as one set, best instruction set first. The reference is not
 * a row: it fits everything and cannot be disabled.
 */
#include "kernels/op/row_set.h"

#include <pthread.h>

enum { MAX_ROWS = 3 * TP_SET_ROWS }; /* of three instruction sets */

static struct {
    struct tp_encode_row encode[MAX_ROWS];
    struct tp_repack_row repack[MAX_ROWS];
    struct tp_decode_row decode[MAX_ROWS];
} all;
static struct tp_row_set host = {
    .encode = all.encode, .any_encode = tp_encode_ref, .repack = all.repack,
    .any_repack = tp_repack_ref, .decode = all.decode, .any_decode = tp_decode_ref,
    .any_heeds = UINT32_MAX, /* the reference does everything */
};
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A row beyond the tables would be left out, which test_kernels.c looks for. */
static void add_set(const struct tp_row_set *set)
{
    for (size_t i = 0; i < set->encodes && host.encodes < MAX_ROWS; i++)
        all.encode[host.encodes++] = set->encode[i];
    for (size_t i = 0; i < set->repacks && host.repacks < MAX_ROWS; i++)
        all.repack[host.repacks++] = set->repack[i];
    for (size_t i = 0; i < set->decodes && host.decodes < MAX_ROWS; i++)
        all.decode[host.decodes++] = set->decode[i];
}

static const struct tp_row_set *const *const isas[] = {tp_rows_avx512, tp_rows_avx2, tp_rows_neon};
enum { ISAS = sizeof isas / sizeof isas[0] };

static void prepare(void)
{
    for (size_t i = 0; i < ISAS; i++)
        for (const struct tp_row_set *const *set = isas[i]; *set; set++)
            add_set(*set);
}

const struct tp_row_set *tp_host_rows(void)
{
    pthread_once(&once, prepare);
    return &host;
}

tp_encode_fn tp_encode_find(const struct tp_op *op, enum tp_dtype dtype)
{
    return tp_row_set_encode(tp_host_rows(), op, dtype);
}

tp_repack_fn tp_repack_find(const struct tp_op *from, const struct tp_op *to)
{
    return tp_row_set_repack(tp_host_rows(), from, to);
}

tp_decode_fn tp_decode_find(const struct tp_op *op, enum tp_dtype dtype)
{
    return tp_row_set_decode(tp_host_rows(), op, dtype);
}

tp_distance_fn tp_distance_find(void)
{
    tp_distance_fn distance = NULL;
    for (size_t i = 0; i < ISAS && !distance; i++)
        distance = tp_row_sets_distance(isas[i]);
    return distance ? distance : tp_distance_ref;
}

tp_feedback_column_fn tp_feedback_column_find(void)
{
    tp_feedback_column_fn column = NULL;
    for (size_t i = 0; i < ISAS && !column; i++)
        column = tp_row_sets_feedback(isas[i]);
    return column ? column : tp_feedback_column_ref;
}
