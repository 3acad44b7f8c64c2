/* Descriptors and units of a plan, as text. Equal descriptors are stored once; reading
 * is descriptor_parse.c.
 */
#include "pack/plan/file/describe.h"

#include "base/num.h"
#include "pack/os/os.h"
#include "pack/plan/unit/origin.h"
#include "pack/source/descriptor.h"
#include "pack/text/json_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static enum tp_code origin_text(const struct tp_origin *origin, struct tp_text *text,
                                struct tp_err *err)
{
    enum tp_code code = tp_text_add_word(text, "{\"name\":", err);
    if (!code)
        code = tp_text_add_json(text, origin->name, err);
    if (!code)
        code = tp_text_add_number(text, ",\"rows\":", origin->rows, err);
    if (!code && origin->row)
        code = tp_text_add_number(text, ",\"row\":", origin->row, err);
    if (!code && origin->step > 1)
        code = tp_text_add_number(text, ",\"step\":", origin->step, err);
    if (!code && origin->expert >= 0)
        code = tp_text_add_number(text, ",\"expert\":", (uint64_t)origin->expert, err);
    if (!code && origin->transposed)
        code = tp_text_add_word(text, ",\"transposed\":true", err);
    for (uint32_t d = 0; d + origin->flat < origin->rank && !code; d++)
        code = tp_text_add_number(text, d ? "," : ",\"shape\":[", origin->shape[d], err);
    return code ? code : tp_text_add_word(text, "]}", err);
}

/* Name and separator, which may be a part of one letter. */
static enum tp_code add_prefix(const struct tp_unit *unit, struct tp_text *text,
                               struct tp_err *err)
{
    char *prefix =
        tp_os_join(err, unit->name, strlen(unit->name), (char[2]){unit->form->separator});
    enum tp_code code = prefix ? tp_text_add_json(text, prefix, err) : TP_E_MEMORY;
    free(prefix);
    return code;
}

/* Written as text at once: as a tree, 100,000 units would take half a second. */
static enum tp_code add_text(const struct tp_plan *plan, const struct tp_unit *unit,
                             uint32_t id, struct tp_text *text, struct tp_err *err)
{
    struct tp_origin *origins;
    uint32_t count;
    enum tp_code code = tp_unit_origins(plan, unit, &origins, &count, err);
    if (code)
        return code;
    code = tp_text_add_word(text, "{\"prefix\":", err);
    if (!code)
        code = add_prefix(unit, text, err);
    if (!code)
        code = tp_text_add_number(text, ",\"desc\":\"d", id, err);
    if (!code)
        code = tp_text_add_word(text, "\",\"dtype\":\"", err);
    if (!code)
        code = tp_text_add_word(text, tp_dtype_name(unit->form->original), err);
    if (!code)
        code = tp_text_add_word(text, "\",\"from\":[", err);
    for (uint32_t i = 0; i < count && !code; i++) {
        code = i ? tp_text_add_word(text, ",", err) : TP_OK;
        if (!code)
            code = origin_text(&origins[i], text, err);
    }
    tp_origins_free(origins, count);
    return code ? code : tp_text_add_word(text, "]}", err);
}

/* Descriptors seen so far, by an open-addressing table over their identity. */
struct seen {
    const struct tp_unit **units;
    uint32_t *ids;
    size_t capacity, count;
};

static bool same_descriptor(const struct tp_unit *a, const struct tp_unit *b)
{
    return a->form->format == b->form->format && a->form->rank == b->form->rank &&
           a->form->box.e == b->form->box.e && a->form->box.n == b->form->box.n &&
           a->form->box.k == b->form->box.k &&
           memcmp(&a->form->settings, &b->form->settings, sizeof a->form->settings) == 0 &&
           memcmp(&a->form->search, &b->form->search, sizeof a->form->search) == 0;
}

static size_t seen_slot(const struct seen *seen, const struct tp_unit *unit)
{
    uint64_t key[4] = {unit->form->box.e, unit->form->box.n, unit->form->box.k,
                       (uintptr_t)unit->form->format};
    size_t at = XXH3_64bits(key, sizeof key) & (seen->capacity - 1);
    while (seen->units[at] && !same_descriptor(seen->units[at], unit))
        at = (at + 1) & (seen->capacity - 1);
    return at;
}

/* The number of the unit's descriptor, which is added if it is a new one. */
static enum tp_code add_descriptor(const struct tp_unit *unit, struct seen *seen,
                                   json_t *descriptors, uint32_t *number, struct tp_err *err)
{
    size_t slot = seen_slot(seen, unit);
    if (!seen->units[slot]) {
        char id[24];
        seen->units[slot] = unit;
        seen->ids[slot] = (uint32_t)seen->count++;
        snprintf(id, sizeof id, "d%u", seen->ids[slot]);
        json_t *json =
            tp_descriptor_json(unit->form->format, &unit->form->settings, &unit->form->search,
                               &unit->form->op, unit->form->box, unit->form->rank, err);
        if (!json)
            return err->code;
        if (json_object_set_new(descriptors, id, json))
            return tp_fail(err, TP_E_MEMORY, "out of memory for the descriptors");
    }
    *number = seen->ids[slot];
    return TP_OK;
}

/* A kept packed weight keeps the descriptor it came with; one of another tool's
 * has none and needs none. */
