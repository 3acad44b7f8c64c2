/* Boxes: how a unit is cut into jobs.
 *
 * A box is rows x columns of one expert (or several whole experts), cut at
 * granules so that it is stored like a small tensor of its own. Small boxes stay
 * in cache; they grow until the runs they read and write are long enough.
 */
#ifndef TP_PACK_BOX_H
#define TP_PACK_BOX_H

#include "pack/plan/plan.h"

/* Boxes of one unit. A region is the rows that one box may not leave: all of an
 * expert, or one part of it when packed sources are taken over. */
struct tp_grid {
    uint64_t e_step, n_step, k_step;
    uint64_t k_count;
    uint32_t regions;
    uint64_t region_rows[TP_MAX_VIEWS];
    uint64_t region_boxes[TP_MAX_VIEWS]; /* along n */
    uint64_t expert_boxes;               /* sum of region_boxes times k_count */
    uint64_t count;
};

/* What boxes should be like: preferred bytes of source values per box, the most, and
 * how many bytes in small pieces the sink puts together (tp_sink.assembles). */
struct tp_box_wish {
    uint64_t target, limit, assembles;
};
enum tp_code tp_unit_boxes(const struct tp_plan *plan, const struct tp_unit *unit,
                           const struct tp_box_wish *wish, struct tp_grid *grid,
                           struct tp_err *err);

/* The same for a sink with as much memory as there is by default. */
enum tp_code tp_unit_grid(const struct tp_plan *plan, const struct tp_unit *unit, uint64_t target,
                          uint64_t limit, struct tp_grid *grid, struct tp_err *err);

/* Box number i < grid->count. */
struct tp_box tp_grid_box(const struct tp_unit *unit, const struct tp_grid *grid, uint64_t i);

/* Granule of boxes of this unit: of its outputs and of its packed source. 0 as
 * the second: whole rows. */
enum tp_code tp_unit_granule(const struct tp_plan *plan, const struct tp_unit *unit, uint64_t *n,
                             uint64_t *k, struct tp_err *err);

/* The part of a packed weight that covers a box, widened to the weight's own
 * granule: what has to be read to decode it. */
enum tp_code tp_weight_cover(const struct tp_weight *weight, uint64_t row, uint64_t rows,
                             uint64_t k, uint64_t columns, struct tp_box *cover,
                             struct tp_err *err);

/* Layouts of output i for a box on its own and for the whole, and the offset of
 * the box's first element in the whole. */
enum tp_code tp_box_layouts(const struct tp_op *op, uint32_t i, struct tp_box3 whole_size,
                            const struct tp_box *box, struct tp_layout *part,
                            struct tp_layout *whole, uint64_t *base, struct tp_err *err);

#endif
