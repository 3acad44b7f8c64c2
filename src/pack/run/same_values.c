/* Comparing values in pieces, most of which are equal to the bit; see same_values.h. */
#include "pack/run/same_values.h"

#include "base/num.h"
#include "kernels/op/plane.h"

#include <math.h>
#include <string.h>

static enum tp_code fail_at(const struct tp_box *box, uint64_t i, float value, float made,
                            const char *format, struct tp_err *err)
{
    const uint64_t row = i / box->size.k;
    tp_err_hint(err, "--requantize rounds such values, and prints the error that costs; --exclude "
                     "leaves the weight as it is");
    return tp_fail(err, TP_E_UNSUPPORTED,
                   "%.9g at e=%llu n=%llu k=%llu is no number of %s with the scale of its block, "
                   "which makes %.9g of it", (double)value,
                   (unsigned long long)(box->e + row / box->size.n),
                   (unsigned long long)(box->n + row % box->size.n),
                   (unsigned long long)(box->k + i % box->size.k), format, (double)made);
}

enum tp_code tp_same_values(enum tp_dtype dtype, const void *source, const void *made,
                            const struct tp_box *box, const char *format, struct tp_err *err)
{
    enum { PIECE = 256 };
    const uint64_t count = box->size.e * box->size.n * box->size.k;
    const unsigned width = tp_dtype_bits(dtype) / 8;
    const uint8_t *a = source, *b = made;
    for (uint64_t begin = 0; begin < count; begin += PIECE) {
        uint64_t end = tp_min_u64(begin + PIECE, count);
        if (memcmp(a + begin * width, b + begin * width, (end - begin) * width) == 0)
            continue;
        for (uint64_t i = begin; i < end; i++) {
            float x = tp_load_value(a, dtype, i), y = tp_load_value(b, dtype, i);
            if (x != y && !(isnan(x) && isnan(y)))
                return fail_at(box, i, x, y, format, err);
        }
    }
    return TP_OK;
}
