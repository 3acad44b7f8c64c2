/* Lists of modules that the source's config says are not quantized.
 *
 * Parsed once for a plan. Every run of a name's components is looked up in a hash set,
 * which has the exact names, of which there may be thousands; names with wildcards and
 * regular expressions are tried one by one. Invariant: looking up is linear in a name's
 * length, trying a wildcard in both lengths, and the steps of all that is tried are
 * limited (pattern.h).
 */
#include "pack/source/source_ignore.h"

#include "pack/os/os.h"
#include "pack/source/source_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUN = 32 }; /* components of a run that is looked up, at most */

static enum tp_code add_regex(struct tp_source_ignore *ignore, const char *regex,
                              struct tp_pattern_origin origin, struct tp_err *err)
{
    void *items = ignore->regex;
    enum tp_code code = tp_os_grow(&items, &ignore->regex_capacity, ignore->regexes + 1,
                                   sizeof *ignore->regex, err);
    ignore->regex = items;
    if (!code)
        code = tp_pattern_compile(&ignore->matcher, regex, TP_PATTERN_MATCH, origin,
                                  &ignore->regex[ignore->regexes], err);
    ignore->regexes += !code;
    return code;
}

static enum tp_code add_wild(struct tp_source_ignore *ignore, const char *pattern,
                             struct tp_pattern_origin origin, struct tp_err *err)
{
    void *items = ignore->wild;
    enum tp_code code = tp_os_grow(&items, &ignore->wild_capacity, ignore->wilds + 1,
                                   sizeof *ignore->wild, err);
    ignore->wild = items;
    size_t size = strlen(pattern);
    char *bounded = code ? NULL : tp_store_text(&ignore->store, size + 3, err);
    if (!bounded)
        return TP_E_MEMORY;
    *bounded = '.';
    memcpy(bounded + 1, pattern, size);
    memcpy(bounded + 1 + size, ".", 2);
    ignore->wild[ignore->wilds++] = (struct tp_ignore_wild){pattern, bounded, origin};
    return TP_OK;
}

static bool is_short(const char *name)
{
    size_t components = 1;
    for (const char *dot = strchr(name, '.'); dot && components <= RUN; dot = strchr(dot + 1, '.'))
        components++;
    return components <= RUN;
}

/* The texts are kept, and not the tree that they are read from: it takes many times as much. */
static enum tp_code add_entry(struct tp_source_ignore *ignore, const char *text,
                              struct tp_pattern_origin origin, struct tp_err *err)
{
    if (!*text)
        return TP_OK;
    const char *entry = tp_store_join(&ignore->store, text, strlen(text), "", err);
    if (!entry)
        return TP_E_MEMORY;
    uint32_t number;
    if (strncmp(entry, "re:", 3) == 0)
        return add_regex(ignore, entry + 3, origin, err);
    return strchr(entry, '*') || !is_short(entry)
               ? add_wild(ignore, entry, origin, err)
               : tp_names_add(&ignore->exact, entry, strlen(entry), &number, err);
}

/* Passed over, what it was meant to keep would be quantized. */
static enum tp_code not_names(const char *place, size_t index, bool list, struct tp_err *err)
{
    tp_err_hint(err, "correct config.json: it has to be a list of modules that are not quantized");
    return list ? tp_fail(err, TP_E_INPUT, "%s[%zu] is no text", place, index)
                : tp_fail(err, TP_E_INPUT, "%s is no list", place);
}

static enum tp_code add_list(struct tp_source_ignore *ignore, const json_t *list,
                             const char *place, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    if (list && !json_is_array(list) && !json_is_null(list))
        return not_names(place, 0, false, err);
    for (size_t i = 0; i < json_array_size(list) && code == TP_OK; i++) {
        const char *entry = json_string_value(json_array_get(list, i));
        struct tp_pattern_origin origin = {place, (long)i, TP_E_INPUT};
        code = entry ? add_entry(ignore, entry, origin, err) : not_names(place, i, true, err);
    }
    return code;
}

/* The keys of an object: "-:REGEX" of some, modules with a number of bits of others. */
static enum tp_code add_members(struct tp_source_ignore *ignore, json_t *object,
                                const struct tp_quantizer_list *list, const char *place,
                                struct tp_err *err)
{
    const struct tp_pattern_origin origin = {place, -1, TP_E_INPUT};
    size_t skip = strlen(list->prefix);
    enum tp_code code = TP_OK;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        if (code || strncmp(key, list->prefix, skip) != 0 ||
            json_integer_value(json_object_get(value, "bits")) < (json_int_t)list->min_bits)
            continue;
        const char *text = tp_store_join(&ignore->store, key + skip, strlen(key + skip), "", err);
        if (!text)
            return TP_E_MEMORY;
        code = list->match == TP_LIST_REGEX ? add_regex(ignore, text, origin, err)
                                            : add_entry(ignore, text, origin, err);
    }
    return code;
}

/* Each key once, whichever quantizers have it. */
static bool is_first(const struct tp_quantizer *const *all, size_t q, uint32_t l)
{
    for (size_t before = 0; before <= q; before++)
        for (uint32_t i = 0; i < (before < q ? all[before]->lists : l); i++)
            if (strcmp(all[before]->list[i].key, all[q]->list[l].key) == 0)
                return false;
    return true;
}

