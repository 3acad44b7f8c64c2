/* Such numbers into strings, before jansson reads them, and back.
 *
 * Invariant: the bytes of all else stay as they are. The text is an object: behind each number
 * stands something else, where strtod() stops, which knows no size.
 */
#include "pack/text/json_numbers.h"

#include "pack/text/json_memory.h"
#include "pack/text/json_scan.h"
#include "pack/text/text.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MARK "\"\\u0000" /* as text: U+0000 at the beginning of a string */

static size_t number_length(const char *text, size_t at, size_t size)
{
    size_t end = at;
    while (end < size && text[end] && !strchr(",]} \t\r\n", text[end]))
        end++;
    return end - at;
}

/* Whether jansson has a type for the number. */
static bool has_type(const char *number, size_t length)
{
    if (memchr(number, 'N', length) || memchr(number, 'I', length))
        return false;
    bool real = memchr(number, '.', length) || memchr(number, 'e', length) ||
                memchr(number, 'E', length);
    if (real)
        return isfinite(strtod(number, NULL));
    errno = 0;
    (void)strtoll(number, NULL, 10);
    return errno != ERANGE;
}

static enum tp_code quote(struct tp_text *to, const char *number, size_t length,
                          struct tp_err *err)
{
    enum tp_code code = tp_text_add_word(to, MARK, err);
    if (!code)
        code = tp_text_add(to, number, length, err);
    return code ? code : tp_text_add_word(to, "\"", err);
}

static enum tp_code quote_all(const char *text, size_t size, struct tp_text *to,
                              struct tp_err *err)
{
    size_t done = 0, length;
    enum tp_code code = TP_OK;
    for (size_t at = 0; at < size && code == TP_OK; at += length) {
        length = 1;
        if (text[at] == '"') {
            length = tp_json_string_length(text + at, size - at);
        } else if (text[at] && strchr("-0123456789NI", text[at])) {
            length = number_length(text, at, size);
            if (has_type(text + at, length))
                continue;
            code = tp_text_add(to, text + done, at - done, err);
            if (!code)
                code = quote(to, text + at, length, err);
            done = at + length;
        }
    }
    return code ? code : tp_text_add(to, text + done, size - done, err);
}

enum tp_code tp_json_load_python(const char *text, size_t size, json_t **value,
                                 struct tp_err *err)
{
    struct tp_text quoted = {0};
    json_error_t where;
    uint64_t mark = tp_json_mark();
    *value = NULL;
    enum tp_code code = quote_all(text, size, &quoted, err);
    if (code == TP_OK) {
        *value = tp_json_load(quoted.data, quoted.size, JSON_ALLOW_NUL, &where);
        code = tp_json_check(mark, TP_OK, err);
    }
    tp_text_free(&quoted);
    if (code == TP_OK && !*value)
        code = tp_fail(err, TP_E_INPUT, "%s", where.text);
    return code;
}

/* Every other quote in a string has a backslash before it, and so has every other backslash. */
static void unquote_all(char *text)
{
    char *to = text, *from = text;
    for (char *at; (at = strstr(from, MARK)); from += *from == '"') {
        memmove(to, from, (size_t)(at - from));
        to += at - from;
        from = at + strlen(MARK);
        size_t length = strcspn(from, "\"");
        memmove(to, from, length);
        to += length;
        from += length;
    }
    memmove(to, from, strlen(from) + 1);
}

char *tp_json_dump_python(const json_t *value, size_t flags)
{
    char *text = json_dumps(value, flags);
    if (text)
        unquote_all(text);
    return text;
}
