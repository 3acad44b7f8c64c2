/* Unknown formats by their descriptors; see descriptor_unknown.h. */
#include "pack/source/descriptor_unknown.h"

#include "base/layout_parse.h"
#include "base/num.h"
#include "base/suffix.h"
#include "kernels/op/codec.h"
#include "kernels/op/traits.h"
#include "kernels/op/word_bits.h"
#include "pack/format/format_keywords.h"
#include "pack/format/format_outputs.h"
#include "pack/format/format_rule.h"
#include "pack/os/os.h"

#include <stdio.h>
#include <string.h>

/* ---- errors -------------------------------------------------------------- */

enum tp_code tp_damaged(struct tp_err *err, const char *what)
{
    tp_err_hint(err, TP_HINT_DAMAGED);
    return tp_fail(err, TP_E_INPUT, "stored descriptor: %s", what);
}

static enum tp_code unknown(const struct tp_format *format, const char *what, const char *word,
                            struct tp_err *err)
{
    tp_err_hint(err, TP_HINT_NEWER);
    return tp_fail(err, TP_E_UNSUPPORTED, "stored descriptor: format '%s', version %d, is not "
                   "known here, and its %s '%.80s' is not either", format->name, format->version,
                   what, word ? word : "(missing)");
}

/* Every key of an object is one of a list, which ends in NULL. */
static enum tp_code check_keys(const struct tp_format *format, const json_t *object,
                               const char *const keys[], struct tp_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (tp_word_of(key, keys, SIZE_MAX) < 0)
            return unknown(format, "key", key, err);
    }
    return TP_OK;
}

/* What is printed as it is. */
static bool is_name(const json_t *json)
{
    const char *text = json_string_value(json);
    size_t size = json_string_length(json);
    bool good = text && size >= 1 && size <= TP_FORMAT_NAME;
    for (size_t i = 0; i < size && good; i++)
        good = text[i] > 0x20 && text[i] < 0x7F;
    return good;
}

/* ---- outputs ------------------------------------------------------------- */

/* Numbers alone, a bijection. Whether all elements of the weight have a place in it is asked
 * later, when `per` is known. */
static enum tp_code read_layout(const json_t *json, struct tp_op_out *out, struct tp_err *err)
{
    struct tp_layout_expr *expr;
    struct tp_layout layout;
    const char *text = json_string_value(json);
    if (!text || json_string_length(json) > 1000)
        return tp_damaged(err, "a layout is no text");
    if (!(expr = tp_os_alloc(sizeof *expr, err)))
        return TP_E_MEMORY;
    out->layout = expr;
    enum tp_code code = tp_layout_compile(text, expr, err);
    for (uint32_t i = 0; i < expr->steps.count && !code; i++)
        if (expr->steps.step[i].kind != TP_STEP_NUMBER)
            code = tp_fail(err, TP_E_INPUT, "stored descriptor: a layout is not of numbers");
    if (!code)
        code = tp_layout_eval(expr, (struct tp_box3){1, 1, 1}, 1, &layout, err);
    return code ? code : tp_layout_check(&layout, err);
}

/* The words as text: expressions that are numbers. */
static enum tp_code read_words(const json_t *list, struct tp_format_out *out, struct tp_err *err)
{
    char text[24];
    out->word_count = (uint32_t)json_array_size(list);
    if (out->word_count > TP_MAX_RANK)
        return tp_damaged(err, "\"words\" are too many");
    for (uint32_t w = 0; w < out->word_count; w++) {
        const json_t *word = json_array_get(list, w);
        if (!json_is_integer(word) || json_integer_value(word) < 0)
            return tp_damaged(err, "\"words\" hold something that is no number");
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(word));
        if (!(out->words[w] = tp_os_join(err, text, strlen(text), "")))
            return TP_E_MEMORY;
    }
    return TP_OK;
}

