/* Format files: JSON text to struct tp_format. Words are format_keywords.c's, what a choice sets is
 * format_rule.c's, outputs are format_outputs.c's.
 *
 * Strict: an unknown word, a missing key or a layout that is no bijection on a
 * probe size is an error, so that a mistake in a format file is found by the
 * build's tests and not by a user.
 */
#include "pack/format/format_parse.h"

#include "base/layout_parse.h"
#include "kernels/op/traits.h"
#include "pack/format/format_check.h"
#include "pack/format/format_outputs.h"
#include "pack/format/format_rule.h"
#include "pack/format/format_keywords.h"
#include "pack/text/json_tree.h"
#include "pack/os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many choices, and aliases of choices, are that word. */
static unsigned uses(const struct tp_param *param, const char *word)
{
    unsigned count = 0;
    for (uint32_t c = 0; c < param->count; c++) {
        count += strcmp(param->choices[c], word) == 0;
        for (uint32_t a = 0; param->aliases[c][a]; a++)
            count += strcmp(param->aliases[c][a], word) == 0;
    }
    return count;
}

/* Every word means one choice, and what is stored means the choice that stores it. */
static enum tp_code check_words(const struct tp_param *param, struct tp_err *err)
{
    for (uint32_t c = 0; c < param->count; c++) {
        bool clear = uses(param, param->choices[c]) == 1;
        for (uint32_t a = 0; param->aliases[c][a]; a++)
            clear &= uses(param, param->aliases[c][a]) == 1;
        if (!clear)
            return tp_fail(err, TP_E_INPUT, "a word of choice \"%s\" of \"%s\" is used twice",
                           param->choices[c], param->key);
        if (tp_param_find(param, param->stored[c]) != (int)c)
            return tp_fail(err, TP_E_INPUT, "\"stored\" of choice \"%s\" of \"%s\" is neither "
                           "its name nor an alias", param->choices[c], param->key);
    }
    return TP_OK;
}

/* "search" of a choice takes that of the format away, and can do nothing else. */
static enum tp_code parse_unsearched(const json_t *json, bool *unsearched, struct tp_err *err)
{
    const char *search = json_string_value(json_object_get(json, "search"));
    *unsearched = search && strcmp(search, "none") == 0;
    return *unsearched || !json_object_get(json, "search")
               ? TP_OK
               : tp_fail(err, TP_E_INPUT, "\"search\" of a choice is not \"none\"");
}

static enum tp_code parse_choice(const json_t *json, struct tp_param *param, uint32_t c,
                                 struct tp_err *err)
{
    const json_t *stored = json_object_get(json, "stored");
    param->choices[c] = json_string_value(json_object_get(json, "name"));
    param->set[c] = json_object_get(json, "set");
    param->config[c] = json_object_get(json, "config");
    param->warns[c] = json_string_value(json_object_get(json, "warns"));
    if (!param->choices[c])
        return tp_fail(err, TP_E_INPUT, "a choice of \"%s\" lacks \"name\"", param->key);
    param->stored[c] = stored ? json_string_value(stored) : param->choices[c];
    if (!param->stored[c])
        return tp_fail(err, TP_E_INPUT, "\"stored\" of choice \"%s\" is no string",
                       param->choices[c]);
    enum tp_code code = parse_unsearched(json, &param->unsearched[c], err);
    return code ? code
                : tp_format_strings(json, "aliases", param->aliases[c], TP_MAX_ALIASES, err);
}

static enum tp_code check_experts(const struct tp_param *param, struct tp_err *err)
{
    for (size_t i = 0; i < json_array_size(param->experts); i++) {
        const char *name = json_string_value(json_array_get(param->experts, i));
        uint32_t c = 0;
        while (c < param->count && (!name || strcmp(param->choices[c], name) != 0))
            c++;
        if (c == param->count)
            return tp_fail(err, TP_E_INPUT, "\"experts\" of \"%s\" names no choice of it",
                           param->key);
    }
    return TP_OK;
}

