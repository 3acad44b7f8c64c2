/* Messages and JSON. Decides once, from the options and the terminal, about colour and
 * quiet; commands only say what is to be said.
 * Invariant: stdout carries results only, and control characters never pass. */
#include "cli/report.h"

#include "cli/escape.h"
#include "cli/human.h"
#include "cli/progress.h"
#include "pack/text/json_memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    bool json, quiet, verbose;
    bool color_out, color_err;
    uint64_t mark; /* a result lacks something if memory for JSON has failed since */
} mode;

static bool wants_color(const char *when, int fd)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    if (when && !strcmp(when, "always"))
        return true;
    if ((when && !strcmp(when, "never")) || (none && *none))
        return false;
    return isatty(fd) && term && strcmp(term, "dumb") != 0;
}

void tp_report_setup(const struct tp_options *o)
{
    mode.mark = tp_json_mark();
    mode.json = o->json;
    mode.quiet = o->quiet;
    mode.verbose = o->verbose;
    mode.color_out = wants_color(o->color, STDOUT_FILENO);
    mode.color_err = wants_color(o->color, STDERR_FILENO);
}

static const char *sequence(bool on, const char *style)
{
    static const struct {
        const char *style, *text;
    } known[] = {{"0", "\033[0m"},   {"1", "\033[1m"},   {"2", "\033[2m"},
                 {"31", "\033[31m"}, {"32", "\033[32m"}, {"33", "\033[33m"},
                 {"36", "\033[36m"}};
    for (size_t i = 0; on && i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i].style, style))
            return known[i].text;
    return "";
}

const char *tp_style(const char *style)
{
    return sequence(mode.color_out, style);
}

/* ---------------------------------------------------------------- messages -- */

static void say_v(const char *label, const char *style, const char *fmt, va_list args)
{
    char text[2048];
    vsnprintf(text, sizeof text, fmt, args);
    tp_progress_pause();
    fprintf(stderr, "tilepack: %s%s%s", sequence(mode.color_err, style), label,
            sequence(mode.color_err, "0"));
    tp_print_text(stderr, text);
    fputc('\n', stderr);
    tp_progress_resume();
}

void tp_warn(const char *fmt, ...)
{
    va_list args;
    if (mode.quiet)
        return;
    va_start(args, fmt);
    say_v("warning: ", "33", fmt, args);
    va_end(args);
}

void tp_warn_unlocked(const char *output)
{
    tp_warn("%s: its file system gives no locks: nothing keeps a second tilepack from writing it "
            "at the same time", output);
}

void tp_note(const char *fmt, ...)
{
    va_list args;
    if (!mode.verbose)
        return;
    va_start(args, fmt);
    say_v("", "0", fmt, args);
    va_end(args);
}

void tp_say(const char *fmt, ...)
{
    va_list args;
    if (mode.quiet)
        return;
    va_start(args, fmt);
    say_v("", "0", fmt, args);
    va_end(args);
}

static const char *code_name(enum tp_code code)
{
    switch (code) {
    case TP_OK: return "ok";
    case TP_E_DIFF: return "difference";
    case TP_E_USAGE: return "usage";
    case TP_E_INPUT: return "input";
    case TP_E_UNSUPPORTED: return "unsupported";
    case TP_E_IO: return "io";
    case TP_E_MEMORY: return "memory";
    case TP_E_EXISTS: return "exists";
    case TP_E_LOCKED: return "locked";
    case TP_E_INTERRUPT: return "interrupted";
    case TP_E_TERMINATE: return "terminated";
    }
    return "unknown";
}

/* The text is made as a whole before its first byte is printed: where memory ends, nothing is,
 * rather than half an object. TP_OK also when the text could not be written: tp_report_finish()
 * finds that. */
static enum tp_code print_object(json_t *object, uint64_t mark)
{
    json_t *all = json_object();
    bool ok = all && object && !json_object_set_new(all, "version", json_integer(1)) &&
              !json_object_update(all, object);
    char *text = ok && !tp_json_check(mark, TP_OK, NULL) ? json_dumps(all, JSON_INDENT(2)) : NULL;
    enum tp_code code = tp_json_check(mark, text ? TP_OK : TP_E_MEMORY, NULL);
    if (text && code == TP_OK && tp_print_json(stdout, text, strlen(text)))
        fputc('\n', stdout);
    free(text);
    json_decref(object);
    json_decref(all);
    return code;
}

