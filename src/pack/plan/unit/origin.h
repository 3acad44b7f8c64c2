/* Origins of units: see struct tp_origin. */
#ifndef TP_PACK_ORIGIN_H
#define TP_PACK_ORIGIN_H

#include "pack/plan/unit/plan.h"

/* Where the rows of a unit come from, of its first expert; used for "from" and by
 * unpack. The list is the caller's: tp_origins_free(). */
enum tp_code tp_unit_origins(const struct tp_plan *plan, const struct tp_unit *unit,
                             struct tp_origin **origins, uint32_t *count, struct tp_err *err);

/* The same of weight `w` of plan->weights, which need be in no unit; plan->ckpt holds its tensors.
 * Without recorded origins it is S.weight. */
enum tp_code tp_weight_origins(const struct tp_plan *plan, uint32_t w, struct tp_origin **origins,
                               uint32_t *count, struct tp_err *err);

/* Whether the origins of a stack say that it holds rows of one matrix of each expert only: where
 * it would hold gate and up, that of experts without a gate. */
bool tp_origins_ungated(const struct tp_origin *origins, uint32_t count);

#endif
