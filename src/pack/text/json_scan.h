/* A strict JSON scanner for the texts that are too large for a JSON tree: safetensors
 * headers, shard indexes and manifests. The caller walks the text; nothing is
 * kept but decoded strings. Subset of RFC 8259: text is UTF-8, escapes have to
 * form whole characters, U+0000 is refused (strings are C strings).
 *
 * Every function returns the code of the first failure, recorded in json->err
 * with the file offset of the offending byte.
 */
#ifndef TP_PACK_JSON_SCAN_H
#define TP_PACK_JSON_SCAN_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tp_json {
    const char *text;
    uint64_t size, pos;
    uint64_t base;    /* offset of text[0] in its file */
    const char *noun; /* what the text is, for messages: "header", "index", "manifest" */
    char *arena;      /* `size` bytes for decoded strings: never too few, as an
                         encoded string is longer than the decoded one and NUL; may
                         be the text itself if it begins at least 8 bytes before it */
    uint64_t used;    /* of the arena; put it back to drop the latest strings */
    bool python;      /* what is skipped is a member's value in a text of Python's: NaN, Infinity
                         and -Infinity are numbers, and values are nested up to 64 deep */
    struct tp_err *err;
};

/* A decoded string: NUL-terminated, in the arena. */
struct tp_json_string {
    const char *data;
    size_t length;
    uint64_t pos; /* of its opening quote */
};

/* TP_E_INPUT at text position `pos`. */
enum tp_code tp_json_fail(struct tp_json *json, uint64_t pos, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

int tp_json_skip_space(struct tp_json *json); /* for tp_json_peek() */

/* Skips white space; the byte there, or -1 at the end of the text. Mostly there is
 * none to skip, and this is called five times for each number and string. */
static inline int tp_json_peek(struct tp_json *json)
{
    if (json->pos < json->size && (unsigned char)json->text[json->pos] > ' ')
        return (unsigned char)json->text[json->pos];
    return tp_json_skip_space(json);
}

enum tp_code tp_json_fail_expect(struct tp_json *json, char byte); /* for tp_json_expect() */

/* Takes one punctuation byte, white space before it skipped. */
static inline enum tp_code tp_json_expect(struct tp_json *json, char byte)
{
    if (tp_json_peek(json) != byte)
        return tp_json_fail_expect(json, byte);
    json->pos++;
    return TP_OK;
}

/* Steps through an object or array whose opening bracket was taken: *more is
 * false once the closing one is taken, else a key or value follows. *count is 0
 * before the first call and the number of items begun afterwards. */
enum tp_code tp_json_next(struct tp_json *json, char closing, uint64_t *count, bool *more);

enum tp_code tp_json_string(struct tp_json *json, struct tp_json_string *string);
/* A string and the colon behind it. */
enum tp_code tp_json_key(struct tp_json *json, struct tp_json_string *key);
/* Digits only: no sign, fraction, exponent or leading zero; must fit 64 bits. */
enum tp_code tp_json_u64(struct tp_json *json, uint64_t *value);
/* Bytes of the string token that begins there, quotes included; the text was checked. */
size_t tp_json_string_length(const char *string, size_t size);

/* Any one value, checked and dropped; nested 32 deep at most, or see `python`. */
enum tp_code tp_json_skip(struct tp_json *json);

/* Whether a text is UTF-8 up to its NUL, and so may stand in JSON. */
bool tp_is_utf8(const char *text);

#endif
