/* Modules that engines load as one, and that are not all of one format. */
#ifndef TP_PACK_UNEVEN_H
#define TP_PACK_UNEVEN_H

#include "pack/engine/engine.h"
#include "pack/plan/unit/plan.h"
#include "pack/text/text.h"

/* Appends the name of the first module whose experts, or whose parts that are fused, are not all of
 * one format, being plain one, too; nothing if there is none. `alike`: enum tp_alike, as bits. */
enum tp_code tp_plan_uneven(const struct tp_plan *plan, unsigned alike, struct tp_text *module,
                            bool *experts, struct tp_err *err);

#endif
