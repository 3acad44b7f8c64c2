/* Texts with their own hash. Knows nothing of JSON but how a key is written. */
#include "pack/file/own_hash.h"

#include <string.h>

#define MARKER "\"" TP_OWN_KEY "\": \""
enum { WITHIN = 256 };

static char *digits_of(char *text, size_t size)
{
    char *marker = memmem(text, size < WITHIN ? size : WITHIN, MARKER, strlen(MARKER));
    char *digits = marker ? marker + strlen(MARKER) : NULL;
    return digits && (size_t)(digits - text) + TP_HASH_TEXT <= size ? digits : NULL;
}

bool tp_own_hash_sign(char *text, size_t size)
{
    uint8_t hash[TP_HASH_BYTES];
    char digits[TP_HASH_TEXT], *at = digits_of(text, size);
    if (!at || memcmp(at, TP_OWN_ZEROS, TP_HASH_TEXT - 1) != 0)
        return false;
    tp_hash(text, size, hash);
    tp_hash_print(hash, digits);
    memcpy(at, digits, TP_HASH_TEXT - 1);
    return true;
}

bool tp_own_hash_right(char *text, size_t size)
{
    uint8_t stored[TP_HASH_BYTES], actual[TP_HASH_BYTES];
    char *at = digits_of(text, size);
    if (!at || !tp_hash_parse(at, TP_HASH_TEXT - 1, stored))
        return false;
    memcpy(at, TP_OWN_ZEROS, TP_HASH_TEXT - 1);
    tp_hash(text, size, actual);
    return memcmp(stored, actual, TP_HASH_BYTES) == 0;
}
