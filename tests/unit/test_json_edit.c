/* config.json around one key: exact results for each layout and place, refusal of
 * what is not one object, and jansson's opinion on random edits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pack/text/json_edit.h"
#include "pack/text/json_scan.h"
#include "pack/os/os.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_set(const char *text, const char *key, const char *value, const char *want)
{
    struct tp_text out = {0};
    struct tp_err err = {0};
    assert_int_equal(tp_text_add(&out, "<", 1, &err), TP_OK);
    enum tp_code code = tp_json_set_key(text, strlen(text), key, value, &out, &err);
    if (code)
        fail_msg("'%s': %s at %llu", text, err.what, (unsigned long long)err.offset);
    assert_string_equal(out.data + 1, want);
    assert_int_equal(out.size, strlen(want) + 1);
    tp_text_free(&out);
}

static void replaces(void **state)
{
    (void)state;
    check_set("{\"a\":1}", "a", "2", "{\"a\":2}");
    check_set("{ \"a\" : [1, {\"a\": 5}] , \"b\":0}\n", "a", "null",
              "{ \"a\" : null , \"b\":0}\n");
    check_set("{\n  \"b\": {\n    \"a\": 1\n  },\n  \"a\": 7\n}\n", "a", "{\"x\": [], \"y\" :{}}",
              "{\n  \"b\": {\n    \"a\": 1\n  },\n  \"a\": {\n    \"x\": [],\n"
              "    \"y\": {}\n  }\n}\n");
    check_set("{\"q\\u0061\": NaN}", "qa", "-Infinity", "{\"q\\u0061\": -Infinity}");
    check_set("{\"x\\\"}\": \"]\\\\\", \"y\": 1}", "y", "\"}\\\"\"",
              "{\"x\\\"}\": \"]\\\\\", \"y\": \"}\\\"\"}");
}

static void inserts_last(void **state)
{
    (void)state;
    check_set("{}", "a", "1", "{\"a\": 1}");
    check_set(" { } ", "a", "1", " {\"a\": 1 } ");
    check_set("{\n}\n", "a", "[1,2]", "{\n  \"a\": [\n    1,\n    2\n  ]\n}\n");
    check_set("{\"a\": 1}", "b", "[1,2]", "{\"a\": 1, \"b\": [1, 2]}");
    check_set("{\"a\":1,\"b\":2}", "c", "{\"d\" : [ 1 , 2 ]}",
              "{\"a\":1,\"b\":2,\"c\":{\"d\":[1,2]}}");
    check_set("{\"a\": 1, \"b\": 2}", "c", "3", "{\"a\": 1, \"b\": 2, \"c\": 3}");
    check_set("{\n    \"a\": 1e400\n}", "b", "{\"c\":[true,\"x, y\"]}",
              "{\n    \"a\": 1e400,\n    \"b\": {\n        \"c\": [\n            true,\n"
              "            \"x, y\"\n        ]\n    }\n}");
    check_set("{\r\n\t\"a\" : 1\r\n}\r\n", "b", "[0]",
              "{\r\n\t\"a\" : 1,\r\n\t\"b\": [\r\n\t\t0\r\n\t]\r\n}\r\n");
    check_set("{\n\"a\": 1\n}", "b", "2", "{\n\"a\": 1,\n\"b\": 2\n}");
    check_set("{\"a\": Infinity}", "tab\t\"", "\"\xc3\xa9\"",
              "{\"a\": Infinity, \"tab\\t\\\"\": \"\xc3\xa9\"}");
}

static void removes(void **state)
{
    (void)state;
    check_set("{\"a\": 1}", "a", NULL, "{}");
    check_set("{\n  \"a\": 1\n}\n", "a", NULL, "{}\n");
    check_set("{\"a\": 1, \"b\": 2, \"c\": 3}", "a", NULL, "{\"b\": 2, \"c\": 3}");
    check_set("{\"a\": 1, \"b\": 2, \"c\": 3}", "b", NULL, "{\"a\": 1, \"c\": 3}");
    check_set("{\n  \"a\": 1,\n  \"c\": [NaN]\n}\n", "c", NULL, "{\n  \"a\": 1\n}\n");
    check_set("{\"a\": {\"b\": 1}}", "b", NULL, "{\"a\": {\"b\": 1}}");
    check_set("{}", "b", NULL, "{}");
}

static void gets(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": {\"b\": [1, \"]\"]}, \"c\\n\" : -0.5e-7 , \"d\": NaN}";
    static const struct {
        const char *key, *value;
    } want[] = {{"a", "{\"b\": [1, \"]\"]}"}, {"c\n", "-0.5e-7"}, {"d", "NaN"}, {"b", NULL},
                {"c\\n", NULL}, {"", NULL}};
    for (int i = 0; i < 6; i++) {
        struct tp_json_span value;
        struct tp_err err = {0};
        assert_int_equal(tp_json_get_key(text, sizeof text - 1, want[i].key, &value, &err), TP_OK);
        if (!want[i].value) {
            assert_null(value.data);
            continue;
        }
        assert_int_equal(value.size, strlen(want[i].value));
        assert_memory_equal(value.data, want[i].value, value.size);
    }
}

static void refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int offset;
        const char *what;
    } bad[] = {
        {"", 0, "expected '{', but the file ends"},
        {"\xef\xbb\xbf{}", 0, "expected '{', found a byte order mark"},
        {"[]", 0, "expected '{', found '['"},
        {"{} {}", 3, "the file goes on behind its end"},
        {"{\"a\":1", 6, "',' or '}'"},
        {"{\"a\":1,}", 7, "expected a string"},
        {"{\"a\":[1,]}", 8, "expected a value"},
        {"{\"a\":[1}}", 7, "',' or ']'"},
        {"{\"a\" 1}", 5, "expected ':'"},
        {"{a:1}", 1, "expected a string"},
        {"{'a':1}", 1, "expected a string"},
        {"{\"a\":01}", 6, "',' or '}'"},
        {"{\"a\":+1}", 5, "expected a value"},
        {"{\"a\":.5}", 5, "expected a value"},
        {"{\"a\":1.}", 7, "digits behind the decimal point"},
        {"{\"a\":nan}", 5, "expected a value"},
        {"{\"a\":-NaN}", 6, "expected a value"},
        {"{\"a\":Infinit}", 5, "expected a value"},
        {"{\"a\":NaNa}", 8, "',' or '}'"},
        {"{\"a\":\"\t\"}", 6, "control byte 0x09"},
        {"{\"a\":\"\xff\"}", 6, "not UTF-8"},
        {"{\"a\":\"\\x\"}", 7, "backslash"},
        {"{\"a\":\"\\ud800\"}", 6, "surrogate"},
        {"{\"a\":1,\"b\":2,\"\\u0061\":3}", 13, "the key 'a' appears twice"},
        {"{\"a\":1}/**/", 7, "goes on behind its end"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tp_text out = {0};
        struct tp_err err = {0};
        struct tp_json_span value;
        size_t size = strlen(bad[i].text);
        assert_int_equal(tp_text_add(&out, "kept", 4, &err), TP_OK);
        assert_int_equal(tp_json_set_key(bad[i].text, size, "k", "1", &out, &err), TP_E_INPUT);
        assert_string_equal(out.data, "kept");
        if (!strstr(err.what, bad[i].what) || err.offset != (uint64_t)bad[i].offset + 1)
            fail_msg("'%s': '%s' at %d", bad[i].text, err.what, (int)err.offset - 1);
        assert_true(err.hint[0]);
        err = (struct tp_err){0};
        assert_int_equal(tp_json_get_key(bad[i].text, size, "k", &value, &err), TP_E_INPUT);
        assert_null(value.data);
        tp_text_free(&out);
    }
    static const char *const values[] = {"", "1 2", "{", "{\"a\":}", "nil", "[1]]"};
    for (int i = 0; i < 6; i++) {
        struct tp_text out = {0};
        struct tp_err err = {0};
        assert_int_equal(tp_json_set_key("{}", 2, "k", values[i], &out, &err), TP_E_INPUT);
        assert_non_null(strstr(err.what, "new value"));
        tp_text_free(&out);
    }
}