static enum tp_code parse_param(const json_t *json, struct tp_param *param, struct tp_err *err)
{
    const json_t *choices = json_object_get(json, "choices");
    enum tp_code bad = tp_format_text(json, "key", " of a parameter", &param->key, err);
    if (bad || (bad = tp_format_text(json, "help", " of a parameter", &param->help, err)))
        return bad;
    param->experts = json_object_get(json, "experts");
    param->later = json_is_true(json_object_get(json, "later"));
    param->count = (uint32_t)json_array_size(choices);
    if (param->count < 1 || param->count > TP_MAX_CHOICES)
        return tp_fail(err, TP_E_INPUT, "\"choices\" of \"%s\" are not 1 to %d", param->key,
                       TP_MAX_CHOICES);
    for (uint32_t i = 0; i < param->count; i++) {
        enum tp_code code = parse_choice(json_array_get(choices, i), param, i, err);
        if (code)
            return code;
    }
    enum tp_code code = check_words(param, err);
    return code ? code : check_experts(param, err);
}

uint64_t tp_format_choice_group(const json_t *set)
{
    const json_t *group = json_object_get(set, "group");
    const char *word = json_string_value(group);
    return word && strcmp(word, "row") == 0 ? TP_GROUP_ROW : (uint64_t)json_integer_value(group);
}

/* Group sizes are chosen for all choices of a parameter or for none, the one of "let" first. */
static enum tp_code check_groups(const struct tp_param *param, uint64_t own, struct tp_err *err)
{
    for (uint32_t c = 0; c < param->count; c++) {
        uint64_t group = tp_format_choice_group(param->set[c]);
        bool asked = json_object_get(param->set[0], "group") != NULL;
        if ((json_object_get(param->set[c], "group") != NULL) != asked ||
            (asked && (own == 0 || (group > TP_GROUP_MAX && group != TP_GROUP_ROW) || group == 0)))
            return tp_fail(err, TP_E_INPUT, "\"group\" of choice \"%s\" of \"%s\" is none that "
                           "can be chosen", param->choices[c], param->key);
    }
    return TP_OK;
}

static enum tp_code parse_params(const json_t *json, struct tp_format *format, struct tp_err *err)
{
    const json_t *params = json_object_get(json, "params");
    format->params = (uint32_t)json_array_size(params);
    if (format->params > TP_MAX_PARAMS)
        return tp_fail(err, TP_E_INPUT, "more than %d parameters", TP_MAX_PARAMS);
    for (uint32_t i = 0; i < format->params; i++) {
        struct tp_param *param = &format->param[i];
        enum tp_code code = parse_param(json_array_get(params, i), param, err);
        struct tp_op scratch = format->op;
        for (uint32_t c = 0; code == TP_OK && c < param->count; c++)
            code = tp_format_apply(param->set[c], &scratch, err);
        if (code == TP_OK)
            code = check_groups(param, format->group, err);
        if (code || (code = tp_format_apply(param->set[0], &format->op, err)))
            return code;
    }
    return TP_OK;
}

static enum tp_code parse_when(const json_t *when, const struct tp_format *format,
                               struct tp_shape_rule *rule, struct tp_err *err)
{
    const char *key;
    json_t *value;
    rule->when_param = -1;
    json_object_foreach((json_t *)when, key, value)
    {
        for (uint32_t p = 0; p < format->params; p++)
            for (uint32_t c = 0; c < format->param[p].count; c++)
                if (strcmp(format->param[p].key, key) == 0 && json_string_value(value) &&
                    strcmp(format->param[p].choices[c], json_string_value(value)) == 0) {
                    rule->when_param = (int)p;
                    rule->when_choice = (int)c;
                }
        if (rule->when_param < 0)
            return tp_fail(err, TP_E_INPUT, "\"when\" names no parameter: \"%s\"", key);
    }
    return TP_OK;
}

static enum tp_code parse_rules(const json_t *array, const struct tp_format *format,
                                struct tp_shape_rule rules[], uint32_t *count, struct tp_err *err)
{
    *count = (uint32_t)json_array_size(array);
    if (*count > TP_MAX_RULES)
        return tp_fail(err, TP_E_INPUT, "more than %d shape rules", TP_MAX_RULES);
    for (uint32_t i = 0; i < *count; i++) {
        const json_t *json = json_array_get(array, i);
        const char *dim = json_string_value(json_object_get(json, "dim"));
        json_int_t multiple = json_integer_value(json_object_get(json, "multiple"));
        if (!dim || (strcmp(dim, "N") != 0 && strcmp(dim, "K") != 0))
            return tp_fail(err, TP_E_INPUT, "\"dim\" of a shape rule is neither \"N\" nor \"K\"");
        if (multiple < 1)
            return tp_fail(err, TP_E_INPUT, "\"multiple\" of a shape rule is no number from 1 on");
        enum tp_code bad = tp_format_text(json, "why", " of a shape rule", &rules[i].why, err);
        if (bad)
            return bad;
        rules[i].dim = *dim;
        rules[i].multiple = (uint64_t)multiple;
        rules[i].min = (uint64_t)json_integer_value(json_object_get(json, "least"));
        rules[i].experts = json_is_true(json_object_get(json, "experts"));
        enum tp_code code = parse_when(json_object_get(json, "when"), format, &rules[i], err);
        if (code)
            return code;
    }
    return TP_OK;
}

