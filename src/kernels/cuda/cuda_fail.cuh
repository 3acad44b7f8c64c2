/* A CUDA call that failed, as an error of ours. */
#ifndef TP_KERNELS_CUDA_FAIL_CUH
#define TP_KERNELS_CUDA_FAIL_CUH

#include <cuda_runtime.h>

#include "base/error.h"

static inline enum tp_code tp_cuda_fail(struct tp_err *err, cudaError_t error, const char *what)
{
    return tp_fail(err, TP_E_MEMORY, "%s: %s (%s)", what, cudaGetErrorString(error),
                   cudaGetErrorName(error));
}

#endif
