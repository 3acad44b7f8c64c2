/* The CUDA backend: kernel rows on device pointers, and slots that carry host
 * buffers through them.
 *
 * Everything here exists in every build. Without nvcc, without a driver or without
 * a GPU, tp_cuda_count() is 0, the finders return NULL and the other functions fail
 * with TP_E_MEMORY and a message; nothing else of the program needs to know. The
 * driver is looked for on the first call, never at start-up.
 *
 * Rows take boxes of any size: where a row's own kernel does not fit a box, it
 * enqueues the general one. They read and write device memory only, allocate
 * nothing, enqueue on args->stream and return; args->device_flags, one zeroed word,
 * is OR-ed with TP_SAW_NONFINITE. TP_FAILED is set in args->flags before anything is
 * enqueued, and nothing is then. A repack whose output for the codes is its input for
 * them leaves them where they are and makes the scales alone (on boxes that the row's
 * own kernel takes). A launch that fails is seen in the slot's (or the
 * caller's) next CUDA call.
 */
#ifndef TP_KERNELS_CUDA_H
#define TP_KERNELS_CUDA_H

#include "base/c_linkage.h"
#include "kernels/op/row_set.h"

TP_C_BEGIN

/* ---- rows ---------------------------------------------------------------- */

/* The row for this operation, NULL when TILEPACK_DISABLE holds "cuda" or the build
 * has no CUDA, and for operations of the host alone (tp_device_can()). Any other operation without
 * a fast row gets the general kernels. The rows: tp_rows_cuda. */
tp_encode_fn tp_cuda_encode_find(const struct tp_op *op, enum tp_dtype dtype);
tp_repack_fn tp_cuda_repack_find(const struct tp_op *from, const struct tp_op *to);
tp_decode_fn tp_cuda_decode_find(const struct tp_op *op, enum tp_dtype dtype);

/* ---- devices ------------------------------------------------------------- */

enum { TP_CUDA_NAME = 256 };

struct tp_cuda_device {
    char name[TP_CUDA_NAME];
    int major, minor;        /* compute capability */
    int multiprocessors;
    uint64_t memory_free;    /* bytes, at the time of the call */
    uint64_t l2_bytes;
};

/* Devices as the CUDA runtime numbers them; 0 without a driver, a GPU, CUDA in the
 * build, or any usable device. */
int tp_cuda_count(void);

/* Why tp_cuda_count() is 0, in words for a message; "" when it is not. */
const char *tp_cuda_why_none(void);

enum tp_code tp_cuda_query(int device, struct tp_cuda_device *info, struct tp_err *err);

/* ---- slots --------------------------------------------------------------- */

/* One stream with pinned host buffers and device buffers of the same sizes. A slot
 * belongs to one thread at a time; slots of one device run side by side, so that
 * the copies of one overlap the kernels of another. */
struct tp_cuda_slot;

enum tp_cuda_kind { TP_CUDA_ENCODE, TP_CUDA_REPACK, TP_CUDA_DECODE, TP_CUDA_REQUANT };

/* One piece of work on host memory. Pointers in args.in lie in the slot's input
 * buffer, those in args.out in its output buffer, at multiples of 64 bytes; args.importance
 * may lie anywhere. The outputs of role WORDS are not touched. REQUANT decodes `from` to
 * `via` (F32 or BF16) and encodes `to`, all on the device. */
struct tp_cuda_call {
    enum tp_cuda_kind kind;
    const struct tp_op *from; /* REPACK, DECODE, REQUANT: what is read */
    const struct tp_op *to;   /* ENCODE, REPACK, REQUANT: what is written */
    enum tp_dtype via;        /* REQUANT */
    struct tp_args args;      /* stream and device_flags are the slot's own */
};

/* Opens a slot; `scratch_bytes` is device memory for REQUANT's values (0: none).
 * Running out of device or pinned memory is TP_E_MEMORY with *no_memory = true, and
 * nothing is left behind: the caller tries again with smaller buffers. Any other
 * CUDA failure is TP_E_MEMORY with *no_memory = false and final. */
