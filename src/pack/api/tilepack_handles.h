/* Internal to the C library: what its opaque handles are. */
#ifndef TP_PACK_TILEPACK_HANDLES_H
#define TP_PACK_TILEPACK_HANDLES_H

#include "pack/api/tilepack.h"
#include "pack/load/load_target.h"
#include "pack/source/weights.h"

#include <pthread.h>

struct tilepack_weight {
    const struct tp_format *format;
    struct tp_op op;
    struct tp_box3 box;
    float global; /* of a checkpoint's weight whose GLOBAL tensor is not given */
    bool negative_scales; /* of a checkpoint's weight whose descriptor says that it may have some */
    struct {
        uint64_t shape[TP_MAX_RANK], bytes;
        uint32_t rank;
        enum tp_dtype dtype;
        char *layout; /* numeric text, or NULL */
    } out[TP_MAX_OUT];
};

struct tilepack_layout {
    struct tp_layout layout;
};

struct tilepack_checkpoint {
    struct tp_checkpoint ckpt;
    struct tp_weights weights;
    size_t *packed; /* indices of packed weights */
    size_t packed_count;
    pthread_mutex_t lock; /* of weights.items: tp_weight_complete() completes one */
    struct tp_load_rest ring; /* of loads to a device */
};

/* Describes a weight; *weight is NULL on failure. `dtypes`: those of its tensors, or NULL
 * for the format's own. A format whose tensors do not hold so many experts is
 * TP_E_UNSUPPORTED. */
enum tp_code tp_handle_weight(const struct tp_format *format, const struct tp_op *op,
                              struct tp_box3 box, const enum tp_dtype dtypes[TP_MAX_OUT],
                              tilepack_weight **weight, struct tp_err *err);

/* Turns an error into status and message: "PATH: tensor 'T': what (hint)". */
int tp_handle_report(const struct tp_err *err, char *message, size_t size);

#endif
