/* Patterns: what they mean, what is refused and where, and that none costs more than the limits.
 * With an argument, the driver of tests/cli/patterns_pairs.py.
 */
#include "pack/text/pattern.h"

#include "pack/os/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct tp_matcher matcher;
static struct tp_err err;

static enum tp_code compile(const char *text, enum tp_pattern_kind kind, struct tp_pattern *pattern)
{
    struct tp_pattern_origin origin = {"--include", -1, TP_E_USAGE};
    err = (struct tp_err){0};
    return tp_pattern_compile(&matcher, text, kind, origin, pattern, &err);
}

static bool matches_as(const char *text, enum tp_pattern_kind kind, const char *name)
{
    struct tp_pattern pattern;
    bool found;
    assert_int_equal(compile(text, kind, &pattern), TP_OK);
    assert_string_equal(pattern.text, text);
    assert_int_equal(tp_pattern_match(&matcher, &pattern, name, &found, &err), TP_OK);
    tp_pattern_free(&pattern);
    return found;
}

static bool search(const char *text, const char *name)
{
    return matches_as(text, TP_PATTERN_SEARCH, name);
}

static bool match(const char *text, const char *name)
{
    return matches_as(text, TP_PATTERN_MATCH, name);
}

static void refused_as(const char *text, enum tp_pattern_kind kind, const char *why)
{
    struct tp_pattern pattern;
    assert_int_equal(compile(text, kind, &pattern), TP_E_USAGE);
    assert_null(pattern.code);
    assert_null(pattern.text);
    if (!strstr(err.what, why))
        fail_msg("'%s' is refused with: %s", text, err.what);
}

static void refused(const char *text, const char *why)
{
    refused_as(text, TP_PATTERN_SEARCH, why);
}

static const char q[] = "model.layers.10.self_attn.q_proj.weight";

static void test_searching(void **state)
{
    (void)state;
    assert_true(search("q_proj", q));
    assert_true(search("", q));
    assert_true(search("^model\\.layers\\.1[0-9]\\.", q));
    assert_true(search("(q|k|v)_proj\\.weight$", q));
    assert_true(search("layers\\.[[:digit:]]+\\.", q));
    assert_true(search("[[:alpha:]_]+_[^[:digit:]]", q));
    assert_true(search("layers\\.(?!0\\.)\\d+", q));
    assert_true(search("1{1}0{0,3}\\.", q));
    assert_true(search("(?=lm)\\w*l", "lm_head")); /* PCRE2 of version 10.42 wants a second l */
    assert_true(search("(?i)Q_Proj", q));
    assert_true(search("(?i:Q)_proj\\.weight\\Z", q));
    assert_false(search("(?i:Q)_Proj", q));
    assert_true(search("(?#any)q_(?>proj)++[.]", q));
    assert_true(search("(?P<kind>[qkv])_proj", q));
    assert_true(search("a$", "a\n"));
    assert_false(search("a\\Z", "a\n")); /* as \z of PCRE2 */
    assert_true(search("(?m)^$", "a\n")); /* Python: behind a newline at the end, too */
    assert_true(search("é\\w[[:alpha:]]", "éèà"));
    assert_false(search("^layers", q));
    assert_false(search("q_proj$", q));
    assert_false(search("[[:upper:]]", q));
    assert_false(search("(?<!self_)attn", q));
    assert_true(search("glob", "a.glob:b"));
}

static void test_matching_from_the_start(void **state)
{
    (void)state;
    assert_true(match("model", q));
    assert_true(match(".*q_proj", q));
    assert_true(match("x|model", q));
    assert_false(match("layers", q));
    assert_false(match("x|layers", q));
    assert_false(match("glob:model*", q));
    assert_true(match("a{b{}", "a{b{}"));
    assert_true(match("[]^[]+\\Z", "^[]"));
}

