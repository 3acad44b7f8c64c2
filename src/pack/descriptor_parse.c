/* Stored descriptors: reading what descriptor.c wrote.
 *
 * Nothing is taken on trust: the format must be known in that version, its
 * parameters legal, and the layouts and sizes in the text equal to those the
 * format gives for the box, so that a damaged descriptor is found here.
 */
#include "pack/descriptor.h"

#include "base/num.h"
#include "pack/format_parse.h"
#include "pack/json_memory.h"
#include "pack/os.h"

#include <stdlib.h>
#include <string.h>

static const char hint_damaged[] =
    "its __metadata__ is damaged or was edited: get the file again, or convert the source anew";
static const char hint_newer[] = "a newer tilepack wrote this file: read it with that version";

static enum tp_code bad(struct tp_err *err, const char *what)
{
    tp_err_hint(err, hint_damaged);
    return tp_fail(err, TP_E_INPUT, "stored descriptor: %s", what);
}

static bool get_u64(const json_t *array, size_t i, uint64_t *value)
{
    const json_t *number = json_array_get(array, i);
    if (!json_is_integer(number) || json_integer_value(number) < 0)
        return false;
    *value = (uint64_t)json_integer_value(number);
    return true;
}

static enum tp_code read_format(const json_t *json, struct tp_weight *weight, struct tp_err *err)
{
    const char *name = json_string_value(json_object_get(json, "format"));
    const json_t *box = json_object_get(json, "box");
    weight->format = name ? tp_format_find(name) : NULL;
    if (!name)
        return bad(err, "\"format\" is missing");
    if (!weight->format ||
        json_integer_value(json_object_get(json, "version")) != weight->format->version) {
        tp_err_hint(err, hint_newer);
        return tp_fail(err, TP_E_UNSUPPORTED,
                       "stored descriptor: format '%s', version %lld, is not known here", name,
                       (long long)json_integer_value(json_object_get(json, "version")));
    }
    weight->rank = (int)json_integer_value(json_object_get(json, "rank"));
    if (weight->rank < 2 || weight->rank > 3 || !get_u64(box, 0, &weight->box.e) ||
        !get_u64(box, 1, &weight->box.n) || !get_u64(box, 2, &weight->box.k) || !weight->box.e ||
        !weight->box.n || !weight->box.k)
        return bad(err, "\"box\" or \"rank\" is wrong");
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(json, "params"), key, value)
    {
        char text[128];
        if (!json_is_string(value) || strlen(key) + json_string_length(value) + 2 > sizeof text)
            return bad(err, "\"params\" is wrong");
        strcpy(text, key);
        strcat(text, "=");
        strcat(text, json_string_value(value));
        if (tp_format_set(weight->format, text, &weight->settings, NULL)) {
            tp_err_hint(err, hint_damaged);
            return tp_fail(err, TP_E_INPUT, "stored descriptor: format %s has no parameter '%s'",
                           name, text);
        }
    }
    tp_format_op(weight->format, &weight->settings, &weight->op);
    return TP_OK;
}

/* The text must be exactly what this format gives for this box. */
static enum tp_code check_text(const json_t *json, const struct tp_weight *weight,
                               struct tp_err *err)
{
    json_t *expected = tp_descriptor_json(weight->format, &weight->settings, &weight->op,
                                          weight->box, weight->rank, err);
    if (!expected) {
        tp_err_hint(err, hint_damaged);
        return err ? err->code : TP_E_INPUT;
    }
    bool equal = json_equal(expected, json);
    json_decref(expected);
    if (!equal)
        tp_err_hint(err, hint_damaged);
    return equal ? TP_OK
                 : tp_fail(err, TP_E_INPUT,
                           "stored descriptor of format %s contradicts the format (layout, element "
                           "or size differs)",
                           weight->format->name);
}

