/* The target that is memory of a CUDA device: pinned slots, and a stream for each worker.
 *
 * To pin slots takes longer than to copy a small layer. So a ring may rest between loads. Whoever
 * takes it leaves the place empty, and a second load at the same time opens its own.
 */
#include "pack/load/load_target.h"

#include "kernels/cuda/cuda.h"

/* The ring that rests, if it will do; NULL: none. One of another size is given back. */
static struct tp_cuda_copier *take_rested(const struct tp_load_target *target,
                                          struct tp_load_size size)
{
    struct tp_cuda_copier *copier =
        target->rest ? atomic_exchange(&target->rest->ring, NULL) : NULL;
    if (copier && tp_cuda_copier_fits(copier, target->device, size.workers, size.slots, size.bytes))
        return copier;
    tp_cuda_copier_close(copier);
    return NULL;
}

static enum tp_code open_ring(const struct tp_load_target *target, struct tp_load_size size,
                              void **ring, struct tp_err *err)
{
    struct tp_cuda_copier *copier = NULL;
    int count = tp_cuda_count();
    enum tp_code code;
    if (count == 0)
        code = tp_fail(err, TP_E_MEMORY, "no GPU to load to: %s", tp_cuda_why_none());
    else if (target->device < 0 || target->device >= count)
        code = tp_fail(err, TP_E_USAGE, "there is no GPU %d; there are %d", target->device, count);
    else if ((copier = take_rested(target, size)))
        code = tp_cuda_copier_again(copier, target->stream, err);
    else
        code = tp_cuda_copier_open(target->device, target->stream, size.workers, size.slots,
                                   size.bytes, &copier, err);
    if (code) {
        tp_cuda_copier_close(copier);
        copier = NULL;
    }
    *ring = copier;
    return code;
}

static enum tp_code begin(void *ring, unsigned worker, struct tp_err *err)
{
    (void)worker;
    return tp_cuda_copier_begin(ring, err);
}

static enum tp_code take(void *ring, unsigned worker, unsigned i, void **slot, struct tp_err *err)
{
    return tp_cuda_copier_take(ring, worker, i, slot, err);
}

static enum tp_code copy(void *ring, unsigned worker, void *to, const void *from, uint64_t bytes,
                         struct tp_err *err)
{
    return tp_cuda_copier_copy(ring, worker, to, from, bytes, err);
}

static enum tp_code record(void *ring, unsigned worker, unsigned i, struct tp_err *err)
{
    return tp_cuda_copier_record(ring, worker, i, err);
}

static enum tp_code finish(void *ring, unsigned worker, struct tp_err *err)
{
    return tp_cuda_copier_finish(ring, worker, err);
}

static void close_ring(const struct tp_load_target *target, void *ring)
{
    struct tp_cuda_copier *before = ring;
    if (target->rest) {
        tp_cuda_copier_rest(ring);
        before = atomic_exchange(&target->rest->ring, ring);
    }
    tp_cuda_copier_close(before);
}

struct tp_load_target tp_load_cuda(int device, void *stream, struct tp_load_rest *rest)
{
    return (struct tp_load_target){.open = open_ring,   .begin = begin,   .take = take,
                                   .copy = copy,        .record = record, .finish = finish,
                                   .close = close_ring, .device = device, .stream = stream,
                                   .rest = rest};
}

void tp_load_cuda_end(struct tp_load_rest *rest)
{
    tp_cuda_copier_close(atomic_exchange(&rest->ring, NULL));
}
