/* The target that is memory of this process: a copy has ended when it returns. */
#include "pack/load/load_target.h"

#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 4096 };

struct ring {
    uint8_t *memory;
    struct tp_load_size size;
};

static void free_ring(struct ring *r)
{
    free(r->memory);
    free(r);
}

static void close_ring(const struct tp_load_target *target, void *ring)
{
    (void)target;
    free_ring(ring);
}

static enum tp_code open_ring(const struct tp_load_target *target, struct tp_load_size size,
                              void **ring, struct tp_err *err)
{
    struct ring *r = tp_os_zalloc(1, sizeof *r, err);
    const uint64_t bytes = size.workers * size.slots * size.bytes;
    (void)target;
    *ring = NULL;
    if (!r)
        return TP_E_MEMORY;
    r->size = size;
    if (!(r->memory = tp_os.aligned_alloc(ALIGN, bytes))) {
        free_ring(r);
        return tp_fail(err, TP_E_MEMORY, "out of memory for a ring of %llu bytes",
                       (unsigned long long)bytes);
    }
    *ring = r;
    return TP_OK;
}

static enum tp_code take(void *ring, unsigned worker, unsigned i, void **slot, struct tp_err *err)
{
    const struct ring *r = ring;
    (void)err;
    *slot = r->memory + (worker * r->size.slots + i) * r->size.bytes;
    return TP_OK;
}

static enum tp_code copy(void *ring, unsigned worker, void *to, const void *from, uint64_t bytes,
                         struct tp_err *err)
{
    (void)ring, (void)worker, (void)err;
    memcpy(to, from, bytes);
    return TP_OK;
}

static enum tp_code record(void *ring, unsigned worker, unsigned i, struct tp_err *err)
{
    (void)ring, (void)worker, (void)i, (void)err;
    return TP_OK;
}

static enum tp_code nothing(void *ring, unsigned worker, struct tp_err *err)
{
    (void)ring, (void)worker, (void)err;
    return TP_OK;
}

struct tp_load_target tp_load_host(void)
{
    return (struct tp_load_target){.open = open_ring, .begin = nothing, .take = take,
                                   .copy = copy,      .record = record,     .finish = nothing,
                                   .close = close_ring, .device = -1};
}
