/* Packed weights of other tools: zero points, act-order, stored shapes, scales.
 * What config.json says is source_config.c's.
 *
 * Invariant: a weight that passed without `lossy` holds nothing that its codes and
 * scales do not say.
 */
#include "pack/source/weight_complete.h"

#include "base/num.h"
#include "kernels/op/codec.h"
#include "kernels/op/plane.h"
#include "kernels/op/scalar.h"
#include "kernels/op/traits.h"
#include "pack/os/os.h"
#include "pack/source/source_config.h"
#include "pack/source/source_words.h"
#include "pack/source/unused_siblings.h"
#include "pack/source/words_check.h"
#include "pack/text/json_tree.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct tp_tensor *tensor_of(const struct tp_checkpoint *ckpt,
                                         const struct tp_weight *weight, int i)
{
    return &ckpt->tensors[weight->tensor[i]];
}

/* The whole tensor of output i, in fresh memory. */
static void *slurp(const struct tp_checkpoint *ckpt, const struct tp_weight *weight, int i,
                   struct tp_err *err)
{
    const struct tp_tensor *tensor = &ckpt->tensors[weight->tensor[i]];
    void *data = tp_os_alloc(tensor->bytes + 1, err);
    if (data && tp_checkpoint_read(ckpt, tensor->file, data, tensor->bytes, tensor->offset, err)) {
        free(data);
        data = NULL;
    }
    if (!data)
        tp_err_tensor(err, tensor->name);
    return data;
}

/* The number that a stored scale is. */
static float scale_at(enum tp_element element, const uint8_t *at)
{
    return (float)tp_elements[element].value(at);
}

/* Refers the coming failure to the tensor of output i. */
static void attribute_error(const struct tp_checkpoint *ckpt, const struct tp_weight *weight, int i,
                            struct tp_err *err)
{
    const struct tp_tensor *tensor = &ckpt->tensors[weight->tensor[i]];
    tp_err_tensor(err, tensor->name);
    tp_err_path(err, ckpt->files[tensor->file].path);
}

static enum tp_code set_lossy(struct tp_weight *weight, char *text)
{
    if (!text)
        return TP_E_MEMORY;
    if (weight->lossy)
        free(text); /* the first reason stays */
    else
        weight->lossy = text;
    return TP_OK;
}

/* Whether the format is one that stores zero points less one. */
static bool is_gptq(const struct tp_weight *weight)
{
    return weight->form->format->op.zero_add > 0;
}

/* GPTQ version 1 stores zero points less one. Where the words do not tell, as for asymmetric
 * weights, config.json has to, under one of a few keys and in words of the quantizer's. */
static enum tp_code config_says_v2(const struct tp_checkpoint *ckpt,
                                   const struct tp_weight *weight, bool *v2, struct tp_err *err)
{
    static const struct tp_quantizer none = {0};
    const struct tp_quantizer *by = weight->form->by ? weight->form->by : &none;
    json_t *config;
    enum tp_code code = tp_source_config(ckpt, &config, err);
    const char *key = NULL;
    const json_t *word = NULL;
    for (size_t i = 0; i < by->zeros_key.count && (!word || json_is_null(word)); i++)
        word = json_object_get(config, key = by->zeros_key.item[i]);
    const char *text = json_is_string(word) ? json_string_value(word) : "no text";
    *v2 = tp_words_have(&by->zeros_as, text);
    if (code == TP_OK && word && !json_is_null(word) && !*v2 &&
        !tp_words_have(&by->zeros_less, text)) {
        tp_source_config_path(ckpt, err);
        tp_err_hint(err, "correct config.json: zero points are stored less one (\"%s\") or as they "
                         "are (\"%s\")", by->zeros_less.item[0], by->zeros_as.item[0]);
        code = tp_fail(err, TP_E_UNSUPPORTED, "config.json says \"%s\": \"%.40s\", which does not "
                       "tell how zero points are stored", key, text);
    }
    json_decref(config);
    return code;
}

