/* The tables of codecs and elements; see traits.h. */
#include "kernels/op/traits.h"

#include "kernels/op/scalar.h"

#include <string.h>

/* ---- elements ------------------------------------------------------------ */

static uint64_t little(const uint8_t *at, unsigned bytes)
{
    uint64_t word = 0;
    for (unsigned i = bytes; i-- > 0;)
        word = word << 8 | at[i];
    return word;
}

static double e2m1(const uint8_t *at) { return tp_e2m1_value(*at); }
static double e4m3(const uint8_t *at) { return tp_e4m3_value(*at); }
static double e5m3(const uint8_t *at) { return tp_e4m3_value(tp_e5m3_to_e4m3(*at)); }
static double e5m2(const uint8_t *at) { return tp_f16_to_f32((uint16_t)(*at << 8)); }
static double e8m0(const uint8_t *at) { return tp_e8m0_value(*at); }
static double bf16(const uint8_t *at) { return tp_bf16_to_f32((uint16_t)little(at, 2)); }
static double f16(const uint8_t *at) { return tp_f16_to_f32((uint16_t)little(at, 2)); }
static double f32(const uint8_t *at) { return tp_bits_f32((uint32_t)little(at, 4)); }
static double i32(const uint8_t *at) { return (int32_t)little(at, 4); }
static double i64(const uint8_t *at) { return (double)(int64_t)little(at, 8); }
static double int8(const uint8_t *at) { return (int8_t)*at; }
static double byte(const uint8_t *at) { return *at; }

/* The last of the eight multiples is -1 times the scale, exactly. */
static double e4m3x8(const uint8_t *at) { return -(double)tp_e4m3_value(at[7]); }

const struct tp_element_traits tp_elements[TP_ELEM_COUNT] = {
    [TP_ELEM_INT4] = {"int4", 4, .has_table = true},
    [TP_ELEM_E2M1] = {"e2m1", 4, .dtype = TP_F4, .value = e2m1},
    [TP_ELEM_E4M3] = {"e4m3", 8, .dtype = TP_F8_E4M3, .value = e4m3},
    [TP_ELEM_E4M3X8] = {"e4m3x8", 64, .value = e4m3x8},
    [TP_ELEM_E8M0] = {"e8m0", 8, .dtype = TP_F8_E8M0, .value = e8m0},
    [TP_ELEM_BF16] = {"bf16", 16, .is_float = true, .dtype = TP_BF16, .value = bf16},
    [TP_ELEM_F16] = {"f16", 16, .is_float = true, .dtype = TP_F16, .value = f16},
    [TP_ELEM_F32] = {"f32", 32, .is_float = true, .dtype = TP_F32, .value = f32},
    [TP_ELEM_I32] = {"i32", 32, .dtype = TP_I32, .value = i32},
    [TP_ELEM_I64] = {"i64", 64, .dtype = TP_I64, .value = i64},
    [TP_ELEM_INT8] = {"int8", 8, .dtype = TP_I8, .value = int8},
    [TP_ELEM_UINT8B128] = {"uint8b128", 8, .dtype = TP_U8, .value = byte},
    [TP_ELEM_E5M3] = {"e5m3", 8, .value = e5m3, .needs = TP_NEED_E5M3},
    [TP_ELEM_E5M2] = {"e5m2", 8, .dtype = TP_F8_E5M2, .value = e5m2, .needs = TP_NEED_SLOW},
};

unsigned tp_element_bits(enum tp_element element) { return tp_elements[element].bits; }

/* ---- codecs -------------------------------------------------------------- */

static const char *const int_rules[] = {"fp32", "bf16", NULL};
static const char *const int_scales[] = {"bf16", "f16", NULL};
static const char *const fp8_rules[] = {"v2",        "seed",    "div",     "cuda",
                                        "seed-cuda", "ct-fp32", "ct-bf16", NULL};
static const char *const fp8_scales[] = {"fp32", "ue8m0", "bf16", NULL};
static const char *const mx_rules[] = {"rceil", "floor", "ct", "even", "ceil", NULL};
static const char *const nvfp4_rules[] = {"ct", "torchao", "modelopt", NULL};
static const char *const none[] = {NULL};

