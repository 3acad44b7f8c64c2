/* The arithmetic of every codec, one block at a time.
 *
 * Does: amax, scale, codes of one block; channel scales and packed scales of
 * W4A8. Does not: know where anything is stored. Invariant: only single IEEE
 * operations, so that every faster row can match it bit for bit.
 */
#include "kernels/op/codec.h"

#include "kernels/op/scalar.h"
#include "kernels/op/traits.h"

#include <math.h>
#include <pthread.h>

uint32_t tp_amax_bits(const float *values, uint64_t count)
{
    uint32_t amax = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t m = tp_abs_bits(values[i]);
        amax = m > amax ? m : amax;
    }
    return amax;
}

static float int_scale_value(const struct tp_op *op, uint32_t bits)
{
    return op->scale_rule == TP_INT_SCALE_F32
               ? tp_bits_f32(bits)
               : tp_half_value(op->scale_rule == TP_INT_SCALE_F16, (uint16_t)bits);
}

/* The 16-bit scale of a block; where it would be 0, the eps of its type. */
static uint16_t int_scale(const struct tp_op *op, uint32_t amax)
{
    /* half of what the codes span: 7.5 or 127.5 scales reach the largest magnitude */
    float scale = tp_bits_f32(amax) / ((float)tp_op_zero_point(op) - 0.5f);
    bool f16 = op->scale_rule == TP_INT_SCALE_F16;
    uint16_t bits = tp_half_of(f16, scale);
    return bits ? bits : f16 ? 0x1400 /* 2^-10 */ : 0x3C00 /* 2^-7 */;
}

/* Rounded to the type of the scale. */
static float int_quotient(const struct tp_op *op, float q)
{
    if (op->rule != TP_INT4_QUOTIENT_BF16)
        return q;
    return tp_half_round(op->scale_rule == TP_INT_SCALE_F16, q);
}

/* Clamp first, then ties to even, as compressed-tensors does. */
static void int_codes(const struct tp_op *op, const float *values, uint64_t count,
                      uint16_t scale, uint8_t *codes)
{
    int zero_point = tp_op_zero_point(op);
    for (uint64_t i = 0; i < count; i++) {
        float q = int_quotient(op, values[i] / int_scale_value(op, scale));
        q = fminf(fmaxf(q, -(float)zero_point), (float)(zero_point - 1));
        codes[i] = (uint8_t)((int)rintf(q) + zero_point);
    }
}

static void encode_int(const struct tp_op *op, const float *values, uint64_t count,
                       uint32_t amax, float global, uint8_t *codes, uint32_t *scale)
{
    (void)global;
    *scale = int_scale(op, amax);
    if (amax >= TP_F32_INF_BITS)
        memset(codes, tp_op_zero_point(op), count);
    else
        int_codes(op, values, count, (uint16_t)*scale, codes);
}

/* compressed-tensors: bf16 scale, no lower bound but zero, true division. */
static float fp8_ct_scale(uint32_t amax)
{
    uint16_t sb = tp_f32_to_bf16(tp_bits_f32(amax) / 448.0f);
    return tp_bf16_to_f32(sb ? sb : 0x3C00);
}

/* DeepGEMM and DeepSeek: amax at least 1e-4, fp32 scale, perhaps rounded up to a
 * power of two before it is used. */
float tp_fp8_block_scale(const struct tp_op *op, uint32_t amax, float *factor)
{
    float a = tp_bits_f32(amax < 0x38D1B717u ? 0x38D1B717u : amax), s;
    if (op->rule == TP_FP8_CT_FP32 || op->rule == TP_FP8_CT_BF16)
        return *factor = fp8_ct_scale(amax);
    bool seed = op->rule == TP_FP8_SEED || op->rule == TP_FP8_SEED_CUDA;
    bool gpu = op->rule == TP_FP8_CUDA || op->rule == TP_FP8_SEED_CUDA;
    s = tp_canonical(gpu ? a * TP_RCP_448 : a / 448.0f);
    if (op->scale_rule == TP_FP8_SCALE_UE8M0)
        s = tp_ue8m0_ceil(s);
    else if (op->scale_rule == TP_FP8_SCALE_BF16)
        s = tp_bf16_to_f32(tp_f32_to_bf16(s));
    if (op->rule == TP_FP8_DIV)
        *factor = s;
    else if (seed && op->scale_rule == TP_FP8_SCALE_FP32)
        *factor = (1.0f / a) * 448.0f;
    else
        *factor = 1.0f / s;
    return s;
}

