/* The command line: the tables are consistent, arguments become the right
 * fields, and every refusal says what and why. */
#include "cli/option_table.c"
#include "cli/option_value.c"
#include "cli/options.c"
#include "cli/synonyms.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Parses a space-separated line (no word contains a space). */
static enum tp_code parse(enum tp_command command, const char *line, struct tp_options *o,
                          struct tp_err *err)
{
    static char text[2000];
    static char *argv[100];
    int argc = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    *err = (struct tp_err){0};
    return tp_options_parse(command, argc, argv, o, err);
}

static void refused(enum tp_command command, const char *line, const char *what)
{
    struct tp_options o;
    struct tp_err err;
    assert_int_equal(parse(command, line, &o, &err), TP_E_USAGE);
    assert_string_equal(err.what, what);
    assert_true(*err.hint);
    tp_options_free(&o);
}

static void taken(enum tp_command command, const char *line, struct tp_options *o)
{
    struct tp_err err;
    if (parse(command, line, o, &err))
        fail_msg("%s: %s", line, err.what);
}

/* --------------------------------------------------------------- the tables -- */

static void names_and_letters_are_unique(void **state)
{
    (void)state;
    for (unsigned c = 0; c < TP_CMD_COUNT; c++)
        for (size_t i = 0; i < tp_option_count; i++)
            for (size_t j = 0; j < i; j++) {
                const struct tp_option *a = &tp_option_rows[i], *b = &tp_option_rows[j];
                if (!tp_option_applies(a, (enum tp_command)c) ||
                    !tp_option_applies(b, (enum tp_command)c))
                    continue;
                assert_string_not_equal(a->name, b->name);
                assert_false(a->letter && a->letter == b->letter);
            }
}

static void rows_are_complete(void **state)
{
    (void)state;
    for (size_t i = 0; i < tp_option_count; i++) {
        const struct tp_option *row = &tp_option_rows[i];
        assert_true(row->name && row->help && row->commands);
        assert_int_equal(row->kind == TP_OPT_FLAG, row->value == NULL);
        assert_true(row->help[strlen(row->help) - 1] != '.');
        assert_true(row->kind != TP_OPT_CHOICE || row->words);
        assert_true(!row->alone || (row->value && !row->initial));
        assert_true(row->kind != TP_OPT_UNSIGNED ||
                    (row->min <= row->max && row->max <= UINT32_MAX));
        assert_int_equal(row->complete == TP_COMPLETE_WORDS, row->words != NULL);
        assert_true(row->field > 0 && row->field < sizeof(struct tp_options));
        assert_true(strlen(row->name) < 20 && strlen(row->help) < 78);
    }
    for (unsigned c = 0; c < TP_CMD_COUNT; c++) {
        const struct tp_command_row *row = &tp_command_rows[c];
        assert_true(row->name && row->synopsis && row->line && row->about && row->examples);
        assert_true(row->min <= row->max);
        for (size_t i = 0; i < row->min; i++)
            assert_non_null(row->operand[i].name);
    }
}

/* Two rows of one field must be the same option; otherwise one overwrites the other. */
static void fields_are_not_shared(void **state)
{
    (void)state;
    for (size_t i = 0; i < tp_option_count; i++)
        for (size_t j = 0; j < i; j++)
            if (tp_option_rows[i].field == tp_option_rows[j].field)
                assert_string_equal(tp_option_rows[i].name, tp_option_rows[j].name);
}

/* ---------------------------------------------------------------- arguments -- */

