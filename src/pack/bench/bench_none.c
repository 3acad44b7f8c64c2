/* The GPU half of the benchmark in builds without nvcc, where no GPU is ever chosen.
 * Empty when CUDA is compiled in. */
#include "pack/bench/bench_cuda.h"

#ifndef TP_HAVE_CUDA

enum tp_code tp_cuda_bench(struct tp_cuda_bench *bench, struct tp_err *err)
{
    (void)bench;
    return tp_fail(err, TP_E_MEMORY, "this build has no CUDA");
}

#endif
