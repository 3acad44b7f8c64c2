/* Models: the facts of the files of models/, each parsed once from the copy embedded in the
 * binary, and those of a user's own file. See models/README.md for the meaning of every
 * key; this header is its shape in memory.
 */
#ifndef TP_PACK_MODEL_H
#define TP_PACK_MODEL_H

#include "base/error.h"
#include "base/row_order.h"
#include "pack/text/module_pattern.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* What a weight is used as. Lists of them are bits 1 << use. */
enum tp_use { TP_USE_LINEAR, TP_USE_EXPERTS, TP_USE_HEAD, TP_USE_EMBEDDING, TP_USES };

/* Modules that stay as they are by default. */
struct tp_model_keep {
    struct tp_module_pattern *module;
    size_t modules;
    const char *why;
    bool embedding; /* a table of them, of which rows are taken */
    bool head;      /* the output head */
    bool plain;     /* readers build it plain, whatever their lists say */
    bool unknown;   /* of models alone that have no file of their own */
};

/* How a tensor of several experts lies in memory: [E,N,K], or [E,K,N]. */
enum tp_stack_layout { TP_STACK_BY_SIZES, TP_STACK_ENK, TP_STACK_EKN };

/* Several experts in one tensor, whose name ends in `name`. */
struct tp_model_stack {
    const char *name;
    bool gate_up;     /* rows of gate and of up; else down */
    bool interleaved; /* its rows of gate and up are interleaved */
    enum tp_stack_layout layout;
    const char *kept;    /* why it stays as it is by default, or NULL */
    const char *engines; /* what engines call the module of the experts, in place of `name` */
};

/* Modules that engines load as one matrix, in the order of its rows. */
struct tp_model_fused {
    const char *set;
    const char *engines; /* what engines call the matrix, or NULL */
    const char **part; /* last segments of their names */
    size_t parts;
};

/* A module that is one matrix in the file, too, of parts that engines divide by. */
enum tp_merged_parts { TP_MERGED_HALVES, TP_MERGED_THIRDS, TP_MERGED_QKV, TP_MERGED_HEADS };
struct tp_model_merged {
    struct tp_module_pattern module;
    enum tp_merged_parts parts;
};

/* Modules whose rows readers move when they load a plain weight, so that kernels have them in
 * another order. */
struct tp_model_rows {
    struct tp_module_pattern *module;
    size_t modules;
    enum tp_row_kind order;
    const char *when, *unless;   /* keys of config.json that have to be true, and false, or NULL */
    const char **heads, **group; /* keys of numbers of heads: the first one that is there */
    size_t head_keys, group_keys; /* without keys of groups there is one */
};

/* A run of segments that some reader calls otherwise. */
struct tp_model_rename {
    const char *from, *to;
};

/* How tensor-parallel engines divide linear layers: by output features (rows of the weight:
 * q_proj, gate_proj, ...), by input features (its columns: o_proj, down_proj, ...), or not. */
enum tp_parallel { TP_PARALLEL_NONE, TP_PARALLEL_N, TP_PARALLEL_K };
struct tp_model_parallel {
    struct tp_module_pattern *module;
    size_t modules;
    enum tp_parallel cut;
};

/* What the three matrices of one expert are called, behind "experts.NUMBER.". */
enum tp_expert_matrix { TP_EXPERT_GATE, TP_EXPERT_UP, TP_EXPERT_DOWN, TP_EXPERT_MATRICES };
struct tp_model_expert {
    const char *matrix[TP_EXPERT_MATRICES]; /* the gate may be NULL: there is none */
};

struct tp_model {
    const char *name, *title;
    const char **source; /* where its facts come from */
    size_t sources;
    const char **type;   /* values of model_type */
    size_t types;
    const char **architecture; /* values of architectures */
    size_t architectures;
    struct tp_module_pattern *convert; /* what the default would keep, by its name only */
    size_t converts;
    struct tp_module_pattern *integer; /* tensors of integers that are no codes */
    size_t integers;
    struct tp_model_keep *keep;
    size_t keeps;
    struct tp_model_stack *stack;
    size_t stacks;
    struct tp_model_fused *fused;
    size_t fuseds;
    struct tp_model_merged *merged;
    size_t mergeds;
    struct tp_model_rows *rows;
    size_t row_orders;
    struct tp_model_parallel *parallel;
    size_t parallels;
    struct tp_model_expert *labels; /* of the matrices of experts */
    size_t label_sets;
    struct tp_model_rename *rename;
    size_t renames;
    const char **hidden, **expert; /* keys of config.json: the hidden size, that of an expert */
    size_t hiddens, experts;
    json_t *json; /* the whole file, which owns all texts */
};

/* All models, sorted by name, never freed. An embedded file that breaks the rules of
 * models/README.md is left out, with *err. NULL while memory is short. */
const struct tp_model *const *tp_models(size_t *count, struct tp_err *err);

#define TP_MODEL_DEFAULT "default"

/* The model of that name, or the one that lists the word as a model_type (or as one of its
 * architectures), parsed on first use (thread-safe); *model NULL: there is none. */
enum tp_code tp_model_get(const char *name, const struct tp_model **model, struct tp_err *err);
enum tp_code tp_model_of(const char *word, bool architecture, const struct tp_model **model,
                         struct tp_err *err);

#define TP_MODEL_MAX_BYTES (UINT64_C(1) << 20) /* of a user's own file */
/* A user's own file: as strictly checked. The caller closes the model. Messages name the file
 * and the place in it. */
enum tp_code tp_model_read(const char *path, struct tp_model *model, struct tp_err *err);
/* The same from a text or a tree; `json` is taken over. */
enum tp_code tp_model_parse(const char *text, size_t size, struct tp_model *model,
                            struct tp_err *err);
enum tp_code tp_model_from(json_t *json, struct tp_model *model, struct tp_err *err);
void tp_model_close(struct tp_model *model); /* legal on {0} and twice */

#endif
