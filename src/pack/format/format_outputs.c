/* "outputs" of a format file: tensors, their shapes, layouts and elements.
 *
 * Strict: a missing key or a layout that is no bijection on a probe size is an error.
 */
#include "pack/format/format_outputs.h"

#include "base/layout_parse.h"
#include "kernels/op/word_bits.h"
#include "pack/format/format_check.h"
#include "pack/format/format_keywords.h"
#include "pack/format/format_rule.h"
#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

/* What a "let" name of the format stands for, a single capital letter other than E, N, K and S;
 * NULL: it is none. */
static const char *body_of(char letter, const json_t *let)
{
    char name[2] = {letter, 0};
    bool capital = letter >= 'A' && letter <= 'Z';
    return capital ? json_string_value(json_object_get(let, name)) : NULL;
}

/* Replaces every such name in an expression once. */
static char *expand_once(const char *text, const json_t *let, struct tp_err *err)
{
    size_t size = strlen(text) + 1;
    for (const char *at = text; *at; at++) {
        const char *body = body_of(*at, let);
        if (body)
            size += strlen(body) + 2;
    }
    char *out = tp_os_alloc(size, err), *to = out;
    for (const char *at = text; out && *at; at++) {
        const char *body = body_of(*at, let);
        if (!body) {
            *to++ = *at;
            continue;
        }
        *to++ = '(';
        to = stpcpy(to, body);
        *to++ = ')';
    }
    if (out)
        *to = '\0';
    return out;
}

/* The same, and the names in what they stand for, which hold no further ones. */
static char *expand(const char *text, const json_t *let, struct tp_err *err)
{
    char *once = expand_once(text, let, err);
    char *out = once ? expand_once(once, let, err) : NULL;
    free(once);
    return out;
}

static enum tp_code parse_shape(const json_t *array, const json_t *let, struct tp_format_out *out,
                                struct tp_err *err)
{
    out->rank = (uint32_t)json_array_size(array);
    if (out->rank > TP_MAX_RANK)
        return tp_fail(err, TP_E_INPUT, "\"shape\" has more than %d dimensions", TP_MAX_RANK);
    out->group_dim = out->row_dim = -1;
    for (uint32_t i = 0; i < out->rank; i++) {
        const char *text = json_string_value(json_array_get(array, i));
        if (!text)
            return tp_fail(err, TP_E_INPUT, "\"shape\" holds something that is no string");
        if (strcmp(text, "K/G") == 0 || strcmp(text, "ceil(K,G)") == 0)
            out->group_dim = (int)i;
        if (strcmp(text, "ceil(N,R)") == 0)
            out->row_dim = (int)i;
        if (!(out->shape[i] = expand(text, let, err)))
            return TP_E_MEMORY;
    }
    return TP_OK;
}

static enum tp_code parse_words(const json_t *array, const json_t *let,
                                struct tp_format_out *out, struct tp_err *err)
{
    out->word_count = (uint32_t)json_array_size(array);
    if (out->word_count > TP_MAX_RANK)
        return tp_fail(err, TP_E_INPUT, "\"words\" has more than %d entries", TP_MAX_RANK);
    for (uint32_t i = 0; i < out->word_count; i++) {
        const char *text = json_string_value(json_array_get(array, i));
        if (!text)
            return tp_fail(err, TP_E_INPUT, "\"words\" holds something that is no string");
        if (!(out->words[i] = expand(text, let, err)))
            return TP_E_MEMORY;
    }
    return TP_OK;
}

enum tp_code tp_format_word_bits(const json_t *list, struct tp_op_out *op, struct tp_err *err)
{
    size_t count = json_array_size(list);
    uint32_t seen = 0;
    if (!list)
        return TP_OK;
    uint8_t *bits = tp_os_zalloc(TP_WORD_BITS, 1, err);
    op->word_bits = bits;
    if (!bits)
        return TP_E_MEMORY;
    for (size_t i = 0; i < TP_WORD_BITS && (count == 8 || count == TP_WORD_BITS); i++) {
        const json_t *number = json_array_get(list, i % count);
        json_int_t bit = json_is_integer(number) ? json_integer_value(number) : -1;
        bits[i] = (uint8_t)((uint64_t)bit % count + i / count * count);
        seen |= bit >= 0 && (size_t)bit < count ? UINT32_C(1) << bits[i] : 0;
    }
    return seen == UINT32_MAX && op->role == TP_ROLE_CODES && tp_element_bits(op->element) <= 8
               ? TP_OK
               : tp_fail(err, TP_E_INPUT, "\"word_bits\" of codes is 8 or 32 different numbers");
}

