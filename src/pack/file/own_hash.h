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

/* The same of a text that passes by in pieces. {0} is a valid closed object. */
struct tp_own_hash {
    void *state;
    bool begun;
    uint64_t at;               /* where the digits stand; 0: nowhere */
    char digits[TP_HASH_TEXT]; /* those that stood there */
};
enum tp_code tp_own_hash_begin(struct tp_own_hash *own, struct tp_err *err);
/* The next piece. The first one has the digits, if there are any, which become zeros. */
void tp_own_hash_add(struct tp_own_hash *own, char *text, size_t size);
/* After the last piece: the digits that belong there. */
void tp_own_hash_digits(const struct tp_own_hash *own, char digits[TP_HASH_TEXT]);
void tp_own_hash_close(struct tp_own_hash *own); /* legal on {0} and twice */

#endif
