/* Messages and JSON. Decides once, from the options and the terminal, about colour and
 * quiet; commands only say what is to be said.
 * Invariant: stdout carries results only, and control characters never pass. */
#include "cli/report.h"

#include "cli/print_text.h"
#include "cli/progress.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    bool json, quiet, verbose;
    bool color_out, color_err;
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

void tp_message(enum tp_message kind, const char *fmt, ...)
{
    bool warning = kind == TP_WARNING;
    char text[2048];
    va_list args;
    if (kind == TP_NOTE ? !mode.verbose : mode.quiet)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    tp_progress_pause();
    fprintf(stderr, "tilepack: %s%s%s", sequence(mode.color_err, warning ? "33" : "0"),
            warning ? "warning: " : "", sequence(mode.color_err, "0"));
    tp_print_text(stderr, text);
    fputc('\n', stderr);
    tp_progress_resume();
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

/* The text is made as a whole before its first byte is printed: where memory ends, nothing is,
 * rather than half an object. TP_OK also when the text could not be written: tp_report_finish()
 * finds that. */
static enum tp_code print_json(struct tp_writer *w)
{
    struct tp_text text;
    if (tp_writer_end(w, &text, NULL) == TP_OK && tp_print_json(stdout, text.data, text.size))
        fputc('\n', stdout);
    tp_text_free(&text);
    return w->err.code;
}

/* Returns the exit status: the error's own, or that of memory. */
static int error_json(const struct tp_err *err)
{
    struct tp_writer w;
    tp_json_open(&w);
    tp_object(&w, "error", tp_num("code", err->code), tp_str("kind", code_name(err->code)),
              tp_if(err->reason, tp_str("reason", err->reason)), tp_str("message", err->what),
              tp_if(err->path[0], tp_str("path", err->path)),
              tp_if(err->tensor[0], tp_str("tensor", err->tensor)),
              tp_if(err->offset, tp_num("offset", err->offset - 1)),
              tp_if(err->sys, tp_num("errno", (uint64_t)err->sys)),
              tp_if(err->hint[0], tp_str("hint", err->hint)));
    return print_json(&w) ? no_memory() : (int)err->code;
}

static void print_hint(const struct tp_err *err)
{
    if (!err->hint[0])
        return;
    fputs("  hint: ", stderr);
    tp_print_text(stderr, err->hint);
    fputc('\n', stderr);
}

void tp_print_place(FILE *out, const char *path, const char *tensor)
{
    if (path && *path) {
        tp_print_text(out, path);
        fputs(": ", out);
    }
    if (tensor && *tensor) {
        fputs("tensor '", out);
        tp_print_text(out, tensor);
        fputs("': ", out);
    }
}

int tp_report_error(const struct tp_err *err)
{
    tp_progress_pause();
    fprintf(stderr, "tilepack: %serror:%s ", sequence(mode.color_err, "31"),
            sequence(mode.color_err, "0"));
    tp_print_place(stderr, err->path, err->tensor);
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

void tp_json_open(struct tp_writer *w)
{
    tp_writer_open(w);
    tp_write(w, tp_num("version", 1));
}

int tp_json_close(struct tp_writer *w)
{
    return print_json(w) ? tp_report_error(&w->err) : TP_OK;
}

int tp_json_members(const struct tp_member *members)
{
    struct tp_writer w;
    tp_json_open(&w);
    tp_write_all(&w, members);
    return tp_json_close(&w);
}

/* Weights of one format mostly follow each other. */
void tp_say_unknown(const struct tp_weights *weights)
{
    const struct tp_format *said = NULL;
    for (size_t w = 0; w < weights->count; w++) {
        const struct tp_format *format = weights->items[w].form->format;
        if (!format || !format->unknown ||
            (said && strcmp(said->name, format->name) == 0 && said->version == format->version))
            continue;
        tp_say("format '%s', version %d, is not known here: it is read by its descriptor",
               format->name, format->version);
        said = format;
    }
}
