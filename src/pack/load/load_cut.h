/* A part of a tensor as runs of bytes in its file. Pure arithmetic.
 *
 * Invariant: runs do not overlap, and follow each other in the file as they do in the part.
 */
#ifndef TP_PACK_LOAD_CUT_H
#define TP_PACK_LOAD_CUT_H

#include "pack/source/checkpoint.h"

/* A box of a tensor, and where it goes. */
struct tp_load_part {
    size_t tensor; /* of the checkpoint */
    /* First element, and the one behind the last, along each of the tensor's dimensions. */
    uint64_t begin[TP_ST_MAX_RANK], end[TP_ST_MAX_RANK];
    void *to; /* the box row-major, without gaps; the caller's, as the target writes it */
    /* 0, or the box is one of the tensor's bytes in this shape. */
    uint32_t rank;
    uint64_t shape[TP_ST_MAX_RANK];
};

struct tp_load_cut {
    const struct tp_tensor *tensor;
    uint8_t *to;
    uint64_t first;     /* where the first run begins in the file */
    uint64_t run, runs; /* bytes of each, and how many; 0 runs: the part is empty */
    uint32_t rank;      /* dimensions outside of a run, slowest first: sizes and bytes between */
    uint64_t count[TP_ST_MAX_RANK], step[TP_ST_MAX_RANK];
};

enum tp_code tp_load_cut(const struct tp_checkpoint *ckpt, const struct tp_load_part *part,
                         struct tp_load_cut *cut, struct tp_err *err);

/* Where run i begins in the file. */
uint64_t tp_load_cut_at(const struct tp_load_cut *cut, uint64_t i);

/* The bytes of run i that lie in [begin,end) of the file. */
struct tp_load_run {
    uint64_t at, bytes; /* in the file */
    uint64_t to;        /* in the part */
};

/* Counts runs with bytes in [begin,end); *i is the first of them. */
uint64_t tp_load_cut_runs(const struct tp_load_cut *cut, uint64_t begin, uint64_t end,
                          uint64_t *i);
struct tp_load_run tp_load_cut_run(const struct tp_load_cut *cut, uint64_t i, uint64_t begin,
                                   uint64_t end);

#endif
