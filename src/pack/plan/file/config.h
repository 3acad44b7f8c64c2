/* config.json of a converted checkpoint: quantization_config for its readers. */
#ifndef TP_PACK_CONFIG_H
#define TP_PACK_CONFIG_H

#include "pack/plan/unit/plan.h"
#include "pack/text/text.h"

/* config.json of the source with "quantization_config" replaced; every other byte stays.
 * The text is NULL when the source has no config.json; an error where no reader could
 * understand the mixture of formats, or the text would be more than is read again
 * (TP_CONFIG_MAX_BYTES). `text` is empty before. */
enum tp_code tp_config_text(const struct tp_plan *plan, struct tp_text *text, struct tp_err *err);

/* Whether there is such a text: found by the plan, not after hours of writing. */
enum tp_code tp_config_check(const struct tp_plan *plan, struct tp_err *err);

/* TP_E_UNSUPPORTED for a plan of a single file in which a kept weight would be read as another one,
 * since only a config.json says what it is: how wide its codes are, or its version of GPTQ. */
enum tp_code tp_config_dispensable(const struct tp_plan *plan, struct tp_err *err);

/* Whether `name`, one of ckpt->others, describes the source's quantization to a loader
 * (ModelOpt's hf_quant_config.json, the quantize_config.json of GPTQ, the quant_config.json
 * of AWQ) while the plan changes weights: it would be false beside them, so it is not
 * copied. The new config.json says what they say. One that says more is edited instead. */
bool tp_config_leaves_out(const struct tp_plan *plan, const char *name);

/* Of such a file that says other things, too (params.json of Mistral): its text, with what
 * config.json says now in the place of the description. Nothing is added where `name` is none. */
enum tp_code tp_config_edit(const struct tp_plan *plan, const char *name, struct tp_text *text,
                            struct tp_err *err);

#endif
