/* The writer of JSON. Names from untrusted input go through tp_add_string() alone. Invariant:
 * the text is laid out as jansson would, whatever version of it is there.
 */
#include "cli/writer.h"

#include "base/escape.h"
#include "base/num.h"
#include "pack/text/json_tree.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- either form ----------------------------------------------------------- */

static void write_list(struct tp_writer *w, const struct tp_member *list)
{
    if (list->kind == TP_MEMBER_LINES)
        w->in_line = w->depth + 2;
    tp_begin(w, list->key, '[');
    for (size_t i = 0; i < list->count; i++)
        list->each(w, i, list->of);
    tp_end(w, ']');
    if (list->kind == TP_MEMBER_LINES)
        w->in_line = SIZE_MAX;
}

void tp_write_all(struct tp_writer *w, const struct tp_member *members)
{
    for (; members->kind != TP_MEMBERS_END; members++)
        if (members->kind == TP_MEMBER_LIST || members->kind == TP_MEMBER_LINES)
            write_list(w, members);
        else if (members->kind != TP_MEMBER_NONE)
            w->member(w, members);
}

void tp_cellf(struct tp_writer *w, const char *key, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tp_write(w, tp_cell(key, text));
}

void tp_begin(struct tp_writer *w, const char *key, char bracket)
{
    w->depth++;
    w->begin(w, key, bracket);
}

void tp_end(struct tp_writer *w, char bracket)
{
    w->end(w, bracket);
    w->depth--;
}

void tp_write_object(struct tp_writer *w, const char *key, const struct tp_member *members)
{
    tp_begin(w, key, '{');
    tp_write_all(w, members);
    tp_end(w, '}');
}

/* ---- JSON: text and numbers ------------------------------------------------ */

/* Bytes of the character that begins here and stands in JSON as it is, or 0: a byte that is no
 * UTF-8, or the first of a character that would be taken for one that stands for a byte. */
static size_t decode_plain(const char *text, size_t size)
{
    uint32_t point;
    size_t length = tp_escape_decode(text, size, &point);
    return length && point >= TP_ESCAPED_BYTES && point <= TP_ESCAPED_END ? 0 : length;
}

/* Bytes that stand in a string of JSON as they are. */
static size_t plain_run(const char *text, size_t size)
{
    size_t run = 0, length = 1;
    while (run < size && length && (unsigned char)text[run] >= 0x20 && text[run] != '"' &&
           text[run] != '\\') {
        length = (unsigned char)text[run] < 0x80 ? 1 : decode_plain(text + run, size - run);
        run += length;
    }
    return run;
}

/* One byte that does not. */
static void add_escaped(struct tp_text *to, unsigned char byte, struct tp_err *err)
{
    static const char from[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *at = strchr(from, byte);
    uint32_t point = TP_ESCAPED_BYTES + (byte & 0x7Fu);
    const char stands[] = {(char)(0xF0 | point >> 18), (char)(0x80 | (point >> 12 & 0x3F)),
                           (char)(0x80 | (point >> 6 & 0x3F)), (char)(0x80 | (point & 0x3F))};
    if (byte >= 0x80)
        tp_text_add(to, stands, sizeof stands, err);
    else if (at)
        tp_text_add(to, (char[]){'\\', letters[at - from]}, 2, err);
    else
        tp_text_addf(to, err, "\\u%04X", byte);
}

enum tp_code tp_add_string(struct tp_text *to, const char *text, struct tp_err *err)
{
    size_t left = strlen(text);
    tp_text_add(to, "\"", 1, err);
    while (left) {
        size_t run = plain_run(text, left);
        tp_text_add(to, text, run, err);
        if (run < left)
            add_escaped(to, (unsigned char)text[run++], err);
        text += run;
        left -= run;
    }
    tp_text_add(to, "\"", 1, err);
    return err->code;
}

/* As many digits as tell it from every other number; 1.0, 1e20, 1e-5. */
static void add_real(struct tp_text *to, double value, struct tp_err *err)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", value);
    char *exponent = strchr(text, 'e');
    if (exponent) {
        char *digits = exponent + 2;
        digits += strspn(digits, "0");
        exponent += exponent[1] == '-' ? 2 : 1;
        memmove(exponent, digits, strlen(digits) + 1);
    } else if (!strchr(text, '.')) {
        strcat(text, ".0");
    }
    tp_text_add_word(to, text, err);
}

