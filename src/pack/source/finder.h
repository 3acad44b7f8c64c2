/* Inside of finding weights: shared by weights.c (all of them) and recognise.c (those that other
 * tools packed).
 */
#ifndef TP_PACK_FINDER_H
#define TP_PACK_FINDER_H

#include "pack/quantizer/quantizer.h"
#include "pack/source/checkpoint.h"
#include "pack/source/weight_list.h"

struct tp_finder {
    const struct tp_checkpoint *ckpt;
    struct tp_weights *weights;
    bool *used;    /* per checkpoint tensor */
    uint32_t last; /* the first tensor of the described weight before */
    uint64_t bits; /* tp_source_config_bits() */
    unsigned activations; /* tp_source_config_activations() */
    uint32_t block[2];    /* rows and columns of a block, as config.json says; 0: it does not */
    const char *method;   /* quant_method of the description, or NULL */
    json_t *config;       /* the description, or NULL */
    json_t *marks;        /* what __metadata__ says of each weight, of the file `marked`, or NULL */
    uint32_t marked;
    const struct tp_quantizer **tried; /* those that `method` names, the others whose forms are
                                          tried, those with markers: of each kind tried_count; NULL:
                                          not asked for yet */
    size_t tried_count[3];
    struct tp_err *err;
};

uint32_t tp_finder_index(const struct tp_finder *f, const struct tp_tensor *tensor);

/* The tensor whose name is prefix and suffix, or NULL. Names are sorted, so it is mostly
 * near `from`: a tensor of the same weight, or of the weight before. */
const struct tp_tensor *tp_finder_near(const struct tp_finder *f, uint32_t from,
                                       const char *prefix, size_t prefix_size, const char *suffix);

bool tp_same_shape(const struct tp_tensor *tensor, const uint64_t *shape, uint32_t rank);

/* How a stack of experts [E,a,b] lies, by its name, its sizes and those of the stack beside it,
 * whose stored sizes are multiplied by factor; *alternates: whether its rows of gate and up are
 * interleaved. False where the name is that of no stack. */
bool tp_finder_stack(const struct tp_finder *f, const struct tp_tensor *tensor,
                     const uint64_t sizes[2], const uint64_t factor[2],
                     enum tp_stack_layout *layout, bool *interleaved);

/* The tensors behind the outputs of a weight are none. */
void tp_finder_no_tensors(struct tp_weight *weight);

/* Appends the weight, whose name is the beginning of `name`; its form is shared from then on. */
enum tp_code tp_finder_add(struct tp_finder *f, struct tp_weight *weight, const char *name,
                           size_t name_size);

#endif
