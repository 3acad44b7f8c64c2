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
    struct tp_checkpoint ckpt = {.config = (char *)text, .config_size = strlen(text)};
    tp_source_ignore_close(&ignore);
    assert_int_equal(tp_source_ignore_open(&ckpt, &ignore, &err), TP_OK);
}

/* One list of one entry. */
static bool matches(const char *entry, const char *module)
{
    char text[512];
    snprintf(text, sizeof text, "{\"quantization_config\": {\"ignore\": [\"%s\"]}}", entry);
    open_config(text);
    return tp_source_ignores(&ignore, module);
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
    assert_false(matches("re:*(", q)); /* no expression: passed over */
}

static void test_every_key_is_read(void **state)
{
    (void)state;
    open_config("{\"quantization_config\": {\"modules_to_not_convert\": [\"a\", 7, null],"
                "\"re\": [\"x\"], \"ignored_layers\": [\"b\", \"re:*(\", \"re:c\"], "
                "\"exclude_modules\": [\"d*\"], \"dynamic\": {\"-:e\": {}, \"+:f\": {}}, "
                "\"ignore\": null}}");
    assert_true(tp_source_ignores(&ignore, "a"));
    assert_true(tp_source_ignores(&ignore, "b"));
    assert_true(tp_source_ignores(&ignore, "cx"));
    assert_true(tp_source_ignores(&ignore, "dx"));
    assert_true(tp_source_ignores(&ignore, "e"));
    assert_false(tp_source_ignores(&ignore, "f"));
    assert_false(tp_source_ignores(&ignore, "x"));
    open_config("{\"quantization_config\": {\"modules_to_not_convert\": null}}");
    assert_false(tp_source_ignores(&ignore, "a"));
    open_config("{\"modules_to_not_convert\": [\"a\"]}");
    assert_false(tp_source_ignores(&ignore, "a"));
    tp_source_ignore_close(&ignore);
    assert_false(tp_source_ignores(&ignore, "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_names_and_runs_of_components),
        cmocka_unit_test(test_wildcards_keep_to_components),
        cmocka_unit_test(test_regular_expressions_begin_with_the_name),
        cmocka_unit_test(test_every_key_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