/* ---- JSON: the layout ------------------------------------------------------- */

static void add(struct tp_writer *w, const char *word)
{
    tp_text_add_word(&w->text, word, &w->err);
}

static void add_line(struct tp_writer *w, size_t depth)
{
    static const char line[] = "\n                                                ";
    tp_text_add(&w->text, line, tp_min_u64(1 + 2 * depth, sizeof line - 1), &w->err);
}

/* What stands before a member or an element at this depth; `blank`: in one line. */
static void begin_member(struct tp_writer *w, const char *key, size_t depth, const char *blank)
{
    add(w, w->empty ? "" : ",");
    if (!w->compact && depth < w->in_line)
        add_line(w, depth);
    else if (!w->compact && !w->empty)
        add(w, blank);
    w->empty = false;
    if (!key)
        return;
    add(w, "\"");
    add(w, key);
    add(w, w->compact ? "\":" : "\": ");
}

static void json_begin(struct tp_writer *w, const char *key, char bracket)
{
    begin_member(w, key, w->depth - 1, " ");
    tp_text_add(&w->text, &bracket, 1, &w->err);
    w->empty = true;
}

static void json_end(struct tp_writer *w, char bracket)
{
    bool of_lines = w->depth + 1 == w->in_line; /* stands in lines even without any */
    if ((!w->empty || of_lines) && !w->compact && w->depth < w->in_line)
        add_line(w, w->depth - 1);
    tp_text_add(&w->text, &bracket, 1, &w->err);
    w->empty = false;
}

static void add_numbers(struct tp_writer *w, const struct tp_member *member)
{
    add(w, "[");
    w->empty = true;
    for (size_t i = 0; i < member->count; i++) {
        begin_member(w, NULL, w->depth + 1, "");
        tp_text_add_number(&w->text, "", ((const uint64_t *)member->of)[i], &w->err);
    }
    w->depth++;
    json_end(w, ']');
    w->depth--;
}

static void add_json(struct tp_writer *w, const json_t *json)
{
    size_t layout = w->compact ? JSON_COMPACT : JSON_INDENT(2);
    char *text = tp_json_dump(json, JSON_ENCODE_ANY | layout), *rest = text;
    if (!text)
        tp_fail(&w->err, TP_E_MEMORY, "out of memory");
    for (char *line; (line = strsep(&rest, "\n"));) {
        if (line != text)
            add_line(w, w->depth);
        add(w, line);
    }
    free(text);
}

static void json_member(struct tp_writer *w, const struct tp_member *member)
{
    enum tp_member_kind kind = member->kind;
    if (kind == TP_MEMBER_CELL)
        return;
    begin_member(w, member->key, w->depth, " ");
    if (kind == TP_MEMBER_TEXT)
        tp_add_string(&w->text, member->text, &w->err);
    else if (kind == TP_MEMBER_NUM)
        tp_text_add_number(&w->text, "", member->num, &w->err);
    else if (kind == TP_MEMBER_REAL && isfinite(member->real))
        add_real(&w->text, member->real, &w->err);
    else if (kind == TP_MEMBER_BOOL)
        add(w, member->num ? "true" : "false");
    else if (kind == TP_MEMBER_NUMBERS)
        add_numbers(w, member);
    else if (kind == TP_MEMBER_JSON)
        add_json(w, member->json);
    else
        add(w, "null");
}

void tp_writer_open(struct tp_writer *w)
{
    *w = (struct tp_writer){json_begin, json_end, json_member, .depth = 1, .empty = true,
                            .in_line = SIZE_MAX};
    add(w, "{");
}

enum tp_code tp_writer_end(struct tp_writer *w, struct tp_text *text, struct tp_err *err)
{
    tp_end(w, '}');
    *text = w->text;
    tp_err_memory(err, &w->err);
    return w->err.code;
}
