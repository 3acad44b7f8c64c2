/* What is measured, and what comes out: shared by both halves of the benchmark. */
#ifndef TP_PACK_BENCH_CASE_H
#define TP_PACK_BENCH_CASE_H

#include "pack/format/format.h"

#include <stdatomic.h>

enum { TP_BENCH_CPU = -1 };

enum tp_bench_kind { TP_BENCH_ENCODE, TP_BENCH_REPACK, TP_BENCH_DECODE };

/* How the scales of a codec are searched; {0}: they are not. */
struct tp_bench_search {
    uint8_t how;        /* enum tp_search */
    uint8_t importance; /* enum tp_importance, but no file */
};

struct tp_bench_options {
    const char *const *formats;  /* names; none: every format that can be written */
    size_t format_count;
    const char *const *settings; /* "key=value", for the formats that have the key */
    size_t setting_count;
    const struct tp_box3 *shapes; /* none: one that suits the device */
    size_t shape_count;
    int device;                  /* a GPU's number, or TP_BENCH_CPU */
    unsigned jobs;               /* threads on the CPU */
    bool searched;               /* only conversions that have one of these searches */
    struct tp_bench_search search[TP_CODEC_COUNT];
    bool all_rows;               /* also rows that faster ones stand in for, and the reference */
    uint64_t memory;             /* most bytes for buffers; 0: chosen here */
    atomic_int *stop;            /* becomes non-zero when the user interrupts; or NULL */
};

struct tp_bench_case {
    enum tp_bench_kind kind;
    const struct tp_format *format; /* that is written, or decoded */
    const struct tp_format *source; /* REPACK: the form that is read; else NULL */
    struct tp_op op, from;          /* operations of `format` and `source`; ENCODE with a
                                       search: `from` is the same without */
    enum tp_dtype dtype;            /* ENCODE: of the values read; DECODE: of those written */
    struct tp_box3 box;
    bool scales_only; /* REPACK where the codes stay as they are: only scales are made */
    enum tp_isa isa;
    const char *row;  /* name of the row */
    tp_encode_fn encode; /* on the CPU: one of these */
    tp_repack_fn repack;
    tp_decode_fn decode;
    tp_encode_fn plain; /* ENCODE with a search, on the CPU: the row of `from`, else NULL */
};

struct tp_bench_result {
    uint64_t read_bytes, write_bytes; /* of one run over the whole weight */
    double seconds, fastest, slowest; /* of one run: median, best and worst */
    double ceiling_seconds;
    uint32_t repeats;
    double far_seconds, far_ceiling_seconds; /* CPU: with outputs to memory; else 0 */
    double plain_seconds; /* of the case's plain row; else 0 */
};

#endif
