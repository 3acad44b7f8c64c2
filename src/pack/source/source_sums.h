/* Reading files of a checkpoint for their sums alone (file/sums.h). */
#ifndef TP_PACK_SOURCE_SUMS_H
#define TP_PACK_SOURCE_SUMS_H

#include "pack/file/sums.h"
#include "pack/source/checkpoint.h"

#include <stdatomic.h>

struct tp_sum_options {
    unsigned jobs;    /* files that are read at a time, at least 1 */
    atomic_int *stop; /* becomes a signal number when the user interrupts; or NULL */
    void (*progress)(void *arg, uint64_t bytes, const char *tensor); /* or NULL */
    void *progress_arg;
};

/* Sums of all tensors of each file, which are read once.
 * TP_E_INTERRUPT or TP_E_TERMINATE when it was stopped. */
enum tp_code tp_source_sums(const struct tp_checkpoint *ckpt,
                            const struct tp_sum_options *options, struct tp_sum *sums,
                            struct tp_err *err);

#endif
