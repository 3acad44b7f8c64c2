/* Patterns as people write them, in the words of PCRE2.
 *
 * What is written uses only constructs that mean the same in every version of PCRE2 and need
 * none of its options but UTF and a newline of LF: no captures, no flags, every class spelled
 * out. So a recorded pattern means the same wherever it is compiled again.
 */
#ifndef TP_PACK_PATTERN_TEXT_H
#define TP_PACK_PATTERN_TEXT_H

#include "pack/text/text.h"

#include <stdbool.h>

/* Groups inside of groups, at most. */
enum { TP_PATTERN_NESTING = 50 };

/* Why a pattern is not taken. why is a constant text, NULL: it is taken. */
struct tp_pattern_refusal {
    const char *why;
    size_t at; /* byte of the pattern */
};

/* Appends to *out what is found in the same names as `text` (UTF-8), a regular expression of
 * Python's `re` given as a str. Refused is what Python refuses, what its versions read
 * differently, and what is too large. TP_OK also for what is refused; else TP_E_MEMORY.
 *
 * With `start` it has to match from the start of a name, as by re.match(). *first_line is set
 * where what is found must not begin behind the first newline: an expression that begins with
 * ".*" is written without that, as a search is many times faster than going back from the
 * end of the name.
 *
 * Without `start`, "[[:digit:]]" is the class of that name, and the word borders "\<" and "\>"
 * of POSIX tools are refused; Python reads both otherwise, without a use. */
enum tp_code tp_pattern_python(const char *text, bool start, struct tp_text *out,
                               bool *first_line, struct tp_pattern_refusal *refusal,
                               struct tp_err *err);

/* The same for a glob, which stands for the whole name: "*" any characters, "?" one, "[abc]",
 * "[a-z]" and "[!a-z]" one of a set. */
enum tp_code tp_pattern_glob(const char *text, struct tp_text *out,
                             struct tp_pattern_refusal *refusal, struct tp_err *err);

#endif
