/* What the command line prints: errors in text and JSON, tables, both forms of what a writer is
 * told, human numbers, and that text from a file cannot drive the terminal. */
#include "cli/human.c"
#include "cli/print_text.c"
#include "cli/progress.c"
#include "cli/report.c"
#include "cli/table.c"
#include "cli/writer.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "failing_memory.h"

/* Redirects one stream into memory while a test prints. */
struct capture {
    FILE **stream, *old;
    char *text;
    size_t size;
};

static void capture_begin(struct capture *c, FILE **stream)
{
    *c = (struct capture){stream, *stream, NULL, 0};
    *stream = open_memstream(&c->text, &c->size);
}

static void capture_end(struct capture *c)
{
    fclose(*c->stream);
    *c->stream = c->old;
}

static void printed(struct capture *c, const char *text)
{
    capture_end(c);
    assert_string_equal(c->text, text);
    free(c->text);
}

static struct tp_err example(void)
{
    struct tp_err err = {0};
    tp_fail(&err, TP_E_INPUT, "offsets overlap");
    tp_err_path(&err, "model.safetensors");
    tp_err_tensor(&err, "a.weight");
    tp_err_offset(&err, 0);
    tp_err_hint(&err, "fetch the file again");
    return err;
}

static void an_error_in_text(void **state)
{
    (void)state;
    struct capture err_text, out_text;
    struct tp_err err = example(), bare = {0};
    tp_report_setup(&(struct tp_options){.color = "never"});
    capture_begin(&out_text, &stdout);
    capture_begin(&err_text, &stderr);
    assert_int_equal(tp_report_error(&err), TP_E_INPUT);
    tp_fail_sys(&bare, ENOSPC, "write");
    assert_int_equal(tp_report_error(&bare), TP_E_IO);
    printed(&err_text,
            "tilepack: error: model.safetensors: tensor 'a.weight': offsets overlap (at byte 0)\n"
            "  hint: fetch the file again\n"
            "tilepack: error: write: No space left on device\n");
    printed(&out_text, "");
}

static void an_error_in_json(void **state)
{
    (void)state;
    struct capture err_text, out_text;
    struct tp_err err = example();
    tp_report_setup(&(struct tp_options){.color = "never", .json = true});
    capture_begin(&out_text, &stdout);
    capture_begin(&err_text, &stderr);
    assert_int_equal(tp_report_error(&err), TP_E_INPUT);
    snprintf(err.tensor, sizeof err.tensor, "bad \xFF byte");
    tp_report_error(&err);
    capture_end(&err_text);
    free(err_text.text);
    printed(&out_text,
            "{\n  \"version\": 1,\n  \"error\": {\n    \"code\": 3,\n    \"kind\": \"input\",\n"
            "    \"message\": \"offsets overlap\",\n    \"path\": \"model.safetensors\",\n"
            "    \"tensor\": \"a.weight\",\n    \"offset\": 0,\n"
            "    \"hint\": \"fetch the file again\"\n  }\n}\n"
            "{\n  \"version\": 1,\n  \"error\": {\n    \"code\": 3,\n    \"kind\": \"input\",\n"
            "    \"message\": \"offsets overlap\",\n    \"path\": \"model.safetensors\",\n"
            "    \"tensor\": \"bad \\uDCFF byte\",\n    \"offset\": 0,\n"
            "    \"hint\": \"fetch the file again\"\n  }\n}\n");
}

static void escapes_do_not_pass(void **state)
{
    (void)state;
    struct capture text;
    tp_report_setup(&(struct tp_options){.color = "never", .verbose = true});
    capture_begin(&text, &stderr);
    tp_note("%s", "a\033[31mb\nc\x7F\xC2\x9B" "d \xC3\xA9\xE2\x80\xAE\x9B\xF3\xA0\x81\x81");
    printed(&text, "tilepack: a\\x1B[31mb\\x0Ac\\x7F\\u009Bd \xC3\xA9\\u202E\\x9B\\U000E0041\n");
}

