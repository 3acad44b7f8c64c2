/* The dtype table. Names and sizes are those of the safetensors format. */
#include "base/dtype.h"

#include <string.h>

static const struct {
    char name[8]; /* with NULs to the end, so that names are compared as one word */
    unsigned bits;
} dtypes[TP_DTYPE_COUNT] = {
    [TP_DTYPE_NONE] = {"", 0},        [TP_BOOL] = {"BOOL", 8},
    [TP_F4] = {"F4", 4},              [TP_F6_E2M3] = {"F6_E2M3", 6},
    [TP_F6_E3M2] = {"F6_E3M2", 6},    [TP_U8] = {"U8", 8},
    [TP_I8] = {"I8", 8},              [TP_F8_E5M2] = {"F8_E5M2", 8},
    [TP_F8_E4M3] = {"F8_E4M3", 8},    [TP_F8_E8M0] = {"F8_E8M0", 8},
    [TP_I16] = {"I16", 16},           [TP_U16] = {"U16", 16},
    [TP_F16] = {"F16", 16},           [TP_BF16] = {"BF16", 16},
    [TP_I32] = {"I32", 32},           [TP_U32] = {"U32", 32},
    [TP_F32] = {"F32", 32},           [TP_C64] = {"C64", 64},
    [TP_F64] = {"F64", 64},           [TP_I64] = {"I64", 64},
    [TP_U64] = {"U64", 64},
};

const char *tp_dtype_name(enum tp_dtype dtype)
{
    return dtype < TP_DTYPE_COUNT ? dtypes[dtype].name : "";
}

enum tp_dtype tp_dtype_parse(const char *name, size_t len)
{
    char wanted[sizeof dtypes->name] = "";
    if (len >= sizeof wanted || memchr(name, '\0', len))
        return TP_DTYPE_NONE;
    memcpy(wanted, name, len);
    for (int i = TP_DTYPE_NONE + 1; i < TP_DTYPE_COUNT; i++)
        if (memcmp(dtypes[i].name, wanted, sizeof wanted) == 0)
            return (enum tp_dtype)i;
    return TP_DTYPE_NONE;
}

unsigned tp_dtype_bits(enum tp_dtype dtype)
{
    return dtype < TP_DTYPE_COUNT ? dtypes[dtype].bits : 0;
}

bool tp_dtype_is_float(enum tp_dtype dtype)
{
    return dtype == TP_F32 || dtype == TP_BF16 || dtype == TP_F16;
}

enum tp_dtype tp_dtype_read(enum tp_dtype dtype)
{
    return dtype == TP_F64 ? TP_F32 : tp_dtype_is_float(dtype) ? dtype : TP_DTYPE_NONE;
}