static enum tp_code check_zeros(const struct tp_checkpoint *ckpt, struct tp_weight *weight, int i,
                                struct tp_err *err)
{
    bool byte = tp_op_zero_point(&weight->form->op) == 128, symmetric = false, v2 = false;
    uint32_t zero_point = byte ? 0x80808080u : 0x88888888u, less = byte ? 0x01010101u : 0x11111111u;
    enum tp_code code = TP_OK;
    if (!tp_op_zero_is_product(&weight->form->op))
        code =
            tp_source_words_are(ckpt, tensor_of(ckpt, weight, i), zero_point,
                                is_gptq(weight) ? zero_point - less : zero_point, &symmetric, err);
    if (code)
        return code;
    if (symmetric) {
        weight->form->op.out[i].role = TP_ROLE_WORDS;
        return TP_OK;
    }
    if (is_gptq(weight) && (code = config_says_v2(ckpt, weight, &v2, err)))
        return code;
    weight->form->op.zero_add = is_gptq(weight) && !v2;
    return set_lossy(weight, tp_os_format(err, "it is asymmetric: %s holds other zero points "
                                          "than %d", ckpt->tensors[weight->tensor[i]].name,
                                          byte ? 128 : 8));
}

static enum tp_code check_order(const struct tp_checkpoint *ckpt, struct tp_weight *weight, int i,
                                struct tp_err *err)
{
    uint64_t groups, group = tp_source_group(&weight->form->op, weight->form->box, &groups);
    bool trivial;
    enum tp_code code =
        tp_source_words_ordered(ckpt, weight, tensor_of(ckpt, weight, i), true, &trivial, err);
    if (code)
        return code;
    if (trivial) {
        weight->form->op.out[i].role = TP_ROLE_WORDS;
        return TP_OK;
    }
    return set_lossy(weight, tp_os_format(err, "it is in act-order: %s is not k / %llu",
                                          ckpt->tensors[weight->tensor[i]].name,
                                          (unsigned long long)group));
}

static enum tp_code read_version(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                                 int i, struct tp_source_gptq *gptq, struct tp_err *err)
{
    bool byte = tp_op_zero_point(&weight->form->op) == 128, first, second;
    uint32_t zero_point = byte ? 0x80808080u : 0x88888888u, less = byte ? 0x01010101u : 0x11111111u;
    const struct tp_tensor *zeros = tensor_of(ckpt, weight, i);
    enum tp_code code =
        tp_source_words_are(ckpt, zeros, zero_point - less, zero_point - less, &first, err);
    if (code == TP_OK)
        code = tp_source_words_are(ckpt, zeros, zero_point, zero_point, &second, err);
    if (code)
        return code;
    gptq->asymmetric = !first && !second;
    if (gptq->asymmetric)
        code = config_says_v2(ckpt, weight, &gptq->by_config, err);
    gptq->version2 = second || gptq->by_config;
    return code;
}

enum tp_code tp_source_gptq(const struct tp_checkpoint *ckpt, const struct tp_weight *weight,
                            struct tp_source_gptq *gptq, struct tp_err *err)
{
    const struct tp_op *op = &weight->form->format->op;
    enum tp_code code = TP_OK;
    bool trivial = true;
    *gptq = (struct tp_source_gptq){0};
    for (int i = 0; i < (int)op->outs && code == TP_OK; i++)
        if (weight->tensor[i] != TP_NO_TENSOR && op->out[i].role == TP_ROLE_ORDER)
            code = tp_source_words_ordered(ckpt, weight, tensor_of(ckpt, weight, i), false,
                                           &trivial, err);
        else if (weight->tensor[i] != TP_NO_TENSOR && op->out[i].role == TP_ROLE_ZERO)
            code = read_version(ckpt, weight, i, gptq, err);
    gptq->ordered = !trivial;
    return code;
}

/* weight_shape of compressed-tensors: K may have been padded before packing. */
static enum tp_code check_words(const struct tp_checkpoint *ckpt, struct tp_weight *weight, int i,
                                struct tp_err *err)
{
    int64_t *stored = slurp(ckpt, weight, i, err);
    if (!stored)
        return err->code;
    int64_t n = stored[0], k = stored[1];
    free(stored);
    if (weight->form->rank == 3 ||
        (n == (int64_t)weight->form->box.n && k == (int64_t)weight->form->box.k))
        return TP_OK;
    attribute_error(ckpt, weight, i, err);
    tp_err_hint(err, "--exclude leaves the weight as it is");
    return tp_fail(err, TP_E_UNSUPPORTED,
                   "it says [%lld,%lld], but the packed codes are of [%llu,%llu]", (long long)n,
                   (long long)k, (unsigned long long)weight->form->box.n,
                   (unsigned long long)weight->form->box.k);
}

/* Layout words, and all that has one right content in weights that tilepack made: shapes, zero
 * points and orders of columns that say nothing. */
