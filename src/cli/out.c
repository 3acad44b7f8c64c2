/* The buffer before stdout. Invariant: used <= sizeof data. */
#include "cli/out.h"

#include "pack/text/text.h"

#include <stdio.h>
#include <string.h>

void tp_out_flush(struct tp_out *out)
{
    fwrite(out->data, 1, out->used, stdout);
    out->used = 0;
}

void tp_out_bytes(struct tp_out *out, const char *bytes, size_t size)
{
    if (size > sizeof out->data - out->used) {
        tp_out_flush(out);
        if (size > sizeof out->data) {
            fwrite(bytes, 1, size, stdout);
            return;
        }
    }
    memcpy(out->data + out->used, bytes, size);
    out->used += size;
}

void tp_out_text(struct tp_out *out, const char *text)
{
    tp_out_bytes(out, text, strlen(text));
}

void tp_out_blanks(struct tp_out *out, size_t count)
{
    while (count > sizeof out->data - out->used) {
        size_t part = sizeof out->data - out->used;
        memset(out->data + out->used, ' ', part);
        out->used += part;
        count -= part;
        tp_out_flush(out);
    }
    memset(out->data + out->used, ' ', count);
    out->used += count;
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

void tp_out_u64(struct tp_out *out, uint64_t value)
{
    char digits[TP_DIGITS];
    const char *end = tp_put_u64(digits, value);
    tp_out_bytes(out, digits, (size_t)(end - digits));
}

/* The top bits of the bytes that are not printable, and no others unless there is one:
 * adding 0x60 sets the top bit from 0x20 on, and adding 1 sets that of 0x7F. */
static uint64_t unprintable(const char *text)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t word;
    memcpy(&word, text, sizeof word);
    return (word | (word + ones) | ~(word + ones * 0x60)) & (ones * 0x80);
}

bool tp_is_printable(const char *text, size_t size)
{
    uint64_t bad = 0;
    size_t i = 0;
    for (; i + 8 <= size; i += 8)
        bad |= unprintable(text + i);
    if (size >= 8)
        return !(bad | unprintable(text + size - 8)); /* some bytes again, and the rest */
    for (; i < size; i++)
        bad |= text[i] < 0x20 || text[i] > 0x7e;
    return !bad;
}

enum tp_code tp_out_json(struct tp_out *out, const char *text, struct tp_err *err)
{
    size_t size = strlen(text);
    if (tp_is_printable(text, size) && !memchr(text, '"', size) && !memchr(text, '\\', size)) {
        tp_out_bytes(out, "\"", 1);
        tp_out_bytes(out, text, size);
        tp_out_bytes(out, "\"", 1);
        return TP_OK;
    }
    struct tp_text escaped = {0};
    enum tp_code code = tp_text_add_json(&escaped, text, err);
    if (code == TP_OK)
        tp_out_bytes(out, escaped.data, escaped.size);
    tp_text_free(&escaped);
    return code;
}
