/* Patterns for names, from users and from checkpoints.
 *
 * A pattern from a stranger costs no more than a bounded time and memory, or it is an error:
 * its length, the nesting of its groups, the size of its compiled form, and the steps and the
 * memory of each match are limited. A match that meets a limit is an error as well, never
 * "no match".
 */
#ifndef TP_PACK_PATTERN_H
#define TP_PACK_PATTERN_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    TP_PATTERN_LENGTH = 4096,   /* bytes of a pattern */
    TP_PATTERN_CODE = 64 << 10, /* bytes of its compiled form */
    TP_PATTERN_ALL = 16 << 20,  /* bytes of all that share a matcher */
    TP_PATTERN_STEPS = 250000,  /* of one match: some 30 ms. Fewer for names above 256 bytes */
    TP_PATTERN_DEPTH = 100000,  /* choices of one match that are kept to be changed */
    TP_PATTERN_HEAP = 16 << 20, /* bytes of one match */
};

enum tp_pattern_kind {
    /* What users write: a regular expression as in Python, found anywhere in the name
     * (re.search), with the classes of POSIX; behind "glob:" a glob for the whole name. */
    TP_PATTERN_SEARCH,
    /* What checkpoints hold: a regular expression of Python that has to match from the
     * start of the name, and need not reach its end (re.match). */
    TP_PATTERN_MATCH,
};

/* Where a pattern comes from: how a message names it, and what a mistake in it is. */
struct tp_pattern_origin {
    const char *place;   /* "--include", "quantization_config: \"ignore\""; lives on. NULL: the
                          * message is the reason alone */
    long index;          /* in the list of that name; -1: none */
    enum tp_code blame;  /* TP_E_USAGE, or TP_E_INPUT for what stands in a checkpoint */
};

/* The library's memory, shared by all patterns of a list; for one thread at a time. {0} is
 * valid and holds nothing yet. */
struct tp_matcher {
    struct pcre2_real_general_context_8 *memory;
    struct pcre2_real_compile_context_8 *compile;
    struct pcre2_real_match_context_8 *match;
    struct pcre2_real_match_data_8 *data;
    size_t size; /* of all that was compiled */
};
void tp_matcher_close(struct tp_matcher *matcher); /* legal on {0} and twice */

struct tp_pattern {
    char *text; /* as it was given; NULL: not compiled */
    struct pcre2_real_code_8 *code;
    bool anywhere;   /* may begin anywhere in the name */
    bool first_line; /* but not behind its first newline */
    struct tp_pattern_origin origin;
};

/* Compiles text. On failure *pattern holds nothing, and the code is the origin's blame, with
 * the place, the reason and the offset in the pattern, or TP_E_MEMORY. */
enum tp_code tp_pattern_compile(struct tp_matcher *matcher, const char *text,
                                enum tp_pattern_kind kind, struct tp_pattern_origin origin,
                                struct tp_pattern *pattern, struct tp_err *err);
/* Whether the name (UTF-8) matches. The origin's blame if that costs too much, or
 * TP_E_MEMORY; *matches is false then. */
enum tp_code tp_pattern_match(const struct tp_matcher *matcher, const struct tp_pattern *pattern,
                              const char *name, bool *matches, struct tp_err *err);
void tp_pattern_free(struct tp_pattern *pattern); /* legal on {0} and twice */

#endif