/* DEL is a byte of text and six of JSON, the most that one becomes. */
static void escaped_text_has_room(void **state)
{
    (void)state;
    static const char *const worst[] = {"\x7F", "\x9B", "\xC2\x9B", "\xE2\x80\xAE",
                                        "\xF3\xA0\x81\x81", "\x1B"};
    for (size_t i = 0; i < sizeof worst / sizeof *worst; i++)
        for (int json = 0; json < 2; json++) {
            char to[64];
            size_t size = strlen(worst[i]);
            char *end = tp_escape(to, worst[i], size, json);
            assert_in_range(end - to, 1, TP_ESCAPED * size);
        }
}

/* ---- both forms of what a writer is told ---------------------------------------- */

static void put_case(struct tp_writer *w, size_t i, const void *of)
{
    const double *us = of;
    tp_begin(w, NULL, '{');
    tp_write(w, tp_num("m", i), tp_if(i == 1, tp_bool("odd", true)), tp_cell("shown", "only here"));
    tp_object(w, "time", tp_real("us", us[i]), tp_str("bound", i ? NULL : "math"));
    tp_write(w, tp_list("none", 0, put_case, of));
    tp_end(w, '}');
}

static void put_weight(struct tp_writer *w, size_t i, const void *of)
{
    static const char *const names[] = {"a.weight", "bad \xFF, \xF3\xA0\xBE\x80, \x1B\n\"\\"};
    const uint64_t shape[] = {2, 3};
    tp_object(w, NULL, tp_str("name", names[i]), tp_numbers("shape", shape, 2 * i),
              tp_null("rank"), tp_list("cases", 2, put_case, of));
}

static const double times[] = {1, 1e-5};

static void json_of_a_writer(void **state)
{
    (void)state;
    struct capture out;
    struct tp_writer w;
    json_t *given = json_pack("{s:[i,i],s:{}}", "list", 1, 2, "empty");
    capture_begin(&out, &stdout);
    tp_json_open(&w);
    tp_write(&w, tp_real("mean", 2.5e20), tp_real("none", NAN), tp_json("given", given),
             tp_list("weights", 2, put_weight, times));
    assert_int_equal(tp_json_close(&w), TP_OK);
    json_decref(given);
    printed(&out,
            "{\n  \"version\": 1,\n  \"mean\": 2.5e20,\n  \"none\": null,\n  \"given\": {\n"
            "    \"list\": [\n      1,\n      2\n    ],\n    \"empty\": {}\n  },\n"
            "  \"weights\": [\n    {\n      \"name\": \"a.weight\",\n      \"shape\": [],\n"
            "      \"rank\": null,\n      \"cases\": [\n        {\n          \"m\": 0,\n"
            "          \"time\": {\n            \"us\": 1.0,\n            \"bound\": \"math\"\n"
            "          },\n          \"none\": []\n        },\n        {\n          \"m\": 1,\n"
            "          \"odd\": true,\n          \"time\": {\n"
            "            \"us\": 1.0000000000000001e-5,\n            \"bound\": null\n"
            "          },\n          \"none\": []\n        }\n      ]\n    },\n    {\n"
            "      \"name\": \"bad \\uDCFF, \\uDCF3\\uDCA0\\uDCBE\\uDC80, \\u001B\\n\\\"\\\\\",\n"
            "      \"shape\": [\n        2,\n        3\n      ],\n      \"rank\": null,\n"
            "      \"cases\": [\n        {\n          \"m\": 0,\n          \"time\": {\n"
            "            \"us\": 1.0,\n            \"bound\": \"math\"\n          },\n"
            "          \"none\": []\n        },\n        {\n          \"m\": 1,\n"
            "          \"odd\": true,\n          \"time\": {\n"
            "            \"us\": 1.0000000000000001e-5,\n            \"bound\": null\n"
            "          },\n          \"none\": []\n        }\n      ]\n    }\n  ]\n}\n");
}

static void json_in_lines(void **state)
{
    (void)state;
    struct tp_writer w;
    struct tp_text text;
    for (int compact = 0; compact < 2; compact++) {
        tp_writer_open(&w);
        w.compact = compact;
        tp_write(&w, tp_lines("cases", 1, put_case, times), tp_lines("none", 0, put_case, times),
                 tp_numbers("shape", (uint64_t[]){4, 5}, 2));
        assert_int_equal(tp_writer_end(&w, &text, NULL), TP_OK);
        assert_string_equal(text.data, compact
            ? "{\"cases\":[{\"m\":0,\"time\":{\"us\":1.0,\"bound\":\"math\"},\"none\":[]}],"
              "\"none\":[],\"shape\":[4,5]}"
            : "{\n  \"cases\": [\n    {\"m\": 0, \"time\": {\"us\": 1.0, \"bound\": \"math\"}, "
              "\"none\": []}\n  ],\n  \"none\": [\n  ],\n  \"shape\": [\n    4,\n    5\n  ]\n}");
        tp_text_free(&text);
    }
}

