/* The device of a caller who enqueues rows on memory and streams of its own: made
 * current before, put back after. Allocates nothing and waits for nothing. */
#include "kernels/cuda/cuda_fail.cuh"

#include "kernels/cuda/cuda.h"

extern "C" enum tp_code tp_cuda_enter(int device, int *before, struct tp_err *err)
{
    cudaError_t error = cudaGetDevice(before);
    if (error == cudaSuccess)
        error = cudaSetDevice(device);
    if (error != cudaSuccess)
        return tp_cuda_fail(err, error, "cannot use the GPU");
    return TP_OK;
}

extern "C" enum tp_code tp_cuda_leave(int before, struct tp_err *err)
{
    cudaError_t error = cudaGetLastError();
    cudaSetDevice(before);
    return error == cudaSuccess ? TP_OK : tp_cuda_fail(err, error, "the kernel did not start");
}
