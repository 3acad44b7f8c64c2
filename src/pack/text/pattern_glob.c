/* Globs: a whole name with wildcards.
 *
 * A star in the middle takes no more than it needs, and what it took is never given back: if
 * the rest does not match behind the first place where the text up to the next star fits, it
 * does not match behind a later one either. So the time is that of the stars times the length.
 */
#include "pack/text/pattern_text.h"

#include <ctype.h>
#include <string.h>

struct glob {
    const char *text;
    size_t at;
    bool open; /* a star's group, to be closed before the next star */
    struct tp_text *out;
    struct tp_pattern_refusal *refusal;
    enum tp_code code;
    struct tp_err *err;
};

static bool refuse(struct glob *g, size_t at, const char *why)
{
    *g->refusal = (struct tp_pattern_refusal){why, at};
    return false;
}

static bool put(struct glob *g, const char *words)
{
    if (!g->code)
        g->code = tp_text_add(g->out, words, strlen(words), g->err);
    return !g->code;
}

/* One byte for itself: all that could mean something is ASCII. */
static bool put_byte(struct glob *g, unsigned char c)
{
    if (!g->code && (c >= 0x80 || isalnum(c)))
        g->code = tp_text_add(g->out, (char[1]){(char)c}, 1, g->err);
    else if (!g->code)
        g->code = tp_text_addf(g->out, g->err, "\\x{%x}", c);
    return !g->code;
}

/* The ']' of the set that begins at `at`, or NULL. Its first member may be a ']'. */
static const char *set_end(const struct glob *g, size_t at)
{
    const char *first = g->text + at + 1;
    first += *first == '!';
    return *first ? strchr(first + 1, ']') : NULL;
}

static bool take_set(struct glob *g)
{
    const char *end = set_end(g, g->at), *s = g->text + g->at + 1;
    if (!end)
        return refuse(g, g->at, "this set is never closed");
    if (*s == '^')
        return refuse(g, g->at, "a set of what is not meant is written [!...]");
    bool good = put(g, *s == '!' ? "[^" : "[");
    s += *s == '!';
    for (const char *first = s; s < end && good; s++)
        if (*s == '[' && strchr(":.=", s[1]))
            good = refuse(g, (size_t)(s - g->text), "classes of characters are not read in a glob");
        else
            good = *s == '-' && s > first && s + 1 < end ? put(g, "-")
                                                         : put_byte(g, (unsigned char)*s);
    g->at = (size_t)(end + 1 - g->text);
    return good && put(g, "]");
}

/* Whether another star follows. */
static bool more_stars(const struct glob *g)
{
    const char *s = g->text + g->at;
    while (*s && *s != '*') {
        const char *end = *s == '[' ? set_end(g, (size_t)(s - g->text)) : NULL;
        s = end ? end + 1 : s + 1;
    }
    return *s == '*';
}

static bool take_star(struct glob *g)
{
    while (g->text[g->at] == '*')
        g->at++;
    if (g->open && !put(g, ")"))
        return false;
    g->open = more_stars(g);
    return put(g, g->open ? "(?>(?s:.)*?" : "(?s:.)*");
}

static bool take_item(struct glob *g)
{
    switch (g->text[g->at]) {
    case '*':
        return take_star(g);
    case '[':
        return take_set(g);
    case '\\':
        return refuse(g, g->at, "a character is quoted in a set, as in [*]");
    case '?':
        g->at++;
        return put(g, "(?s:.)");
    default:
        return put_byte(g, (unsigned char)g->text[g->at++]);
    }
}

enum tp_code tp_pattern_glob(const char *text, struct tp_text *out,
                             struct tp_pattern_refusal *refusal, struct tp_err *err)
{
    struct glob g = {.text = text, .out = out, .refusal = refusal, .err = err};
    bool good = put(&g, "\\A");
    *refusal = (struct tp_pattern_refusal){0};
    while (text[g.at] && good)
        good = take_item(&g);
    if (good)
        put(&g, "\\z");
    return g.code;
}