static enum tp_code read_origin(const json_t *json, struct tp_origin *origin, struct tp_err *err)
{
    const char *name = json_string_value(json_object_get(json, "name"));
    const json_t *shape = json_object_get(json, "shape"), *expert = json_object_get(json, "expert");
    json_int_t rows = json_integer_value(json_object_get(json, "rows"));
    json_int_t row = json_integer_value(json_object_get(json, "row"));
    origin->rank = (uint32_t)json_array_size(shape);
    origin->expert = expert ? json_integer_value(expert) : -1;
    origin->transposed = json_is_true(json_object_get(json, "transposed"));
    if (!name || rows < 1 || row < 0 || origin->rank < 2 || origin->rank > 3 ||
        (expert && origin->expert < 0))
        return bad(err, "\"from\" is wrong");
    for (uint32_t d = 0; d < origin->rank; d++)
        if (!get_u64(shape, d, &origin->shape[d]))
            return bad(err, "\"from\" has a wrong shape");
    origin->rows = (uint64_t)rows;
    origin->row = (uint64_t)row;
    uint64_t end;
    if (!tp_add_u64(&end, origin->row, origin->rows) || end > origin->shape[origin->rank - 2])
        return bad(err, "\"from\" names rows outside its tensor");
    origin->name = tp_os_format(err, "%s", name);
    return origin->name ? TP_OK : TP_E_MEMORY;
}

static enum tp_code read_unit(const json_t *json, const json_t *descriptors,
                              struct tp_weight *weight, struct tp_err *err)
{
    const char *prefix = json_string_value(json_object_get(json, "prefix"));
    const char *id = json_string_value(json_object_get(json, "desc"));
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    const json_t *from = json_object_get(json, "from");
    const json_t *descriptor = id ? json_object_get(descriptors, id) : NULL;
    enum tp_code code;
    if (prefix)
        tp_err_tensor(err, prefix);
    if (!prefix || !descriptor || !dtype || !*prefix)
        return bad(err, "a unit lacks \"prefix\", \"dtype\" or a \"desc\" that exists");
    if ((code = read_format(descriptor, weight, err)))
        return code;
    weight->dtype = tp_dtype_parse(dtype, strlen(dtype));
    weight->prefix = tp_os_format(err, "%s", prefix);
    weight->name = tp_os_format(err, "%.*s", (int)strlen(prefix) - 1, prefix);
    weight->origins = (uint32_t)json_array_size(from);
    weight->origin = tp_os_zalloc(weight->origins + 1, sizeof *weight->origin, err);
    if (!weight->prefix || !weight->name || !weight->origin)
        return TP_E_MEMORY;
    if (!tp_dtype_is_float(weight->dtype))
        return bad(err, "\"dtype\" of a unit is no float type");
    uint64_t rows = 0;
    for (uint32_t i = 0; i < weight->origins; i++) {
        if ((code = read_origin(json_array_get(from, i), &weight->origin[i], err)))
            return code;
        if (!tp_add_u64(&rows, rows, weight->origin[i].rows))
            return bad(err, "\"from\" has too many rows");
    }
    if (rows != weight->box.n)
        return bad(err, "\"from\" does not add up to N rows");
    if (err)
        err->tensor[0] = '\0';
    return TP_OK;
}

enum tp_code tp_descriptors_parse(const char *descriptors_text, const char *units_text,
                                  struct tp_weight **items, size_t *count, size_t *capacity,
                                  struct tp_err *err)
{
    json_error_t where;
    json_t *descriptors = tp_json_load(descriptors_text, strlen(descriptors_text),
                                       JSON_REJECT_DUPLICATES, &where);
    json_t *units = tp_json_load(units_text, strlen(units_text), JSON_REJECT_DUPLICATES, &where);
    enum tp_code code = TP_OK;
    if (!json_is_object(descriptors) || !json_is_array(units))
        code = bad(err, "not valid JSON");
    const char *id;
    json_t *descriptor;
    if (code == TP_OK)
        json_object_foreach(descriptors, id, descriptor)
        {
            struct tp_weight probe = {0};
            if ((code = read_format(descriptor, &probe, err)) ||
                (code = check_text(descriptor, &probe, err)))
                break;
        }
    for (size_t u = 0; code == TP_OK && u < json_array_size(units); u++) {
        if ((code = tp_os_grow((void **)items, capacity, *count + 1, sizeof **items, err)))
            break;
        memset(&(*items)[*count], 0, sizeof **items);
        code = read_unit(json_array_get(units, u), descriptors, &(*items)[(*count)++], err);
    }
    json_decref(descriptors);
    json_decref(units);
    return code;
}
