/* Compiling and matching with PCRE2, within limits. Invariant: all memory comes through the
 * table of os.h, and there is no just-in-time compiler: what a pattern does is bounded by the
 * limits of pattern.h alone.
 */
#include "pack/text/pattern.h"

#include "pack/os/os.h"
#include "pack/text/json_scan.h"
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
    tp_err_hint(err, "free memory or give the process more");
    return tp_fail(err, TP_E_MEMORY, "out of memory for a pattern");
}

static void set_limits(struct tp_matcher *m)
{
    pcre2_set_newline(m->compile, PCRE2_NEWLINE_LF);
    /* borders and looks ahead have two each */
    pcre2_set_parens_nest_limit(m->compile, 4 * TP_PATTERN_NESTING);
#if PCRE2_MAJOR > 10 || PCRE2_MINOR >= 44
    pcre2_set_max_pattern_compiled_length(m->compile, TP_PATTERN_CODE);
#endif
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

/* "--include 'a('": a text from a stranger may be long. */
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
        return tp_fail(err, origin->blame, "%s%s", why, where);
    return tp_fail(err, origin->blame, "%s: %s%s", label(origin, text, who), why, where);
}

/* ---------------------------------------------------------------- compiling -- */

/* Whether a text can be a pattern at all. */
static struct tp_pattern_refusal check_text(const char *text)
{
    size_t size = strnlen(text, TP_PATTERN_LENGTH + 1);
    if (size > TP_PATTERN_LENGTH)
        return (struct tp_pattern_refusal){"it is longer than 4096 bytes", TP_PATTERN_LENGTH};
    size_t valid = tp_utf8_valid(text, size);
    return valid < size ? (struct tp_pattern_refusal){"it is not UTF-8", valid}
                        : (struct tp_pattern_refusal){0};
}

/* The pattern in the words of PCRE2. */
static enum tp_code translate(const char *text, enum tp_pattern_kind kind, struct tp_text *words,
                              bool *first_line, struct tp_pattern_refusal *refusal,
                              struct tp_err *err)
{
    *refusal = check_text(text);
    if (refusal->why)
        return TP_OK;
    if (kind == TP_PATTERN_MATCH || !is_glob(text))
        return tp_pattern_python(text, kind == TP_PATTERN_MATCH, words, first_line, refusal, err);
    enum tp_code code = tp_pattern_glob(text + 5, words, refusal, err);
    refusal->at += 5;
    return code;
}

/* Short patterns may have long forms, and a list may have many of them. */
static enum tp_code take_facts(struct tp_matcher *matcher, struct tp_pattern *pattern,
                               const char *text, struct tp_err *err)
{
    size_t size = 0;
    uint32_t options = 0, first = 0;
    pcre2_pattern_info(pattern->code, PCRE2_INFO_SIZE, &size);
    pcre2_pattern_info(pattern->code, PCRE2_INFO_ALLOPTIONS, &options);
    pcre2_pattern_info(pattern->code, PCRE2_INFO_FIRSTCODETYPE, &first);
    pattern->anywhere = !(options & PCRE2_ANCHORED); /* as "\A" makes it */
    pattern->at_lines = first == 2;
    matcher->size += size;
    return matcher->size <= TP_PATTERN_ALL
               ? TP_OK
               : refuse(&pattern->origin, text, "with the patterns before it, it is too large", -1,
                        err);
}

/* What the library searches one by one for a character of a name, of the sets in its words. */
static void measure_sets(const char *words, struct tp_pattern *pattern)
{
    unsigned members = 0;
    bool set = false, property = false;
    for (const char *at = words; *at; at++) {
        if (*at == '\\') {
            at++;
            members += set && *at == 'x' && strtoul(at + 2, NULL, 16) >= 0x80;
            property |= set && strchr("pP", *at);
        } else if (*at == '[' && !set) {
            set = true;
            property = false;
            members = 0;
        } else if (*at == ']' && set) {
            set = false;
            pattern->members = members > pattern->members ? members : pattern->members;
            if (property && members > pattern->with_property)
                pattern->with_property = members;
        } else {
            members += (unsigned char)*at >= 0xC0;
        }
    }
}

