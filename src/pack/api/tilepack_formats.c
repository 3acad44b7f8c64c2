/* The C library: formats, and the description of a weight. Handles hold no data, so
 * nothing here is shared between threads. The work is tilepack_kernels.c's.
 */
#include "pack/api/tilepack_handles.h"

#include "base/escape.h"
#include "base/num.h"
#include "pack/format/format_keywords.h"
#include "pack/os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tilepack_version(void) { return TILEPACK_VERSION; }

unsigned tilepack_version_number(void) { return TILEPACK_VERSION_NUMBER; }

/* Bytes of the escaped text that fit, no part of a character or of an escape at their end. */
static size_t cut(const char *text, size_t length, size_t max)
{
    enum { LONGEST = 10 }; /* \UNNNNNNNN */
    if (length <= max)
        return length;
    while (max && ((unsigned char)text[max] & 0xC0) == 0x80)
        max--;
    for (size_t back = 1; back < LONGEST && back <= max; back++)
        if (text[max - back] == '\\')
            return max - back;
    return max;
}

int tp_handle_report(const struct tp_err *err, char *message, size_t size)
{
    char line[sizeof err->path + sizeof err->tensor + sizeof err->what + sizeof err->hint + 32];
    char escaped[TP_ESCAPED * sizeof line];
    if (message == NULL || size == 0)
        return (int)err->code;
    if (err->code == TP_OK) {
        message[0] = '\0';
        return TILEPACK_OK;
    }
    snprintf(line, sizeof line, "%s%s%s%s%s%s%s%s%s", err->path, err->path[0] ? ": " : "",
             err->tensor[0] ? "tensor '" : "", err->tensor, err->tensor[0] ? "': " : "",
             err->what, err->hint[0] ? " (" : "", err->hint, err->hint[0] ? ")" : "");
    size_t length = (size_t)(tp_escape(escaped, line, strlen(line), false) - escaped);
    length = cut(escaped, length, size - 1);
    memcpy(message, escaped, length);
    message[length] = '\0';
    return (int)err->code;
}

/* ---- formats ------------------------------------------------------------- */

const char *tilepack_format_name(size_t i)
{
    size_t count;
    const struct tp_format *const *formats = tp_formats(&count);
    return i < count ? formats[i]->name : NULL;
}

static const struct tp_format *find(const char *name)
{
    return name ? tp_format_find(name) : NULL;
}

int tilepack_format_is_written(const char *name)
{
    const struct tp_format *format = find(name);
    return format && !format->input_only;
}

const char *tilepack_format_title(const char *name)
{
    const struct tp_format *format = find(name);
    return format ? format->title : NULL;
}

const char *tilepack_format_json(const char *name)
{
    const struct tp_format *format = find(name);
    return format ? format->text : NULL;
}

const char *tilepack_format_parameter(const char *name, size_t p)
{
    const struct tp_format *format = find(name);
    return format && p < format->params ? format->param[p].key : NULL;
}

const char *tilepack_format_parameter_value(const char *name, size_t p, size_t v)
{
    const struct tp_format *format = find(name);
    return format && p < format->params && v < format->param[p].count
               ? format->param[p].choices[v]
               : NULL;
}

const char *tilepack_format_parameter_help(const char *name, size_t p)
{
    const struct tp_format *format = find(name);
    return format && p < format->params ? format->param[p].help : NULL;
}

/* ---- the description of a weight ----------------------------------------- */

static enum tp_code describe_out(tilepack_weight *weight, uint32_t i, struct tp_err *err)
{
    struct tp_layout layout;
    char text[512];
    uint64_t bits = tp_dtype_bits(weight->out[i].dtype), reached;
    enum tp_code code = tp_format_shape(weight->format, i, weight->box, 3, weight->out[i].shape,
                                        &weight->out[i].rank, err);
    for (uint32_t d = 0; d < weight->out[i].rank && code == TP_OK; d++)
        if (!tp_mul_u64(&bits, bits, weight->out[i].shape[d]))
            code = tp_fail(err, TP_E_UNSUPPORTED, "the weight is too large");
    weight->out[i].bytes = bits / 8;
    if (code || weight->op.out[i].role == TP_ROLE_WORDS || !weight->op.out[i].layout)
        return code;
    if ((code = tp_op_whole_layout(&weight->op, i, weight->box, &layout, err)) ||
        (code = tp_op_whole_bytes(&weight->op, i, weight->box, &reached, err)))
        return code;
    if (reached != bits / 8)
        return tp_fail(err, TP_E_UNSUPPORTED, "%s of %s does not hold %llu experts: describe them "
                       "one at a time (E=1)", weight->format->out[i].suffix, weight->format->name,
                       (unsigned long long)weight->box.e);
    tp_layout_print(&layout, text, sizeof text);
    weight->out[i].layout = tp_os_format(err, "%s", text);
    return weight->out[i].layout ? TP_OK : TP_E_MEMORY;
}

