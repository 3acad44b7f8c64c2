/* Characters, classes and sets of Python's regular expressions. Invariant: what is written is
 * spelled out to the last member, so that neither a flag nor a table of the library decides
 * what belongs to it.
 */
#include "pack/text/pattern_chars.h"

#include "pack/text/json_scan.h"

#include <ctype.h>
#include <string.h>

/* --------------------------------------------------------------- groundwork -- */

bool tp_re_refuse(struct tp_re *p, size_t at, const char *why)
{
    if (!p->refusal->why)
        *p->refusal = (struct tp_pattern_refusal){why, at};
    return false;
}

bool tp_re_put(struct tp_re *p, const char *words)
{
    if (!p->code)
        p->code = tp_text_add(p->out, words, strlen(words), p->err);
    return !p->code;
}

bool tp_re_put_class(struct tp_re *p, const char *before, const char *members, const char *after)
{
    return tp_re_put(p, before) && tp_re_put(p, members) && tp_re_put(p, after);
}

static bool put_char(struct tp_re *p, uint32_t c)
{
    if (!p->code && c < 0x80 && isalnum((int)c))
        p->code = tp_text_add(p->out, (char[1]){(char)c}, 1, p->err);
    else if (!p->code)
        p->code = tp_text_addf(p->out, p->err, "\\x{%x}", (unsigned)c);
    return !p->code;
}

char tp_re_next(const struct tp_re *p) { return p->text[p->at]; } /* no byte is 0 */

bool tp_re_take(struct tp_re *p, const char *words)
{
    size_t size = strlen(words);
    if (strncmp(p->text + p->at, words, size) != 0)
        return false;
    p->at += size;
    return true;
}

bool tp_re_char(struct tp_re *p, uint32_t *c)
{
    unsigned size = tp_utf8_length(p->text + p->at, p->size - p->at);
    if (size == 0)
        return tp_re_refuse(p, p->at, "it is not UTF-8");
    *c = (unsigned char)p->text[p->at++] & (size == 1 ? 0x7fu : 0xffu >> (size + 1));
    while (--size)
        *c = *c << 6 | ((unsigned char)p->text[p->at++] & 0x3fu);
    return true;
}

/* ------------------------------------------------------------------ classes -- */

#define SPACES "\\t-\\r\\x{1c}- \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}" \
               "\\x{202f}\\x{205f}\\x{3000}"
#define NO_SPACES "\\x{0}-\\x{8}\\x{e}-\\x{1b}!-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}" \
                  "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}" \
                  "\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
/* All categories but letters and numbers; of connectors (Pc) all but '_'. */
#define NO_WORD "\\p{M}\\p{Pd}\\p{Ps}\\p{Pe}\\p{Pi}\\p{Pf}\\p{Po}\\p{S}\\p{Z}\\p{C}\\x{203f}" \
                "\\x{2040}\\x{2054}\\x{fe33}\\x{fe34}\\x{fe4d}-\\x{fe4f}\\x{ff3f}"

const char *tp_re_class(char letter, unsigned flags)
{
    static const struct {
        char letter;
        const char *unicode, *ascii;
    } classes[] = {
        {'d', "\\p{Nd}", "0-9"},
        {'D', "\\P{Nd}", "\\x{0}-\\/:-\\x{10ffff}"},
        {'s', SPACES, "\\t-\\r "},
        {'S', NO_SPACES, "\\x{0}-\\x{8}\\x{e}-\\x{1f}!-\\x{10ffff}"},
        {'w', "\\p{L}\\p{N}_", "0-9A-Z_a-z"},
        {'W', NO_WORD, "\\x{0}-\\/:-@\\[-\\^`{-\\x{10ffff}"},
    };
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i].letter == letter)
            return flags & TP_RE_ASCII ? classes[i].ascii : classes[i].unicode;
    return NULL;
}

/* ------------------------------------------------------ characters and sets -- */

static bool take_hex(struct tp_re *p, size_t start, unsigned digits, uint32_t *c)
{
    static const char all[] = "0123456789abcdef";
    *c = 0;
    for (unsigned i = 0; i < digits; i++, p->at++) {
        if (!isxdigit((unsigned char)tp_re_next(p)))
            return tp_re_refuse(p, start, "this escape has too few hexadecimal digits");
        *c = *c << 4 | (uint32_t)(strchr(all, tolower((unsigned char)tp_re_next(p))) - all);
    }
    if (*c > 0x10ffff || (*c >= 0xd800 && *c < 0xe000))
        return tp_re_refuse(p, start, "no character has this number");
    return true;
}

bool tp_re_octal(struct tp_re *p, size_t start, uint32_t *c)
{
    *c = 0;
    for (unsigned i = 0; i < 3 && tp_re_next(p) >= '0' && tp_re_next(p) <= '7'; i++, p->at++)
        *c = *c << 3 | (uint32_t)(tp_re_next(p) - '0');
    return *c <= 0377 || tp_re_refuse(p, start, "an octal escape is above 0377");
}

