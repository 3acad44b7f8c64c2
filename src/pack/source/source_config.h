/* quantization_config of a source's config.json: whether the tensors agree with it.
 */
#ifndef TP_PACK_SOURCE_CONFIG_H
#define TP_PACK_SOURCE_CONFIG_H

#include "pack/quantizer/quantizer.h"
#include "pack/source/source_quant.h"
#include "pack/source/weights.h"

/* Compares the recognised formats with quantization_config of config.json: its
 * method, format, bits, group or block size. Disagreement is TP_E_INPUT and names
 * both. With `must_find`, a quant_method while no packed weight was recognised is
 * TP_E_UNSUPPORTED. Fine without config.json or without that key. */
enum tp_code tp_source_config_check(const struct tp_checkpoint *ckpt,
                                    const struct tp_weights *weights, bool must_find,
                                    struct tp_err *err);

/* TP_E_UNSUPPORTED where the checkpoint is of a quantizer that is refused by name: config.json
 * names it, or a tensor has a name that no other's has. For who met codes that are of no form. */
enum tp_code tp_source_named_check(const struct tp_checkpoint *ckpt, struct tp_err *err);

/* TP_E_UNSUPPORTED for a weight of which nothing says how wide its codes are: to guess would double
 * K, or halve it. */
enum tp_code tp_source_width_check(const struct tp_checkpoint *ckpt,
                                   const struct tp_weight *weight, struct tp_err *err);

#endif
