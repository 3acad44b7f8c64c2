/* Tensor names of the models people have: pure string functions, one table each.
 *
 * Nothing here decides bytes; it decides only which weights are taken by default
 * and which belong together. --include and --exclude overrule the first.
 */
#include "pack/model_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Kept by default: a dotted segment of the module's name that contains the word
 * (or equals it, where the word is short). */
static const struct {
    const char *word;
    bool whole;
    const char *reason;
} kept_words[] = {
    {"embed", false, "embedding"},
    {"wte", true, "embedding"},
    {"wpe", true, "embedding"},
    {"lm_head", false, "output head"},
    {"embed_out", true, "output head"},
    {"norm", false, "norm"},
    {"Norm", false, "norm"},
    {"ln_1", true, "norm"},
    {"ln_2", true, "norm"},
    {"ln_f", true, "norm"},
    {"router", false, "router"},
    {"gate", true, "router"},
    {"shared_expert_gate", true, "router"},
    {"conv", false, "convolution"},
    {"patch_embed", false, "convolution"},
    {"rotary", false, "position table"},
    {"relative_attention_bias", false, "position table"},
};

static bool contains(const char *segment, size_t size, const char *word)
{
    size_t length = strlen(word);
    for (size_t i = 0; i + length <= size; i++) /* short words: quicker than memmem() */
        if (segment[i] == word[0] && memcmp(segment + i, word, length) == 0)
            return true;
    return false;
}

static bool has_suffix(const char *name, const char *suffix)
{
    size_t a = strlen(name), b = strlen(suffix);
    return a >= b && strcmp(name + a - b, suffix) == 0;
}

/* Word rules look at the last segment of the module, and "norm", "embed" and
 * "conv" at every segment ("embeddings.position.weight"). */
static const char *segment_reason(const char *segment, size_t size, bool last)
{
    for (size_t i = 0; i < sizeof kept_words / sizeof *kept_words; i++) {
        const char *word = kept_words[i].word;
        bool hit = kept_words[i].whole ? strlen(word) == size && memcmp(segment, word, size) == 0
                                       : contains(segment, size, word);
        if (hit && (last || !kept_words[i].whole))
            return kept_words[i].reason;
    }
    return NULL;
}

const char *tp_name_kept_reason(const char *name)
{
    struct tp_stack_name stack;
    if (tp_name_stack(name, &stack))
        return NULL;
    if (!has_suffix(name, ".weight"))
        return "not a linear layer's weight (its name does not end in .weight)";
    const char *end = name + strlen(name) - strlen(".weight");
    for (const char *at = name; at < end;) {
        const char *dot = memchr(at, '.', (size_t)(end - at));
        const char *stop = dot ? dot : end;
        const char *reason = segment_reason(at, (size_t)(stop - at), stop == end);
        if (reason)
            return reason;
        at = stop + 1;
    }
    return NULL;
}

static const struct {
    const char *label;
    enum tp_expert_part part;
} expert_parts[] = {
    {"gate_proj", TP_EXPERT_GATE}, {"up_proj", TP_EXPERT_UP}, {"down_proj", TP_EXPERT_DOWN},
    {"w1", TP_EXPERT_GATE},        {"w3", TP_EXPERT_UP},      {"w2", TP_EXPERT_DOWN},
};

bool tp_name_expert(const char *name, struct tp_expert_name *out)
{
    const char *at = NULL, *next = name;
    while ((next = strstr(next, ".experts."))) /* the last one counts */
        at = next++;
    if (!at && strncmp(name, "experts.", 8) == 0)
        at = name - 1;
    if (!at || !isdigit((unsigned char)at[9]))
        return false;
    const char *digit = at + 9;
    out->prefix = (size_t)(at + 8 - name);
    out->expert = 0;
    for (; isdigit((unsigned char)*digit); digit++) {
        if (out->expert > 1000000)
            return false;
        out->expert = out->expert * 10 + (uint64_t)(*digit - '0');
    }
    if (*digit != '.' || (at[9] == '0' && digit != at + 10)) /* "07" is not how it is written */
        return false;
    out->label = digit + 1;
    out->label_size = strcspn(out->label, ".");
    const char *rest = out->label + out->label_size;
    if (*rest && strcmp(rest, ".weight") != 0)
        return false;
    for (size_t i = 0; i < sizeof expert_parts / sizeof *expert_parts; i++)
        if (strlen(expert_parts[i].label) == out->label_size &&
            memcmp(expert_parts[i].label, out->label, out->label_size) == 0) {
            out->part = expert_parts[i].part;
            return true;
        }
    return false;
}

