/* Regular expressions of Python, read as its own parser reads them.
 *
 * Whether a name matches is all that is asked: groups do not capture, and what asks for the
 * text of a group again is refused. Does no matching and keeps nothing. Invariant: what was
 * written so far is a whole number of items of the pattern, so that a repeat written next
 * belongs to the item that it belonged to there.
 */
#include "pack/text/pattern_chars.h"

#include "base/num.h"

#include <ctype.h>
#include <string.h>

/* In the order of the bits of flags. */
static const char flag_letters[] = "aimsuxL";

enum { MOST_REPEATS = 65535 }; /* of PCRE2 */
static const uint64_t unbounded = UINT64_MAX;

/* Least and most characters that match: what a look-behind has to know. */
struct width {
    uint64_t min, max;
};

/* What stands before a repeat. */
enum item { ITEM_NONE, ITEM_PLACE, ITEM_ATOM, ITEM_REPEAT };

struct repeat {
    uint64_t min, max;
    bool lazy;
};

/* ------------------------------------------------------- items and repeats -- */

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    if (a == 0 || b == 0)
        return 0;
    return tp_mul_u64(&product, a, b) ? product : unbounded;
}

static void add_width(struct width *all, struct width more)
{
    if (!tp_add_u64(&all->min, all->min, more.min))
        all->min = unbounded;
    if (!tp_add_u64(&all->max, all->max, more.max))
        all->max = unbounded;
}

/* "\b": between a character of a word and none. */
static bool put_border(struct tp_re *p, unsigned flags)
{
    const char *word = tp_re_class('w', flags);
    return tp_re_put_class(p, "(?:(?<=[", word, "])") &&
           tp_re_put_class(p, "(?![", word, "])|") &&
           tp_re_put_class(p, "(?<![", word, "])") && tp_re_put_class(p, "(?=[", word, "]))");
}

/* What stands behind a backslash outside of sets. */
static bool take_backslash(struct tp_re *p, unsigned flags, enum item *item)
{
    size_t start = p->at++;
    char c = tp_re_next(p);
    uint32_t literal;
    const char *members = tp_re_class(c, flags);
    *item = ITEM_ATOM;
    if (members) {
        p->at++;
        return tp_re_put_class(p, "[", members, "]");
    }
    if (c == 'A' || c == 'Z' || c == 'b') {
        p->at++;
        *item = ITEM_PLACE;
        return c == 'b' ? put_border(p, flags) : tp_re_put(p, c == 'A' ? "\\A" : "\\z");
    }
    if (c == 'B')
        return tp_re_refuse(p, start, "versions of Python differ about \\B");
    if (!p->start && c && strchr("<>`'", c))
        return tp_re_refuse(p, start, "the borders of a word are \\b, those of the name ^ and $");
    if (c >= '1' && c <= '9' && (strspn(p->text + p->at, "01234567") < 3))
        return tp_re_refuse(p, start, "the text of a group is not asked for again here");
    bool good = c >= '0' && c <= '9' ? tp_re_octal(p, start, &literal)
                                     : tp_re_escape(p, start, &literal);
    return good && tp_re_put_literal(p, flags, start, literal);
}

/* Digits at text, saturating above what any repeat may be. */
static const char *number(const char *text, uint64_t *value)
{
    for (*value = 0; isdigit((unsigned char)*text); text++)
        if (*value <= MOST_REPEATS)
            *value = *value * 10 + (uint64_t)(*text - '0');
    return text;
}

/* "{m,n}" and its short forms. Anything else in braces stands for itself. */
static bool take_braces(struct tp_re *p, struct repeat *r)
{
    const char *low = p->text + p->at + 1, *end = number(low, &r->min);
    r->max = r->min;
    if (*end == ',') {
        const char *high = end + 1;
        end = number(high, &r->max);
        if (end == high)
            r->max = unbounded;
    } else if (end == low) {
        return false;
    }
    if (*end != '}')
        return false;
    p->at = (size_t)(end + 1 - p->text);
    return true;
}

