/* The target that is memory of this process: a copy has ended when it returns. */
#include "pack/load/load_target.h"

#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 4096 };

struct lane {
    uint8_t *memory;
    uint64_t bytes;
};

static enum tp_code open_lane(const struct tp_load_target *target, uint64_t bytes, unsigned slots,
                              void **lane, struct tp_err *err)
{
    struct lane *l = tp_os_alloc(sizeof *l, err);
    (void)target;
    *lane = NULL;
    if (!l)
        return TP_E_MEMORY;
    *l = (struct lane){tp_os.aligned_alloc(ALIGN, bytes * slots), bytes};
    if (!l->memory) {
        free(l);
        return tp_fail(err, TP_E_MEMORY, "out of memory for %llu bytes of a ring",
                       (unsigned long long)(bytes * slots));
    }
    *lane = l;
    return TP_OK;
}

static void *slot(void *lane, unsigned i)
{
    struct lane *l = lane;
    return l->memory + i * l->bytes;
}

static enum tp_code copy(void *lane, void *to, const void *from, uint64_t bytes,
                         struct tp_err *err)
{
    (void)lane, (void)err;
    memcpy(to, from, bytes);
    return TP_OK;
}

static enum tp_code nothing(void *lane, unsigned i, struct tp_err *err)
{
    (void)lane, (void)i, (void)err;
    return TP_OK;
}

static void close_lane(void *lane)
{
    struct lane *l = lane;
    if (l)
        free(l->memory);
    free(l);
}

struct tp_load_target tp_load_host(void)
{
    return (struct tp_load_target){open_lane, slot, copy, nothing, nothing, close_lane, -1, NULL};
}
