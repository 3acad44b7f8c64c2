/* Formats: choices and shapes. The table of all is format_list.c, parsing format_parse.c. */
#include "pack/format/format.h"

#include "base/layout_parse.h"
#include "base/num.h"
#include "base/suffix.h"
#include "kernels/op/traits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct tp_format *tp_format_for(const struct tp_format *format, enum tp_part part)
{
    if (part == TP_PART_DOWN_UNGATED && !format->variant[part])
        part = TP_PART_DOWN;
    return format->variant[part] ? format->variant[part] : format;
}

const char *tp_part_name(enum tp_part part)
{
    static const char *const names[TP_PARTS] = {NULL, "gated", "up", "down", "wide",
                                                "down_ungated"};
    return names[part];
}

int tp_param_find(const struct tp_param *param, const char *word)
{
    for (uint32_t c = 0; c < param->count; c++) {
        if (strcmp(param->choices[c], word) == 0 ||
            tp_word_of(word, param->aliases[c], TP_MAX_ALIASES) >= 0)
            return (int)c;
    }
    return -1;
}

bool tp_param_is_stored(const struct tp_param *param, uint32_t choice)
{
    return choice || !param->later;
}

static const struct tp_shape_rule *broken(const struct tp_shape_rule rules[], uint32_t count,
                                          const struct tp_settings *settings, struct tp_box3 box,
                                          bool expert)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct tp_shape_rule *rule = &rules[i];
        bool chosen = rule->when_param < 0 ||
                      settings->choice[rule->when_param] == rule->when_choice;
        uint64_t size = rule->dim == 'N' ? box.n : box.k;
        if (chosen && (expert || !rule->experts) &&
            (size % rule->multiple != 0 || size < rule->min))
            return rule;
    }
    return NULL;
}

const struct tp_shape_rule *tp_format_broken_need(const struct tp_format *format,
                                                  const struct tp_settings *settings,
                                                  struct tp_box3 box, bool stack)
{
    return broken(format->need, format->needs, settings, box, stack);
}

const struct tp_shape_rule *tp_format_broken_want(const struct tp_format *format,
                                                  const struct tp_settings *settings,
                                                  struct tp_box3 box, bool expert)
{
    return broken(format->want, format->wants, settings, box, expert);
}

enum tp_dtype tp_format_dtype(const struct tp_format *format, const struct tp_op *op, uint32_t i)
{
    enum tp_dtype dtype = format->out[i].dtype;
    const struct tp_element_traits *element = &tp_elements[op->out[i].element];
    enum tp_role role = op->out[i].role;
    bool product = role == TP_ROLE_ZERO && element->is_float && element->bits == 16;
    bool scale = role == TP_ROLE_SCALE || (role == TP_ROLE_GLOBAL && op->codec == TP_CODEC_FP8);
    if (tp_codecs[op->codec].is_number ||
        (scale && op->codec == TP_CODEC_FP8 && element->is_float && element->bits >= 16))
        return element->dtype;
    if (!tp_op_is_int(op) || (role != TP_ROLE_SCALE && !product))
        return dtype;
    return op->out[i].element == TP_ELEM_F16 ? TP_F16 : TP_BF16;
}

enum tp_code tp_format_shape(const struct tp_format *format, uint32_t i, struct tp_box3 box,
                             int weight_rank, uint64_t shape[TP_MAX_RANK], uint32_t *rank,
                             struct tp_err *err)
{
    const struct tp_format_out *out = &format->out[i];
    *rank = 0;
    for (uint32_t d = 0; d < out->rank; d++) {
        if (d == 0 && weight_rank == 2 && !out->keep_e && strcmp(out->shape[0], "E") == 0)
            continue;
        enum tp_code code = tp_expr_eval_of(out->shape[d], box,
                                            tp_max_u64(format->op.segments, 1),
                                            &shape[(*rank)++], err);
        if (code)
            return code;
    }
    return TP_OK;
}

/* Word number `at` of output i. */
static enum tp_code word_at(const struct tp_format *format, uint32_t i, struct tp_box3 box,
                            uint64_t at, uint64_t *value, struct tp_err *err)
{
    const struct tp_format_out *out = &format->out[i];
    const char *word = out->words[at % out->word_count];
    bool number = format->op.out[i].element == TP_ELEM_I32;
    enum tp_code code = tp_expr_eval_at(word, box, at, value, err);
    if (code == TP_OK && tp_dtype_bits(out->dtype) == 32 &&
        *value > (number ? INT32_MAX : UINT32_MAX))
        code = tp_fail(err, TP_E_UNSUPPORTED, "%s does not fit its 32-bit word", word);
    return code;
}

enum tp_code tp_format_constant(const struct tp_format *format, uint32_t i, struct tp_box3 box,
                                uint64_t from, void *to, uint64_t bytes, struct tp_err *err)
{
    const struct tp_format_out *out = &format->out[i];
    uint64_t width = tp_dtype_bits(out->dtype) / 8, first = from / width, value = 0;
    for (uint64_t w = 0; w < out->word_count; w++) {
        uint64_t at = first + (w + out->word_count - first % out->word_count) % out->word_count;
        bool counts = strchr(out->words[w], 'I') != NULL; /* else it is the same again and again */
        for (bool known = false; at < first + bytes / width; at += out->word_count, known = true) {
            enum tp_code code = known && !counts ? TP_OK
                                                 : word_at(format, i, box, at, &value, err);
            if (code)
                return code;
            /* little-endian, as is the format */
            memcpy((uint8_t *)to + (at - first) * width, &value, width);
        }
    }
    return TP_OK;
}

/* Solves a dimension of a codes tensor: "N", or "K/8" for the stored size; or it is
 * a number, which must be the stored one. */
static bool solve_dim(const char *text, uint64_t stored, struct tp_box3 *box)
{
    uint64_t factor = 1;
    char *end = NULL;
    if (text[0] >= '0' && text[0] <= '9')
        return strtoull(text, NULL, 10) == stored;
    if (text[1] == '/')
        factor = strtoull(text + 2, &end, 10);
    if ((text[1] && (!end || *end)) || stored == 0)
        return false;
    uint64_t *dim = text[0] == 'E' ? &box->e : text[0] == 'N' ? &box->n : &box->k;
    return strchr("ENK", text[0]) && tp_mul_u64(dim, stored, factor);
}

bool tp_format_box_of(const struct tp_format *format, const uint64_t *shape, uint32_t rank,
                      struct tp_box3 *box, int *weight_rank)
{
    const struct tp_format_out *out = &format->out[tp_op_find(&format->op, TP_ROLE_CODES)];
    bool has_e = strcmp(out->shape[0], "E") == 0;
    if (rank == 4 && has_e && out->rank == 3 && strcmp(out->shape[2], "K") == 0) {
        *box = (struct tp_box3){1, shape[0], 1}; /* a convolution: a row for each output channel */
        *weight_rank = 2;
        return strcmp(out->shape[1], "N") == 0 && tp_mul_u64(&box->k, shape[1], shape[2]) &&
               tp_mul_u64(&box->k, box->k, shape[3]) && box->n && box->k;
    }
    if (rank != out->rank && (rank + 1 != out->rank || !has_e))
        return false;
    uint32_t skip = out->rank - rank;
    *box = (struct tp_box3){1, 0, 0};
    *weight_rank = has_e && !skip ? 3 : 2;
    for (uint32_t d = 0; d < rank; d++)
        if (!solve_dim(out->shape[d + skip], shape[d], box))
            return false;
    return box->n && box->k;
}