/* What goes with a layout, and only with one. */
static enum tp_code read_place(const json_t *json, struct tp_op_out *op, struct tp_err *err)
{
    const json_t *layout = json_object_get(json, "layout"), *fill = json_object_get(json, "fill");
    json_int_t byte = json_integer_value(fill);
    op->per_n = op->per_k = 1;
    if (!layout)
        return op->role == TP_ROLE_WORDS || op->role == TP_ROLE_GLOBAL
                   ? TP_OK
                   : tp_damaged(err, "an output lacks \"layout\"");
    if (!json_is_integer(fill) || byte < 0 || byte > 255)
        return tp_damaged(err, "\"fill\" is no byte");
    op->fill = (uint8_t)byte;
    if (tp_format_pair(json_object_get(json, "per"), NULL, &op->per_n, &op->per_k, NULL))
        return tp_damaged(err, "\"per\" is wrong");
    if (op->role == TP_ROLE_CODES && (op->per_n != 1 || op->per_k != 1))
        return tp_damaged(err, "codes are not one for each element");
    return read_layout(layout, op, err);
}

static enum tp_code read_output(const json_t *json, const struct tp_format *format,
                                struct tp_op_out *op, struct tp_format_out *out,
                                struct tp_err *err)
{
    static const char *const keys[] = {"suffix", "role", "element", "words", "per", "layout",
                                       "fill", "word_bits", "factor", "divides", "values", NULL};
    const json_t *bits = json_object_get(json, "word_bits");
    const json_t *factor = json_object_get(json, "factor");
    enum tp_code code = check_keys(format, json, keys, err);
    if (code)
        return code;
    if (tp_format_role(json, &op->role, NULL))
        return unknown(format, "role", json_string_value(json_object_get(json, "role")), err);
    if (tp_format_element(json, &op->element, NULL))
        return unknown(format, "element", json_string_value(json_object_get(json, "element")),
                       err);
    if (!is_name(json_object_get(json, "suffix")))
        return tp_damaged(err, "\"suffix\" is wrong");
    out->suffix = json_string_value(json_object_get(json, "suffix"));
    if (!tp_codec_takes(format->op.codec, op->role, op->element))
        return unknown(format, "kind of outputs", out->suffix, err);
    if (bits && json_array_size(bits) != TP_WORD_BITS)
        return tp_damaged(err, "\"word_bits\" are not 32 numbers");
    if ((code = read_place(json, op, err)) || (code = tp_format_word_bits(bits, op, err)) ||
        (factor && (code = tp_format_factor(factor, op, err))))
        return code;
    return read_words(json_object_get(json, "words"), out, err);
}

/* ---- the operation ------------------------------------------------------- */

static const json_t *output_json(const struct tp_format *format, int i)
{
    return json_array_get(json_object_get(format->json, "outputs"), (size_t)i);
}

/* The number of each stored nibble: of integers the code table, and of zero points what is added
 * to them. */
static enum tp_code read_values(struct tp_format *format, int i, struct tp_err *err)
{
    struct tp_op *op = &format->op;
    const json_t *values = json_object_get(output_json(format, i), "values");
    bool zero = op->out[i].role == TP_ROLE_ZERO, table = tp_elements[op->out[i].element].has_table;
    unsigned seen = 0;
    if (tp_element_bits(op->out[i].element) != 4)
        return values ? tp_damaged(err, "\"values\" are not of nibbles") : TP_OK;
    if (json_array_size(values) != 16)
        return tp_damaged(err, "\"values\" are not 16 numbers");
    for (uint8_t stored = 0; stored < 16; stored++) {
        double value = json_number_value(json_array_get(values, stored));
        double add = zero ? op->zero_add : 0;
        if (!table && !(value >= tp_codec_code_value(op, stored) &&
                        value <= tp_codec_code_value(op, stored)))
            return tp_damaged(err, "\"values\" are not those of the element");
        for (uint8_t code = 0; table && code < 16; code++)
            if (value - add >= code - 8 && value - add <= code - 8 &&
                (!zero || op->table[code] == stored)) {
                op->table[code] = stored;
                seen |= 1u << code;
            }
    }
    return !table || seen == 0xffff ? TP_OK : tp_damaged(err, "\"values\" are not 16 integers");
}

