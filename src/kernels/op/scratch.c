/* The scratch that host rows may need for a box: enough for whichever row is chosen, the
 * reference among them. A pure function of the operation and the box's size.
 */
#include "base/num.h"
#include "kernels/op/place.h"

/* Scales of a source are no finer than those of the target; their rows are padded to 256 at most,
 * their blocks to 8. */
size_t tp_scales_room(const struct tp_op *op, struct tp_box3 box)
{
    const int scale = tp_op_find(op, TP_ROLE_SCALE), group8 = tp_op_find(op, TP_ROLE_GROUP8);
    if (scale < 0 && group8 < 0)
        return 0;
    const struct tp_op_out *out = &op->out[scale < 0 ? group8 : scale];
    const uint64_t bytes = scale < 0 ? 2 : tp_element_bits(out->element) / 8;
    const uint64_t blocks = tp_ceil_div(box.k, out->per_k ? out->per_k : box.k);
    return (size_t)(bytes * box.e * tp_round_up(box.n, 256) * tp_round_up(blocks, 8));
}

/* Codes whose bits are moved, before they are decoded. */
static size_t moved_bytes(const struct tp_op *op, struct tp_box3 box)
{
    const int codes = tp_op_find(op, TP_ROLE_CODES);
    uint64_t bytes = 0;
    if (codes < 0 || op->out[codes].word_bits == NULL ||
        tp_op_bytes(op, (uint32_t)codes, box, &bytes, NULL))
        return 0;
    return (size_t)bytes;
}

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
     * more than its own; 128 rows of 512 codes that are decoded, with their scales and zero
     * points. */
    return (size_t)(4096 + 14 * 8 * (box.n + box.k + 64) + block_n * block_k * 5 + 8 * box.k +
                    2 * rows * box.k + 128 * 256 + 128 * 512 + 128) +
           tp_scales_room(op, box) + moved_bytes(op, box) + tp_search_scratch(op, box);
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
    if (!(tp_op_needs(op) & TP_NEED_ORDER))
        return tp_encode_scratch(op, box);
    /* Offsets of every coordinate for the planes of one operation. */
    return (size_t)(4096 + 7 * 8 * (box.n + box.k + 64));
}
