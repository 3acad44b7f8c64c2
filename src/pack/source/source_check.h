/* Packed weights of other tools: what their small tensors and config.json say.
 *
 * Headers alone do not tell whether an int4 weight is symmetric, in act-order, or
 * of which GPTQ version; zero points, g_idx and layout words do. They are read
 * while planning, so that nothing is refused after hours of writing.
 */
#ifndef TP_PACK_SOURCE_CHECK_H
#define TP_PACK_SOURCE_CHECK_H

#include "pack/text/json_edit.h"
#include "pack/source/weights.h"

/* Reads zero points, g_idx, stored shape and global scale of a weight and completes
 * the weight: outputs that say nothing new (all zero points 8, g_idx[k] = k/G) get
 * the role WORDS, so that the weight can be taken over; op.zero_add, global and
 * lossy are set. Does nothing for plain weights and the second time. TP_E_INPUT
 * when they contradict the weight. */
enum tp_code tp_source_check(const struct tp_checkpoint *ckpt, struct tp_weight *weight,
                             struct tp_err *err);

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
 * text_config and old ones as TP_LEGACY_CONFIG (new reference), or NULL. */
json_t *tp_source_config(const struct tp_checkpoint *ckpt);

/* The value of text_config in config.json, which must be there, and that of
 * quantization_config in it; data is NULL where there is none. */
enum tp_code tp_source_nested_config(const struct tp_checkpoint *ckpt, struct tp_json_span *text,
                                     struct tp_json_span *value);

/* Checks scales of a box that was read as input of a take-over: NaN, infinite or
 * negative ones are TP_E_INPUT. `data`: as tp_args.in of the repack. */
enum tp_code tp_source_scales_check(const struct tp_op *op, struct tp_box3 box,
                                    const void *const data[], struct tp_err *err);

/* Checks that every byte of int8-stored int4 codes is -8..7; same arguments. */
enum tp_code tp_source_codes_check(const struct tp_op *op, struct tp_box3 box,
                                   const void *const data[], struct tp_err *err);

#endif
