/* Stored descriptors: reading what descriptor.c and the plan's describe.c wrote.
 *
 * Nothing is taken on trust: the format must be known in that version, its
 * parameters legal, and the layouts and sizes in the text equal to those the
 * format gives for the box, so that a damaged descriptor is found here. Formats that
 * are not known are those of descriptor_unknown.c.
 */
#include "pack/source/descriptor.h"

#include "base/num.h"
#include "pack/format/format_parse.h"
#include "pack/model/model_names.h"
#include "pack/text/json_tree.h"
#include "pack/text/json_scan.h"
#include "pack/text/name_set.h"
#include "pack/os/os.h"
#include "pack/source/descriptor_unknown.h"

#include <stdlib.h>
#include <string.h>

/* check_text() finds a part that the format has not. */
static enum tp_part part_of(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "part"));
    for (int part = TP_PART_UP; name && part < TP_PARTS; part++)
        if (strcmp(name, tp_part_name((enum tp_part)part)) == 0)
            return (enum tp_part)part;
    return json_object_get(json, "stretches") ? TP_PART_GATED : TP_PART_ANY;
}

static bool is_known_version(const json_t *json, const struct tp_format *format)
{
    return format && json_integer_value(json_object_get(json, "version")) == format->version;
}

static enum tp_code read_format(const json_t *json, struct tp_weight_form *form, struct tp_err *err)
{
    const char *name = json_string_value(json_object_get(json, "format"));
    if (!name)
        return tp_damaged(err, "\"format\" is missing");
    enum tp_code code = tp_format_get(name, &form->format, err);
    if (code)
        return code;
    if (!is_known_version(json, form->format)) {
        tp_err_hint(err, TP_HINT_NEWER);
        return tp_fail(err, TP_E_UNSUPPORTED,
                       "stored descriptor: format '%s', version %lld, is not known here", name,
                       (long long)json_integer_value(json_object_get(json, "version")));
    }
    if (json_object_get(json, "bias") && !(form->format = form->format->bias))
        return tp_damaged(err, "\"bias\" is of a format that has none");
    if ((code = tp_descriptor_box(json, form, err)))
        return code;
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(json, "params"), key, value)
    {
        char text[128];
        if (!json_is_string(value) || strlen(key) + json_string_length(value) + 2 > sizeof text)
            return tp_damaged(err, "\"params\" is wrong");
        if (tp_search_choice_read(key, json_string_value(value), &form->search))
            continue;
        strcpy(text, key);
        strcat(text, "=");
        strcat(text, json_string_value(value));
        if (tp_format_set(&form->format, text, &form->settings, NULL)) {
            tp_err_hint(err, TP_HINT_DAMAGED);
            return tp_fail(err, TP_E_INPUT, "stored descriptor: format %s has no parameter '%s'",
                           name, text);
        }
    }
    form->format = tp_format_for(form->format, part_of(json));
    tp_format_op(form->format, &form->settings, &form->op);
    return tp_search_choice_fits(&form->search, &form->op)
               ? TP_OK
               : tp_damaged(err, "\"params\" name a search that the format has not");
}

/* Parameters of a complete descriptor: all of its format's, and of a search all or none. */
static size_t param_count(const struct tp_weight_form *form)
{
    size_t count = form->search.search ? TP_SEARCH_PARAMS : 0;
    for (uint32_t p = 0; p < form->format->params; p++)
        count += tp_param_is_stored(&form->format->param[p], form->settings.choice[p]);
    return count;
}

/* The text must be exactly what this format gives for this box: parameters all there,
 * in whatever words of their choices read_format() took. */
