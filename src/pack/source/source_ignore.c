/* Lists of modules that the source's config says are not quantized.
 *
 * Parsed once for a plan. Exact names, of which there may be thousands, are looked
 * up in a hash set by every run of a name's components; only patterns are tried one
 * by one.
 */
#include "pack/source/source_ignore.h"

#include "pack/os/os.h"
#include "pack/source/source_config.h"

#include <stdlib.h>
#include <string.h>

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
                             struct tp_err *err)
{
    void *items = ignore->wild;
    enum tp_code code = tp_os_grow(&items, &ignore->wild_capacity, ignore->wilds + 1,
                                   sizeof *ignore->wild, err);
    ignore->wild = items;
    if (!code)
        ignore->wild[ignore->wilds++] = pattern;
    return code;
}

static enum tp_code add_exact(struct tp_source_ignore *ignore, const char *name,
                              struct tp_err *err)
{
    size_t components = 1;
    uint32_t number;
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
        components++;
    if (components > ignore->longest)
        ignore->longest = components;
    return tp_names_add(&ignore->exact, name, strlen(name), &number, err);
}

static enum tp_code add_entry(struct tp_source_ignore *ignore, const char *entry,
                              struct tp_pattern_origin origin, struct tp_err *err)
{
    if (!entry || !*entry)
        return TP_OK;
    if (strncmp(entry, "re:", 3) == 0)
        return add_regex(ignore, entry + 3, origin, err);
    return strchr(entry, '*') ? add_wild(ignore, entry, err) : add_exact(ignore, entry, err);
}

static enum tp_code add_lists(struct tp_source_ignore *ignore, struct tp_err *err)
{
    static const struct {
        const char *key, *place;
    } lists[] = {{"ignore", "quantization_config: \"ignore\""},
                 {"ignored_layers", "quantization_config: \"ignored_layers\""},
                 {"modules_to_not_convert", "quantization_config: \"modules_to_not_convert\""},
                 {"exclude_modules", "quantization_config: \"exclude_modules\""}};
    enum tp_code code = TP_OK;
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        const json_t *list = json_object_get(ignore->config, lists[k].key);
        struct tp_pattern_origin origin = {lists[k].place, 0, TP_E_INPUT};
        for (size_t i = 0; i < json_array_size(list) && code == TP_OK; i++) {
            origin.index = (long)i;
            code = add_entry(ignore, json_string_value(json_array_get(list, i)), origin, err);
        }
    }
    return code;
}

/* GPTQ's keys "-:REGEX". */
static enum tp_code add_dynamic(struct tp_source_ignore *ignore, struct tp_err *err)
{
    static const struct tp_pattern_origin origin = {"quantization_config: \"dynamic\":", -1,
                                                    TP_E_INPUT};
    enum tp_code code = TP_OK;
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(ignore->config, "dynamic"), key, value)
        if (code == TP_OK && strncmp(key, "-:", 2) == 0)
            code = add_regex(ignore, key + 2, origin, err);
    return code;
}

/* The path is made for a message only: without memory it is left out. */
static enum tp_code at_config(const struct tp_source_ignore *ignore, enum tp_code code,
                              struct tp_err *err)
{
    char *path = code == TP_E_INPUT ? tp_os_format(NULL, "%s/config.json", ignore->ckpt->path)
                                    : NULL;
    tp_err_path(err, path);
    free(path);
    return code;
}

enum tp_code tp_source_ignore_open(const struct tp_checkpoint *ckpt,
                                   struct tp_source_ignore *ignore, struct tp_err *err)
{
    *ignore = (struct tp_source_ignore){.ckpt = ckpt, .config = tp_source_config(ckpt)};
    enum tp_code code = add_lists(ignore, err);
    if (code == TP_OK)
        code = add_dynamic(ignore, err);
    return at_config(ignore, code, err);
}

/* Whether the pattern matches a beginning of the text that ends with a component. When
 * it goes wrong, the latest '*' takes one byte more: earlier ones need not. */
static bool wild_matches(const char *pattern, const char *text)
{
    const char *star = NULL, *taken = NULL;
    for (;;) {
        if (*pattern == '*') {
            star = ++pattern;
            taken = text;
        } else if (*pattern == '\0' && (*text == '\0' || *text == '.')) {
            return true;
        } else if (*pattern && *pattern == *text) {
            pattern++;
            text++;
        } else if (star && *taken) {
            pattern = star;
            text = ++taken;
        } else {
            return false;
        }
    }
}

/* Whether one of the exact names is a run of components that begins at `from`. */
static bool exact_from(const struct tp_source_ignore *ignore, const char *from, const char *end)
{
    const char *to = from;
    for (size_t i = 0; i < ignore->longest && to < end; i++) {
        to += i > 0; /* the '.' behind the run that was tried last */
        to += strcspn(to, ".");
        if (tp_names_find(&ignore->exact, from, (size_t)(to - from)) >= 0)
            return true;
    }
    return false;
}

static bool names_it(const struct tp_source_ignore *ignore, const char *module)
{
    const char *end = module + strlen(module);
    for (const char *from = module; from < end;) {
        if (exact_from(ignore, from, end))
            return true;
        for (size_t i = 0; i < ignore->wilds; i++)
            if (wild_matches(ignore->wild[i], from))
                return true;
        const char *dot = strchr(from, '.');
        from = dot ? dot + 1 : end;
    }
    return false;
}

enum tp_code tp_source_ignores(const struct tp_source_ignore *ignore, const char *module,
                               bool *ignored, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    *ignored = names_it(ignore, module);
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
    tp_names_close(&ignore->exact);
    json_decref(ignore->config);
    *ignore = (struct tp_source_ignore){0};
}
