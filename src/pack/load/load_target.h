/* Where loaded bytes go: a table of what depends on the memory that receives them, so that all
 * the rest of loading runs, and is tested, without a device.
 *
 * A ring has workers, one for each thread, and each worker slots of host memory, out of which
 * copies are begun. They may end later than copy() does; a slot is taken when those have.
 */
#ifndef TP_PACK_LOAD_TARGET_H
#define TP_PACK_LOAD_TARGET_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdint.h>

struct tp_load_size {
    unsigned workers, slots; /* slots of each worker */
    uint64_t bytes;          /* of each slot */
};

/* Where a ring lies between loads; zeroed there is none. */
struct tp_load_rest {
    _Atomic(void *) ring;
};

struct tp_load_target {
    /* On failure *ring is NULL. */
    enum tp_code (*open)(const struct tp_load_target *target, struct tp_load_size size,
                         void **ring, struct tp_err *err);
    /* The thread that calls this is the worker's from now on. */
    enum tp_code (*begin)(void *ring, unsigned worker, struct tp_err *err);
    /* Returns slot i of the worker when what was recorded for it has ended: its thread may write
     * it now. */
    enum tp_code (*take)(void *ring, unsigned worker, unsigned i, void **slot, struct tp_err *err);
    /* Begins a copy of bytes of a slot to the caller's memory. */
    enum tp_code (*copy)(void *ring, unsigned worker, void *to, const void *from, uint64_t bytes,
                         struct tp_err *err);
    /* What the worker has begun so far is what a later take() of its slot i waits for. */
    enum tp_code (*record)(void *ring, unsigned worker, unsigned i, struct tp_err *err);
    /* Returns when everything that the worker began has ended. */
    enum tp_code (*finish)(void *ring, unsigned worker, struct tp_err *err);
    /* Waits for all copies; by the thread that opened it. */
    void (*close)(const struct tp_load_target *target, void *ring);
    int device;   /* of CUDA's targets */
    void *stream; /* copies begin after what is queued on it */
    struct tp_load_rest *rest; /* NULL: a ring is not kept */
};

/* Memory of this process. */
struct tp_load_target tp_load_host(void);
/* Memory of a CUDA device, as the runtime numbers them; `stream` is a cudaStream_t of it, NULL
 * the default one. With `rest` the ring stays there when it is closed, and the next load takes it
 * over, until tp_load_cuda_end(). Opening is TP_E_MEMORY where there is no device, TP_E_USAGE where
 * there is none of that number. */
struct tp_load_target tp_load_cuda(int device, void *stream, struct tp_load_rest *rest);
/* Gives back the ring that rests. */
void tp_load_cuda_end(struct tp_load_rest *rest);

#endif
