/* Trees of JSON: jansson's own reader says what they are, and which texts are none; nothing is lost
 * where memory is. */
#include "failing_memory.h"

#include "pack/text/json_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Whether both readers make the same of the text; `where` is what they say of one that is none. */
static void same_as_jansson(const char *text, size_t size)
{
    json_error_t own = {.text = ""}, theirs = {.text = ""};
    uint64_t mark = tp_json_failures();
    json_t *value = tp_json_load(text, size, &own);
    json_t *expected = json_loadb(text, size, JSON_REJECT_DUPLICATES, &theirs);
    assert_int_equal(tp_json_check(mark, TP_OK, NULL), TP_OK);
    assert_int_equal(value != NULL, expected != NULL);
    if (value) {
        assert_true(json_equal(value, expected));
        char *a = json_dumps(value, 0), *b = json_dumps(expected, 0); /* members in their order */
        assert_string_equal(a, b);
        free(a);
        free(b);
    } else {
        assert_string_equal(own.text, theirs.text);
        assert_int_equal(own.line, theirs.line);
        assert_int_equal(own.column, theirs.column);
    }
    json_decref(value);
    json_decref(expected);
}

static const char *const texts[] = {
    "{}", "[]", " [ ] ", "{\"a\":1}", "[1,-2,3.5,1e5,-0,-0.0,0.1E-3,true,false,null]",
    "[9223372036854775807,-9223372036854775808]", "{\"b\":[{\"c\":[[]]},\"\"],\"a\":{}}",
    "[\"\\u00e4\\ud83d\\ude00\\n\\\"\\\\/\\/\\u0001\", \"\xc3\xa4\xf0\x9f\x98\x80\x7f\"]",
    "{\"\":0,\"\\u0061\":\"a\"}",
    /* none */
    "", " ", "1", "\"a\"", "true", "{", "[", "[1", "[1,", "[1,]", "{\"a\"", "{\"a\":", "{\"a\":1",
    "{\"a\":1,", "{\"a\":1,}", "{a:1}", "{\"a\" 1}", "[1 2]", "[]]", "{} x", "[01]", "[1.]", "[.5]",
    "[+1]", "[1e]", "[-]", "[tru]", "[truex]", "[nul]", "[NaN]", "[Infinity]", "[-Infinity]",
    "[1e400]", "[9223372036854775808]", "[\"\x01\"]", "[\"\\x\"]", "[\"\\u12\"]", "[\"\\ud800\"]",
    "[\"\\udc00\"]", "[\"\\u0000\"]", "[\"\xff\"]", "[\"\xc0\x80\"]", "[\"\xed\xa0\x80\"]", "[\"a",
    "{\"a\":1,\"a\":2}", "{\"a\":1,\"\\u0061\":2}", "{\"a\":[{\"b\":1,\"b\":1}]}", "[1]\n\n[2]",
    "\xef\xbb\xbf[]",
};

static void agrees_with_jansson(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *exact = malloc(strlen(texts[i]) + 1); /* the sanitizer sees what is read behind it */
        assert_non_null(exact);
        memcpy(exact, texts[i], strlen(texts[i]));
        same_as_jansson(exact, strlen(texts[i]));
        free(exact);
    }
}

/* Texts with a byte more, less or another one. */
static void agrees_on_edits(void **state)
{
    (void)state;
    static const char bytes[] = "{}[]\",:\\ue0-+.1 nft\n\x01\x80\xc3";
    uint64_t random = 1;
    for (int round = 0; round < 20000; round++) {
        char text[200];
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        const char *from = texts[(random >> 33) % (sizeof texts / sizeof *texts)];
        size_t size = strlen(from), at = (size_t)(random >> 20) % (size + 1);
        int kind = (int)(random >> 60) % 3;
        memcpy(text, from, at);
        text[at] = bytes[(random >> 45) % (sizeof bytes - 1)];
        size_t skip = kind == 0 || at == size ? 0 : 1, put = kind == 2 ? 0 : 1;
        memcpy(text + at + put, from + at + skip, size - at - skip);
        same_as_jansson(text, size + put - skip);
    }
}

/* As deep as jansson reads, and no deeper. */
static void depth_is_bounded(void **state)
{
    (void)state;
    static char text[2 * 2100];
    for (size_t depth = 2046; depth <= 2052; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        same_as_jansson(text, 2 * depth);
    }
}

/* Numbers that jansson has no type for come through it as they were, and are nothing else there. */
static void keeps_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *number;
        bool plain;
    } is[] = {{"NaN", false}, {"Infinity", false}, {"-Infinity", false},
              {"9223372036854775807", true}, {"9223372036854775808", false},
              {"-9223372036854775808", true}, {"-9223372036854775809", false},
              {"1.5", true}, {"1e309", false}, {"-1E+309", false}, {"0.1e400", false},
              {"\"NaN\"", true}, {"\"\\\\u0000\\\"NaN,\"", true}, {"true", true},
              {"null", true}};
    struct tp_err err = {0};
    json_t *value;
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        char text[100], want[100];
        const char *number = is[i].number;
        snprintf(want, sizeof want, "{\"-NaN\": [%s, %s], \"b\": %s}", number, number, number);
        int size = snprintf(text, sizeof text, "{\"-NaN\":[%s,%s ],\"b\":%s}", number, number,
                            number);
        assert_int_equal(tp_json_load_python(text, (size_t)size, &value, &err), TP_OK);
        const json_t *b = json_object_get(value, "b");
        assert_int_equal(json_string_length(b) && !*json_string_value(b), !is[i].plain);
        char *back = tp_json_dump(value, 0);
        assert_string_equal(back, want);
        free(back);
        json_decref(value);
    }
    assert_int_equal(tp_json_load_python("{\"a\" 1}", 7, &value, &err), TP_E_INPUT);
    assert_null(value);
    assert_non_null(strstr(err.what, "expected ':'"));
    assert_int_equal(tp_json_load_python("{\"a\":1,\"a\":2}", 13, &value, &err), TP_OK);
    assert_int_equal(json_integer_value(json_object_get(value, "a")), 2); /* as in Python */
    json_decref(value);
}