/* Canonical int4 code to stored nibble: 16 different nibbles. */
static enum tp_code parse_table(const json_t *array, struct tp_op *op, struct tp_err *err)
{
    unsigned seen = 0;
    for (unsigned i = 0; i < 16; i++) {
        json_int_t nibble = array ? json_integer_value(json_array_get(array, i)) : (json_int_t)i;
        if (nibble < 0 || nibble > 15)
            return tp_fail(err, TP_E_INPUT, "\"table\" entry %u is no nibble", i);
        op->table[i] = (uint8_t)nibble;
        seen |= 1u << nibble;
    }
    return seen == 0xffff ? TP_OK
                          : tp_fail(err, TP_E_INPUT, "\"table\" is not 16 different nibbles");
}

enum tp_activations tp_activations_of(const json_t *group)
{
    const json_t *inputs = json_object_get(group, "input_activations");
    const char *type = json_string_value(json_object_get(inputs, "type"));
    if (!json_is_object(inputs))
        return group ? TP_ACTIVATIONS_PLAIN : TP_ACTIVATIONS_UNSAID;
    return type && strcmp(type, "float") == 0 &&
                   json_integer_value(json_object_get(inputs, "num_bits")) == 8
               ? TP_ACTIVATIONS_FP8
               : TP_ACTIVATIONS_OTHER;
}

/* What is only of interest where the format is read. */
static void parse_source(const json_t *json, struct tp_format *format)
{
    format->separator = json_string_value(json_object_get(json, "joint"));
    if (!format->separator)
        format->separator = ".";
    format->activations = tp_activations_of(json_object_get(format->config, "group"));
    format->bits = tp_codecs[format->op.codec].bits;
}

/* One letter of "let": its own number, 0 where there is none, or `wanted` in its place. */
static enum tp_code parse_size(json_t *json, const char *letter, uint64_t wanted, uint64_t *size,
                               struct tp_err *err)
{
    json_t *let = json_object_get(json, "let");
    const char *own = json_string_value(json_object_get(let, letter));
    char text[24];
    *size = wanted;
    if (own && strcmp(own, "K") != 0 && own[strspn(own, "0123456789")])
        return TP_OK; /* that letter stands for something else here */
    if (!wanted && own && strcmp(own, "K") == 0)
        *size = TP_GROUP_ROW;
    else if (!wanted && own)
        return tp_expr_eval(own, (struct tp_box3){1, 1, 1}, size, err);
    if (!wanted)
        return TP_OK;
    snprintf(text, sizeof text, "%llu", (unsigned long long)wanted);
    if (wanted == TP_GROUP_ROW)
        strcpy(text, "K");
    if (!own || (wanted > UINT32_MAX / 2 && wanted != TP_GROUP_ROW))
        return tp_fail(err, TP_E_UNSUPPORTED, "groups of %s are not possible", text);
    tp_json_set(let, letter, json_string(text));
    return TP_OK;
}

/* The quantizer's spelling of outputs, by role. Variants that share them are spelled alike. */
static void spell(json_t *json, const json_t *spelled)
{
    json_t *outputs = json_object_get(json, "outputs");
    for (size_t i = 0; i < json_array_size(outputs); i++) {
        json_t *output = json_array_get(outputs, i);
        const char *role = json_string_value(json_object_get(output, "role"));
        const json_t *changes = role ? json_object_get(spelled, role) : NULL;
        if (changes)
            tp_json_update(output, changes);
    }
}

static enum tp_code parse_sizes(json_t *json, const struct tp_format_as *as,
                                struct tp_format *format, struct tp_err *err)
{
    enum tp_code code = parse_size(json, "G", as->columns, &format->group, err);
    if (as->spelled)
        spell(json, as->spelled);
    format->spelled = as->spelled;
    return code ? code : parse_size(json, "R", as->rows, &format->row_group, err);
}