bool tp_name_stack(const char *name, struct tp_stack_name *out)
{
    static const struct {
        const char *suffix;
        bool gate_up;
    } stacks[] = {{"experts.gate_up_proj", true}, {"experts.down_proj", false},
                  {"experts.w13", true},          {"experts.w2", false}};
    size_t size = strlen(name);
    if (has_suffix(name, ".weight"))
        size -= strlen(".weight");
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        size_t length = strlen(stacks[i].suffix);
        if (size < length || memcmp(name + size - length, stacks[i].suffix, length) != 0 ||
            (size > length && name[size - length - 1] != '.'))
            continue;
        out->prefix = size - length + strlen("experts");
        out->gate_up = stacks[i].gate_up;
        return true;
    }
    return false;
}

bool tp_name_fused(const char *name, char *key, size_t size)
{
    static const struct {
        const char *label, *set;
    } fused[] = {{"q_proj", "qkv"}, {"k_proj", "qkv"},      {"v_proj", "qkv"},   {"query", "qkv"},
                 {"key", "qkv"},    {"value", "qkv"},       {"wq", "qkv"},       {"wk", "qkv"},
                 {"wv", "qkv"},     {"gate_proj", "gate_up"}, {"up_proj", "gate_up"},
                 {"w1", "gate_up"}, {"w3", "gate_up"}};
    size_t length = strlen(name);
    if (has_suffix(name, ".weight"))
        length -= strlen(".weight");
    size_t start = length;
    while (start > 0 && name[start - 1] != '.')
        start--;
    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++)
        if (strlen(fused[i].label) == length - start &&
            memcmp(fused[i].label, name + start, length - start) == 0) {
            int n = snprintf(key, size, "%.*s%s", (int)start, name, fused[i].set);
            return n > 0 && (size_t)n < size;
        }
    return false;
}

struct tp_parallel_name tp_name_parallel(const char *name)
{
    static const struct {
        const char *label;
        struct tp_parallel_name is;
    } known[] = {
        {"q_proj", {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_QUERY}},
        {"k_proj", {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_KEY_VALUE}},
        {"v_proj", {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_KEY_VALUE}},
        {"wq", {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_QUERY}},
        {"wk", {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_KEY_VALUE}},
        {"wv", {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_KEY_VALUE}},
        {"qkv_proj", {TP_PARALLEL_COLUMN, TP_FUSED_QKV, TP_HEADS_KEY_VALUE}},
        {"q_b_proj", {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_QUERY}},
        {"kv_b_proj", {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_QUERY}},
        {"o_proj", {TP_PARALLEL_ROW, TP_FUSED_NONE, TP_HEADS_QUERY}},
        {"wo", {TP_PARALLEL_ROW, TP_FUSED_NONE, TP_HEADS_QUERY}},
        {"gate_proj", {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_NONE}},
        {"up_proj", {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_NONE}},
        {"gate_up_proj", {TP_PARALLEL_COLUMN, TP_FUSED_GATE_UP, TP_HEADS_NONE}},
        {"down_proj", {TP_PARALLEL_ROW, TP_FUSED_NONE, TP_HEADS_NONE}},
        {"w1", {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_NONE}},
        {"w3", {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_NONE}},
        {"w13", {TP_PARALLEL_COLUMN, TP_FUSED_GATE_UP, TP_HEADS_NONE}},
        {"w2", {TP_PARALLEL_ROW, TP_FUSED_NONE, TP_HEADS_NONE}},
        {"fc1", {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_NONE}},
        {"fc2", {TP_PARALLEL_ROW, TP_FUSED_NONE, TP_HEADS_NONE}},
    };
    size_t length = strlen(name);
    if (has_suffix(name, ".weight"))
        length -= strlen(".weight");
    size_t start = length;
    while (start > 0 && name[start - 1] != '.')
        start--;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].label) == length - start &&
            memcmp(known[i].label, name + start, length - start) == 0)
            return known[i].is;
    return (struct tp_parallel_name){TP_PARALLEL_NONE, TP_FUSED_NONE, TP_HEADS_NONE};
}
