/* Speed of one CUDA row against the memory ceiling, both measured in one run.
 *
 * The ceiling is a plain streaming kernel that reads and writes the same number of
 * bytes in (nearly) the same proportion, the best of several grids. Row and ceiling
 * are timed alike: several launches over rotating buffers that together are several
 * times the L2 cache, captured as one graph; the median of its replays. The ceiling is
 * the best of its grids, the row the better of two rounds, before and after them.
 */
#ifndef TP_PACK_BENCH_CUDA_H
#define TP_PACK_BENCH_CUDA_H

#include "base/c_linkage.h"
#include "kernels/cuda/cuda.h"

TP_C_BEGIN

struct tp_cuda_bench {
    /* what to measure */
    int device;
    enum tp_cuda_kind kind;
    const struct tp_op *from, *to; /* as in tp_cuda_call; REQUANT is not measured */
    enum tp_dtype dtype;           /* of the weights read, or of the values written */
    struct tp_box3 box;
    bool scales_only;  /* REPACK: input and output codes are one buffer; only the
                          bytes of the scales are counted */
    uint32_t repeats;  /* replays after warm-up; 0: 20 */
    uint64_t memory;   /* most device memory for buffers; 0: half of what is free */

    /* what was measured */
    uint64_t read_bytes, write_bytes;      /* of one launch, scales included */
    double seconds, seconds_min, seconds_max; /* of one launch: median, best, worst */
    double ceiling_seconds;
    uint32_t ceiling_reads, ceiling_writes; /* the ceiling's mix, in 16-byte units */
    uint32_t ceiling_grid;                  /* thread blocks of the best one */
    uint32_t buffers, launches;             /* rotating sets; launches in a graph */
};

/* GB/s and the fraction of the ceiling follow from the fields. Needs a device with
 * enough free memory for two sets of buffers. */
enum tp_code tp_cuda_bench(struct tp_cuda_bench *bench, struct tp_err *err);

TP_C_END

#endif
