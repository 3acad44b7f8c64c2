/* The table of names: Hugging Face's beside those of llama.cpp's imatrix files.
 *
 * Rows of one group multiply the same activations, so that the numbers of one serve all.
 * "{e}" is an expert's number.
 */
#include "pack/source/importance_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum group { ALONE, ATTENTION, FUSED_ATTENTION, LATENT, CROSS_LATENT, MLP, MLP_LLAMA4, EXPERTS,
             EXPERTS_MIXTRAL, EXPERTS_STACK, EXPERTS_LLAMA4, SHARED, SHARED_DEEPSEEK,
             SHARED_LLAMA4 };

/* `own` comes behind "layers.N.", or is NULL for an entry that only llama.cpp has. */
struct row {
    const char *own, *llama;
    enum group group;
    bool known_only;
};

static const struct row rows[] = {
    {"self_attn.q_proj", "attn_q", ATTENTION, false},
    {"self_attn.k_proj", "attn_k", ATTENTION, false},
    {"self_attn.v_proj", "attn_v", ATTENTION, false},
    {"self_attn.qkv_proj", "attn_qkv", FUSED_ATTENTION, false},
    {"self_attn.o_proj", "attn_output", ALONE, false},
    {"self_attn.q_a_proj", "attn_q_a", LATENT, false},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", LATENT, false},
    {"self_attn.q_b_proj", "attn_q_b", ALONE, false},
    {"self_attn.kv_b_proj", "attn_kv_b", CROSS_LATENT, false},
    {NULL, "attn_k_b", CROSS_LATENT, true},
    {NULL, "attn_v_b", CROSS_LATENT, true},
    {"mlp.gate_proj", "ffn_gate", MLP, false},
    {"mlp.up_proj", "ffn_up", MLP, false},
    {"mlp.gate_up_proj", "ffn_up", ALONE, false},
    {"mlp.down_proj", "ffn_down", ALONE, false},
    {"feed_forward.gate_proj", "ffn_gate", MLP_LLAMA4, false},
    {"feed_forward.up_proj", "ffn_up", MLP_LLAMA4, false},
    {"feed_forward.down_proj", "ffn_down", ALONE, false},
    {"mlp.experts.{e}.gate_proj", "ffn_gate_exps", EXPERTS, false},
    {"mlp.experts.{e}.up_proj", "ffn_up_exps", EXPERTS, false},
    {"mlp.experts.{e}.down_proj", "ffn_down_exps", ALONE, false},
    {"block_sparse_moe.experts.{e}.w1", "ffn_gate_exps", EXPERTS_MIXTRAL, false},
    {"block_sparse_moe.experts.{e}.w3", "ffn_up_exps", EXPERTS_MIXTRAL, false},
    {"block_sparse_moe.experts.{e}.w2", "ffn_down_exps", ALONE, false},
    {"mlp.experts.gate_up_proj", "ffn_gate_exps", EXPERTS_STACK, false},
    {NULL, "ffn_up_exps", EXPERTS_STACK, false},
    {NULL, "ffn_gate_up_exps", EXPERTS_STACK, false},
    {"mlp.experts.down_proj", "ffn_down_exps", ALONE, false},
    {"feed_forward.experts.gate_up_proj", "ffn_gate_exps", EXPERTS_LLAMA4, false},
    {NULL, "ffn_up_exps", EXPERTS_LLAMA4, false},
    {"feed_forward.experts.down_proj", "ffn_down_exps", ALONE, false},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp", SHARED, false},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp", SHARED, false},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp", ALONE, false},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp", SHARED_DEEPSEEK, false},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp", SHARED_DEEPSEEK, false},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp", ALONE, false},
    {"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp", SHARED_LLAMA4, false},
    {"feed_forward.shared_expert.up_proj", "ffn_up_shexp", SHARED_LLAMA4, false},
    {"feed_forward.shared_expert.down_proj", "ffn_down_shexp", ALONE, false},
    {"mlp.gate", "ffn_gate_inp", ALONE, false},
    {"mlp.router", "ffn_gate_inp", ALONE, false},
    {"block_sparse_moe.gate", "ffn_gate_inp", ALONE, false},
    {"feed_forward.router", "ffn_gate_inp", ALONE, false},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp", ALONE, false},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* Weights outside of layers, by the last word of their names. */
static const struct row outside[] = {
    {"lm_head", "output", ALONE, false},
    {"embed_tokens", "token_embd", ALONE, false},
};

