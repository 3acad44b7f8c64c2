/* What the files of a plan say: the texts of their __metadata__ about packed tensors, as
 * source/descriptor.h reads them, and the index over all of them.
 */
#ifndef TP_PACK_DESCRIBE_H
#define TP_PACK_DESCRIBE_H

#include "pack/plan/unit/plan.h"
#include "pack/text/text.h"

/* Descriptors {"d0": {...}} and units [...] of the units of one file, or of all
 * files, as JSON text. Both are the caller's to free. */
enum tp_code tp_descriptors_text(const struct tp_plan *plan, uint32_t file, char **descriptors,
                                 struct tp_text *units, struct tp_err *err);

/* model.safetensors.index.json of the plan, names in order. */
enum tp_code tp_index_text(const struct tp_plan *plan, struct tp_text *text, struct tp_err *err);
/* Bytes of that text. Outputs may be in any order; their files have their names. */
enum tp_code tp_index_size(const struct tp_plan *plan, uint64_t *size, struct tp_err *err);

#endif
