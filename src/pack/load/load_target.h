/* Where loaded bytes go: a table of what depends on the memory that receives them, so that all
 * the rest of loading runs, and is tested, without a device.
 *
 * A lane is one thread's: slots of host memory, and the copies that were begun out of them.
 * Copies may end later than copy() does; wait() tells when those out of a slot have.
 */
#ifndef TP_PACK_LOAD_TARGET_H
#define TP_PACK_LOAD_TARGET_H

#include "base/error.h"

#include <stdint.h>

struct tp_load_target {
    /* A lane with `slots` slots of `bytes` bytes. On failure *lane is NULL. */
    enum tp_code (*open)(const struct tp_load_target *target, uint64_t bytes, unsigned slots,
                         void **lane, struct tp_err *err);
    void *(*slot)(void *lane, unsigned i);
    /* Begins a copy of bytes of a slot to the caller's memory. */
    enum tp_code (*copy)(void *lane, void *to, const void *from, uint64_t bytes,
                         struct tp_err *err);
    /* Everything that was begun so far is what a later wait() for slot i waits for. */
    enum tp_code (*mark)(void *lane, unsigned i, struct tp_err *err);
    /* Returns when it has ended, at once for a slot that was never marked. */
    enum tp_code (*wait)(void *lane, unsigned i, struct tp_err *err);
    void (*close)(void *lane); /* waits for all copies; NULL is legal */
    int device;                /* of CUDA's targets */
    void *stream;              /* copies begin after what is queued on it */
};

/* Memory of this process. */
struct tp_load_target tp_load_host(void);
/* Memory of a CUDA device, as the runtime numbers them; `stream` is a cudaStream_t of it, NULL
 * the default one. Opening a lane is TP_E_MEMORY where there is no device, TP_E_USAGE where
 * there is none of that number. */
struct tp_load_target tp_load_cuda(int device, void *stream);

#endif
