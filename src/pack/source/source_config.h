/* quantization_config of a source's config.json: where it stands, and whether the tensors
 * agree with it.
 */
#ifndef TP_PACK_SOURCE_CONFIG_H
#define TP_PACK_SOURCE_CONFIG_H

#include "pack/source/weights.h"
#include "pack/text/json_edit.h"

/* Compares the recognised formats with quantization_config of config.json: its
 * method, format, bits, group or block size. Disagreement is TP_E_INPUT and names
 * both. With `must_find`, a quant_method while no packed weight was recognised is
 * TP_E_UNSUPPORTED. Fine without config.json or without that key. */
enum tp_code tp_source_config_check(const struct tp_checkpoint *ckpt,
                                    const struct tp_weights *weights, bool must_find,
                                    struct tp_err *err);

/* The key by which older checkpoints have their quantization_config. */
#define TP_LEGACY_CONFIG "compression_config"

/* The value of quantization_config, which multimodal models may have inside of
 * text_config and old ones as TP_LEGACY_CONFIG (new reference), or NULL. A lack of memory
 * is told by tp_json_check() alone. */
json_t *tp_source_config(const struct tp_checkpoint *ckpt);

/* The value of text_config in config.json, which must be there, and that of
 * quantization_config in it; data is NULL where there is none. */
enum tp_code tp_source_nested_config(const struct tp_checkpoint *ckpt, struct tp_json_span *text,
                                     struct tp_json_span *value);

#endif
