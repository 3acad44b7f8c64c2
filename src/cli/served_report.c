/* What engines make of a plan, printed; see served_report.h. */
#include "cli/served_report.h"

#include "cli/report.h"
#include "cli/shell_word.h"

#include <stdio.h>
#include <string.h>

static enum tp_code add_reader(const struct tp_served *served, const struct tp_reader *reader,
                               struct tp_text *text, struct tp_err *err)
{
    char gpus[200];
    tp_sms_text(reader->gpus, served->sm, gpus, sizeof gpus);
    return tp_text_addf(text, err, "%s (%s) on %s%s", reader->engine->title,
                        reader->engine->version, gpus,
                        reader->documents ? ", by its documents" : "");
}

/* "read by ...": the servers and libraries that do; nothing if there is none. */
static enum tp_code add_readers(const struct tp_served *served, struct tp_text *text,
                                struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < served->count && code == TP_OK; i++) {
        const struct tp_reader *reader = &served->reader[i];
        if (!reader->gpus || reader->engine->kind == TP_ENGINE_KERNELS)
            continue;
        code = tp_text_add_word(text, text->size ? "; " : "read by ", err);
        if (code == TP_OK)
            code = add_reader(served, reader, text, err);
    }
    return code;
}

/* One line: a result, or a message before the work. */
static void print_line(const char *line, bool message)
{
    if (message) {
        tp_say("%s", line);
    } else {
        tp_print_text(stdout, line);
        putchar('\n');
    }
}

/* What callers do, a line each. */
static enum tp_code print_callers(const struct tp_served *served, bool message, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < served->count && code == TP_OK; i++) {
        const struct tp_reader *reader = &served->reader[i];
        struct tp_text line = {0};
        if (!reader->gpus || reader->engine->kind != TP_ENGINE_KERNELS)
            continue;
        if ((code = tp_text_add_word(&line, "for callers of ", err)) == TP_OK &&
            (code = add_reader(served, reader, &line, err)) == TP_OK &&
            (code = tp_text_addf(&line, err, ": %s", reader->row[0]->how)) == TP_OK)
            print_line(line.data, message);
        tp_text_free(&line);
    }
    return code;
}

int tp_serving_print(const struct tp_serving *serving, bool message)
{
    const struct tp_served *served = &serving->served;
    struct tp_text readers = {0}, why = {0};
    struct tp_err err = {0};
    if (!served->written || (message && served->why))
        return TP_OK;
    enum tp_code code =
        served->server ? TP_OK : tp_served_why(served, &(struct tp_wish){0}, &why, &err);
    if (code == TP_OK && !served->why)
        code = add_readers(served, &readers, &err);
    if (code == TP_OK && why.size)
        print_line(why.data, message);
    if (code == TP_OK && readers.size)
        print_line(readers.data, message);
    if (code == TP_OK && !served->server)
        code = print_callers(served, message, &err);
    tp_text_free(&why);
    tp_text_free(&readers);
    return code ? tp_report_error(&err) : TP_OK;
}

void tp_serving_warn(const struct tp_serving *serving)
{
    const struct tp_reader *verdict = tp_served_refusal(&serving->served, &(struct tp_wish){0});
    for (size_t i = 0; i < serving->served.count; i++) {
        const struct tp_reader *reader = &serving->served.reader[i];
        if (reader->warns && reader != verdict)
            tp_warn("%s (%s): %s", reader->engine->title, reader->engine->version, reader->warns);
    }
}

static void put_reader(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_served *served = of;
    const struct tp_reader *reader = &served->reader[i];
    char sm[16];
    tp_begin(w, NULL, '{');
    tp_write(w, tp_str("engine", reader->engine->name), tp_str("version", reader->engine->version),
             tp_str("kind", tp_engine_kind_name(reader->engine->kind)),
             tp_str("basis", reader->documents ? "documents" : "run"));
    tp_begin(w, "gpus", '[');
    for (unsigned bit = 0; bit <= TP_SM_OTHER; bit++) {
        unsigned is = bit == TP_SM_OTHER ? served->sm : tp_sm_at(bit);
        snprintf(sm, sizeof sm, "sm%u", is);
        if (reader->gpus >> bit & 1 && is)
            tp_write(w, tp_str(NULL, sm));
    }
    tp_end(w, ']');
    tp_write(w, tp_if(!reader->gpus, tp_str("weight", reader->name.data)),
             tp_if(!reader->gpus, tp_str("why", reader->why.data + strspn(reader->why.data ?
                                                        reader->why.data : "", ": "))));
    tp_end(w, '}');
}

void tp_serving_put(struct tp_writer *w, const struct tp_serving *serving)
{
    const struct tp_served *served = &serving->served;
    const char *word[TP_MAX_COMMAND];
    char number[12];
    struct tp_text why = {0};
    struct tp_err err = {0};
    if (!served->written)
        return;
    if (served->server) {
        size_t words = tp_served_command(served->server, serving->output, &serving->wish,
                                         number, word);
        tp_begin(w, "serve", '{');
        tp_write(w, tp_str("engine", served->server->engine->name));
        tp_begin(w, "command", '[');
        for (size_t i = 0; i < words; i++)
            tp_write(w, tp_str(NULL, word[i]));
        tp_end(w, ']');
        tp_write(w, tp_str("install", served->server->engine->install));
        tp_end(w, '}');
    } else if (tp_served_why(served, &(struct tp_wish){0}, &why, &err) == TP_OK) {
        tp_write(w, tp_str("unserved", why.data));
    }
    tp_text_free(&why);
    tp_write(w, tp_list("readers", served->count, put_reader, served));
}

int tp_serving_print_command(const struct tp_serving *serving)
{
    const struct tp_reader *server = serving->served.server;
    const char *word[TP_MAX_COMMAND];
    char number[12];
    struct tp_text line = {0};
    struct tp_err err = {0};
    if (!server)
        return TP_OK;
    size_t words = tp_served_command(server, serving->output, &serving->wish, number, word);
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < words && code == TP_OK; i++) {
        code = i ? tp_text_add(&line, " ", 1, &err) : TP_OK;
        if (code == TP_OK)
            code = word[i] == serving->output ? tp_add_shell_word(&line, word[i], &err)
                                              : tp_text_add_word(&line, word[i], &err);
    }
    if (code == TP_OK) {
        printf("serve it: ");
        tp_print_text(stdout, line.data);
        putchar('\n');
        if (server->engine->install)
            printf("it needs: %s\n", server->engine->install);
    }
    tp_text_free(&line);
    return code ? tp_report_error(&err) : TP_OK;
}