static enum tp_code check_own_words(const struct tp_checkpoint *ckpt,
                                    const struct tp_weight *weight, int i, struct tp_err *err)
{
    char what[TP_WORD_TEXT];
    enum tp_code code = tp_words_check(ckpt, weight, (uint32_t)i, what, err);
    if (code || !*what)
        return code;
    attribute_error(ckpt, weight, i, err);
    tp_err_hint(err, "'tilepack verify' looks at the whole file; convert it again from its "
                     "source");
    return tp_fail(err, TP_E_INPUT, "%s", what);
}

bool tp_source_global_right(const struct tp_op_out *out, const uint8_t *at, float *value)
{
    *value = ldexpf(scale_at(out->element, at), -out->factor);
    return *value > 0 && tp_f32_bits(*value) < TP_F32_INF_BITS;
}

static enum tp_code check_global(const struct tp_checkpoint *ckpt, struct tp_weight *weight, int i,
                                 struct tp_err *err)
{
    const struct tp_op_out *out = &weight->form->op.out[i];
    unsigned width = tp_element_bits(out->element) / 8;
    uint8_t *stored = slurp(ckpt, weight, i, err);
    if (!stored)
        return err->code;
    uint64_t count = ckpt->tensors[weight->tensor[i]].bytes / width;
    float value = 0;
    bool good = true;
    for (uint64_t e = 0; e < count && good; e++) {
        float at;
        good = tp_source_global_right(out, stored + e * width, &at);
        value = e && good ? value : at;
    }
    free(stored);
    weight->global = value;
    if (good)
        return TP_OK;
    attribute_error(ckpt, weight, i, err);
    tp_err_hint(err, "convert --exclude with --nonfinite keep leaves the weight as it is");
    return tp_fail(err, TP_E_INPUT, "the global scale is %g, which is no positive number",
                   (double)value);
}

static enum tp_code check_output(const struct tp_checkpoint *ckpt, struct tp_weight *weight, int i,
                                 struct tp_err *err)
{
    if (weight->tensor[i] == TP_NO_TENSOR)
        return TP_OK;
    switch (weight->form->op.out[i].role) {
    case TP_ROLE_ZERO:
        return check_zeros(ckpt, weight, i, err);
    case TP_ROLE_ORDER:
        return check_order(ckpt, weight, i, err);
    case TP_ROLE_GLOBAL:
        return check_global(ckpt, weight, i, err);
    case TP_ROLE_WORDS:
        return weight->form->format->out[i].dtype == TP_I64 && !weight->origin
                   ? check_words(ckpt, weight, i, err)
                   : check_own_words(ckpt, weight, i, err);
    default:
        return TP_OK;
    }
}

/* Puts back what was found out of a copy. A form that other threads read stays where it is. */
static enum tp_code put_back(const struct tp_weights *weights, size_t w, struct tp_weight *copy,
                             struct tp_err *err)
{
    struct tp_weight_form *before = weights->items[w].form, *after = before;
    const void *was = before, *is = copy->form; /* copied with what lies between the members */
    if (memcmp(was, is, sizeof *before) != 0)
        after = tp_shared_keep(weights->forms, copy->form, sizeof *before, err);
    copy->form = after ? after : before;
    copy->checked &= after != NULL; /* else the next look would believe the old form */
    weights->items[w] = *copy;
    return after ? TP_OK : TP_E_MEMORY;
}

enum tp_code tp_weight_complete(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                                size_t w, struct tp_err *err)
{
    struct tp_weight weight = weights->items[w];
    struct tp_weight_form form;
    const uint64_t before = tp_json_failures();
    enum tp_code code = TP_OK;
    if (!weight.form->format || weight.checked)
        return TP_OK;
    memcpy(&form, weight.form, sizeof form); /* with what lies between the members */
    weight.form = &form;
    if ((code = tp_source_width_check(ckpt, &weight, err)))
        return code;
    code = tp_source_check_unused(ckpt, &weight, err);
    for (uint32_t i = 0; i < form.op.outs && code == TP_OK; i++)
        code = check_output(ckpt, &weight, (int)i, err);
    uint64_t group = form.format->group;
    if (code == TP_OK && group % 128)
        code = set_lossy(&weight, tp_os_format(err, "its groups are %llu columns wide, which is "
                                               "no multiple of 128", (unsigned long long)group));
    code = tp_json_check(before, code, err); /* a config.json that was not read says nothing */
    weight.checked = code == TP_OK;
    enum tp_code kept = put_back(weights, w, &weight, err);
    return code ? code : kept;
}

