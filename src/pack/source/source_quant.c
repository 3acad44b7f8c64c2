/* quantization_config: where a source's config.json has it, and what it says of all weights.
 * Whether the tensors agree with it is source_config.c's.
 */
#include "pack/source/source_quant.h"

#include "pack/os/os.h"
#include "pack/quantizer/quantizer.h"
#include "pack/text/json_tree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void tp_source_config_path(const struct tp_checkpoint *ckpt, struct tp_err *err)
{
    char *path = tp_os_format(NULL, "%s/config.json", ckpt->path); /* without memory left out */
    tp_err_path(err, path);
    free(path);
}

static enum tp_code find_nested(const struct tp_checkpoint *ckpt, struct tp_json_span *text,
                                struct tp_json_span *value, struct tp_err *err)
{
    *value = (struct tp_json_span){0};
    enum tp_code code = tp_json_get_key(ckpt->config, ckpt->config_size, "text_config", text, err);
    if (!code && text->data && *text->data == '{')
        code = tp_json_get_inner(ckpt->config, *text, "quantization_config", value, err);
    return code;
}

enum tp_code tp_source_nested_config(const struct tp_checkpoint *ckpt, struct tp_json_span *text,
                                     struct tp_json_span *value, struct tp_err *err)
{
    enum tp_code code = find_nested(ckpt, text, value, err);
    if (code == TP_E_INPUT)
        tp_source_config_path(ckpt, err);
    return code;
}

static bool says_something(const struct tp_json_span *value)
{
    return value->data && *value->data != 'n'; /* null */
}

/* Where engines look, in their order. */
static enum tp_code find_config(const struct tp_checkpoint *ckpt, struct tp_json_span *value,
                                struct tp_err *err)
{
    struct tp_json_span text;
    enum tp_code code = tp_json_get_key(ckpt->config, ckpt->config_size, "quantization_config",
                                        value, err);
    if (!code && !says_something(value))
        code = find_nested(ckpt, &text, value, err);
    if (!code && !says_something(value))
        code = tp_json_get_key(ckpt->config, ckpt->config_size, TP_LEGACY_CONFIG, value, err);
    return code;
}

static enum tp_code load_config(struct tp_json_span value, json_t **config, struct tp_err *err)
{
    struct tp_err why = {0};
    enum tp_code code = *value.data == '{' ? tp_json_load_python(value.data, value.size, config,
                                                                 &why)
                                           : tp_fail(&why, TP_E_INPUT, "it is no object");
    const json_t *method = code ? NULL : json_object_get(*config, "quant_method");
    if (method && !json_is_string(method) && !json_is_null(method)) {
        code = tp_fail(&why, TP_E_INPUT, "its \"quant_method\" is no text");
        json_decref(*config);
        *config = NULL;
    }
    if (code == TP_E_MEMORY)
        tp_err_memory(err, &why);
    if (code != TP_E_INPUT)
        return code;
    tp_err_hint(err, "correct it, or get config.json again");
    return tp_fail(err, code, "quantization_config cannot be read: %s", why.what);
}

static bool is_whole(const json_t *number)
{
    double value = json_real_value(number);
    return json_is_real(number) && value == floor(value) && fabs(value) < 1e15;
}

/* 8.0 is the number 8, as it is to engines. */
static void make_whole(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    if (is_whole(value))
        tp_json_set(object, key, json_integer((json_int_t)json_real_value(value)));
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        if (is_whole(item) &&
            json_array_set_new(value, i, json_integer((json_int_t)json_real_value(item))))
            tp_json_no_memory();
    }
}

