/* Contents that are known without a source: padding, the eight multiples of a W4A8 group
 * scale, that scales and FP8 codes are numbers. Checked on bytes that pass by, in any order,
 * by any thread.
 */
#ifndef TP_PACK_INVARIANTS_H
#define TP_PACK_INVARIANTS_H

#include "pack/os/store.h"
#include "pack/source/weights.h"

#include <pthread.h>
#include <stdatomic.h>

/* What many tensors have in common. */
struct tp_content_form {
    struct tp_layout layout;
    uint64_t n, k;       /* stored elements that are no padding, along n and k */
    bool finite;         /* its elements are numbers, which must be finite */
};

struct tp_invariant { /* one tensor that is checked */
    uint32_t tensor, out;
    const struct tp_weight *weight;
    const struct tp_content_form *form;
    atomic_uint_fast64_t seen; /* bytes that were checked; some may have come again */
    uint64_t bad;        /* elements that are wrong */
    uint64_t first;      /* the lowest of them, valid when bad > 0 */
};

struct tp_invariants {
    const struct tp_checkpoint *ckpt;
    struct tp_invariant *items; /* by file and offset */
    size_t count;
    struct tp_shared forms;
    pthread_mutex_t lock;     /* of bad, first and wrong */
    const struct tp_invariant *wrong; /* the first one found, or NULL */
};

/* Finds the tensors of `weights` that have something to check; `finite`: scales and codes, too.
 * `only`: of which weights, or NULL. */
enum tp_code tp_invariants_open(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                                const bool *only, bool finite, struct tp_invariants *invariants,
                                struct tp_err *err);
void tp_invariants_close(struct tp_invariants *invariants); /* legal on {0} */

/* Checks bytes [offset, offset + size) of a file. Every byte must come once;
 * elements that lie across a border are read again here. */
enum tp_code tp_invariants_check(struct tp_invariants *invariants, uint32_t file,
                                 const uint8_t *data, uint64_t size, uint64_t offset,
                                 struct tp_err *err);

/* TP_E_INPUT, with file and tensor, when something wrong has been found. */
enum tp_code tp_invariants_refuse(struct tp_invariants *invariants, struct tp_err *err);

/* The same; and TP_E_UNSUPPORTED when bytes of a tensor have not come by, as nothing is known of
 * them: that is a mistake of the caller. */
enum tp_code tp_invariants_end(struct tp_invariants *invariants, struct tp_err *err);

#endif
