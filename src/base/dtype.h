/* The element types of safetensors, counted in bits because some are sub-byte. */
#ifndef TP_BASE_DTYPE_H
#define TP_BASE_DTYPE_H

#include "base/c_linkage.h"

#include <stdbool.h>
#include <stddef.h>

TP_C_BEGIN

enum tp_dtype {
    TP_DTYPE_NONE,
    TP_BOOL,
    TP_F4,
    TP_F6_E2M3,
    TP_F6_E3M2,
    TP_U8,
    TP_I8,
    TP_F8_E5M2,
    TP_F8_E4M3,
    TP_F8_E8M0,
    TP_I16,
    TP_U16,
    TP_F16,
    TP_BF16,
    TP_I32,
    TP_U32,
    TP_F32,
    TP_C64,
    TP_F64,
    TP_I64,
    TP_U64,
    TP_DTYPE_COUNT,
};

/* Name as written in a safetensors header ("BF16"), "" for TP_DTYPE_NONE. */
const char *tp_dtype_name(enum tp_dtype dtype);

/* Dtype of a name of `len` bytes, TP_DTYPE_NONE when unknown. */
enum tp_dtype tp_dtype_parse(const char *name, size_t len);

/* Bits of one element; 0 for TP_DTYPE_NONE. */
unsigned tp_dtype_bits(enum tp_dtype dtype);

/* The dtypes that weights are quantized from: F32, BF16, F16. */
bool tp_dtype_is_float(enum tp_dtype dtype);

/* The dtype in which values of a plain tensor are read: its own, F32 for F64, whose numbers are
 * rounded to it; TP_DTYPE_NONE: they are no weights. */
enum tp_dtype tp_dtype_read(enum tp_dtype dtype);

TP_C_END

#endif
