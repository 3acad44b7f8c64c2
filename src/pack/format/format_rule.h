/* What a choice of parameters sets of an operation; inside of reading format files. */
#ifndef TP_PACK_FORMAT_RULE_H
#define TP_PACK_FORMAT_RULE_H

#include "pack/format/format.h"

/* Applies a "set" object to the operation; unknown keys and values are errors. */
enum tp_code tp_format_apply(const json_t *set, struct tp_op *op, struct tp_err *err);

/* The power of two that this float scale is stored times. */
enum tp_code tp_format_factor(const json_t *value, struct tp_op_out *out, struct tp_err *err);

#endif