static void depth_is_bounded(void **state)
{
    (void)state;
    char text[400];
    for (int depth = 60; depth < 70; depth++) {
        int n = sprintf(text, "{\"a\":");
        for (int i = 0; i < depth; i++)
            text[n++] = '[';
        for (int i = 0; i < depth; i++)
            text[n++] = ']';
        text[n++] = '}';
        struct tp_err err = {0};
        struct tp_json_span value;
        enum tp_code code = tp_json_get_key(text, (size_t)n, "a", &value, &err);
        assert_int_equal(code, depth < 64 ? TP_OK : TP_E_INPUT);
    }
}

/* Random objects, printed by jansson in its layouts, edited by both. */
static json_t *random_value(int depth)
{
    static const char *const strings[] = {"", "a\"b", "\\", "\xc3\xa9,{}", "]", "\n"};
    json_t *value;
    char key[8];
    switch (random() % (depth ? 7 : 5)) {
    case 0: return json_integer(random() % 100 - 50);
    case 1: return json_real((double)random() / 7);
    case 2: return json_string(strings[random() % 6]);
    case 3: return json_boolean(random() % 2);
    case 4: return json_null();
    case 5:
        value = json_array();
        for (long n = random() % 4; n > 0; n--)
            json_array_append_new(value, random_value(depth - 1));
        return value;
    default:
        value = json_object();
        for (long n = random() % 5; n > 0; n--) {
            sprintf(key, "k%ld", random() % 6);
            json_object_set_new(value, key, random_value(depth - 1));
        }
        return value;
    }
}

