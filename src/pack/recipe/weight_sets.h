/* Which weights of a checkpoint take one format: what engines load as one matrix (q, k and v; gate
 * and up), and all experts of a layer. Every other weight is a set of its own. Knows names, by the
 * facts of the model; no formats.
 */
#ifndef TP_PACK_WEIGHT_SETS_H
#define TP_PACK_WEIGHT_SETS_H

#include "pack/plan/unit/plan.h"

struct tp_weight_set {
    char *name;    /* "model.layers.3.self_attn.qkv", "model.layers.3.mlp.experts" */
    char *pattern; /* of a recipe's rule: that of its weights, and of no others */
    uint64_t values;
    uint32_t weights;
    bool experts;
    int64_t layer; /* -1: its name has no number */
};

struct tp_weight_sets {
    struct tp_weight_set *item; /* in the order of layers, then of their first weights */
    size_t count;
    uint32_t *of; /* of each weight of the checkpoint: its set, or TP_NO_SET */
};
#define TP_NO_SET UINT32_MAX

/* The sets of the weights that are `wanted`, by the weight's number. The weights are plain. Into a
 * zeroed result, which is to be closed also after an error. */
enum tp_code tp_weight_sets_find(const struct tp_checkpoint *ckpt,
                                 const struct tp_weights *weights, const bool *wanted,
                                 struct tp_weight_sets *sets, struct tp_err *err);
void tp_weight_sets_close(struct tp_weight_sets *sets); /* legal on {0} and twice */

#endif
