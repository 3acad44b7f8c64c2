/* The codecs against the published edge tables, and against slow independent
 * definitions (nearest value by search) where there are few inputs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../tools/ops.h"
#include "kernels/op/codec.h"
#include "kernels/op/op_at.h"
#include "kernels/op/scalar.h"

#include <math.h>

static uint8_t byte_of(float x) { return tp_e4m3_of(x); }

static void test_e4m3_edges(void **state)
{
    static const struct {
        float x;
        uint8_t code;
    } cases[] = {
        {0.0f, 0x00},       {-0.0f, 0x80},      {448.0f, 0x7E},     {-448.0f, 0xFE},
        {463.9f, 0x7E},     {464.0f, 0x7E},     {1e30f, 0x7E},      {INFINITY, 0x7E},
        {-INFINITY, 0xFE},  {17.0f, 0x58},      {19.0f, 0x5A},      {0x1p-10f, 0x00},
        {0x1.8p-10f, 0x01}, {0x1p-9f, 0x01},    {0x1p-6f, 0x08},    {0x1.fp-7f, 0x08},
        {0x1p-149f, 0x00},  {-0x1p-149f, 0x80}, {0x3p-10f, 0x02},   {1.0f, 0x38},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(byte_of(cases[i].x), cases[i].code);
    assert_int_equal(byte_of(NAN), 0x7F);
    assert_int_equal(byte_of(-NAN), 0x7F);
}

/* Nearest by search, ties to the even code. */
static uint8_t nearest(float x, int codes, float (*value)(uint8_t))
{
    float a = fabsf(x), best = INFINITY;
    int found = 0;
    for (int c = 0; c < codes; c++) {
        float d = fabsf(value((uint8_t)c) - a);
        if (d < best || (d == best && c % 2 == 0)) {
            best = d;
            found = c;
        }
    }
    return (uint8_t)found;
}

static void test_casts_are_nearest(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        float x = tp_f16_to_f32((uint16_t)i);
        uint8_t sign = i & 0x8000 ? 1 : 0;
        if (x != x || fabsf(x) == INFINITY)
            continue;
        assert_int_equal(tp_e4m3_of(x), nearest(x, 0x7F, tp_e4m3_value) | sign << 7);
        assert_int_equal(tp_e2m1_of(x), nearest(x, 8, tp_e2m1_value) | sign << 3);
    }
    for (uint32_t c = 0; c < 256; c++)
        if ((c & 0x7F) != 0x7F)
            assert_int_equal(tp_e4m3_of(tp_e4m3_value((uint8_t)c)), c);
    for (uint32_t c = 0; c < 16; c++)
        assert_int_equal(tp_e2m1_of(tp_e2m1_value((uint8_t)c)), c);
}

static void test_halves(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        float b = tp_bf16_to_f32((uint16_t)i), h = tp_f16_to_f32((uint16_t)i);
        if (b == b)
            assert_int_equal(tp_f32_to_bf16(b), i);
        else
            assert_int_equal(tp_f32_to_bf16(b), TP_BF16_NAN);
        if (h == h)
            assert_int_equal(tp_f32_to_f16(h), i);
        /* Half way to the next bf16: to even. */
        if (b == b && (i & 0x7FFF) < 0x7F7F)
            assert_int_equal(tp_f32_to_bf16(tp_bits_f32(i << 16 | 0x8000)), i + (i & 1));
    }
    assert_int_equal(tp_f32_to_f16(65520.0f), 0x7C00);
    assert_int_equal(tp_f32_to_f16(65519.0f), 0x7BFF);
    assert_int_equal(tp_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(tp_f32_to_f16(0x1.8p-25f), 1);
}

static void test_e8m0(void **state)
{
    (void)state;
    assert_true(tp_e8m0_value(0) == 0x1p-127f);
    assert_true(tp_e8m0_value(127) == 1.0f);
    assert_true(tp_e8m0_value(254) == 0x1p127f);
    assert_true(tp_e8m0_value(255) != tp_e8m0_value(255));
    assert_true(tp_e8m0_reciprocal(0) == 0x1p127f);
    assert_true(tp_e8m0_reciprocal(254) == 0x1p-127f);
    assert_true(tp_ue8m0_ceil(0.0f) == 0x1p-126f);
    assert_true(tp_ue8m0_ceil(1.0f) == 1.0f);
    assert_true(tp_ue8m0_ceil(0x1.000002p0f) == 2.0f);
    assert_true(tp_ue8m0_ceil(INFINITY) == 0x1p127f);
    assert_true(tp_ue8m0_ceil(NAN) == 0x1p127f);
}

