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

/* TP_E_UNSUPPORTED for a weight of which nothing says how wide its codes are: to guess would double
 * K, or halve it. */
enum tp_code tp_source_width_check(const struct tp_checkpoint *ckpt,
                                   const struct tp_weight *weight, struct tp_err *err);

#endif
