/* What is known of the model of one checkpoint: the files that its config.json leads to, and
 * the sizes that it states.
 */
#ifndef TP_PACK_MODEL_FACTS_H
#define TP_PACK_MODEL_FACTS_H

#include "pack/model/model.h"

#include <stdint.h>

/* What the user says of the model; {0}: nothing. */
struct tp_model_choice {
    const struct tp_model *own;  /* a file of the user's, instead of those that there are */
    enum tp_stack_layout layout; /* of stacks of experts, where sizes and names do not tell */
};

enum { TP_FACTS_MODELS = 3, TP_FACTS_TYPE = 64, TP_FACTS_ROWS = 8 };

struct tp_model_facts {
    const struct tp_model *model[TP_FACTS_MODELS]; /* asked in this order: the model's, that of
                                                      its text model, the default */
    size_t count;
    bool described;           /* there is a config.json */
    bool known;               /* model[0] is the model's own */
    char type[TP_FACTS_TYPE]; /* its model_type, "" without one, or a long one */
    enum tp_stack_layout layout; /* as chosen */
    uint64_t hidden, expert;  /* sizes by config.json, 0: not said */
    uint64_t heads, kv_heads; /* of attention */
    struct tp_rows_of {       /* rows that kernels want in an order; of a module the first entry */
        const struct tp_model_rows *is;
        uint64_t heads, groups;
    } rows[TP_FACTS_ROWS];
    size_t row_orders;
};

/* Reads config.json's text (NULL: there is none). TP_E_INPUT where it is no JSON object, or a key
 * comes twice in it or in that of the text model; a value that is of another kind than its key's
 * is not said. TP_E_MEMORY, or what is wrong with the embedded files. */
enum tp_code tp_model_facts_of(const char *config, size_t size,
                               const struct tp_model_choice *choice,
                               struct tp_model_facts *facts, struct tp_err *err);

/* How a stack [E,a,b] lies: what the choice says; else what its sizes say, together with the
 * other stack of the same experts ([E,other_a,other_b]; zeros: there is none) and with
 * config.json; else what the model's file says. Without a config.json, which says what model it
 * is, [E,N,K]. TP_STACK_BY_SIZES: not to be told, or the sizes contradict the file. */
enum tp_stack_layout tp_stack_layout_of(const struct tp_model_facts *facts,
                                        const struct tp_model_stack *stack, const uint64_t is[2],
                                        const uint64_t other[2]);

#endif