/* Which of the names `key` has; *index stays as it is where the file does not say. */
static enum tp_code parse_word(const json_t *json, const char *key, const char *const names[],
                               int *index, struct tp_err *err)
{
    return json_object_get(json, key) ? tp_format_word(json, key, names, index, err) : TP_OK;
}

static enum tp_code parse_rows(const json_t *json, struct tp_format *format, struct tp_err *err)
{
    static const char *const names[] = {"gate,up", "up,gate", NULL};
    int rows = TP_ROWS_GATE_UP;
    enum tp_code code = parse_word(json, "rows", names, &rows, err);
    format->rows = (enum tp_rows)rows;
    format->keeps_interleaved = json_is_true(json_object_get(json, "in_turn"));
    return code;
}

/* Activation scales: one number for each expert, or one alone, which is the largest then. */
static enum tp_code parse_inputs(const json_t *json, struct tp_format *format, struct tp_err *err)
{
    static const char *const over[] = {"expert", "experts", NULL};
    struct tp_format_inputs *inputs = &format->inputs;
    const json_t *all = json_object_get(json, "inputs"), *shape = json_object_get(all, "shape");
    int largest = 0;
    if (!all)
        return TP_OK;
    inputs->suffix = json_string_value(json_object_get(all, "suffix"));
    inputs->why = json_string_value(json_object_get(all, "why"));
    inputs->single = json_array_size(shape) == 0;
    inputs->range = (float)json_number_value(json_object_get(all, "range"));
    enum tp_code code = tp_format_word(all, "over", over, &largest, err);
    inputs->largest = largest;
    const char *first = json_string_value(json_array_get(shape, 0));
    bool per_expert = json_array_size(shape) == 1 && first && strcmp(first, "E") == 0;
    if (code || (inputs->suffix && strlen(inputs->suffix) <= TP_MAX_INPUT_SUFFIX &&
                 inputs->range > 0 &&
                 (per_expert || (json_is_array(shape) && inputs->single && largest))))
        return code;
    return tp_fail(err, TP_E_INPUT, "\"inputs\" lacks \"suffix\" or \"range\", or its \"shape\" is "
                   "neither [\"E\"] nor, over all experts, []");
}

/* The search where nothing is said, which has to be one of the codec's. */
static enum tp_code parse_search(const json_t *json, struct tp_format *format, struct tp_err *err)
{
    const struct tp_codec_traits *codec = &tp_codecs[format->op.codec];
    struct tp_format_search *searched = &format->searched;
    int search = TP_SEARCH_NONE;
    enum tp_code code = parse_word(json, "search", tp_search_names, &search, err);
    searched->search = (enum tp_search)search;
    searched->is_signed = json_is_true(json_object_get(json, "signed"));
    const bool rows = search == TP_SEARCH_W4A8 || searched->is_signed;
    if (code || ((search == TP_SEARCH_NONE || codec->searches) && (!rows || codec->searches_rows) &&
                 (search != TP_SEARCH_NONE || !searched->is_signed)))
        return code;
    return tp_fail(err, TP_E_INPUT, "\"search\" and \"signed\" are none of codec \"%s\"",
                   codec->name);
}

static enum tp_code parse_facts(const json_t *json, struct tp_format *format, struct tp_err *err)
{
    static const char *const experts[] = {"stack", "split", NULL};
    const json_t *version = json_object_get(json, "version");
    int place;
    enum tp_code code;
    if ((code = tp_format_text(json, "name", "", &format->name, err)) ||
        (code = tp_format_text(json, "title", "", &format->title, err)) ||
        (code = tp_format_text(json, "about", "", &format->about, err)) ||
        (code = tp_format_text(json, "source", "", &format->source, err)))
        return code;
    if (!version || json_integer_value(version) < 1 || json_integer_value(version) > INT32_MAX)
        return tp_fail(err, TP_E_INPUT, "\"version\" is %s",
                       version ? "no number from 1 on" : "missing");
    format->version = (int)json_integer_value(version);
    format->input_only = json_is_true(json_object_get(json, "input_only"));
    format->config = json_object_get(json, "config");
    if ((code = tp_format_word(json, "experts", experts, &place, err)) ||
        (code = tp_format_codec(json, &format->op.codec, err)))
        return code;
    format->experts = place == 0 ? TP_EXPERTS_STACK : TP_EXPERTS_SPLIT;
    if (tp_format_pair(json_object_get(json, "block"), format, &format->op.block_n,
                       &format->op.block_k, NULL))
        return tp_fail(err, TP_E_INPUT, "\"block\" is not two small numbers [n,k]");
    parse_source(json, format);
    if ((code = parse_rows(json, format, err)) || (code = parse_search(json, format, err)) ||
        (code = parse_table(json_object_get(json, "table"), &format->op, err)))
        return code;
    return tp_format_apply(json_object_get(json, "set"), &format->op, err);
}

