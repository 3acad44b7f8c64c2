/* Reading a file of a checkpoint for its sum alone (file/sums.h). */
#ifndef TP_PACK_SOURCE_SUMS_H
#define TP_PACK_SOURCE_SUMS_H

#include "pack/file/sums.h"
#include "pack/source/checkpoint.h"

#include <stdatomic.h>

struct tp_sum_options {
    unsigned jobs;    /* threads, at least 1 */
    atomic_int *stop; /* becomes a signal number when the user interrupts; or NULL */
    void (*progress)(void *arg, uint64_t bytes, const char *tensor); /* or NULL */
    void *progress_arg;
};

/* The sum of all tensors of file f: reads them once. TP_E_INTERRUPT or TP_E_TERMINATE when it was
 * stopped. */
enum tp_code tp_source_sum(const struct tp_checkpoint *ckpt, uint32_t f,
                           const struct tp_sum_options *options, struct tp_sum *sum,
                           struct tp_err *err);

#endif