static enum tp_code check_text(const json_t *json, const struct tp_weight_form *form,
                               struct tp_err *err)
{
    json_t *expected = tp_descriptor_json(form->format, &form->settings, &form->search,
                                          &form->op, form->box, form->rank, err);
    if (!expected) {
        tp_err_hint(err, TP_HINT_DAMAGED);
        return err ? err->code : TP_E_INPUT;
    }
    json_t *params = json_object_get(json, "params");
    if (json_is_object(params) && json_object_size(params) == param_count(form))
        tp_json_set(expected, "params", json_incref(params));
    bool equal = json_equal(expected, json);
    json_decref(expected);
    if (!equal)
        tp_err_hint(err, TP_HINT_DAMAGED);
    return equal ? TP_OK
                 : tp_fail(err, TP_E_INPUT,
                           "stored descriptor of format %s contradicts the format (layout, element "
                           "or size differs)",
                           form->format->name);
}

/* The tensors of that rank hold what the layouts of that box reach. */
static enum tp_code check_sizes(const struct tp_weight_form *form, struct tp_err *err)
{
    for (uint32_t i = 0; i < form->op.outs; i++) {
        uint64_t shape[TP_MAX_RANK], bytes;
        uint64_t size = tp_dtype_bits(tp_format_dtype(form->format, &form->op, i)) / 8;
        uint32_t rank;
        if (!form->op.out[i].layout)
            continue;
        enum tp_code code = tp_format_shape(form->format, i, form->box, form->rank, shape,
                                            &rank, err);
        if (code || (code = tp_op_whole_bytes(&form->op, i, form->box, &bytes, err)))
            return code;
        for (uint32_t d = 0; d < rank; d++)
            if (!tp_mul_u64(&size, size, shape[d]))
                return tp_damaged(err, "a tensor does not fit 64 bits");
        if (size != bytes)
            return tp_damaged(err, "\"box\" and \"rank\" contradict each other");
    }
    return TP_OK;
}

/* ---- units --------------------------------------------------------------- */

/* A unit as its text states it; what is not stated is NULL or the number that no check lets
 * pass. */
struct stated_origin {
    const char *name;
    int64_t row, rows, step; /* step: 0 without one */
    int64_t expert; /* expert: -1 without one */
    int64_t shape[3];
    size_t rank;
    bool transposed;
    unsigned seen; /* keys, while scanning */
};

struct stated {
    const char *prefix, *id, *dtype;
    struct stated_origin *from;
    size_t count, capacity;
    unsigned seen; /* keys, while scanning */
};

/* The descriptors of one file: names, and the forms of its weights, but for their
 * dtype and separator. */
struct known {
    struct tp_names ids;
    struct tp_weight_form *forms; /* by number of the id */
    size_t capacity;
};

static enum tp_code make_origin(const struct stated_origin *from, bool flat,
                                struct tp_origin *origin, struct tp_err *err)
{
    size_t rank = from->rank + flat;
    if (!from->name || from->rows < 1 || from->row < 0 || rank < 2 || rank > 3 ||
        from->expert < -1 || from->step < 0 || from->step > 2)
        return tp_damaged(err, "\"from\" is wrong");
    origin->rank = (uint32_t)rank;
    origin->flat = flat;
    origin->expert = from->expert;
    origin->transposed = from->transposed;
    origin->row = (uint64_t)from->row;
    origin->rows = (uint64_t)from->rows;
    origin->step = (uint64_t)from->step;
    origin->shape[rank - 1] = 1; /* of a bias, which does not state it */
    for (uint32_t d = 0; d < from->rank; d++) {
        if (from->shape[d] < 0)
            return tp_damaged(err, "\"from\" has a wrong shape");
        origin->shape[d] = (uint64_t)from->shape[d];
    }
    uint64_t end;
    if (!tp_mul_u64(&end, origin->rows - 1, origin->step ? origin->step : 1) ||
        !tp_add_u64(&end, end, origin->row) || !tp_add_u64(&end, end, 1) ||
        end > origin->shape[origin->rank - 2])
        return tp_damaged(err, "\"from\" names rows outside its tensor");
    origin->name = tp_os_join(err, from->name, strlen(from->name), "");
    return origin->name ? TP_OK : TP_E_MEMORY;
}

/* Whether it is a stack of its model, not yet put apart, of which rows of gate and up are
 * interleaved. Of stacks that are named for it, "gate_up_proj_", the name says so. */