static enum tp_code compile(struct tp_matcher *matcher, const struct tp_text *words,
                            const char *text, struct tp_pattern *pattern, struct tp_err *err)
{
    int failed;
    size_t at; /* in the words of PCRE2, so it means nothing to others */
    enum tp_code code = open_matcher(matcher, err);
    if (code)
        return code;
    pattern->code = pcre2_compile((PCRE2_SPTR)words->data, words->size,
                                  PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT, &failed, &at,
                                  matcher->compile);
    measure_sets(words->data, pattern);
    if (pattern->code)
        return take_facts(matcher, pattern, text, err);
    if (failed == PCRE2_ERROR_HEAP_FAILED)
        return no_memory(err);
    char why[200];
    if (pcre2_get_error_message(failed, (PCRE2_UCHAR *)why, sizeof why) < 0)
        snprintf(why, sizeof why, "error %d of the library", failed);
    return refuse(&pattern->origin, text, why, -1, err);
}

enum tp_code tp_pattern_compile(struct tp_matcher *matcher, const char *text,
                                enum tp_pattern_kind kind, struct tp_pattern_origin origin,
                                struct tp_pattern *pattern, struct tp_err *err)
{
    struct tp_text words = {0};
    struct tp_pattern_refusal refusal;
    *pattern = (struct tp_pattern){.origin = origin};
    enum tp_code code = translate(text, kind, &words, &pattern->first_line, &refusal, err);
    if (code == TP_OK && refusal.why)
        code = refuse(&origin, text, refusal.why, (long)refusal.at, err);
    else if (code == TP_OK)
        code = compile(matcher, &words, text, pattern, err);
    tp_text_free(&words);
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

/* A name that is matched, and where in it a match may begin. */
struct subject {
    const struct tp_pattern *pattern;
    const char *name;
    size_t size;
    size_t last;           /* no match begins behind it */
    int unit;              /* what the library looks for before it takes a step, or -1 */
    const uint8_t *bitmap; /* the same of several bytes, or NULL */
    uint32_t options;
    uint64_t weight; /* what a step is counted as: it may look at the whole name */
    unsigned most;   /* steps at one place */
};

/* Bytes of characters beyond ASCII. */
static size_t count_wide(const char *name, size_t size)
{
    size_t wide = 0;
    for (size_t i = 0; i < size; i++)
        wide += (unsigned char)name[i] >= 0x80;
    return wide;
}

/* A step may look at the whole name, at all members of a set for each character; and the library
 * counts anew for each place of it where a match may start. */
static void weigh(struct subject *s, size_t wide)
{
    uint64_t searched = (uint64_t)s->pattern->members * wide +
                        (uint64_t)s->pattern->with_property * (s->size - wide);
    s->weight = 1 + (s->size + 2 * searched) / 64;
    uint64_t most = TP_PATTERN_STEPS / s->weight /
                    (s->pattern->anywhere ? 1 + s->size / 16 : 1);
    s->most = most ? (unsigned)most : 1;
}

static struct subject subject_of(const struct tp_pattern *pattern, const char *name)
{
    uint32_t type = 0, unit = 0;
    struct subject s = {.pattern = pattern, .name = name, .size = strlen(name)};
    const char *newline = pattern->first_line ? memchr(name, '\n', s.size) : NULL;
    size_t wide = count_wide(name, s.size);
    s.last = newline ? (size_t)(newline - name) : s.size;
    pcre2_pattern_info(pattern->code, PCRE2_INFO_FIRSTCODETYPE, &type);
    pcre2_pattern_info(pattern->code, PCRE2_INFO_FIRSTCODEUNIT, &unit);
    pcre2_pattern_info(pattern->code, PCRE2_INFO_FIRSTBITMAP, &s.bitmap);
    s.unit = type == 1 ? (int)unit : -1;
    s.options = wide ? 0 : PCRE2_NO_UTF_CHECK;
    weigh(&s, wide);
    return s;
}

static enum tp_code fail_match(const struct subject *s, int failed, struct tp_err *err)
{
    char why[200];
    if (failed == PCRE2_ERROR_NOMEMORY)
        return no_memory(err);
    tp_err_tensor(err, s->name);
    tp_err_hint(err, "write the pattern without repeats of what is repeated already");
    if (failed == PCRE2_ERROR_MATCHLIMIT)
        snprintf(why, sizeof why, "it takes more than %u steps for this name", s->most);
    else if (failed == PCRE2_ERROR_DEPTHLIMIT || failed == PCRE2_ERROR_HEAPLIMIT)
        snprintf(why, sizeof why, "it takes too much memory for this name");
    else if (pcre2_get_error_message(failed, (PCRE2_UCHAR *)why, sizeof why) < 0)
        snprintf(why, sizeof why, "error %d of the library", failed);
    return refuse(&s->pattern->origin, s->pattern->text, why, -1, err);
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

static bool may_begin(const struct subject *s, unsigned char byte)
{
    if (s->unit >= 0) /* in either case; letters of others may be cases of it, too */
        return byte >= 0x80 || (byte | 0x20) == (s->unit | 0x20);
    return !s->bitmap || s->bitmap[byte / 8] >> byte % 8 & 1;
}

/* Whether a match is tried at that byte of the name; its end is one where nothing is known. */
static bool is_place(const struct subject *s, size_t at)
{
    if (!s->pattern->anywhere)
        return at == 0;
    if (s->pattern->at_lines)
        return at == 0 || s->name[at - 1] == '\n';
    unsigned char byte = (unsigned char)s->name[at];
    return at == s->size || ((byte & 0xC0) != 0x80 && may_begin(s, byte));
}

/* Counts steps at so many places. */
static enum tp_code count_steps(struct tp_matcher *matcher, const struct subject *s,
                                uint64_t steps, uint64_t places, struct tp_err *err)
{
    return tp_matcher_work(matcher, steps * places * s->weight, s->pattern->text,
                           &s->pattern->origin, s->name, err);
}

static int match(const struct tp_matcher *matcher, const struct subject *s, size_t from,
                 uint32_t options, unsigned steps)
{
    pcre2_set_match_limit(matcher->match, steps);
    pcre2_set_offset_limit(matcher->match, s->last);
    return pcre2_match(s->pattern->code, (PCRE2_SPTR)s->name, s->size, from,
                       s->options | options, matcher->data, matcher->match);
}

enum { FEW_STEPS = 4, MORE_STEPS = 64 };

/* The library does not tell how many steps it took, so it gets few, and then more and more. */
static enum tp_code match_at(struct tp_matcher *matcher, const struct subject *s, size_t at,
                             int *found, struct tp_err *err)
{
    unsigned steps = 0;
    *found = PCRE2_ERROR_MATCHLIMIT;
    while (*found == PCRE2_ERROR_MATCHLIMIT && steps < s->most) {
        steps = !steps ? FEW_STEPS : steps == FEW_STEPS ? MORE_STEPS : 4 * steps;
        steps = steps < s->most ? steps : s->most;
        enum tp_code code = count_steps(matcher, s, steps, 1, err);
        if (code)
            return code;
        *found = match(matcher, s, at, PCRE2_ANCHORED, steps);
    }
    return TP_OK;
}

/* Places up to that byte of the name, or to its last. */
static uint64_t places_to(const struct subject *s, size_t last)
{
    uint64_t places = 0;
    for (size_t at = 0; at <= last && at <= s->last; at++)
        places += is_place(s, at);
    return places ? places : 1;
}

/* A few steps at each place up to where a match is found do for nearly all names. Where they do
 * not, each place is tried by itself, as most of them take few all the same. */
enum tp_code tp_pattern_match(struct tp_matcher *matcher, const struct tp_pattern *pattern,
                              const char *name, bool *matches, struct tp_err *err)
{
    struct subject s = subject_of(pattern, name);
    *matches = false;
    int found = match(matcher, &s, 0, 0, FEW_STEPS);
    size_t last = found >= 0 ? pcre2_get_ovector_pointer(matcher->data)[0] : s.last;
    enum tp_code code = count_steps(matcher, &s, FEW_STEPS, places_to(&s, last), err);
    if (code)
        return code;
    bool each = found == PCRE2_ERROR_MATCHLIMIT;
    s.options = PCRE2_NO_UTF_CHECK; /* it was checked */
    if (each)
        found = PCRE2_ERROR_NOMATCH;
    for (size_t at = 0; each && at <= s.last && found == PCRE2_ERROR_NOMATCH; at++)
        if (is_place(&s, at) && (code = match_at(matcher, &s, at, &found, err)))
            return code;
    *matches = found >= 0; /* 0: more was found than there is room to say */
    return found >= 0 || found == PCRE2_ERROR_NOMATCH ? TP_OK
                                                      : fail_match(&s, found, err);
}