/* Whether a repeat comes next; it is taken. */
static bool take_repeat(struct tp_re *p, struct repeat *r)
{
    char c = tp_re_next(p);
    if (c == '{') {
        if (!take_braces(p, r))
            return false;
    } else if (c && strchr("*+?", c)) {
        *r = (struct repeat){c == '+', c == '?' ? 1 : unbounded, false};
        p->at++;
    } else {
        return false;
    }
    r->lazy = tp_re_take(p, "?");
    return true;
}

/* An item that is never there: PCRE2 would still take the beginning of a match from it. Groups
 * have no numbers that anything refers to. */
static bool put_never(struct tp_re *p, size_t item)
{
    p->out->size = item;
    return tp_re_put(p, "(?:)");
}

/* `item`: where what is repeated begins in p->out. */
static bool put_repeat(struct tp_re *p, const struct repeat *r, enum item before, size_t start,
                       size_t item)
{
    if (before == ITEM_NONE || before == ITEM_PLACE)
        return tp_re_refuse(p, start, "there is nothing before it that could be repeated");
    if (before == ITEM_REPEAT)
        return tp_re_refuse(p, start,
                            "what is repeated already needs a group to be repeated again");
    if (tp_re_next(p) == '+')
        return tp_re_refuse(p, start, "versions of Python differ about possessive repeats");
    if (r->max < r->min)
        return tp_re_refuse(p, start, "the least number of repeats is above the greatest");
    if (r->min > MOST_REPEATS || (r->max > MOST_REPEATS && r->max != unbounded))
        return tp_re_refuse(p, start, "there are more than 65535 repeats");
    if (!r->max)
        return put_never(p, item);
    if (!p->code && r->max == unbounded)
        p->code = tp_text_addf(p->out, p->err, "{%u,}", (unsigned)r->min);
    else if (!p->code)
        p->code = tp_text_addf(p->out, p->err, "{%u,%u}", (unsigned)r->min, (unsigned)r->max);
    return !r->lazy ? !p->code : tp_re_put(p, "?");
}

/* ------------------------------------------------------------ groups, flags -- */

static bool alternatives(struct tp_re *p, unsigned flags, struct width *width);

static unsigned take_flags(struct tp_re *p)
{
    unsigned flags = 0;
    const char *known;
    while (tp_re_next(p) && (known = strchr(flag_letters, tp_re_next(p)))) {
        flags |= 1u << (known - flag_letters);
        p->at++;
    }
    return flags;
}

/* Adds flags to those that are on. */
static bool set_flags(struct tp_re *p, size_t start, unsigned on, unsigned off, unsigned *flags)
{
    const unsigned kinds = TP_RE_ASCII | TP_RE_UNICODE | TP_RE_LOCALE;
    bool both = on & TP_RE_ASCII && on & TP_RE_UNICODE;
    if (on & off || off & kinds || on & TP_RE_LOCALE || both)
        return tp_re_refuse(p, start, "these flags do not go together");
    if (on & TP_RE_VERBOSE)
        return tp_re_refuse(p, start, "the verbose form (flag x) is not read here");
    if (on & TP_RE_UNICODE)
        *flags &= ~(unsigned)TP_RE_ASCII;
    *flags = (*flags | on) & ~(off | TP_RE_UNICODE);
    return true;
}

/* "(?i)" and the like, which belong at the start of the whole pattern. */
static bool first_flags(struct tp_re *p, unsigned *flags)
{
    unsigned all = 0;
    size_t start = p->at;
    while (tp_re_take(p, "(?")) {
        unsigned some = take_flags(p);
        if (!some || !tp_re_take(p, ")")) {
            p->at = start;
            break;
        }
        all |= some;
        start = p->at;
    }
    return set_flags(p, 0, all, 0, flags);
}

