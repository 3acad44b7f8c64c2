/* MXFP4 (blocks of 1 x 32) and NVFP4 (1 x 16): nibbles row-major, scales row-major or
 * in tiles. Sixteen blocks at a time, magnitudes, scales and codes in vectors; what is
 * left of a row, and blocks with anything odd about them, two or one at a time.
 */
#ifndef TP_KERNELS_CPU_FP4_H
#define TP_KERNELS_CPU_FP4_H

#include "kernels/cpu/cpu_mx.h"
#include "kernels/cpu/cpu_run.h"
#include "kernels/cpu/cpu_words.h"

struct fp4_job {
    const struct tp_op *op;
    struct tp_args *args;
    struct tp_plane scale;
};

/* Scale bytes and factors of VL finite blocks, as fp4_scale(). What a broken global scale
 * makes of them is told by the factors. */
V vu fp4_scales(const struct fp4_job *job, vu amax, vf *factor)
{
    const vf a = v_floats(amax), global = f_set(job->args->global), six = f_set(6.0f);
    const uint8_t rule = job->op->rule;
    vu s, r;
    if (job->op->codec == TP_CODEC_MXFP4) {
        s = mx_scale(rule, 2, amax);
        r = v_sub(v_set(254), s);
        *factor = v_floats(v_pick(r, v_set(0), v_sll(r, 23), v_set(0x00400000u)));
        return s;
    }
    if (rule == TP_NVFP4_CT) {
        s = v_e4m3(f_mul(v_floats(round_bf16(v_bits(f_div(a, six)))), global));
        s = v_pick(s, v_set(0), s, v_set(0x20));
        *factor = f_div(f_of_e4m3(s), global);
    } else if (rule == TP_NVFP4_TORCHAO) {
        vu q = v_bits(f_div(f_div(a, six), global));
        s = v_e4m3(v_floats(v_max(q, v_set(0x3C800000u)))); /* 2^-6 */
        *factor = f_div(f_div(f_set(1.0f), global), f_of_e4m3(s));
    } else {
        vu q = v_bits(f_div(a, f_mul(six, global)));
        q = v_pick(v_and(q, v_set(0x7FFFFFFFu)), v_set(0), q, v_set(0x3F800000u));
        s = v_e4m3(v_floats(v_max(q, v_set(0x3B000000u)))); /* 2^-9 */
        *factor = f_mul(f_of_e4m3(s), global);
    }
    return s;
}

/* Codes of 16 blocks. */
V void fp4_codes16(enum tp_dtype dtype, int how, const uint8_t *p, unsigned size,
                   const float factor[16], uint8_t *dst)
{
    for (unsigned i = 0; i < 16 * size; i += 64) {
        vf f[64 / VL];
        e2m1_factors(dtype, size, factor + i / size, f);
        e2m1_64(dtype, how, false, p + i * value_bytes(dtype), dst + i / 2, f);
    }
}

/* Scales and, unless it is NULL, factors of 16 blocks. False: not of the usual kind. */
V bool fp4_scales16(const struct fp4_job *job, const uint32_t amax[16], uint8_t scale[16],
                    float factor[16])
{
    for (unsigned i = 0; i < 16; i += VL) {
        vu m = v_load(amax + i), u;
        vf f;
        if (v_any_gt(m, v_set(TP_F32_INF_BITS - 1)))
            return false;
        v_store_u8(scale + i, fp4_scales(job, m, &f));
        if (factor == NULL)
            continue;
        u = v_bits(f); /* as integers: 0 < u <= 2^127, negative for a minus sign */
        if (v_any_gt(v_set(1), u) || v_any_gt(u, v_set(0x7F000000u)))
            return false;
        v_store(factor + i, u);
    }
    return true;
}

/* Lanes that are not 0 where products with 1 / factor give the codes that quotients give:
 * where no value lies near a bound between two codes. Bounds are 4, 5, 6 or 7 times a power
 * of two, and values have 8 or 11 significant bits, fewer if they are tiny. Let b, the bound
 * times the factor, be four steps of fp32 or more away from any such value x, and u = 2^-24:
 * a step is more than u b and rounding b took u b at most, so that x / factor is about 3 u
 * away from the bound. The quotient errs by u, the product by 2 u + u^2: they stay on their
 * side. The factor's range keeps numbers that matter out of the subnormal ones. */
