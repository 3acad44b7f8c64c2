/* From config.json to the files of models, and from sizes to the layout of a stack.
 *
 * config.json is read key by key, as Python writes things into it that are no JSON. A model of
 * several parts keeps that of its text model in an object of its own. Invariant: an object is
 * checked before it is asked, so that but for a lack of memory a key that is there is found.
 */
#include "pack/model/model_facts.h"

#include "pack/os/os.h"
#include "pack/text/json_edit.h"
#include "pack/text/json_tree.h"
#include "pack/text/json_scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where text models are described, from the outside. */
static const char *const inner_keys[] = {"text_config", "llm_config", "language_config",
                                         "thinker_config", NULL};

static struct tp_json_span value_of(struct tp_json_span object, const char *key)
{
    struct tp_json_span value = {0};
    enum tp_code code = TP_OK;
    if (object.data)
        code = tp_json_get_key(object.data, object.size, key, &value, NULL);
    if (code == TP_E_MEMORY)
        tp_json_no_memory(); /* who asks for the facts asks for it, too */
    if (code)
        value = (struct tp_json_span){0};
    return value;
}

static enum tp_code check_object(const char *config, struct tp_json_span object,
                                 struct tp_err *err)
{
    struct tp_json_span ignored;
    return object.data ? tp_json_get_inner(config, object, "", &ignored, err) : TP_OK;
}

static struct tp_json_span inner_of(struct tp_json_span object)
{
    struct tp_json_span inner = {0};
    for (size_t i = 0; inner_keys[i] && !inner.data; i++) {
        inner = value_of(object, inner_keys[i]);
        if (inner.data && *inner.data != '{')
            inner = (struct tp_json_span){0};
    }
    return inner;
}

/* A string or a number as jansson has it, with escapes and in any spelling; NULL: none, or one that
 * is longer than any word or size that is looked for. */
static json_t *load(struct tp_json_span value)
{
    enum { LONGEST = 1024 }; /* an escape has six bytes */
    static const char begin[] = "{\"v\":";
    const size_t before = sizeof begin - 1;
    json_t *object = NULL;
    if (!value.data || value.size > LONGEST || !strchr("\"-0123456789", *value.data))
        return NULL;
    char *text = tp_os.malloc(before + value.size + 1);
    if (text) {
        memcpy(text, begin, before);
        memcpy(text + before, value.data, value.size);
        text[before + value.size] = '}';
    }
    if (!text ||
        tp_json_load_python(text, before + value.size + 1, &object, NULL) == TP_E_MEMORY)
        tp_json_no_memory();
    free(text);
    json_t *found = json_incref(json_object_get(object, "v"));
    json_decref(object);
    return found;
}

/* The first item of a list, if it is a string, however long the list; of what is none, itself. */
static struct tp_json_span first_of(struct tp_json_span list)
{
    size_t at = 1;
    if (!list.data || *list.data != '[')
        return list;
    while (at < list.size && strchr(" \t\r\n", list.data[at]))
        at++;
    if (at == list.size || list.data[at] != '"')
        return (struct tp_json_span){0};
    return (struct tp_json_span){list.data + at,
                                 tp_json_string_length(list.data + at, list.size - at)};
}

/* What is no string, or does not fit, is an empty one. */
static void copy_string(const json_t *value, char *text, size_t size)
{
    const char *string = json_string_value(value);
    size_t length = json_string_length(value);
    bool fits = string && length < size && strlen(string) == length;
    memcpy(text, fits ? string : "", fits ? length + 1 : 1);
}

static uint64_t number_of(struct tp_json_span object, const char *key)
{
    json_t *value = load(value_of(object, key));
    double number = json_number_value(value); /* far below 2^53 */
    json_decref(value);
    return number > 0 && number < 1e12 && number == floor(number) ? (uint64_t)number : 0;
}

/* By model_type, which `type` becomes, or by the first of "architectures". */
static enum tp_code model_of(struct tp_json_span object, char type[TP_FACTS_TYPE],
                             const struct tp_model **model, struct tp_err *err)
{
    char first[128];
    json_t *stated = load(value_of(object, "model_type"));
    json_t *architecture = load(first_of(value_of(object, "architectures")));
    copy_string(stated, type, TP_FACTS_TYPE);
    copy_string(architecture, first, sizeof first);
    json_decref(stated);
    json_decref(architecture);
    enum tp_code code = tp_model_of(type, false, model, err);
    return code || *model ? code : tp_model_of(first, true, model, err);
}

static void add_model(struct tp_model_facts *facts, const struct tp_model *model)
{
    for (size_t m = 0; m < facts->count; m++)
        if (facts->model[m] == model)
            return;
    if (model && facts->count < TP_FACTS_MODELS)
        facts->model[facts->count++] = model;
}

/* The first of the keys that has a number, in the text model or beside it. */
static uint64_t size_of(const struct tp_json_span objects[3], const char *const *keys,
                        size_t count)
{
    for (size_t k = 0; k < count; k++)
        for (size_t o = 3; o-- > 0;) {
            uint64_t number = number_of(objects[o], keys[k]);
            if (number)
                return number;
        }
    return 0;
}

/* Whether config.json says `value` of the key: 't' for true, 'f' for false; of no key it does. */
static bool says(const struct tp_json_span objects[3], const char *key, char value)
{
    bool said = !key;
    for (size_t o = 0; o < 3 && !said; o++) {
        struct tp_json_span span = value_of(objects[o], key);
        said = span.data && *span.data == value;
    }
    return said;
}

