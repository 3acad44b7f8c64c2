/* Weights that are stored as the numbers they are (codec "float"): only their places change.
 * The reference of such operations, which ref.c calls; there are no other rows. */
#ifndef TP_KERNELS_FLOATS_H
#define TP_KERNELS_FLOATS_H

#include "kernels/op/kernel.h"

/* As tp_encode_ref(), tp_repack_ref() and tp_decode_ref(). A number that is stored in the type
 * that it had keeps all of its bits; any other is rounded to nearest, ties to even. What is stored
 * as NaN or infinity was seen. */
void tp_floats_encode(const struct tp_op *op, struct tp_args *args);
void tp_floats_repack(const struct tp_op *from, const struct tp_op *to, struct tp_args *args);
void tp_floats_decode(const struct tp_op *op, struct tp_args *args);

/* Whether any number of that type (BF16, F16, F32) is NaN or infinite. */
bool tp_floats_any_nonfinite(enum tp_dtype type, const void *values, uint64_t count);

#endif
