/* Growing text: append, printf, JSON strings. Invariant: size < capacity, and
 * data[size] is NUL, as soon as anything was added. */
#include "pack/json_scan.h"
#include "pack/os.h"
#include "pack/safetensors.h"

#include "base/num.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum tp_code reserve(struct tp_text *text, size_t more, struct tp_err *err)
{
    uint64_t need;
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

/* The letter of a short escape, or 0. */
static char short_escape(char c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *at = strchr(from, c);
    return at ? to[at - from] : '\0';
}

enum tp_code tp_text_add_json(struct tp_text *text, const char *string, struct tp_err *err)
{
    size_t length = strlen(string), kept = 0;
    enum tp_code code = tp_text_add(text, "\"", 1, err);
    for (size_t i = 0; i < length && !code;) {
        char c = string[i];
        unsigned n = tp_utf8_length(string + i, length - i);
        if (n == 0)
            return tp_fail(err, TP_E_INPUT, "a text to be written as JSON is not UTF-8");
        if (n > 1 || ((unsigned char)c >= 0x20 && c != '"' && c != '\\')) {
            i += n;
            continue;
        }
        code = tp_text_add(text, string + kept, i - kept, err);
        if (!code && short_escape(c))
            code = tp_text_addf(text, err, "\\%c", short_escape(c));
        else if (!code)
            code = tp_text_addf(text, err, "\\u%04x", (unsigned)(unsigned char)c);
        kept = ++i;
    }
    if (!code)
        code = tp_text_add(text, string + kept, length - kept, err);
    return code ? code : tp_text_add(text, "\"", 1, err);
}

void tp_text_free(struct tp_text *text)
{
    free(text->data);
    *text = (struct tp_text){0};
}