static bool is_interleaved(const struct stated *unit, const struct tp_weight_form *form,
                           const struct tp_weights *weights, const char *name)
{
    struct tp_stack_name stack;
    return form->rank == 3 && form->separator == '.' && unit->count == 1 &&
           unit->from[0].rank == 3 && tp_name_stack(&weights->facts, name, &stack) &&
           stack.is->interleaved;
}

/* The form of a weight that has its name: that of its descriptor, its own dtype and separator. */
static enum tp_code make_form(const struct stated *unit, const struct tp_weight_form *known,
                              struct tp_weights *weights, struct tp_weight *weight,
                              struct tp_err *err)
{
    struct tp_weight_form form;
    memcpy(&form, known, sizeof form); /* with what lies between the members */
    form.dtype = tp_dtype_parse(unit->dtype, strlen(unit->dtype));
    form.separator = form.format->is_bias ? '\0' : unit->prefix[strlen(unit->prefix) - 1];
    form.interleaved = is_interleaved(unit, &form, weights, weight->name);
    weight->form = tp_weights_form(weights, &form, err);
    return weight->form ? TP_OK : TP_E_MEMORY;
}

static enum tp_code make_weight(const struct stated *unit, const struct known *known,
                                struct tp_weights *weights, struct tp_weight *weight,
                                struct tp_err *err)
{
    int64_t number = unit->id && known->forms
                         ? tp_names_find(&known->ids, unit->id, strlen(unit->id))
                         : -1;
    if (!unit->prefix || number < 0 || !unit->dtype || !*unit->prefix)
        return tp_damaged(err, "a unit lacks \"prefix\", \"dtype\" or a \"desc\" that exists");
    const struct tp_weight_form *form = &known->forms[number];
    size_t separator = form->format->is_bias ? 0 : 1;
    weight->name =
        tp_store_join(&weights->names, unit->prefix, strlen(unit->prefix) - separator, "", err);
    weight->origins = (uint32_t)unit->count;
    weight->origin = tp_os_zalloc(unit->count + 1, sizeof *weight->origin, err);
    if (!weight->name || !weight->origin || make_form(unit, form, weights, weight, err))
        return TP_E_MEMORY;
    if (!tp_dtype_is_float(weight->form->dtype))
        return tp_damaged(err, "\"dtype\" of a unit is no float type");
    uint64_t rows = 0;
    for (size_t i = 0; i < unit->count; i++) {
        enum tp_code code = make_origin(&unit->from[i], weight->form->format->is_bias,
                                        &weight->origin[i], err);
        if (code)
            return code;
        if (!tp_add_u64(&rows, rows, weight->origin[i].rows))
            return tp_damaged(err, "\"from\" has too many rows");
    }
    const bool moved = weight->form->settings.rows.kind != TP_ORDER_SOURCE;
    if (moved && (unit->count != 1 || weight->origin->step > 1 ||
                  weight->origin->shape[weight->origin->rank - 2] != rows))
        return tp_damaged(err, "\"rows\" are those of several tensors, or of a part of one");
    return rows == weight->form->box.n
               ? TP_OK
               : tp_damaged(err, "\"from\" does not add up to N rows");
}

static enum tp_code add_weight(const struct stated *unit, const struct known *known,
                               struct tp_weights *weights, struct tp_err *err)
{
    void *grown = weights->items;
    enum tp_code code = tp_os_grow(&grown, &weights->capacity, weights->count + 1,
                                   sizeof *weights->items, err);
    weights->items = grown;
    if (code)
        return code;
    struct tp_weight *weight = &weights->items[weights->count++];
    memset(weight, 0, sizeof *weight);
    code = make_weight(unit, known, weights, weight, err);
    if (code)
        tp_err_tensor(err, unit->prefix);
    return code;
}

/* ---- units as describe.c writes them ------------------------------------- */

