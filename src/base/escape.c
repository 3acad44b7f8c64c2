/* Escaping. Decides by code point; what the shapes of letters may deceive with is not its
 * business.
 */
#include "base/escape.h"

#include <string.h>

/* Ranges of code points that pass nowhere: Unicode's controls, its bidirectional formatting, and
 * all other characters without a shape (Default_Ignorable_Code_Point of Unicode 16), of which
 * names could be made that look alike; and those that are no characters, which XML does not
 * take. */
static const struct {
    uint32_t first, last;
} unsafe[] = {
    {0x00, 0x1F},     {0x7F, 0x9F},     {0xAD, 0xAD},       {0x34F, 0x34F},
    {0x61C, 0x61C},   {0x115F, 0x1160}, {0x17B4, 0x17B5},   {0x180B, 0x180F},
    {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},   {0x3164, 0x3164},
    {0xFDD0, 0xFDEF}, {0xFE00, 0xFE0F}, {0xFEFF, 0xFEFF},   {0xFFA0, 0xFFA0},
    {0xFFF0, 0xFFFB}, {0xFFFE, 0xFFFF}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A},
    {0xE0000, 0xE0FFF},
};

static bool is_unsafe(uint32_t point)
{
    for (size_t i = 0; i < sizeof unsafe / sizeof *unsafe; i++)
        if (point >= unsafe[i].first && point <= unsafe[i].last)
            return true;
    return false;
}

size_t tp_escape_decode(const char *text, size_t size, uint32_t *point)
{
    static const uint32_t min[5] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char c = (unsigned char)*text;
    size_t length = c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : c >= 0xE0 && c < 0xF0 ? 3
                    : c >= 0xF0 && c < 0xF5 ? 4 : 0;
    if (!length || length > size)
        return 0;
    *point = length == 1 ? c : c & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (((unsigned char)text[i] & 0xC0) != 0x80)
            return 0;
        *point = *point << 6 | ((unsigned char)text[i] & 0x3F);
    }
    return *point < min[length] || *point > 0x10FFFF || (*point >= 0xD800 && *point < 0xE000)
               ? 0 : length;
}

static char *put_hex(char *to, char letter, uint32_t value, int digits)
{
    *to++ = '\\';
    *to++ = letter;
    while (digits--)
        *to++ = "0123456789ABCDEF"[value >> 4 * digits & 15];
    return to;
}

static char *put_point(char *to, uint32_t point, bool json)
{
    if (json && point >= TP_ESCAPED_BYTES && point <= TP_ESCAPED_END) /* Python's surrogateescape */
        return put_hex(to, 'u', 0xDC80 | (point - TP_ESCAPED_BYTES), 4);
    if (point < 0x80 && !json)
        return put_hex(to, 'x', point, 2);
    if (point < 0x10000)
        return put_hex(to, 'u', point, 4);
    if (!json)
        return put_hex(to, 'U', point, 8);
    point -= 0x10000; /* JSON knows 16 bits at a time: a pair of surrogates */
    return put_hex(put_hex(to, 'u', 0xD800 | point >> 10, 4), 'u', 0xDC00 | (point & 0x3FF), 4);
}

/* How many bytes need no look at each: letters of ASCII. */
static size_t plain_run(const char *text, size_t size)
{
    size_t run = 0;
    while (run < size && text[run] >= 0x20 && text[run] < 0x7F)
        run++;
    return run;
}

char *tp_escape(char *to, const char *text, size_t size, bool json)
{
    while (size) {
        uint32_t point;
        size_t run = plain_run(text, size);
        memcpy(to, text, run);
        to += run;
        text += run;
        if (!(size -= run))
            break;
        size_t length = tp_escape_decode(text, size, &point);
        if (!length) {
            length = 1;
            to = put_hex(to, 'x', (unsigned char)*text, 2);
        } else if (is_unsafe(point) && !(json && point < 0x20)) {
            to = put_point(to, point, json);
        } else {
            memcpy(to, text, length);
            to += length;
        }
        text += length;
        size -= length;
    }
    return to;
}
