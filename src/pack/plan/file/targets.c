/* Targets of config_groups. One group is for "Linear", and by name for the heads and embeddings in
 * it, which are of other classes. Several have expressions, from the segment before a number on,
 * with any number in the place of each: readers call what comes before otherwise than files do,
 * and one name for each expert would make config.json megabytes.
 *
 * Invariant: an expression of one group matches no name of another: where it would, names stand
 * there, or for experts the expressions of their layer.
 */
#include "pack/plan/file/targets.h"

#include "pack/model/model_names.h"
#include "pack/os/os.h"
#include "pack/plan/file/renamed.h"
#include "pack/text/json_tree.h"
#include "pack/text/name_set.h"
#include "pack/text/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct owner {
    uint8_t group; /* TP_NO_GROUP: it stands for names of several */
    bool listed;
};
struct targets {
    const struct tp_plan *plan;
    const uint8_t *group;
    json_t **list;
    struct tp_names seen; /* expressions, by number */
    struct owner *owner;  /* of each */
    size_t capacity;
    bool headed[TP_MAX_GROUPS], embeds[TP_MAX_GROUPS]; /* the words for them are listed */
    struct tp_store store; /* of the expressions */
    struct tp_text text;   /* of the one that is being made */
    struct tp_err *err;
};

static const struct tp_unit *unit_at(const struct targets *t, size_t u)
{
    size_t own = t->plan->unit_count;
    return u < own ? &t->plan->units[u] : &t->plan->kept_units[u - own];
}

/* Appends the name, quoted, with expressions for its numbers where `any`. */
static enum tp_code add_quoted(struct targets *t, const char *name, size_t size, bool any)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < size && code == TP_OK; i++) {
        bool begins = i == 0 || name[i - 1] == '.';
        size_t digits = 0;
        while (begins && any && i + digits < size && isdigit((unsigned char)name[i + digits]))
            digits++;
        if (digits && (i + digits == size || name[i + digits] == '.')) {
            code = tp_text_add_word(&t->text, "[0-9]+", t->err);
            i += digits - 1;
        } else if (isalnum((unsigned char)name[i]) || name[i] == '_' || name[i] == '-' ||
                   (unsigned char)name[i] >= 128) {
            code = tp_text_add(&t->text, name + i, 1, t->err);
        } else {
            code = tp_text_addf(&t->text, t->err, name[i] == '.' ? "[%c]" : "\\%c", name[i]);
        }
    }
    return code;
}

/* Where the next segment begins that a number follows, or NULL. */
static const char *before_number(const char *at)
{
    for (const char *dot; (dot = strchr(at, '.')); at = dot + 1)
        if (isdigit((unsigned char)dot[1]))
            return at;
    return NULL;
}

static enum tp_code any_prefix(struct targets *t)
{
    t->text.size = 0;
    return tp_text_add_word(&t->text, "re:(.*[.])?", t->err);
}

/* The expression for all names with the end that begins at `at`. */
static enum tp_code make_end(struct targets *t, const char *at)
{
    enum tp_code code = any_prefix(t);
    if (code == TP_OK)
        code = add_quoted(t, at, strlen(at), true);
    return code ? code : tp_text_add_word(&t->text, "$", t->err);
}

/* The expression for experts: all, or those of the layer. Readers call the module that has them
 * otherwise than files do, too. */
static enum tp_code make_experts(struct targets *t, const char *name, size_t prefix, bool layer)
{
    const char *at = before_number(name);
    enum tp_code code = any_prefix(t);
    if (code == TP_OK && layer && at && at < name + prefix) {
        size_t segment = strcspn(at, ".") + 1;
        code = add_quoted(t, at, segment + strcspn(at + segment, "."), false);
        if (code == TP_OK)
            code = tp_text_add_word(&t->text, "[.](.*[.])?", t->err);
    }
    return code ? code : tp_text_add_word(&t->text, "experts[.][0-9]+[.].*", t->err);
}

/* The entry in `text` stands for a name of the group. */
static enum tp_code mark(struct targets *t, uint8_t group)
{
    const size_t seen = t->seen.count;
    uint32_t number;
    enum tp_code code = tp_names_number(&t->seen, &t->store, t->text.data, t->text.size, &t->owner,
                                        &t->capacity, sizeof *t->owner, &number, t->err);
    if (code == TP_OK && (number == seen || t->owner[number].group != group))
        t->owner[number].group = number == seen ? group : TP_NO_GROUP;
    return code;
}

/* Marks and lists the names that readers give a unit of the group. */
struct renamed_unit {
    struct targets *t;
    uint8_t group;
};

static enum tp_code mark_ends(struct targets *t, uint8_t group, const char *name)
{
    enum tp_code code = TP_OK;
    for (const char *at = name; code == TP_OK && (at = before_number(at));
         at += strcspn(at, ".") + 1)
        if ((code = make_end(t, at)) == TP_OK)
            code = mark(t, group);
    return code;
}

static enum tp_code mark_renamed(void *state, const char *name, size_t size)
{
    const struct renamed_unit *unit = state;
    (void)size;
    return mark_ends(unit->t, unit->group, name);
}

