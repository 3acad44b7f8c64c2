/* Escapes text from untrusted input: it does no harm on a terminal, and stays on its line. */
#ifndef TP_BASE_ESCAPE_H
#define TP_BASE_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies text with what may drive or deceive a terminal escaped: control characters (C0, DEL,
 * C1), those that reorder text or are not seen, line and paragraph separators, code points that
 * are no characters, and bytes that are no UTF-8. As \xNN, \uNNNN and \UNNNNNNNN; `json`: as JSON
 * has it, and what stands below 0x20 stays, as it is the layout there. `to` has room for TP_ESCAPED
 * times the size. Returns the end. */
enum { TP_ESCAPED = 6 }; /* DEL in JSON: \u007F */
char *tp_escape(char *to, const char *text, size_t size, bool json);

/* In a text of JSON, which has to be UTF-8, a byte that is none stands as one of these, which no
 * version of Unicode has given to a character. */
enum { TP_ESCAPED_BYTES = 0xE0F80, TP_ESCAPED_END = 0xE0FFF };

/* Bytes of the character of UTF-8 that begins here, or 0 where none does. */
size_t tp_escape_decode(const char *text, size_t size, uint32_t *point);

#endif