#define SET(element) (1u << TP_ELEM_##element)
#define HALVES (SET(BF16) | SET(F16))
#define FLOATS (HALVES | SET(F32))

const struct tp_codec_traits tp_codecs[TP_CODEC_COUNT] = {
    [TP_CODEC_INT4] = {"int4", int_rules, int_scales, .bits = 4, .is_int = true, .zero_point = 8,
                       .searches = true, .searches_rows = true,
                       .codes = SET(INT4) | SET(INT8), .scales = FLOATS},
    [TP_CODEC_FP8] = {"fp8", fp8_rules, fp8_scales, .bits = 8, .codes = SET(E4M3) | SET(E5M2),
                      .scales = FLOATS | SET(E8M0)},
    [TP_CODEC_MXFP8] = {"mxfp8", mx_rules, none, .bits = 8, .codes = SET(E4M3),
                        .scales = SET(E8M0)},
    [TP_CODEC_MXFP4] = {"mxfp4", mx_rules, none, .bits = 4, .searches = true, .codes = SET(E2M1),
                        .scales = SET(E8M0)},
    [TP_CODEC_NVFP4] = {"nvfp4", nvfp4_rules, none, .bits = 4, .has_global = true, .searches = true,
                        .codes = SET(E2M1), .scales = SET(E4M3) | SET(E5M3)},
    [TP_CODEC_INT8] = {"int8", int_rules, int_scales, .bits = 8, .is_int = true, .zero_point = 128,
                       .codes = SET(INT8) | SET(UINT8B128), .scales = FLOATS},
    [TP_CODEC_FLOAT] = {"float", none, none, .is_number = true, .codes = FLOATS,
                        .needs = TP_NEED_NUMBERS},
};

static uint32_t elements_of(enum tp_codec codec, enum tp_role role)
{
    const struct tp_codec_traits *c = &tp_codecs[codec];
    switch (role) {
    case TP_ROLE_CODES: return c->codes;
    case TP_ROLE_SCALE: return c->scales;
    case TP_ROLE_GROUP8: return c->searches_rows ? SET(E4M3X8) : 0; /* of the W4A8 kernel */
    case TP_ROLE_CHANNEL: return c->searches_rows ? SET(F32) : 0;
    case TP_ROLE_GLOBAL: return c->has_global ? SET(F32) : c->scales & (SET(F32) | SET(BF16));
    case TP_ROLE_ZERO: return c->is_int ? SET(INT4) | SET(UINT8B128) | HALVES : 0;
    case TP_ROLE_ORDER: return c->is_int ? SET(I32) : 0;
    default: return UINT32_MAX;
    }
}

bool tp_codec_takes(enum tp_codec codec, enum tp_role role, enum tp_element element)
{
    return elements_of(codec, role) >> element & 1;
}

uint8_t tp_codec_scale_rule(enum tp_codec codec, enum tp_element element)
{
    if (tp_codecs[codec].is_int)
        return element == TP_ELEM_F16   ? TP_INT_SCALE_F16
               : element == TP_ELEM_F32 ? TP_INT_SCALE_F32
                                        : TP_INT_SCALE_BF16;
    if (!*tp_codecs[codec].scale_rules)
        return 0;
    return element == TP_ELEM_E8M0   ? TP_FP8_SCALE_UE8M0
           : element == TP_ELEM_BF16 ? TP_FP8_SCALE_BF16
                                     : TP_FP8_SCALE_FP32;
}

bool tp_op_is_int(const struct tp_op *op) { return tp_codecs[op->codec].is_int; }

/* ---- roles --------------------------------------------------------------- */

const char *const tp_role_names[TP_ROLE_COUNT] = {
    [TP_ROLE_CODES] = "codes",   [TP_ROLE_SCALE] = "scale",   [TP_ROLE_GROUP8] = "group8",
    [TP_ROLE_CHANNEL] = "channel", [TP_ROLE_GLOBAL] = "global", [TP_ROLE_WORDS] = "words",
    [TP_ROLE_ZERO] = "zero",     [TP_ROLE_ORDER] = "order",
};

/* ---- searches ------------------------------------------------------------ */

const char *const tp_search_names[] = {"none", "mse", "w4a8", NULL};