static void encode_fp8(const struct tp_op *op, const float *values, uint64_t count,
                       uint32_t amax, float global, uint8_t *codes, uint32_t *scale)
{
    float factor = global, y;
    *scale = tp_f32_bits(tp_op_per_tensor(op) ? global : tp_fp8_block_scale(op, amax, &factor));
    for (uint64_t i = 0; i < count; i++) {
        if (op->rule == TP_FP8_DIV || op->rule == TP_FP8_CT_FP32)
            y = values[i] / factor;
        else if (op->rule == TP_FP8_CT_BF16)
            y = tp_bf16_to_f32(tp_f32_to_bf16(values[i] / factor));
        else
            y = values[i] * factor;
        codes[i] = tp_e4m3_of(y);
    }
}

static uint8_t mx_scale(uint8_t rule, uint32_t amax, uint32_t max_exponent, float reciprocal)
{
    switch (rule) {
    case TP_MX_RCEIL:
        return tp_mx_rceil(amax, reciprocal);
    case TP_MX_FLOOR:
        return tp_mx_floor(amax, max_exponent);
    case TP_MX_CEIL:
        return tp_mx_ceil(amax, max_exponent);
    case TP_MX_CT:
        return max_exponent == 8 ? tp_mx_ct(amax) : tp_mx_even(amax, max_exponent);
    default: /* TP_MX_EVEN */
        return tp_mx_even(amax, max_exponent);
    }
}

static void encode_mxfp8(const struct tp_op *op, const float *values, uint64_t count,
                         uint32_t amax, float global, uint8_t *codes, uint32_t *scale)
{
    (void)global;
    uint8_t s = mx_scale(op->rule, amax, 8, TP_RCP_448);
    float r = op->rule == TP_MX_CT ? tp_mx_ct_multiplier(amax) : tp_e8m0_reciprocal(s);
    *scale = s;
    for (uint64_t i = 0; i < count; i++)
        codes[i] = tp_e4m3_of(values[i] * r);
}

static void mxfp4_codes(const float *values, uint64_t count, uint8_t scale, uint8_t *codes)
{
    for (uint64_t i = 0; i < count; i++)
        codes[i] = tp_e2m1_of(values[i] * tp_e8m0_reciprocal(scale));
}

static void encode_mxfp4(const struct tp_op *op, const float *values, uint64_t count,
                         uint32_t amax, float global, uint8_t *codes, uint32_t *scale)
{
    (void)global;
    *scale = mx_scale(op->rule, amax, 2, TP_RCP_6);
    mxfp4_codes(values, count, (uint8_t)*scale, codes);
}

static uint8_t nvfp4_clamped(float scale, float low)
{
    if (scale < low) /* NaN stays */
        scale = low;
    return tp_e4m3_of(scale);
}

float tp_nvfp4_factor(const struct tp_op *op, uint8_t scale, float global)
{
    if (op->rule == TP_NVFP4_CT)
        return tp_e4m3_value(scale) / global;
    if (op->rule == TP_NVFP4_TORCHAO)
        return 1.0f / global / tp_e4m3_value(scale);
    return tp_e4m3_value(scale) * global;
}

/* Three producers, three results; see formats/README.md, "nvfp4". */
uint8_t tp_nvfp4_block_scale(const struct tp_op *op, uint32_t amax, float global, float *factor)
{
    float a = tp_bits_f32(amax);
    uint8_t sb;
    if (op->rule == TP_NVFP4_CT) {
        sb = tp_e4m3_of(tp_bf16_to_f32(tp_f32_to_bf16(a / 6.0f)) * global);
        if (sb == 0)
            sb = 0x20; /* 0.125, the eps of e4m3 */
    } else if (op->rule == TP_NVFP4_TORCHAO) {
        sb = nvfp4_clamped(a / 6.0f / global, 0.015625f); /* 2^-6 */
    } else {
        float q = a / (6.0f * global);
        sb = nvfp4_clamped(q == 0.0f ? 1.0f : q, 0.001953125f); /* 2^-9 */
    }
    *factor = tp_nvfp4_factor(op, sb, global);
    return sb;
}

/* `s` is the factor of tp_nvfp4_block_scale(). */
static void nvfp4_codes(const struct tp_op *op, const float *values, uint64_t count, float s,
                        uint8_t *codes)
{
    for (uint64_t i = 0; i < count; i++) {
        float x = values[i];
        codes[i] = tp_e2m1_of(op->rule == TP_NVFP4_TORCHAO ? x * s : x / s);
        if (op->rule == TP_NVFP4_MODELOPT && x == 0.0f)
            codes[i] = 0;
    }
}

static void encode_nvfp4(const struct tp_op *op, const float *values, uint64_t count,
                         uint32_t amax, float global, uint8_t *codes, uint32_t *scale)
{
    float s;
    *scale = tp_nvfp4_block_scale(op, amax, global, &s);
    nvfp4_codes(op, values, count, s, codes);
}

