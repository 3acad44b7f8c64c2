/* Speed of kernel rows against the memory ceiling, measured in the same run.
 *
 * A case is one row on one shape: GB/s of all bytes that go in and out, scales
 * included, and the same for a plain streaming loop that reads and writes as many
 * bytes in the same proportion with the same threads. On the CPU the weight is cut
 * into the boxes of the run loop and every thread takes the next one; inputs come
 * from memory, outputs go to a buffer of the thread as in the run loop, and in a
 * second measurement to memory. On a GPU one launch does the whole weight
 * (bench_cuda.h). Prints nothing.
 */
#ifndef TP_PACK_BENCH_H
#define TP_PACK_BENCH_H

#include "pack/bench/bench_case.h"

struct tp_bench {
    struct tp_bench_options options;
    struct tp_bench_case *cases;
    size_t count, capacity;
    struct tp_bench_cpu *cpu; /* threads and buffers, made when first needed */
};

/* The one device that "auto", "cpu", "cuda" or "cuda:I" means: auto takes the first GPU
 * where there is one. TP_E_MEMORY when the GPU asked for is not there. */
enum tp_code tp_bench_device(const char *spec, int *device, struct tp_err *err);

/* What a GPU is called. Returns `name`. */
enum { TP_BENCH_NAME = 256 };
const char *tp_bench_device_name(int device, char name[TP_BENCH_NAME]);

/* Lists the cases. TP_E_USAGE for unknown formats and settings, and when nothing
 * is left to measure. The options' arrays must outlive *bench. */
enum tp_code tp_bench_open(const struct tp_bench_options *options, struct tp_bench *bench,
                           struct tp_err *err);

/* Measures case i; TP_E_INTERRUPT or TP_E_TERMINATE when options.stop is set. */
enum tp_code tp_bench_measure(struct tp_bench *bench, size_t i, struct tp_bench_result *result,
                              struct tp_err *err);

void tp_bench_close(struct tp_bench *bench); /* legal on {0} and twice */

#endif