static void test_globs(void **state)
{
    (void)state;
    assert_true(search("glob:*", q));
    assert_true(search("glob:*.weight", q));
    assert_true(search("glob:model.layers.*.q_proj.*", q));
    assert_true(search("glob:model.layers.1?.*[qk]_proj.weight", q));
    assert_true(search("glob:*[!a-pr-z]_proj*", q));
    assert_true(search("glob:***l*l*_*_*t", q));
    assert_true(search("glob:[]]a[*][a-]", "]a*-"));
    assert_true(search("glob:é?", "éé"));
    assert_true(search("glob:[à-é]*", "é\n"));
    assert_true(search("glob:", ""));
    assert_false(search("glob:", q));
    assert_false(search("glob:model", q));
    assert_false(search("glob:*.weigh", q));
    assert_false(search("glob:odel*", q));
    assert_false(search("glob:model?layers.*.q.*", q));
    assert_false(search("glob:a.b", "axb"));
    assert_false(search("glob:*a*b", "ba"));
    assert_true(search("glob:*ab*ab", "aabab")); /* the first place is not the last */
    assert_false(search("glob:*ab*ab", "aab"));
    refused("glob:a[b", "'glob:a[b': this set is never closed, at offset 6");
    refused("glob:a[^b]", "is written [!...], at offset 6");
    refused("glob:a\\*", "is quoted in a set, as in [*], at offset 6");
    refused("glob:[[:digit:]]", "at offset 6");
    refused("glob:[z-a]", "range out of order");
}

static void test_what_is_refused_and_where(void **state)
{
    (void)state;
    refused("a(", "--include 'a(': missing closing parenthesis, at offset 2");
    refused("a)", "unmatched closing parenthesis, at offset 1");
    refused("a|[b", "missing terminating ] for character class, at offset 4");
    refused("a\\", "\\ at end of pattern");
    refused("[\\", "\\ at end of pattern");
    refused("a{2,1}", "numbers out of order in {} quantifier");
    refused("ab**", "quantifier does not follow a repeatable item");
    refused("é{2}{3}", "quantifier does not follow a repeatable item");
    refused("*.weight", "quantifier does not follow a repeatable item, at offset 0");
    refused("(?:a|*b)", "quantifier does not follow a repeatable item, at offset 5");
    refused("[b-a]", "range out of order in character class");
    refused("[a-\\d]", "invalid range in character class");
    refused("[[:letter:]]", "unknown POSIX class name");
    refused("[[.a.]]", "POSIX collating elements are not supported");
    refused("(?<=a+)b", "fixed length");
    refused("(?#a", "missing ) after (?# comment");
    refused("a\xff", "UTF-8 error");
    refused("a{65536}", "number too big in {} quantifier");
}

/* What PCRE2 would take otherwise than Python. */
static void test_what_python_reads_otherwise(void **state)
{
    (void)state;
    static const char *const escapes = "BCEGHIJKLMNOPQRTUVXYceghijklmopquvyz";
    for (const char *letter = escapes; *letter; letter++) {
        char text[] = {'a', '\\', *letter, '\0'}, set[] = {'[', '\\', *letter, ']', '\0'};
        refused(text, "Python reads this escape otherwise, or not at all, at offset 1");
        refused(set, "Python reads this escape otherwise, or not at all, at offset 1");
    }
    refused("\\<proj", "the borders of a word are \\b, those of the name ^ and $, at offset 0");
    refused("a\\x{61}", "this escape needs two hexadecimal digits, at offset 1");
    refused("a\\x6", "this escape needs two hexadecimal digits, at offset 1");
    refused("(a)\\1", "the text of a group is not asked for again here, at offset 3");
    refused("[]\\1]", "the text of a group is not asked for again here, at offset 2");
    static const char *const groups[] = {"(?R)", "(?1)", "(?P=n)", "(?P>n)", "(?&n)", "(?(1)a)",
                                         "(?|a)", "(?<n>a)", "(?'n'a)", "(?C)", "(?a)b", "(?x) b",
                                         "(?^:a)", "(?-:a)", "(?i-n:a)", "(?", "(?i"};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        refused(groups[i], "this kind of group is not read here, at offset 0");
    refused("a(?i)b", "flags stand at the start of the whole pattern, or of a group as in (?i:a), "
                      "at offset 1");
    refused("(*FAIL)", "Python knows no verbs, at offset 0");
    refused("(*UTF)a", "Python knows no verbs, at offset 0");
    static const char *const braces[] = {"a{,2}", "a{,}", "a{ 2}", "a{1, 2}", "a{1,2,3}", "a{1 }"};
    for (size_t i = 0; i < sizeof braces / sizeof *braces; i++)
        refused(braces[i], "a repeat is written {m}, {m,} or {m,n}, at offset 1");
    refused("(?:^x|^y){0}a", "a repeat of no times is not read here, at offset 9");
    refused("a{0,00}", "a repeat of no times is not read here, at offset 1");
    refused_as("[a[:digit:]]", TP_PATTERN_MATCH, "Python reads a class of POSIX otherwise, at "
                                                 "offset 2");
    refused_as("\\Q.\\E", TP_PATTERN_MATCH, "otherwise, or not at all, at offset 0");
}