/* What any quantizer calls its list: a description may have those of several. */
static enum tp_code add_lists(struct tp_source_ignore *ignore, const json_t *config,
                              struct tp_err *err)
{
    size_t count;
    enum tp_code code = config ? tp_quantizers_check(err) : TP_OK;
    const struct tp_quantizer *const *all = config ? tp_quantizers(&count) : NULL;
    for (size_t q = 0; all && q < count && code == TP_OK; q++)
        for (uint32_t l = 0; l < all[q]->lists && code == TP_OK; l++) {
            const struct tp_quantizer_list *list = &all[q]->list[l];
            json_t *value = json_object_get(config, list->key);
            char place[160];
            if (!value || !is_first(all, q, l))
                continue;
            snprintf(place, sizeof place, "quantization_config: \"%.100s\"%s", list->key,
                     list->prefix ? ":" : "");
            const char *kept = tp_store_join(&ignore->store, place, strlen(place), "", err);
            code = !kept ? TP_E_MEMORY
                   : list->prefix ? add_members(ignore, value, list, kept, err)
                                  : add_list(ignore, value, kept, err);
        }
    return code;
}

static enum tp_code at_config(const struct tp_source_ignore *ignore, enum tp_code code,
                              struct tp_err *err)
{
    if (code == TP_E_INPUT)
        tp_source_config_path(ignore->ckpt, err);
    return code;
}

enum tp_code tp_source_ignore_open(const struct tp_checkpoint *ckpt,
                                   struct tp_source_ignore *ignore, struct tp_err *err)
{
    json_t *config;
    *ignore = (struct tp_source_ignore){.ckpt = ckpt};
    enum tp_code code = tp_source_config(ckpt, &config, err);
    if (code == TP_OK)
        code = add_lists(ignore, config, err);
    json_decref(config);
    return at_config(ignore, code, err);
}

/* Whether the pieces between the '*' follow each other in the name, both with '.' on either side:
 * where each is found first, there is the most room for those behind it. */
static bool wild_matches(const char *pattern, const char *name, size_t size)
{
    const char *at = name, *end = name + size;
    for (;;) {
        size_t piece = strcspn(pattern, "*");
        at = memmem(at, (size_t)(end - at), pattern, piece);
        if (!at || !pattern[piece])
            return at;
        at += piece;
        pattern += piece + 1;
    }
}

/* A module that is asked for. */
struct question {
    struct tp_source_ignore *ignore;
    const char *module;
    size_t size;
    bool *ignored;
    struct tp_err *err;
};

static enum tp_code try_wilds(const struct question *q)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < q->ignore->wilds && !*q->ignored && code == TP_OK; i++) {
        const struct tp_ignore_wild *wild = &q->ignore->wild[i];
        code = tp_matcher_work(&q->ignore->matcher, 1 + (q->size + strlen(wild->text)) / 8,
                               wild->text, &wild->origin, q->module, q->err);
        *q->ignored = code == TP_OK && wild_matches(wild->bounded, q->ignore->bounded, q->size + 2);
    }
    return code;
}

/* Looks up the runs of components that begin at `from`. */
static bool has_run(const struct question *q, const char *from)
{
    const char *to = from, *end = q->module + q->size;
    bool found = false;
    for (size_t i = 0; i < RUN && to < end && !found; i++) {
        to += i > 0; /* the '.' behind the run that was tried last */
        to += strcspn(to, ".");
        found = tp_names_find(&q->ignore->exact, from, (size_t)(to - from)) >= 0;
    }
    return found;
}

static void try_exact(const struct question *q)
{
    const char *end = q->module + q->size;
    for (const char *from = q->module; from < end && !*q->ignored;) {
        *q->ignored = has_run(q, from);
        const char *dot = memchr(from, '.', (size_t)(end - from));
        from = dot ? dot + 1 : end;
    }
}

static enum tp_code bound(const struct question *q)
{
    void *items = q->ignore->bounded;
    enum tp_code code = tp_os_grow(&items, &q->ignore->bounded_capacity, q->size + 2, 1, q->err);
    q->ignore->bounded = items;
    if (code)
        return code;
    q->ignore->bounded[0] = q->ignore->bounded[q->size + 1] = '.';
    memcpy(q->ignore->bounded + 1, q->module, q->size);
    return TP_OK;
}

enum tp_code tp_source_ignores(struct tp_source_ignore *ignore, const char *module, bool *ignored,
                               struct tp_err *err)
{
    struct question q = {ignore, module, strlen(module), ignored, err};
    *ignored = false;
    if (ignore->exact.count)
        try_exact(&q);
    enum tp_code code = ignore->wilds && !*ignored ? bound(&q) : TP_OK;
    if (code == TP_OK)
        code = try_wilds(&q);
    for (size_t i = 0; i < ignore->regexes && !*ignored && code == TP_OK; i++)
        code = tp_pattern_match(&ignore->matcher, &ignore->regex[i], module, ignored, err);
    return at_config(ignore, code, err);
}

void tp_source_ignore_close(struct tp_source_ignore *ignore)
{
    for (size_t i = 0; i < ignore->regexes; i++)
        tp_pattern_free(&ignore->regex[i]);
    tp_matcher_close(&ignore->matcher);
    free(ignore->regex);
    free(ignore->wild);
    free(ignore->bounded);
    tp_names_close(&ignore->exact);
    tp_store_close(&ignore->store);
    *ignore = (struct tp_source_ignore){0};
}
