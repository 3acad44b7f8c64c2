/* Inside of the reader of Python's regular expressions: what pattern_python.c (items, repeats,
 * groups) has from pattern_chars.c (characters, classes, sets).
 *
 * Functions return false when the pattern is refused, or memory is short.
 */
#ifndef TP_PACK_PATTERN_CHARS_H
#define TP_PACK_PATTERN_CHARS_H

#include "pack/text/pattern_text.h"

/* Flags that are on at a place; the last three never are. */
enum {
    TP_RE_ASCII = 1, TP_RE_IGNORE = 2, TP_RE_MULTI = 4, TP_RE_DOTALL = 8,
    TP_RE_UNICODE = 16, TP_RE_VERBOSE = 32, TP_RE_LOCALE = 64
};

/* A pattern that is being read, and what was made of it so far. */
struct tp_re {
    const char *text;
    size_t size, at;
    unsigned depth; /* groups that are open */
    bool start;      /* as by re.match(); else POSIX classes are known, too */
    bool first_line; /* what is found begins before the first newline, or at it */
    struct tp_text *out;
    struct tp_pattern_refusal *refusal;
    enum tp_code code; /* of what was written */
    struct tp_err *err;
};

bool tp_re_refuse(struct tp_re *p, size_t at, const char *why); /* false */

/* Writing: words of PCRE2 as they are; a set of these members between two words; a character
 * for itself, with both cases where the flags want it, read at `start`. */
bool tp_re_put(struct tp_re *p, const char *words);
bool tp_re_put_class(struct tp_re *p, const char *before, const char *members, const char *after);
bool tp_re_put_literal(struct tp_re *p, unsigned flags, size_t start, uint32_t c);

/* Reading: the byte that comes next, 0 at the end; whether these words come next, which are
 * passed then; one character. */
char tp_re_next(const struct tp_re *p);
bool tp_re_take(struct tp_re *p, const char *words);
bool tp_re_char(struct tp_re *p, uint32_t *c);
/* Up to three octal digits; a character behind the backslash at `start`, digits and classes
 * aside. */
bool tp_re_octal(struct tp_re *p, size_t start, uint32_t *c);
bool tp_re_escape(struct tp_re *p, size_t start, uint32_t *c);
/* What the letter behind a backslash stands for, as members of a set; or NULL. */
const char *tp_re_class(char letter, unsigned flags);
/* Reads and writes a set, whose '[' comes next. */
bool tp_re_set(struct tp_re *p, unsigned flags);

#endif
