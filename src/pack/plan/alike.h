/* Files of an output whose names differ in case only: many file systems (those of macOS and
 * Windows, vfat, ext4 and xfs with that option) hold one of them, under either name.
 */
#ifndef TP_PACK_ALIKE_H
#define TP_PACK_ALIKE_H

#include "pack/plan/plan.h"

/* How many pairs of names there are among the files that the plan's output consists of (shards,
 * index, config, copies) that are the same but for the case of a-z, or of a file and one in a
 * folder of such a name; the first of them in `pair`, NULL where there is none. They belong to the
 * plan. A plan for a single file has none. */
enum tp_code tp_plan_alike(const struct tp_plan *plan, const char *pair[2], size_t *pairs,
                           struct tp_err *err);

#endif
