/* Small tensors of other tools, by what they hold: zero points that are all one, an order of
 * columns that is that of their places. What that means for a weight is weight_complete.c's.
 */
#ifndef TP_PACK_SOURCE_WORDS_H
#define TP_PACK_SOURCE_WORDS_H

#include "pack/source/checkpoint.h"
#include "pack/source/weight.h"

/* Whether each 32-bit word of a tensor is `value`, or each is `other`. */
enum tp_code tp_source_words_are(const struct tp_checkpoint *ckpt, const struct tp_tensor *tensor,
                                 uint32_t value, uint32_t other, bool *are, struct tp_err *err);

/* Whether each byte of a tensor is 0. */
enum tp_code tp_source_bytes_zero(const struct tp_checkpoint *ckpt, const struct tp_tensor *tensor,
                                  bool *zero, struct tp_err *err);

/* Whether the group of each column of a weight is that of its place, too: the tensor has a word for
 * each, of each expert. `judge`: whether there are such groups; else it is TP_E_INPUT. */
enum tp_code tp_source_words_ordered(const struct tp_checkpoint *ckpt,
                                     const struct tp_weight *weight,
                                     const struct tp_tensor *tensor, bool judge, bool *trivial,
                                     struct tp_err *err);

/* Columns that share a scale, and how many such groups there are. */
uint64_t tp_source_group(const struct tp_op *op, struct tp_box3 box, uint64_t *groups);

/* Checks that act-order names only groups that there are, as the decoder follows it
 * without looking: an entry that is no group is TP_E_INPUT. Arguments as of
 * tp_source_scales_check(); the data of the order is aligned to its elements. */
enum tp_code tp_source_order_check(const struct tp_op *op, struct tp_box3 box,
                                   const void *const data[], struct tp_err *err);

#endif
