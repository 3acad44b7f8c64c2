/* The JSON scanner: one pass, one byte of look-ahead, no tree.
 *
 * Does not check for duplicate keys (the caller knows its keys). Invariant: pos <= size, and
 * `used` grows by what pos does at most, so neither text nor arena is overrun.
 */
#include "pack/text/json_scan.h"

#include "base/escape.h"
#include "base/num.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 32, PYTHON_DEPTH = 63 /* inside of an object */ };

enum tp_code tp_json_fail(struct tp_json *json, uint64_t pos, const char *fmt, ...)
{
    char what[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    enum tp_code code = tp_fail(json->err, TP_E_INPUT, "%s", what);
    tp_err_offset(json->err, json->base + pos);
    return code;
}

/* "expected X, found Y" at the current position. */
static enum tp_code fail_found(struct tp_json *json, const char *expected)
{
    if (json->pos >= json->size)
        return tp_json_fail(json, json->pos, "expected %s, but the %s ends", expected, json->noun);
    unsigned char byte = (unsigned char)json->text[json->pos];
    if (byte == 0xef && json->base + json->pos == 0)
        return tp_json_fail(json, 0, "expected %s, found a byte order mark", expected);
    if (byte < 0x20 || byte > 0x7e)
        return tp_json_fail(json, json->pos, "expected %s, found the byte 0x%02x", expected, byte);
    return tp_json_fail(json, json->pos, "expected %s, found '%c'", expected, byte);
}

int tp_json_skip_space(struct tp_json *json)
{
    for (; json->pos < json->size; json->pos++) {
        unsigned char byte = (unsigned char)json->text[json->pos];
        if (byte != ' ' && byte != '\n' && byte != '\r' && byte != '\t')
            return byte;
    }
    return -1;
}

enum tp_code tp_json_fail_expect(struct tp_json *json, char byte)
{
    char expected[4] = {'\'', byte, '\'', '\0'};
    return fail_found(json, expected);
}

enum tp_code tp_json_next(struct tp_json *json, char closing, uint64_t *count, bool *more)
{
    int byte = tp_json_peek(json);
    *more = byte != closing;
    if (!*more) {
        json->pos++;
        return TP_OK;
    }
    if (*count > 0) {
        if (byte != ',')
            return fail_found(json, closing == '}' ? "',' or '}'" : "',' or ']'");
        json->pos++;
    }
    ++*count;
    return TP_OK;
}

bool tp_is_utf8(const char *text)
{
    size_t size = strlen(text), at = 0, length = 1;
    for (uint32_t point; at < size && length; at += length)
        length = tp_escape_decode(text + at, size - at, &point);
    return at == size;
}

/* Copies the run of bytes that stand for themselves (ASCII from 0x20 on, but not
 * '"' and '\\') and returns its length. Up to 7 bytes behind the run may be
 * copied as well: there is room, as `to` is never nearer to its end than `from`, and
 * where the arena is the text, `to` is 8 bytes or more before `from`.
 *
 * Eight bytes at a time: the borrow trick marks the top bit of each byte that is
 * special, and can be wrong only above the lowest one that it marks. */
static uint64_t copy_plain(char *to, const char *from, uint64_t size)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t n = 0;
    for (; n + 8 <= size; n += 8) {
        uint64_t word;
        memcpy(&word, from + n, 8);
        memcpy(to + n, &word, 8);
        uint64_t quote = word ^ (ones * '"'), slash = word ^ (ones * '\\');
        uint64_t special = word | (word - ones * 0x20) | ((quote - ones) & ~quote) |
                           ((slash - ones) & ~slash);
        special &= ones * 0x80;
        if (!special)
            continue;
        if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
            return n + (uint64_t)__builtin_ctzll(special) / 8;
        break;
    }
    for (; n < size; n++) {
        unsigned char byte = (unsigned char)from[n];
        if (byte < 0x20 || byte >= 0x80 || byte == '"' || byte == '\\')
            break;
        to[n] = from[n];
    }
    return n;
}

