/* Growing text: append, printf, JSON strings. Invariant: size < capacity, and
 * data[size] is NUL, as soon as anything was added. */
#include "pack/text/text.h"

#include "base/escape.h"
#include "base/num.h"
#include "pack/os/os.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum tp_code reserve(struct tp_text *text, size_t more, struct tp_err *err)
{
    uint64_t need;
    if (more < text->capacity - text->size)
        return TP_OK;
    if (!tp_add_u64(&need, text->size, more) || !tp_add_u64(&need, need, 1))
        return tp_fail(err, TP_E_MEMORY, "out of memory: a text is too long");
    void *data = text->data;
    enum tp_code code = tp_os_grow(&data, &text->capacity, (size_t)need, 1, err);
    text->data = data;
    return code;
}

enum tp_code tp_text_add(struct tp_text *text, const char *data, size_t size, struct tp_err *err)
{
    enum tp_code code = reserve(text, size, err);
    if (code)
        return code;
    if (size)
        memcpy(text->data + text->size, data, size);
    text->size += size;
    text->data[text->size] = '\0';
    return TP_OK;
}

enum tp_code tp_text_add_word(struct tp_text *text, const char *word, struct tp_err *err)
{
    return tp_text_add(text, word, strlen(word), err);
}

enum tp_code tp_text_addf(struct tp_text *text, struct tp_err *err, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    enum tp_code code = length < 0 ? tp_fail(err, TP_E_MEMORY, "out of memory")
                                   : reserve(text, (size_t)length, err);
    if (!code) {
        vsnprintf(text->data + text->size, (size_t)length + 1, fmt, again);
        text->size += (size_t)length;
    }
    va_end(again);
    return code;
}

char *tp_put_u64(char *at, uint64_t value)
{
    char digits[TP_DIGITS], *digit = digits + sizeof digits;
    do
        *--digit = (char)('0' + value % 10);
    while (value /= 10);
    size_t size = (size_t)(digits + sizeof digits - digit);
    memcpy(at, digit, size);
    at[size] = '\0';
    return at + size;
}

enum tp_code tp_text_add_number(struct tp_text *text, const char *before, uint64_t value,
                                struct tp_err *err)
{
    char digits[TP_DIGITS];
    size_t size = (size_t)(tp_put_u64(digits, value) - digits);
    enum tp_code code = tp_text_add_word(text, before, err);
    return code ? code : tp_text_add(text, digits, size, err);
}

/* The letter of a short escape, or 0. */
static char short_escape(char c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *at = strchr(from, c);
    return at ? to[at - from] : '\0';
}

/* Bytes that stand for themselves in a JSON string, as far as ASCII goes. */
static size_t plain_run(const char *string, size_t size)
{
    size_t n = 0;
    while (n < size && (unsigned char)string[n] >= 0x20 && (unsigned char)string[n] < 0x80 &&
           string[n] != '"' && string[n] != '\\')
        n++;
    return n;
}

enum tp_code tp_text_add_json(struct tp_text *text, const char *string, struct tp_err *err)
{
    size_t length = strlen(string);
    enum tp_code code = reserve(text, length + 2, err); /* enough but for escapes */
    if (!code)
        code = tp_text_add(text, "\"", 1, err);
    for (size_t i = 0; i < length && !code;) {
        size_t run = plain_run(string + i, length - i);
        if (run == 0) {
            unsigned char c = (unsigned char)string[i];
            uint32_t point;
            size_t n = tp_escape_decode(string + i, length - i, &point);
            if (n == 0)
                return tp_fail(err, TP_E_INPUT, "a text to be written as JSON is not UTF-8");
            if (n > 1 || c == 0x7f)
                code = tp_text_add(text, string + i, n, err);
            else if (short_escape((char)c))
                code = tp_text_add(text, (char[2]){'\\', short_escape((char)c)}, 2, err);
            else
                code = tp_text_addf(text, err, "\\u%04x", c);
            run = n;
        } else {
            code = tp_text_add(text, string + i, run, err);
        }
        i += run;
    }
    return code ? code : tp_text_add(text, "\"", 1, err);
}

void tp_text_free(struct tp_text *text)
{
    free(text->data);
    *text = (struct tp_text){0};
}
