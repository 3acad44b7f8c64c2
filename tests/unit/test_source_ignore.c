/* What the lists of modules that are not quantized stand for. */
#include "pack/source/source_ignore.h"

#include "pack/os/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct tp_source_ignore ignore;

static void open_config(const char *text)
{
    struct tp_err err = {0};
    static struct tp_checkpoint ckpt;
    ckpt = (struct tp_checkpoint){.path = (char *)"dir", .config = (char *)text,
                                  .config_size = strlen(text)};
    tp_source_ignore_close(&ignore);
    assert_int_equal(tp_source_ignore_open(&ckpt, &ignore, &err), TP_OK);
}

static bool ignored(const char *module)
{
    struct tp_err err = {0};
    bool is;
    assert_int_equal(tp_source_ignores(&ignore, module, &is, &err), TP_OK);
    return is;
}

/* One list of one entry. */
static bool matches(const char *entry, const char *module)
{
    char text[512];
    snprintf(text, sizeof text, "{\"quantization_config\": {\"ignore\": [\"%s\"]}}", entry);
    open_config(text);
    return ignored(module);
}

static void refuses(const char *config, const char *what)
{
    struct tp_err err = {0};
    struct tp_checkpoint ckpt = {.path = (char *)"dir", .config = (char *)config,
                                 .config_size = strlen(config)};
    tp_source_ignore_close(&ignore);
    assert_int_equal(tp_source_ignore_open(&ckpt, &ignore, &err), TP_E_INPUT);
    assert_string_equal(err.path, "dir/config.json");
    if (!strstr(err.what, what))
        fail_msg("%s: %s", config, err.what);
}

static const char q[] = "model.layers.10.self_attn.q_proj";

static void test_exact_names_and_runs_of_components(void **state)
{
    (void)state;
    assert_true(matches(q, q));
    assert_true(matches("model.layers.10", q));
    assert_true(matches("model", q));
    assert_true(matches("self_attn", q));
    assert_true(matches("layers.10.self_attn", q));
    assert_true(matches("self_attn.q_proj", q));
    assert_false(matches("model.layers.1", q));
    assert_false(matches("self", q));
    assert_false(matches("attn.q_proj", q));
    assert_false(matches("q_proj.self_attn", q));
    assert_false(matches("model.layers.10.self_attn.q_proj.linear", q));
    assert_false(matches("gate", "model.layers.0.mlp.gate_proj"));
    assert_true(matches("gate", "model.layers.0.mlp.gate"));
    assert_false(matches("Linear", q));
    assert_false(matches("", q));
}

static void test_wildcards_keep_to_components(void **state)
{
    (void)state;
    assert_true(matches("model.layers.*.self_attn", q));
    assert_true(matches("*.self_attn", q));
    assert_true(matches("model.layers.10*", q));
    assert_true(matches("*self_attn*", q));
    assert_true(matches("layers.*.q_proj", q));
    assert_true(matches("model.*.*.*.q_proj", q));
    assert_true(matches("*", q));
    assert_true(matches("lay*1*q_proj", q));
    assert_false(matches("model.layers.*.mlp", q));
    assert_false(matches("model.layers.1.*", q));
    assert_false(matches("model.*.self", q));
    assert_false(matches("ayers.*.self_attn", q));
    assert_false(matches("*.q_proj.*", q));
    assert_false(matches("*.gate", "model.layers.0.mlp.gate_proj"));
    assert_true(matches("*.a.b", "x.a.c.a.b")); /* the '*' that first ended too early */
}

/* The rule as formats/README.md has it: from a component on, to the end of one. */
static bool begins(const char *pattern, const char *text)
{
    if (*pattern == '*')
        return begins(pattern + 1, text) || (*text && begins(pattern, text + 1));
    if (!*pattern)
        return !*text || *text == '.';
    return *pattern == *text && begins(pattern + 1, text + 1);
}

static bool is_listed(const char *pattern, const char *name)
{
    for (const char *from = name; from; from = strchr(from, '.'), from += from != NULL)
        if (*from && begins(pattern, from))
            return true;
    return false;
}