/* One block of equal values (or with one odd one) and what must come of it. */
static void check_block(const struct tp_op *op, float value, float first, uint32_t scale,
                        uint8_t code, uint8_t first_code)
{
    float values[128];
    uint8_t codes[128];
    uint64_t count = op->block_n * op->block_k;
    uint32_t got;
    assert_true(count <= 128);
    for (uint64_t i = 0; i < count; i++)
        values[i] = value;
    values[0] = first;
    tp_codec_encode(op, values, count, 1.0f, codes, &got);
    assert_int_equal(got, scale);
    assert_int_equal(codes[1], code);
    assert_int_equal(codes[count - 1], code);
    assert_int_equal(codes[0], first_code);
}

static void test_mxfp8_cases(void **state)
{
    struct tp_op rceil = ops_mxfp8_ct(TP_MX_RCEIL), floor = ops_mxfp8_ct(TP_MX_FLOOR);
    struct tp_op ct = ops_mxfp8_ct(TP_MX_CT);
    const float max = tp_bf16_to_f32(0x7F7F);
    (void)state;
    check_block(&rceil, 0.0f, -0.0f, 0, 0x00, 0x80);
    check_block(&floor, 0.0f, -0.0f, 0, 0x00, 0x80);
    check_block(&rceil, 0x1p-126f, 0x1p-126f, 0, 0x40, 0x40);
    check_block(&floor, 0x1p-133f, 0x1p-133f, 0, 0x08, 0x08);
    check_block(&rceil, 0x1p-149f, 0x1p-149f, 0, 0x00, 0x00);
    check_block(&rceil, 1.0f, INFINITY, 255, 0x7F, 0x7F);
    check_block(&floor, 1.0f, NAN, 255, 0x7F, 0x7F);
    check_block(&rceil, 448.0f, -448.0f, 127, 0x7E, 0xFE);
    check_block(&floor, 480.0f, 480.0f, 127, 0x7E, 0x7E);
    check_block(&rceil, 480.0f, 480.0f, 128, 0x77, 0x77);
    check_block(&floor, max, max, 246, 0x7E, 0x7E);
    check_block(&rceil, max, max, 247, 0x78, 0x78);
    check_block(&ct, 448.0f, 448.0f, 128, 0x76, 0x76);
    check_block(&ct, 1.0f, max, 127, 0x00, 0x00);
    check_block(&ct, 0.0f, 0.0f, 0, 0x00, 0x00);
}

static void test_int4_cases(void **state)
{
    struct tp_op fp32 = ops_w4a8_ct(TP_INT4_QUOTIENT_FP32);
    struct tp_op bf16 = ops_w4a8_ct(TP_INT4_QUOTIENT_BF16);
    (void)state;
    check_block(&fp32, 0.0f, -0.0f, 0x3C00, 8, 8);
    check_block(&fp32, 0x3p-133f, -0x3p-133f, 0x3C00, 8, 8);
    check_block(&fp32, 7.5f, -7.5f, 0x3F80, 15, 0); /* 8 is clamped, -7.5 ties to -8 */
    check_block(&fp32, 0.5f, 7.5f, 0x3F80, 8, 15);
    check_block(&fp32, 1.5f, 7.5f, 0x3F80, 10, 15);
    check_block(&fp32, -2.5f, 7.5f, 0x3F80, 6, 15);
    check_block(&fp32, 1.0f, INFINITY, 0x7F80, 8, 8);
    check_block(&fp32, 1.0f, NAN, 0x7FC0, 8, 8);
    check_block(&bf16, 1.5f, 7.5f, 0x3F80, 10, 15);
    /* The quotient 2.501 is 2.5 in bf16, and then ties to even. */
    check_block(&fp32, 2.501f, 7.5f, 0x3F80, 11, 15);
    check_block(&bf16, 2.501f, 7.5f, 0x3F80, 10, 15);
    check_block(&fp32, 1.0f, tp_bf16_to_f32(0x7F7F), 0x7E08, 8, 15);
}