static float round_to(enum tp_dtype dtype, float v)
{
    if (dtype == TP_BF16)
        return tp_bf16_to_f32(tp_f32_to_bf16(v));
    return dtype == TP_F16 ? tp_f16_to_f32(tp_f32_to_f16(v)) : v;
}

/* 448 * 6 / amax as torch divides a number by a tensor: by way of the reciprocal. */
static float divisor_of(enum tp_dtype dtype, float amax)
{
    return round_to(dtype, round_to(dtype, 1.0f / amax) * 2688.0f);
}

float tp_codec_global(const struct tp_op *op, enum tp_dtype dtype, float amax)
{
    float factor;
    if (tp_op_per_tensor(op))
        return tp_fp8_block_scale(op, tp_f32_bits(amax), &factor);
    if (!tp_codecs[op->codec].has_global || op->unit_global)
        return 1.0f;
    if (op->rule != TP_NVFP4_CT)
        return amax > 0.0f ? amax / 2688.0f : 1.0f; /* a zero weight: any scale will do */
    float global = divisor_of(dtype, amax);
    return tp_abs_bits(global) < TP_F32_INF_BITS ? global : 1.0f;
}

bool tp_codec_global_lost(const struct tp_op *op, enum tp_dtype dtype, float amax)
{
    return tp_op_divides(op) && !op->unit_global && amax > 0.0f &&
           tp_abs_bits(divisor_of(dtype, amax)) >= TP_F32_INF_BITS;
}

enum tp_code tp_codec_global_of(const struct tp_op *op, enum tp_dtype dtype, float amax,
                                float *global, struct tp_err *err)
{
    *global = tp_codec_global(op, dtype, amax);
    if (!(amax > 0) || (*global > 0 && tp_abs_bits(*global) < TP_F32_INF_BITS))
        return TP_OK;
    err->of_format = true;
    return tp_fail(err, TP_E_INPUT, "its largest value is %g: so %s that F32 has no global "
                   "scale for it", (double)amax, amax < 1 ? "small" : "large");
}

/* ---- by codec ------------------------------------------------------------ */

/* The codes alone, for a scale that was chosen before. */
static void int_codes_of(const struct tp_op *op, const float *values, uint64_t count,
                         uint32_t scale, float global, uint8_t *codes)
{
    (void)global;
    int_codes(op, values, count, (uint16_t)scale, codes);
}

static void mxfp4_codes_of(const struct tp_op *op, const float *values, uint64_t count,
                           uint32_t scale, float global, uint8_t *codes)
{
    (void)op, (void)global;
    mxfp4_codes(values, count, (uint8_t)scale, codes);
}

static void nvfp4_codes_of(const struct tp_op *op, const float *values, uint64_t count,
                           uint32_t scale, float global, uint8_t *codes)
{
    nvfp4_codes(op, values, count, tp_nvfp4_factor(op, (uint8_t)scale, global), codes);
}

static float int4_value(uint8_t code) { return (float)(code - 8); }
static float int8_value(uint8_t code) { return (float)(code - 128); }

static float f32_scale_of(const struct tp_op *op, uint32_t bits)
{
    (void)op;
    return tp_bits_f32(bits);
}

static float e8m0_scale_of(const struct tp_op *op, uint32_t bits)
{
    (void)op;
    return tp_e8m0_value((uint8_t)bits);
}

static float e4m3_scale_of(const struct tp_op *op, uint32_t bits)
{
    (void)op;
    return tp_e4m3_value((uint8_t)bits);
}

/* FLOAT has none of them: its numbers are no codes (floats.c). */
static const struct {
    void (*encode)(const struct tp_op *op, const float *values, uint64_t count, uint32_t amax,
                   float global, uint8_t *codes, uint32_t *scale);
    void (*codes)(const struct tp_op *op, const float *values, uint64_t count, uint32_t scale,
                  float global, uint8_t *codes); /* of codecs that are searched */
    float (*code_value)(uint8_t code);
    float (*scale_value)(const struct tp_op *op, uint32_t bits);
} arithmetic[TP_CODEC_COUNT] = {
    [TP_CODEC_INT4] = {encode_int, int_codes_of, int4_value, int_scale_value},
    [TP_CODEC_FP8] = {encode_fp8, NULL, tp_e4m3_value, f32_scale_of},
    [TP_CODEC_MXFP8] = {encode_mxfp8, NULL, tp_e4m3_value, e8m0_scale_of},
    [TP_CODEC_MXFP4] = {encode_mxfp4, mxfp4_codes_of, tp_e2m1_value, e8m0_scale_of},
    [TP_CODEC_NVFP4] = {encode_nvfp4, nvfp4_codes_of, tp_e2m1_value, e4m3_scale_of},
    [TP_CODEC_INT8] = {encode_int, int_codes_of, int8_value, int_scale_value},
    [TP_CODEC_FLOAT] = {NULL, NULL, tp_e2m1_value, e4m3_scale_of},
};