static enum tp_code mark_unit(struct targets *t, size_t u)
{
    const char *name = unit_at(t, u)->name;
    struct tp_expert_name expert;
    enum tp_code code = TP_OK;
    if (tp_name_expert(&t->plan->weights->facts, name, &expert)) {
        code = make_experts(t, name, expert.prefix, false);
        if (code == TP_OK && (code = mark(t, t->group[u])) == TP_OK)
            code = make_experts(t, name, expert.prefix, true);
        return code ? code : mark(t, t->group[u]);
    }
    struct renamed_unit unit = {.t = t, .group = t->group[u]};
    code = mark_ends(t, t->group[u], name);
    return code ? code
                : tp_each_renamed(&t->plan->weights->facts, name, strlen(name), mark_renamed,
                                  &unit, t->err);
}

/* Lists the expression in `text`, if it stands for names of the group alone. */
static bool list_expression(struct targets *t, uint8_t group)
{
    int64_t found = tp_names_find(&t->seen, t->text.data, t->text.size);
    if (found < 0 || t->owner[found].group != group)
        return false;
    if (!t->owner[found].listed)
        tp_json_append(t->list[group], json_stringn(t->text.data, t->text.size));
    t->owner[found].listed = true;
    return true;
}

/* Under its own name; of a head, under that which readers give it, too, and of embeddings, which
 * they may make without a name, by the class. */
static void list_name(struct targets *t, uint8_t group, const struct tp_unit *unit)
{
    static const char head[] = "lm_head";
    tp_json_append(t->list[group], json_string(unit->name));
    if (unit->use == TP_USE_EMBEDDING && !t->embeds[group]) {
        t->embeds[group] = true;
        tp_json_append(t->list[group], json_string("Embedding"));
    }
    if (unit->use != TP_USE_HEAD || t->headed[group])
        return;
    t->headed[group] = true;
    if (strcmp(unit->name, head) != 0)
        tp_json_append(t->list[group], json_string(head));
    tp_json_append(t->list[group], json_string("re:.*[.]lm_head$"));
}

/* An expression, where it stands for names of the group alone, else the name. */
static enum tp_code list_renamed(void *state, const char *name, size_t size)
{
    const struct renamed_unit *unit = state;
    struct targets *t = unit->t;
    const char *at = before_number(name);
    enum tp_code code = at ? make_end(t, at) : TP_OK;
    if (code == TP_OK && !(at && list_expression(t, unit->group)))
        tp_json_append(t->list[unit->group], json_stringn(name, size));
    return code;
}

static enum tp_code list_unit(struct targets *t, size_t u)
{
    const struct tp_model_facts *facts = &t->plan->weights->facts;
    const struct tp_unit *unit = unit_at(t, u);
    const char *name = unit->name, *at = before_number(name);
    struct tp_expert_name expert;
    enum tp_code code = TP_OK;
    const bool of_experts = tp_name_expert(facts, name, &expert);
    bool listed = false;
    if (of_experts)
        for (int layer = 0; layer < 2 && !listed && code == TP_OK; layer++) {
            code = make_experts(t, name, expert.prefix, layer);
            listed = code == TP_OK && list_expression(t, t->group[u]);
        }
    else if (at && unit->use != TP_USE_HEAD && (code = make_end(t, at)) == TP_OK)
        listed = list_expression(t, t->group[u]);
    if (!listed && code == TP_OK)
        list_name(t, t->group[u], unit);
    struct renamed_unit renamed = {.t = t, .group = t->group[u]};
    return code || of_experts
               ? code
               : tp_each_renamed(facts, name, strlen(name), list_renamed, &renamed, t->err);
}

/* The one group is for "Linear", which heads and embeddings are not. */
static void list_class(struct targets *t, size_t count)
{
    tp_json_append(t->list[0], json_string("Linear"));
    for (size_t u = 0; u < count; u++) {
        const struct tp_unit *unit = unit_at(t, u);
        if (t->group[u] != TP_NO_GROUP &&
            (unit->use == TP_USE_HEAD || unit->use == TP_USE_EMBEDDING))
            list_name(t, 0, unit);
    }
}

enum tp_code tp_targets(const struct tp_plan *plan, const uint8_t *group, size_t groups,
                        json_t *list[TP_MAX_GROUPS], struct tp_err *err)
{
    struct targets t = {.plan = plan, .group = group, .list = list, .err = err};
    size_t count = plan->unit_count + plan->kept_unit_count;
    enum tp_code code = TP_OK;
    for (size_t g = 0; g < groups; g++)
        list[g] = json_array();
    if (groups == 1)
        list_class(&t, count);
    for (size_t u = 0; u < count && groups > 1 && code == TP_OK; u++)
        if (group[u] != TP_NO_GROUP)
            code = mark_unit(&t, u);
    for (size_t u = 0; u < count && groups > 1 && code == TP_OK; u++)
        if (group[u] != TP_NO_GROUP)
            code = list_unit(&t, u);
    for (size_t g = 0; g < groups && code; g++) {
        json_decref(list[g]);
        list[g] = NULL;
    }
    free(t.owner);
    tp_names_close(&t.seen);
    tp_store_close(&t.store);
    tp_text_free(&t.text);
    return code;
}
