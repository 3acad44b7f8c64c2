/* The scale search of one block: the choice among the codecs.
 *
 * Does not: know candidates (search_int4.c, search_fp4.c) or rows (search_w4a8.c).
 * Invariant: a block that is not searched has the bytes of tp_codec_encode().
 */
#include "kernels/op/search.h"

#include "kernels/op/codec.h"
#include "kernels/op/search_codec.h"
#include "kernels/op/search_scalar.h"
#include "kernels/op/traits.h"

bool tp_search_block_live(const struct tp_op *op, uint32_t amax)
{
    return tp_search_live(amax) && (!tp_op_has_f16_scales(op) || tp_search_f16_live(amax));
}

bool tp_search_block(const struct tp_op *op, const float *values, uint64_t count, float global,
                     const float *importance, void *scratch, uint8_t *codes, uint32_t *scale)
{
    struct tp_search_ints ints = {.count = count, .x = scratch, .root = (int32_t *)scratch + count};
    uint32_t amax = tp_amax_bits(values, count);
    bool nonfinite = tp_codec_encode(op, values, count, global, codes, scale);
    if (!tp_search_block_live(op, amax))
        return nonfinite;
    if (op->codec == TP_CODEC_INT4)
        *scale = tp_search_int4(op, values, amax, importance, &ints);
    else if (op->codec == TP_CODEC_NVFP4)
        *scale = tp_search_nvfp4(op, values, amax, global, importance, (uint8_t)*scale, &ints);
    else
        *scale = tp_search_mxfp4(op, values, amax, importance, (uint8_t)*scale, &ints);
    tp_codec_codes(op, values, count, *scale, global, codes);
    return nonfinite;
}