bool tp_codec_encode(const struct tp_op *op, const float *values, uint64_t count, float global,
                     uint8_t *codes, uint32_t *scale)
{
    uint32_t amax = tp_amax_bits(values, count);
    arithmetic[op->codec].encode(op, values, count, amax, global, codes, scale);
    if (op->codec == TP_CODEC_MXFP8 && op->rule == TP_MX_CT)
        return amax >= 0x7F600000u; /* 1.75 * 2^127, see tp_mx_ct() */
    if (tp_op_has_f16_scales(op) && (*scale & 0x7C00) == 0x7C00)
        return true; /* beyond what F16 holds */
    return amax >= TP_F32_INF_BITS;
}

void tp_codec_codes(const struct tp_op *op, const float *values, uint64_t count, uint32_t scale,
                    float global, uint8_t *codes)
{
    arithmetic[op->codec].codes(op, values, count, scale, global, codes);
}

float tp_codec_code_value(const struct tp_op *op, uint8_t code)
{
    int codes = tp_op_find(op, TP_ROLE_CODES);
    return codes >= 0 && op->out[codes].element == TP_ELEM_E5M2
               ? tp_f16_to_f32((uint16_t)(code << 8))
               : arithmetic[op->codec].code_value(code);
}

float tp_codec_scale_value(const struct tp_op *op, uint32_t scale_bits)
{
    return arithmetic[op->codec].scale_value(op, scale_bits);
}

float tp_channel_quotient(uint16_t amax, enum tp_channel_rule rule)
{
    float m = tp_bf16_to_f32(amax);
    float sc = rule == TP_CHANNEL_GPU ? m * TP_RCP_448 : m / 448.0f;
    if (sc < 1.0f / (448.0f * 512.0f)) /* NaN stays */
        sc = 1.0f / (448.0f * 512.0f);
    return sc;
}

void tp_channel_scale(const uint16_t *row_scales, uint64_t groups, enum tp_channel_rule rule,
                      bool skip_zero, const uint8_t *group_is_zero, uint8_t *group_scales,
                      float *channel)
{
    uint16_t amax = 0;
    float sc, reciprocal;
    for (uint64_t g = 0; g < groups; g++) {
        uint16_t m = row_scales[g] & 0x7FFF;
        if (!(skip_zero && group_is_zero[g]) && m > amax)
            amax = m;
    }
    sc = tp_channel_quotient(amax, rule);
    reciprocal = 1.0f / sc;
    for (uint64_t g = 0; g < groups; g++) {
        float s = tp_bf16_to_f32(row_scales[g]);
        uint8_t f = tp_e4m3_of(rule == TP_CHANNEL_DIV ? s / sc : s * reciprocal);
        group_scales[g] = tp_e4m3_of(tp_e4m3_value(f) / 8.0f);
    }
    *channel = tp_canonical(sc * 8.0f);
}

void tp_group8(uint8_t group_scale, uint8_t packed[8])
{
    float s = tp_e4m3_value(group_scale);
    for (int i = 0; i < 8; i++)
        packed[i] = tp_e4m3_of(s * (float)(i - 8));
}

static uint64_t group8_of[256]; /* each scale */
static uint64_t group8_of_eighth[256];
static uint8_t group8_steps[64];
static pthread_once_t group8_once = PTHREAD_ONCE_INIT;

static void make_group8_tables(void)
{
    for (int f = 0; f < 256; f++) {
        uint8_t packed[8];
        tp_group8((uint8_t)f, packed);
        memcpy(&group8_of[f], packed, 8);
        tp_group8(tp_e4m3_of(tp_e4m3_value((uint8_t)f) / 8.0f), packed);
        memcpy(&group8_of_eighth[f], packed, 8);
        for (int i = 0; i < 8 && f / 8 == TP_GROUP8_MIN / 8; i++)
            group8_steps[8 * i + f % 8] = (uint8_t)(packed[i] - f);
    }
}

bool tp_group8_right(const uint8_t packed[8])
{
    pthread_once(&group8_once, make_group8_tables);
    return memcmp(packed, &group8_of[tp_group8_scale(packed)], 8) == 0;
}

const uint64_t *tp_group8_of_eighth(void)
{
    pthread_once(&group8_once, make_group8_tables);
    return group8_of_eighth;
}

const uint8_t *tp_group8_steps(void)
{
    pthread_once(&group8_once, make_group8_tables);
    return group8_steps;
}