enum tp_code tp_handle_weight(const struct tp_format *format, const struct tp_op *op,
                              struct tp_box3 box, const enum tp_dtype dtypes[TP_MAX_OUT],
                              tilepack_weight **weight, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    if (!(*weight = tp_os_zalloc(1, sizeof **weight, err)))
        return TP_E_MEMORY;
    (*weight)->format = format;
    (*weight)->op = *op;
    (*weight)->box = box;
    (*weight)->global = op->unit_global ? 1.0f : 0.0f;
    for (uint32_t i = 0; i < op->outs && code == TP_OK; i++) {
        (*weight)->out[i].dtype = dtypes ? dtypes[i] : tp_format_dtype(format, op, i);
        code = describe_out(*weight, i, err);
    }
    if (code) {
        tilepack_weight_free(*weight);
        *weight = NULL;
    }
    return code;
}

void tilepack_weight_free(tilepack_weight *weight)
{
    for (int i = 0; weight && i < TP_MAX_OUT; i++)
        free(weight->out[i].layout);
    free(weight);
}

/* Applies "key=value,key=value". */
static enum tp_code apply(const struct tp_format **format, const char *parameters,
                          struct tp_settings *settings, struct tp_err *err)
{
    char one[200];
    while (parameters && *parameters) {
        size_t size = strcspn(parameters, ",");
        if (size >= sizeof one)
            return tp_fail(err, TP_E_USAGE, "parameter '%.40s...' is too long", parameters);
        memcpy(one, parameters, size);
        one[size] = '\0';
        enum tp_code code = tp_format_set(format, one, settings, err);
        if (code)
            return code;
        parameters += size + (parameters[size] == ',');
    }
    return TP_OK;
}

/* No layout fills N or K up to multiples of more, so that its sizes fit 63 bits. */
enum { MAX_PADDED = 1024 };

static enum tp_code check_size(const struct tp_format *format, const struct tp_settings *settings,
                               struct tp_box3 box, struct tp_err *err)
{
    uint64_t values, n, k;
    if (box.e == 0 || box.n == 0 || box.k == 0)
        return tp_fail(err, TP_E_USAGE, "a dimension of the weight is 0");
    if (!tp_align_u64(&n, box.n, MAX_PADDED) || !tp_align_u64(&k, box.k, MAX_PADDED) ||
        !tp_mul_u64(&values, box.e, n) || !tp_mul_u64(&values, values, k) ||
        values > SIZE_MAX / 64)
        return tp_fail(err, TP_E_UNSUPPORTED, "the weight is too large");
    const struct tp_shape_rule *rule = tp_format_broken_need(format, settings, box, box.e > 1);
    if (rule)
        return tp_fail(err, TP_E_UNSUPPORTED, "%c=%llu is not a multiple of %llu: %s", rule->dim,
                       (unsigned long long)(rule->dim == 'N' ? box.n : box.k),
                       (unsigned long long)rule->multiple, rule->why);
    return TP_OK;
}

/* The tensors of a size: what a layout does not divide, the format does not hold. */
static enum tp_code describe(const struct tp_format *format, const struct tp_op *op,
                             struct tp_box3 box, bool gated, tilepack_weight **weight,
                             struct tp_err *err)
{
    struct tp_err seen = {0};
    enum tp_code code = tp_handle_weight(format, op, box, NULL, weight, &seen);
    if (code != TP_E_INPUT) {
        *err = seen;
        return code;
    }
    return tp_fail(err, TP_E_UNSUPPORTED, "%s does not hold %s of [%llu,%llu,%llu]: %s is no "
                   "multiple of a block of its layout", format->name,
                   gated ? "gate and up" : "a weight", (unsigned long long)box.e,
                   (unsigned long long)box.n, (unsigned long long)box.k,
                   gated ? "half of N, or K," : "N or K");
}

/* What the format is for the bias of a weight, before its parameters are applied; or NULL. */
static const struct tp_format *bias_of(const struct tp_format *format, uint64_t k,
                                       struct tp_err *err)
{
    if (!format->bias)
        tp_fail(err, TP_E_USAGE, "%s has no order of its own for biases", format->name);
    else if (k != 1)
        tp_fail(err, TP_E_USAGE, "a bias is of n numbers and k = 1, which is %llu here",
                (unsigned long long)k);
    return err->code ? NULL : format->bias;
}

