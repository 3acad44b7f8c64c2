/* "outputs" of a format file; inside of reading it. */
#ifndef TP_PACK_FORMAT_OUTPUTS_H
#define TP_PACK_FORMAT_OUTPUTS_H

#include "pack/format/format.h"

/* Fills format->out and what the operation has of them, with the names of "let" replaced. Groups
 * are as long as format->group says. */
enum tp_code tp_format_outputs(const json_t *json, struct tp_format *format, struct tp_err *err);

/* "word_bits" of an output: 32 different numbers below 32, or 8 below 8 for each byte; or NULL. */
enum tp_code tp_format_word_bits(const json_t *list, struct tp_op_out *op, struct tp_err *err);

#endif
