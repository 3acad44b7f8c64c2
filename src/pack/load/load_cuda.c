/* The target that is memory of a CUDA device: pinned slots and a stream for each lane. */
#include "pack/load/load_target.h"

#include "kernels/cuda/cuda.h"

static enum tp_code open_lane(const struct tp_load_target *target, uint64_t bytes, unsigned slots,
                              void **lane, struct tp_err *err)
{
    struct tp_cuda_copier *copier = NULL;
    int count = tp_cuda_count();
    enum tp_code code;
    if (count == 0)
        code = tp_fail(err, TP_E_MEMORY, "no GPU to load to: %s", tp_cuda_why_none());
    else if (target->device < 0 || target->device >= count)
        code = tp_fail(err, TP_E_USAGE, "there is no GPU %d; there are %d", target->device, count);
    else
        code = tp_cuda_copier_open(target->device, target->stream, bytes, slots, &copier, err);
    *lane = copier;
    return code;
}

static void *slot(void *lane, unsigned i) { return tp_cuda_copier_slot(lane, i); }

static enum tp_code copy(void *lane, void *to, const void *from, uint64_t bytes,
                         struct tp_err *err)
{
    return tp_cuda_copier_copy(lane, to, from, bytes, err);
}

static enum tp_code mark(void *lane, unsigned i, struct tp_err *err)
{
    return tp_cuda_copier_mark(lane, i, err);
}

static enum tp_code wait_for(void *lane, unsigned i, struct tp_err *err)
{
    return tp_cuda_copier_wait(lane, i, err);
}

static void close_lane(void *lane) { tp_cuda_copier_close(lane); }

struct tp_load_target tp_load_cuda(int device, void *stream)
{
    return (struct tp_load_target){open_lane, slot,       copy,   mark,
                                   wait_for,  close_lane, device, stream};
}