/* ---- what a take-over reads --------------------------------------------- */

/* Negative (but for minus zero), infinite or NaN. */
static bool bad_scale(enum tp_element element, const uint8_t *at, float *value)
{
    *value = scale_at(element, at);
    uint32_t word = tp_f32_bits(*value);
    return word >= TP_F32_INF_BITS && word != 0x80000000u;
}

bool tp_source_scale_finite(enum tp_element element, const uint8_t *at)
{
    float value;
    return !bad_scale(element, at, &value) || isfinite(value);
}

/* The scales of one role. */
static enum tp_code role_check(const struct tp_op *op, enum tp_role role, bool negative,
                               struct tp_box3 box, const void *const data[], struct tp_err *err)
{
    int s = tp_op_find(op, role);
    uint64_t bytes;
    if (s < 0 || !data[s])
        return TP_OK;
    enum tp_code code = tp_op_bytes(op, (uint32_t)s, box, &bytes, err);
    if (code)
        return code;
    unsigned width = tp_element_bits(op->out[s].element) / 8;
    const uint8_t *at = data[s];
    for (uint64_t i = 0; i < bytes; i += width) {
        float value;
        if (!bad_scale(op->out[s].element, at + i, &value) || (negative && isfinite(value)))
            continue;
        tp_err_hint(err, "--nonfinite keep takes it over as it is; --exclude leaves the weight "
                         "out");
        if (isnan(value)) /* whose sign is no part of it */
            value = NAN;
        return tp_fail(err, TP_E_INPUT, "one of its scales is %g: NaN, infinite and negative ones "
                       "are no scales", (double)value);
    }
    return TP_OK;
}

enum tp_code tp_source_scales_check(const struct tp_op *op, bool negative, struct tp_box3 box,
                                    const void *const data[], struct tp_err *err)
{
    enum tp_code code = role_check(op, TP_ROLE_SCALE, negative, box, data, err);
    if (code == TP_OK) /* their multiples have either sign */
        code = role_check(op, TP_ROLE_GROUP8, true, box, data, err);
    return code ? code : role_check(op, TP_ROLE_CHANNEL, true, box, data, err);
}

enum tp_code tp_source_scale_luts_check(const struct tp_op *op, struct tp_box3 box,
                                        const void *const data[], struct tp_err *err)
{
    int s = tp_op_find(op, TP_ROLE_GROUP8);
    uint64_t bytes = 0;
    const uint8_t *at = s < 0 ? NULL : data[s];
    enum tp_code code = at ? tp_op_bytes(op, (uint32_t)s, box, &bytes, err) : TP_OK;
    for (uint64_t i = 0; code == TP_OK && i < bytes; i += 8)
        if (!tp_group8_right(at + i)) {
            tp_err_hint(err, "'tilepack verify' looks at the whole file; convert it again from its "
                             "source");
            code = tp_fail(err, TP_E_INPUT, "scales are not the eight multiples of one number");
        }
    return code;
}

/* Why a scale cannot be stored in output `i` of `to`, or NULL; what to do instead in *hint. */
static const char *unfit(const struct tp_op *to, int i, bool exact, float value, const char **hint)
{
    bool f16 = tp_op_has_f16_scales(to);
    const bool bf16 = tp_half_round(false, value) == value;
    *hint = !f16  ? "--exclude leaves the weight out"
            : bf16 ? "--set scales=bf16 keeps it; --exclude leaves the weight out"
                   : "--set scales=bf16 with --requantize rounds it, and prints the error that "
                     "costs; --exclude leaves the weight out";
    if (!isfinite(value))
        return NULL;
    if (f16 && tp_f16_to_f32(tp_f32_to_f16(value)) != value)
        return "which is no number of F16";
    if (exact && !f16 && !bf16) {
        *hint = "--requantize rounds it, and prints the error that costs; --exclude leaves the "
                "weight as it is";
        return "which is no number of BF16";
    }
    return tp_factor_fits(&to->out[i], value)
               ? NULL
               : "which is infinite times the power of two that this format multiplies it by";
}

/* The scale of that role as `to` is given it; a reciprocal may be infinite. */
static float taken(const struct tp_op *op, enum tp_role role, const struct tp_op *to, float value)
{
    return role == TP_ROLE_GLOBAL ? tp_repack_global(op, to, value) : value;
}