/* Four hexadecimal digits at the current position. */
static enum tp_code hex4(struct tp_json *json, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < 4; i++, json->pos++) {
        int byte = json->pos < json->size ? (unsigned char)json->text[json->pos] : -1;
        uint32_t digit;
        if (byte >= '0' && byte <= '9')
            digit = (uint32_t)(byte - '0');
        else if (byte >= 'a' && byte <= 'f')
            digit = (uint32_t)(byte - 'a' + 10);
        else if (byte >= 'A' && byte <= 'F')
            digit = (uint32_t)(byte - 'A' + 10);
        else
            return fail_found(json, "four hexadecimal digits after \\u");
        *value = *value << 4 | digit;
    }
    return TP_OK;
}

static void put_utf8(struct tp_json *json, uint32_t c)
{
    char *to = json->arena + json->used;
    if (c < 0x80) {
        to[0] = (char)c;
        json->used += 1;
    } else if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 0x3f));
        json->used += 2;
    } else if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 0x3f));
        to[2] = (char)(0x80 | (c & 0x3f));
        json->used += 3;
    } else {
        to[0] = (char)(0xf0 | c >> 18);
        to[1] = (char)(0x80 | (c >> 12 & 0x3f));
        to[2] = (char)(0x80 | (c >> 6 & 0x3f));
        to[3] = (char)(0x80 | (c & 0x3f));
        json->used += 4;
    }
}

/* \uXXXX, or two of them that are a surrogate pair; pos is behind the 'u'. */
static enum tp_code unicode_escape(struct tp_json *json)
{
    uint64_t start = json->pos - 2;
    uint32_t c, low;
    enum tp_code code = hex4(json, &c);
    if (code)
        return code;
    if (c == 0)
        return tp_json_fail(json, start, "a string holds U+0000, which is not read here");
    if (c >= 0xdc00 && c <= 0xdfff)
        return tp_json_fail(json, start, "the second half of a surrogate pair comes first");
    if (c >= 0xd800 && c <= 0xdbff) {
        if (json->size - json->pos < 2 || json->text[json->pos] != '\\' ||
            json->text[json->pos + 1] != 'u')
            return tp_json_fail(json, start, "half of a surrogate pair stands alone");
        json->pos += 2;
        code = hex4(json, &low);
        if (code)
            return code;
        if (low < 0xdc00 || low > 0xdfff)
            return tp_json_fail(json, start, "half of a surrogate pair stands alone");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    put_utf8(json, c);
    return TP_OK;
}

/* One escape; pos is at its backslash. */
static enum tp_code escape(struct tp_json *json)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    json->pos++;
    int byte = json->pos < json->size ? (unsigned char)json->text[json->pos] : 0;
    if (byte == '"') { /* nearly all, where a string holds JSON */
        json->arena[json->used++] = '"';
        json->pos++;
        return TP_OK;
    }
    if (byte == 'u') {
        json->pos++;
        return unicode_escape(json);
    }
    const char *at = byte ? strchr(from, byte) : NULL;
    if (!at)
        return fail_found(json, "one of \"\\/bfnrtu after a backslash");
    json->arena[json->used++] = to[at - from];
    json->pos++;
    return TP_OK;
}

enum tp_code tp_json_string(struct tp_json *json, struct tp_json_string *string)
{
    if (tp_json_peek(json) != '"')
        return fail_found(json, "a string");
    uint64_t begin = json->used;
    string->pos = json->pos++;
    for (;;) {
        uint64_t run = copy_plain(json->arena + json->used, json->text + json->pos,
                                  json->size - json->pos);
        json->used += run;
        json->pos += run;
        if (json->pos >= json->size)
            return tp_json_fail(json, string->pos, "the %s ends inside a string", json->noun);
        unsigned char byte = (unsigned char)json->text[json->pos];
        if (byte == '"')
            break;
        enum tp_code code = TP_OK;
        if (byte == '\\') {
            code = escape(json);
        } else if (byte < 0x20) {
            code = tp_json_fail(json, json->pos, "a string holds the control byte 0x%02x", byte);
        } else {
            uint32_t point;
            size_t n = tp_escape_decode(json->text + json->pos, json->size - json->pos, &point);
            memcpy(json->arena + json->used, json->text + json->pos, n);
            json->used += n;
            json->pos += n;
            if (n == 0)
                code = tp_json_fail(json, json->pos, "a string is not UTF-8 at the byte 0x%02x",
                                    byte);
        }
        if (code)
            return code;
    }
    json->pos++;
    string->data = json->arena + begin;
    string->length = (size_t)(json->used - begin);
    json->arena[json->used++] = '\0';
    return TP_OK;
}