/* How much more a stored zero point is than its own code: 1 of GPTQ. The codes were read before. */
static enum tp_code read_zero_add(struct tp_format *format, int zero, struct tp_err *err)
{
    struct tp_op *op = &format->op;
    const json_t *values = json_object_get(output_json(format, zero), "values");
    double min = 8;
    for (size_t i = 0; i < json_array_size(values); i++) {
        double value = json_number_value(json_array_get(values, i));
        min = value < min ? value : min;
    }
    if (!values)
        return TP_OK;
    if (!(min >= -8 && min <= 7))
        return tp_damaged(err, "\"values\" of zero points are wrong");
    op->zero_add = (uint8_t)(int)(min + 8);
    return TP_OK;
}

/* Which outputs there are, each role once; nothing is missing that the value of an element needs,
 * and nothing is there that it does not. */
static enum tp_code check_roles(const struct tp_op *op, struct tp_err *err)
{
    unsigned count[TP_ROLE_COUNT] = {0};
    for (uint32_t i = 0; i < op->outs; i++)
        count[op->out[i].role]++;
    for (int r = 0; r < TP_ROLE_COUNT; r++)
        if (r != TP_ROLE_WORDS && count[r] > 1)
            return tp_damaged(err, "two outputs have one role");
    bool scale = count[TP_ROLE_SCALE], global = count[TP_ROLE_GLOBAL];
    bool group8 = count[TP_ROLE_GROUP8] && count[TP_ROLE_CHANNEL];
    bool scaled = tp_codecs[op->codec].is_number ? !scale && !global
                  : op->codec == TP_CODEC_FP8   ? scale != global
                                                : scale != group8;
    if (!count[TP_ROLE_CODES] || !scaled || count[TP_ROLE_GROUP8] != count[TP_ROLE_CHANNEL] ||
        ((count[TP_ROLE_ZERO] || count[TP_ROLE_ORDER]) && !scale))
        return tp_damaged(err, "its outputs are not those of a weight");
    return TP_OK;
}

/* What of the rule of a codec a reader needs. */
static enum tp_code set_rules(struct tp_format *format, struct tp_err *err)
{
    struct tp_op *op = &format->op;
    int scale = tp_op_find(op, TP_ROLE_SCALE), global = tp_op_find(op, TP_ROLE_GLOBAL);
    enum tp_element element = scale < 0 ? TP_ELEM_F32 : op->out[scale].element;
    const json_t *divides = global < 0 ? NULL : json_object_get(output_json(format, global),
                                                                "divides");
    if (global >= 0 && (!json_is_boolean(divides) ||
                        (json_is_true(divides) && !tp_codecs[op->codec].has_global)))
        return tp_damaged(err, "\"divides\" of a global scale is wrong");
    if (op->codec == TP_CODEC_NVFP4)
        op->rule = json_is_true(divides) ? TP_NVFP4_CT : TP_NVFP4_MODELOPT;
    op->scale_rule = tp_codec_scale_rule(op->codec, element);
    int zero = tp_op_find(op, TP_ROLE_ZERO);
    if (zero >= 0 && tp_op_zero_is_product(op) &&
        (op->out[zero].element != element || op->out[zero].per_n != op->out[scale].per_n ||
         op->out[zero].per_k != op->out[scale].per_k))
        return tp_damaged(err, "zero points are not of the type and the block of the scales");
    return TP_OK;
}

/* Every element has its place: the layouts hold the weight, and are as long as bytes are whole. */
static enum tp_code check_sizes(const struct tp_op *op, struct tp_box3 box, struct tp_err *err)
{
    uint64_t segments = tp_max_u64(op->segments, 1), rows = box.n / segments, experts;
    if (box.n % segments || !tp_mul_u64(&experts, box.e, segments))
        return tp_damaged(err, "its rows do not divide into stretches");
    for (uint32_t i = 0; i < op->outs; i++) {
        const struct tp_op_out *out = &op->out[i];
        struct tp_layout layout;
        uint64_t bytes;
        if (!out->layout)
            continue;
        enum tp_code code = tp_op_whole_layout(op, i, box, &layout, err);
        if (code || (code = tp_op_layout_bytes(op, i, &layout, &bytes, err)))
            return code;
        uint64_t n = out->per_n ? tp_ceil_div(rows, out->per_n) : 1;
        uint64_t k = out->per_k ? tp_ceil_div(box.k, out->per_k) : 1;
        if (tp_layout_extent(&layout, TP_DIM_E) != (out->per_n ? experts : box.e) ||
            tp_layout_extent(&layout, TP_DIM_N) < n || tp_layout_extent(&layout, TP_DIM_K) < k)
            return tp_damaged(err, "a layout is smaller than the weight");
        if ((out->word_bits && bytes % (TP_WORD_BITS / 8)) ||
            tp_layout_size(&layout) % (tp_element_bits(out->element) < 8 ? 2 : 1))
            return tp_damaged(err, "a layout ends inside of a word");
    }
    return TP_OK;
}