static bool is_described(const struct tp_plan *plan, const struct tp_unit *kept)
{
    return plan->weights->items[kept->views[0].weight].origin != NULL;
}

/* Unit number i of those that were asked for, or NULL. */
static const struct tp_unit *nth_unit(const struct tp_plan *plan, uint32_t file, size_t i)
{
    size_t kept = i - tp_min_u64(i, plan->unit_count);
    if (file != UINT32_MAX)
        return i < plan->files[file].unit_count
                   ? plan->units_by_file[plan->files[file].first_unit + i] : NULL;
    return i < plan->unit_count            ? &plan->units[i]
           : kept < plan->kept_unit_count  ? &plan->kept_units[kept]
                                           : NULL;
}

static bool has_text(const struct tp_plan *plan, const struct tp_unit *unit)
{
    bool kept = plan->kept_unit_count && unit >= plan->kept_units &&
                unit < plan->kept_units + plan->kept_unit_count;
    return kept ? is_described(plan, unit) : unit->form->format != NULL;
}

static enum tp_code add_units(const struct tp_plan *plan, uint32_t file, json_t *descriptors,
                              struct seen *seen, struct tp_text *units, struct tp_err *err)
{
    const struct tp_unit *unit;
    uint32_t number = 0;
    enum tp_code code = tp_text_add_word(units, "[", err);
    for (size_t i = 0; code == TP_OK && (unit = nth_unit(plan, file, i)); i++)
        if (has_text(plan, unit) &&
            (code = add_descriptor(unit, seen, descriptors, &number, err)) == TP_OK &&
            (code = tp_text_add_word(units, units->size > 1 ? "," : "", err)) == TP_OK)
            code = add_text(plan, unit, number, units, err);
    return code ? code : tp_text_add_word(units, "]", err);
}

enum tp_code tp_descriptors_text(const struct tp_plan *plan, uint32_t file, char **descriptors,
                                 struct tp_text *units, struct tp_err *err)
{
    struct seen seen = {.capacity = 64};
    size_t here = file == UINT32_MAX ? plan->unit_count + plan->kept_unit_count
                                     : plan->files[file].unit_count;
    uint64_t before = tp_json_failures();
    while (seen.capacity < 2 * here)
        seen.capacity *= 2;
    seen.units = tp_os_zalloc(seen.capacity, sizeof *seen.units, err);
    seen.ids = tp_os_zalloc(seen.capacity, sizeof *seen.ids, err);
    json_t *json = json_object();
    *descriptors = NULL;
    enum tp_code code = seen.units && seen.ids ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK)
        code = add_units(plan, file, json, &seen, units, err);
    if (code == TP_OK && !(*descriptors = tp_json_dump(json, JSON_COMPACT)))
        code = tp_fail(err, TP_E_MEMORY, "out of memory for the descriptors");
    json_decref(json);
    free(seen.units);
    free(seen.ids);
    if ((code = tp_json_check(before, code, err))) {
        free(*descriptors);
        *descriptors = NULL;
        tp_text_free(units);
    }
    return code;
}

/* ---- the index -------------------------------------------------------------------- */

static int by_name(const void *a, const void *b, void *arg)
{
    const struct tp_plan *plan = arg;
    const uint32_t *x = a, *y = b;
    return strcmp(plan->outputs[*x].name, plan->outputs[*y].name);
}

static enum tp_code index_entry(const struct tp_plan *plan, const struct tp_output *output,
                                struct tp_text *text, struct tp_err *err)
{
    enum tp_code code = tp_text_add_json(text, output->name, err);
    return code ? code : tp_text_addf(text, err, ": \"%s\"", plan->files[output->file].name);
}

/* The entries in this order (of the numbers of outputs), or, `order` NULL, as they come. With
 * `counted` the text's bytes are added there, and not kept. */
static enum tp_code index_in(const struct tp_plan *plan, const uint32_t *order, uint64_t *counted,
                             struct tp_text *text, struct tp_err *err)
{
    enum tp_code code =
        tp_text_addf(text, err, "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n"
                                "  \"weight_map\": {", (unsigned long long)plan->bytes_out);
    for (size_t o = 0; o < plan->output_count && code == TP_OK; o++) {
        code = tp_text_addf(text, err, "%s\n    ", o ? "," : "");
        code = code ? code : index_entry(plan, &plan->outputs[order ? order[o] : o], text, err);
        if (counted) {
            *counted += text->size;
            text->size = 0;
        }
    }
    return code ? code : tp_text_addf(text, err, "\n  }\n}\n");
}

enum tp_code tp_index_text(const struct tp_plan *plan, struct tp_text *text, struct tp_err *err)
{
    uint32_t *order = tp_os_zalloc(plan->output_count + 1, sizeof *order, err);
    if (!order)
        return TP_E_MEMORY;
    for (uint32_t o = 0; o < plan->output_count; o++)
        order[o] = o;
    qsort_r(order, plan->output_count, sizeof *order, by_name, (void *)(uintptr_t)plan);
    enum tp_code code = index_in(plan, order, NULL, text, err);
    free(order);
    return code;
}

enum tp_code tp_index_size(const struct tp_plan *plan, uint64_t *size, struct tp_err *err)
{
    struct tp_text text = {0};
    *size = 0;
    enum tp_code code = index_in(plan, NULL, size, &text, err);
    *size += text.size;
    tp_text_free(&text);
    return code;
}
