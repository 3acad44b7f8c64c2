/* Results in bulk: a buffer before stdout for tables of 100,000 lines, where a call
 * of stdio for each cell would cost more than making the cell.
 *
 * Nothing else may print while it holds something. A write that fails is remembered
 * by stdout, where tp_report_finish() finds it.
 */
#ifndef TP_CLI_OUT_H
#define TP_CLI_OUT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tp_out {
    size_t used;
    char data[1 << 16];
};

void tp_out_flush(struct tp_out *out);
void tp_out_bytes(struct tp_out *out, const char *bytes, size_t size);
void tp_out_text(struct tp_out *out, const char *text);
void tp_out_blanks(struct tp_out *out, size_t count);
void tp_out_u64(struct tp_out *out, uint64_t value);
/* As a JSON string, like tp_text_add_json(), whose errors it has. */
enum tp_code tp_out_json(struct tp_out *out, const char *text, struct tp_err *err);

/* Writes the decimal digits and a NUL behind them; returns where the NUL is. */
enum { TP_DIGITS = 21 }; /* of the largest number, NUL included */
char *tp_put_u64(char *at, uint64_t value);

/* Whether all bytes are printable ASCII, from 0x20 to 0x7E. */
bool tp_is_printable(const char *text, size_t size);

#endif