static void agrees_with_jansson(void **state)
{
    (void)state;
    static const size_t layouts[] = {0, JSON_COMPACT, JSON_INDENT(2), JSON_INDENT(4),
                                     JSON_INDENT(2) | JSON_ENSURE_ASCII};
    srandom(3);
    for (int i = 0; i < 3000; i++) {
        json_t *object = json_object();
        char key[8];
        for (long n = random() % 5; n > 0; n--) {
            sprintf(key, "k%ld", random() % 6);
            json_object_set_new(object, key, random_value(3));
        }
        sprintf(key, "k%ld", random() % 6);
        json_t *value = i % 3 ? random_value(3) : NULL;
        size_t layout = layouts[random() % 5];
        char *text = json_dumps(object, layout);
        size_t value_layout = layouts[random() % 4] | JSON_ENCODE_ANY;
        char *value_text = value ? json_dumps(value, value_layout) : NULL;
        if (value)
            json_object_set_new(object, key, value);
        else
            json_object_del(object, key);
        struct tp_text out = {0};
        struct tp_err err = {0};
        assert_int_equal(tp_json_set_key(text, strlen(text), key, value_text, &out, &err), TP_OK);
        json_t *got = json_loads(out.data, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(got);
        assert_true(json_equal(got, object));
        /* Laid out as jansson itself does it: except an object that was or got empty. */
        char *want = json_dumps(object, layout);
        if (!(layout & JSON_ENSURE_ASCII) && strcmp(text, "{}") != 0)
            assert_string_equal(out.data, want);
        free(want);
        free(text);
        free(value_text);
        json_decref(got);
        json_decref(object);
        tp_text_free(&out);
    }
}

static int calls_left;

static void *failing_malloc(size_t n) { return calls_left-- ? malloc(n) : NULL; }
static void *failing_realloc(void *p, size_t n) { return calls_left-- ? realloc(p, n) : NULL; }

static void memory_failures(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": 1, \"b\": [2]}";
    struct tp_os saved = tp_os;
    enum tp_code code = TP_E_MEMORY;
    int n;
    for (n = 0; code; n++) {
        struct tp_text out = {0};
        struct tp_err err = {0};
        calls_left = n;
        tp_os.malloc = failing_malloc;
        tp_os.realloc = failing_realloc;
        code = tp_json_set_key(text, sizeof text - 1, "c", "[1]", &out, &err);
        tp_os = saved;
        assert_int_equal(code, err.code);
        assert_true(code == TP_OK || code == TP_E_MEMORY);
        assert_true(code == TP_OK || out.size == 0);
        tp_text_free(&out);
    }
    assert_true(n > 4);
}

static void tells_utf8(void **state)
{
    (void)state;
    assert_true(tp_is_utf8(""));
    assert_true(tp_is_utf8("a\xc3\xa9\xf0\x9f\x98\x80"));
    assert_false(tp_is_utf8("a\xff"));
    assert_false(tp_is_utf8("a\xc3"));          /* cut off */
    assert_false(tp_is_utf8("\xc0\xafz"));      /* overlong */
    assert_false(tp_is_utf8("\xed\xa0\x80"));   /* half a pair of UTF-16 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replaces),
        cmocka_unit_test(inserts_last),
        cmocka_unit_test(removes),
        cmocka_unit_test(gets),
        cmocka_unit_test(refuses),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(agrees_with_jansson),
        cmocka_unit_test(memory_failures),
        cmocka_unit_test(tells_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