static void read_rows(const struct tp_json_span objects[3], const struct tp_model_rows *rows,
                      struct tp_model_facts *facts)
{
    if (!says(objects, rows->when, 't') || !says(objects, rows->unless, 'f') ||
        facts->row_orders == TP_FACTS_ROWS)
        return;
    facts->rows[facts->row_orders++] = (struct tp_rows_of){
        rows, size_of(objects, rows->heads, rows->head_keys),
        rows->group_keys ? size_of(objects, rows->group, rows->group_keys) : 1};
}

static void read_sizes(const struct tp_json_span objects[3], struct tp_model_facts *facts)
{
    static const char *const heads[] = {"num_attention_heads", "n_head", "n_heads"};
    static const char *const kv_heads[] = {"num_key_value_heads", "num_kv_heads", "n_head_kv"};
    for (size_t m = 0; m < facts->count; m++) {
        const struct tp_model *model = facts->model[m];
        if (!facts->hidden)
            facts->hidden = size_of(objects, model->hidden, model->hiddens);
        if (!facts->expert)
            facts->expert = size_of(objects, model->expert, model->experts);
    }
    facts->heads = size_of(objects, heads, sizeof heads / sizeof *heads);
    facts->kv_heads = size_of(objects, kv_heads, sizeof kv_heads / sizeof *kv_heads);
    if (!facts->kv_heads)
        facts->kv_heads = facts->heads;
    for (size_t m = 0; m < facts->count; m++)
        for (size_t i = 0; i < facts->model[m]->row_orders; i++)
            read_rows(objects, &facts->model[m]->rows[i], facts);
}

enum tp_code tp_model_facts_of(const char *config, size_t size,
                               const struct tp_model_choice *choice,
                               struct tp_model_facts *facts, struct tp_err *err)
{
    struct tp_json_span objects[3] = {{config, size}};
    static const size_t order[] = {0, 2, 1}; /* the innermost before the one around it */
    const struct tp_model *own = choice ? choice->own : NULL, *found;
    char inner[TP_FACTS_TYPE];
    *facts = (struct tp_model_facts){.layout = choice ? choice->layout : TP_STACK_BY_SIZES,
                                      .described = config != NULL};
    enum tp_code code = check_object(config, objects[0], err);
    for (size_t o = 1; o < 3 && code == TP_OK; o++) {
        objects[o] = inner_of(objects[o - 1]);
        code = check_object(config, objects[o], err);
    }
    for (size_t i = 0; i < 3 && code == TP_OK; i++) {
        const struct tp_json_span object = objects[order[i]];
        if (i > 0 && (own || !object.data))
            continue;
        code = model_of(object, i ? inner : facts->type, &found, err);
        add_model(facts, own ? own : found);
        if (i == 0)
            facts->known = facts->count > 0;
    }
    if (code == TP_OK)
        code = tp_model_get(TP_MODEL_DEFAULT, &found, err);
    if (code)
        return code;
    add_model(facts, found);
    read_sizes(objects, facts);
    return TP_OK;
}

/* The layout that the two stacks of the same experts say together: gate_up has 2 I rows of H,
 * down H rows of I. Of [E,N,K] and [E,K,N] it is at most one. */
static enum tp_stack_layout by_pair(const uint64_t gate_up[2], const uint64_t down[2])
{
    if (gate_up[0] == 2 * down[1] && gate_up[1] == down[0])
        return TP_STACK_ENK;
    if (gate_up[1] == 2 * down[0] && gate_up[0] == down[1])
        return TP_STACK_EKN;
    return TP_STACK_BY_SIZES;
}

static bool fits(uint64_t n, uint64_t k, uint64_t want_n, uint64_t want_k)
{
    return (!want_n || n == want_n) && (!want_k || k == want_k);
}

static enum tp_stack_layout by_size(const uint64_t is[2], uint64_t n, uint64_t k)
{
    bool enk = fits(is[0], is[1], n, k), ekn = fits(is[1], is[0], n, k);
    return enk == ekn ? TP_STACK_BY_SIZES : enk ? TP_STACK_ENK : TP_STACK_EKN;
}

/* With the size of an expert, and where that is not of these experts, without. */
static enum tp_stack_layout by_config(const struct tp_model_facts *facts, bool gate_up,
                                      const uint64_t is[2])
{
    uint64_t hidden = facts->hidden, expert = facts->expert;
    enum tp_stack_layout layout = gate_up ? by_size(is, 2 * expert, hidden)
                                          : by_size(is, hidden, expert);
    if (layout == TP_STACK_BY_SIZES)
        layout = gate_up ? by_size(is, 0, hidden) : by_size(is, hidden, 0);
    return layout;
}

enum tp_stack_layout tp_stack_layout_of(const struct tp_model_facts *facts,
                                        const struct tp_model_stack *stack, const uint64_t is[2],
                                        const uint64_t other[2])
{
    if (facts->layout != TP_STACK_BY_SIZES)
        return facts->layout;
    enum tp_stack_layout found = TP_STACK_BY_SIZES;
    if (other[0])
        found = stack->gate_up ? by_pair(is, other) : by_pair(other, is);
    if (found == TP_STACK_BY_SIZES)
        found = by_config(facts, stack->gate_up, is);
    if (found == TP_STACK_BY_SIZES)
        return stack->layout || facts->described ? stack->layout : TP_STACK_ENK;
    return stack->layout == TP_STACK_BY_SIZES || stack->layout == found ? found
                                                                        : TP_STACK_BY_SIZES;
}