/* "(?i-s:"; the group's contents have flags of their own. */
static bool group_flags(struct tp_re *p, size_t start, unsigned *flags)
{
    unsigned on = take_flags(p), off = 0;
    if (tp_re_take(p, "-") && !(off = take_flags(p)))
        return tp_re_refuse(p, start, "this kind of group is not known");
    if (on && !off && tp_re_next(p) == ')')
        return tp_re_refuse(p, start, "such flags stand at the start of the whole pattern");
    if (!tp_re_take(p, ":"))
        return tp_re_refuse(p, start, "this kind of group is not known");
    return set_flags(p, start, on, off, flags) && tp_re_put(p, "(?:");
}

/* "(?P<name>", at the P. The same name in a set or comment before counts, too. */
static bool group_name(struct tp_re *p, size_t start)
{
    if (!tp_re_take(p, "P<"))
        return tp_re_refuse(p, start,
                            p->text[p->at + 1] == '='
                                ? "the text of a group is not asked for again here"
                                : "this kind of group is not known");
    size_t first = p->at;
    while (isalnum((unsigned char)tp_re_next(p)) || tp_re_next(p) == '_')
        p->at++;
    if (p->at == first || isdigit((unsigned char)p->text[first]) || !tp_re_take(p, ">"))
        return tp_re_refuse(p, start, "a group's name has to consist of ASCII letters and digits");
    if (memmem(p->text, start, p->text + start, p->at - start))
        return tp_re_refuse(p, start, "a group's name is there twice");
    return tp_re_put(p, "(?:");
}

/* Looks around. PCRE2 takes the first character that a look-ahead has to find for one that a match
 * begins with, and may ask for it a second time, but not of one that must not fail. */
static const struct look {
    const char *begin, *open, *close;
    bool behind;
} looks[] = {
    {"?=", "(?!(?!", "))", false},
    {"?!", "(?!", ")", false},
    {"?<=", "(?<=", ")", true},
    {"?<!", "(?<!", ")", true},
};

/* The beginning of a group, up to its contents. */
static bool open_group(struct tp_re *p, size_t start, unsigned *flags, const struct look **look)
{
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        if (tp_re_take(p, looks[i].begin)) {
            *look = &looks[i];
            return tp_re_put(p, looks[i].open);
        }
    if (!tp_re_take(p, "?") || tp_re_take(p, ":"))
        return tp_re_put(p, "(?:");
    if (tp_re_next(p) == '>')
        return tp_re_refuse(p, start, "versions of Python differ about atomic groups");
    if (tp_re_next(p) == '(')
        return tp_re_refuse(p, start, "the text of a group is not asked for again here");
    return tp_re_next(p) == 'P' ? group_name(p, start) : group_flags(p, start, flags);
}

static bool take_group(struct tp_re *p, unsigned flags, struct width *width)
{
    size_t start = p->at++;
    const struct look *look = NULL;
    if (p->depth == TP_PATTERN_NESTING)
        return tp_re_refuse(p, start, "there are more than 50 groups inside of each other");
    p->depth++;
    if (!open_group(p, start, &flags, &look) || !alternatives(p, flags, width))
        return false;
    p->depth--;
    if (!tp_re_take(p, ")"))
        return tp_re_refuse(p, start, "this group is never closed");
    if (look && look->behind && width->min != width->max)
        return tp_re_refuse(p, start, "what a look-behind matches has to be of one length");
    if (look)
        *width = (struct width){0, 0};
    return tp_re_put(p, look ? look->close : ")");
}

/* ------------------------------------------------------------------ grammar -- */

static bool put_place(struct tp_re *p, unsigned flags, bool start)
{
    p->at++;
    if (start)
        return tp_re_put(p, flags & TP_RE_MULTI ? "(?:\\A|(?<=\\n))" : "\\A");
    return tp_re_put(p, flags & TP_RE_MULTI ? "(?=\\n|\\z)" : "\\Z");
}

static bool put_any(struct tp_re *p, unsigned flags)
{
    p->at++;
    return tp_re_put(p, flags & TP_RE_DOTALL ? "(?s:.)" : "\\N");
}

