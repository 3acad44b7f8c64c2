/* The device of a caller who enqueues rows on memory and streams of its own: made
 * current before, put back after. Allocates nothing and waits for nothing. */
#include <cuda_runtime.h>

extern "C" {
#include "kernels/cuda/cuda.h"
}

static enum tp_code fail_cuda(struct tp_err *err, cudaError_t error, const char *what)
{
    return tp_fail(err, TP_E_MEMORY, "%s: %s (%s)", what, cudaGetErrorString(error),
                   cudaGetErrorName(error));
}

extern "C" enum tp_code tp_cuda_enter(int device, int *before, struct tp_err *err)
{
    cudaError_t error = cudaGetDevice(before);
    if (error == cudaSuccess)
        error = cudaSetDevice(device);
    if (error != cudaSuccess)
        return fail_cuda(err, error, "cannot use the GPU");
    return TP_OK;
}

extern "C" enum tp_code tp_cuda_leave(int before, struct tp_err *err)
{
    cudaError_t error = cudaGetLastError();
    cudaSetDevice(before);
    return error == cudaSuccess ? TP_OK : fail_cuda(err, error, "the kernel did not start");
}