static void make_all_whole(json_t *object)
{
    static const char *const keys[] = {"bits", "num_bits", "group_size", "weight_block_size",
                                       "block_structure"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        make_whole(object, keys[i]);
}

static void make_config_whole(json_t *config)
{
    const char *name;
    json_t *value;
    make_all_whole(config);
    json_object_foreach(json_object_get(config, "config_groups"), name, value)
        make_all_whole(json_object_get(value, "weights"));
    json_object_foreach(json_object_get(config, "dynamic"), name, value)
        make_all_whole(value);
    json_object_foreach(json_object_get(config, "extra_config"), name, value)
        make_all_whole(value);
}

enum tp_code tp_source_side_file(const struct tp_checkpoint *ckpt, const struct tp_quantizer *q,
                                 struct tp_side_file *side, struct tp_err *err)
{
    struct tp_err none = {0};
    char *path = tp_os_format(err, "%s/%s", ckpt->path, q->file);
    *side = (struct tp_side_file){0};
    if (!path)
        return TP_E_MEMORY;
    enum tp_code code = tp_os_slurp(path, TP_CONFIG_MAX_BYTES, &side->text, &side->size, &none);
    free(path);
    side->value = (struct tp_json_span){side->text, side->size};
    if (code == TP_OK && q->file_key)
        code = tp_json_get_key(side->text, side->size, q->file_key, &side->value, &none);
    if (code)
        side->value = (struct tp_json_span){0};
    side->broken = code != TP_OK;
    return code == TP_E_MEMORY ? tp_fail(err, code, "out of memory") : TP_OK;
}

/* The description there, as readers take it where config.json has none; *config stays NULL where
 * there is no such file, or no JSON object. */
static enum tp_code load_side_file(const struct tp_checkpoint *ckpt, const struct tp_quantizer *q,
                                   json_t **config, struct tp_err *err)
{
    struct tp_side_file side;
    json_error_t where;
    enum tp_code code = tp_source_side_file(ckpt, q, &side, err);
    json_t *own = side.value.data ? tp_json_load(side.value.data, side.value.size, &where) : NULL;
    if (json_object_size(own)) {
        *config = json_incref(own);
        if (!json_is_string(json_object_get(own, "quant_method")))
            tp_json_set(own, "quant_method", json_string(q->method.item[0]));
    }
    json_decref(own);
    free(side.text);
    return code;
}

static enum tp_code find_side_file(const struct tp_checkpoint *ckpt, json_t **config,
                                   struct tp_err *err)
{
    size_t count = 0;
    enum tp_code code = ckpt->directory ? tp_quantizers_check(err) : TP_OK;
    const struct tp_quantizer *const *all = code || !ckpt->directory ? NULL : tp_quantizers(&count);
    for (size_t q = 0; q < count && !*config && code == TP_OK; q++)
        if (all[q]->file)
            code = load_side_file(ckpt, all[q], config, err);
    return code;
}

/* Whether any tensor may be of a packed weight, so that it matters what describes it. */
static bool has_codes(const struct tp_checkpoint *ckpt)
{
    for (size_t t = 0; t < ckpt->tensor_count; t++)
        if (ckpt->tensors[t].rank >= 2 && tp_dtype_bits(ckpt->tensors[t].dtype) <= 32 &&
            !tp_dtype_is_float(ckpt->tensors[t].dtype))
            return true;
    return false;
}

enum tp_code tp_source_config(const struct tp_checkpoint *ckpt, json_t **config,
                              struct tp_err *err)
{
    struct tp_json_span value = {0};
    *config = NULL;
    enum tp_code code = ckpt->config ? find_config(ckpt, &value, err) : TP_OK;
    if (!code && says_something(&value))
        code = load_config(value, config, err);
    else if (!code && has_codes(ckpt))
        code = find_side_file(ckpt, config, err);
    make_config_whole(*config);
    if (code == TP_E_INPUT)
        tp_source_config_path(ckpt, err);
    return code;
}

static uint64_t bit_of(const json_t *bits)
{
    json_int_t value = json_integer_value(bits);
    return value > 0 && value < 64 ? UINT64_C(1) << value : 0;
}

static bool is_float(const json_t *group)
{
    const json_t *weights = json_object_get(group, "weights");
    const char *type = json_string_value(json_object_get(weights, "type"));
    return type && strcmp(type, "float") == 0;
}

/* Weights of 8 bits: formats that activations tell apart have 4. */
static bool is_wide(const json_t *group)
{
    const json_t *weights = json_object_get(group, "weights");
    return json_integer_value(json_object_get(weights, "num_bits")) == 8;
}

/* Of weights in a format of compressed-tensors without a config: they were not what its formats
 * with one are. */
static enum tp_activations listed_activations(const struct tp_format *format)
{
    return format->input_only ? TP_ACTIVATIONS_OTHER : format->activations;
}

uint64_t tp_source_config_bits(const json_t *config)
{
    json_t *group;
    const char *name;
    uint64_t set = bit_of(json_object_get(config, "bits"));
    json_object_foreach(json_object_get(config, "dynamic"), name, group)
        set |= bit_of(json_object_get(group, "bits"));
    json_object_foreach(json_object_get(config, "extra_config"), name, group)
        set |= bit_of(json_object_get(group, "bits"));
    json_object_foreach(json_object_get(config, "config_groups"), name, group)
        if (!is_float(group))
            set |= bit_of(json_object_get(json_object_get(group, "weights"), "num_bits"));
    return set;
}

void tp_source_config_block(const json_t *config, uint32_t block[2])
{
    const json_t *said = json_object_get(config, "weight_block_size"), *group;
    const char *name;
    json_t *groups = json_object_get(config, "config_groups");
    if (!said) {
        json_object_foreach(groups, name, group)
            if (!said)
                said = json_object_get(json_object_get(group, "weights"), "block_structure");
    }
    for (size_t i = 0; i < 2; i++) {
        json_int_t size = json_integer_value(json_array_get(said, i));
        block[i] = size > 0 && size <= (1 << 20) ? (uint32_t)size : 0;
    }
}

enum tp_code tp_source_config_activations(const json_t *config, unsigned *activations,
                                          struct tp_err *err)
{
    json_t *item;
    const char *name;
    unsigned set = 0;
    size_t i;
    json_object_foreach(json_object_get(config, "config_groups"), name, item)
        if (!is_float(item) && !is_wide(item))
            set |= 1u << tp_activations_of(item);
    json_array_foreach(json_object_get(config, "formats"), i, item) {
        const char *own = json_string_value(item);
        const struct tp_format *format = NULL;
        enum tp_code code = own ? tp_format_get(own, &format, err) : TP_OK;
        if (code)
            return code;
        if (format && format->op.codec == TP_CODEC_INT4)
            set |= 1u << listed_activations(format);
    }
    *activations = set & ~(1u << TP_ACTIVATIONS_UNSAID);
    return TP_OK;
}
