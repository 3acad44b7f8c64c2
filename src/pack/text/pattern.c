/* Compiling and matching with PCRE2, within limits. Invariant: all memory comes through the
 * table of os.h, and there is no just-in-time compiler: what a pattern does is bounded by the
 * limits of pattern.h alone. The library calls back before each item that it tries, so the steps
 * of a match are counted exactly.
 */
#include "pack/text/pattern.h"

#include "pack/os/os.h"
#include "pack/text/pattern_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* ------------------------------------------------------------------ matcher -- */

static void *take_memory(size_t size, void *data)
{
    (void)data;
    return tp_os.malloc(size);
}

static void give_memory(void *memory, void *data)
{
    (void)data;
    free(memory);
}

static enum tp_code no_memory(struct tp_err *err)
{
    return tp_refuse(err, TP_E_MEMORY, "free memory or give the process more",
                     "out of memory for a pattern");
}

static void set_limits(struct tp_matcher *m)
{
    pcre2_set_newline(m->compile, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(m->compile, TP_PATTERN_NESTING);
#if PCRE2_MAJOR > 10 || PCRE2_MINOR >= 44
    pcre2_set_max_pattern_compiled_length(m->compile, TP_PATTERN_CODE);
#endif
    pcre2_set_match_limit(m->match, TP_PATTERN_STEPS);
    pcre2_set_depth_limit(m->match, TP_PATTERN_DEPTH);
    pcre2_set_heap_limit(m->match, TP_PATTERN_HEAP >> 10);
}

static enum tp_code open_matcher(struct tp_matcher *m, struct tp_err *err)
{
    if (m->data)
        return TP_OK;
    if (!m->memory)
        m->memory = pcre2_general_context_create(take_memory, give_memory, NULL);
    if (m->memory && !m->compile)
        m->compile = pcre2_compile_context_create(m->memory);
    if (m->memory && !m->match)
        m->match = pcre2_match_context_create(m->memory);
    if (m->compile && m->match)
        m->data = pcre2_match_data_create(1, m->memory);
    if (!m->data)
        return no_memory(err);
    set_limits(m);
    return TP_OK;
}

void tp_matcher_close(struct tp_matcher *m)
{
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->match);
    pcre2_compile_context_free(m->compile);
    pcre2_general_context_free(m->memory);
    *m = (struct tp_matcher){0};
}

/* ----------------------------------------------------------------- messages -- */

enum { SHOWN = 60, LABEL = 200 };

/* "--include 'a('": a text from untrusted input may be long. */
static const char *label(const struct tp_pattern_origin *origin, const char *text,
                         char into[LABEL])
{
    size_t size = strnlen(text, SHOWN + 1);
    const char *more = size > SHOWN ? "..." : "";
    if (size > SHOWN)
        for (size = SHOWN; size > SHOWN - 3 && ((unsigned char)text[size] & 0xc0) == 0x80;)
            size--;
    char at[40] = "";
    if (origin->index >= 0)
        snprintf(at, sizeof at, "[%ld]:", origin->index);
    snprintf(into, LABEL, "%s%s '%.*s%s'", origin->place, at, (int)size, text, more);
    return into;
}

static bool is_glob(const char *text) { return strncmp(text, "glob:", 5) == 0; }

/* Whether somebody may have meant a glob: a wildcard, and nothing that only a regular
 * expression has. */
static bool like_glob(const char *text)
{
    return strpbrk(text, "*?") && !strpbrk(text, "\\(|)^$+{");
}

static void hint(const char *text, enum tp_pattern_kind kind, struct tp_err *err)
{
    if (kind == TP_PATTERN_MATCH)
        tp_err_hint(err, "it has to be a regular expression as Python's re.match() takes it: "
                         "correct config.json, or take the entry out");
    else if (is_glob(text))
        tp_err_hint(err, "a glob has *, ? and sets such as [a-z] and [!a-z]");
    else if (like_glob(text))
        tp_err_hint(err, "this is a regular expression, not a glob; use 'glob:%.60s'", text);
    else
        tp_err_hint(err, "patterns are regular expressions as in Python (quote '.' as '\\.'), or "
                         "globs behind 'glob:'");
}

