/* The targets of config_groups: which layers each group of compressed-tensors is for.
 */
#ifndef TP_PACK_TARGETS_H
#define TP_PACK_TARGETS_H

#include "pack/plan/unit/plan.h"

enum { TP_MAX_GROUPS = 16, TP_NO_GROUP = 255 };

/* group[u]: that of plan.units[u], then of plan.kept_units, or TP_NO_GROUP; there are `groups` of
 * them. list[g]: a new reference; all are NULL on failure. */
enum tp_code tp_targets(const struct tp_plan *plan, const uint8_t *group, size_t groups,
                        json_t *list[TP_MAX_GROUPS], struct tp_err *err);

#endif
