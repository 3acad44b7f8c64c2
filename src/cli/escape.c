/* Text of strangers as it is printed, and as it stands in JSON. What is escaped is
 * base/escape.c's.
 */
#include "cli/escape.h"

#include "pack/os/os.h"
#include "pack/text/json_tree.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool tp_escape_parts(const char *text, size_t size, bool json, tp_escaped_part *put, FILE *out)
{
    enum { PART = 1024 };
    char escaped[TP_ESCAPED * PART];
    while (size) {
        size_t part = size < PART ? size : PART;
        for (int back = 0; part < size && back < 3 && (text[part] & 0xC0) == 0x80; back++)
            part--;
        if (!put(escaped, (size_t)(tp_escape(escaped, text, part, json) - escaped), out))
            return false;
        text += part;
        size -= part;
    }
    return true;
}

static bool put_part(const char *text, size_t size, FILE *out)
{
    return fwrite(text, 1, size, out) == size;
}

void tp_print_text(FILE *out, const char *text)
{
    tp_escape_parts(text, strlen(text), false, put_part, out);
}

bool tp_print_json(FILE *out, const char *text, size_t size)
{
    return tp_escape_parts(text, size, true, put_part, out);
}

/* Bytes of the character that begins here and stands in JSON as it is, or 0: a byte that is no
 * UTF-8, or the first of a character that would be taken for one that stands for a byte. */
static size_t decode_plain(const char *text, size_t size)
{
    uint32_t point;
    size_t length = tp_escape_decode(text, size, &point);
    return length && point >= TP_ESCAPED_BYTES && point <= TP_ESCAPED_END ? 0 : length;
}

static bool is_plain(const char *text)
{
    size_t left = strlen(text), length = 1;
    for (; left && length; left -= length, text += length)
        length = decode_plain(text, left);
    return length != 0;
}

/* The character that stands for a byte >= 0x80. */
static char *put_byte(char *to, unsigned char byte)
{
    uint32_t point = TP_ESCAPED_BYTES + (byte & 0x7Fu);
    *to++ = (char)(0xF0 | point >> 18);
    *to++ = (char)(0x80 | (point >> 12 & 0x3F));
    *to++ = (char)(0x80 | (point >> 6 & 0x3F));
    *to++ = (char)(0x80 | (point & 0x3F));
    return to;
}

json_t *tp_json_text(const char *text)
{
    enum { LONGEST = 4 }; /* bytes that one becomes */
    size_t left = strlen(text);
    char *copy = tp_os.malloc(LONGEST * left + 1), *to = copy;
    while (copy && left) {
        size_t length = decode_plain(text, left);
        if (length)
            to = (char *)memcpy(to, text, length) + length;
        else
            to = put_byte(to, (unsigned char)*text);
        length += !length;
        text += length;
        left -= length;
    }
    json_t *json = copy ? json_stringn(copy, (size_t)(to - copy)) : NULL;
    if (!json)
        tp_json_no_memory();
    free(copy);
    return json;
}

enum tp_code tp_add_json_text(struct tp_text *to, const char *text, struct tp_err *err)
{
    if (is_plain(text))
        return tp_text_add_json(to, text, err);
    json_t *value = tp_json_text(text);
    char *json = value ? tp_json_dump(value, JSON_ENCODE_ANY) : NULL;
    enum tp_code code = json ? tp_text_add_word(to, json, err)
                             : tp_fail(err, TP_E_MEMORY, "out of memory");
    free(json);
    json_decref(value);
    return code;
}