static void test_hints(void **state)
{
    (void)state;
    refused("*.weight", "");
    assert_string_equal(err.hint, "this is a regular expression, not a glob; use 'glob:*.weight'");
    refused("*", "");
    assert_non_null(strstr(err.hint, "not a glob"));
    refused("a(", "");
    assert_string_equal(err.hint, "patterns are regular expressions as in Python (quote '.' as "
                                  "'\\.'), or globs behind 'glob:'");
    refused("glob:[*", "");
    assert_string_equal(err.hint, "a glob has *, ? and sets such as [a-z] and [!a-z]");
    refused_as("*.a", TP_PATTERN_MATCH, "");
    assert_non_null(strstr(err.hint, "correct config.json"));
}

static char *repeated(const char *text, size_t count, const char *end)
{
    size_t size = strlen(text);
    char *all = calloc(1, size * count + strlen(end) + 1);
    assert_non_null(all);
    for (size_t i = 0; i < count; i++)
        memcpy(all + i * size, text, size);
    strcpy(all + count * size, end);
    return all;
}

static void refused_many(const char *text, size_t count, const char *end, const char *why)
{
    char *all = repeated(text, count, end);
    refused(all, why);
    free(all);
}

static void test_size_limits(void **state)
{
    (void)state;
    refused_many("a", 4097, "", "it is longer than 4096 bytes, at offset 4096");
    refused_many("(", 4000, "", "parentheses are too deeply nested");
    refused("((((a{200}){200}){200}){50})", "too large");
    refused("(((.*){200}){200}){200}", "too large");
    refused("(a{60000}|b){60000}", "too large");
    refused_many("(?i:(?s:", 20, "a{2,3}", "missing closing parenthesis");
    refused("(?:(?:a|[^b]c){200}){200}", "too large");
    char *text = repeated("a", 4096, ""), *deep = repeated("(", 50, "");
    assert_false(search(text, q));
    free(text);
    text = repeated(")", 50, "");
    char *both = repeated(deep, 1, text);
    assert_true(search(both, q));
    free(both);
    free(deep);
    free(text);
}

/* A message shows the beginning of a text, and no half of a character. */
static void test_long_texts_are_cut(void **state)
{
    (void)state;
    char *text = repeated("é", 200, "(");
    refused(text, "éé...': missing closing parenthesis, at offset 401");
    assert_in_range(strlen(err.what), 60, 160);
    text[1] = 'x';
    refused(text, "UTF-8 error");
    memset(text, 0xab, 200); /* no beginning of a character to cut at */
    refused(text, "UTF-8 error");
    free(text);
}

/* All patterns of a matcher together. */
static void test_a_list_is_limited(void **state)
{
    (void)state;
    struct tp_matcher own = {0};
    struct tp_pattern_origin origin = {"list", 0, TP_E_INPUT};
    struct tp_pattern patterns[2000];
    size_t count = 0;
    enum tp_code code = TP_OK;
    err = (struct tp_err){0};
    while (code == TP_OK && count < 2000) {
        origin.index = (long)count;
        code = tp_pattern_compile(&own, "(?:(?:[^a]{3}b){30}){30}", TP_PATTERN_MATCH, origin,
                                  &patterns[count], &err);
        count += code == TP_OK;
    }
    assert_int_equal(code, TP_E_INPUT);
    assert_in_range(count, 200, 1999);
    assert_non_null(strstr(err.what, "with the patterns before it, it is too large"));
    for (size_t i = 0; i < count; i++)
        tp_pattern_free(&patterns[i]);
    tp_matcher_close(&own);
}

static void costs_too_much(const char *text, enum tp_pattern_kind kind, const char *name,
                           const char *why)
{
    struct tp_pattern pattern;
    bool found = true;
    assert_int_equal(compile(text, kind, &pattern), TP_OK);
    assert_int_equal(tp_pattern_match(&matcher, &pattern, name, &found, &err), TP_E_USAGE);
    assert_false(found);
    assert_non_null(strstr(err.what, why));
    assert_string_equal(err.tensor, name);
    tp_pattern_free(&pattern);
}

