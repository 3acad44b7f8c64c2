/* The scale of one int4 group, searched for the least error of code * scale. */
#include "kernels/op/search_codec.h"
#include "kernels/op/search_scalar.h"

static struct tp_search_values multiples(int32_t step)
{
    struct tp_search_values v;
    for (int q = -8; q < 8; q++)
        v.of[q + 8] = q * step;
    return v;
}

uint16_t tp_search_int4(const struct tp_op *op, const float *values, uint32_t amax,
                        const float *importance, struct tp_search_ints *ints)
{
    bool flip = op->search_signed && tp_search_flips(values, ints->count);
    bool is_f16 = op->scale_rule == TP_INT_SCALE_F16;
    uint64_t min = UINT64_MAX;
    uint16_t best = 0;
    ints->e = tp_search_exponent(amax);
    tp_search_take(ints, op, values, 1.0f, flip, importance);
    for (int i = 0; i < TP_SEARCH_INT4; i++) {
        uint16_t scale = tp_search_int4_scale(amax, is_f16, op->search_signed, i);
        struct tp_search_values v = multiples(tp_search_int4_step(scale, is_f16, ints->e));
        uint64_t error = tp_search_error(ints, &v);
        if (error < min) {
            min = error;
            best = scale;
        }
    }
    return flip ? best | 0x8000 : best;
}
