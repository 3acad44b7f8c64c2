/* The progress line, drawn into a real pseudo-terminal: what appears, how often,
 * how wide, that it goes away, and that nothing at all appears elsewhere. */
#include "cli/human.c"
#include "cli/print_text.c"
#include "cli/progress.c"
#include "cli/report.c"
#include "cli/writer.c"

#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { COLUMNS = 70 };

static void nap(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

static void *worker(void *progress)
{
    for (int i = 0; i < 700; i++) {
        tp_progress_add(progress, 1000000, "model.layers.12.block_sparse_moe.experts.w13_weight");
        nap(1);
    }
    return NULL;
}

/* What a command would do, in the child: two workers for 0.7 s, one warning. */
static void work(const struct tp_options *o)
{
    pthread_t threads[2];
    struct tp_progress *p = tp_progress_start(o, "convert", 1400000000);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, worker, p);
    nap(350);
    tp_warn("in between");
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    tp_progress_end(p);
    fputs("after\n", stderr);
}

static double took; /* seconds that the last run of work() took */

/* Runs work() with stderr on a terminal or a pipe; the bytes it wrote. */
static char *output_of(const struct tp_options *o, const char *term, bool terminal)
{
    static char text[100000];
    struct winsize size = {24, COLUMNS, 0, 0};
    int fds[2], master = -1;
    if (terminal && openpty(&master, &fds[1], NULL, NULL, &size) != 0)
        skip(); /* a container without /dev/pts: there are no terminals to draw on */
    if (!terminal)
        assert_int_equal(pipe(fds), 0);
    double begin = tp_now();
    pid_t child = fork();
    if (!child) {
        dup2(fds[1], STDERR_FILENO);
        setenv("TERM", term, 1);
        tp_report_setup(o);
        work(o);
        _exit(0);
    }
    close(fds[1]);
    size_t used = 0;
    ssize_t n;
    while (used + 1 < sizeof text &&
           (n = read(terminal ? master : fds[0], text + used, sizeof text - 1 - used)) > 0)
        used += (size_t)n;
    text[used] = 0;
    close(terminal ? master : fds[0]);
    int status;
    waitpid(child, &status, 0);
    took = tp_now() - begin;
    assert_int_equal(status, 0);
    return text;
}

static void drawn_on_a_terminal(void **state)
{
    (void)state;
    char *text = output_of(&(struct tp_options){.color = "never"}, "xterm", true);
    size_t lines = 0;
    for (const char *at = text; (at = strstr(at, "\rconvert  ")); at++) {
        const char *end = strstr(at, "\033[K");
        assert_non_null(end);
        assert_true(end - at - 1 < COLUMNS); /* never wraps */
        lines++;
    }
    assert_true(lines >= 3 && (double)lines <= took * 10); /* at most ten a second */
    assert_non_null(strstr(text, " / 1.40 GB  "));
    assert_non_null(strstr(text, "GB/s  ETA "));
    assert_non_null(strstr(text, "..."));          /* the name lost its middle */
    assert_non_null(strstr(text, "eight\033[K"));  /* and kept its end */
    /* the warning stands on a line of its own, and so does what comes at the end */
    assert_non_null(strstr(text, "\r\033[Ktilepack: warning: in between\r\n"));
    const char *last = strstr(text, "\r\033[Kafter\r\n");
    assert_non_null(last);
    assert_string_equal(last + strlen("\r\033[Kafter\r\n"), "");
}

static void percent_rises(void **state)
{
    (void)state;
    char *text = output_of(&(struct tp_options){.color = "never"}, "xterm", true);
    int last = -1, rises = 0;
    for (char *at = text; (at = strchr(at, '%')); at++) {
        int percent = atoi(at - 3);
        assert_true(percent >= last && percent <= 100);
        rises += percent > last;
        last = percent;
    }
    assert_true(rises >= 3);
}

static void silent_elsewhere(void **state)
{
    (void)state;
    struct tp_options plain = {.color = "never"}, quiet = {.color = "never", .quiet = true};
    assert_string_equal(output_of(&plain, "xterm", false),
                        "tilepack: warning: in between\nafter\n");
    assert_string_equal(output_of(&plain, "dumb", true),
                        "tilepack: warning: in between\r\nafter\r\n");
    assert_string_equal(output_of(&quiet, "xterm", true), "after\r\n");
}

/* --progress-fd: one object a line, done rises, the last one has everything; stderr, a
 * terminal or not, has none of it. */
static void objects_on_a_descriptor(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    struct tp_options o = {.color = "never", .quiet = true, .progress_fd = (unsigned)fileno(file)};
    assert_string_equal(output_of(&o, "xterm", false), "after\n");
    char line[600];
    unsigned long long last = 0, lines = 0, done, total;
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        int end = 0;
        assert_int_equal(sscanf(line, "{\"command\":\"convert\",\"done\":%llu,\"total\":%llu,"
                                      "\"item\":\"%n", &done, &total, &end), 2);
        assert_true(end && done >= last);
        assert_string_equal(line + end, "model.layers.12.block_sparse_moe.experts.w13_weight\"}\n");
        last = done;
        lines++;
    }
    assert_true(lines >= 3 && (double)lines <= took * 10 + 1);
    assert_true(last == 1400000000 && total == 1400000000);
    fclose(file);
}

/* Quotes and backslashes of a name do not end the text; a reader that is gone is no matter. */
static void names_are_quoted(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    struct tp_options o = {.progress_fd = (unsigned)fds[1]};
    struct tp_progress *p = tp_progress_start(&o, "verify", 0);
    tp_progress_add(p, 7, "a\"b\\c\n");
    tp_progress_end(p);
    char text[200] = "";
    assert_true(read(fds[0], text, sizeof text - 1) > 0);
    assert_string_equal(text, "{\"command\":\"verify\",\"done\":7,\"total\":0,"
                              "\"item\":\"a\\\"b\\\\c\\n\"}\n");
    close(fds[0]);
    p = tp_progress_start(&o, "verify", 0);
    tp_progress_end(p);
    close(fds[1]);
}

static void null_is_accepted(void **state)
{
    (void)state;
    tp_progress_add(NULL, 5, "x");
    tp_progress_end(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawn_on_a_terminal),
        cmocka_unit_test(percent_rises),
        cmocka_unit_test(silent_elsewhere),
        cmocka_unit_test(objects_on_a_descriptor),
        cmocka_unit_test(names_are_quoted),
        cmocka_unit_test(null_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
