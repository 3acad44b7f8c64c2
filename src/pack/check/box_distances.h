/* How far the values of one box are from those of its source: of what the run made of it,
 * and, where scales were searched, of what it would have made without. Knows nothing of
 * units' sums or of threads; inside of verify_values.c, estimate.c and requant_error.c.
 */
#ifndef TP_PACK_BOX_DISTANCES_H
#define TP_PACK_BOX_DISTANCES_H

#include "pack/check/values.h"
#include "pack/run/packed_io.h"
#include "pack/run/run_options.h"

/* What is measured of a box. Without a search only the first; the weighted ones with a
 * file's importance: errors and values times its root. */
struct tp_box_distances {
    struct tp_distance stored, none, weighted_stored, weighted_none;
};

/* Buffers of one measurement; {0} is empty. `next` is the owner's, for a list. */
struct tp_box_buffers {
    struct tp_box_buffers *next;
    struct tp_value_reader reader;
    struct tp_buffer source, decoded, scratch, plain, importance, cut;
    struct tp_moments moments;
};
void tp_box_buffers_free(struct tp_box_buffers *buffers); /* legal on {0} */

/* Measures a box of `plan`, which was made on `source`; `search`: and what it would be
 * without. *distances is zeroed by the caller. */
enum tp_code tp_box_distances_of(const struct tp_plan *plan, const struct tp_side *source,
                                 const struct tp_observed *seen, bool search,
                                 struct tp_box_buffers *buffers,
                                 struct tp_box_distances *distances, struct tp_err *err);

/* Bytes that the buffers of that take for a part of the box, and those of tp_box_rows(), at most.
 * */
uint64_t tp_box_distances_bytes(const struct tp_plan *plan, const struct tp_observed *seen,
                                const struct tp_box *part, bool search);

/* Quantizes the source's values of a box (of one expert, cut at granules) as if they were a
 * weight of their own, and measures that. The unit is one that is encoded. A part of a weight that
 * has no global scale of its own (tp_codec_global_of()) is not measured; of a whole one that is
 * an error, as in the run. `weights`: what errors are weighed with, one number for each column of
 * the box, for the weighted distance beside the other one; or NULL. *distances is zeroed by the
 * caller. */
enum tp_code tp_box_trial(const struct tp_plan *plan, const struct tp_side *source, uint32_t unit,
                          const struct tp_box *box, const float *weights,
                          struct tp_box_buffers *buffers, struct tp_box_distances *distances,
                          struct tp_err *err);

/* The rows `part` of a box that was seen, as if they had been one: part->e, n and k count as
 * those of the box do, and begin at a granule of the unit. Outputs of the rows go to `out`,
 * which *rows refers to, as it does to `buffers` and `seen`. */
enum tp_code tp_box_rows(const struct tp_unit *unit, const struct tp_observed *seen,
                         const struct tp_box *part, struct tp_box_buffers *buffers,
                         void *out[TP_MAX_OUT], struct tp_observed *rows, struct tp_err *err);

#endif
