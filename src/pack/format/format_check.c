/* Format files that describe themselves wrongly; see format_check.h.
 *
 * Such a file would be converted to, and verified against itself, without a difference: so it is
 * refused when it is read, whether it is built in or a user's.
 */
#include "pack/format/format_check.h"

#include "base/num.h"
#include "kernels/op/traits.h"
#include "pack/format/format_rule.h"

#include <string.h>

/* ---- keys ---------------------------------------------------------------- */

/* The keys of an object, and what the objects in it, or in the lists in it, may hold. */
struct keys {
    const char *name;
    const struct keys *of; /* NULL: another reader's, or no object */
};

static const struct keys rule_keys[] = {{"dim", 0},  {"multiple", 0}, {"why", 0},     {"least", 0},
                                        {"when", 0}, {"experts", 0},  {NULL, 0}};
static const struct keys choice_keys[] = {{"name", 0}, {"aliases", 0}, {"stored", 0},
                                          {"set", 0},  {"config", 0},  {"warns", 0},
                                          {"search", 0}, {NULL, 0}};
static const struct keys param_keys[] = {
    {"key", 0}, {"help", 0}, {"later", 0}, {"experts", 0}, {"choices", choice_keys}, {NULL, 0}};
static const struct keys output_keys[] = {
    {"role", 0},   {"element", 0}, {"suffix", 0}, {"dtype", 0},     {"shape", 0},
    {"keep_e", 0}, {"per", 0},     {"layout", 0}, {"fill", 0},      {"least", 0},
    {"factor", 0}, {"words", 0},   {"word_bits", 0}, {"optional", 0},
    {NULL, 0}};
static const struct keys input_keys[] = {
    {"suffix", 0}, {"shape", 0}, {"over", 0}, {"range", 0}, {"why", 0}, {NULL, 0}};
static const struct keys config_keys[] = {{"quant_method", 0}, {"format", 0}, {"group", 0},
                                          {"inputs", 0},       {"kept", 0},   {"fields", 0},
                                          {"head", 0},         {"experts", 0}, {"apart", 0},
                                          {"everywhere", 0},
                                          {NULL, 0}};
/* "set" and "let" are their readers', and strict. */
static const struct keys same[] = {{NULL, 0}};  /* as in the file itself */
static const struct keys moved[] = {{NULL, 0}}; /* of former files */
static const struct keys file_keys[] = {
    {"name", 0},          {"version", 0},     {"title", 0},
    {"about", 0},         {"source", 0},      {"loads_in", moved},
    {"serve", moved},     {"requires", moved}, {"snr_db", moved},
    {"input_only", 0},    {"codec", 0},       {"block", 0},
    {"set", 0},           {"let", 0},         {"table", 0},
    {"search", 0},        {"signed", 0},
    {"rows", 0},          {"in_turn", 0},     {"experts", 0},
    {"joint", 0},         {"params", param_keys}, {"needs", rule_keys},
    {"wants", rule_keys}, {"merged", moved}, {"inputs", input_keys},
    {"outputs", output_keys}, {"config", config_keys},
    {"gated", same},      {"up", same},       {"down", same},
    {"down_ungated", same}, {"wide", same},   {"bias", same},
    {NULL, 0}};

static enum tp_code check_object(const json_t *json, const struct keys *keys, const char *whose,
                                 struct tp_err *err);

static enum tp_code check_value(const json_t *json, const struct keys *keys, const char *name,
                                struct tp_err *err)
{
    enum tp_code code = check_object(json, keys, name, err);
    for (size_t i = 0; i < json_array_size(json) && !code; i++)
        code = check_object(json_array_get(json, i), keys, name, err);
    return code;
}

/* Files are at most 1 MiB of text, and JSON in them is nested no deeper than jansson takes. */
static enum tp_code check_object(const json_t *json, const struct keys *keys, const char *whose,
                                 struct tp_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        const struct keys *known = keys;
        while (known->name && strcmp(known->name, key) != 0)
            known++;
        if (!known->name)
            return *whose ? tp_fail(err, TP_E_INPUT, "\"%.80s\" of \"%s\" is no known key", key,
                                    whose)
                          : tp_fail(err, TP_E_INPUT, "\"%.80s\" is no known key", key);
        if (known->of == moved)
            return tp_fail(err, TP_E_INPUT, "\"%s\" is no key of a format any more: who reads what "
                           "stands in engines/", key);
        const struct keys *of = known->of == same ? file_keys : known->of;
        enum tp_code code = of ? check_value(value, of, known->name, err) : TP_OK;
        if (code)
            return code;
    }
    return TP_OK;
}

/* Single capital letters, less those that have a meaning. */
static enum tp_code check_let(const json_t *let, struct tp_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)let, key, value)
        if (strlen(key) != 1 || *key < 'A' || *key > 'Z' || strchr("ENKSI", *key) ||
            !json_is_string(value))
            return tp_fail(err, TP_E_INPUT, "\"%.80s\" of \"let\" is no single capital letter "
                           "other than E, N, K, S and I with an expression", key);
    return TP_OK;
}