V vu fp4_clear(enum tp_dtype dtype, vf factor)
{
    const vu below = v_set((dtype == TP_BF16 ? 0xFFFF : 0x1FFF) & ~7u), zero = v_set(0);
    vu min = below, u = v_bits(factor);
    for (unsigned i = 4; i < 8; i++) {
        vu b = v_bits(f_mul(factor, f_set((float)i)));
        min = v_min(min, v_and(v_add(b, v_set(4)), below));
    }
    min = v_pick(u, v_set(27u << 23), min, zero); /* 2^-100 */
    return dtype == TP_F32 ? zero : v_pick(u, v_set(227u << 23), zero, min);
}

/* Codes of 16 blocks of NVFP4 whose factors divide. */
V void fp4_quotients16(enum tp_dtype dtype, bool unsigned_zero, const uint8_t *p,
                       const float factor[16], uint8_t *dst)
{
    float reciprocal[16];
    uint32_t clear[16];
    for (unsigned i = 0; i < 16; i += VL) {
        vf f = f_load_f32(factor + i);
        v_store(clear + i, fp4_clear(dtype, f));
        v_store(reciprocal + i, v_bits(f_div(f_set(1.0f), f)));
    }
    for (unsigned b = 0; b < 16; b += 4, p += 64 * value_bytes(dtype), dst += 32) {
        vf f[64 / VL];
        if (clear[b] && clear[b + 1] && clear[b + 2] && clear[b + 3]) {
            e2m1_factors(dtype, 16, reciprocal + b, f);
            e2m1_64(dtype, HOW_MUL_CLEAR, unsigned_zero, p, dst, f);
        } else {
            e2m1_factors(dtype, 16, factor + b, f);
            e2m1_64(dtype, HOW_DIV, unsigned_zero, p, dst, f);
        }
    }
}

/* Codes of 16 blocks of MXFP4. */
V void fp4_powers16(enum tp_dtype dtype, const uint8_t *p, const uint8_t scale[16],
                    const float factor[16], uint8_t *dst)
{
    bool tiny = dtype != TP_BF16;
    for (unsigned i = 0; i < 16; i++)
        tiny |= scale[i] < 12;
    for (unsigned i = 0; i < 16 && !tiny; i += 2)
        e2m1_64_pow2(p + 64 * i, dst + 16 * i, scale + i);
    if (!tiny)
        return;
    fp4_codes16(dtype, HOW_MUL, p, 32, factor, dst);
}

/* Codes of 16 blocks with scales and factors that are of the usual kind. */
V void fp4_codes_by(const struct fp4_job *job, enum tp_dtype dtype, const uint8_t *p,
                    const uint8_t scale[16], const float factor[16], uint8_t *dst)
{
    if (job->op->codec == TP_CODEC_MXFP4)
        fp4_powers16(dtype, p, scale, factor, dst);
    else if (job->op->rule == TP_NVFP4_TORCHAO)
        fp4_codes16(dtype, HOW_MUL, p, 16, factor, dst);
    else if (job->op->rule == TP_NVFP4_CT)
        fp4_quotients16(dtype, false, p, factor, dst);
    else
        fp4_quotients16(dtype, true, p, factor, dst);
}

/* Begins the outputs. False: nothing is left to do, either because the reference did it, which
 * rows of half blocks need, or because a layout failed. */
NOINLINE bool fp4_open(struct fp4_job *job, const struct tp_op *op, struct tp_args *args)
{
    void *scratch = args->scratch;
    if (args->box.k % 32 != 0) {
        tp_encode_ref(op, args);
        return false;
    }
    *job = (struct fp4_job){.op = op, .args = args};
    job->scale = tp_plane_open(op, TP_ROLE_SCALE, args, args->out, &scratch);
    struct tp_plane global = tp_plane_open(op, TP_ROLE_GLOBAL, args, args->out, &scratch);
    if (args->flags & TP_FAILED)
        return false;
    tp_plane_fill(&job->scale);
    if (global.data != NULL) {
        tp_plane_fill(&global);
        memcpy(global.data, &args->global, sizeof args->global);
    }
    return true;
}

static bool fp4_accepts(const struct tp_op *op)
{
    const struct tp_op_out *codes = &op->out[tp_op_find(op, TP_ROLE_CODES)];
    const struct tp_op_out *scale = &op->out[tp_op_find(op, TP_ROLE_SCALE)];
    return op->block_n == 1 && op->block_k == (op->codec == TP_CODEC_NVFP4 ? 16u : 32u) &&
           tp_element_bits(scale->element) == 8 && codes->element == TP_ELEM_E2M1 &&
           scale->per_n == 1 && scale->per_k == op->block_k;
}

#endif