/* A row for each case, with what its weight has, and an object of its own; a number that the row
 * before had is gone. */
static void table_of_a_writer(void **state)
{
    (void)state;
    static const struct tp_field fields[] = {
        {"weight", "name", TP_LEFT}, {"m", "m", TP_RIGHT}, {"us", "time.us %.3g", TP_RIGHT},
        {"bound", "time.bound", TP_LEFT}, {"", "shown", TP_LEFT}, {"of", "us %f", TP_LEFT}};
    struct tp_table table;
    struct capture out;
    capture_begin(&out, &stdout);
    tp_table_open(&table, fields, 6, "cases");
    put_weight(&table.w, 0, times);
    assert_int_equal(tp_table_end(&table), TP_OK);
    tp_table_open(&table, fields, 3, NULL);
    put_case(&table.w, 1, times);
    assert_int_equal(tp_table_end(&table), TP_OK);
    printed(&out, "weight    m     us  bound             of\n"
                  "a.weight  0      1  math   only here  -\n"
                  "a.weight  1  1e-05  -      only here  -\n"
                  "weight  m     us\n"
                  "-       1  1e-05\n");
}

/* Whichever call fails: a result as a whole, or an error as a whole. */
static void no_memory_for_a_result(void **state)
{
    (void)state;
    int status = TP_E_MEMORY;
    tp_report_setup(&(struct tp_options){.color = "never", .json = true});
    for (long count = 0; status != TP_OK; count++) {
        struct capture err_text, out;
        capture_begin(&out, &stdout);
        capture_begin(&err_text, &stderr);
        failing_begin(count);
        status = tp_json_result(tp_list("weights", 1, put_weight, times));
        failing_end();
        capture_end(&err_text);
        capture_end(&out);
        json_t *json = json_loads(out.text, 0, NULL);
        assert_non_null(json);
        assert_int_equal(status, json_object_get(json, "error") ? TP_E_MEMORY : TP_OK);
        json_decref(json);
        free(err_text.text);
        free(out.text);
        assert_in_range(count, 0, 100);
    }
}

static void quiet_and_verbose(void **state)
{
    (void)state;
    struct capture text;
    capture_begin(&text, &stderr);
    tp_report_setup(&(struct tp_options){.color = "never", .quiet = true});
    tp_warn("unseen");
    tp_note("unseen");
    tp_report_setup(&(struct tp_options){.color = "never"});
    tp_warn("seen %d", 1);
    tp_note("unseen");
    tp_report_setup(&(struct tp_options){.color = "never", .verbose = true});
    tp_note("seen %d", 2);
    printed(&text, "tilepack: warning: seen 1\ntilepack: seen 2\n");
}

static void colour(void **state)
{
    (void)state;
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    tp_report_setup(&(struct tp_options){.color = "always"});
    assert_string_equal(tp_style("31"), "\033[31m");
    assert_string_equal(tp_style("0"), "\033[0m");
    tp_report_setup(&(struct tp_options){.color = "auto"});
    assert_string_equal(tp_style("31"), "");
    tp_report_setup(&(struct tp_options){.color = "never"});
    assert_string_equal(tp_style("31"), "");
    assert_false(wants_color("auto", STDOUT_FILENO));
    unsetenv("NO_COLOR");
}

static void bytes(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        {0, "0 B"}, {999, "999 B"}, {1000, "1.00 kB"}, {1024, "1.02 kB"}, {9994, "9.99 kB"},
        {9996, "10.0 kB"}, {99940, "99.9 kB"}, {99960, "100 kB"}, {999499, "999 kB"},
        {999500, "1.00 MB"}, {1478578176, "1.48 GB"}, {UINT64_MAX, "18.4 EB"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[TP_HUMAN];
        assert_string_equal(tp_human_bytes(text, rows[i].bytes), rows[i].text);
    }
}

