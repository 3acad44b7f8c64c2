/* Drop-behind: when a run can remove its traces. Knows tensors and units, reads nothing.
 */
#ifndef TP_PACK_DROPBEHIND_H
#define TP_PACK_DROPBEHIND_H

#include "pack/plan/cut/box.h"
#include "pack/source/page_cache.h"

#include <stdatomic.h>

/* {0} does nothing. */
struct tp_dropbehind {
    const struct tp_plan *plan;
    struct tp_page_cache cache; /* of the source */
    atomic_uint *boxes;     /* per unit: not done yet */
    atomic_uint *users;     /* per tensor: units not done yet */
    atomic_uint *tensors;   /* per file: those that have users */
};

/* Tensors go one by one, and with the last of a file what was read ahead beyond them.
 * Looks at what of the source is cached now. `grids`: per unit. */
enum tp_code tp_dropbehind_open(struct tp_dropbehind *d, const struct tp_plan *plan,
                                const struct tp_grid *const *grids, struct tp_err *err);
void tp_dropbehind_close(struct tp_dropbehind *d);

/* A box of the unit was read; those of its tensors that no job needs any more are dropped. */
void tp_dropbehind_box(struct tp_dropbehind *d, uint32_t unit);

/* Bytes [offset, offset + size) of a kept tensor were read. */
void tp_dropbehind_copy(struct tp_dropbehind *d, const struct tp_tensor *tensor, uint64_t offset,
                        uint64_t size);

#endif
