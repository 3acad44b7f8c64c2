/* Source weights: what the tensors of a checkpoint are, before anyone asks for a
 * format. A weight is one logical W[E,N,K]: a plain float tensor, or the set of
 * tensors (codes, scales, ...) of a packed one.
 */
#ifndef TP_PACK_WEIGHTS_H
#define TP_PACK_WEIGHTS_H

#include "pack/source/checkpoint.h"
#include "pack/format/format.h"

#define TP_NO_TENSOR UINT32_MAX

/* Where a part of a packed weight came from, so that `unpack` can put it back. */
struct tp_origin {
    char *name;         /* tensor name; "{e}" stands for the expert's number */
    uint64_t row, rows; /* rows of that tensor (of each expert) */
    int64_t expert;     /* the expert of a 3-D tensor that was split, or -1 */
    uint64_t shape[3];
    uint32_t rank;
    bool transposed; /* the tensor is stored [E,K,N]; shape and rows are of [E,N,K] */
};

struct tp_weight {
    char *name;    /* S: without ".weight" */
    char *prefix;  /* what the output suffixes are appended to: "S." or "...w13_" */
    struct tp_box3 box;
    int rank;      /* 2 or 3 */
    enum tp_dtype dtype; /* plain: of the tensor; packed: of the original values */
    const struct tp_format *format; /* NULL: plain */
    struct tp_settings settings;
    struct tp_op op;
    uint32_t tensor[TP_MAX_OUT]; /* checkpoint tensor per output; plain: [0] */
    struct tp_origin *origin;    /* packed by tilepack only */
    uint32_t origins;
    float global;                /* value of the GLOBAL output of one expert, once checked */
    char *lossy;                 /* why no int4 format can take it over, or NULL; once checked */
    bool checked;                /* by tp_source_check() */
    bool transposed;             /* plain: stored (E,in,out); box is (E,out,in) all the same */
    bool alternates;             /* of gpt-oss: rows of gate and up alternate, and stay so; its
                                    plain tensors are (E,in,out) */
    bool renamed;                /* an output goes by another name than the format's */
};

struct tp_weights {
    struct tp_weight *items; /* in the order of the checkpoint's data */
    size_t count;
    uint32_t *other;         /* tensors that are no weight: 1-D, integers, ... */
    size_t other_count;
};

/* Sorts a checkpoint's tensors into weights. Descriptors stored by tilepack are
 * taken first; then the interchange formats are recognised by their tensors;
 * every other float tensor of two or three dimensions is a plain weight. Packed
 * weights of other tools need tp_source_check() before they are decoded. */
enum tp_code tp_weights_find(const struct tp_checkpoint *ckpt, struct tp_weights *weights,
                             struct tp_err *err);
/* The same for a reader who looks at packed weights only: plain ones are not among
 * the items, and `other` is empty. */
enum tp_code tp_weights_find_packed(const struct tp_checkpoint *ckpt, struct tp_weights *weights,
                                    struct tp_err *err);
void tp_weights_close(struct tp_weights *weights);

/* What the source of a weight is called: "BF16", "fp8-deepseek", "gptq (groups of
 * 256)". Returns text. */
const char *tp_weight_source(const struct tp_weight *weight, char *text, size_t size);

#endif
