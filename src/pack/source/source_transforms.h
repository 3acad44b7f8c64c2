/* What a source has engines do to the inputs and outputs of layers as they run, by its
 * quantization_config or by tensors beside its weights.
 */
#ifndef TP_PACK_SOURCE_TRANSFORMS_H
#define TP_PACK_SOURCE_TRANSFORMS_H

#include "pack/source/source_quant.h"
#include "pack/source/weights.h"

/* TP_E_UNSUPPORTED where config.json says that inputs or outputs are transformed: the weights are
 * made for that, and what is written has no word for it. */
enum tp_code tp_source_transforms_check(const struct tp_checkpoint *ckpt, struct tp_err *err);

/* The same of one packed weight, where a tensor of that kind stands beside it or its module. */
enum tp_code tp_source_beside_check(const struct tp_checkpoint *ckpt,
                                    const struct tp_weight *weight, struct tp_err *err);

#endif
