/* Values that must be the same before and after. Inside of context.c.
 */
#ifndef TP_PACK_SAME_VALUES_H
#define TP_PACK_SAME_VALUES_H

#include "base/dtype.h"
#include "base/error.h"
#include "pack/plan/cut/box.h"

/* Fails (TP_E_UNSUPPORTED, with the hint set) where values of the box, F32 or BF16, are others in
 * `made`, which was read back from that format. Zeros are the same whatever their signs, and so are
 * NaNs. */
enum tp_code tp_same_values(enum tp_dtype dtype, const void *source, const void *made,
                            const struct tp_box *box, const char *format, struct tp_err *err);

#endif