static void test_fp8_cases(void **state)
{
    struct tp_op v2 = ops_fp8_1x128(TP_FP8_V2, TP_FP8_SCALE_FP32);
    struct tp_op ue = ops_fp8_1x128(TP_FP8_V2, TP_FP8_SCALE_UE8M0);
    struct tp_op ct = ops_fp8_1x128(TP_FP8_CT_FP32, TP_FP8_SCALE_BF16);
    struct tp_op cuda = ops_fp8_1x128(TP_FP8_CUDA, TP_FP8_SCALE_FP32);
    (void)state;
    check_block(&v2, 0.0f, -0.0f, 0x346FACAD, 0x00, 0x80);
    check_block(&ue, 0.0f, 0.0f, 0x69u << 23, 0x00, 0x00);
    check_block(&ct, 0.0f, -0.0f, 0x3C000000, 0x00, 0x80);
    check_block(&v2, 1.0f, INFINITY, TP_F32_INF_BITS, 0x00, 0x7F);
    check_block(&v2, 1.0f, NAN, TP_F32_NAN_BITS, 0x7F, 0x7F);
    check_block(&ue, 1.0f, INFINITY, 254u << 23, 0x00, 0x7E);
    check_block(&ue, -1.0f, NAN, 254u << 23, 0x80, 0x7F);
    check_block(&v2, 448.0f, -448.0f, 0x3F800000, 0x7E, 0xFE);
    check_block(&v2, 0x1p127f, 0x1p127f, tp_f32_bits(0x1p127f / 448.0f), 0x7E, 0x7E);
    check_block(&cuda, 300.0f, 300.0f, tp_f32_bits(300.0f * 0x1.24924ap-9f), 0x7E, 0x7E);
}

static void test_nvfp4_zero_scales(void **state)
{
    struct tp_op ct = ops_nvfp4_ct(TP_NVFP4_CT), ao = ops_nvfp4_ct(TP_NVFP4_TORCHAO);
    struct tp_op mo = ops_nvfp4_ct(TP_NVFP4_MODELOPT);
    (void)state;
    check_block(&ct, 0.0f, -0.0f, 0x20, 0, 8);
    check_block(&ao, 0.0f, -0.0f, 0x08, 0, 8);
    check_block(&mo, 0.0f, -0.0f, 0x38, 0, 0);
    check_block(&ao, 3.0f, -6.0f, 0x38, 5, 15);
}

static void test_w4a8_scales(void **state)
{
    const uint16_t row[3] = {0x3F80, 0x0000, 0x4000}; /* 1, 0, 2 */
    const uint8_t zero[3] = {0, 1, 0};
    uint8_t packed[8], group[3], same[3];
    float channel, again;
    (void)state;
    tp_group8(0x38, packed);
    for (int i = 0; i < 8; i++)
        assert_true(tp_e4m3_value(packed[i]) == (float)(i - 8));
    tp_group8(0x00, packed);
    for (int i = 0; i < 8; i++)
        assert_int_equal(packed[i], 0x80);
    tp_group8(0xFF, packed);
    for (int i = 0; i < 8; i++)
        assert_int_equal(packed[i], 0x7F);
    tp_channel_scale(row, 3, TP_CHANNEL_DIV, false, zero, group, &channel);
    assert_true(channel == 2.0f / 448.0f * 8.0f);
    assert_int_equal(group[0], tp_e4m3_of(28.0f));
    assert_int_equal(group[1], 0);
    assert_int_equal(group[2], tp_e4m3_of(56.0f));
    tp_channel_scale(row, 3, TP_CHANNEL_CPU, true, zero, same, &again);
    assert_true(channel == again);
    assert_memory_equal(group, same, 3);
    for (int f = 0; f < 256; f++) {
        uint64_t word;
        tp_group8(tp_e4m3_of(tp_e4m3_value((uint8_t)f) / 8.0f), packed);
        memcpy(&word, packed, 8);
        assert_true(tp_group8_of_eighth()[f] == word);
    }
}

static void check_channel(enum tp_channel_rule rule, uint16_t max, uint16_t other,
                          uint8_t want, uint32_t want_channel)
{
    const uint16_t row[2] = {max, other};
    const uint8_t zero[2] = {0};
    uint8_t group[2];
    float channel;
    tp_channel_scale(row, 2, rule, false, zero, group, &channel);
    assert_int_equal(group[0], 0x66);
    assert_int_equal(group[1], want);
    assert_int_equal(tp_f32_bits(channel), want_channel);
}