/* In place of an object for which there is no memory one that needs none: whoever prints a list of
 * objects has one in each place. */
static int no_memory(void)
{
    static const char what[] = "no memory for the JSON result";
    struct tp_err err = {0};
    mode.json = false;
    printf("{\n  \"version\": 1,\n  \"error\": {\n    \"code\": %d,\n    \"kind\": \"%s\",\n"
           "    \"message\": \"%s\"\n  }\n}\n", TP_E_MEMORY, code_name(TP_E_MEMORY), what);
    tp_fail(&err, TP_E_MEMORY, "%s", what);
    return tp_report_error(&err);
}

/* Returns the exit status: the error's own, or that of memory. */
static int error_json(const struct tp_err *err)
{
    uint64_t mark = tp_json_mark();
    json_t *error = json_object(), *object = json_object();
    json_object_set_new(error, "code", json_integer(err->code));
    json_object_set_new(error, "kind", json_string(code_name(err->code)));
    if (err->reason)
        json_object_set_new(error, "reason", json_string(err->reason));
    json_object_set_new(error, "message", tp_json_text(err->what));
    if (err->path[0])
        json_object_set_new(error, "path", tp_json_text(err->path));
    if (err->tensor[0])
        json_object_set_new(error, "tensor", tp_json_text(err->tensor));
    if (err->offset)
        json_object_set_new(error, "offset", json_integer((json_int_t)(err->offset - 1)));
    if (err->sys)
        json_object_set_new(error, "errno", json_integer(err->sys));
    if (err->hint[0])
        json_object_set_new(error, "hint", tp_json_text(err->hint));
    json_object_set_new(object, "error", error);
    return print_object(object, mark) == TP_OK ? (int)err->code : no_memory();
}

static void print_hint(const struct tp_err *err)
{
    if (!err->hint[0])
        return;
    fputs("  hint: ", stderr);
    tp_print_text(stderr, err->hint);
    fputc('\n', stderr);
}

int tp_report_error(const struct tp_err *err)
{
    tp_progress_pause();
    fprintf(stderr, "tilepack: %serror:%s ", sequence(mode.color_err, "31"),
            sequence(mode.color_err, "0"));
    if (err->path[0]) {
        tp_print_text(stderr, err->path);
        fputs(": ", stderr);
    }
    if (err->tensor[0]) {
        fputs("tensor '", stderr);
        tp_print_text(stderr, err->tensor);
        fputs("': ", stderr);
    }
    tp_print_text(stderr, err->what);
    if (err->offset)
        fprintf(stderr, " (at byte %llu)", (unsigned long long)(err->offset - 1));
    fputc('\n', stderr);
    print_hint(err);
    tp_progress_resume();
    return mode.json ? error_json(err) : (int)err->code;
}

int tp_report_usage(const char *command, const struct tp_err *err)
{
    fprintf(stderr, "tilepack%s%s: ", command ? " " : "", command ? command : "");
    tp_print_text(stderr, err->what);
    fputc('\n', stderr);
    print_hint(err);
    return mode.json ? error_json(err) : (int)err->code;
}

bool tp_report_there(const char *output, const char *what)
{
    if (what && !mode.quiet) {
        tp_print_text(stdout, output);
        printf(" %s\n", what);
    }
    return !what && !mode.quiet;
}

int tp_report_finish(int status)
{
    struct tp_err err = {0};
    bool failed = ferror(stdout) != 0;
    if (!fflush(stdout) && !failed)
        return status;
    tp_fail_sys(&err, errno, "standard output cannot be written");
    tp_err_hint(&err, "look at what it is redirected to: a full disk, or a program that ended");
    mode.json = false; /* there is nowhere to put it */
    int code = tp_report_error(&err);
    return status == TP_OK || status == TP_E_DIFF ? code : status;
}

/* -------------------------------------------------------------------- JSON -- */

int tp_json_print(json_t *object)
{
    return print_object(object, mode.mark) == TP_OK ? TP_OK : no_memory();
}
