/* What a choice of parameters sets of an operation: rules, elements, factors.
 *
 * Strict: an unknown key or word is an error.
 */
#include "pack/format/format_rule.h"

#include "base/suffix.h"
#include "kernels/op/traits.h"
#include "pack/format/format_keywords.h"

#include <string.h>

static const char *const channel_rule_names[] = {"gpu", "cpu", "div", NULL};
static const enum tp_element floats[] = {TP_ELEM_BF16, TP_ELEM_F16, TP_ELEM_F32};
static const char *const float_names[] = {"bf16", "f16", "f32", NULL};

/* The scales of integers are stored as what they are, and so are their products. */
static void set_scale_rule(struct tp_op *op, int rule)
{
    bool product = tp_op_zero_is_product(op);
    op->scale_rule = (uint8_t)rule;
    for (uint32_t i = 0; i < op->outs && tp_op_is_int(op); i++)
        if (op->out[i].role == TP_ROLE_SCALE || (op->out[i].role == TP_ROLE_ZERO && product))
            op->out[i].element = rule == TP_INT_SCALE_F16 ? TP_ELEM_F16 : TP_ELEM_BF16;
}

/* Which type of numbers codes are that are numbers themselves. */
static enum tp_code set_element(const json_t *set, struct tp_op *op, struct tp_err *err)
{
    int codes = tp_op_find(op, TP_ROLE_CODES), index;
    enum tp_code code = tp_format_word(set, "element", float_names, &index, err);
    if (code || !tp_codecs[op->codec].is_number || codes < 0)
        return code ? code : tp_fail(err, TP_E_INPUT, "\"element\" is of codec \"float\" only");
    op->out[codes].element = floats[index];
    return TP_OK;
}

/* The float that all else is multiplied by: the global scale, or else those of blocks. */
static struct tp_op_out *last_scale(struct tp_op *op)
{
    int i = tp_op_find(op, TP_ROLE_GLOBAL);
    i = i < 0 ? tp_op_find(op, TP_ROLE_SCALE) : i;
    return i < 0 ? NULL : &op->out[i];
}

enum tp_code tp_format_factor(const json_t *value, struct tp_op_out *out, struct tp_err *err)
{
    json_int_t factor = json_integer_value(value);
    if (!out || !tp_elements[out->element].is_float || !json_is_integer(value) || factor < -126 ||
        factor > 126 || (out->role != TP_ROLE_SCALE && out->role != TP_ROLE_GLOBAL))
        return tp_fail(err, TP_E_INPUT, "\"factor\" is no exponent from -126 to 126, or not that "
                       "of a float scale");
    out->factor = (int)factor;
    return TP_OK;
}

/* FP8 scales that are floats. */
static enum tp_code set_scale_element(const json_t *set, struct tp_op *op, struct tp_err *err)
{
    struct tp_op_out *scale = last_scale(op);
    int index;
    enum tp_code code = tp_format_word(set, "scale_element", float_names, &index, err);
    if (code)
        return code;
    if (op->codec != TP_CODEC_FP8 || !scale || !tp_elements[scale->element].is_float)
        return tp_fail(err, TP_E_INPUT, "\"scale_element\" is for FP8 scales that are floats");
    scale->element = floats[index];
    return TP_OK;
}

/* What is so or not. */
static bool set_fact(const char *key, const json_t *value, struct tp_op *op)
{
    static const char *const keys[] = {"unit_global", "lift", "zeros", "fused_global",
                                       "skip_zero_groups"};
    bool *const facts[] = {&op->unit_global, &op->shifts_scales, &op->zeros, &op->fused_global,
                           &op->skip_zero_groups};
    int i = tp_word_of(key, keys, TP_COUNT(keys));
    if (i >= 0)
        *facts[i] = json_is_true(value);
    return i >= 0;
}

enum tp_code tp_format_apply(const json_t *set, struct tp_op *op, struct tp_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)set, key, value)
    {
        int index;
        enum tp_code code = TP_OK;
        if (strcmp(key, "rule") == 0) {
            if ((code = tp_format_word(set, key, tp_codecs[op->codec].rules, &index, err)) == TP_OK)
                op->rule = (uint8_t)index;
        } else if (strcmp(key, "scale_rule") == 0) {
            code = tp_format_word(set, key, tp_codecs[op->codec].scale_rules, &index, err);
            if (code == TP_OK)
                set_scale_rule(op, index);
        } else if (strcmp(key, "element") == 0) {
            code = set_element(set, op, err);
        } else if (strcmp(key, "channel_rule") == 0) {
            if ((code = tp_format_word(set, key, channel_rule_names, &index, err)) == TP_OK)
                op->channel_rule = (uint8_t)index;
        } else if (strcmp(key, "factor") == 0) {
            code = tp_format_factor(value, last_scale(op), err);
        } else if (strcmp(key, "scale_element") == 0) {
            code = set_scale_element(set, op, err);
        } else if (strcmp(key, "zero_add") == 0) {
            op->zero_add = (uint8_t)json_integer_value(value);
        } else if (strcmp(key, "block") == 0) {
            code = tp_format_pair(value, 0, &op->block_n, &op->block_k, err);
        } else if (!set_fact(key, value, op) && strcmp(key, "via") != 0 &&
                   strcmp(key, "group") != 0) {
            code = tp_fail(err, TP_E_INPUT, "\"set\" has the unknown key \"%s\"", key);
        }
        if (code)
            return code;
    }
    return TP_OK;
}
