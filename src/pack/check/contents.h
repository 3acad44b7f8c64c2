/* Contents that are known without a source: padding, and the eight multiples of a
 * W4A8 group scale. Checked on bytes that pass by, in any order, by any thread.
 */
#ifndef TP_PACK_CONTENTS_H
#define TP_PACK_CONTENTS_H

#include "pack/source/weights.h"

#include <pthread.h>

struct tp_content { /* one tensor that is checked */
    uint32_t tensor;
    const struct tp_weight *weight;
    uint32_t out;
    struct tp_layout layout;
    uint64_t n, k;       /* stored elements that are no padding, along n and k */
    uint64_t bad;        /* elements that are wrong */
    uint64_t first;      /* the lowest of them, valid when bad > 0 */
};

struct tp_contents {
    const struct tp_checkpoint *ckpt;
    struct tp_content *items; /* by file and offset */
    size_t count;
    uint64_t group8[256];     /* the eight bytes for each group scale */
    pthread_mutex_t lock;     /* of bad and first */
};

/* Finds the tensors of `weights` that have something to check. */
enum tp_code tp_contents_open(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                              struct tp_contents *contents, struct tp_err *err);
void tp_contents_close(struct tp_contents *contents); /* legal on {0} */

/* Checks bytes [offset, offset + size) of a file. Every byte must come once;
 * elements that lie across a border are read again here. */
enum tp_code tp_contents_check(struct tp_contents *contents, uint32_t file, const uint8_t *data,
                               uint64_t size, uint64_t offset, struct tp_err *err);

#endif
