/* Sets by the names of weights; see weight_sets.h. */
#include "pack/recipe/weight_sets.h"

#include "base/num.h"
#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/text/name_set.h"
#include "pack/text/text.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 2048 };

/* What is known of a set while its weights are found. */
struct found {
    uint32_t first;  /* weight and one */
    size_t begins, ends; /* how much of the beginning and of the end all names have in common */
};

struct finding {
    const struct tp_checkpoint *ckpt;
    const struct tp_weights *weights;
    const bool *wanted;
    struct tp_weight_sets *sets;
    struct tp_names keys;
    struct tp_store store;
    struct found *found;
    size_t capacity;
    struct tp_err *err;
};

static const char *name_of(const struct finding *f, uint32_t w)
{
    return f->ckpt->tensors[f->weights->items[w].tensor[0]].name; /* the one that patterns see */
}

/* The name of the weight's set; *experts says whether it is one of experts, of which that is the
 * beginning of the weight's name. */
static const char *key_of(const struct finding *f, uint32_t w, char key[MAX_NAME], bool *experts)
{
    const struct tp_model_facts *facts = &f->weights->facts;
    const char *name = name_of(f, w);
    struct tp_expert_name expert;
    struct tp_stack_name stack;
    size_t prefix = 0;
    if (tp_name_expert(facts, name, &expert))
        prefix = expert.prefix;
    else if (tp_name_stack(facts, name, &stack))
        prefix = stack.prefix;
    *experts = prefix && prefix < MAX_NAME;
    if (!*experts)
        return tp_name_fused(facts, name, key, MAX_NAME, NULL) ? key : f->weights->items[w].name;
    memcpy(key, name, prefix);
    key[prefix] = '\0';
    return key;
}

/* The first number between dots: "model.layers.12.mlp" is of layer 12. */
static int64_t layer_of(const char *name)
{
    for (const char *at = strchr(name, '.'); at; at = strchr(at + 1, '.'))
        if (at[1] >= '0' && at[1] <= '9')
            return (int64_t)strtoul(at + 1, NULL, 10);
    return -1;
}

static size_t common(const char *a, const char *b)
{
    size_t size = 0;
    while (a[size] && a[size] == b[size])
        size++;
    return size;
}

static size_t common_end(const char *a, const char *b)
{
    size_t x = strlen(a), y = strlen(b), size = 0;
    while (size < x && size < y && a[x - 1 - size] == b[y - 1 - size])
        size++;
    return size;
}

static void compare_names(const char *first, const char *name, struct found *found)
{
    const size_t shorter = tp_min_u64(strlen(first), strlen(name));
    found->begins = tp_min_u64(found->begins, common(first, name));
    found->ends = tp_min_u64(found->ends, common_end(first, name));
    found->ends = tp_min_u64(found->ends, shorter - found->begins); /* they do not overlap */
}

static enum tp_code new_set(struct finding *f, const char *key, bool experts)
{
    struct tp_weight_set *set = &f->sets->item[f->sets->count];
    *set = (struct tp_weight_set){.experts = experts, .layer = layer_of(key)};
    set->name = tp_os_join(f->err, key, strlen(key), "");
    f->sets->count++;
    return set->name ? TP_OK : TP_E_MEMORY;
}

static enum tp_code add_weight(struct finding *f, uint32_t w)
{
    char buffer[MAX_NAME];
    bool experts;
    uint32_t number;
    const struct tp_box3 *box = &f->weights->items[w].form->box;
    const char *key = key_of(f, w, buffer, &experts);
    enum tp_code code = tp_names_number(&f->keys, &f->store, key, strlen(key), &f->found,
                                        &f->capacity, sizeof *f->found, &number, f->err);
    if (code == TP_OK && !f->found[number].first) {
        const char *name = name_of(f, w);
        f->found[number] = (struct found){w + 1, strlen(name), strlen(name)};
        code = new_set(f, key, experts);
    }
    if (code)
        return code;
    const char *first = name_of(f, f->found[number].first - 1);
    struct found *found = &f->found[number];
    struct tp_weight_set *set = &f->sets->item[number];
    if (set->weights)
        compare_names(first, name_of(f, w), found);
    set->values += box->e * box->n * box->k;
    set->weights++;
    f->sets->of[w] = number;
    return TP_OK;
}

/* ---- patterns ------------------------------------------------------------------------ */

/* Text that a regular expression takes as it is. */
static enum tp_code add_escaped(struct tp_text *text, const char *from, size_t size,
                                struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < size && code == TP_OK; i++) {
        if (strchr(".^$*+?()[]{}|\\", from[i]))
            code = tp_text_add(text, "\\", 1, err);
        if (code == TP_OK)
            code = tp_text_add(text, from + i, 1, err);
    }
    return code;
}

