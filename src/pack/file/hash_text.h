/* The text form of a hash: its 16 bytes as 32 lower-case hexadecimal digits. Apart from the sums
 * themselves, so that the plug-in of `prove` is linked with it and not with those. */
#ifndef TP_PACK_HASH_TEXT_H
#define TP_PACK_HASH_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TP_HASH_BYTES = 16, TP_HASH_TEXT = 33 }; /* TEXT counts the closing zero */

/* And back: false unless `text` is exactly that. */
void tp_hash_print(const uint8_t hash[TP_HASH_BYTES], char text[TP_HASH_TEXT]);
bool tp_hash_parse(const char *text, size_t size, uint8_t hash[TP_HASH_BYTES]);

#endif