enum tp_code tp_cuda_open(int device, uint64_t input_bytes, uint64_t output_bytes,
                          uint64_t scratch_bytes, struct tp_cuda_slot **slot, bool *no_memory,
                          struct tp_err *err);

/* The slot's pinned host memory. */
void *tp_cuda_input(struct tp_cuda_slot *slot);
void *tp_cuda_output(struct tp_cuda_slot *slot);

/* Uploads the inputs, runs the kernels, downloads the outputs and waits. On return
 * call->args.flags holds TP_SAW_NONFINITE if it applies. A CUDA error is final: the
 * device's context is lost, and every later call fails too. */
enum tp_code tp_cuda_run(struct tp_cuda_slot *slot, struct tp_cuda_call *call,
                         struct tp_err *err);

/* NULL is legal. */
void tp_cuda_close(struct tp_cuda_slot *slot);

/* Bytes of the inputs and outputs of a call when each starts at a multiple of 64,
 * in the order of the operation; WORDS count 0. For sizing slots. */
enum tp_code tp_cuda_call_bytes(const struct tp_cuda_call *call, uint64_t *input,
                                uint64_t *output, uint64_t *scratch, struct tp_err *err);

/* ---- rows on the caller's own memory ------------------------------------- */

/* Around rows that a caller enqueues by itself: makes `device` current in this thread,
 * and puts *before back. leave() fails when something enqueued in between did not
 * start. */
enum tp_code tp_cuda_enter(int device, int *before, struct tp_err *err);
enum tp_code tp_cuda_leave(int before, struct tp_err *err);

/* ---- copies to the caller's own memory ----------------------------------- */

/* Lanes, one for a thread, each with slots of pinned host memory and a stream that copies out of
 * them. */
struct tp_cuda_copier;

/* Copies begin after what is queued now on `after`, a cudaStream_t of the device (NULL: the
 * default one). The device is the thread's current one until the copier rests or is closed, by the
 * same thread. TP_E_MEMORY when memory that can be pinned is short, or the device failed; *copier
 * is NULL then. */
enum tp_code tp_cuda_copier_open(int device, void *after, unsigned workers, unsigned slots,
                                 uint64_t slot_bytes, struct tp_cuda_copier **copier,
                                 struct tp_err *err);
/* By each thread that is a worker of the copier, before anything else. */
enum tp_code tp_cuda_copier_begin(struct tp_cuda_copier *copier, struct tp_err *err);

/* Slot i of a worker, when what was recorded for it has ended; at once where nothing was. */
enum tp_code tp_cuda_copier_take(struct tp_cuda_copier *copier, unsigned worker, unsigned i,
                                 void **slot, struct tp_err *err);

/* Begins a copy of bytes of a slot to device memory. */
enum tp_code tp_cuda_copier_copy(struct tp_cuda_copier *copier, unsigned worker, void *to,
                                 const void *from, uint64_t bytes, struct tp_err *err);

/* What the worker has begun so far is what a later take() of its slot i waits for. */
enum tp_code tp_cuda_copier_record(struct tp_cuda_copier *copier, unsigned worker, unsigned i,
                                   struct tp_err *err);

/* Returns when everything that the worker began has ended. */
enum tp_code tp_cuda_copier_finish(struct tp_cuda_copier *copier, unsigned worker,
                                   struct tp_err *err);

/* Waits for all copies. Until again() nothing else is called but fits() and close(). */
void tp_cuda_copier_rest(struct tp_cuda_copier *copier);
/* Whether it would do instead of one that is opened so. */
bool tp_cuda_copier_fits(const struct tp_cuda_copier *copier, int device, unsigned workers,
                         unsigned slots, uint64_t slot_bytes);
/* After a rest, as after opening. */
enum tp_code tp_cuda_copier_again(struct tp_cuda_copier *copier, void *after, struct tp_err *err);

/* Waits for all copies. NULL is legal. */
void tp_cuda_copier_close(struct tp_cuda_copier *copier);

TP_C_END

#endif
