/* quantization_config: where a source's config.json has it, and what it says of all weights.
 * Whether the tensors agree with it is source_config.c's.
 */
#include "pack/source/source_quant.h"

#include "pack/text/json_memory.h"

#include <string.h>

enum tp_code tp_source_nested_config(const struct tp_checkpoint *ckpt, struct tp_json_span *text,
                                     struct tp_json_span *value)
{
    *value = (struct tp_json_span){0};
    enum tp_code code = tp_json_get_key(ckpt->config, ckpt->config_size, "text_config", text, NULL);
    if (!code && text->data && *text->data == '{')
        code = tp_json_get_key(text->data, text->size, "quantization_config", value, NULL);
    return code;
}

/* Where engines look, in their order; data is NULL when there is none. */
static enum tp_code find_config(const struct tp_checkpoint *ckpt, struct tp_json_span *value)
{
    struct tp_json_span text;
    enum tp_code code = tp_json_get_key(ckpt->config, ckpt->config_size, "quantization_config",
                                        value, NULL);
    if (!code && !value->data)
        code = tp_source_nested_config(ckpt, &text, value);
    if (!code && !value->data)
        code = tp_json_get_key(ckpt->config, ckpt->config_size, TP_LEGACY_CONFIG, value, NULL);
    return code;
}

json_t *tp_source_config(const struct tp_checkpoint *ckpt)
{
    struct tp_json_span span;
    enum tp_code code = ckpt->config ? find_config(ckpt, &span) : TP_E_INPUT;
    if (code == TP_E_MEMORY)
        tp_json_no_memory();
    if (code || !span.data)
        return NULL;
    json_t *config = tp_json_load(span.data, span.size, JSON_DECODE_ANY, NULL);
    if (json_is_object(config))
        return config;
    json_decref(config);
    return NULL;
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
    return format->input_only && format->method_format[0] ? TP_ACTIVATIONS_OTHER
                                                          : format->activations;
}

uint64_t tp_source_config_bits(const json_t *config)
{
    json_t *group;
    const char *name;
    uint64_t set = bit_of(json_object_get(config, "bits"));
    json_object_foreach(json_object_get(config, "dynamic"), name, group)
        set |= bit_of(json_object_get(group, "bits"));
    json_object_foreach(json_object_get(config, "config_groups"), name, group)
        if (!is_float(group))
            set |= bit_of(json_object_get(json_object_get(group, "weights"), "num_bits"));
    return set;
}

unsigned tp_source_config_activations(const json_t *config)
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
        const struct tp_format *format = own ? tp_format_find(own) : NULL;
        if (format && format->op.codec == TP_CODEC_INT4)
            set |= 1u << listed_activations(format);
    }
    return set & ~(1u << TP_ACTIVATIONS_UNSAID);
}