/* Rows in which each rule is another one: gpu by its channel scale, all by a code. */
static void test_channel_rules(void **state)
{
    (void)state;
    check_channel(TP_CHANNEL_GPU, 0x3F8A, 0x3F4F, 0x62, 0x3C9DB6DC);
    check_channel(TP_CHANNEL_CPU, 0x3F8A, 0x3F4F, 0x63, 0x3C9DB6DB);
    check_channel(TP_CHANNEL_DIV, 0x3F8A, 0x3F4F, 0x62, 0x3C9DB6DB);
    check_channel(TP_CHANNEL_GPU, 0x3F9A, 0x3F51, 0x61, 0x3CB00001);
    check_channel(TP_CHANNEL_CPU, 0x3F9A, 0x3F51, 0x62, 0x3CB00000);
    check_channel(TP_CHANNEL_DIV, 0x3F9A, 0x3F51, 0x62, 0x3CB00000);
    for (int rule = TP_CHANNEL_GPU; rule <= TP_CHANNEL_DIV; rule++) {
        struct tp_op a = ops_w4a8_cutlass(0, rule, false);
        assert_true(tp_channel_quotient(0, (enum tp_channel_rule)rule) ==
                    1.0f / (448.0f * 512.0f));
        assert_true(isinf(tp_channel_quotient(0x7F80, (enum tp_channel_rule)rule)));
        assert_true(isnan(tp_channel_quotient(0x7F81, (enum tp_channel_rule)rule)));
        for (int other = TP_CHANNEL_GPU; other <= TP_CHANNEL_DIV; other++) {
            struct tp_op b = ops_w4a8_cutlass(0, other, false);
            assert_int_equal(tp_op_same(&a, &b), rule == other);
        }
    }
}

/* A zero group's substitute scale must not decide the channel when skipped. */
static void test_skip_zero_groups(void **state)
{
    const uint16_t row[2] = {0x3C00, 0x3580}; /* 2^-7 of a zero group; 2^-20 */
    const uint8_t zero[2] = {1, 0};
    uint8_t group[2];
    float keep, skip;
    (void)state;
    tp_channel_scale(row, 2, TP_CHANNEL_CPU, false, zero, group, &keep);
    assert_true(keep == 0x1p-7f / 448.0f * 8.0f);
    tp_channel_scale(row, 2, TP_CHANNEL_CPU, true, zero, group, &skip);
    assert_true(skip == 8.0f / (448.0f * 512.0f));
}

/* What was asked for stays while TP_OPS_KEPT - 1 others are asked for, however often it was found
 * there before. */
static void what_was_asked_for_stays(void **state)
{
    (void)state;
    static struct tp_ops_at kept;
    struct tp_op op = ops_w4a8_ct(TP_INT4_QUOTIENT_FP32);
    struct tp_err err = {0};
    for (uint64_t round = 1; round < 40; round++) {
        const struct tp_box3 box = {1, round % 7 + 1, 128};
        const struct tp_op_at *at = tp_ops_at(&kept, &op, box, false, &err);
        for (uint64_t other = 1; other < TP_OPS_KEPT; other++)
            assert_non_null(tp_ops_at(&kept, &op, (struct tp_box3){1, 100 * round + other, 128},
                                      other % 2, &err));
        assert_ptr_equal(tp_ops_at(&kept, &op, box, false, &err), at);
        assert_int_equal(at->bytes[0], box.n * 64);
    }
    assert_null(tp_ops_at(&kept, &op, (struct tp_box3){UINT64_MAX, 2, 2}, false, &err));
    assert_int_equal(err.code, TP_E_INPUT);
}

static enum tp_place place_of(const char *text) { return tp_place_of(ops_layout(text)); }