/* A weight's name in pieces: PREFIX "layers." LAYER "." REST. */
struct parsed {
    size_t prefix; /* up to and with "layers.N." */
    unsigned long layer;
    const char *rest;
};

static bool parse(const char *weight, struct parsed *parsed)
{
    const char *at = strstr(weight, "layers.");
    char *end;
    if (!at || (at > weight && at[-1] != '.') || at[7] < '0' || at[7] > '9')
        return false;
    parsed->layer = strtoul(at + 7, &end, 10);
    parsed->rest = end + 1;
    parsed->prefix = (size_t)(parsed->rest - weight);
    return *end == '.';
}

/* Whether the text is the pattern; *expert is the number in the place of "{e}", or -1. */
static bool fits(const char *pattern, const char *text, int64_t *expert)
{
    *expert = -1;
    for (; *pattern; pattern++, text++) {
        if (*pattern == '{') {
            char *end;
            if (*text < '0' || *text > '9')
                return false;
            *expert = (int64_t)strtoul(text, &end, 10);
            pattern += 2;
            text = end - 1;
        } else if (*pattern != *text) {
            return false;
        }
    }
    return *text == '\0';
}

static const struct row *find_row(const char *rest, int64_t *expert)
{
    for (int i = 0; i < ROWS; i++)
        if (rows[i].own && fits(rows[i].own, rest, expert))
            return &rows[i];
    return NULL;
}

/* Puts the prefix and the row's own name together; false when there is none. */
static bool own_name(const char *weight, const struct parsed *parsed, const struct row *row,
                     int64_t expert, struct tp_importance_name *name)
{
    const char *marker = row->own ? strstr(row->own, "{e}") : NULL;
    int size;
    if (!row->own)
        return false;
    if (marker)
        size = snprintf(name->text, sizeof name->text, "%.*s%.*s%lld%s", (int)parsed->prefix,
                        weight, (int)(marker - row->own), row->own, (long long)expert, marker + 3);
    else
        size = snprintf(name->text, sizeof name->text, "%.*s%s", (int)parsed->prefix, weight,
                        row->own);
    name->expert = -1;
    return size > 0 && (size_t)size < sizeof name->text;
}

static void llama_name(const struct parsed *parsed, const struct row *row, int64_t expert,
                       struct tp_importance_name *name)
{
    snprintf(name->text, sizeof name->text, "blk.%lu.%s", parsed->layer, row->llama);
    name->expert = expert;
    name->known_only = row->known_only;
}

/* Of a weight outside of layers: name 1. */
static bool outside_name(const char *weight, uint32_t i, struct tp_importance_name *name)
{
    const char *last = strrchr(weight, '.');
    last = last ? last + 1 : weight;
    for (size_t r = 0; i == 1 && r < sizeof outside / sizeof outside[0]; r++)
        if (strcmp(last, outside[r].own) == 0) {
            strcpy(name->text, outside[r].llama);
            return true;
        }
    return false;
}

/* Names 1 and on: llama.cpp's, then both names of each row of the group. */
static bool layer_name(const char *weight, const struct parsed *parsed, uint32_t i,
                       struct tp_importance_name *name)
{
    int64_t expert;
    const struct row *own = find_row(parsed->rest, &expert);
    if (!own)
        return false;
    if (i == 1) {
        llama_name(parsed, own, expert, name);
        return true;
    }
    uint32_t next = 2;
    for (int r = 0; r < ROWS && own->group != ALONE; r++) {
        if (&rows[r] == own || rows[r].group != own->group)
            continue;
        if (rows[r].own && next++ == i)
            return own_name(weight, parsed, &rows[r], expert, name);
        if (next++ == i) {
            llama_name(parsed, &rows[r], expert, name);
            return true;
        }
    }
    return false;
}

bool tp_importance_name(const char *weight, uint32_t i, struct tp_importance_name *name)
{
    char base[TP_IMPORTANCE_NAME];
    struct parsed parsed;
    size_t size = strlen(weight);
    *name = (struct tp_importance_name){.expert = -1};
    if (size > 7 && strcmp(weight + size - 7, ".weight") == 0)
        size -= 7;
    if (size >= sizeof base)
        return false;
    memcpy(base, weight, size);
    base[size] = '\0';
    if (i == 0)
        strcpy(name->text, base);
    return i == 0 || (parse(base, &parsed) ? layer_name(base, &parsed, i, name)
                                           : outside_name(base, i, name));
}