enum tp_code tp_json_key(struct tp_json *json, struct tp_json_string *key)
{
    enum tp_code code = tp_json_string(json, key);
    return code ? code : tp_json_expect(json, ':');
}

static bool digit_at(const struct tp_json *json, uint64_t pos)
{
    return pos < json->size && json->text[pos] >= '0' && json->text[pos] <= '9';
}

enum tp_code tp_json_u64(struct tp_json *json, uint64_t *value)
{
    tp_json_peek(json);
    uint64_t start = json->pos;
    if (!digit_at(json, start))
        return fail_found(json, "a whole number");
    if (json->text[start] == '0' && digit_at(json, start + 1))
        return tp_json_fail(json, start, "a number begins with a zero");
    /* No number of 19 digits overflows. */
    uint64_t number = 0, safe = tp_min_u64(json->size, start + 19), pos = start;
    for (; pos < safe && json->text[pos] >= '0' && json->text[pos] <= '9'; pos++)
        number = number * 10 + (uint64_t)(json->text[pos] - '0');
    for (; digit_at(json, pos); pos++)
        if (!tp_mul_u64(&number, number, 10) ||
            !tp_add_u64(&number, number, (uint64_t)(json->text[pos] - '0')))
            return tp_json_fail(json, start, "a number does not fit 64 bits");
    json->pos = pos;
    int byte = json->pos < json->size ? json->text[json->pos] : 0;
    if (byte == '.' || byte == 'e' || byte == 'E')
        return tp_json_fail(json, start, "a number is not a whole number");
    *value = number;
    return TP_OK;
}

static bool skip_digits(struct tp_json *json)
{
    uint64_t start = json->pos;
    while (digit_at(json, json->pos))
        json->pos++;
    return json->pos > start;
}

static bool take(struct tp_json *json, const char *bytes)
{
    if (json->pos >= json->size || !json->text[json->pos] ||
        !strchr(bytes, json->text[json->pos]))
        return false;
    json->pos++;
    return true;
}

static enum tp_code skip_number(struct tp_json *json)
{
    take(json, "-");
    bool zero = take(json, "0");
    if (!zero && !skip_digits(json))
        return fail_found(json, "a value");
    if (take(json, ".") && !skip_digits(json))
        return fail_found(json, "digits behind the decimal point");
    if (take(json, "eE")) {
        take(json, "+-");
        if (!skip_digits(json))
            return fail_found(json, "digits of an exponent");
    }
    return TP_OK;
}

/* One of the words, which end with NULL. */
static bool take_word(struct tp_json *json, const char *const words[])
{
    for (; *words; words++) {
        size_t length = strlen(*words);
        if (json->size - json->pos >= length &&
            memcmp(json->text + json->pos, *words, length) == 0) {
            json->pos += length;
            return true;
        }
    }
    return false;
}

static enum tp_code skip_value(struct tp_json *json, int depth)
{
    static const char *const words[] = {"true", "false", "null", NULL};
    static const char *const numbers[] = {"NaN", "Infinity", "-Infinity", NULL};
    const int max = json->python ? PYTHON_DEPTH : MAX_DEPTH;
    struct tp_json_string string;
    uint64_t before = json->used, count = 0;
    bool more = true;
    enum tp_code code = TP_OK;
    int byte = tp_json_peek(json);
    if (byte == '"') {
        code = tp_json_string(json, &string);
    } else if (byte == '{' || byte == '[') {
        char closing = byte == '{' ? '}' : ']';
        if (depth == max)
            return tp_json_fail(json, json->pos, "values are nested more than %d deep",
                                max + json->python);
        json->pos++;
        while (!code) {
            code = tp_json_next(json, closing, &count, &more);
            if (code || !more)
                break;
            if (byte == '{')
                code = tp_json_key(json, &string);
            json->used = before;
            if (!code)
                code = skip_value(json, depth + 1);
        }
    } else if (take_word(json, words) || (json->python && take_word(json, numbers))) {
        code = TP_OK;
    } else {
        code = skip_number(json);
    }
    json->used = before;
    return code;
}

size_t tp_json_string_length(const char *string, size_t size)
{
    size_t end = 1;
    while (end < size && string[end] != '"')
        end += string[end] == '\\' ? 2 : 1;
    return end + 1;
}

enum tp_code tp_json_skip(struct tp_json *json) { return skip_value(json, 0); }
