/* Boxes of tensors in files: run by run between the whole and a compact buffer.
 * Knows layouts and files, no kernels; every function is thread-safe.
 */
#ifndef TP_PACK_PACKED_IO_H
#define TP_PACK_PACKED_IO_H

#include "kernels/op/feedback.h"
#include "kernels/op/op_at.h"
#include "pack/os/buffer.h"
#include "pack/plan/cut/box.h"
#include "pack/sink/sink.h"
#include "pack/source/invariants.h"

/* Reads every output of a packed weight for the box `cover` (granule-aligned, one
 * expert) into to[i], which holds tp_op_bytes() of that box. Outputs without a
 * tensor, and layout words, are left alone. What is read can be decoded: act-order
 * that names a group there is not is TP_E_INPUT, bytes that are no int4 TP_E_UNSUPPORTED.
 * `kept` (or NULL): operations of the plan at sizes that were asked for before. `invariants`: those
 * of the weights that are copied, TP_E_INPUT where this one's are wrong; or NULL. */
enum tp_code tp_packed_read_into(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                 const struct tp_box *cover, struct tp_ops_at *kept,
                                 struct tp_invariants *invariants, void *const to[],
                                 struct tp_err *err);

/* The same into buffers that grow as needed. */
enum tp_code tp_packed_read(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                            const struct tp_box *cover, struct tp_buffer to[TP_MAX_OUT],
                            struct tp_err *err);

/* Copies the outputs of `box` out of those of a larger box of that size, both in
 * memory. box->n and box->k are counted from its begin, and e is 0. */
enum tp_code tp_packed_cut(const struct tp_op *op, struct tp_box3 size, const struct tp_box *box,
                           void *const from[], void *const to[], struct tp_err *err);

/* Writes a unit's outputs for one box from from[i]. `first_box`: also the outputs
 * that exist once for the whole unit (a global scale). */
enum tp_code tp_packed_write(const struct tp_unit *unit,
                             const struct tp_box *box, bool first_box, void *const from[],
                             struct tp_ops_at *kept, struct tp_sink *sink, struct tp_err *err);

/* Reads the values of a box of a unit whose parts are plain, compact [e][n][k]. */
enum tp_code tp_values_read(const struct tp_plan *plan, const struct tp_unit *unit,
                            const struct tp_box *box, void *to, struct tp_err *err);

/* Writes the values of a box of a plain unit. */
enum tp_code tp_values_write(const struct tp_unit *unit,
                             const struct tp_box *box, const void *from, struct tp_sink *sink,
                             struct tp_err *err);

/* The numbers of importance of the box's columns, h[E][K] of the box: in `buffer`, or NULL for
 * a unit that none of a file are used for. */
enum tp_code tp_box_importance(const struct tp_plan *plan, const struct tp_unit *unit,
                               const struct tp_box *box, struct tp_buffer *buffer,
                               const float **importance, struct tp_err *err);

/* What is made of the moments of the expert that a lane works on; {0} at first. */
struct tp_moments {
    struct tp_buffer read, state;
    struct tp_importance_ref of;
    struct tp_feedback fed;
};
/* Sets *fed to what is fed back in a box of one expert whose importance is given, or to NULL where
 * nothing is. */
enum tp_code tp_box_moments(const struct tp_plan *plan, const struct tp_unit *unit,
                            const struct tp_box *box, const float *importance,
                            struct tp_moments *moments, const struct tp_feedback **fed,
                            struct tp_err *err);
void tp_moments_free(struct tp_moments *moments);

#endif
