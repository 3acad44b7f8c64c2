/* One stored descriptor. It is written from the operation itself, with this weight's
 * numbers in the layouts, so that a reader needs nothing but the descriptor.
 */
#include "pack/source/descriptor.h"

#include "base/layout_parse.h"
#include "kernels/op/codec.h"
#include "kernels/op/traits.h"
#include "kernels/op/word_bits.h"
#include "pack/format/format_keywords.h"
#include "pack/text/json_tree.h"

/* Value of every stored nibble, through the inverse of the code table; `add` more of a zero
 * point. */
static json_t *nibble_values(const struct tp_op *op, const struct tp_op_out *out, int add)
{
    json_t *values = json_array();
    for (unsigned stored = 0; stored < 16; stored++) {
        unsigned code = stored;
        if (tp_elements[out->element].has_table)
            for (code = 0; op->table[code] != stored;)
                code++;
        double value = tp_codec_code_value(op, (uint8_t)code);
        value = add ? value + add : value; /* minus zero stays what it is */
        tp_json_append(values, value == (int)value && value != 0
                                          ? json_integer((json_int_t)value)
                                          : json_real(value));
    }
    return values;
}

static json_t *words_json(const struct tp_format_out *out, struct tp_box3 box, struct tp_err *err)
{
    json_t *words = json_array();
    for (uint32_t w = 0; w < out->word_count; w++) {
        uint64_t value = 0;
        if (tp_expr_eval(out->words[w], box, &value, err)) {
            json_decref(words);
            return NULL;
        }
        tp_json_append(words, json_integer((json_int_t)value));
    }
    return words;
}

static json_t *output_json(const struct tp_format *format, const struct tp_op *op, uint32_t i,
                           struct tp_box3 box, struct tp_err *err)
{
    const struct tp_op_out *out = &op->out[i];
    enum tp_role role = format->op.out[i].role; /* that of constants is WORDS in `op` */
    json_t *json = json_object();
    tp_json_set(json, "suffix", json_string(format->out[i].suffix));
    tp_json_set(json, "role", json_string(tp_role_name(role)));
    tp_json_set(json, "element", json_string(tp_element_name(out->element)));
    if (role == TP_ROLE_WORDS) {
        json_t *words = words_json(&format->out[i], box, err);
        if (words)
            tp_json_set(json, "words", words);
    }
    if (out->layout) {
        struct tp_layout layout;
        char text[512];
        if (tp_op_whole_layout(op, i, box, &layout, err) == TP_OK)
            tp_layout_print(&layout, text, sizeof text);
        else
            text[0] = '\0';
        tp_json_set(json, "per", json_pack("[i,i]", (int)out->per_n, (int)out->per_k));
        tp_json_set(json, "layout", json_string(text));
        tp_json_set(json, "fill", json_integer(out->fill));
    }
    if (out->word_bits) {
        json_t *bits = json_array();
        for (int b = 0; b < TP_WORD_BITS; b++)
            tp_json_append(bits, json_integer(out->word_bits[b]));
        tp_json_set(json, "word_bits", bits);
    }
    if (out->factor)
        tp_json_set(json, "factor", json_integer(out->factor));
    if (out->role == TP_ROLE_GLOBAL)
        tp_json_set(json, "divides", json_boolean(tp_op_divides(op)));
    if (tp_element_bits(out->element) == 4)
        tp_json_set(json, "values",
                            nibble_values(op, out, role == TP_ROLE_ZERO ? op->zero_add : 0));
    return json;
}

static json_t *rows_json(const struct tp_row_order *rows)
{
    json_t *json = json_object();
    tp_json_set(json, "order", json_string(tp_row_kinds[rows->kind]));
    tp_json_set(json, "heads", json_integer(rows->heads));
    if (rows->groups)
        tp_json_set(json, "groups", json_integer(rows->groups));
    return json;
}

json_t *tp_descriptor_json(const struct tp_format *format, const struct tp_settings *settings,
                           const struct tp_search_choice *search, const struct tp_op *op,
                           struct tp_box3 box, int rank, struct tp_err *err)
{
    if (format->unknown)
        return json_deep_copy(format->json); /* which is the descriptor */
    json_t *json = json_object(), *params = json_object(), *outputs = json_array();
    for (uint32_t p = 0; p < format->params; p++)
        if (tp_param_is_stored(&format->param[p], settings->choice[p]))
            tp_json_set(params, format->param[p].key,
                        json_string(format->param[p].stored[settings->choice[p]]));
    tp_search_choice_describe(search, params);
    for (uint32_t i = 0; i < op->outs; i++)
        tp_json_append(outputs, output_json(format, op, i, box, err));
    tp_json_set(json, "format", json_string(format->name));
    tp_json_set(json, "version", json_integer(format->version));
    tp_json_set(json, "box", json_pack("[I,I,I]", (json_int_t)box.e, (json_int_t)box.n,
                                               (json_int_t)box.k));
    tp_json_set(json, "rank", json_integer(rank));
    if (format->is_bias)
        tp_json_set(json, "bias", json_true());
    if (format->part > TP_PART_GATED) /* of gate and up, the segments say so */
        tp_json_set(json, "part", json_string(tp_part_name(format->part)));
    tp_json_set(json, "params", params);
    tp_json_set(json, "codec", json_string(tp_codec_name(op->codec)));
    tp_json_set(json, "block", json_pack("[i,i]", (int)op->block_n, (int)op->block_k));
    if (op->segments > 1)
        tp_json_set(json, "stretches", json_integer(op->segments));
    if (settings->rows.kind)
        tp_json_set(json, "rows", rows_json(&settings->rows));
    tp_json_set(json, "outputs", outputs);
    if (err && err->code != TP_OK) {
        json_decref(json);
        return NULL;
    }
    return json;
}