/* One item without its repeat. */
static bool take_item(struct tp_re *p, unsigned flags, enum item *item, struct width *width)
{
    size_t start = p->at;
    char byte = tp_re_next(p);
    uint32_t c = 0;
    *item = byte == '^' || byte == '$' ? ITEM_PLACE : ITEM_ATOM;
    *width = (struct width){1, 1};
    if (byte == '(')
        return take_group(p, flags, width);
    if (byte == '[')
        return tp_re_set(p, flags);
    if (byte == '.')
        return put_any(p, flags);
    if (byte != '\\' && *item == ITEM_ATOM)
        return tp_re_char(p, &c) && tp_re_put_literal(p, flags, start, c);
    bool good = byte == '\\' ? take_backslash(p, flags, item) : put_place(p, flags, byte == '^');
    if (*item == ITEM_PLACE)
        *width = (struct width){0, 0};
    return good;
}

/* "(?#...)", which is as if it were not there. */
static bool pass_comment(struct tp_re *p)
{
    const char *end = strchr(p->text + p->at, ')');
    if (!end)
        return tp_re_refuse(p, p->at, "this comment is never closed");
    p->at = (size_t)(end + 1 - p->text);
    return true;
}

/* The beginning of an alternative of the whole pattern, for re.match(): behind ".*" the rest
 * may begin anywhere, else at the start of the name. */
static bool begin_match(struct tp_re *p, unsigned flags)
{
    size_t back = p->at;
    tp_re_take(p, "^");
    bool any = tp_re_take(p, ".*");
    tp_re_take(p, any ? "?" : "");
    if (any && (!tp_re_next(p) || !strchr("*+?{", tp_re_next(p)))) { /* no further repeat */
        p->first_line = !(flags & TP_RE_DOTALL);
        return true;
    }
    p->at = back;
    return tp_re_put(p, "\\A");
}

static bool branch(struct tp_re *p, unsigned flags, struct width *all)
{
    enum item item = ITEM_NONE;
    struct width last = {0, 0}; /* of the item that may yet be repeated */
    size_t from = 0;            /* where it begins in p->out */
    *all = last;
    if (p->start && p->depth == 0 && !begin_match(p, flags))
        return false;
    while (tp_re_next(p) && tp_re_next(p) != '|' && tp_re_next(p) != ')') {
        struct repeat r;
        size_t start = p->at;
        bool good;
        if (strncmp(p->text + start, "(?#", 3) == 0) {
            good = pass_comment(p);
        } else if (take_repeat(p, &r)) {
            good = put_repeat(p, &r, item, start, from);
            item = ITEM_REPEAT;
            last = (struct width){times(last.min, r.min), times(last.max, r.max)};
        } else {
            add_width(all, last);
            from = p->out->size;
            good = take_item(p, flags, &item, &last);
        }
        if (!good)
            return false;
    }
    add_width(all, last);
    return true;
}

static bool alternatives(struct tp_re *p, unsigned flags, struct width *width)
{
    struct width one;
    if (!branch(p, flags, width))
        return false;
    while (tp_re_take(p, "|")) {
        if (!tp_re_put(p, "|") || !branch(p, flags, &one))
            return false;
        if (one.min < width->min)
            width->min = one.min;
        if (one.max > width->max)
            width->max = one.max;
    }
    return true;
}

enum tp_code tp_pattern_python(const char *text, bool start, struct tp_text *out,
                               bool *first_line, struct tp_pattern_refusal *refusal,
                               struct tp_err *err)
{
    struct tp_re p = {.text = text, .size = strlen(text), .start = start, .out = out,
                      .refusal = refusal, .err = err};
    struct width width;
    unsigned flags = 0;
    *refusal = (struct tp_pattern_refusal){0};
    bool good = tp_re_put(&p, "") && first_flags(&p, &flags) && alternatives(&p, flags, &width);
    if (good && p.at < p.size)
        tp_re_refuse(&p, p.at, "there is no group to close");
    *first_line = p.first_line;
    return p.code;
}
