/* Boxes: how a unit is cut into jobs.
 *
 * A box is rows x columns of one expert (or several whole experts), cut at
 * granules so that it is stored like a small tensor of its own. Small boxes stay
 * in cache; they grow until the runs they read and write are long enough.
 *
 * Where a scale belongs to a whole row, a box has whole rows. Those too long for the memory
 * are worked in panels along K: a first pass finds the extrema of each row, the values that decide
 * its scale, and every panel is encoded with them in columns of their own before it, which are
 * cut off again. So a panel has the scale of its row, whatever kernel makes it.
 */
#ifndef TP_PACK_BOX_H
#define TP_PACK_BOX_H

#include "pack/plan/unit/plan.h"

/* The extrema of a row, each a block of equal values: the largest magnitude, the largest that is
 * no NaN, the largest finite one, and zeros where the row has a block of zeros. */
enum { TP_ROW_EXTREMA = 4 };

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
    uint64_t panel, extra; /* columns of one panel of a box that is worked in panels, and of
                              what each panel has in addition (see below); 0: boxes are whole */
};

/* What boxes should be like: preferred bytes of source values per box, the most, how many
 * bytes in small chunks the sink puts together (tp_sink.assembles), and the most memory that
 * work on one box may take in all (0: any). */
struct tp_box_hints {
    uint64_t target, limit, assembles, memory;
};
enum tp_code tp_unit_boxes(const struct tp_plan *plan, const struct tp_unit *unit,
                           const struct tp_box_hints *hints, struct tp_grid *grid,
                           struct tp_err *err);

/* Whether both units are cut alike, whatever the hints: of one size, format and source. */
bool tp_same_boxes(const struct tp_plan *plan, const struct tp_unit *a, const struct tp_unit *b);

/* Upper bound of the memory that work on one box of this grid takes: what is read, made and
 * needed on the way. */
uint64_t tp_grid_memory(const struct tp_plan *plan, const struct tp_unit *unit,
                        const struct tp_grid *grid);

/* The same for a sink with as much memory as there is by default. */
enum tp_code tp_unit_grid(const struct tp_plan *plan, const struct tp_unit *unit, uint64_t target,
                          uint64_t limit, struct tp_grid *grid, struct tp_err *err);

/* Box number i < grid->count. */
struct tp_box tp_grid_box(const struct tp_unit *unit, const struct tp_grid *grid, uint64_t i);

/* Panel number i of a box, which is all of it where boxes are whole; false beyond the last. */
bool tp_grid_panel(const struct tp_grid *grid, const struct tp_box *box, uint64_t i,
                   struct tp_box *panel);

/* The part of a packed weight that covers a box, widened to the weight's own
 * granule: what has to be read to decode it. The rows are of one segment, or it is
 * TP_E_UNSUPPORTED. */
enum tp_code tp_weight_cover(const struct tp_weight *weight, uint64_t row, uint64_t rows,
                             uint64_t k, uint64_t columns, struct tp_box *cover,
                             struct tp_err *err);

/* The offset of the box's first element in output i of the whole, which lies there so. */
uint64_t tp_box_base(const struct tp_op *op, uint32_t i, struct tp_box3 whole_size,
                     const struct tp_box *box, const struct tp_layout *whole);

/* Layouts of output i for a box on its own and for the whole, and that offset. */
enum tp_code tp_box_layouts(const struct tp_op *op, uint32_t i, struct tp_box3 whole_size,
                            const struct tp_box *box, struct tp_layout *part,
                            struct tp_layout *whole, uint64_t *base, struct tp_err *err);

#endif
