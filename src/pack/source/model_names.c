/* Names of the models people have and of their tensors: pure string functions, one table
 * each.
 *
 * Nothing here decides bytes; it decides only which weights are taken by default
 * and which belong together. --include and --exclude overrule the first.
 */
#include "pack/source/model_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* A word and its length: names are compared with tables of these 100,000 times. */
struct word {
    const char *text;
    size_t size;
};
#define WORD(text) {(text), sizeof(text) - 1}

static bool is_word(const char *text, size_t size, struct word word)
{
    return size == word.size && memcmp(text, word.text, size) == 0;
}

static bool ends_in(const char *text, size_t size, struct word word)
{
    return size >= word.size && memcmp(text + size - word.size, word.text, word.size) == 0;
}

static const struct word weight_suffix = WORD(".weight");

size_t tp_name_stem(const char *name)
{
    size_t size = strlen(name);
    bool has = size > weight_suffix.size && ends_in(name, size, weight_suffix);
    return has ? size - weight_suffix.size : size;
}

/* The last segment of a name, ".weight" taken away; *size is its length. */
static const char *last_segment(const char *name, size_t *size)
{
    size_t end = tp_name_stem(name), start = end;
    while (start > 0 && name[start - 1] != '.')
        start--;
    *size = end - start;
    return name + start;
}

/* Kept by default: a dotted segment of the module's name that contains the word
 * (or equals it, where the word is short). */
static const struct {
    struct word word;
    bool whole;
    enum tp_kept_why why;
} kept_words[] = {
    {WORD("embed"), false, TP_KEPT_EMBEDDING},
    {WORD("wte"), true, TP_KEPT_EMBEDDING},
    {WORD("wpe"), true, TP_KEPT_EMBEDDING},
    {WORD("lm_head"), false, TP_KEPT_HEAD},
    {WORD("embed_out"), true, TP_KEPT_HEAD},
    {WORD("head"), true, TP_KEPT_HEAD},
    {WORD("norm"), false, TP_KEPT_NORM},
    {WORD("Norm"), false, TP_KEPT_NORM},
    {WORD("ln_1"), true, TP_KEPT_NORM},
    {WORD("ln_2"), true, TP_KEPT_NORM},
    {WORD("ln_f"), true, TP_KEPT_NORM},
    {WORD("router"), false, TP_KEPT_ROUTER},
    {WORD("gate"), true, TP_KEPT_ROUTER},
    {WORD("shared_expert_gate"), true, TP_KEPT_ROUTER},
    {WORD("eh_proj"), true, TP_KEPT_BY_ENGINES},
    {WORD("weights_proj"), true, TP_KEPT_BY_ENGINES},
    {WORD("conv"), false, TP_KEPT_CONVOLUTION},
    {WORD("patch_embed"), false, TP_KEPT_CONVOLUTION},
    {WORD("rotary"), false, TP_KEPT_POSITIONS},
    {WORD("relative_attention_bias"), false, TP_KEPT_POSITIONS},
};

static bool contains(const char *segment, size_t size, struct word word)
{
    for (size_t i = 0; i + word.size <= size; i++) /* short words: quicker than memmem() */
        if (segment[i] == word.text[0] && memcmp(segment + i, word.text, word.size) == 0)
            return true;
    return false;
}

/* Word rules look at the last segment of the module, and "norm", "embed" and
 * "conv" at every segment ("embeddings.position.weight"). */
static enum tp_kept_why segment_why(const char *segment, size_t size, bool last)
{
    for (size_t i = 0; i < sizeof kept_words / sizeof *kept_words; i++) {
        bool hit = kept_words[i].whole ? last && is_word(segment, size, kept_words[i].word)
                                       : contains(segment, size, kept_words[i].word);
        if (hit)
            return kept_words[i].why;
    }
    return TP_KEPT_NOT;
}

const char *tp_kept_reason(enum tp_kept_why why)
{
    static const char *const reasons[] = {
        [TP_KEPT_EMBEDDING] = "embedding",
        [TP_KEPT_HEAD] = "output head",
        [TP_KEPT_NORM] = "norm",
        [TP_KEPT_ROUTER] = "router",
        [TP_KEPT_BY_ENGINES] = "loaded plain by engines",
        [TP_KEPT_CONVOLUTION] = "convolution",
        [TP_KEPT_POSITIONS] = "position table",
        [TP_KEPT_NO_WEIGHT] = "not a linear layer's weight (its name does not end in .weight)",
    };
    return reasons[why];
}

enum tp_kept_why tp_name_kept(const char *name)
{
    struct tp_stack_name stack;
    size_t size = strlen(name);
    if (tp_name_stack(name, &stack))
        return TP_KEPT_NOT;
    if (!ends_in(name, size, weight_suffix))
        return TP_KEPT_NO_WEIGHT;
    const char *end = name + size - weight_suffix.size;
    for (const char *at = name; at < end;) {
        const char *dot = memchr(at, '.', (size_t)(end - at));
        const char *stop = dot ? dot : end;
        enum tp_kept_why why = segment_why(at, (size_t)(stop - at), stop == end);
        if (why)
            return why;
        at = stop + 1;
    }
    return TP_KEPT_NOT;
}

