/* Compute: one worker's buffers, and kernels run on them by the CPU or a GPU.
 *
 * Inputs and outputs of a box lie in two arenas. With a GPU these are the pinned
 * buffers of its slot; a box that does not fit them is done by the CPU, so a small
 * GPU only costs speed. The bytes are the same either way.
 */
#ifndef TP_PACK_COMPUTE_H
#define TP_PACK_COMPUTE_H

#include "kernels/op/op_at.h"

struct tp_cuda_slot;

struct tp_arena {
    uint8_t *base; /* 64-byte aligned */
    uint64_t capacity, used;
};

struct tp_compute {
    struct tp_cuda_slot *cuda; /* NULL: CPU only */
    struct tp_arena host_in, host_out, pinned_in, pinned_out;
    struct tp_arena values, scratch;
    struct tp_arena *in, *out; /* the pair in use for this box */
};

/* Starts a box that needs so many bytes of input and output (each buffer rounded
 * up to 64): chooses the arenas and empties them. */
enum tp_code tp_compute_begin(struct tp_compute *c, uint64_t in_bytes, uint64_t out_bytes,
                              struct tp_err *err);

/* Memory of the host for what no kernel touches, until the next box; NULL + TP_E_MEMORY. It is that
 * of boxes, so that a worker needs no more for copies. */
void *tp_compute_bytes(struct tp_compute *c, uint64_t bytes, struct tp_err *err);

/* The next `bytes` of an arena that begin() made room for. */
void *tp_arena_allocate(struct tp_arena *arena, uint64_t bytes);

/* Takes a buffer for each output (NULL for layout words) from the arena: at->total bytes. */
void tp_op_allocate(const struct tp_op_at *at, struct tp_arena *arena, void *buffers[TP_MAX_OUT]);

/* Run on the device when the box is there, else on the CPU. args->in and out are
 * what was taken from c->in and c->out; scratch is provided here. */
enum tp_code tp_compute_encode(struct tp_compute *c, const struct tp_op *op, struct tp_args *args,
                               struct tp_err *err);
enum tp_code tp_compute_repack(struct tp_compute *c, const struct tp_op *from,
                               const struct tp_op *to, struct tp_args *args, struct tp_err *err);
/* The latter reads what lies anywhere, and takes nothing of c->in and c->out. */
enum tp_code tp_compute_decode_on_host(struct tp_compute *c, const struct tp_op *op,
                                       struct tp_args *args, struct tp_err *err);
enum tp_code tp_compute_decode(struct tp_compute *c, const struct tp_op *op, struct tp_args *args,
                               struct tp_err *err);
/* Decode `from` to values of `via`, encode those to `to`: inputs and outputs as for
 * repack. The values stay in c->values only when the CPU did it; see `values`. */
enum tp_code tp_compute_requantize(struct tp_compute *c, const struct tp_op *from,
                                   const struct tp_op *to, enum tp_dtype via,
                                   struct tp_args *args, struct tp_err *err);

void tp_compute_close(struct tp_compute *c);

#endif