static void random_text(char *text, const char *letters, unsigned size, uint32_t *random)
{
    for (unsigned i = 0; i < size; i++) {
        *random = *random * 1664525 + 1013904223;
        text[i] = letters[(*random >> 16) % strlen(letters)];
    }
    text[size] = '\0';
}

static void test_random_names_and_wildcards(void **state)
{
    (void)state;
    uint32_t random = 1;
    unsigned found = 0;
    for (unsigned i = 0; i < 20000; i++) {
        char pattern[2][8], name[12], text[100];
        random_text(pattern[0], "aab.*", 1 + i % 7, &random);
        random_text(pattern[1], "aab.*", 1 + i / 7 % 7, &random);
        random_text(name, "aab.", 1 + i / 49 % 11, &random);
        snprintf(text, sizeof text, "{\"quantization_config\": {\"ignore\": [\"%s\", \"%s\"]}}",
                 pattern[0], pattern[1]);
        open_config(text);
        bool listed = is_listed(pattern[0], name) || is_listed(pattern[1], name);
        found += listed;
        if (ignored(name) != listed)
            fail_msg("'%s' %s by '%s', '%s'", name, listed ? "is named" : "is not named",
                     pattern[0], pattern[1]);
    }
    assert_in_range(found, 2000, 18000);
}

/* Short ones are looked up, longer ones tried one by one. */
static void test_entries_of_many_components(void **state)
{
    (void)state;
    for (size_t count = 30; count < 36; count++) {
        char entry[80] = "a", name[sizeof entry + 8];
        for (size_t i = 1; i < count; i++)
            strcat(entry, ".a");
        assert_true(matches(entry, entry));
        snprintf(name, sizeof name, "b.%s.c", entry);
        assert_true(matches(entry, name));
        assert_false(matches(entry, entry + 2));
        snprintf(name, sizeof name, "b.%sa", entry);
        assert_false(matches(entry, name));
        strcat(entry, ".b*");
        snprintf(name, sizeof name, "b.%sc.d", entry);
        name[strlen(name) - 4] = 'c';
        assert_true(matches(entry, name));
        assert_false(matches(entry, entry + 2));
    }
}

static void test_regular_expressions_begin_with_the_name(void **state)
{
    (void)state;
    assert_true(matches("re:.*self_attn", q));
    assert_true(matches("re:model\\\\.layers\\\\.\\\\d+\\\\.self_attn\\\\.(?:q|k)_proj$", q));
    assert_true(matches("re:x|model", q));
    assert_false(matches("re:self_attn", q));
    assert_false(matches("re:.*self_attn$", q));
    assert_false(matches("re:x|self_attn", q));
    assert_false(matches("re:model\\\\.layers\\\\.\\\\dd", q));
    assert_true(matches("re:.*gate", "model.layers.0.mlp.gate_proj")); /* as Python would */
    assert_true(matches("re:(.*)[0-9]*?", q));
    assert_true(matches("re:(?!.*experts)", q));
    assert_false(matches("re:(?!.*q_proj$).*", q));
    assert_false(matches("glob:model*", q)); /* no kind of entry: a name with a wildcard */
}

/* Before, such entries were passed over, and what they name was quantized. */
static void test_what_is_no_regular_expression_is_an_error(void **state)
{
    (void)state;
    refuses("{\"quantization_config\": {\"ignore\": [\"a\", \"re:*(\"]}}",
            "quantization_config: \"ignore\"[1]: '*(': quantifier does not follow a repeatable item, at offset 0");
    refuses("{\"quantization_config\": {\"exclude_modules\": [\"re:a{200}{200}\"]}}",
            "quantization_config: \"exclude_modules\"[0]: 'a{200}{200}': ");
    refuses("{\"quantization_config\": {\"dynamic\": {\"-:a\": {}, \"-:(a\": {}}}}",
            "quantization_config: \"dynamic\": '(a': missing closing parenthesis, at offset 2");
}