/* Wherever memory is short once, there is the whole tree, or none and the reason. */
static void memory_that_is_short(void **state)
{
    (void)state;
    static const char text[] = "{\"format\": \"a name that is longer than any buffer is to begin "
                               "with, which is some sixteen bytes\", \"list\": [1, 2.5, true, {}, "
                               "\"a second long text of the same kind as the first one was\"]}";
    json_t *whole = json_loads(text, 0, NULL);
    char *printed = json_dumps(whole, JSON_INDENT(1));
    int failed = 0;
    for (long at = 0, over = -1; over < 0; at++) {
        struct tp_err err = {0};
        uint64_t mark = tp_json_failures();
        failing_begin(at);
        json_t *value = tp_json_load(text, sizeof text - 1, NULL), *made = json_object();
        json_t *merged = tp_json_merge(json_incref(value), whole);
        tp_json_set(made, "a", json_string("b"));
        tp_json_set(made, "list", json_array());
        tp_json_append(json_object_get(made, "list"), json_integer(7));
        tp_json_update(made, value);
        char *dump = tp_json_dump(value, JSON_INDENT(1));
        over = failing_left;
        failing_end();
        if (tp_json_check(mark, TP_OK, &err) == TP_OK) {
            assert_true(json_equal(value, whole) && json_equal(merged, whole));
            assert_int_equal(json_object_size(made), 3);
            assert_string_equal(dump, printed);
        } else {
            assert_int_equal(err.code, TP_E_MEMORY);
            failed++;
        }
        json_decref(value);
        json_decref(merged);
        json_decref(made);
        free(dump);
    }
    assert_true(failed > 30);
    free(printed);
    json_decref(whole);
}

/* What both have is of both, and what is merged stays as it was. */
static void merged_objects(void **state)
{
    (void)state;
    json_t *object = json_loads("{\"a\": {\"b\": {\"x\": 1}, \"c\": 2}, \"d\": [3], \"e\": {}}", 0, NULL);
    json_t *with = json_loads("{\"a\": {\"b\": {\"y\": 4}}, \"d\": [], \"e\": 5, \"f\": 6}", 0, NULL);
    json_t *both = json_loads("{\"a\": {\"b\": {\"x\": 1, \"y\": 4}, \"c\": 2}, \"d\": [], "
                              "\"e\": 5, \"f\": 6}", 0, NULL);
    json_t *before = json_deep_copy(object), *merged = tp_json_merge(json_incref(object), with);
    assert_true(json_equal(merged, both) && json_equal(object, before));
    json_t *same = tp_json_merge(merged, NULL);
    assert_ptr_equal(same, merged);
    json_decref(object);
    json_decref(with);
    json_decref(both);
    json_decref(before);
    json_decref(same);
}

/* Reads the text with so much heap left; what is not enough is said to be too little. */
static void with_left(const char *text, size_t size, uint64_t left, bool enough)
{
    struct tp_err err = {0};
    uint64_t mark = tp_json_failures();
    tp_os_limit_heap(tp_os_heap_bytes() + left);
    json_t *value = tp_json_load(text, size, NULL);
    tp_os_limit_heap(0);
    assert_int_equal(value != NULL, enough);
    assert_int_equal(tp_json_check(mark, TP_OK, &err), enough ? TP_OK : TP_E_MEMORY);
    if (!enough)
        assert_string_equal(err.what, "more memory is needed: --max-memory");
    json_decref(value);
}

/* A tree counts as 25 times its text before it is made, and as what it takes while it is: objects
 * of nothing take more. */
static void counts_against_the_ceiling(void **state)
{
    (void)state;
    enum { MIB = 1 << 20, ITEMS = 300000, SIZE = 3 * ITEMS + 1 };
    char *text = malloc(SIZE);
    assert_non_null(text);
    memset(text, ' ', SIZE);
    text[0] = '[';
    text[SIZE - 1] = ']';
    with_left(text, SIZE, 25 * SIZE - MIB, false);
    with_left(text, SIZE, 25 * SIZE + MIB, true);
    for (size_t i = 0; i < ITEMS; i++)
        memcpy(text + 1 + 3 * i, i + 1 < ITEMS ? "{}," : "{}]", 3);
    if (tp_os_heap_bytes() >= SIZE) /* not under sanitizers, which have a heap of their own */
        with_left(text, SIZE, 40 * SIZE, false);
    with_left(text, SIZE, 200 * SIZE, true);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_jansson),
        cmocka_unit_test(agrees_on_edits),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(keeps_numbers),
        cmocka_unit_test(memory_that_is_short),
        cmocka_unit_test(merged_objects),
        cmocka_unit_test(counts_against_the_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
