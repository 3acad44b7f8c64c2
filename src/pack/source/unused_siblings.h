/* Tensors beside a weight that another stored form would read, and its own does not.
 */
#ifndef TP_PACK_UNUSED_SIBLINGS_H
#define TP_PACK_UNUSED_SIBLINGS_H

#include "pack/source/checkpoint.h"
#include "pack/source/weight.h"

/* Whether the tensors of a weight that was known by them are all that there is of it: one beside
 * them that is named as scales, zero points or an order of columns are is TP_E_UNSUPPORTED. Codes
 * with two tensors of scales are two weights, and nothing says which of them is meant. Zero points
 * that are all 0 beside codes of floats, and an order that is that of the columns' places, say
 * nothing, and may stand there. */
enum tp_code tp_source_check_unused(const struct tp_checkpoint *ckpt,
                                    const struct tp_weight *weight, struct tp_err *err);

/* The first such tensor beside a weight, number `from` or one behind it; TP_NO_TENSOR: there is
 * none. Those of a weight that passed the check say nothing. A weight whose descriptor says which
 * tensors it has has none. */
uint32_t tp_source_unused(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                          uint32_t from);

#endif
