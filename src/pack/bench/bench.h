/* Speed of kernel rows against the memory ceiling, measured in the same run.
 *
 * A case is one row on one shape: GB/s of all bytes that go in and out, scales
 * included, and the same for a plain streaming loop that reads and writes as many
 * bytes in the same proportion with the same threads. On the CPU the weight is cut
 * into the boxes of the run loop and every thread takes the next one; inputs come
 * from memory, outputs go to a buffer of the thread as in the run loop, and in a
 * second measurement to memory. On a GPU one launch does the whole weight
 * (kernels/cuda_bench.h). Prints nothing.
 */
#ifndef TP_PACK_BENCH_H
#define TP_PACK_BENCH_H

#include "pack/format/format.h"

#include <stdatomic.h>

enum { TP_BENCH_CPU = -1 };

enum tp_bench_kind { TP_BENCH_ENCODE, TP_BENCH_REPACK, TP_BENCH_DECODE };

struct tp_bench_options {
    const char *const *formats;  /* names; none: every format that can be written */
    size_t format_count;
    const char *const *settings; /* "key=value", for the formats that have the key */
    size_t setting_count;
    const struct tp_box3 *shapes; /* none: one that suits the device */
    size_t shape_count;
    int device;                  /* a GPU's number, or TP_BENCH_CPU */
    unsigned jobs;               /* threads on the CPU */
    bool all_rows;               /* also rows that faster ones stand in for, and the reference */
    uint64_t memory;             /* most bytes for buffers; 0: chosen here */
    atomic_int *stop;            /* becomes non-zero when the user interrupts; or NULL */
};

struct tp_bench_case {
    enum tp_bench_kind kind;
    const struct tp_format *format; /* that is written, or decoded */
    const struct tp_format *source; /* REPACK: the form that is read; else NULL */
    struct tp_op op, from;          /* operations of `format` and `source` */
    enum tp_dtype dtype;            /* ENCODE: of the values read; DECODE: of those written */
    struct tp_box3 box;
    bool scales_only; /* REPACK where the codes stay as they are: only scales are made */
    enum tp_isa isa;
    const char *row;  /* name of the row */
    tp_encode_fn encode; /* on the CPU: one of these */
    tp_repack_fn repack;
    tp_decode_fn decode;
};

struct tp_bench_result {
    uint64_t read_bytes, write_bytes; /* of one run over the whole weight */
    double seconds, fastest, slowest; /* of one run: median, best and worst */
    double ceiling_seconds;
    uint32_t repeats;
    double far_seconds, far_ceiling_seconds; /* CPU: with outputs to memory; else 0 */
};

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

/* For bench.c: the CPU half (bench_cpu.c). */
enum tp_code tp_bench_cpu(struct tp_bench_cpu **cpu, const struct tp_bench_options *options,
                          const struct tp_bench_case *c, struct tp_bench_result *result,
                          struct tp_err *err);
void tp_bench_cpu_close(struct tp_bench_cpu *cpu); /* NULL is legal */

#endif