/* at: byte of the pattern, or -1 where the whole of it is meant. */
static enum tp_code refuse(const struct tp_pattern_origin *origin, const char *text,
                           const char *why, long at, struct tp_err *err)
{
    char who[LABEL], where[40] = "";
    if (at >= 0)
        snprintf(where, sizeof where, ", at offset %ld", at);
    if (!origin->place)
        return tp_fail(err, origin->error_code, "%s%s", why, where);
    return tp_fail(err, origin->error_code, "%s: %s%s", label(origin, text, who), why, where);
}

/* ---------------------------------------------------------------- compiling -- */

/* The pattern in the words of PCRE2. */
static enum tp_code translate(const char *text, enum tp_pattern_kind kind,
                              struct tp_pattern_words *words, struct tp_err *err)
{
    if (strnlen(text, TP_PATTERN_LENGTH + 1) > TP_PATTERN_LENGTH) {
        words->why = "it is longer than 4096 bytes";
        words->at = TP_PATTERN_LENGTH;
        return TP_OK;
    }
    if (kind == TP_PATTERN_MATCH || !is_glob(text))
        return tp_pattern_python(text, kind == TP_PATTERN_MATCH, words, err);
    enum tp_code code = tp_pattern_glob(text + 5, words, err);
    words->at += 5;
    return code;
}

/* Where a match begins with what a look-ahead finds, the library of version 10.42 asks for the
 * character of both twice. */
static uint32_t options_of(const char *words, enum tp_pattern_kind kind)
{
    return PCRE2_UTF | PCRE2_UCP | PCRE2_ALT_CIRCUMFLEX | PCRE2_NO_AUTO_CAPTURE |
           PCRE2_AUTO_CALLOUT | (kind == TP_PATTERN_MATCH ? PCRE2_ANCHORED : 0) |
           (strstr(words, "(?=") ? PCRE2_NO_START_OPTIMIZE : 0);
}

/* Short patterns may have long forms, and a list may have many of them. */
static enum tp_code add_size(struct tp_matcher *matcher, const struct tp_pattern *pattern,
                             const char *text, struct tp_err *err)
{
    size_t size = 0;
    pcre2_pattern_info(pattern->code, PCRE2_INFO_SIZE, &size);
    matcher->size += size;
    return matcher->size <= TP_PATTERN_ALL
               ? TP_OK
               : refuse(&pattern->origin, text, "with the patterns before it, it is too large", -1,
                        err);
}

static enum tp_code compile(struct tp_matcher *matcher, const struct tp_pattern_words *words,
                            const char *text, enum tp_pattern_kind kind,
                            struct tp_pattern *pattern, struct tp_err *err)
{
    int failed;
    size_t at;
    if (words->why)
        return refuse(&pattern->origin, text, words->why, (long)words->at, err);
    enum tp_code code = open_matcher(matcher, err);
    if (code)
        return code;
    pattern->members = words->members;
    pattern->code = pcre2_compile((PCRE2_SPTR)words->text.data, words->text.size,
                                  options_of(words->text.data, kind), &failed, &at,
                                  matcher->compile);
    if (pattern->code)
        return add_size(matcher, pattern, text, err);
    if (failed == PCRE2_ERROR_HEAP_FAILED)
        return no_memory(err);
    char why[200];
    if (pcre2_get_error_message(failed, (PCRE2_UCHAR *)why, sizeof why) < 0)
        snprintf(why, sizeof why, "error %d of the library", failed);
    bool glob = kind == TP_PATTERN_SEARCH && is_glob(text); /* whose words are at other places */
    return refuse(&pattern->origin, text, why, glob ? -1 : (long)at, err);
}