static void defaults(void **state)
{
    (void)state;
    struct tp_options o;
    taken(TP_CMD_CONVERT, "src -o dst --to w4a8-ct", &o);
    assert_int_equal(o.command, TP_CMD_CONVERT);
    assert_int_equal(o.arg.count, 1);
    assert_string_equal(o.arg.item[0], "src");
    assert_string_equal(o.output, "dst");
    assert_string_equal(o.to, "w4a8-ct");
    assert_true(o.shard_size == 5000000000u);
    assert_true(o.max_memory == 0); /* the default depends on the machine */
    assert_true(o.gpu_memory == 0);
    assert_int_equal(o.zstd, 0);
    assert_int_equal(o.tp, 1);
    assert_int_equal(o.part.count, 0);
    assert_string_equal(o.nonfinite, "refuse");
    assert_string_equal(o.device, "auto");
    assert_string_equal(o.color, "auto");
    assert_true(o.offset == TP_UNSET && o.expert == TP_UNSET);
    assert_true(o.jobs >= 1);
    assert_false(o.json || o.quiet || o.verbose || o.help || o.force || o.dry_run || o.strict ||
                 o.requantize || o.discard || o.no_stack || o.why || o.at.set || o.values.set);
    assert_null(o.recipe);
    assert_null(o.dtype);
    tp_options_free(&o);
    tp_options_free(&o);
}

static void every_way_to_write_a_value(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "src --to x -o dst -j 3",      "src --to=x -odst -j3",  "--to x -o dst src --jobs=3",
        "-j 3 --output dst --to x src", "--output=dst --to x -j3 -- src",
        "-fqj3 --to x -o dst src", "-o dst -o dst --to x --to x -j9 -j3 src",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct tp_options o;
        taken(TP_CMD_CONVERT, lines[i], &o);
        assert_string_equal(o.output, "dst");
        assert_string_equal(o.to, "x");
        assert_string_equal(o.arg.item[0], "src");
        assert_int_equal(o.jobs, 3);
        assert_int_equal(o.force, strstr(lines[i], "-fq") != NULL);
        tp_options_free(&o);
    }
}

static void repeatable_options_keep_their_order(void **state)
{
    (void)state;
    struct tp_options o;
    taken(TP_CMD_PLAN, "--exclude a --set k=v --include b s --to x --exclude=^c$ --set l==", &o);
    assert_int_equal(o.exclude.count, 2);
    assert_string_equal(o.exclude.item[0], "a");
    assert_string_equal(o.exclude.item[1], "^c$");
    assert_int_equal(o.include.count, 1);
    assert_int_equal(o.set.count, 2);
    assert_string_equal(o.set.item[1], "l==");
    tp_options_free(&o);
}

static void operands_that_look_like_options(void **state)
{
    (void)state;
    struct tp_options o;
    taken(TP_CMD_DIFF, "-- --json -x", &o);
    assert_string_equal(o.arg.item[0], "--json");
    assert_string_equal(o.arg.item[1], "-x");
    assert_false(o.json);
    tp_options_free(&o);
    taken(TP_CMD_DIFF, "./- b --json", &o);
    assert_string_equal(o.arg.item[0], "./-");
    assert_true(o.json);
    tp_options_free(&o);
}

static void optional_level(void **state)
{
    (void)state;
    struct tp_options o;
    taken(TP_CMD_CONVERT, "--zstd src -o d --to x", &o);
    assert_int_equal(o.zstd, 1);
    assert_string_equal(o.arg.item[0], "src");
    tp_options_free(&o);
    taken(TP_CMD_CONVERT, "--zstd=19 src -o d --to x", &o);
    assert_int_equal(o.zstd, 19);
    tp_options_free(&o);
    refused(TP_CMD_CONVERT, "s -o d --to x --zstd=23",
            "--zstd '23': it is not a number from 1 to 22");
    refused(TP_CMD_CONVERT, "s -o d --to x --zstd=0",
            "--zstd '0': it is not a number from 1 to 22");
}