static void test_a_match_that_costs_too_much_is_an_error(void **state)
{
    (void)state;
    char *name = repeated("a", 100, "y");
    costs_too_much("(?:a+a+)+[yz]y{2}", TP_PATTERN_MATCH, name, "takes more than 125000 steps");
    costs_too_much("(?:a+a+)+[yz]y{2}", TP_PATTERN_SEARCH, name, "steps for this name");
    assert_false(search("glob:a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b*y", name));
    free(name);
}

/* What one match counts. */
static uint64_t work_of(const char *text, enum tp_pattern_kind kind, const char *name)
{
    struct tp_matcher own = {0};
    struct tp_pattern pattern;
    struct tp_pattern_origin origin = {"list", 0, TP_E_INPUT};
    bool found;
    assert_int_equal(tp_pattern_compile(&own, text, kind, origin, &pattern, &err), TP_OK);
    assert_int_equal(tp_pattern_match(&own, &pattern, name, &found, &err), TP_OK);
    uint64_t work = own.work;
    tp_pattern_free(&pattern);
    tp_matcher_close(&own);
    return work;
}

/* Steps of all places where a match may begin count together. */
static void test_steps_are_counted(void **state)
{
    (void)state;
    const char *dear = "(?:\\w|\\d|.){9}[%&]", *name = "aaaaaaaaaaaaaaa";
    uint64_t sum = 0;
    for (const char *at = name; *at; at++)
        sum += work_of(dear, TP_PATTERN_MATCH, at);
    assert_in_range(work_of(dear, TP_PATTERN_SEARCH, name), sum - 16, sum + 16);
    name = "model.layers.10.mlp.experts.100.down_proj.weight";
    assert_in_range(work_of(".+layers.+shared.+proj", TP_PATTERN_SEARCH, name), 1, 4000);
    assert_in_range(work_of(".+[.]3[.].+experts.+_proj.weight_x?$", TP_PATTERN_SEARCH, name), 1, 4000);
    assert_in_range(work_of(".*up_proj", TP_PATTERN_MATCH, name), 1, 60);
    name = "model.layers.0.self_attn.up_proj.weight";
    assert_in_range(work_of("up_proj", TP_PATTERN_SEARCH, name), 1, 12);
    assert_in_range(work_of("up_proj|down_proj", TP_PATTERN_SEARCH, name), 1, 40);
    assert_in_range(work_of("(?i)UP_proj", TP_PATTERN_SEARCH, name), 1, 12);
}

/* Members of sets beyond ASCII, and classes in them, are searched one by one. */
static void test_large_sets_count(void **state)
{
    (void)state;
    char wide[1000] = "[", glob[1006], *end = wide + 1;
    for (unsigned c = 0x100; c < 0x300; c += 2) {
        *end++ = (char)(0xC0 | c >> 6);
        *end++ = (char)(0x80 | (c & 0x3F));
    }
    strcpy(end, "]+x");
    snprintf(glob, sizeof glob, "glob:%.*s]x*", (int)(end - wide), wide);
    char *name = repeated("\xC4\x80", 50, "x"), *classes = repeated("\\d", 256, "]+x");
    char *set = repeated("[", 1, classes), *posix = repeated("[:digit:]", 256, "]+x");
    char *posix_set = repeated("[", 1, posix), *ones = repeated("1", 100, "x");
    uint64_t cheap = work_of("[a-z]+x", TP_PATTERN_MATCH, name);
    assert_true(work_of(wide, TP_PATTERN_MATCH, name) > 100 * cheap);
    assert_true(work_of(set, TP_PATTERN_MATCH, ones) > 100 * cheap);
    assert_true(work_of(posix_set, TP_PATTERN_SEARCH, ones) > 100 * cheap);
    assert_true(work_of(glob, TP_PATTERN_SEARCH, "\xC4\x80xxxxxxxx") > 10 * cheap);
    free(posix_set);
    free(posix);
    free(set);
    free(classes);
    free(name);
    free(ones);
}

/* A name of a header may be as long as the header. */
static void test_long_names(void **state)
{
    (void)state;
    struct tp_pattern pattern;
    bool found = true;
    char *name = repeated("ab", 500000, "c");
    assert_int_equal(compile("(?:a|b)*c", TP_PATTERN_MATCH, &pattern), TP_OK);
    assert_int_equal(tp_pattern_match(&matcher, &pattern, name, &found, &err), TP_E_USAGE);
    assert_false(found);
    err = (struct tp_err){0};
    assert_int_equal(tp_pattern_match(&matcher, &pattern, name + 999000, &found, &err), TP_OK);
    assert_true(found);
    tp_pattern_free(&pattern);
    free(name);
}

