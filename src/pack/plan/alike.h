/* Files of an output whose names differ in case only: many file systems (those of macOS and
 * Windows, vfat, ext4 and xfs with that option) hold one of them, under either name.
 */
#ifndef TP_PACK_ALIKE_H
#define TP_PACK_ALIKE_H

#include "pack/plan/plan.h"

/* Two names among the files that the plan's output consists of (shards, index, config, copies)
 * that are the same but for the case of a-z, or a file and one in a folder of such a name;
 * pair[0] NULL: there are none. They belong to the
 * plan. A plan for a single file has none. */
enum tp_code tp_plan_alike(const struct tp_plan *plan, const char *pair[2], struct tp_err *err);

#endif
