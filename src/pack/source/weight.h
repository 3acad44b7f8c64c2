/* One weight: a logical W[E,N,K], which is a plain float tensor, or the set of tensors
 * (codes, scales, ...) of a packed one. How they are found is of weights.h.
 */
#ifndef TP_PACK_WEIGHT_H
#define TP_PACK_WEIGHT_H

#include "pack/format/format.h"
#include "pack/source/search_choice.h"

#define TP_NO_TENSOR UINT32_MAX

/* Where a part of a packed weight came from, so that `unpack` can put it back. */
struct tp_origin {
    char *name;         /* tensor name; "{e}" stands for the expert's number */
    uint64_t row, rows; /* rows of that tensor (of each expert) */
    uint64_t step;      /* from one of them to the next: 2 where gate and up are interleaved; 0 is
                           1 */
    int64_t expert;     /* the expert of a 3-D tensor that was split, or -1 */
    uint64_t shape[3];
    uint32_t rank;
    bool transposed; /* the tensor is stored [E,K,N]; shape and rows are of [E,N,K] */
    bool flat;       /* a bias, stored [E,N] or [N]; shape has a K of 1 all the same */
};
/* The tensor of that expert: the name with "{e}" replaced. Fresh memory. */
char *tp_origin_name(const struct tp_origin *origin, uint64_t expert, struct tp_err *err);
void tp_origins_free(struct tp_origin *origins, uint32_t count);

struct tp_quantizer;
struct tp_quantizer_form;

/* What many weights have in common: a model has a few forms, and may have 1,000,000 weights. */
struct tp_weight_form {
    struct tp_box3 box;
    const struct tp_format *format; /* NULL: plain */
    struct tp_op op;
    struct tp_search_choice search; /* how its scales were found; `op` is without it */
    struct tp_settings settings;
    int rank;                    /* 2 or 3 */
    enum tp_dtype stored;        /* plain: of the tensor */
    enum tp_dtype dtype;         /* plain: in which it is read; packed: of the original values */
    char separator;              /* between the name and the output suffixes, mostly '.' */
    bool transposed;             /* plain: stored (E,in,out); box is (E,out,in) all the same */
    bool unclear;                /* plain: a stack, by its name, whose layout cannot be told; box
                                    takes it as [E,N,K] */
    bool interleaved;            /* of gpt-oss: rows of gate and up are interleaved, and stay so;
                                    its plain tensors are (E,in,out) */
    bool flat;                   /* plain: a bias, [N] or [E,N]; box has a K of 1, rank counts it */
    const struct tp_quantizer_form *as; /* packed by another tool: the form that was found, */
    const struct tp_quantizer *by;      /* and whose that is */
    bool any_width;              /* packed integers: codes of 4 and of 8 bits fit its tensors alike,
                                    and no weight_shape says which; config.json has to */
    bool unsaid_width;           /* such ones, of a config.json that has both */
};

struct tp_weight {
    const char *name;            /* S: without ".weight"; of the list of weights */
    struct tp_weight_form *form; /* shared, and not to be changed, once the weight is in a list */
    uint32_t tensor[TP_MAX_OUT]; /* checkpoint tensor per output; plain: [0] */
    struct tp_origin *origin;    /* packed by tilepack only */
    char *lossy;                 /* why no int4 format can take it over, or NULL; once checked */
    uint32_t origins : 31;
    uint32_t checked : 1;        /* by tp_weight_complete() */
    float global;                /* value of the GLOBAL output of one expert, once checked; 1 of
                                    another tool's weight without one */
};
void tp_weight_close(struct tp_weight *weight); /* its memory, but the list's; legal on {0} */

/* The name and its separator: what the output suffixes are appended to, "S." or "...w13_". Fresh
 * memory. */
char *tp_weight_prefix(const struct tp_weight *weight, struct tp_err *err);
/* What strcmp() says of two prefixes. */
int tp_prefix_order(const char *name_a, char separator_a, const char *name_b, char separator_b);

/* What the source of a weight is called: "BF16", "fp8-deepseek", "gptq (groups of
 * 256)". Returns text. */
const char *tp_weight_source(const struct tp_weight *weight, char *text, size_t size);

#endif