/* What the names of the set's weights have apart, as "(q|k|v)". */
static enum tp_code add_parts(struct finding *f, uint32_t number, struct tp_text *text)
{
    const struct found *found = &f->found[number];
    const char *before = "(";
    enum tp_code code = TP_OK;
    for (uint32_t w = found->first - 1; w < f->weights->count && code == TP_OK; w++) {
        const char *name = name_of(f, w);
        if (f->sets->of[w] != number)
            continue;
        if ((code = tp_text_add_word(text, before, f->err)) == TP_OK)
            code = add_escaped(text, name + found->begins,
                               strlen(name) - found->ends - found->begins, f->err);
        before = "|";
    }
    return code ? code : tp_text_add_word(text, ")", f->err);
}

static enum tp_code make_pattern(struct finding *f, uint32_t number)
{
    struct tp_weight_set *set = &f->sets->item[number];
    struct found *found = &f->found[number];
    const char *first = name_of(f, found->first - 1);
    const size_t size = strlen(first);
    struct tp_text text = {0};
    enum tp_code code = tp_text_add(&text, "^", 1, f->err);
    if (set->experts) {
        code = code ? code : add_escaped(&text, set->name, strlen(set->name), f->err);
        code = code ? code : tp_text_add_word(&text, "\\.", f->err);
    } else {
        if (set->weights == 1)
            found->ends = 0;
        code = code ? code : add_escaped(&text, first, found->begins, f->err);
        if (code == TP_OK && set->weights > 1)
            code = add_parts(f, number, &text);
        code = code ? code : add_escaped(&text, first + size - found->ends, found->ends, f->err);
        code = code ? code : tp_text_add(&text, "$", 1, f->err);
    }
    set->pattern = text.data;
    return code;
}

/* ---- order --------------------------------------------------------------------------- */

struct place {
    int64_t layer;
    uint32_t number;
};

static int by_layer(const void *left, const void *right)
{
    const struct place *a = left, *b = right;
    int by = (a->layer > b->layer) - (a->layer < b->layer);
    return by ? by : (a->number > b->number) - (a->number < b->number);
}

/* Layers lie in files by the letters of their numbers. */
static enum tp_code sort(struct finding *f)
{
    struct tp_weight_sets *sets = f->sets;
    struct place *place = tp_os_zalloc(sets->count + 1, sizeof *place, f->err);
    uint32_t *now = place ? tp_os_zalloc(sets->count + 1, sizeof *now, f->err) : NULL;
    struct tp_weight_set *item =
        now ? tp_os_zalloc(sets->count + 1, sizeof *item, f->err) : NULL;
    for (uint32_t s = 0; item && s < sets->count; s++)
        place[s] = (struct place){sets->item[s].layer, s};
    if (item)
        qsort(place, sets->count, sizeof *place, by_layer);
    for (uint32_t s = 0; item && s < sets->count; s++) {
        item[s] = sets->item[place[s].number];
        now[place[s].number] = s;
    }
    for (size_t w = 0; item && w < f->weights->count; w++)
        if (sets->of[w] != TP_NO_SET)
            sets->of[w] = now[sets->of[w]];
    if (item) {
        free(sets->item);
        sets->item = item;
    }
    free(place);
    free(now);
    return item ? TP_OK : TP_E_MEMORY;
}

/* ---- */

static enum tp_code make_patterns(struct finding *f)
{
    enum tp_code code = TP_OK;
    for (uint32_t s = 0; f->found && s < f->sets->count && code == TP_OK; s++)
        code = make_pattern(f, s);
    return code;
}

static enum tp_code find_all(struct finding *f)
{
    size_t wanted = 0;
    for (size_t w = 0; w < f->weights->count; w++)
        wanted += f->wanted[w];
    f->sets->item = tp_os_zalloc(wanted + 1, sizeof *f->sets->item, f->err);
    f->sets->of = f->sets->item
                      ? tp_os_zalloc(f->weights->count + 1, sizeof *f->sets->of, f->err) : NULL;
    enum tp_code code = f->sets->of ? TP_OK : TP_E_MEMORY;
    for (uint32_t w = 0; w < f->weights->count && code == TP_OK; w++) {
        f->sets->of[w] = TP_NO_SET;
        if (f->wanted[w])
            code = add_weight(f, w);
    }
    if (code == TP_OK)
        code = make_patterns(f);
    return code ? code : sort(f);
}

enum tp_code tp_weight_sets_find(const struct tp_checkpoint *ckpt,
                                 const struct tp_weights *weights, const bool *wanted,
                                 struct tp_weight_sets *sets, struct tp_err *err)
{
    struct finding f = {.ckpt = ckpt, .weights = weights, .wanted = wanted, .sets = sets, .err = err};
    enum tp_code code = find_all(&f);
    tp_names_close(&f.keys);
    tp_store_close(&f.store);
    free(f.found);
    return code;
}

void tp_weight_sets_close(struct tp_weight_sets *sets)
{
    for (size_t i = 0; i < sets->count; i++) {
        free(sets->item[i].name);
        free(sets->item[i].pattern);
    }
    free(sets->item);
    free(sets->of);
    *sets = (struct tp_weight_sets){0};
}
