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

/* A Python regular expression in the words of POSIX, to be matched from the start:
 * `\d` and `(?:` are the two that such lists use and POSIX writes differently. */
static char *posix_regex(const char *python, struct tp_err *err)
{
    char *text = tp_os_alloc(strlen(python) * 3 + 4, err), *out = text;
    if (!text)
        return NULL;
    out = stpcpy(out, "^(");
    while (*python) {
        if (strncmp(python, "\\d", 2) == 0) {
            out = stpcpy(out, "[0-9]");
            python += 2;
        } else if (strncmp(python, "(?:", 3) == 0) {
            *out++ = '(';
            python += 3;
        } else {
            if (*python == '\\' && python[1]) /* whatever it quotes is not looked at */
                *out++ = *python++;
            *out++ = *python++;
        }
    }
    stpcpy(out, ")");
    return text;
}

static enum tp_code add_regex(struct tp_source_ignore *ignore, const char *python,
                              struct tp_err *err)
{
    void *items = ignore->regex;
    enum tp_code code = tp_os_grow(&items, &ignore->regex_capacity, ignore->regexes + 1,
                                   sizeof *ignore->regex, err);
    ignore->regex = items;
    char *text = code ? NULL : posix_regex(python, err);
    if (!text)
        return TP_E_MEMORY;
    int failed = tp_os.regcomp(&ignore->regex[ignore->regexes], text, REG_EXTENDED | REG_NOSUB);
    free(text);
    if (failed == REG_ESPACE)
        return tp_fail(err, TP_E_MEMORY, "out of memory for the pattern 're:%s'", python);
    ignore->regexes += !failed;
    return TP_OK;
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
                              struct tp_err *err)
{
    if (!entry || !*entry)
        return TP_OK;
    if (strncmp(entry, "re:", 3) == 0)
        return add_regex(ignore, entry + 3, err);
    return strchr(entry, '*') ? add_wild(ignore, entry, err) : add_exact(ignore, entry, err);
}

enum tp_code tp_source_ignore_open(const struct tp_checkpoint *ckpt,
                                   struct tp_source_ignore *ignore, struct tp_err *err)
{
    static const char *const keys[] = {"ignore", "ignored_layers", "modules_to_not_convert",
                                       "exclude_modules"};
    enum tp_code code = TP_OK;
    *ignore = (struct tp_source_ignore){.config = tp_source_config(ckpt)};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const json_t *list = json_object_get(ignore->config, keys[k]);
        for (size_t i = 0; i < json_array_size(list) && code == TP_OK; i++)
            code = add_entry(ignore, json_string_value(json_array_get(list, i)), err);
    }
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(ignore->config, "dynamic"), key, value) /* GPTQ */
        if (code == TP_OK && strncmp(key, "-:", 2) == 0)
            code = add_regex(ignore, key + 2, err);
    return code;
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

bool tp_source_ignores(const struct tp_source_ignore *ignore, const char *module)
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
    for (size_t i = 0; i < ignore->regexes; i++)
        if (regexec(&ignore->regex[i], module, 0, NULL, 0) == 0)
            return true;
    return false;
}

void tp_source_ignore_close(struct tp_source_ignore *ignore)
{
    for (size_t i = 0; i < ignore->regexes; i++)
        regfree(&ignore->regex[i]);
    free(ignore->regex);
    free(ignore->wild);
    tp_names_close(&ignore->exact);
    json_decref(ignore->config);
    *ignore = (struct tp_source_ignore){0};
}
