/* Patterns for names, from users and from checkpoints.
 *
 * A pattern from untrusted input costs a bounded time and memory, or it is an error:
 * its length, the nesting of its groups, the size of its compiled form, the steps and the
 * memory of each match, and the steps of all matches of a matcher are limited. A match that
 * meets a limit is an error as well, never "no match".
 */
#ifndef TP_PACK_PATTERN_H
#define TP_PACK_PATTERN_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TP_PATTERN_LENGTH = 4096,   /* bytes of a pattern */
    TP_PATTERN_NESTING = 50,    /* groups inside of groups */
    TP_PATTERN_CODE = 64 << 10, /* bytes of its compiled form */
    TP_PATTERN_ALL = 16 << 20,  /* bytes of all that share a matcher */
    TP_PATTERN_STEPS = 250000,  /* of one match: some 30 ms. A step counts as several for names
                                   above 64 bytes, and for sets with classes or beyond ASCII */
    TP_PATTERN_DEPTH = 100000,  /* choices of one match that are kept to be changed */
    TP_PATTERN_HEAP = 16 << 20, /* bytes of one match */
};
/* Steps of all matches of a matcher, at most: a minute or two at the worst. What a source's
 * config.json lists shares them with the request. Of a name of 50 bytes the usual pattern takes 4
 * to 40, one that begins with '.*' 50, one of three '.+' 1,300; so that ten of the last are within
 * it for 100,000 names. */
#define TP_PATTERN_WORK UINT64_C(4000000000)

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
    const char *place;       /* "--include", "quantization_config: \"ignore\""; lives on. NULL: the
                              * message is the reason alone */
    long index;              /* in the list of that name; -1: none */
    enum tp_code error_code; /* TP_E_USAGE, or TP_E_INPUT for what stands in a checkpoint */
};

/* The library's memory, shared by all patterns of a list; for one thread at a time. {0} is
 * valid and holds nothing yet. */
struct tp_matcher {
    struct pcre2_real_general_context_8 *memory;
    struct pcre2_real_compile_context_8 *compile;
    struct pcre2_real_match_context_8 *match;
    struct pcre2_real_match_data_8 *data;
    size_t size; /* of all that was compiled */
    uint64_t work; /* steps of all matches */
};
void tp_matcher_close(struct tp_matcher *matcher); /* legal on {0} and twice */

struct tp_pattern {
    char *text; /* as it was given; NULL: not compiled */
    struct pcre2_real_code_8 *code;
    unsigned members; /* of its largest set: what makes a step longer */
    struct tp_pattern_origin origin;
};

/* Compiles text. On failure *pattern holds nothing, and the code is the origin's error code, with
 * the place, the reason and the offset in the pattern, or TP_E_MEMORY. */
enum tp_code tp_pattern_compile(struct tp_matcher *matcher, const char *text,
                                enum tp_pattern_kind kind, struct tp_pattern_origin origin,
                                struct tp_pattern *pattern, struct tp_err *err);
/* Whether the name (UTF-8) matches. The origin's error code if that costs too much, or
 * TP_E_MEMORY; *matches is false then. */
enum tp_code tp_pattern_match(struct tp_matcher *matcher, const struct tp_pattern *pattern,
                              const char *name, bool *matches, struct tp_err *err);
/* Counts steps of another kind of search, of some 70 ns each, with those of the matcher; text and
 * origin are of what is searched for. The origin's error code once there are too many. */
enum tp_code tp_matcher_work(struct tp_matcher *matcher, uint64_t steps, const char *text,
                             const struct tp_pattern_origin *origin, const char *name,
                             struct tp_err *err);
void tp_pattern_free(struct tp_pattern *pattern); /* legal on {0} and twice */

#endif