static void seconds(void **state)
{
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } rows[] = {
        {0, "0 ms"}, {0.0123, "12 ms"}, {0.9994, "999 ms"}, {0.9996, "1.0 s"}, {3.44, "3.4 s"},
        {9.96, "10 s"}, {59.4, "59 s"}, {59.6, "1:00"}, {125, "2:05"}, {3599.6, "1:00:00"},
        {3723, "1:02:03"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[TP_HUMAN];
        assert_string_equal(tp_human_seconds(text, rows[i].seconds), rows[i].text);
    }
}

static void tables(void **state)
{
    (void)state;
    struct capture text;
    static const struct tp_field fields[] = {
        {"name", "name", TP_CUT}, {"bytes", "bytes", TP_RIGHT}, {"why", "why", TP_LEFT}};
    struct tp_table table;
    tp_report_setup(&(struct tp_options){.color = "never"});
    capture_begin(&text, &stdout);
    tp_table_open(&table, fields, 3, NULL);
    tp_object(&table.w, NULL, tp_str("name", "a\tb"), tp_num("bytes", 5), tp_str("why", "x"));
    tp_object(&table.w, NULL, tp_str("name", "\xC3\xA9t\xC3\xA9"), tp_num("bytes", 123456),
              tp_str("why", ""));
    tp_object(&table.w, NULL, tp_num("bytes", 7), tp_str("why", "y"), tp_str("name",
        "a.name.that.is.much.longer.than.any.terminal.is.wide.but.this.is.no.terminal.at.all.so"
        ".that.it.must.be.printed.whole"));
    assert_int_equal(tp_table_end(&table), TP_OK);
    char wanted[1000];
    snprintf(wanted, sizeof wanted, "%-116s   bytes  why\n%-116s       5  x\n%-118s  123456\n"
             "%s       7  y\n", "name", "a\\x09b", "\xC3\xA9t\xC3\xA9",
             "a.name.that.is.much.longer.than.any.terminal.is.wide.but.this.is.no.terminal.at.all"
             ".so.that.it.must.be.printed.whole");
    printed(&text, wanted);
}

static void cells_lose_their_middle(void **state)
{
    (void)state;
    struct capture text;
    static const struct tp_field field = {"n", "n", TP_CUT};
    struct tp_table table = {.fields = &field, .count = 1, .width = {15}};
    const char *names[] = {"model.layers.10.mlp.down_proj",
                           "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"};
    capture_begin(&text, &stdout);
    struct cell cell = {names[0], (uint32_t)strlen(names[0])};
    assert_int_equal(print_cell(&table, 0, cell, 0), 2);
    putchar('\n');
    table.width[0] = 7;
    cell = (struct cell){names[1], (uint32_t)strlen(names[1])};
    print_cell(&table, 0, cell, 0);
    printed(&text, "mode...own_proj\n\xC3\xA9...\xC3\xA9\xC3\xA9\xC3\xA9");
}

static void many_rows(void **state)
{
    (void)state;
    struct capture text;
    static const struct tp_field fields[] = {{"name", "name", TP_LEFT}, {"n", "n", TP_RIGHT}};
    struct tp_table table;
    capture_begin(&text, &stdout);
    tp_table_open(&table, fields, 2, NULL);
    for (unsigned i = 0; i < 100000; i++)
        tp_object(&table.w, NULL, tp_str("name", "tensor"), tp_num("n", i));
    assert_int_equal(tp_table_end(&table), TP_OK);
    capture_end(&text);
    assert_int_equal(text.size, 100001 * (6 + 2 + 5 + 1));
    assert_memory_equal(text.text + text.size - 14, "tensor  99999\n", 14);
    free(text.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_in_text),
        cmocka_unit_test(an_error_in_json),
        cmocka_unit_test(escapes_do_not_pass),
        cmocka_unit_test(escaped_text_has_room),
        cmocka_unit_test(json_of_a_writer),
        cmocka_unit_test(json_in_lines),
        cmocka_unit_test(table_of_a_writer),
        cmocka_unit_test(no_memory_for_a_result),
        cmocka_unit_test(quiet_and_verbose),
        cmocka_unit_test(colour),
        cmocka_unit_test(bytes),
        cmocka_unit_test(seconds),
        cmocka_unit_test(tables),
        cmocka_unit_test(cells_lose_their_middle),
        cmocka_unit_test(many_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
