/* The scratch that host rows may need for a box: enough for whichever row is chosen, the
 * reference among them. A pure function of the operation and the box's size.
 */
#include "base/num.h"
#include "kernels/op/place.h"

static size_t plain_scratch(const struct tp_op *op, struct tp_box3 box)
{
    uint64_t block_n = op->block_n && op->block_n < box.n ? op->block_n : box.n;
    uint64_t block_k = op->block_k && op->block_k < box.k ? op->block_k : box.k;
    uint64_t rows = box.n < 128 ? box.n : 128;
    if (tp_op_per_tensor(op))
        block_n = 1;
    /* The reference: offsets of every coordinate for the planes of two
     * operations, one block of values and codes, the scales of one row. Fast
     * rows: codes and scales of a strip of at most 128 rows, of one as long as a row may be no
     * more than its own. Repacks: tables. */
    return (size_t)(4096 + 14 * 8 * (box.n + box.k + 64) + block_n * block_k * 5 + 8 * box.k +
                    2 * rows * box.k + 128 * 256 + TP_PLACE_SCRATCH) +
           tp_search_scratch(op, box);
}

size_t tp_encode_scratch(const struct tp_op *op, struct tp_box3 box)
{
    struct tp_flat flat;
    struct tp_box3 strip = {1, TP_PLACE_ROWS, box.k};
    if (!tp_flat_possible(op) || !tp_flat_differs(op))
        return plain_scratch(op, box);
    tp_flat_of(op, &flat);
    return plain_scratch(op, box) + tp_flat_bytes(box) + plain_scratch(&flat.op, strip);
}

size_t tp_decode_scratch(const struct tp_op *op, struct tp_box3 box)
{
    if (!(tp_op_needs(op) & TP_NEED_REFERENCE))
        return tp_encode_scratch(op, box);
    /* Offsets of every coordinate for the planes of one operation. */
    return (size_t)(4096 + 7 * 8 * (box.n + box.k + 64));
}
