/* Copiers: pinned slots, and a stream on which bytes of them go to memory that others
 * allocated. No kernels.
 *
 * Invariant: a copier that could not be opened whole leaves nothing behind.
 */
#include "kernels/cuda/cuda_fail.cuh"

extern "C" {
#include "kernels/cuda/cuda.h"
}

#include <stdlib.h>

enum { MAX_SLOTS = 8 };

struct tp_cuda_copier {
    int before; /* the thread's device until then; -1: not known */
    cudaStream_t stream;
    cudaEvent_t done[MAX_SLOTS];
    uint8_t *memory;
    uint64_t slot_bytes;
};

static enum tp_code check(cudaError_t error, const char *what, struct tp_err *err)
{
    return error == cudaSuccess ? TP_OK : tp_cuda_fail(err, error, what);
}

/* The stream waits for what is queued on `after`: the memory may still be in use there. */
static cudaError_t follow(struct tp_cuda_copier *c, cudaStream_t after)
{
    cudaError_t error = cudaEventRecord(c->done[0], after);
    return error == cudaSuccess ? cudaStreamWaitEvent(c->stream, c->done[0], 0) : error;
}

static cudaError_t set_up(struct tp_cuda_copier *c, int device, cudaStream_t after,
                          unsigned slots)
{
    cudaError_t error = cudaGetDevice(&c->before);
    if (error == cudaSuccess)
        error = cudaSetDevice(device);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    for (unsigned i = 0; i < slots && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(&c->done[i],
                                         cudaEventBlockingSync | cudaEventDisableTiming);
    if (error == cudaSuccess)
        error = follow(c, after);
    if (error == cudaSuccess)
        error = cudaHostAlloc((void **)&c->memory, c->slot_bytes * slots, cudaHostAllocDefault);
    return error;
}

extern "C" void tp_cuda_copier_close(struct tp_cuda_copier *c)
{
    if (c == NULL)
        return;
    if (c->stream != NULL)
        cudaStreamSynchronize(c->stream);
    cudaFreeHost(c->memory);
    for (unsigned i = 0; i < MAX_SLOTS; i++)
        if (c->done[i] != NULL)
            cudaEventDestroy(c->done[i]);
    if (c->stream != NULL)
        cudaStreamDestroy(c->stream);
    if (c->before >= 0)
        cudaSetDevice(c->before);
    cudaGetLastError();
    free(c);
}

extern "C" enum tp_code tp_cuda_copier_open(int device, void *after, uint64_t slot_bytes,
                                            unsigned slots, struct tp_cuda_copier **copier,
                                            struct tp_err *err)
{
    struct tp_cuda_copier *c = (struct tp_cuda_copier *)calloc(1, sizeof *c);
    *copier = NULL;
    if (c == NULL || slots > MAX_SLOTS) {
        free(c);
        return tp_fail(err, TP_E_MEMORY, "out of memory for a ring of %u slots", slots);
    }
    c->before = -1;
    c->slot_bytes = slot_bytes;
    cudaError_t error = set_up(c, device, (cudaStream_t)after, slots);
    if (error != cudaSuccess) {
        tp_cuda_copier_close(c);
        return check(error, "cannot set up copies to the GPU", err);
    }
    *copier = c;
    return TP_OK;
}

extern "C" void *tp_cuda_copier_slot(struct tp_cuda_copier *copier, unsigned i)
{
    return copier->memory + i * copier->slot_bytes;
}

extern "C" enum tp_code tp_cuda_copier_copy(struct tp_cuda_copier *copier, void *to,
                                            const void *from, uint64_t bytes, struct tp_err *err)
{
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, copier->stream),
                 "cannot copy to the GPU", err);
}

extern "C" enum tp_code tp_cuda_copier_mark(struct tp_cuda_copier *copier, unsigned i,
                                            struct tp_err *err)
{
    return check(cudaEventRecord(copier->done[i], copier->stream), "cannot copy to the GPU", err);
}

extern "C" enum tp_code tp_cuda_copier_wait(struct tp_cuda_copier *copier, unsigned i,
                                            struct tp_err *err)
{
    return check(cudaEventSynchronize(copier->done[i]), "the GPU failed", err);
}