static int new_weight(const char *name, const char *parameters, enum tp_part part, bool bias,
                      struct tp_box3 box, tilepack_weight **weight, char *message, size_t size)
{
    struct tp_err err = {0};
    struct tp_settings settings = {.choice = {0}};
    struct tp_op op;
    const struct tp_format *format = NULL;
    *weight = NULL;
    if (name && tp_format_get(name, &format, &err)) /* what is not read yet is not unknown */
        return tp_handle_report(&err, message, size);
    if (!format)
        tp_fail(&err, TP_E_USAGE, "there is no format '%s'", name ? name : "");
    else if ((!bias || (format = bias_of(format, box.k, &err))) &&
             apply(&format, parameters, &settings, &err) == TP_OK &&
             check_size(format = tp_format_for(format, part), &settings, box, &err) == TP_OK) {
        tp_format_op(format, &settings, &op);
        for (uint32_t i = 0; i < op.outs; i++) /* a caller's zero points and order may be any */
            op.out[i].role = format->op.out[i].role;
        describe(format, &op, box, part == TP_PART_GATED, weight, &err);
    }
    return tp_handle_report(&err, message, size);
}

int tilepack_weight_new(const char *name, const char *parameters, uint64_t e, uint64_t n,
                        uint64_t k, tilepack_weight **weight, char *message, size_t size)
{
    struct tp_box3 box = {e, n, k};
    return new_weight(name, parameters, TP_PART_ANY, false, box, weight, message, size);
}

int tilepack_weight_new_part(const char *name, const char *parameters, const char *part, int bias,
                             uint64_t e, uint64_t n, uint64_t k, tilepack_weight **weight,
                             char *message, size_t size)
{
    struct tp_box3 box = {e, n, k};
    struct tp_err err = {0};
    int found = part ? TP_PART_GATED : TP_PART_ANY;
    while (part && found < TP_PARTS && strcmp(part, tp_part_name((enum tp_part)found)) != 0)
        found++;
    if (found < TP_PARTS)
        return new_weight(name, parameters, (enum tp_part)found, bias != 0, box, weight, message,
                          size);
    *weight = NULL;
    tp_fail(&err, TP_E_USAGE, "there is no part '%s' of a format", part);
    return tp_handle_report(&err, message, size);
}

size_t tilepack_weight_tensors(const tilepack_weight *weight) { return weight->op.outs; }

const char *tilepack_weight_suffix(const tilepack_weight *weight, size_t i)
{
    return i < weight->op.outs ? weight->format->out[i].suffix : NULL;
}

const char *tilepack_weight_role(const tilepack_weight *weight, size_t i)
{
    return i < weight->op.outs ? tp_role_name(weight->op.out[i].role) : NULL;
}

const char *tilepack_weight_dtype(const tilepack_weight *weight, size_t i)
{
    return i < weight->op.outs ? tp_dtype_name(weight->out[i].dtype) : NULL;
}

size_t tilepack_weight_shape(const tilepack_weight *weight, size_t i,
                             uint64_t shape[TILEPACK_MAX_RANK])
{
    if (i >= weight->op.outs)
        return 0;
    for (uint32_t d = 0; d < weight->out[i].rank; d++)
        shape[d] = weight->out[i].shape[d];
    return weight->out[i].rank;
}

uint64_t tilepack_weight_bytes(const tilepack_weight *weight, size_t i)
{
    return i < weight->op.outs ? weight->out[i].bytes : 0;
}

const char *tilepack_weight_layout(const tilepack_weight *weight, size_t i)
{
    return i < weight->op.outs ? weight->out[i].layout : NULL;
}

int tilepack_weight_constant(const tilepack_weight *weight, size_t i, void *bytes, char *message,
                             size_t size)
{
    struct tp_err err = {0};
    if (i >= weight->op.outs || weight->op.out[i].role != TP_ROLE_WORDS ||
        weight->format->out[i].word_count == 0)
        tp_fail(&err, TP_E_USAGE, "tensor %zu of %s is no constant", i, weight->format->name);
    else
        tp_format_constant(weight->format, (uint32_t)i, weight->box, 0, bytes,
                           weight->out[i].bytes, &err);
    return tp_handle_report(&err, message, size);
}

int tilepack_can_repack(const tilepack_weight *from, const tilepack_weight *to)
{
    return !to->format->input_only && memcmp(&from->box, &to->box, sizeof from->box) == 0 &&
           tp_repack_possible(&from->op, &to->op);
}
