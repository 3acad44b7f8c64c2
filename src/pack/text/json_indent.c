/* Indenting JSON as it passes by. Invariant: only spaces, line ends and the case of hexadecimal
 * digits are not those of the compact text. */
#include "pack/text/json_indent.h"

#include <ctype.h>
#include <stdbool.h>

static enum tp_code new_line(struct tp_text *out, unsigned depth, struct tp_err *err)
{
    enum tp_code code = tp_text_add(out, "\n", 1, err);
    while (depth-- && !code)
        code = tp_text_add(out, " ", 1, err);
    return code;
}

/* The string that begins at *at, which moves behind it. */
static enum tp_code add_string(const char **at, struct tp_text *out, struct tp_err *err)
{
    const char *begin = *at, *end = begin + 1;
    while (*end != '"')
        end += *end == '\\' ? 2 : 1;
    *at = end + 1;
    size_t i = out->size;
    enum tp_code code = tp_text_add(out, begin, (size_t)(*at - begin), err);
    for (char *text = out->data; !code && i < out->size; i += text[i] == '\\' ? 2 : 1)
        for (size_t digit = 2; text[i] == '\\' && text[i + 1] == 'u' && digit < 6; digit++)
            text[i + digit] = (char)toupper((unsigned char)text[i + digit]);
    return code;
}

enum tp_code tp_json_indent(const char *compact, unsigned depth, struct tp_text *out,
                            struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (const char *at = compact; *at && !code;) {
        char c = *at;
        if (c == '"') {
            code = add_string(&at, out, err);
            continue;
        }
        bool opens = c == '[' || c == '{', closes = c == ']' || c == '}';
        bool empty = opens && (at[1] == ']' || at[1] == '}');
        if (closes)
            code = new_line(out, --depth, err);
        if (!code)
            code = tp_text_add(out, at, empty ? 2 : 1, err);
        if (!code && c == ':')
            code = tp_text_add(out, " ", 1, err);
        depth += opens && !empty;
        if (!code && ((opens && !empty) || c == ','))
            code = new_line(out, depth, err);
        at += empty ? 2 : 1;
    }
    return code;
}
