/* Copiers: pinned slots, and streams on which bytes of them go to memory that others
 * allocated. No kernels.
 *
 * All slots are one piece of memory, in huge pages where the system has them: pinning takes
 * the longer the more pages there are. Most of pinning is to get the pages, which the system
 * clears; the driver does that one by one, and nothing is copied meanwhile. So each worker touches
 * the pages of a slot when it first takes it, all workers side by side, and pins it then: the first
 * copies begin when the first slots are there. A copier that rests keeps its slots pinned, so that
 * the next load has none of this. Invariant: a copier that could not be opened whole leaves nothing
 * behind.
 */
#include "kernels/cuda/cuda_fail.cuh"

#include "base/num.h"
#include "kernels/cuda/cuda.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { MAX_WORKERS = 64, MAX_SLOTS = 4, PAGE = 4096 };
static const uint64_t HUGE_PAGE = 2097152;

struct tp_cuda_copier {
    int device, before; /* before: the thread's device until then; -1: not known */
    struct {
        cudaStream_t stream;
        cudaEvent_t done[MAX_SLOTS];
        bool pinned[MAX_SLOTS];
    } worker[MAX_WORKERS];
    unsigned workers, slots;
    uint8_t *memory;
    uint64_t slot_bytes;
};

static enum tp_code check(cudaError_t error, const char *what, struct tp_err *err)
{
    return error == cudaSuccess ? TP_OK : tp_cuda_fail(err, error, what);
}

static cudaError_t open_worker(struct tp_cuda_copier *c, unsigned i)
{
    cudaError_t error = cudaStreamCreateWithFlags(&c->worker[i].stream, cudaStreamNonBlocking);
    for (unsigned s = 0; s < c->slots && error == cudaSuccess; s++)
        error = cudaEventCreateWithFlags(&c->worker[i].done[s], cudaEventDisableTiming);
    return error;
}

/* All streams wait for what is queued on `after`: the memory may still be in use there. */
static cudaError_t wait_for(struct tp_cuda_copier *c, cudaStream_t after)
{
    cudaError_t error = cudaSuccess;
    for (unsigned i = 0; i < c->workers && error == cudaSuccess; i++) {
        error = cudaEventRecord(c->worker[i].done[0], after);
        if (error == cudaSuccess)
            error = cudaStreamWaitEvent(c->worker[i].stream, c->worker[i].done[0], 0);
    }
    return error;
}

static cudaError_t open_memory(struct tp_cuda_copier *c)
{
    const uint64_t bytes = tp_round_up(c->workers * c->slots * c->slot_bytes, HUGE_PAGE);
    c->memory = (uint8_t *)aligned_alloc(HUGE_PAGE, bytes);
    if (c->memory == NULL)
        return cudaErrorMemoryAllocation;
    madvise(c->memory, bytes, MADV_HUGEPAGE); /* a wish */
    return cudaSuccess;
}

static uint8_t *slot_at(const struct tp_cuda_copier *c, unsigned worker, unsigned i)
{
    return c->memory + (worker * c->slots + i) * c->slot_bytes;
}

static cudaError_t pin_slot(struct tp_cuda_copier *c, unsigned worker, unsigned i)
{
    uint8_t *slot = slot_at(c, worker, i);
    for (uint64_t at = 0; at < c->slot_bytes; at += PAGE)
        *(volatile uint8_t *)(slot + at) = 0;
    cudaError_t error = cudaHostRegister(slot, c->slot_bytes, cudaHostRegisterDefault);
    c->worker[worker].pinned[i] = error == cudaSuccess;
    return error;
}

static cudaError_t enter(struct tp_cuda_copier *c)
{
    cudaError_t error = cudaGetDevice(&c->before);
    return error == cudaSuccess ? cudaSetDevice(c->device) : error;
}

static void leave(struct tp_cuda_copier *c)
{
    if (c->before >= 0)
        cudaSetDevice(c->before);
    c->before = -1;
    cudaGetLastError();
}

static cudaError_t set_up(struct tp_cuda_copier *c, cudaStream_t after)
{
    cudaError_t error = enter(c);
    for (unsigned i = 0; i < c->workers && error == cudaSuccess; i++)
        error = open_worker(c, i);
    if (error == cudaSuccess)
        error = wait_for(c, after);
    return error == cudaSuccess ? open_memory(c) : error;
}

