/* quantization_config of a source's config.json: where it stands.
 */
#ifndef TP_PACK_SOURCE_QUANT_H
#define TP_PACK_SOURCE_QUANT_H

#include "pack/format/format.h"
#include "pack/quantizer/quantizer.h"
#include "pack/source/checkpoint.h"
#include "pack/text/json_edit.h"

#include <jansson.h>

/* The key by which older checkpoints have their quantization_config. */
#define TP_LEGACY_CONFIG "compression_config"

/* The value of quantization_config, which multimodal models may have inside of
 * text_config and old ones as TP_LEGACY_CONFIG (new reference), or NULL where there is none or
 * null. A config.json that is not to be read is TP_E_INPUT, with its path, and so is a value that
 * is no object or has a quant_method that is no text: what it says of the weights is not known. Its
 * numbers are as in json_tree.h, but those that are compared with tensors are integers where
 * they are whole, however they are written. */
enum tp_code tp_source_config(const struct tp_checkpoint *ckpt, json_t **config,
                              struct tp_err *err);

/* Adds the path of config.json to what is wrong in it. */
void tp_source_config_path(const struct tp_checkpoint *ckpt, struct tp_err *err);

/* A quantizer's own file beside config.json, and in it what describes the quantization. */
struct tp_side_file {
    char *text; /* fresh memory, or NULL: it is not there, or not to be read */
    size_t size;
    struct tp_json_span value; /* of its file_key, or all of it; no data: none */
    bool broken; /* not read, or no JSON object that has keys */
};
enum tp_code tp_source_side_file(const struct tp_checkpoint *ckpt, const struct tp_quantizer *q,
                                 struct tp_side_file *side, struct tp_err *err);

/* How many bits integers have, as quantization_config (NULL: none) says: a set of 1 << bits, of all
 * of its groups and of the modules that "dynamic" (GPTQ) and "extra_config" (AutoRound) set apart.
 * 0 where it does not say. */
uint64_t tp_source_config_bits(const json_t *config);

/* Rows and columns of a block that share a scale, as "weight_block_size" or a group's
 * "block_structure" says; zeros where neither does. */
void tp_source_config_block(const json_t *config, uint32_t block[2]);

/* What becomes of the activations of 4-bit integers, as it says: a set of 1 << enum
 * tp_activations, of all of its groups of such; of our own method, of the formats that it lists.
 * 0 where it does not say. */
enum tp_code tp_source_config_activations(const json_t *config, unsigned *activations,
                                          struct tp_err *err);

/* The value of text_config in config.json, which must be there, and that of
 * quantization_config in it; data is NULL where there is none. Failures as above. */
enum tp_code tp_source_nested_config(const struct tp_checkpoint *ckpt, struct tp_json_span *text,
                                     struct tp_json_span *value, struct tp_err *err);

#endif