enum tp_code tp_format_check_keys(const json_t *json, struct tp_err *err)
{
    if (!json_is_object(json))
        return tp_fail(err, TP_E_INPUT, "it is no JSON object");
    enum tp_code code = check_object(json, file_keys, "", err);
    return code ? code : check_let(json_object_get(json, "let"), err);
}

enum tp_code tp_format_text(const json_t *object, const char *key, const char *whose,
                            const char **text, struct tp_err *err)
{
    const json_t *value = json_object_get(object, key);
    *text = json_string_value(value);
    return *text ? TP_OK
                 : tp_fail(err, TP_E_INPUT, "\"%s\"%s is %s", key, whose,
                           value ? "no text" : "missing");
}

/* ---- scales -------------------------------------------------------------- */

/* Whether a scale that is computed for `block` may be stored for each `per` of them; 0: for all. */
static bool lies_in(uint32_t block, uint32_t per)
{
    return block == 0 || (per != 0 && block % per == 0);
}

static enum tp_code check_scales(const struct tp_format *format, const struct tp_op *op,
                                 struct tp_err *err)
{
    for (uint32_t i = 0; i < op->outs; i++) {
        const struct tp_op_out *out = &op->out[i];
        bool scale = out->role == TP_ROLE_SCALE || out->role == TP_ROLE_GROUP8 ||
                     out->role == TP_ROLE_ZERO;
        if (scale && (!lies_in(op->block_n, out->per_n) || !lies_in(op->block_k, out->per_k)))
            return tp_fail(err, TP_E_INPUT, "\"per\" [%u,%u] of \"%s\" stores one for more than "
                           "the \"block\" [%u,%u] that it is computed for", out->per_n,
                           out->per_k, format->out[i].suffix, op->block_n, op->block_k);
    }
    return TP_OK;
}

/* What codes and scales of a codec cannot be. */
static enum tp_code check_elements(const struct tp_format *format, struct tp_err *err)
{
    for (uint32_t i = 0; i < format->op.outs; i++) {
        const struct tp_op_out *out = &format->op.out[i];
        if (!tp_codec_takes(format->op.codec, out->role, out->element))
            return tp_fail(err, TP_E_INPUT, "\"element\" of \"%s\" is '%s', which \"%s\" of "
                           "codec '%s' cannot be", format->out[i].suffix,
                           tp_elements[out->element].name, tp_role_names[out->role],
                           tp_codecs[format->op.codec].name);
    }
    return TP_OK;
}

/* ---- shapes -------------------------------------------------------------- */

static enum tp_code check_shape(const struct tp_format *format, uint32_t i, struct tp_box3 box,
                                struct tp_err *err)
{
    const struct tp_format_out *out = &format->out[i];
    uint64_t shape[TP_MAX_RANK], bytes, size = tp_dtype_bits(out->dtype);
    uint32_t rank;
    if (!format->op.out[i].layout)
        return TP_OK;
    box.e = out->rank && strchr(out->shape[0], 'E') ? box.e : 1;
    enum tp_code code = tp_format_shape(format, i, box, 3, shape, &rank, err);
    if (code || (code = tp_op_whole_bytes(&format->op, i, box, &bytes, err)))
        return code;
    for (uint32_t d = 0; d < rank; d++)
        if (!tp_mul_u64(&size, size, shape[d]))
            return tp_fail(err, TP_E_INPUT, "the shape of \"%s\" does not fit 64 bits",
                           out->suffix);
    return size == 8 * bytes
               ? TP_OK
               : tp_fail(err, TP_E_INPUT, "\"shape\" and \"dtype\" of \"%s\" are %llu bytes of a "
                         "weight of %llu x %llu x %llu, and its \"layout\" %llu", out->suffix,
                         (unsigned long long)size / 8, (unsigned long long)box.e,
                         (unsigned long long)box.n, (unsigned long long)box.k,
                         (unsigned long long)bytes);
}

enum tp_code tp_format_check(const struct tp_format *format, struct tp_err *err)
{
    uint64_t group = format->group && format->group != TP_GROUP_ROW ? format->group : 128;
    struct tp_box3 box = {3, 1024, format->is_bias ? 1 : 16 * group};
    enum tp_code code = check_elements(format, err);
    if (code == TP_OK)
        code = check_scales(format, &format->op, err);
    for (uint32_t p = 0; p < format->params; p++)
        for (uint32_t c = 0; c < format->param[p].count && !code; c++) {
            struct tp_op op = format->op;
            if ((code = tp_format_apply(format->param[p].set[c], &op, err)) == TP_OK)
                code = check_scales(format, &op, err);
        }
    for (uint32_t i = 0; i < format->op.outs && !code; i++)
        code = check_shape(format, i, box, err);
    return code;
}