/* ------------------------------------------------------------------ no memory -- */

static long allocations, failing;
static void *(*real_malloc)(size_t);
static void *(*real_realloc)(void *, size_t);

static void *scarce_malloc(size_t size)
{
    return ++allocations == failing ? NULL : real_malloc(size);
}

static void *scarce_realloc(void *old, size_t size)
{
    return ++allocations == failing ? NULL : real_realloc(old, size);
}

/* Compiles and matches with allocation number `fails` failing; counts them. */
static enum tp_code with_scarce_memory(long fails, bool *found)
{
    struct tp_matcher own = {0};
    struct tp_pattern pattern = {0};
    struct tp_pattern_origin origin = {"--include", -1, TP_E_USAGE};
    err = (struct tp_err){0};
    real_malloc = tp_os.malloc;
    real_realloc = tp_os.realloc;
    tp_os.malloc = scarce_malloc;
    tp_os.realloc = scarce_realloc;
    allocations = 0;
    failing = fails;
    *found = false;
    enum tp_code code = tp_pattern_compile(&own, "q_(proj|norm)\\.weight", TP_PATTERN_SEARCH,
                                           origin, &pattern, &err);
    if (code == TP_OK)
        code = tp_pattern_match(&own, &pattern, q, found, &err);
    tp_os.malloc = real_malloc;
    tp_os.realloc = real_realloc;
    tp_pattern_free(&pattern);
    tp_matcher_close(&own);
    return code;
}

static void test_no_memory_is_no_answer(void **state)
{
    (void)state;
    bool found;
    assert_int_equal(with_scarce_memory(0, &found), TP_OK);
    assert_true(found);
    long count = allocations;
    assert_in_range(count, 7, 100);
    for (long n = 1; n <= count; n++) {
        assert_int_equal(with_scarce_memory(n, &found), TP_E_MEMORY);
        assert_false(found);
        assert_int_equal(err.code, TP_E_MEMORY);
    }
}

/* ---------------------------------------------------------------------- driver -- */

/* "1", "0", or why there is no answer. */
static const char *answer(const struct tp_pattern *pattern, const char *name)
{
    bool found;
    if (pattern->code)
        err = (struct tp_err){0};
    enum tp_code code = pattern->code ? tp_pattern_match(&matcher, pattern, name, &found, &err)
                                      : TP_E_INPUT;
    return code ? err.what : found ? "1" : "0";
}

/* Texts on standard input, each ended by a NUL: 'P' and a pattern, 'N' and a name, which is
 * answered in a line. */
static int answer_all(enum tp_pattern_kind kind)
{
    struct tp_pattern_origin origin = {NULL, -1, TP_E_INPUT};
    struct tp_pattern pattern = {0};
    char *text = NULL;
    size_t size = 0;
    while (getdelim(&text, &size, '\0', stdin) > 0) {
        if (*text == 'N') {
            puts(answer(&pattern, text + 1));
            continue;
        }
        tp_pattern_free(&pattern);
        matcher.size = matcher.work = 0; /* nothing is kept */
        err = (struct tp_err){0};
        tp_pattern_compile(&matcher, text + 1, kind, origin, &pattern, &err);
    }
    free(text);
    tp_pattern_free(&pattern);
    tp_matcher_close(&matcher);
    return 0;
}

static int close_matcher(void **state)
{
    (void)state;
    tp_matcher_close(&matcher);
    tp_matcher_close(&matcher);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_searching),
        cmocka_unit_test(test_matching_from_the_start),
        cmocka_unit_test(test_globs),
        cmocka_unit_test(test_what_is_refused_and_where),
        cmocka_unit_test(test_what_python_reads_otherwise),
        cmocka_unit_test(test_hints),
        cmocka_unit_test(test_size_limits),
        cmocka_unit_test(test_long_texts_are_cut),
        cmocka_unit_test(test_a_list_is_limited),
        cmocka_unit_test(test_a_match_that_costs_too_much_is_an_error),
        cmocka_unit_test(test_steps_are_counted),
        cmocka_unit_test(test_large_sets_count),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_no_memory_is_no_answer),
    };
    if (argc > 1)
        return answer_all(strcmp(argv[1], "match") == 0 ? TP_PATTERN_MATCH : TP_PATTERN_SEARCH);
    return cmocka_run_group_tests(tests, NULL, close_matcher);
}
