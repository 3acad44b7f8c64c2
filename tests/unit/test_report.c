/* What the command line prints: errors in text and JSON, tables, human numbers,
 * and that text from a file cannot drive the terminal. */
#include "cli/escape.c"
#include "cli/human.c"
#include "cli/progress.c"
#include "cli/report.c"
#include "cli/table.c"

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

/* A name that stands for bytes takes memory of its own: where there is none, the JSON that it was
 * to be in is none. */
static void no_memory_for_a_name(void **state)
{
    (void)state;
    for (long count = 0; count < 3; count++) {
        struct tp_text text = {0};
        struct tp_err err = {0};
        uint64_t mark = tp_json_mark();
        failing_begin(count);
        json_t *json = tp_json_text("bad \xFF byte");
        failing_end();
        assert_int_equal(tp_json_check(mark, TP_OK, NULL), json ? TP_OK : TP_E_MEMORY);
        assert_true(!json || count == 2);
        json_decref(json);
        failing_begin(count);
        assert_int_equal(tp_add_json_text(&text, "bad \xFF byte", &err), TP_E_MEMORY);
        failing_end();
        tp_text_free(&text);
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
    const struct tp_column columns_of[] = {{"name", false, true}, {"bytes", true, false},
                                           {"why", false, false}};
    tp_report_setup(&(struct tp_options){.color = "never"});
    capture_begin(&text, &stdout);
    struct tp_table *table = tp_table_new(columns_of, 3);
    tp_table_row(table, (const char *const[]){"a\tb", "5", "x"});
    tp_table_row(table, (const char *const[]){"\xC3\xA9t\xC3\xA9", "123456", NULL});
    tp_table_row(table, (const char *const[]){
        "a.name.that.is.much.longer.than.any.terminal.is.wide.but.this.is.no.terminal.at.all.so"
        ".that.it.must.be.printed.whole", "7", "y"});
    assert_int_equal(tp_table_end(table), TP_OK);
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
    struct tp_column column = {"n", false, true};
    size_t width = 15;
    struct tp_table table = {.columns = &column, .count = 1, .width = &width};
    const char *names[] = {"model.layers.10.mlp.down_proj",
                           "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"};
    capture_begin(&text, &stdout);
    struct cell cell = {names[0], (uint32_t)strlen(names[0])};
    assert_int_equal(print_cell(&table, 0, cell, 0), 2);
    putchar('\n');
    width = 7;
    cell = (struct cell){names[1], (uint32_t)strlen(names[1])};
    print_cell(&table, 0, cell, 0);
    printed(&text, "mode...own_proj\n\xC3\xA9...\xC3\xA9\xC3\xA9\xC3\xA9");
}

static void many_rows(void **state)
{
    (void)state;
    struct capture text;
    const struct tp_column columns_of[] = {{NULL, false, false}, {NULL, true, false}};
    capture_begin(&text, &stdout);
    struct tp_table *table = tp_table_new(columns_of, 2);
    for (unsigned i = 0; i < 100000; i++) {
        char number[16];
        snprintf(number, sizeof number, "%u", i);
        tp_table_row(table, (const char *const[]){"tensor", number});
    }
    assert_int_equal(tp_table_end(table), TP_OK);
    capture_end(&text);
    assert_int_equal(text.size, 100000 * (6 + 2 + 5 + 1));
    assert_memory_equal(text.text + text.size - 14, "tensor  99999\n", 14);
    free(text.text);
}

static void printable_bytes(void **state)
{
    (void)state;
    char text[24];
    for (size_t size = 0; size < sizeof text; size++) {
        memset(text, 'm', sizeof text);
        assert_true(is_printable(text, size));
        for (size_t at = 0; at < sizeof text; at++) {
            for (int byte = 0; byte < 256; byte++) {
                text[at] = (char)byte;
                assert_int_equal(is_printable(text, size),
                                 at >= size || (byte >= 0x20 && byte <= 0x7e));
            }
            text[at] = 'm';
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_in_text),   cmocka_unit_test(an_error_in_json),
        cmocka_unit_test(escapes_do_not_pass),
        cmocka_unit_test(escaped_text_has_room), cmocka_unit_test(no_memory_for_a_name),
        cmocka_unit_test(quiet_and_verbose),
        cmocka_unit_test(colour),             cmocka_unit_test(bytes),
        cmocka_unit_test(seconds),            cmocka_unit_test(tables),
        cmocka_unit_test(cells_lose_their_middle), cmocka_unit_test(many_rows),
        cmocka_unit_test(printable_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