/* ---- the descriptor ------------------------------------------------------ */

static uint16_t count_of(const json_t *json, const char *key)
{
    json_int_t number = json_integer_value(json_object_get(json, key));
    return number > 0 && number <= UINT16_MAX ? (uint16_t)number : 0;
}

static enum tp_code read_rows(const json_t *json, struct tp_weight_form *form, struct tp_err *err)
{
    const json_t *rows = json_object_get(json, "rows");
    const char *word = json_string_value(json_object_get(rows, "order"));
    int kind = tp_word_of(word, tp_row_kinds, TP_ROW_KINDS);
    if (!rows)
        return TP_OK;
    if (word && kind < 0) {
        tp_err_hint(err, TP_HINT_NEWER);
        return tp_fail(err, TP_E_UNSUPPORTED, "stored descriptor: the order of rows '%.100s' is "
                       "not known here", word);
    }
    const bool grouped = kind == TP_ORDER_QKV_GROUPS;
    form->settings.rows = (struct tp_row_order){(uint16_t)kind, count_of(rows, "heads"),
                                                grouped ? count_of(rows, "groups") : 0};
    return kind > TP_ORDER_SOURCE && form->rank == 2 && form->box.e == 1 &&
                   json_object_size(rows) == (grouped ? 3 : 2) &&
                   tp_row_order_fits(&form->settings.rows, form->box.n)
               ? TP_OK
               : tp_damaged(err, "\"rows\" is wrong");
}

enum tp_code tp_descriptor_box(const json_t *json, struct tp_weight_form *form, struct tp_err *err)
{
    const json_t *list = json_object_get(json, "box");
    uint64_t *size[] = {&form->box.e, &form->box.n, &form->box.k}, all = 1;
    form->rank = (int)json_integer_value(json_object_get(json, "rank"));
    bool good = json_array_size(list) == 3 && form->rank >= 2 && form->rank <= 3;
    for (size_t d = 0; d < 3 && good; d++) {
        json_int_t number = json_integer_value(json_array_get(list, d));
        *size[d] = (uint64_t)number;
        good = number > 0 && tp_mul_u64(&all, all, *size[d]) && all <= INT64_MAX / 64;
    }
    return good ? read_rows(json, form, err) : tp_damaged(err, "\"box\" or \"rank\" is wrong");
}

static enum tp_code read_facts(const json_t *json, struct tp_format *format,
                               struct tp_weight_form *form, struct tp_err *err)
{
    static const char *const keys[] = {"format", "version", "box", "rank", "params", "codec",
                                       "block", "stretches", "part", "bias", "rows", "outputs",
                                       NULL};
    static const char *const parts[] = {"up", "down", "down_ungated", "wide"};
    const char *part = json_string_value(json_object_get(json, "part"));
    const json_t *segments = json_object_get(json, "stretches");
    enum tp_code code = check_keys(format, json, keys, err);
    if (code)
        return code;
    if (tp_format_codec(json, &format->op.codec, NULL))
        return unknown(format, "codec", json_string_value(json_object_get(json, "codec")), err);
    if (json_object_get(json, "part") && tp_word_of(part, parts, TP_COUNT(parts)) < 0)
        return unknown(format, "part", part, err);
    if (segments && json_integer_value(segments) != 2)
        return unknown(format, "number of", "stretches", err);
    format->op.segments = segments ? 2 : 0;
    format->is_bias = json_is_true(json_object_get(json, "bias"));
    if ((code = tp_descriptor_box(json, form, err)))
        return code;
    if (form->rank == 2 && form->box.e != 1)
        return tp_damaged(err, "\"box\" or \"rank\" is wrong");
    if (tp_format_pair(json_object_get(json, "block"), NULL, &format->op.block_n,
                       &format->op.block_k, NULL))
        return tp_damaged(err, "\"block\" is wrong");
    return json_is_object(json_object_get(json, "params"))
               ? TP_OK
               : tp_damaged(err, "\"params\" is wrong");
}

