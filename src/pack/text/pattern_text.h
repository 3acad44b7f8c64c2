/* Patterns as people write them, in the words of PCRE2.
 *
 * Regular expressions are those of PCRE2 with the options that pattern.c sets. What Python's `re`
 * takes, too, but reads otherwise is refused, so that a pattern means the same in both.
 */
#ifndef TP_PACK_PATTERN_TEXT_H
#define TP_PACK_PATTERN_TEXT_H

#include "pack/text/text.h"

#include <stdbool.h>

/* {0} is empty. */
struct tp_pattern_words {
    struct tp_text text;
    unsigned members; /* of the set that has most: what is not ASCII, and classes such as \d. The
                       * library searches them one by one */
    const char *why;  /* a constant text; NULL: the pattern is not refused */
    size_t at;        /* where, in the pattern */
};

/* Writes a regular expression, each of its bytes at its place. Refused is what Python reads
 * otherwise; mistakes are left to the library. Without `start`, a set may hold a POSIX class,
 * "[[:digit:]]", which Python reads otherwise, without a use. TP_OK also for what is refused; else
 * TP_E_MEMORY. */
enum tp_code tp_pattern_python(const char *text, bool start, struct tp_pattern_words *words,
                               struct tp_err *err);

/* The same of a glob, which stands for the whole name: "*" any characters, "?" one, "[abc]",
 * "[a-z]" and "[!a-z]" one of a set. */
enum tp_code tp_pattern_glob(const char *text, struct tp_pattern_words *words, struct tp_err *err);

#endif
