/* Stored descriptors: writing. Reading is descriptor_parse.c.
 *
 * Written from the operation itself, with this weight's numbers in the layouts,
 * so that a reader needs nothing but the descriptor.
 */
#include "pack/descriptor.h"

#include "kernels/codec.h"
#include "pack/format_parse.h"
#include "pack/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Value of every stored nibble, through the inverse of the code table. */
static json_t *nibble_values(const struct tp_op *op, const struct tp_op_out *out)
{
    json_t *values = json_array();
    for (unsigned stored = 0; stored < 16; stored++) {
        unsigned code = stored;
        if (out->element == TP_ELEM_INT4)
            for (code = 0; op->table[code] != stored;)
                code++;
        double value = tp_codec_code_value(op->codec, (uint8_t)code);
        json_array_append_new(values, value == (int)value && value != 0
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
        json_array_append_new(words, json_integer((json_int_t)value));
    }
    return words;
}

static json_t *output_json(const struct tp_format *format, const struct tp_op *op, uint32_t i,
                           struct tp_box3 box, struct tp_err *err)
{
    const struct tp_op_out *out = &op->out[i];
    json_t *json = json_object();
    json_object_set_new(json, "suffix", json_string(format->out[i].suffix));
    json_object_set_new(json, "role", json_string(tp_role_name(out->role)));
    json_object_set_new(json, "element", json_string(tp_element_name(out->element)));
    if (out->role == TP_ROLE_WORDS) {
        json_t *words = words_json(&format->out[i], box, err);
        if (words)
            json_object_set_new(json, "words", words);
    }
    if (out->layout) {
        struct tp_layout layout;
        char text[512];
        if (tp_op_layout(op, i, box, &layout, err) == TP_OK)
            tp_layout_print(&layout, text, sizeof text);
        else
            text[0] = '\0';
        json_object_set_new(json, "per", json_pack("[i,i]", (int)out->per_n, (int)out->per_k));
        json_object_set_new(json, "layout", json_string(text));
        json_object_set_new(json, "fill", json_integer(out->fill));
    }
    if (out->role == TP_ROLE_GLOBAL)
        json_object_set_new(json, "divides", json_boolean(op->codec == TP_CODEC_NVFP4 &&
                                                          op->rule == TP_NVFP4_CT));
    if (out->element == TP_ELEM_INT4 || out->element == TP_ELEM_E2M1)
        json_object_set_new(json, "values", nibble_values(op, out));
    return json;
}

json_t *tp_descriptor_json(const struct tp_format *format, const struct tp_settings *settings,
                           const struct tp_op *op, struct tp_box3 box, int rank,
                           struct tp_err *err)
{
    json_t *json = json_object(), *params = json_object(), *outputs = json_array();
    for (uint32_t p = 0; p < format->params; p++)
        json_object_set_new(params, format->param[p].key,
                            json_string(format->param[p].choices[settings->choice[p]]));
    for (uint32_t i = 0; i < op->outs; i++)
        json_array_append_new(outputs, output_json(format, op, i, box, err));
    json_object_set_new(json, "format", json_string(format->name));
    json_object_set_new(json, "version", json_integer(format->version));
    json_object_set_new(json, "box", json_pack("[I,I,I]", (json_int_t)box.e, (json_int_t)box.n,
                                               (json_int_t)box.k));
    json_object_set_new(json, "rank", json_integer(rank));
    json_object_set_new(json, "params", params);
    json_object_set_new(json, "codec", json_string(tp_codec_name(op->codec)));
    json_object_set_new(json, "block", json_pack("[i,i]", (int)op->block_n, (int)op->block_k));
    json_object_set_new(json, "outputs", outputs);
    if (err && err->code != TP_OK) {
        json_decref(json);
        return NULL;
    }
    return json;
}

static json_t *origin_json(const struct tp_origin *origin)
{
    json_t *json = json_object(), *shape = json_array();
    json_object_set_new(json, "name", json_string(origin->name));
    json_object_set_new(json, "rows", json_integer((json_int_t)origin->rows));
    if (origin->row)
        json_object_set_new(json, "row", json_integer((json_int_t)origin->row));
    if (origin->expert >= 0)
        json_object_set_new(json, "expert", json_integer(origin->expert));
    for (uint32_t d = 0; d < origin->rank; d++)
        json_array_append_new(shape, json_integer((json_int_t)origin->shape[d]));
    json_object_set_new(json, "shape", shape);
    return json;
}

static json_t *unit_json(const struct tp_plan *plan, const struct tp_unit *unit, const char *id,
                         struct tp_err *err)
{
    struct tp_origin *origins;
    uint32_t count;
    if (tp_unit_origins(plan, unit, &origins, &count, err))
        return NULL;
    json_t *from = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(from, origin_json(&origins[i]));
    tp_origins_free(origins, count);
    return json_pack("{s:s,s:s,s:s,s:o}", "prefix", unit->prefix, "desc", id, "dtype",
                     tp_dtype_name(unit->original), "from", from);
}

/* Descriptors seen so far, by an open-addressing table over their identity. */
struct seen {
    const struct tp_unit **units;
    uint32_t *ids;
    size_t capacity, count;
};

static bool same_descriptor(const struct tp_unit *a, const struct tp_unit *b)
{
    return a->format == b->format && a->rank == b->rank && a->box.e == b->box.e &&
           a->box.n == b->box.n && a->box.k == b->box.k &&
           memcmp(&a->settings, &b->settings, sizeof a->settings) == 0;
}

static size_t seen_slot(const struct seen *seen, const struct tp_unit *unit)
{
    uint64_t key[4] = {unit->box.e, unit->box.n, unit->box.k, (uintptr_t)unit->format};
    size_t at = XXH3_64bits(key, sizeof key) & (seen->capacity - 1);
    while (seen->units[at] && !same_descriptor(seen->units[at], unit))
        at = (at + 1) & (seen->capacity - 1);
    return at;
}

static enum tp_code add_unit(const struct tp_plan *plan, const struct tp_unit *unit,
                             struct seen *seen, json_t *descriptors, json_t *units,
                             struct tp_err *err)
{
    size_t slot = seen_slot(seen, unit);
    char id[24];
    if (!seen->units[slot]) {
        seen->units[slot] = unit;
        seen->ids[slot] = (uint32_t)seen->count++;
        snprintf(id, sizeof id, "d%u", seen->ids[slot]);
        json_t *json = tp_descriptor_json(unit->format, &unit->settings, &unit->op, unit->box,
                                          unit->rank, err);
        if (!json)
            return err->code;
        json_object_set_new(descriptors, id, json);
    }
    snprintf(id, sizeof id, "d%u", seen->ids[slot]);
    json_t *json = unit_json(plan, unit, id, err);
    if (!json || json_array_append_new(units, json))
        return tp_fail(err, TP_E_MEMORY, "out of memory for the descriptors");
    return TP_OK;
}

/* A kept packed weight keeps the descriptor it came with; one of another tool's
 * has none and needs none. */
static bool is_described(const struct tp_plan *plan, const struct tp_unit *kept)
{
    return plan->weights->items[kept->parts[0].weight].origin != NULL;
}

enum tp_code tp_descriptors_json(const struct tp_plan *plan, uint32_t file, json_t **descriptors,
                                 json_t **units, struct tp_err *err)
{
    struct seen seen = {.capacity = 64};
    size_t here = 0;
    for (size_t u = 0; u < plan->unit_count; u++)
        here += file == UINT32_MAX || plan->units[u].file == file;
    while (seen.capacity < 2 * here)
        seen.capacity *= 2;
    seen.units = tp_os_zalloc(seen.capacity, sizeof *seen.units, err);
    seen.ids = tp_os_zalloc(seen.capacity, sizeof *seen.ids, err);
    *descriptors = json_object();
    *units = json_array();
    enum tp_code code = seen.units && seen.ids ? TP_OK : TP_E_MEMORY;
    for (size_t u = 0; u < plan->unit_count && code == TP_OK; u++)
        if (plan->units[u].format && (file == UINT32_MAX || plan->units[u].file == file))
            code = add_unit(plan, &plan->units[u], &seen, *descriptors, *units, err);
    for (size_t u = 0; u < plan->kept_unit_count && code == TP_OK; u++)
        if (is_described(plan, &plan->kept_units[u]) &&
            (file == UINT32_MAX || plan->kept_units[u].file == file))
            code = add_unit(plan, &plan->kept_units[u], &seen, *descriptors, *units, err);
    free(seen.units);
    free(seen.ids);
    if (code) {
        json_decref(*descriptors);
        json_decref(*units);
    }
    return code;
}