static enum tp_code read_outputs(const json_t *json, struct tp_format *format,
                                 struct tp_err *err)
{
    const json_t *outputs = json_object_get(json, "outputs");
    enum tp_code code = TP_OK;
    if (json_array_size(outputs) < 1)
        return tp_damaged(err, "\"outputs\" are missing");
    if (json_array_size(outputs) > TP_MAX_OUT)
        return unknown(format, "number of", "outputs", err);
    for (uint32_t i = 0; i < json_array_size(outputs) && !code; i++) {
        format->op.outs = i + 1;
        code = read_output(json_array_get(outputs, i), format, &format->op.out[i],
                           &format->out[i], err);
    }
    if (code || (code = check_roles(&format->op, err)) || (code = set_rules(format, err)))
        return code;
    int zero = tp_op_find(&format->op, TP_ROLE_ZERO);
    code = read_values(format, tp_op_find(&format->op, TP_ROLE_CODES), err);
    if (code == TP_OK && zero >= 0 && (code = read_zero_add(format, zero, err)) == TP_OK)
        code = read_values(format, zero, err);
    return code;
}

enum tp_code tp_descriptor_unknown(const json_t *json, struct tp_weights *weights,
                                   struct tp_weight_form *form, struct tp_err *err)
{
    const json_t *name = json_object_get(json, "format");
    json_int_t version = json_integer_value(json_object_get(json, "version"));
    if (!is_name(name) || version < 1 || version > INT32_MAX)
        return tp_damaged(err, "\"format\" or \"version\" is wrong");
    struct tp_unknown *item = tp_os_zalloc(1, sizeof *item, err);
    if (!item)
        return TP_E_MEMORY;
    item->next = weights->unknown;
    weights->unknown = item;
    struct tp_format *format = &item->format;
    format->json = json_incref((json_t *)(uintptr_t)json);
    format->name = json_string_value(name);
    format->version = (int)version;
    format->title = format->about = format->source = "";
    format->separator = ".";
    format->unknown = format->input_only = true;
    for (uint8_t i = 0; i < 16; i++)
        format->op.table[i] = i;
    enum tp_code code = read_facts(json, format, form, err);
    if (code || (code = read_outputs(json, format, err)) ||
        (code = check_sizes(&format->op, form->box, err))) {
        if (err && !err->hint[0])
            tp_err_hint(err, TP_HINT_DAMAGED);
        return code;
    }
    form->format = format;
    form->op = format->op;
    return TP_OK;
}

bool tp_unknown_output_fits(const struct tp_weight_form *form, uint32_t i, enum tp_dtype dtype,
                            uint64_t bytes)
{
    struct tp_format_out *out = &((struct tp_format *)(uintptr_t)form->format)->out[i];
    const struct tp_op_out *op = &form->op.out[i];
    unsigned bits = tp_element_bits(op->element);
    uint64_t row = (uint64_t)out->word_count * (bits / 8), wanted;
    struct tp_err none = {0};
    if (op->role == TP_ROLE_WORDS) {
        if (tp_dtype_bits(dtype) != bits ||
            (bytes != row && (!tp_mul_u64(&wanted, row, form->box.e) || bytes != wanted)))
            return false;
    } else if (tp_op_whole_bytes(&form->op, i, form->box, &wanted, &none) || wanted != bytes) {
        return false;
    }
    if (out->dtype == TP_DTYPE_NONE)
        out->dtype = dtype;
    return out->dtype == dtype;
}
