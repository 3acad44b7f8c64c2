/* A unit from the first of its weights to its place in the plan. */
#ifndef TP_PACK_PLAN_DRAFT_H
#define TP_PACK_PLAN_DRAFT_H

#include "pack/plan/unit/build.h"

/* A unit and its form, which tp_unit_finalize() makes a shared one. */
struct tp_draft {
    struct tp_unit unit;
    struct tp_unit_form form;
};

/* A matrix of the size, format and settings of the chosen weight. Returns the draft's unit. */
struct tp_unit *tp_unit_start(struct tp_builder *b, uint32_t w, struct tp_draft *draft);
/* The unit holds gate and up, which its format may lay out in another way. */
void tp_unit_gated(struct tp_unit *unit);
/* Its views, zeroed, by the plan. */
enum tp_code tp_unit_make_views(struct tp_builder *b, struct tp_unit *unit, uint32_t per_expert);
/* The order of rows that kernels want of a matrix, by its name; as the source has them where a reader
 * of the format moves them itself. False: config.json states no heads that its rows divide into. */
bool tp_plan_row_order(const struct tp_builder *b, const struct tp_unit_form *form,
                       const struct tp_rule *rule, const char *name, struct tp_row_order *order);
/* Either adds the unit or keeps all weights of it. Takes over the unit. `gated`: it holds gate and
 * up, each in rows of its own. */
enum tp_code tp_unit_finalize(struct tp_builder *b, struct tp_unit *unit, bool gated);

#endif
