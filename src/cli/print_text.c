/* Prints text from untrusted input. base/escape.c decides what is escaped.
 */
#include "cli/print_text.h"

#include <string.h>

bool tp_escape_parts(const char *text, size_t size, bool json, tp_escaped_part *put, void *to)
{
    enum { PART = 1024 };
    char escaped[TP_ESCAPED * PART];
    while (size) {
        size_t part = size < PART ? size : PART;
        for (int back = 0; part < size && back < 3 && (text[part] & 0xC0) == 0x80; back++)
            part--;
        if (!put(escaped, (size_t)(tp_escape(escaped, text, part, json) - escaped), to))
            return false;
        text += part;
        size -= part;
    }
    return true;
}

static bool put_part(const char *text, size_t size, void *out)
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