static void test_places(void **state)
{
    (void)state;
    assert_int_equal(place_of(OPS_ROW), TP_PLACE_ROW);
    assert_int_equal(place_of("(E, N, K) : (N * K, K, 1)"), TP_PLACE_ROW);
    assert_int_equal(place_of(OPS_GRID(128, 128)), TP_PLACE_ROW);
    assert_int_equal(place_of("(E,N,K/128):(N*(K/128),K/128,1)"), TP_PLACE_ROW);
    assert_int_equal(place_of(OPS_COL), TP_PLACE_COL);
    assert_int_equal(place_of(OPS_GROUP8), TP_PLACE_COL);
    assert_int_equal(place_of(OPS_CHANNEL), TP_PLACE_ROW);
    assert_int_equal(place_of(OPS_W4A8), TP_PLACE_W4A8);
    assert_int_equal(place_of(OPS_TILE_N), TP_PLACE_TILE_N);
    assert_int_equal(place_of(OPS_TILE_N16), TP_PLACE_TILE_N);
    assert_int_equal(place_of(OPS_TILE_K), TP_PLACE_TILE_K);
    assert_int_equal(place_of(OPS_MN_ALIGNED), TP_PLACE_MN_ALIGNED);
    assert_int_equal(place_of(OPS_MN_PACKED4), TP_PLACE_MN_PACKED4);
    /* CUTLASS' atom for bf16 activations, a padded row, a transposed tile: unknown. */
    assert_int_equal(place_of("(E,(8,2,N/16),(2,4,2,K/16)):(N*K,(32,2,256),(1,8,4,16*N))"),
                     TP_PLACE_ANY);
    assert_int_equal(place_of("(E,N,align(K,4)):(N*align(K,4),align(K,4),1)"), TP_PLACE_ANY);
    assert_int_equal(place_of("(E,align(N,4),K):(align(N,4)*K,K,1)"), TP_PLACE_ANY);
    assert_int_equal(place_of("nonsense"), TP_PLACE_ANY);
    assert_int_equal(place_of(NULL), TP_PLACE_ANY);
}

static void test_sizes(void **state)
{
    struct tp_op op = ops_w4a8_cutlass(0, TP_CHANNEL_GPU, false), mx = ops_mxfp8_blocked(0);
    struct tp_box3 box = {2, 48, 512}, odd = {1, 33, 96}, huge = {1, UINT64_MAX / 2, 512};
    struct tp_err err = {0};
    uint64_t bytes;
    (void)state;
    assert_int_equal(tp_op_bytes(&op, 0, box, &bytes, &err), TP_OK);
    assert_int_equal(bytes, 2 * 48 * 512 / 2);
    assert_int_equal(tp_op_bytes(&op, 2, box, &bytes, &err), TP_OK);
    assert_int_equal(bytes, 2 * 48 * 4 * 8);
    assert_int_equal(tp_op_bytes(&op, 3, box, &bytes, &err), TP_OK);
    assert_int_equal(bytes, 2 * 48 * 4);
    assert_int_equal(tp_op_bytes(&mx, 1, odd, &bytes, &err), TP_OK);
    assert_int_equal(bytes, 128 * 4);
    assert_int_not_equal(tp_op_bytes(&mx, 0, huge, &bytes, &err), TP_OK);
}

static void test_repack_possible(void **state)
{
    struct tp_op ct = ops_w4a8_ct(0), cutlass = ops_w4a8_cutlass(0, TP_CHANNEL_GPU, false);
    struct tp_op linear = ops_mxfp8_ct(0), tiles = ops_mxfp8_blocked(0);
    struct tp_op nwise = ops_mxfp8_torchao3d(0, 1), square = ops_mxfp8_torchao3d(0, 32);
    struct tp_op fp32 = ops_fp8_deepseek(0, TP_FP8_SCALE_FP32), bf16 = ops_fp8_ct(TP_FP8_CT_FP32);
    struct tp_op ue8m0 = ops_fp8_deepseek(0, TP_FP8_SCALE_UE8M0), sm100 = ops_fp8_sm100(0);
    struct tp_op nv = ops_nvfp4_ct(TP_NVFP4_CT), modelopt = ops_nvfp4_ct(TP_NVFP4_MODELOPT);
    (void)state;
    assert_true(tp_repack_possible(&ct, &cutlass) && tp_repack_possible(&cutlass, &ct));
    assert_true(tp_repack_possible(&linear, &tiles) && tp_repack_possible(&tiles, &linear));
    assert_false(tp_repack_possible(&linear, &nwise));
    assert_true(tp_repack_possible(&square, &nwise));
    assert_false(tp_repack_possible(&nwise, &square));
    assert_true(tp_repack_possible(&bf16, &fp32));
    assert_false(tp_repack_possible(&fp32, &bf16));
    assert_false(tp_repack_possible(&fp32, &sm100));
    assert_true(tp_repack_possible(&ue8m0, &sm100) && tp_repack_possible(&sm100, &ue8m0));
    assert_true(tp_repack_possible(&sm100, &fp32));
    assert_true(tp_repack_possible(&nv, &modelopt) && tp_repack_possible(&modelopt, &nv));
    assert_true(tp_repack_inverts(&nv, &modelopt) && tp_repack_inverts(&modelopt, &nv));
    assert_false(tp_repack_inverts(&nv, &nv) || tp_repack_inverts(&linear, &nv));
    assert_true(tp_repack_global(&nv, &modelopt, 3.0f) == 1.0f / 3.0f);
    assert_true(tp_repack_global(&nv, &nv, 3.0f) == 3.0f);
    assert_false(tp_repack_possible(&ct, &linear));
}