static void coordinates(void **state)
{
    (void)state;
    struct tp_options o;
    taken(TP_CMD_DUMP, "p t --at 3,17,300 --offset 0x1F --values 0:4,:8 --expert 7", &o);
    assert_true(o.at.set && o.at.e == 3 && o.at.n == 17 && o.at.k == 300);
    assert_true(o.offset == 31 && o.expert == 7);
    assert_true(o.values.set && o.values.n0 == 0 && o.values.n1 == 4);
    assert_true(o.values.k0 == 0 && o.values.k1 == 8);
    tp_options_free(&o);
    taken(TP_CMD_DUMP, "p t --at 17,300 --values 2:,1: --offset 0", &o);
    assert_true(o.at.set && o.at.e == 0 && o.at.n == 17 && o.at.k == 300);
    assert_true(o.values.n0 == 2 && o.values.n1 == UINT64_MAX && o.values.k1 == UINT64_MAX);
    assert_true(o.offset == 0);
    tp_options_free(&o);
    static const char *const bad_at[] = {"5", "1,2,3,4", ",1", "1,", "a,b", "-1,2", "1;2"};
    for (size_t i = 0; i < sizeof bad_at / sizeof bad_at[0]; i++) {
        char line[100], what[200];
        snprintf(line, sizeof line, "p t --at %s", bad_at[i]);
        snprintf(what, sizeof what, "--at '%s': it is not of the form [E,]N,K", bad_at[i]);
        refused(TP_CMD_DUMP, line, what);
    }
    refused(TP_CMD_DUMP, "p t --values 0:4",
            "--values '0:4': it is not of the form N0:N1,K0:K1 with N0 < N1, K0 < K1");
    refused(TP_CMD_DUMP, "p t --values 4:4,0:1",
            "--values '4:4,0:1': it is not of the form N0:N1,K0:K1 with N0 < N1, K0 < K1");
    refused(TP_CMD_DUMP, "p t --values 0:1,0:1,2",
            "--values '0:1,0:1,2': it is not of the form N0:N1,K0:K1 with N0 < N1, K0 < K1");
    refused(TP_CMD_DUMP, "p t --offset 12q", "--offset '12q': it is not a number");
}

