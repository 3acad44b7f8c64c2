/* What names say: of tensors, which weights belong to linear layers, which are experts,
 * which are fused by the engines; of models, how they store their stacks. Pure string
 * functions.
 */
#ifndef TP_PACK_MODEL_NAMES_H
#define TP_PACK_MODEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length of a tensor's name without ".weight" at its end, which is that of its
 * module: name[tp_name_stem(name)] is NUL where there is no such end. */
size_t tp_name_stem(const char *name);

/* Why a weight of that name is not quantized by default. */
enum tp_kept_why {
    TP_KEPT_NOT, /* it is */
    TP_KEPT_EMBEDDING,
    TP_KEPT_HEAD,
    TP_KEPT_NORM,
    TP_KEPT_ROUTER,
    TP_KEPT_BY_ENGINES,
    TP_KEPT_CONVOLUTION,
    TP_KEPT_POSITIONS,
    TP_KEPT_NO_WEIGHT, /* the name does not end in ".weight" */
};
enum tp_kept_why tp_name_kept(const char *name);

/* The same in words, NULL for TP_KEPT_NOT. */
const char *tp_kept_reason(enum tp_kept_why why);

enum tp_expert_matrix { TP_EXPERT_GATE, TP_EXPERT_UP, TP_EXPERT_DOWN };

/* "X.experts.7.gate_proj.weight" and its like. */
struct tp_expert_name {
    size_t prefix;     /* length of "X.experts" */
    uint64_t expert;
    enum tp_expert_matrix matrix;
    const char *label; /* "gate_proj", "w1", ...: points into `name` */
    size_t label_size;
};
bool tp_name_expert(const char *name, struct tp_expert_name *out);

/* "X.experts.gate_up_proj" or "X.experts.down_proj" (3-D stacks); also the
 * already stacked "X.experts.w13" and ".w2". */
struct tp_stack_name {
    size_t prefix; /* length of "X.experts" */
    bool gate_up;
};
bool tp_name_stack(const char *name, struct tp_stack_name *out);

/* Engines load these sets as one matrix, so they are quantized all or none:
 * q/k/v and gate/up of one module. Copies the set's key ("X.self_attn.qkv") and
 * returns true when the name belongs to one. */
bool tp_name_fused(const char *name, char *key, size_t size);

/* How tensor-parallel engines divide a linear layer, by the last word of its name:
 * by output features (columns of the product: q_proj, gate_proj, ...), by input
 * features (rows: o_proj, down_proj, ...), or not at all. */
enum tp_parallel { TP_PARALLEL_NONE, TP_PARALLEL_COLUMN, TP_PARALLEL_ROW };
struct tp_parallel_name {
    enum tp_parallel how;
    enum { TP_FUSED_NONE, TP_FUSED_GATE_UP, TP_FUSED_QKV } fused; /* stretches of rows */
    enum { TP_HEADS_NONE, TP_HEADS_QUERY, TP_HEADS_KEY_VALUE } heads; /* must not be cut */
};
struct tp_parallel_name tp_name_parallel(const char *name);

/* How an architecture stores its 3-D stacks of experts. */
struct tp_orientation {
    bool transposed; /* (E,in,out) instead of (E,out,in) */
    bool alternates; /* rows of gate_up_proj alternate between gate and up */
};

/* By the "model_type" of a config.json (NULL: none). */
struct tp_orientation tp_orientation_of(const char *config);

#endif
