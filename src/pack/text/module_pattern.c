/* Patterns of modules' names; see module_pattern.h. */
#include "pack/text/module_pattern.h"

#include <string.h>

/* Segments between dots, none of them empty; '^' only in front, '$' only at the end. */
static bool is_pattern(const char *text)
{
    text += *text == '^';
    for (bool empty = true;; text++) {
        if (*text == '.' || *text == '\0' || *text == '$') {
            if (empty || (*text == '$' && text[1]))
                return false;
            if (*text != '.')
                return true;
            empty = true;
        } else if (*text == '^') {
            return false;
        } else {
            empty = false;
        }
    }
}

static uint64_t pair_bit(char before, char at)
{
    return UINT64_C(1) << (((unsigned char)before * 5u + (unsigned char)at) & 63);
}

uint64_t tp_module_pairs(const char *module, size_t size)
{
    uint64_t pairs = 0;
    for (size_t i = 1; i < size; i++)
        pairs |= pair_bit(module[i - 1], module[i]);
    return pairs;
}

bool tp_module_pattern_of(const char *text, struct tp_module_pattern *pattern)
{
    *pattern = (struct tp_module_pattern){.text = text};
    for (const char *at = text + (*text == '^'); *at && at[1]; at++)
        if (*at != '*' && at[1] != '*' && at[1] != '$')
            pattern->pairs |= pair_bit(at[0], at[1]);
    return is_pattern(text);
}

/* Whether the pattern stands for a run of whole segments that begins at `at`. When it goes
 * wrong, the latest '*' takes one byte more: earlier ones need not. */
static bool run_matches(const char *pattern, const char *at, const char *end)
{
    const char *star = NULL, *taken = NULL;
    for (;;) {
        bool over = at == end || *at == '.';
        if (*pattern == '*') {
            star = ++pattern;
            taken = at;
        } else if (over && (*pattern == '\0' || (*pattern == '$' && at == end))) {
            return true;
        } else if (at < end && *pattern == *at) {
            pattern++;
            if (*at++ == '.')
                star = NULL; /* it stands for no dot */
        } else if (star && taken < end && *taken != '.') {
            pattern = star;
            at = ++taken;
        } else {
            return false;
        }
    }
}

/* Behind the next dot, or NULL: the last segment was seen. Segments may be empty. */
static const char *next_segment(const char *at, const char *end)
{
    const char *dot = memchr(at, '.', (size_t)(end - at));
    return dot ? dot + 1 : NULL;
}

const char *tp_module_find(const struct tp_module_pattern *pattern, const char *module, size_t size,
                           uint64_t pairs)
{
    const char *text = pattern->text, *end = module + size;
    if (pattern->pairs & ~pairs)
        return NULL;
    if (*text == '^')
        return run_matches(text + 1, module, end) ? module : NULL;
    for (const char *at = module; at; at = next_segment(at, end))
        if (run_matches(text, at, end))
            return at;
    return NULL;
}

bool tp_modules_match(const struct tp_module_pattern *patterns, size_t count, const char *module,
                      size_t size)
{
    const uint64_t pairs = count ? tp_module_pairs(module, size) : 0;
    for (size_t i = 0; i < count; i++)
        if (tp_module_find(&patterns[i], module, size, pairs))
            return true;
    return false;
}