/* A bijection of a weight, and of one that is made of two segments. */
static enum tp_code check_layout(const struct tp_layout_expr *layout, uint64_t group,
                                 struct tp_err *err)
{
    struct tp_box3 box = {3, 1024, group && group != TP_GROUP_ROW ? 16 * group : 2048};
    enum tp_code code = TP_OK;
    for (uint64_t segments = 1; segments <= 2 && !code; segments++) {
        struct tp_layout probe;
        if ((code = tp_layout_eval(layout, box, segments, &probe, err)) == TP_OK)
            code = tp_layout_check(&probe, err);
    }
    return code;
}

static enum tp_code parse_output(const json_t *json, const json_t *let,
                                 const struct tp_format *format, struct tp_op_out *op,
                                 struct tp_format_out *out, struct tp_err *err)
{
    enum tp_code code;
    if ((code = tp_format_role(json, &op->role, err)) ||
        (code = tp_format_element(json, &op->element, err)))
        return code;
    op->per_n = op->per_k = 1;
    op->fill = (uint8_t)json_integer_value(json_object_get(json, "fill"));
    op->min = (float)json_number_value(json_object_get(json, "least"));
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    out->dtype = dtype ? tp_dtype_parse(dtype, strlen(dtype)) : TP_DTYPE_NONE;
    if ((code = tp_format_text(json, "suffix", " of an output", &out->suffix, err)))
        return code;
    out->keep_e = json_is_true(json_object_get(json, "keep_e"));
    out->optional = json_is_true(json_object_get(json, "optional"));
    if (out->dtype == TP_DTYPE_NONE)
        return tp_fail(err, TP_E_INPUT, "\"dtype\" of \"%s\" is %s", out->suffix,
                       dtype ? "none of safetensors" : "missing");
    if (op->element == TP_ELEM_E5M3 && op->role != TP_ROLE_SCALE)
        return tp_fail(err, TP_E_INPUT, "only scales are \"e5m3\"");
    const json_t *factor = json_object_get(json, "factor"), *per = json_object_get(json, "per");
    if (factor && (code = tp_format_factor(factor, op, err)))
        return code;
    if (per && tp_format_pair(per, format, &op->per_n, &op->per_k, NULL))
        return tp_fail(err, TP_E_INPUT, "\"per\" of \"%s\" is not two small numbers [n,k]",
                       out->suffix);
    if ((code = parse_shape(json_object_get(json, "shape"), let, out, err)) ||
        (code = parse_words(json_object_get(json, "words"), let, out, err)))
        return code;
    const char *layout = json_string_value(json_object_get(json, "layout"));
    if (!layout)
        return op->role == TP_ROLE_WORDS || op->role == TP_ROLE_GLOBAL
                   ? TP_OK
                   : tp_fail(err, TP_E_INPUT, "output \"%s\" lacks \"layout\"", out->suffix);
    struct tp_layout_expr *compiled = tp_os_alloc(sizeof *compiled, err);
    op->layout = compiled;
    if (!compiled || !(out->layout = expand(layout, let, err)))
        return TP_E_MEMORY;
    if ((code = tp_layout_compile(out->layout, compiled, err)))
        return code;
    if ((code = tp_format_word_bits(json_object_get(json, "word_bits"), op, err)))
        return code;
    bool any = op->word_bits || op->min > 0 || op->element == TP_ELEM_E5M3;
    op->place = any ? TP_PLACE_ANY : tp_place_of(op->layout);
    return check_layout(compiled, format->group, err);
}

enum tp_code tp_format_outputs(const json_t *json, struct tp_format *format, struct tp_err *err)
{
    const json_t *outputs = json_object_get(json, "outputs");
    format->op.outs = (uint32_t)json_array_size(outputs);
    if (format->op.outs == 0 || format->op.outs > TP_MAX_OUT)
        return tp_fail(err, TP_E_INPUT, "\"outputs\" must hold 1 to %d entries", TP_MAX_OUT);
    for (uint32_t i = 0; i < format->op.outs; i++) {
        enum tp_code code = parse_output(json_array_get(outputs, i), json_object_get(json, "let"),
                                         format, &format->op.out[i], &format->out[i], err);
        if (code)
            return code;
    }
    return TP_OK;
}