static void test_what_is_no_list_of_names_is_an_error(void **state)
{
    (void)state;
    refuses("{\"quantization_config\": {\"ignore\": \"q_proj\"}}",
            "quantization_config: \"ignore\" is no list");
    refuses("{\"quantization_config\": {\"ignored_layers\": {}}}",
            "quantization_config: \"ignored_layers\" is no list");
    refuses("{\"quantization_config\": {\"modules_to_not_convert\": [\"a\", null]}}",
            "quantization_config: \"modules_to_not_convert\"[1] is no text");
}

static void test_a_match_that_costs_too_much_is_an_error(void **state)
{
    (void)state;
    struct tp_err err = {0};
    bool is = true;
    open_config("{\"quantization_config\": {\"ignore\": [\"re:(a+a+)+[yz]y{2}\"]}}");
    char name[102];
    memset(name, 'a', 100);
    strcpy(name + 100, "y");
    assert_int_equal(tp_source_ignores(&ignore, name, &is, &err), TP_E_INPUT);
    assert_false(is);
    assert_string_equal(err.path, "dir/config.json");
    assert_non_null(strstr(err.what, "\"ignore\"[0]: '(a+a+)+[yz]y{2}': it takes more than"));
}

/* All entries and names have one budget: what is left over of it is too little for either. */
static void test_matches_that_cost_too_much_together_are_an_error(void **state)
{
    (void)state;
    static const char *const entry[] = {"re:.*attn.l", "*b*x", "*q_proj*x"};
    for (size_t i = 0; i < 3; i++) {
        struct tp_err err = {0};
        bool is = true;
        char what[100];
        assert_false(matches(entry[i], q));
        ignore.matcher.work = TP_PATTERN_WORK - 3;
        assert_int_equal(tp_source_ignores(&ignore, q, &is, &err), TP_E_INPUT);
        assert_false(is);
        assert_string_equal(err.path, "dir/config.json");
        snprintf(what, sizeof what, "\"ignore\"[0]: '%s': the patterns take more than",
                 entry[i] + (i ? 0 : 3));
        if (!strstr(err.what, what))
            fail_msg("%s: %s", entry[i], err.what);
    }
    /* what is looked up costs nothing */
    assert_true(matches("model.layers.10", q));
    ignore.matcher.work = TP_PATTERN_WORK;
    assert_true(ignored(q));
}

static void test_every_key_is_read(void **state)
{
    (void)state;
    open_config("{\"quantization_config\": {\"modules_to_not_convert\": [\"a\", \"\"],"
                "\"re\": [\"x\"], \"ignored_layers\": [\"b\", \"re:c\"], "
                "\"exclude_modules\": [\"d*\"], \"dynamic\": {\"-:e\": {}, \"+:f\": {}}, "
                "\"ignore\": null}}");
    assert_true(ignored("a"));
    assert_true(ignored("b"));
    assert_true(ignored("cx"));
    assert_true(ignored("dx"));
    assert_true(ignored("e"));
    assert_false(ignored("f"));
    assert_false(ignored("x"));
    open_config("{\"quantization_config\": {\"modules_to_not_convert\": null}}");
    assert_false(ignored("a"));
    open_config("{\"modules_to_not_convert\": [\"a\"]}");
    assert_false(ignored("a"));
    tp_source_ignore_close(&ignore);
    assert_false(ignored("a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_names_and_runs_of_components),
        cmocka_unit_test(test_wildcards_keep_to_components),
        cmocka_unit_test(test_random_names_and_wildcards),
        cmocka_unit_test(test_entries_of_many_components),
        cmocka_unit_test(test_regular_expressions_begin_with_the_name),
        cmocka_unit_test(test_what_is_no_regular_expression_is_an_error),
        cmocka_unit_test(test_what_is_no_list_of_names_is_an_error),
        cmocka_unit_test(test_a_match_that_costs_too_much_is_an_error),
        cmocka_unit_test(test_matches_that_cost_too_much_together_are_an_error),
        cmocka_unit_test(test_every_key_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