enum tp_code tp_pattern_compile(struct tp_matcher *matcher, const char *text,
                                enum tp_pattern_kind kind, struct tp_pattern_origin origin,
                                struct tp_pattern *pattern, struct tp_err *err)
{
    struct tp_pattern_words words = {0};
    *pattern = (struct tp_pattern){.origin = origin};
    enum tp_code code = translate(text, kind, &words, err);
    if (code == TP_OK)
        code = compile(matcher, &words, text, kind, pattern, err);
    tp_text_free(&words.text);
    if (code == TP_OK && !(pattern->text = tp_os_copy(err, text)))
        code = TP_E_MEMORY;
    if (code && code != TP_E_MEMORY)
        hint(text, kind, err);
    if (code)
        tp_pattern_free(pattern);
    return code;
}

void tp_pattern_free(struct tp_pattern *pattern)
{
    pcre2_code_free(pattern->code);
    free(pattern->text);
    *pattern = (struct tp_pattern){0};
}

/* ----------------------------------------------------------------- matching -- */

/* What a match may still cost. */
struct budget {
    uint64_t left, step;
};

/* The library calls it before each item of the pattern that it tries. */
static int count_step(pcre2_callout_block *block, void *data)
{
    struct budget *budget = data;
    (void)block;
    if (budget->left < budget->step)
        return PCRE2_ERROR_MATCHLIMIT;
    budget->left -= budget->step;
    return 0;
}

enum tp_code tp_matcher_work(struct tp_matcher *matcher, uint64_t steps, const char *text,
                             const struct tp_pattern_origin *origin, const char *name,
                             struct tp_err *err)
{
    char why[200];
    if (steps <= TP_PATTERN_WORK - matcher->work) {
        matcher->work += steps;
        return TP_OK;
    }
    matcher->work = TP_PATTERN_WORK;
    tp_err_tensor(err, name);
    tp_err_hint(err, "use fewer patterns, or some without repeats of what is repeated already");
    snprintf(why, sizeof why, "the patterns take more than %llu steps for all names together",
             TP_PATTERN_WORK + 0ULL);
    return refuse(origin, text, why, -1, err);
}

static enum tp_code fail_match(const struct tp_pattern *pattern, const char *name, int failed,
                               uint64_t step, struct tp_err *err)
{
    char why[200];
    if (failed == PCRE2_ERROR_NOMEMORY)
        return no_memory(err);
    tp_err_tensor(err, name);
    tp_err_hint(err, "write the pattern without repeats of what is repeated already");
    if (failed == PCRE2_ERROR_MATCHLIMIT)
        snprintf(why, sizeof why, "it takes more than %llu steps for this name",
                 TP_PATTERN_STEPS / step + 0ULL);
    else if (failed == PCRE2_ERROR_DEPTHLIMIT || failed == PCRE2_ERROR_HEAPLIMIT)
        snprintf(why, sizeof why, "it takes too much memory for this name");
    else if (pcre2_get_error_message(failed, (PCRE2_UCHAR *)why, sizeof why) < 0)
        snprintf(why, sizeof why, "error %d of the library", failed);
    return refuse(&pattern->origin, pattern->text, why, -1, err);
}

/* A step may look at the whole name, and at all members of a set for each character of it. */
enum tp_code tp_pattern_match(struct tp_matcher *matcher, const struct tp_pattern *pattern,
                              const char *name, bool *matches, struct tp_err *err)
{
    size_t size = strlen(name);
    struct budget budget = {TP_PATTERN_STEPS, 1 + size * (1 + 2 * (uint64_t)pattern->members) / 64};
    pcre2_set_callout(matcher->match, count_step, &budget);
    int found = pcre2_match(pattern->code, (PCRE2_SPTR)name, size, 0, 0, matcher->data,
                            matcher->match);
    *matches = false;
    uint64_t steps = TP_PATTERN_STEPS - budget.left + budget.step;
    enum tp_code code = tp_matcher_work(matcher, steps, pattern->text, &pattern->origin, name, err);
    if (code)
        return code;
    *matches = found >= 0; /* 0: more was found than there is room to say */
    return found >= 0 || found == PCRE2_ERROR_NOMATCH
               ? TP_OK
               : fail_match(pattern, name, found, budget.step, err);
}