bool tp_re_escape(struct tp_re *p, size_t start, uint32_t *c)
{
    static const char letters[] = "abfnrtv", meant[] = "\a\b\f\n\r\t\v";
    if (p->at == p->size)
        return tp_re_refuse(p, start, "it ends with a backslash");
    if (!tp_re_char(p, c))
        return false;
    const char *known = *c < 0x80 ? strchr(letters, (int)*c) : NULL;
    if (known)
        *c = (uint32_t)meant[known - letters];
    else if (*c == 'x' || *c == 'u' || *c == 'U')
        return take_hex(p, start, *c == 'x' ? 2 : *c == 'u' ? 4 : 8, c);
    else if (*c == 'N')
        return tp_re_refuse(p, start, "names of characters (\\N{...}) are not read here");
    else if (*c < 0x80 && isalnum((int)*c))
        return tp_re_refuse(p, start, "this escape is none of Python's");
    return true;
}

static bool holds(uint32_t low, uint32_t high, char c)
{
    uint32_t lower = (uint32_t)c, upper = lower - 'a' + 'A';
    return (low <= lower && lower <= high) || (low <= upper && upper <= high);
}

/* The same letters of the other case; `from` and `to` are the firsts of the two cases. */
static void put_other_case(struct tp_re *p, uint32_t low, uint32_t high, uint32_t from, uint32_t to)
{
    if (low < from)
        low = from;
    if (high > from + 25)
        high = from + 25;
    if (low <= high && !p->code)
        p->code = tp_text_addf(p->out, p->err, "\\x{%x}-\\x{%x}", (unsigned)(low - from + to),
                               (unsigned)(high - from + to));
}

/* The characters of a range, as members of a set. Without regard to case, Python also takes
 * the dotless and the dotted i, the long s and the sign of the Kelvin. */
static bool put_range(struct tp_re *p, unsigned flags, size_t start, uint32_t low, uint32_t high)
{
    if (high < low)
        return tp_re_refuse(p, start, "this range goes backwards");
    if (!p->code)
        p->code = tp_text_addf(p->out, p->err, "\\x{%x}-\\x{%x}", (unsigned)low, (unsigned)high);
    if (!(flags & TP_RE_IGNORE))
        return !p->code;
    if (high >= 0x80)
        return tp_re_refuse(p, start, "letters beyond ASCII are not read without regard to case");
    put_other_case(p, low, high, 'a', 'A');
    put_other_case(p, low, high, 'A', 'a');
    if (flags & TP_RE_ASCII)
        return !p->code;
    return (!holds(low, high, 'i') || tp_re_put(p, "\\x{130}\\x{131}")) &&
           (!holds(low, high, 'k') || tp_re_put(p, "\\x{212a}")) &&
           (!holds(low, high, 's') || tp_re_put(p, "\\x{17f}"));
}

bool tp_re_put_literal(struct tp_re *p, unsigned flags, size_t start, uint32_t c)
{
    if (!(flags & TP_RE_IGNORE) || (c < 0x80 && !isalpha((int)c)))
        return put_char(p, c);
    return tp_re_put(p, "[") && put_range(p, flags, start, c, c) && tp_re_put(p, "]");
}

/* A character of a set, or a class, whose members then are in *members. */
static bool take_member(struct tp_re *p, unsigned flags, uint32_t *c, const char **members)
{
    size_t start = p->at;
    *members = NULL;
    if (!tp_re_take(p, "\\"))
        return tp_re_char(p, c);
    if ((*members = tp_re_class(tp_re_next(p), flags))) {
        p->at++;
        return true;
    }
    bool octal = tp_re_next(p) >= '0' && tp_re_next(p) <= '7';
    return octal ? tp_re_octal(p, start, c) : tp_re_escape(p, start, c);
}

/* "[:digit:]" inside of a set. */
static bool posix_class(struct tp_re *p, unsigned flags)
{
    static const char *const names[] = {"alnum", "alpha", "blank", "cntrl", "digit", "graph",
                                        "lower", "print", "punct", "space", "upper", "xdigit"};
    size_t start = p->at;
    if (!tp_re_take(p, "[:"))
        return tp_re_refuse(p, start, "equivalence classes and collating symbols are not read");
    if (flags & TP_RE_IGNORE)
        return tp_re_refuse(p, start, "such a class is not read without regard to case");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t back = p->at;
        if (tp_re_take(p, names[i]) && tp_re_take(p, ":]"))
            return tp_re_put_class(p, "[:", names[i], ":]");
        p->at = back;
    }
    return tp_re_refuse(p, start, "there is no class of this name");
}

/* A member, a range, or a class. */
static bool set_item(struct tp_re *p, unsigned flags)
{
    static const char range[] = "a class cannot be the end of a range";
    size_t start = p->at;
    uint32_t low = 0, high = 0;
    const char *members, *more;
    char second = tp_re_next(p) == '[' ? p->text[p->at + 1] : '\0';
    if (!p->start && second && strchr(":.=", second))
        return posix_class(p, flags);
    if (!take_member(p, flags, &low, &members))
        return false;
    if (tp_re_next(p) != '-' || p->text[p->at + 1] == ']' || p->at + 1 == p->size)
        return members ? tp_re_put(p, members) : put_range(p, flags, start, low, low);
    p->at++;
    if (!take_member(p, flags, &high, &more))
        return false;
    return members || more ? tp_re_refuse(p, start, range) : put_range(p, flags, start, low, high);
}

bool tp_re_set(struct tp_re *p, unsigned flags)
{
    size_t start = p->at++;
    if (!tp_re_put(p, tp_re_take(p, "^") ? "[^" : "["))
        return false;
    do {
        if (p->at == p->size)
            return tp_re_refuse(p, start, "this set is never closed");
        if (!set_item(p, flags))
            return false;
    } while (!tp_re_take(p, "]"));
    return tp_re_put(p, "]");
}