static void close_worker(struct tp_cuda_copier *c, unsigned i)
{
    for (unsigned s = 0; s < c->slots; s++) {
        if (c->worker[i].done[s] != NULL)
            cudaEventDestroy(c->worker[i].done[s]);
        if (c->worker[i].pinned[s])
            cudaHostUnregister(slot_at(c, i, s));
    }
    if (c->worker[i].stream != NULL)
        cudaStreamDestroy(c->worker[i].stream);
}

static void wait_for_all(struct tp_cuda_copier *c)
{
    for (unsigned i = 0; i < c->workers; i++)
        if (c->worker[i].stream != NULL)
            cudaStreamSynchronize(c->worker[i].stream);
}

extern "C" void tp_cuda_copier_rest(struct tp_cuda_copier *c)
{
    wait_for_all(c);
    leave(c);
}

extern "C" bool tp_cuda_copier_fits(const struct tp_cuda_copier *c, int device, unsigned workers,
                                    unsigned slots, uint64_t slot_bytes)
{
    return c->device == device && c->workers >= workers && c->slots == slots &&
           c->slot_bytes == slot_bytes;
}

extern "C" enum tp_code tp_cuda_copier_again(struct tp_cuda_copier *c, void *after,
                                             struct tp_err *err)
{
    cudaError_t error = enter(c);
    if (error == cudaSuccess)
        error = wait_for(c, (cudaStream_t)after);
    return check(error, "cannot set up copies to the GPU", err);
}

extern "C" void tp_cuda_copier_close(struct tp_cuda_copier *c)
{
    if (c == NULL)
        return;
    wait_for_all(c);
    for (unsigned i = 0; i < c->workers; i++)
        close_worker(c, i);
    free(c->memory);
    leave(c);
    free(c);
}

extern "C" enum tp_code tp_cuda_copier_open(int device, void *after, unsigned workers,
                                            unsigned slots, uint64_t slot_bytes,
                                            struct tp_cuda_copier **copier, struct tp_err *err)
{
    struct tp_cuda_copier *c = (struct tp_cuda_copier *)calloc(1, sizeof *c);
    *copier = NULL;
    if (c == NULL || workers > MAX_WORKERS || slots > MAX_SLOTS) {
        free(c);
        return tp_fail(err, TP_E_MEMORY, "out of memory for a ring of %u workers", workers);
    }
    c->device = device;
    c->before = -1;
    c->workers = workers;
    c->slots = slots;
    c->slot_bytes = slot_bytes;
    cudaError_t error = set_up(c, (cudaStream_t)after);
    if (error != cudaSuccess) {
        tp_cuda_copier_close(c);
        return check(error, "cannot set up copies to the GPU", err);
    }
    *copier = c;
    return TP_OK;
}

extern "C" enum tp_code tp_cuda_copier_begin(struct tp_cuda_copier *copier, struct tp_err *err)
{
    return check(cudaSetDevice(copier->device), "the GPU failed", err);
}

extern "C" enum tp_code tp_cuda_copier_take(struct tp_cuda_copier *copier, unsigned worker,
                                            unsigned i, void **slot, struct tp_err *err)
{
    *slot = slot_at(copier, worker, i);
    if (!copier->worker[worker].pinned[i])
        return check(pin_slot(copier, worker, i), "cannot set up copies to the GPU", err);
    return check(cudaEventSynchronize(copier->worker[worker].done[i]), "the GPU failed", err);
}

extern "C" enum tp_code tp_cuda_copier_copy(struct tp_cuda_copier *copier, unsigned worker,
                                            void *to, const void *from, uint64_t bytes,
                                            struct tp_err *err)
{
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice,
                                        copier->worker[worker].stream);
    return check(error, "cannot copy to the GPU", err);
}

extern "C" enum tp_code tp_cuda_copier_record(struct tp_cuda_copier *copier, unsigned worker,
                                              unsigned i, struct tp_err *err)
{
    return check(cudaEventRecord(copier->worker[worker].done[i], copier->worker[worker].stream),
                 "cannot copy to the GPU", err);
}

extern "C" enum tp_code tp_cuda_copier_finish(struct tp_cuda_copier *copier, unsigned worker,
                                              struct tp_err *err)
{
    return check(cudaStreamSynchronize(copier->worker[worker].stream), "the GPU failed", err);
}
