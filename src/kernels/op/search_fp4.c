/* The scale of one block of e2m1 codes, searched for the least error: NVFP4 among the
 * neighbours of the rule's e4m3 scale, MXFP4 between two exponents. */
#include "kernels/op/search_codec.h"
#include "kernels/op/search_scalar.h"

/* The values of the codes when 0.5 is worth `step`. */
static struct tp_search_values multiples(int32_t step)
{
    static const int32_t twice[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    struct tp_search_values v;
    for (int c = 0; c < 8; c++) {
        v.of[c] = twice[c] * step;
        v.of[8 + c] = -twice[c] * step;
    }
    return v;
}

uint8_t tp_search_nvfp4(const struct tp_op *op, const float *values, uint32_t amax, float global,
                        const float *importance, uint8_t plain, struct tp_search_ints *ints)
{
    float factor = op->rule == TP_NVFP4_CT ? global : 1.0f / global;
    float a = tp_bits_f32(amax) * factor;
    uint64_t min = UINT64_MAX;
    uint8_t best = plain;
    if (!tp_search_nvfp4_live(amax, a))
        return plain;
    ints->e = tp_search_exponent(tp_f32_bits(a));
    tp_search_take(ints, op, values, factor, false, importance);
    for (int i = 0; i < TP_SEARCH_NVFP4; i++) {
        int t = tp_search_nvfp4_byte(plain, i);
        if (t < 1 || t > TP_E4M3_MAX)
            continue;
        struct tp_search_values v = multiples(tp_search_nvfp4_step((uint8_t)t, ints->e));
        uint64_t error = tp_search_error(ints, &v);
        if (error < min) {
            min = error;
            best = (uint8_t)t;
        }
    }
    return best;
}

uint8_t tp_search_mxfp4(const struct tp_op *op, const float *values, uint32_t amax,
                        const float *importance, uint8_t plain, struct tp_search_ints *ints)
{
    uint64_t min = UINT64_MAX;
    uint8_t best = plain;
    ints->e = tp_search_exponent(amax);
    tp_search_take(ints, op, values, 1.0f, false, importance);
    for (int i = 0; i < TP_SEARCH_MXFP4; i++) {
        uint8_t b = tp_search_mxfp4_byte(amax, plain, i);
        struct tp_search_values v = multiples(tp_search_mxfp4_step(b, ints->e));
        uint64_t error = tp_search_error(ints, &v);
        if (error < min) {
            min = error;
            best = b;
        }
    }
    return best;
}
