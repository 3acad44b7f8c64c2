/* Scales of MX formats: what the rows of MXFP8 and MXFP4 share. */
#ifndef TP_KERNELS_CPU_MX_H
#define TP_KERNELS_CPU_MX_H

#include "kernels/cpu/cpu_run.h"

/* Scale bytes of finite magnitudes, for e4m3 (max_exponent 8) or e2m1 (2); the same
 * formulas as in scalar.h. */
V vu mx_scale(uint8_t rule, uint32_t max_exponent, vu amax)
{
    vu e = v_srl(amax, 23), bias = v_set(max_exponent), zero = v_set(0);
    if (rule == TP_MX_RCEIL) {
        float reciprocal = max_exponent == 8 ? TP_RCP_448 : TP_RCP_6;
        vu b = v_bits(f_mul(v_floats(amax), f_set(reciprocal)));
        vu m = v_and(b, v_set(0x7FFFFF));
        e = v_srl(b, 23);
        return v_add(e, v_pick(m, v_pick(e, zero, zero, v_set(0x400000)), v_set(1), zero));
    }
    if (rule == TP_MX_CEIL)
        e = v_add(e, v_pick(v_and(amax, v_set(0x7FFFFF)), zero, v_set(1), zero));
    else if (rule != TP_MX_FLOOR)
        e = v_srl(v_add(amax, v_set(1u << 21)), 23);
    return v_sub(v_max(e, bias), bias);
}

V void mx_scales16(uint8_t rule, const uint32_t amax[16], uint8_t scale[16])
{
    for (unsigned i = 0; i < 16; i += VL) {
        vu m = v_load(amax + i);
        if (rule == TP_MX_RCEIL)
            v_store_u8(scale + i, mx_scale(TP_MX_RCEIL, 8, m));
        else if (rule == TP_MX_FLOOR)
            v_store_u8(scale + i, mx_scale(TP_MX_FLOOR, 8, m));
        else
            v_store_u8(scale + i, mx_scale(rule, 8, m));
    }
}

/* From here on compressed-tensors' exponent overflows, and NaN is not far. */
#define MX_SLOW 0x7F5FFFFFu

static inline bool mx_any_slow(const uint32_t amax[16])
{
    for (unsigned i = 0; i < 16; i += VL)
        if (v_any_gt(v_load(amax + i), v_set(MX_SLOW)))
            return true;
    return false;
}

static inline bool mx_accepts(const struct tp_op *op)
{
    const struct tp_op_out *scale = &op->out[tp_op_find(op, TP_ROLE_SCALE)];
    return op->block_n == 1 && op->block_k == 32 && scale->per_n == 1 && scale->per_k == 32;
}

#endif
