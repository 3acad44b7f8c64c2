/* What PCRE2 and Python's `re` read differently in a regular expression.
 *
 * Does not parse: PCRE2 finds mistakes. This file walks over escapes, sets, groups and braces, and
 * refuses those that are not the same in both. tests/cli/patterns_pairs.py compares what is left.
 */
#include "pack/text/pattern_text.h"

#include <ctype.h>
#include <string.h>

static const char digits[] = "0123456789", flags[] = "ims";

/* at: behind the backslash. */
static const char *refuse_escape(const char *at)
{
    if (*at && strchr("<>`'", *at)) /* of POSIX, whose patterns version 0.1.0 had */
        return "the borders of a word are \\b, those of the name ^ and $";
    if (!isalnum((unsigned char)*at))
        return NULL;
    if (*at >= '1' && *at <= '9')
        return "the text of a group is not asked for again here";
    if (!strchr("AZbdDsSwWafnrtx0", *at))
        return "Python reads this escape otherwise, or not at all";
    if (*at == 'x' && (!isxdigit((unsigned char)at[1]) || !isxdigit((unsigned char)at[2])))
        return "this escape needs two hexadecimal digits";
    return NULL;
}

/* at: the '('. */
static const char *refuse_group(const char *at)
{
    static const char *const known[] = {":", "=", "!", "<=", "<!", ">", "P<"};
    if (at[1] == '*')
        return "Python knows no verbs";
    if (at[1] != '?')
        return NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncmp(at + 2, known[i], strlen(known[i])))
            return NULL;
    const char *end = at + 2 + strspn(at + 2, flags);
    if (*end == ')' && end > at + 2)
        return "flags stand at the start of the whole pattern, or of a group as in (?i:a)";
    if (*end == '-')
        end += 1 + strspn(end + 1, flags);
    return *end == ':' && end[-1] != '-' ? NULL : "this kind of group is not read here";
}

/* at: the '{'. What is no repeat in any version stands for itself in both. */
static const char *refuse_braces(const char *at)
{
    size_t size = strspn(at + 1, "0123456789, \t");
    if (!size || at[1 + size] != '}')
        return NULL;
    const char *max = at + 1, *end = max + strspn(max, digits);
    if (end > max && *end == ',') {
        max = end + 1;
        end = max + strspn(max, digits);
    }
    if (*end != '}' || end == at + 1)
        return "a repeat is written {m}, {m,} or {m,n}";
    return end > max && max + strspn(max, "0") == end ? "a repeat of no times is not read here"
                                                      : NULL;
}

/* The bytes of "[:digit:]" but the last, or 0. */
static size_t posix_class(const char *at)
{
    size_t name = strncmp(at, "[:", 2) ? 0 : strspn(at + 2, "^abcdefghijklmnopqrstuvwxyz<>");
    return name && !strncmp(at + 2 + name, ":]", 2) ? name + 3 : 0;
}

/* Passes a set, whose '[' is at *at, up to its ']'. */
static const char *pass_set(char **at, bool start, struct tp_pattern_words *words)
{
    char *s = *at + 1;
    unsigned members = 0;
    s += *s == '^';
    for (const char *first = s; *s && (*s != ']' || s == first); s++) {
        const char *why = *s == '\\' ? refuse_escape(s + 1) : NULL;
        size_t class = posix_class(s);
        *at = s;
        if (class && start)
            return "Python reads a class of POSIX otherwise";
        if (why)
            return why;
        members += *s == '\\' || class || (unsigned char)*s >= 0xC0;
        s += *s == '\\' ? s[1] != '\0' : class;
    }
    *at = *s ? s : s - 1;
    words->members = members > words->members ? members : words->members;
    return NULL;
}

/* Passes what begins at *at, up to its last byte. */
static const char *pass(char **at, bool start, struct tp_pattern_words *words)
{
    const char *why;
    switch (**at) {
    case '\\':
        if ((why = refuse_escape(*at + 1)))
            return why;
        if ((*at)[1] == 'Z') /* which PCRE2 finds before a newline at the end, too */
            (*at)[1] = 'z';
        *at += (*at)[1] != '\0';
        return NULL;
    case '[':
        return pass_set(at, start, words);
    case '(':
        if (strncmp(*at, "(?#", 3) != 0)
            return refuse_group(*at);
        *at += strcspn(*at, ")");
        *at -= !**at;
        return NULL;
    case '{':
        return refuse_braces(*at);
    default:
        return NULL;
    }
}

/* "(?i)" and the like, which belong at the start of the whole pattern. */
static char *pass_flags(char *at)
{
    while (!strncmp(at, "(?", 2)) {
        size_t size = strspn(at + 2, flags);
        if (!size || at[2 + size] != ')')
            break;
        at += size + 3;
    }
    return at;
}

enum tp_code tp_pattern_python(const char *text, bool start, struct tp_pattern_words *words,
                               struct tp_err *err)
{
    enum tp_code code = tp_text_add(&words->text, text, strlen(text), err);
    if (code)
        return code;
    char *at = pass_flags(words->text.data);
    while (*at && !(words->why = pass(&at, start, words)))
        at++;
    words->at = (size_t)(at - words->text.data);
    return TP_OK;
}
