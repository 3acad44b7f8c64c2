/* What names of tensors say: which weights belong to linear layers, which are experts, which
 * are fused by the engines, by the facts of the checkpoint's model. Pure string functions.
 */
#ifndef TP_PACK_MODEL_NAMES_H
#define TP_PACK_MODEL_NAMES_H

#include "pack/model/model_facts.h"

#include <stdint.h>

/* The length of a tensor's name without ".weight" at its end, which is that of its
 * module: name[tp_name_base(name)] is NUL where there is no such end. */
size_t tp_name_base(const char *name);

/* The length of a bias's name without ".bias" or "_bias" at its end. */
size_t tp_name_bias_base(const char *name);

/* Why a weight of that name is not quantized by default. */
struct tp_kept_name {
    const char *why;
};
/* False where it is quantized: *out is then that of a linear layer. */
bool tp_name_kept(const struct tp_model_facts *facts, const char *name, struct tp_kept_name *out);

/* Whether a tensor of integers of that name is of indices or flags, and holds no codes. */
bool tp_name_integers(const struct tp_model_facts *facts, const char *name);

/* What a weight of that name is used as: one of experts one by one, the output head, a table of
 * embeddings, or else a linear layer. */
enum tp_use tp_name_use(const struct tp_model_facts *facts, const char *module);
/* Whether readers build it plain, whatever their lists say. */
bool tp_name_plain(const struct tp_model_facts *facts, const char *module);

/* "X.experts.7.gate_proj.weight" and its like. */
struct tp_expert_name {
    size_t prefix;     /* length of "X.experts" */
    uint64_t expert;
    enum tp_expert_matrix matrix;
    const char *label; /* "gate_proj", "w1", ...: points into `name` */
    size_t label_size;
};
bool tp_name_expert(const struct tp_model_facts *facts, const char *name,
                    struct tp_expert_name *out);

/* "X.experts.gate_up_proj" or "X.experts.down_proj" (3-D stacks); also the
 * already stacked "X.experts.w13" and ".w2", and what the model's file names. */
struct tp_stack_name {
    size_t prefix; /* length of "X.experts" */
    bool gate_up;
    size_t module; /* length of "X.", where the name of `is` begins */
    const struct tp_model_stack *is;
};
bool tp_name_stack(const struct tp_model_facts *facts, const char *name,
                   struct tp_stack_name *out);

/* Engines load these sets as one matrix, so they are quantized all or none:
 * q/k/v and gate/up of one module. Copies the set's key ("X.self_attn.qkv") and
 * returns true when the name belongs to one; fills *out unless it is NULL. */
struct tp_fused_name {
    const struct tp_model_fused *set;
    size_t part;   /* of the set */
    size_t module; /* length of "X.self_attn.", where the part's name begins */
};
bool tp_name_fused(const struct tp_model_facts *facts, const char *name, char *key, size_t size,
                   struct tp_fused_name *out);

/* The order of so many rows that kernels want of a matrix; as the source has them where nothing is
 * said. False: config.json states no heads that they divide into. */
bool tp_name_rows(const struct tp_model_facts *facts, const char *name, uint64_t rows,
                  struct tp_row_order *order);

/* How tensor-parallel engines divide a linear layer; NULL: that is not known. */
const struct tp_model_parallel *tp_name_parallel(const struct tp_model_facts *facts,
                                                 const char *name);

#endif