static void sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0}, {"4096", 4096}, {"7B", 7}, {"5GB", 5000000000u}, {"5gb", 5000000000u},
        {"512MiB", 512u << 20}, {"1.5GB", 1500000000u}, {"0.25KiB", 256}, {"2kB", 2000},
        {"1TiB", 1ull << 40}, {"5 GB", 5000000000u}, {"2G", 2000000000u}, {"5m", 5000000u},
        {"512Mi", 512u << 20}, {"1.5T", 1500000000000u}, {"3TB", 3000000000000u}, {"16777215TiB", 16777215ull << 40},
        {"18446744073709551615", UINT64_MAX}, {"0.000001MB", 1}, {"1.999999TiB", 2199022156040u},
    };
    static const char *const bad[] = {"", "GB", "5  GB", "5 ", " 5GB", "-1", "+1", "1.5", "1.5B",
                                      "1.GB", ".5GB", "1.0000000GB", "5GBs", "0x10",
                                      "18446744073709551616", "16777216TiB", "1e9"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (!tp_parse_size(good[i].text, &bytes) || bytes != good[i].bytes)
            fail_msg("%s", good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (tp_parse_size(bad[i], &bytes))
            fail_msg("%s was taken", bad[i]);
    refused(TP_CMD_CONVERT, "s -o d --to x --shard-size 5X",
            "--shard-size '5X': it is not a size such as 5GB or 5G (5 * 1000^3), or 512MiB "
            "(512 * 1024^2)");
    refused(TP_CMD_CONVERT, "s -o d --to x --shard-size 0", "--shard-size '0': it is too small");
}

static void numbers(void **state)
{
    (void)state;
    uint64_t v, list[4];
    size_t count;
    assert_true(tp_parse_u64("0", &v) && v == 0);
    assert_true(tp_parse_u64("0xfFfFfFfFfFfFfFfF", &v) && v == UINT64_MAX);
    assert_true(tp_parse_u64("007", &v) && v == 7);
    static const char *const bad[] = {"", "0x", "x", " 1", "1 ", "-1", "0x10000000000000000",
                                      "18446744073709551616", "1e3", "0b1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(tp_parse_u64(bad[i], &v));
    assert_true(tp_parse_u64_list("1,64,4096", list, 4, &count) && count == 3 && list[2] == 4096);
    assert_true(tp_parse_u64_list("1,2,3,4", list, 4, &count) && count == 4);
    assert_false(tp_parse_u64_list("1,2,3,4,5", list, 4, &count));
    assert_false(tp_parse_u64_list("1,,2", list, 4, &count));
    assert_false(tp_parse_u64_list("", list, 4, &count));
    assert_false(tp_parse_u64_list("1,", list, 4, &count));
}

static void devices_and_regular_expressions(void **state)
{
    (void)state;
    struct tp_options o;
    static const char *const good[] = {"auto", "cpu", "cuda", "cuda:all", "cuda:0", "cuda:0,2"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char line[100];
        snprintf(line, sizeof line, "--device %s", good[i]);
        taken(TP_CMD_BENCH, line, &o);
        assert_string_equal(o.device, good[i]);
        tp_options_free(&o);
    }
    const char *form = "it is not one of auto, cpu, cuda, cuda:all, cuda:I[,I...]";
    char what[200];
    static const char *const bad[] = {"gpu", "cuda:", "cuda:a", "cuda:1,", "cpu:0", "CUDA"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char line[100];
        snprintf(line, sizeof line, "--device=%s", bad[i]);
        snprintf(what, sizeof what, "--device '%s': %s", bad[i], form);
        refused(TP_CMD_BENCH, line, what);
    }
    refused(TP_CMD_BENCH, "--device cuda:1,0,1", "--device 'cuda:1,0,1': it names a device twice");
    refused(TP_CMD_PLAN, "s --to x --include (",
            "--include '(': missing closing parenthesis, at offset 1");
    refused(TP_CMD_PLAN, "s --to x --exclude *.a",
            "--exclude '*.a': quantifier does not follow a repeatable item, at offset 0");
    char line[600] = "s --to x --include ", shown[400] = "--include '";
    memset(line + strlen(line), '(', 500);
    memset(shown + strlen(shown), '(', 200);
    strcat(shown, "...': parentheses are too deeply nested, at offset 51");
    refused(TP_CMD_PLAN, line, shown);
    refused(TP_CMD_PLAN, "s --to x --set =v",
            "--set '=v': it is not of the form KEY=VALUE");
    refused(TP_CMD_PLAN, "s --to x --set k", "--set 'k': it is not of the form KEY=VALUE");
}

/* ------------------------------------------------------------------- errors -- */

static void unknown_options(void **state)
{
    (void)state;
    refused(TP_CMD_CONVERT, "--foo", "unknown option '--foo' (did you mean '--force'?)");
    refused(TP_CMD_CONVERT, "--dry", "unknown option '--dry' (did you mean '--dry-run'?)");
    refused(TP_CMD_CONVERT, "--ouptut=x", "unknown option '--ouptut' (did you mean '--output'?)");
    refused(TP_CMD_CONVERT, "--shard_size", "unknown option '--shard_size' (did you mean "
                                            "'--shard-size'?)");
    refused(TP_CMD_CONVERT, "--xyzzy", "unknown option '--xyzzy'");
    refused(TP_CMD_CONVERT, "--discar", "unknown option '--discar'"); /* hidden */
    refused(TP_CMD_CONVERT, "-fz", "unknown option '-z'");
    refused(TP_CMD_DUMP, "p --shard-size 5GB",
            "unknown option '--shard-size' (it belongs to convert, plan, unpack)");
    struct tp_options o;
    struct tp_err err;
    assert_int_equal(parse(TP_CMD_DUMP, "--bogus", &o, &err), TP_E_USAGE);
    assert_string_equal(err.hint, "'tilepack dump --help' lists what it takes");
    tp_options_free(&o);
}

static void missing_and_superfluous(void **state)
{
    (void)state;
    refused(TP_CMD_CONVERT, "", "SRC is missing");
    refused(TP_CMD_DIFF, "a", "B is missing");
    refused(TP_CMD_DIFF, "a b c", "unexpected argument 'c'");
    refused(TP_CMD_BENCH, "x", "unexpected argument 'x'");
    refused(TP_CMD_CONVERT, "s -o d", "no format is given");
    refused(TP_CMD_CONVERT, "s --to x", "no output is given");
    refused(TP_CMD_UNPACK, "s", "no output is given");
    refused(TP_CMD_SCHEDULE, "--m 1", "no weights are given");
    refused(TP_CMD_CONVERT, "s -o", "option '-o' needs a value: -o DST");
    refused(TP_CMD_CONVERT, "s --to", "option '--to' needs a value: --to FORMAT");
    refused(TP_CMD_CONVERT, "s --to=", "--to '': it is empty");
    refused(TP_CMD_CONVERT, "s --force=yes", "option '--force' takes no value");
    refused(TP_CMD_CONVERT, "s --to x --recipe y -o z", "--to and --recipe exclude each other");
    refused(TP_CMD_DUMP, "p -qv", "--quiet and --verbose exclude each other");
    refused(TP_CMD_CONVERT, "s --nonfinite drop",
            "--nonfinite 'drop': it is not one of refuse keep");
    refused(TP_CMD_CONVERT, "s --nonfinite ref",
            "--nonfinite 'ref': it is not one of refuse keep");
    refused(TP_CMD_CONVERT, "s -j 0", "--jobs '0': it is not a number from 1 to 1024");
    refused(TP_CMD_CONVERT, "s -j 1025", "--jobs '1025': it is not a number from 1 to 1024");
    refused(TP_CMD_CONVERT, "s -j 4294967297",
            "--jobs '4294967297': it is not a number from 1 to 1024");
}

static void an_empty_argument(void **state)
{
    (void)state;
    struct tp_options o;
    struct tp_err err = {0};
    char *argv[] = {"", NULL};
    assert_int_equal(tp_options_parse(TP_CMD_VERIFY, 1, argv, &o, &err), TP_E_USAGE);
    assert_string_equal(err.what, "an argument is empty");
    tp_options_free(&o);
}

static void less_is_needed(void **state)
{
    (void)state;
    static const struct {
        enum tp_command command;
        const char *line;
    } rows[] = {
        {TP_CMD_CONVERT, "--help"}, {TP_CMD_DIFF, "a -h"}, {TP_CMD_CONVERT, "s --to x -n"},
        {TP_CMD_CONVERT, "s --to x --discard"}, {TP_CMD_CONVERT, "s --recipe r -o d"},
        {TP_CMD_PLAN, "s --to x"}, {TP_CMD_SCHEDULE, "--shape 1,2"},
        {TP_CMD_SCHEDULE, "--cases f"}, {TP_CMD_SCHEDULE, "p"}, {TP_CMD_FORMATS, ""},
        {TP_CMD_BENCH, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tp_options o;
        taken(rows[i].command, rows[i].line, &o);
        tp_options_free(&o);
    }
}

static void commands(void **state)
{
    (void)state;
    enum tp_command command;
    struct tp_err err = {0};
    for (unsigned c = 0; c < TP_CMD_COUNT; c++) {
        assert_int_equal(tp_command_find(tp_command_rows[c].name, &command, &err), TP_OK);
        assert_int_equal(command, c);
    }
    assert_int_equal(tp_command_find("convrt", &command, &err), TP_E_USAGE);
    assert_string_equal(err.what, "unknown command 'convrt' (did you mean 'convert'?)");
    err = (struct tp_err){0};
    assert_int_equal(tp_command_find("optimize", &command, &err), TP_E_USAGE);
    assert_string_equal(err.what, "unknown command 'optimize'");
}

/* -------------------------------------------------------------- environment -- */

static void clear_environment(void)
{
    static const char *const names[] = {
        "TILEPACK_JOBS", "TILEPACK_CACHE", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN",
        "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_STEP", "JOB_COMPLETION_INDEX"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

static void cache_from_the_environment(void **state)
{
    static const char *const bad[] = {"rubbish", "0x10", "5GB", "-1", "18446744073709551616", " "};
    (void)state;
    struct tp_options o;
    clear_environment();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char message[100];
        setenv("TILEPACK_CACHE", bad[i], 1);
        snprintf(message, sizeof message, "TILEPACK_CACHE '%s': it is not a number of bytes",
                 bad[i]);
        refused(TP_CMD_BENCH, "", message);
    }
    setenv("TILEPACK_CACHE", "18446744073709551615", 1);
    taken(TP_CMD_BENCH, "", &o);
    tp_options_free(&o);
    setenv("TILEPACK_CACHE", "", 1);
    taken(TP_CMD_BENCH, "", &o);
    tp_options_free(&o);
    clear_environment();
}

static void jobs_from_the_environment(void **state)
{
    (void)state;
    struct tp_options o;
    clear_environment();
    setenv("TILEPACK_JOBS", "7", 1);
    taken(TP_CMD_BENCH, "", &o);
    assert_int_equal(o.jobs, 7);
    tp_options_free(&o);
    taken(TP_CMD_BENCH, "-j 2", &o);
    assert_int_equal(o.jobs, 2);
    tp_options_free(&o);
    setenv("TILEPACK_JOBS", "many", 1);
    refused(TP_CMD_BENCH, "", "TILEPACK_JOBS 'many': it is not a number from 1 to 1024");
    taken(TP_CMD_BENCH, "-j 2", &o);
    tp_options_free(&o);
    clear_environment();
}

static void parts(void **state)
{
    (void)state;
    struct tp_options o;
    clear_environment();
    taken(TP_CMD_CONVERT, "s -o d --to x --part 2/4", &o);
    assert_true(o.part.index == 2 && o.part.count == 4);
    tp_options_free(&o);
    static const char *const bad[] = {"0/4", "5/4", "1", "1/", "/4", "1/0", "a/b", "1/4/2", "/"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char line[100], what[200];
        snprintf(line, sizeof line, "s -o d --to x --part %s", bad[i]);
        snprintf(what, sizeof what, "--part '%s': it is not of the form I/P with 1 <= I <= P",
                 bad[i]);
        refused(TP_CMD_CONVERT, line, what);
    }
    refused(TP_CMD_CONVERT, "s -o d --to x --part auto",
            "--part 'auto': no Slurm array job says which part of how many");
    setenv("JOB_COMPLETION_INDEX", "0", 1);
    taken(TP_CMD_CONVERT, "s -o d --to x --part auto/3", &o);
    assert_true(o.part.index == 1 && o.part.count == 3);
    tp_options_free(&o);
    setenv("JOB_COMPLETION_INDEX", "3", 1);
    refused(TP_CMD_CONVERT, "s -o d --to x --part auto/3",
            "--part 'auto/3': neither a Slurm array nor a Kubernetes Indexed Job says which "
            "part");
    setenv("SLURM_ARRAY_TASK_ID", "14", 1);
    setenv("SLURM_ARRAY_TASK_MIN", "10", 1);
    setenv("SLURM_ARRAY_TASK_MAX", "16", 1);
    setenv("SLURM_ARRAY_TASK_STEP", "2", 1);
    taken(TP_CMD_CONVERT, "s -o d --to x --part auto", &o);
    assert_true(o.part.index == 3 && o.part.count == 4);
    tp_options_free(&o);
    setenv("SLURM_ARRAY_TASK_ID", "13", 1);
    refused(TP_CMD_CONVERT, "s -o d --to x --part auto",
            "--part 'auto': no Slurm array job says which part of how many");
    clear_environment();
}

int main(void)
{
    clear_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_letters_are_unique),
        cmocka_unit_test(rows_are_complete),
        cmocka_unit_test(fields_are_not_shared),
        cmocka_unit_test(defaults),
        cmocka_unit_test(every_way_to_write_a_value),
        cmocka_unit_test(repeatable_options_keep_their_order),
        cmocka_unit_test(operands_that_look_like_options),
        cmocka_unit_test(optional_level),
        cmocka_unit_test(coordinates),
        cmocka_unit_test(sizes),
        cmocka_unit_test(numbers),
        cmocka_unit_test(devices_and_regular_expressions),
        cmocka_unit_test(unknown_options),
        cmocka_unit_test(missing_and_superfluous),
        cmocka_unit_test(an_empty_argument),
        cmocka_unit_test(less_is_needed),
        cmocka_unit_test(commands),
        cmocka_unit_test(jobs_from_the_environment),
        cmocka_unit_test(cache_from_the_environment),
        cmocka_unit_test(parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