/* There is one unit for each weight, and a tree of 30,000 of them costs more than all
 * else that opening a checkpoint does. So they are scanned. These readers return false for
 * what is no such text; keys that are not known are no concern of theirs. */

/* Number of the next key in `keys`, or of the NULL at their end; -1 when it was seen before. */
static int scan_key(struct tp_json *json, const char *const keys[], unsigned *seen)
{
    struct tp_json_string key;
    uint64_t before = json->used;
    if (tp_json_key(json, &key))
        return -1;
    json->used = before;
    int i = 0;
    while (keys[i] && strcmp(key.data, keys[i]) != 0)
        i++;
    bool again = keys[i] && *seen & 1u << i;
    *seen |= 1u << i;
    return again ? -1 : i;
}

static bool scan_string(struct tp_json *json, const char **value)
{
    struct tp_json_string string;
    if (tp_json_string(json, &string))
        return false;
    *value = string.data;
    return true;
}

static bool scan_number(struct tp_json *json, int64_t *value)
{
    uint64_t number;
    if (tp_json_u64(json, &number) || number > INT64_MAX)
        return false;
    *value = (int64_t)number;
    return true;
}

/* A list or an object: `item` reads each entry. */
static bool scan_all(struct tp_json *json, const char brackets[2],
                     bool (*item)(struct tp_json *json, void *into), void *into)
{
    uint64_t count = 0;
    bool more = true, good = !tp_json_expect(json, brackets[0]);
    while (good && more) {
        good = !tp_json_next(json, brackets[1], &count, &more);
        if (good && more)
            good = item(json, into);
    }
    return good;
}

static bool scan_size(struct tp_json *json, void *into)
{
    struct stated_origin *origin = into;
    return origin->rank < 3 && scan_number(json, &origin->shape[origin->rank++]);
}

static bool scan_true(struct tp_json *json, bool *value)
{
    *value = tp_json_peek(json) == 't';
    return *value && !tp_json_skip(json);
}

static bool scan_origin_key(struct tp_json *json, void *into)
{
    static const char *const keys[] = {"name", "row", "rows", "shape", "expert", "transposed",
                                       "step", NULL};
    struct stated_origin *origin = into;
    switch (scan_key(json, keys, &origin->seen)) {
    case 0: return scan_string(json, &origin->name);
    case 1: return scan_number(json, &origin->row);
    case 2: return scan_number(json, &origin->rows);
    case 3: return scan_all(json, "[]", scan_size, origin);
    case 4: return scan_number(json, &origin->expert);
    case 5: return scan_true(json, &origin->transposed);
    case 6: return scan_number(json, &origin->step);
    case 7: return !tp_json_skip(json);
    default: return false;
    }
}

static bool scan_origin(struct tp_json *json, void *into)
{
    struct stated *unit = into;
    void *from = unit->from;
    bool full = tp_os_grow(&from, &unit->capacity, unit->count + 1, sizeof *unit->from, json->err);
    unit->from = from;
    if (full)
        return false;
    struct stated_origin *origin = &unit->from[unit->count++];
    *origin = (struct stated_origin){.expert = -1};
    return scan_all(json, "{}", scan_origin_key, origin);
}

static bool scan_unit_key(struct tp_json *json, void *into)
{
    static const char *const keys[] = {"prefix", "desc", "dtype", "from", NULL};
    struct stated *unit = into;
    switch (scan_key(json, keys, &unit->seen)) {
    case 0: return scan_string(json, &unit->prefix);
    case 1: return scan_string(json, &unit->id);
    case 2: return scan_string(json, &unit->dtype);
    case 3: return scan_all(json, "[]", scan_origin, unit);
    case 4: return !tp_json_skip(json);
    default: return false;
    }
}

static bool scan_unit(struct tp_json *json, struct stated *unit)
{
    *unit = (struct stated){.from = unit->from, .capacity = unit->capacity};
    return scan_all(json, "{}", scan_unit_key, unit);
}

