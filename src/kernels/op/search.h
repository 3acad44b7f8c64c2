/* The scale search: which scale represents a block best, one block (or one row) at a time.
 *
 * Slow and obvious on purpose, like codec.h: every fast row must choose the same scales and
 * codes. The formulas are those of formats/README.md, section 14. Errors are sums of integers,
 * which no order of summation changes. Built for host only; search_scalar.h has the parts
 * that devices share.
 */
#ifndef TP_KERNELS_SEARCH_H
#define TP_KERNELS_SEARCH_H

#include "kernels/op/kernel.h"

/* Whether a block of that largest magnitude, as bits, is searched at all. */
bool tp_search_block_live(const struct tp_op *op, uint32_t amax);

/* The rule of the channel scale that a search for the W4A8 kernel is made for. */
enum tp_channel_rule tp_search_channel_rule(const struct tp_op *op);

/* tp_codec_encode() of one block of an operation whose tp_op_search() is MSE. `importance`
 * has one number for each value, or is NULL; it is used with TP_IMPORTANCE_FILE only.
 * `scratch`: 8 bytes for each value, aligned to 4. */
bool tp_search_block(const struct tp_op *op, const float *values, uint64_t count, float global,
                     const float *importance, void *scratch, uint8_t *codes, uint32_t *scale);

/* The same for one row of K values, in groups of op->block_k, of an operation whose
 * tp_op_search() is W4A8: codes (q + 8) and one bf16 scale for each group, from which
 * tp_channel_scale() makes the group scales and the channel scale that were searched for.
 * `scratch`: tp_search_scratch() bytes, aligned to 8. */
bool tp_search_row(const struct tp_op *op, const float *values, uint64_t k,
                   const float *importance, void *scratch, uint8_t *codes, uint16_t *scales);

#endif
