/* A JSON text that holds its own hash: XXH3-128 of it, with these digits as zeros. They stand
 * near the beginning, as the value of "xxh3".
 */
#ifndef TP_PACK_OWN_HASH_H
#define TP_PACK_OWN_HASH_H

#include "pack/file/leafhash.h"

#include <stdbool.h>

#define TP_OWN_KEY "xxh3"
#define TP_OWN_ZEROS "00000000000000000000000000000000"

/* Fills the digits in, in the place of TP_OWN_ZEROS. False, and nothing done, where zeros do
 * not stand where the digits belong. */
bool tp_own_hash_sign(char *text, size_t size);
/* Whether the text has its digits, and is what was signed. They become zeros. */
bool tp_own_hash_right(char *text, size_t size);

#endif
