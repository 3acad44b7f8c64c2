/* Hashes as hexadecimal digits. */
#include "pack/file/hash_text.h"

void tp_hash_print(const uint8_t hash[TP_HASH_BYTES], char text[TP_HASH_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < TP_HASH_BYTES; i++) {
        text[2 * i] = digits[hash[i] >> 4];
        text[2 * i + 1] = digits[hash[i] & 15];
    }
    text[2 * TP_HASH_BYTES] = '\0';
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool tp_hash_parse(const char *text, size_t size, uint8_t hash[TP_HASH_BYTES])
{
    if (size != 2 * TP_HASH_BYTES)
        return false;
    for (int i = 0; i < TP_HASH_BYTES; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        hash[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
