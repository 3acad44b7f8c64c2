/* Globs: a whole name with wildcards.
 *
 * A star in the middle takes no more than it needs, and what it took is never given back (its
 * group is atomic): if the rest does not match behind the first place where the text up to the
 * next star fits, it does not match behind a later one either. So the time is that of the stars
 * times the length. The last star has to reach the end, so its group is a usual one.
 */
#include "pack/text/pattern_text.h"

#include <ctype.h>
#include <string.h>

static enum tp_code put(struct tp_pattern_words *words, const char *text, struct tp_err *err)
{
    return tp_text_add(&words->text, text, strlen(text), err);
}

/* A byte that stands for itself: those that could mean something are ASCII. */
static enum tp_code put_byte(struct tp_pattern_words *words, char c, struct tp_err *err)
{
    bool plain = (unsigned char)c >= 0x80 || isalnum((unsigned char)c);
    return tp_text_add(&words->text, plain ? &c : (char[2]){'\\', c}, plain ? 1 : 2, err);
}

static enum tp_code refuse(struct tp_pattern_words *words, const char *why)
{
    words->why = why;
    return TP_OK;
}

/* Passes a set, whose '[' is at *at, up to its ']'. Its first member may be a ']'. */
static enum tp_code put_set(struct tp_pattern_words *words, const char **at, struct tp_err *err)
{
    const char *s = *at + 1 + ((*at)[1] == '!'), *first = s, *end = *s ? strchr(s + 1, ']') : NULL;
    if (!end)
        return refuse(words, "this set is never closed");
    if ((*at)[1] == '^')
        return refuse(words, "a set of what is not meant is written [!...]");
    enum tp_code code = put(words, s > *at + 1 ? "[^" : "[", err);
    for (; s < end && !code && !words->why; s++) {
        *at = s;
        words->members += (unsigned char)*s >= 0xC0;
        if (*s == '[' && strchr(":.=", s[1]))
            return refuse(words, "classes of characters are not read in a glob");
        bool range = *s == '-' && s > first && s + 1 < end;
        code = range ? put(words, "-", err) : put_byte(words, *s, err);
    }
    *at = end;
    return code ? code : put(words, "]", err);
}

/* group: where the group of the last star is in the words, 0: there is none yet. */
static enum tp_code put_star(struct tp_pattern_words *words, size_t *group, struct tp_err *err)
{
    enum tp_code code = *group ? put(words, ")", err) : TP_OK;
    *group = words->text.size;
    return code ? code : put(words, "(?>.*?", err);
}

enum tp_code tp_pattern_glob(const char *text, struct tp_pattern_words *words, struct tp_err *err)
{
    enum tp_code code = put(words, "(?s)\\A", err);
    const char *at = text;
    size_t group = 0;
    for (; *at && !code && !words->why; at++) {
        if (*at == '*') {
            at += strspn(at, "*") - 1;
            code = put_star(words, &group, err);
        } else if (*at == '[') {
            code = put_set(words, &at, err);
        } else if (*at == '\\') {
            words->why = "a character is quoted in a set, as in [*]";
        } else {
            code = *at == '?' ? put(words, ".", err) : put_byte(words, *at, err);
        }
    }
    words->at = (size_t)(at - text) - (words->why != NULL);
    if (group && !code)
        words->text.data[group + 2] = ':';
    return code ? code : put(words, group ? ")\\z" : "\\z", err);
}
