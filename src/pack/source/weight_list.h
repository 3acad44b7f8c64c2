/* A list of weights, and what they share. Which tensors are weights is found in weights.c.
 */
#ifndef TP_PACK_WEIGHT_LIST_H
#define TP_PACK_WEIGHT_LIST_H

#include "pack/model/model_facts.h"
#include "pack/os/store.h"
#include "pack/source/weight.h"

/* A format that was made of a stored descriptor (descriptor_unknown.h). */
struct tp_unknown {
    struct tp_format format;
    struct tp_unknown *next;
};

struct tp_weights {
    struct tp_weight *items; /* in the order of the checkpoint's data */
    size_t count, capacity;
    size_t biases; /* that many more behind them, by name: plain tensors that are biases by their
                      names and shapes. They are among the others, too */
    struct tp_store names;
    struct tp_shared *forms; /* struct tp_weight_form; NULL: no weight yet */
    uint32_t *other;         /* tensors that are no weight: 1-D, integers, ... */
    size_t other_count;
    bool takes_unknown;      /* descriptors of formats that are not known may be read */
    struct tp_unknown *unknown; /* what was made of those */
    struct tp_model_facts facts; /* of the model that they are of */
};

void tp_weights_close(struct tp_weights *weights); /* legal on {0} and twice */

/* The form of the list that equals this one; NULL + TP_E_MEMORY. */
struct tp_weight_form *tp_weights_form(struct tp_weights *weights,
                                       const struct tp_weight_form *form, struct tp_err *err);

#endif