static void drop(const struct tp_format *format)
{
    struct tp_format *own = (struct tp_format *)(uintptr_t)format;
    if (own)
        tp_format_close(own);
    free(own);
}

void tp_format_close(struct tp_format *format)
{
    for (uint32_t i = 0; i < TP_MAX_OUT; i++) {
        for (uint32_t d = 0; d < TP_MAX_RANK; d++)
            free(format->out[i].shape[d]);
        for (uint32_t w = 0; w < TP_MAX_RANK; w++)
            free(format->out[i].words[w]);
        free(format->out[i].layout);
        free((struct tp_layout_expr *)(uintptr_t)format->op.out[i].layout);
        free((uint8_t *)(uintptr_t)format->op.out[i].word_bits);
    }
    json_decref((json_t *)(uintptr_t)format->json);
    for (int part = 0; part < TP_PARTS; part++)
        drop(format->variant[part]);
    drop(format->bias);
    memset(format, 0, sizeof *format);
}

/* Of integers only, and where it is a product with a scale, for the same block. */
static enum tp_code check_zero(const struct tp_op *op, int scale, struct tp_err *err)
{
    int zero = tp_op_find(op, TP_ROLE_ZERO);
    if (zero < 0)
        return TP_OK;
    const struct tp_op_out *out = &op->out[zero];
    bool element = out->element == TP_ELEM_INT4 || out->element == TP_ELEM_UINT8B128 ||
                   (out->element == (op->scale_rule == TP_INT_SCALE_F16 ? TP_ELEM_F16
                                                                        : TP_ELEM_BF16) &&
                    scale >= 0 && op->out[scale].per_n == out->per_n &&
                    op->out[scale].per_k == out->per_k);
    return tp_op_is_int(op) && element
               ? TP_OK
               : tp_fail(err, TP_E_INPUT, "a zero point is \"int4\", \"uint8b128\", or a number "
                         "of the type, and for the block, of a scale");
}

static enum tp_code parse_all(json_t *json, const struct tp_format_as *as,
                              struct tp_format *format, struct tp_err *err)
{
    enum tp_code code;
    if ((code = tp_format_check_keys(json, err)) ||
        (code = parse_sizes(json, as, format, err)) ||
        (code = parse_facts(json, format, err)) || (code = tp_format_outputs(json, format, err)) ||
        (code = parse_params(json, format, err)) ||
        (code = parse_rules(json_object_get(json, "needs"), format, format->need, &format->needs,
                            err)) ||
        (code = parse_rules(json_object_get(json, "wants"), format, format->want, &format->wants,
                            err)) ||
        (code = parse_inputs(json, format, err)))
        return code;
    int scale = tp_op_find(&format->op, TP_ROLE_SCALE);
    bool e5m3 = scale >= 0 && format->op.out[scale].element == TP_ELEM_E5M3;
    if ((code = check_zero(&format->op, scale, err)))
        return code;
    if ((e5m3 && format->op.codec != TP_CODEC_NVFP4) || (format->op.shifts_scales && !e5m3))
        return tp_fail(err, TP_E_INPUT, "\"e5m3\" is for scales of nvfp4, \"lift\" for such ones");
    return tp_op_find(&format->op, TP_ROLE_CODES) >= 0
               ? tp_format_check(format, err)
               : tp_fail(err, TP_E_INPUT, "no output has the role \"codes\"");
}

/* The format as it is for some weights: the same file, in which the members of "gated" (or "up",
 * ...) stand in the place of its own. Gate and up are two segments. */
