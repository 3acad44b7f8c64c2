/* Growing text: appended to, printf'ed, and written as JSON strings. Knows nothing of what
 * the text says.
 */
#ifndef TP_PACK_TEXT_H
#define TP_PACK_TEXT_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* A growing buffer of text; {0} is empty. data is NUL-terminated once anything
 * was added; the NUL is not counted in size. */
struct tp_text {
    char *data;
    size_t size, capacity;
};
enum tp_code tp_text_add(struct tp_text *text, const char *data, size_t size, struct tp_err *err);
enum tp_code tp_text_addf(struct tp_text *text, struct tp_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
enum tp_code tp_text_add_word(struct tp_text *text, const char *word, struct tp_err *err);
/* Appends `before` and the number in decimal digits. */
enum tp_code tp_text_add_number(struct tp_text *text, const char *before, uint64_t value,
                                struct tp_err *err);
/* Appends `string` as JSON, quotes included, escaped as the safetensors library
 * does it: \" \\ \b \f \n \r \t, \u00xx for other control bytes, all else as it
 * is. TP_E_INPUT if `string` is not UTF-8. */
enum tp_code tp_text_add_json(struct tp_text *text, const char *string, struct tp_err *err);
void tp_text_free(struct tp_text *text); /* legal on {0} and twice */

/* Writes the decimal digits and a NUL behind them; returns where the NUL is. For bulk,
 * where printf would be most of the time. */
enum { TP_DIGITS = 21 }; /* of the largest number, NUL included */
char *tp_put_u64(char *at, uint64_t value);

#endif