/* Scales of that role, which become what `to` has of the role `as`. */
static enum tp_code scales_fit(const struct tp_op *op, enum tp_role role, const struct tp_op *to,
                               enum tp_role as, bool exact, struct tp_box3 box,
                               const void *const data[], struct tp_err *err)
{
    int s = tp_op_find(op, role), t = tp_op_find(to, as);
    uint64_t bytes;
    if (s < 0 || t < 0 || !data[s])
        return TP_OK;
    enum tp_code code = tp_op_bytes(op, (uint32_t)s, box, &bytes, err);
    unsigned width = tp_element_bits(op->out[s].element) / 8;
    const uint8_t *at = data[s];
    for (uint64_t i = 0; code == TP_OK && i < bytes; i += width) {
        const char *hint;
        float value = ldexpf(scale_at(op->out[s].element, at + i), -op->out[s].factor);
        float becomes = taken(op, role, to, value);
        const char *why = unfit(to, t, exact, becomes, &hint);
        if (isinf(becomes) && isfinite(value))
            why = "whose reciprocal, which this format stores, is infinite";
        else
            value = becomes;
        if (why) {
            tp_err_hint(err, "%s", hint);
            code = tp_fail(err, to->out[t].factor ? TP_E_INPUT : TP_E_UNSUPPORTED,
                           "one of its scales is %.9g, %s", (double)value, why);
        }
    }
    return code;
}

enum tp_code tp_source_scales_fit(const struct tp_op *op, const struct tp_op *to, bool exact,
                                  struct tp_box3 box, const void *const data[],
                                  struct tp_err *err)
{
    int s = tp_op_find(op, TP_ROLE_SCALE), t = tp_op_find(to, TP_ROLE_SCALE);
    bool f16 = tp_op_is_int(to) && to->scale_rule == TP_INT_SCALE_F16 && s >= 0 &&
               op->out[s].element != TP_ELEM_F16;
    enum tp_code code = TP_OK;
    if (f16 || exact || (t >= 0 && to->out[t].factor))
        code = scales_fit(op, s < 0 ? TP_ROLE_GLOBAL : TP_ROLE_SCALE, to, TP_ROLE_SCALE, exact,
                          box, data, err);
    return code ? code
                : scales_fit(op, TP_ROLE_GLOBAL, to, TP_ROLE_GLOBAL, false, box, data, err);
}

/* Whether the zero point of a group, whose scale is that number, is infinite in `to`. */
static bool overflows(const struct tp_op *to, int zero, float scale)
{
    float product = scale * (float)zero;
    if (!tp_op_zero_is_product(to) || !isfinite(scale))
        return false;
    return !isfinite(tp_half_round(to->scale_rule == TP_INT_SCALE_F16, product));
}

/* What is known of the zero points of a box. */
struct zero_range {
    int min, max;
    bool overflow, broken; /* infinite in `to`; none at all */
};

static struct zero_range range_of(const struct tp_op *op, const struct tp_op *to,
                                  struct tp_args *args, const void *const data[], void *scratch)
{
    void *const *in = (void *const *)(uintptr_t)data;
    struct tp_plane z = tp_plane_open(op, TP_ROLE_ZERO, args, in, &scratch);
    struct tp_plane s = tp_plane_open(op, TP_ROLE_SCALE, args, in, &scratch);
    struct zero_range range = {INT_MAX, INT_MIN, false, false};
    for (uint64_t e = 0; e < args->box.e && !(args->flags & TP_FAILED); e++) {
        tp_plane_enter(&z, e);
        tp_plane_enter(&s, e);
        for (uint64_t n = 0; n < args->box.n; n++)
            for (uint64_t k = 0; k < args->box.k; k += z.per_k) {
                float scale = tp_codec_scale_value(
                    op, tp_load_scale(&s, op->codec, tp_plane_at(&s, n, k)));
                uint64_t at = tp_plane_at(&z, n, k);
                int zero = tp_load_zero(&z, at, scale) + op->zero_add;
                range.min = zero < range.min ? zero : range.min;
                range.max = zero > range.max ? zero : range.max;
                range.overflow |= overflows(to, zero, scale);
                range.broken |= isfinite(scale) && !tp_zero_is_whole(&z, at, scale);
            }
    }
    return range;
}