static enum tp_code parse_variant(const struct tp_format_as *as, enum tp_part part,
                                  struct tp_format *format, struct tp_err *err)
{
    const char *name = tp_part_name(part);
    const json_t *changes = json_object_get(format->json, name);
    if (!changes)
        return TP_OK;
    struct tp_format *variant = tp_os_zalloc(1, sizeof *variant, err);
    format->variant[part] = variant;
    if (!variant)
        return TP_E_MEMORY;
    if (!json_is_object(changes))
        return tp_fail(err, TP_E_INPUT, "\"%s\" is no object", name);
    json_t *json = tp_json_merge(json_incref((json_t *)(uintptr_t)format->json), changes);
    variant->json = json;
    variant->text = format->text;
    variant->is_bias = format->is_bias;
    variant->part = part;
    variant->op.segments = part == TP_PART_GATED ? 2 : 0;
    return parse_all(json, as, variant, err);
}

static enum tp_code parse_variants(const struct tp_format_as *as, struct tp_format *format,
                                   struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (int part = TP_PART_GATED; part < TP_PARTS && code == TP_OK; part++)
        code = parse_variant(as, (enum tp_part)part, format, err);
    return code;
}

/* What a bias has of its weight's format; all else is in "bias". */
static json_t *bias_json(const json_t *json)
{
    static const char *const common[] = {"name", "version", "title", "about", "source",
                                         "experts", "rows", "in_turn"};
    json_t *bias = json_pack("{s:s,s:[i,i]}", "codec", "float", "block", 1, 1);
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (json_object_get(json, common[i]))
            tp_json_set(bias, common[i], json_incref(json_object_get(json, common[i])));
    tp_json_update(bias, json_object_get(json, "bias"));
    return bias;
}

/* The format as it is for the bias of a weight, which is W[E,N,1] of numbers. */
static enum tp_code parse_bias(struct tp_format *format, struct tp_err *err)
{
    const json_t *own = json_object_get(format->json, "bias");
    if (!own)
        return TP_OK;
    if (!json_is_object(own))
        return tp_fail(err, TP_E_INPUT, "\"bias\" is no object");
    struct tp_format *bias = tp_os_zalloc(1, sizeof *bias, err);
    format->bias = bias;
    if (!bias)
        return TP_E_MEMORY;
    bias->is_bias = true;
    bias->text = format->text;
    bias->json = bias_json(format->json);
    const struct tp_format_as as_is = {0};
    enum tp_code code = parse_all((json_t *)(uintptr_t)bias->json, &as_is, bias, err);
    return code ? code : parse_variants(&as_is, bias, err);
}

enum tp_code tp_format_parse(const char *text, const struct tp_format_as *as,
                             struct tp_format *format, struct tp_err *err)
{
    json_error_t where;
    uint64_t before = tp_json_failures();
    json_t *json = tp_json_load(text, strlen(text), &where);
    memset(format, 0, sizeof *format);
    format->json = json;
    format->text = text;
    enum tp_code code = json ? parse_all(json, as, format, err)
                             : tp_fail(err, TP_E_INPUT, "line %d: %s", where.line, where.text);
    if (code == TP_OK && (code = parse_variants(as, format, err)) == TP_OK)
        code = parse_bias(format, err);
    code = tp_json_check(before, code, err);
    if (code)
        tp_format_close(format);
    return code;
}

void tp_format_op(const struct tp_format *format, const struct tp_settings *settings,
                  struct tp_op *op)
{
    *op = format->op;
    for (uint32_t p = 0; p < format->params; p++) /* checked when the file was parsed */
        tp_format_apply(format->param[p].set[settings->choice[p]], op, NULL);
    for (uint32_t i = 0; i < op->outs; i++) {
        bool zero = op->out[i].role == TP_ROLE_ZERO;
        if (format->out[i].word_count && !(zero && op->zeros)) /* of what is written, constants */
            op->out[i].role = TP_ROLE_WORDS;
        else if (zero && !op->zeros && !format->input_only) /* the last one, and not there */
            op->outs = i;
    }
}

enum tp_dtype tp_format_via(const struct tp_format *format, const struct tp_settings *settings,
                            enum tp_dtype original)
{
    for (uint32_t p = 0; p < format->params; p++) {
        const char *via = json_string_value(
            json_object_get(format->param[p].set[settings->choice[p]], "via"));
        if (via)
            return tp_dtype_parse(via, strlen(via));
    }
    return original == TP_BF16 ? TP_BF16 : TP_F32;
}