static void test_stats(void **state)
{
    enum { COUNT = 5000 };
    float values[COUNT];
    uint16_t halves[COUNT];
    struct tp_value_stats stats;
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        values[i] = (float)(i % 100) - 50.0f;
        halves[i] = tp_f32_to_f16(values[i]);
    }
    tp_value_stats(TP_F32, values, COUNT, &stats);
    assert_true(stats.amax == 50.0f && stats.nonfinite == 0);
    values[4321] = NAN;
    values[4400] = -INFINITY;
    values[17] = 1e30f;
    tp_value_stats(TP_F32, values, COUNT, &stats);
    assert_true(stats.amax == 1e30f && stats.nonfinite == 2 && stats.first_nonfinite == 4321);
    halves[4999] = 0xFC00;
    tp_value_stats(TP_F16, halves, COUNT, &stats);
    assert_true(stats.amax == 50.0f && stats.nonfinite == 1 && stats.first_nonfinite == 4999);
    tp_value_stats(TP_BF16, halves, 0, &stats);
    assert_true(stats.amax == 0.0f && stats.nonfinite == 0);
}

/* Each byte at each place of two strides and what is left. */
static void nan_codes_are_found(void **state)
{
    (void)state;
    for (size_t at = 0; at < 133; at++)
        for (unsigned code = 0; code < 256; code++) {
            uint8_t codes[133] = {0};
            codes[at] = (uint8_t)code;
            assert_int_equal(tp_e4m3_any_nan(codes, sizeof codes), (code & 127) == 127);
            assert_false(tp_e4m3_any_nan(codes, at));
        }
}

/* Five exponent bits: every scale byte, lifted as far as e4m3 has room, is the number that it
 * stands for, or 0 where that is too small; what is no scale is NaN. */
static void e5m3_holds_lifted_scales(void **state)
{
    (void)state;
    for (unsigned scale_shift = 0; scale_shift < 18; scale_shift++)
        for (unsigned code = 0; code < 256; code++) {
            float want = tp_e4m3_value((uint8_t)code & 0x7F) * (float)(1 << scale_shift);
            uint8_t byte = tp_e5m3_of((uint8_t)code, scale_shift), back = tp_e5m3_to_e4m3(byte);
            if ((code & 0x7F) == 0)
                assert_int_equal(byte, 0);
            else if (code >= 0x7F || want > 448.0f)
                assert_int_equal(byte, 0xF7);
            else
                assert_true(tp_e4m3_value(back) == (want < 0.015625f ? 0.0f : want));
        }
    for (unsigned byte = 0; byte < 256; byte++)
        assert_int_equal(tp_e5m3_to_e4m3((uint8_t)byte),
                         byte < 0x80 ? 0 : byte > 0xF6 ? 0x7F : byte - 0x78);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_asked_for_stays),
        cmocka_unit_test(test_e4m3_edges),   cmocka_unit_test(test_casts_are_nearest),
        cmocka_unit_test(test_halves),       cmocka_unit_test(test_e8m0),
        cmocka_unit_test(test_mxfp8_cases),  cmocka_unit_test(test_int4_cases),
        cmocka_unit_test(test_fp8_cases),    cmocka_unit_test(test_nvfp4_zero_scales),
        cmocka_unit_test(test_w4a8_scales),  cmocka_unit_test(test_channel_rules),
        cmocka_unit_test(test_skip_zero_groups), cmocka_unit_test(test_places),
        cmocka_unit_test(test_sizes),        cmocka_unit_test(test_repack_possible),
        cmocka_unit_test(e5m3_holds_lifted_scales),
        cmocka_unit_test(test_stats),
        cmocka_unit_test(nan_codes_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