static enum tp_code read_units(const char *text, const struct known *known,
                               struct tp_weights *weights, struct tp_err *err)
{
    struct tp_err why = {0};
    struct stated unit = {0};
    struct tp_json json = {.text = text, .size = strlen(text), .noun = "list of units",
                           .err = &why};
    uint64_t begun = 0;
    bool more = true;
    json.arena = tp_os_alloc(json.size + 1, err);
    enum tp_code code = json.arena ? TP_OK : TP_E_MEMORY;
    bool good = !code && !tp_json_expect(&json, '[');
    while (good && more && !code) {
        json.used = 0;
        good = !tp_json_next(&json, ']', &begun, &more) && (!more || scan_unit(&json, &unit));
        if (good && more)
            code = add_weight(&unit, known, weights, err);
    }
    if (!code && !(good && tp_json_peek(&json) == -1))
        code = why.code == TP_E_MEMORY ? tp_fail(err, why.code, "%s", why.what)
                                       : tp_damaged(err, "its units are not such a list");
    free(unit.from);
    free(json.arena);
    return code;
}

/* ---- all ----------------------------------------------------------------- */

/* Of a known format the text is exactly what it gives; of another one, which only some readers
 * take, the text is all that there is. */
static enum tp_code read_descriptor(const json_t *json, struct tp_weights *weights,
                                    struct tp_weight_form *form, struct tp_err *err)
{
    const char *name = json_string_value(json_object_get(json, "format"));
    enum tp_code code = TP_OK;
    if (name && weights->takes_unknown) {
        if ((code = tp_format_get(name, &form->format, err)))
            return code;
        if (!is_known_version(json, form->format))
            return tp_descriptor_unknown(json, weights, form, err);
    }
    if ((code = read_format(json, form, err)) || (code = check_text(json, form, err)))
        return code;
    return check_sizes(form, err);
}

/* Reads and checks the descriptors of a file. */
static enum tp_code read_known(const json_t *descriptors, struct tp_weights *weights,
                               struct known *known, struct tp_err *err)
{
    const char *id;
    json_t *descriptor;
    json_object_foreach((json_t *)descriptors, id, descriptor)
    {
        uint32_t number;
        void *forms = known->forms;
        enum tp_code code = tp_os_grow(&forms, &known->capacity, known->ids.count + 1,
                                       sizeof *known->forms, err);
        known->forms = forms;
        if (!code)
            code = tp_names_add(&known->ids, id, strlen(id), &number, err);
        if (code)
            return code;
        struct tp_weight_form *form = &known->forms[number];
        memset(form, 0, sizeof *form);
        if ((code = read_descriptor(descriptor, weights, form, err)))
            return code;
    }
    return TP_OK;
}

enum tp_code tp_descriptors_version(const char *version, struct tp_err *err)
{
    if (version && strcmp(version, TP_DESCRIPTOR_VERSION) == 0)
        return TP_OK;
    tp_err_hint(err, version ? TP_HINT_NEWER
                             : "the file is damaged: get it again, or convert the source again");
    return version ? tp_fail(err, TP_E_UNSUPPORTED, "its __metadata__ says \"" TP_META_VERSION
                             "\": \"%.40s\", and only version " TP_DESCRIPTOR_VERSION " is known",
                             version)
                   : tp_fail(err, TP_E_INPUT, "its __metadata__ has descriptors and no \""
                             TP_META_VERSION "\", which is their version");
}

enum tp_code tp_descriptors_parse(const char *descriptors_text, const char *units_text,
                                  struct tp_weights *weights, struct tp_err *err)
{
    struct known known = {0};
    json_t *descriptors = tp_json_load(descriptors_text, strlen(descriptors_text), NULL);
    enum tp_code code = json_is_object(descriptors)
                            ? read_known(descriptors, weights, &known, err)
                            : tp_damaged(err, "not valid JSON");
    if (code == TP_OK)
        code = read_units(units_text, &known, weights, err);
    tp_names_close(&known.ids);
    free(known.forms);
    json_decref(descriptors);
    return code;
}