enum tp_code tp_source_zeros_fit(const struct tp_op *op, const struct tp_op *to,
                                 struct tp_box3 box, const void *const data[],
                                 struct tp_err *err)
{
    int z = tp_op_find(op, TP_ROLE_ZERO), max = 2 * tp_op_zero_point(op) - 1;
    bool product = tp_op_zero_is_product(op) || tp_op_zero_is_product(to);
    if (z < 0 || !data[z] || (to->zero_add == op->zero_add && !product))
        return TP_OK;
    struct tp_args args = {.box = box};
    void *scratch = tp_os_alloc(tp_encode_scratch(op, box), err);
    if (!scratch)
        return TP_E_MEMORY;
    struct zero_range range = range_of(op, to, &args, data, scratch);
    free(scratch);
    if (range.broken) {
        tp_err_hint(err, "unpack it, and convert the plain weight; --exclude leaves it as it is");
        return tp_fail(err, TP_E_INPUT, "one of its zero points is not minus a whole number from 0 "
                       "to %d times its scale", max);
    }
    if (range.max > max + to->zero_add) {
        tp_err_hint(err, "unpack it, and convert the plain weight; --exclude leaves it as it is");
        return tp_fail(err, TP_E_UNSUPPORTED, "one of its zero points is %d, and the largest that "
                       "this format stores is %d", range.max, max + to->zero_add);
    }
    if (range.overflow) {
        tp_err_hint(err, "--set scales=bf16 has larger numbers; --exclude leaves the weight out");
        return tp_fail(err, TP_E_UNSUPPORTED, "one of its zero points is infinite times its scale, "
                       "and this format stores that product");
    }
    if (range.min >= to->zero_add)
        return tp_args_check(&args, err);
    tp_err_hint(err, "--to awq has a place for it; --exclude leaves the weight out");
    return tp_fail(err, TP_E_UNSUPPORTED, "one of its zero points is 0: GPTQ stores them less 1, "
                   "and so has no code for that");
}

enum tp_code tp_source_codes_check(const struct tp_op *op, struct tp_box3 box,
                                   const void *const data[], struct tp_err *err)
{
    int c = tp_op_find(op, TP_ROLE_CODES);
    const int8_t *codes = data[c];
    if (op->out[c].element != TP_ELEM_INT8 || op->codec == TP_CODEC_INT8)
        return TP_OK;
    for (uint64_t i = 0, count = box.e * box.n * box.k; i < count; i++)
        if (codes[i] < -8 || codes[i] > 7) {
            tp_err_hint(err, "serve W8A8 as it is, or convert the plain model; convert --exclude "
                             "leaves a weight as it is");
            return tp_fail(err, TP_E_UNSUPPORTED, "it holds the code %d: these are 8-bit weights, "
                           "not int4 ones stored as bytes", codes[i]);
        }
    return TP_OK;
}

/* Element by element: the slow way, for a box that has a NaN somewhere. */
static bool part_is_finite(const struct tp_op *op, struct tp_args *args, const struct tp_box *part,
                           const void *const data[], void *scratch)
{
    struct tp_plane codes = tp_plane_open(op, TP_ROLE_CODES, args,
                                          (void *const *)(uintptr_t)data, &scratch);
    for (uint64_t e = 0; e < part->size.e && !(args->flags & TP_FAILED); e++) {
        tp_plane_enter(&codes, part->e + e);
        for (uint64_t n = part->n; n < part->n + part->size.n; n++)
            for (uint64_t k = part->k; k < part->k + part->size.k; k++) {
                uint8_t code = tp_load_code(&codes, tp_plane_at(&codes, n, k));
                if (tp_e4m3_any_nan(&code, 1))
                    return false;
            }
    }
    return true;
}

enum tp_code tp_source_codes_finite(const struct tp_op *op, struct tp_box3 box,
                                    const struct tp_box *part, const void *const data[],
                                    bool *finite, struct tp_err *err)
{
    uint32_t c = (uint32_t)tp_op_find(op, TP_ROLE_CODES);
    struct tp_args args = {.box = box};
    uint64_t bytes;
    *finite = true;
    if (op->out[c].element != TP_ELEM_E4M3)
        return TP_OK;
    enum tp_code code = tp_op_bytes(op, c, box, &bytes, err);
    if (code || (!op->out[c].word_bits && !tp_e4m3_any_nan(data[c], bytes)))
        return code;
    void *scratch = tp_os_alloc(tp_encode_scratch(op, box), err);
    if (!scratch)
        return TP_E_MEMORY;
    *finite = part_is_finite(op, &args, part, data, scratch);
    free(scratch);
    return tp_args_check(&args, err);
}