static const struct {
    struct word label;
    enum tp_expert_matrix matrix;
} expert_matrices[] = {
    {WORD("gate_proj"), TP_EXPERT_GATE}, {WORD("up_proj"), TP_EXPERT_UP},
    {WORD("down_proj"), TP_EXPERT_DOWN}, {WORD("w1"), TP_EXPERT_GATE},
    {WORD("w3"), TP_EXPERT_UP},          {WORD("w2"), TP_EXPERT_DOWN},
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
    for (size_t i = 0; i < sizeof expert_matrices / sizeof *expert_matrices; i++)
        if (is_word(out->label, out->label_size, expert_matrices[i].label)) {
            out->matrix = expert_matrices[i].matrix;
            return true;
        }
    return false;
}

bool tp_name_stack(const char *name, struct tp_stack_name *out)
{
    static const struct {
        struct word suffix;
        bool gate_up;
    } stacks[] = {{WORD("experts.gate_up_proj"), true}, {WORD("experts.down_proj"), false},
                  {WORD("experts.w13"), true},          {WORD("experts.w2"), false}};
    size_t size = tp_name_stem(name);
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        size_t length = stacks[i].suffix.size;
        if (!ends_in(name, size, stacks[i].suffix) ||
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
        struct word label, set;
    } fused[] = {{WORD("q_proj"), WORD("qkv")}, {WORD("k_proj"), WORD("qkv")},
                 {WORD("v_proj"), WORD("qkv")}, {WORD("query"), WORD("qkv")},
                 {WORD("key"), WORD("qkv")},    {WORD("value"), WORD("qkv")},
                 {WORD("wq"), WORD("qkv")},     {WORD("wk"), WORD("qkv")},
                 {WORD("wv"), WORD("qkv")},     {WORD("gate_proj"), WORD("gate_up")},
                 {WORD("up_proj"), WORD("gate_up")}, {WORD("w1"), WORD("gate_up")},
                 {WORD("w3"), WORD("gate_up")}};
    size_t length;
    const char *label = last_segment(name, &length);
    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++) {
        struct word set = fused[i].set;
        size_t start = (size_t)(label - name);
        if (!is_word(label, length, fused[i].label) || start + set.size >= size)
            continue;
        memcpy(key, name, start);
        memcpy(key + start, set.text, set.size + 1);
        return true;
    }
    return false;
}

struct tp_parallel_name tp_name_parallel(const char *name)
{
    static const struct {
        struct word label;
        struct tp_parallel_name is;
    } known[] = {
        {WORD("q_proj"), {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_QUERY}},
        {WORD("k_proj"), {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_KEY_VALUE}},
        {WORD("v_proj"), {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_KEY_VALUE}},
        {WORD("wq"), {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_QUERY}},
        {WORD("wk"), {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_KEY_VALUE}},
        {WORD("wv"), {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_KEY_VALUE}},
        {WORD("qkv_proj"), {TP_PARALLEL_COLUMN, TP_FUSED_QKV, TP_HEADS_KEY_VALUE}},
        {WORD("q_b_proj"), {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_QUERY}},
        {WORD("kv_b_proj"), {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_QUERY}},
        {WORD("o_proj"), {TP_PARALLEL_ROW, TP_FUSED_NONE, TP_HEADS_QUERY}},
        {WORD("wo"), {TP_PARALLEL_ROW, TP_FUSED_NONE, TP_HEADS_QUERY}},
        {WORD("gate_proj"), {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_NONE}},
        {WORD("up_proj"), {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_NONE}},
        {WORD("gate_up_proj"), {TP_PARALLEL_COLUMN, TP_FUSED_GATE_UP, TP_HEADS_NONE}},
        {WORD("down_proj"), {TP_PARALLEL_ROW, TP_FUSED_NONE, TP_HEADS_NONE}},
        {WORD("w1"), {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_NONE}},
        {WORD("w3"), {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_NONE}},
        {WORD("w13"), {TP_PARALLEL_COLUMN, TP_FUSED_GATE_UP, TP_HEADS_NONE}},
        {WORD("w2"), {TP_PARALLEL_ROW, TP_FUSED_NONE, TP_HEADS_NONE}},
        {WORD("fc1"), {TP_PARALLEL_COLUMN, TP_FUSED_NONE, TP_HEADS_NONE}},
        {WORD("fc2"), {TP_PARALLEL_ROW, TP_FUSED_NONE, TP_HEADS_NONE}},
    };
    size_t length;
    const char *label = last_segment(name, &length);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is_word(label, length, known[i].label))
            return known[i].is;
    return (struct tp_parallel_name){TP_PARALLEL_NONE, TP_FUSED_NONE, TP_HEADS_NONE};
}

/* Architectures by their model_type. */
static const struct {
    const char *model_type;
    struct tp_orientation orientation;
} architectures[] = {
    {"gpt_oss", {true, true}},
    {"llama4", {true, false}},
    {"llama4_text", {true, false}},
};

struct tp_orientation tp_orientation_of(const char *config)
{
    for (const char *at = config; at && (at = strstr(at, "\"model_type\""));) {
        at += strlen("\"model_type\"");
        at += strspn(at, " \t\r\n:");
        for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
            size_t size = strlen(architectures[i].model_type);
            if (at[0] == '"' && strncmp(at + 1, architectures[i].model_type, size) == 0 &&
                at[1 + size] == '"')
                return architectures[i].orientation;
        }
    }
    return (struct tp_orientation){false, false};
}
