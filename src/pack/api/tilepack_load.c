/* The C library: loading. A thin wrapper over load.h. */
#include "pack/api/tilepack_handles.h"

#include "base/num.h"
#include "pack/load/load.h"
#include "pack/os/os.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 14 };
#define RING_OF_THREAD (3 * TP_LOAD_MIN)

static unsigned threads_of(unsigned asked)
{
    cpu_set_t set; /* of the processors that this process may use */
    if (asked > 0)
        return asked;
    if (sched_getaffinity(0, sizeof set, &set))
        return 1;
    return (unsigned)tp_min_u64((uint64_t)CPU_COUNT(&set), MAX_THREADS);
}

/* The ring is the one thing that loading changes of a handle. */
static struct tp_load_rest *rest_of(const tilepack_checkpoint *c)
{
    return &((tilepack_checkpoint *)c)->ring;
}

static enum tp_code load(const tilepack_checkpoint *c, const tilepack_part parts[], size_t count,
                         const struct tp_load_options *options, struct tp_err *err)
{
    struct tp_load_part *taken = tp_os_zalloc(count + 1, sizeof *taken, err);
    if (!taken)
        return TP_E_MEMORY;
    for (size_t i = 0; i < count; i++) {
        taken[i].tensor = parts[i].tensor;
        taken[i].rank = (uint32_t)tp_min_u64(parts[i].rank, UINT32_MAX);
        memcpy(taken[i].shape, parts[i].shape, sizeof taken[i].shape);
        memcpy(taken[i].begin, parts[i].begin, sizeof taken[i].begin);
        memcpy(taken[i].end, parts[i].end, sizeof taken[i].end);
        taken[i].to = parts[i].to;
    }
    enum tp_code code = tp_load(&c->ckpt, taken, count, options, err);
    free(taken);
    return code;
}

int tilepack_load(const tilepack_checkpoint *checkpoint, const tilepack_part parts[],
                  size_t count, int device, void *stream, int verify, unsigned threads,
                  uint64_t ring, char *message, size_t size)
{
    struct tp_err err = {0};
    struct tp_load_target target =
        device == -1 ? tp_load_host() : tp_load_cuda(device, stream, rest_of(checkpoint));
    struct tp_load_options options = {.target = &target,
                                      .threads = threads_of(threads),
                                      .verify = verify != 0};
    options.ring_bytes = ring ? ring : options.threads * RING_OF_THREAD;
    if (!parts && count > 0)
        tp_fail(&err, TP_E_USAGE, "no parts are given");
    else
        load(checkpoint, parts, count, &options, &err);
    return tp_handle_report(&err, message, size);
}
