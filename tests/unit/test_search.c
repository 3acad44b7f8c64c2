/* The scale search on small blocks whose result is known, its borders, and what holds for
 * every block: no error grows, bytes do not depend on boxes, and only rows of kernels that say
 * so take a searched operation. Golden files are test_search_golden.c's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../tools/ops.h"
#include "kernels/op/codec.h"
#include "kernels/op/row_set.h"
#include "kernels/op/search.h"
#include "kernels/op/search_scalar.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_K = 1024, MAX_CODES = 16 * MAX_K };

static uint64_t seed = 20261122;

static uint64_t next(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static float normal(void)
{
    float sum = 0.0f;
    for (int i = 0; i < 4; i++)
        sum += (float)(next() >> 40) * 0x1p-24f - 0.5f;
    return sum;
}

static void fill(float *values, uint64_t count, float spread)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] = normal() * spread;
}

static struct tp_op searched(struct tp_op op, enum tp_search search, bool is_signed,
                             enum tp_importance importance)
{
    op.search = (uint8_t)search;
    op.search_signed = is_signed;
    op.importance = (uint8_t)importance;
    return op;
}

/* The reference over a whole weight; what lies behind the scratch must stay. */
struct packed {
    uint8_t codes[MAX_CODES];
    uint16_t scales[MAX_CODES / 16];
    uint32_t flags;
};

static struct packed encode(const struct tp_op *op, struct tp_box3 box, const float *values,
                            const float *importance)
{
    static struct packed p;
    size_t size = tp_encode_scratch(op, box);
    uint8_t *scratch = malloc(size + 64);
    float global;
    struct tp_args args = {.box = box, .dtype = TP_F32, .in = {values},
                           .importance = importance, .global = 8.0f, .scratch = scratch};
    memset(&p, 0, sizeof p);
    memset(scratch + size, 0xC3, 64);
    args.out[0] = p.codes;
    args.out[1] = p.scales;
    args.out[2] = &global;
    tp_encode_ref(op, &args);
    for (int i = 0; i < 64; i++)
        assert_int_equal(scratch[size + (size_t)i], 0xC3);
    free(scratch);
    p.flags = args.flags;
    return p;
}

static void same(const struct packed *a, const struct packed *b)
{
    assert_memory_equal(a->codes, b->codes, sizeof a->codes);
    assert_memory_equal(a->scales, b->scales, sizeof a->scales);
    assert_int_equal(a->flags, b->flags);
}

/* ---- which search, and who carries it out --------------------------------- */

static void test_searches(void **state)
{
    struct tp_op ct = ops_w4a8_ct(0), kernel = ops_w4a8_cutlass(0, TP_CHANNEL_CPU, false);
    struct tp_op fp8 = ops_fp8_deepseek(0, 0), mx = ops_mxfp8_ct(0), nv = ops_nvfp4_ct(0);
    struct tp_op none = ct;
    (void)state;
    assert_int_equal(tp_op_search(&ct), TP_SEARCH_NONE);
    ct.search = kernel.search = fp8.search = mx.search = nv.search = TP_SEARCH_MSE;
    assert_int_equal(tp_op_search(&ct), TP_SEARCH_MSE);
    assert_int_equal(tp_op_search(&kernel), TP_SEARCH_W4A8);
    assert_int_equal(tp_op_search(&nv), TP_SEARCH_MSE);
    assert_int_equal(tp_op_search(&fp8), TP_SEARCH_NONE);
    assert_int_equal(tp_op_search(&mx), TP_SEARCH_NONE);
    assert_true(tp_op_same(&ct, &none)); /* the bytes mean the same */
    ct.search = kernel.search = TP_SEARCH_W4A8;
    assert_int_equal(tp_op_search(&ct), TP_SEARCH_W4A8);
    assert_int_equal(tp_op_search(&kernel), TP_SEARCH_W4A8);
    assert_true(tp_repack_possible(&ct, &kernel) && tp_repack_possible(&none, &kernel));
}

/* A row takes an operation only with the search that it carries out. */
static void test_rows_refuse(void **state)
{
    struct tp_op ops[4] = {ops_w4a8_ct(0), ops_w4a8_cutlass(0, TP_CHANNEL_DIV, false), ops_nvfp4_ct(0),
                           ops_mxfp4_blocked(TP_MX_EVEN)};
    const struct tp_row_set *set = tp_host_rows();
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int search = TP_SEARCH_NONE; search <= TP_SEARCH_W4A8; search++) {
            struct tp_op op = searched(ops[i], search, false, TP_IMPORTANCE_NONE);
            tp_encode_fn found = tp_encode_find(&op, TP_BF16);
            bool any = false;
            for (size_t r = 0; r < set->encodes; r++) {
                bool fits = tp_encode_row_fits(&set->encode[r], &op, TP_BF16);
                assert_true(!fits || set->encode[r].search == tp_op_search(&op));
                any |= fits && set->encode[r].encode == found;
            }
            assert_true(any || found == tp_encode_ref);
        }
}

/* Boxes of a w4a8 search are whole rows; those of the others are as without a search. */
static void test_granule(void **state)
{
    static const enum tp_search searches[] = {TP_SEARCH_NONE, TP_SEARCH_MSE, TP_SEARCH_W4A8};
    static const uint64_t columns[] = {128, 128, 0};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct tp_op op = searched(ops_w4a8_ct(0), searches[i], false, TP_IMPORTANCE_NONE);
        struct tp_err err = {0};
        uint64_t n, k;
        assert_int_equal(tp_op_granule(&op, &n, &k, &err), TP_OK);
        assert_int_equal(n, 1);
        assert_int_equal(k, columns[i]);
    }
}

/* ---- candidates ------------------------------------------------------------ */

static void test_candidates(void **state)
{
    static const int offsets[TP_SEARCH_NVFP4] = {0, -1, 1, -2, 2, 3, 4, 5, 6};
    static const int tops[TP_SEARCH_TOPS] = {0, 920, 840, 760};
    const uint32_t one = 0x3F800000;
    (void)state;
    assert_int_equal(tp_search_int4_scale(one, false, false, 0), tp_f32_to_bf16(1.0f / 7.5f));
    assert_int_equal(tp_search_int4_scale(one, false, true, 0), tp_f32_to_bf16(0.125f));
    assert_int_equal(tp_search_int4_scale(one, false, true, 1), tp_f32_to_bf16(1030.0f / 8000.0f));
    for (int i = 2; i < TP_SEARCH_INT4; i++)
        for (int half = 0; half < 2; half++)
            assert_int_equal(tp_search_int4_scale(one, half, false, i),
                             (half ? tp_f32_to_f16 : tp_f32_to_bf16)(
                                 (float)(970 - 30 * (i - 2)) / 7500.0f));
    for (int r = 1; r < TP_SEARCH_TOPS; r++)
        assert_int_equal(tp_search_w4a8_top(one, false, r),
                         tp_f32_to_bf16((float)tops[r] / 7500.0f));
    for (int i = 0; i < TP_SEARCH_NVFP4; i++)
        assert_int_equal(tp_search_nvfp4_byte(0x40, i), 0x40 + offsets[i]);
    assert_int_equal(tp_search_mxfp4_byte(one, 126, 0), 126);
    assert_int_equal(tp_search_mxfp4_byte(one, 126, 1), 125);
    assert_int_equal(tp_search_mxfp4_byte(one, 126, 2), 126);
    assert_int_equal(tp_search_root(1.0f), 15);
    assert_int_equal(tp_search_root(0.0f), 1);
    assert_int_equal(tp_search_root(0.01f), 2); /* 1.5, to even */
}

/* What the text calls integers: a bf16 scale of an int4 candidate has no bit below. */
static void test_steps_are_integers(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100000; i++) {
        uint32_t amax = TP_SEARCH_MIN + (uint32_t)(next() % (TP_F32_INF_BITS - TP_SEARCH_MIN));
        int e = tp_search_exponent(amax), c = (int)(next() % TP_SEARCH_INT4);
        uint16_t s = tp_search_int4_scale(amax, false, i & 1, c);
        float step = tp_bf16_to_f32(s) * tp_search_pow2(11 - e);
        assert_true(step == (float)tp_search_int4_step(s, false, e) && step >= 1.0f);
        assert_true(tp_search_int(tp_bits_f32(amax), e) <= 4096);
    }
    for (int t = 1; t <= TP_SEARCH_TOP_G; t++) /* the largest a that has t or t + 3 next to it */
        for (int m = 1; m <= 8; m++) {
            int e = tp_search_exponent(tp_f32_bits(tp_e4m3_value((uint8_t)t) * 8.0f * 1.5f));
            float v = tp_e4m3_value(tp_e4m3_of(tp_e4m3_value((uint8_t)t) * (float)m));
            assert_true(v * tp_search_pow2(11 - e) ==
                        (float)tp_search_w4a8_multiple((uint8_t)t, m, e));
        }
}

/* Candidates of type F16 are finite and no zero wherever they are searched, smaller one by one
 * but for the second; and no value is so far from all of a candidate's that a root weight times
 * the distance leaves a signed word. */
static void test_half_candidates(void **state)
{
    (void)state;
    for (uint32_t amax = TP_SEARCH_F16_MIN; amax < TP_SEARCH_F16_END; amax += 4099)
        for (int is_signed = 0; is_signed < 2; is_signed++) {
            int e = tp_search_exponent(amax);
            uint16_t before = 0x7C00;
            for (int i = 1; i < TP_SEARCH_INT4; i++) {
                uint16_t s = tp_search_int4_scale(amax, true, is_signed, i);
                int32_t step = tp_search_int4_step(s, true, e);
                assert_true(s > 0 && s < before);
                assert_true((tp_search_int(tp_bits_f32(amax), e) - 7 * step) *
                                TP_SEARCH_MAX_ROOT <= INT16_MAX);
                before = s;
            }
        }
    assert_true(tp_search_f16_live(TP_SEARCH_F16_MIN));
    assert_false(tp_search_f16_live(TP_SEARCH_F16_MIN - 1));
    assert_false(tp_search_f16_live(TP_SEARCH_F16_END));
}

/* ---- blocks that are not searched ------------------------------------------ */

static struct tp_op any_op(int i)
{
    const struct tp_op ops[] = {ops_w4a8_ct(TP_INT4_QUOTIENT_FP32),
                                ops_w4a8_ct(TP_INT4_QUOTIENT_BF16),
                                ops_nvfp4_ct(TP_NVFP4_CT),
                                ops_nvfp4_ct(TP_NVFP4_TORCHAO),
                                ops_nvfp4_ct(TP_NVFP4_MODELOPT),
                                ops_mxfp4_ct(TP_MX_EVEN),
                                ops_mxfp4_ct(TP_MX_CEIL),
                                ops_mxfp4_ct(TP_MX_RCEIL)};
    return ops[i];
}
enum { ANY_OPS = 8 };

/* Every search that an operation may ask for. */
static struct tp_op any_search(const struct tp_op *op, unsigned i)
{
    enum tp_search search = op->codec == TP_CODEC_INT4 && i & 1 ? TP_SEARCH_W4A8 : TP_SEARCH_MSE;
    return searched(*op, search, i & 2, (enum tp_importance)(i >> 2));
}
enum { ANY_SEARCHES = 12 };

static void test_not_searched(void **state)
{
    static const float odd[] = {0.0f, -0.0f, 0x1p-149f, 0x1.fffffep-101f, INFINITY, -INFINITY, NAN};
    const struct tp_box3 box = {1, 1, 128};
    float values[128], importance[128];
    (void)state;
    fill(importance, 128, 0.0f);
    for (size_t v = 0; v < sizeof odd / sizeof odd[0]; v++)
        for (int i = 0; i < ANY_OPS; i++) {
            struct tp_op plain = any_op(i);
            fill(values, 128, 0x1p-101f);
            for (int b = 0; b < 128; b += 16) /* in every block */
                values[b + 5] = odd[v];
            struct packed want = encode(&plain, box, values, NULL);
            for (unsigned s = 0; s < ANY_SEARCHES; s++) {
                struct tp_op op = any_search(&plain, s);
                struct packed got = encode(&op, box, values, importance);
                same(&got, &want);
            }
        }
}

/* Too large for its global scale: every scale saturates. */
static void test_nvfp4_borders(void **state)
{
    (void)state;
    assert_true(tp_search_nvfp4_live(0x3F800000, 2688.0f));
    assert_false(tp_search_nvfp4_live(0x3F800000, 4096.0f));
    assert_false(tp_search_nvfp4_live(0x3F800000, INFINITY));
    assert_false(tp_search_nvfp4_live(0x3F800000, NAN));
    assert_false(tp_search_nvfp4_live(0x3F800000, -8.0f));
    assert_false(tp_search_nvfp4_live(0x3F800000, 6.0f * 0x1p-10f)); /* e4m3 of a tie: 0 */
    assert_true(tp_search_nvfp4_live(0x3F800000, 6.01f * 0x1p-10f));
    assert_false(tp_search_nvfp4_live(TP_SEARCH_MIN - 1, 8.0f));
}

/* ---- known results ---------------------------------------------------------- */

/* Multiples of a scale that is a candidate are met without error. */
static void test_exact_blocks(void **state)
{
    struct tp_op op = searched(ops_w4a8_ct(0), TP_SEARCH_MSE, false, TP_IMPORTANCE_NONE);
    const struct tp_box3 box = {1, 1, 128};
    float values[128];
    (void)state;
    for (int i = 0; i < 128; i++) /* -8 .. 7: 8 / 7.5 of the plain scale, 1.03 is nearer */
        values[i] = (float)(i % 16 - 8);
    op.search_signed = true; /* am / 8 = 1 */
    struct packed p = encode(&op, box, values, NULL);
    assert_int_equal(p.scales[0], 0x3F80);
    assert_int_equal(p.codes[0], 0x10);
    for (int i = 0; i < 128; i++)
        values[i] = -values[i];
    p = encode(&op, box, values, NULL);
    assert_int_equal(p.scales[0], 0xBF80);
    assert_int_equal(p.codes[0], 0x10);
    op.search_signed = false; /* the largest value has no code: it is clipped to 7 */
    p = encode(&op, box, values, NULL);
    assert_int_equal(p.scales[0] & 0x8000, 0);
    assert_int_equal(p.codes[0] & 15, 15);
}

/* Blocks that two candidates meet alike: the first of them wins. */
static void test_first_of_equals(void **state)
{
    struct tp_op int4 = searched(ops_w4a8_ct(0), TP_SEARCH_MSE, false, TP_IMPORTANCE_NONE);
    struct tp_op nv = searched(ops_nvfp4_ct(TP_NVFP4_TORCHAO), TP_SEARCH_MSE, false,
                               TP_IMPORTANCE_MAGNITUDE);
    struct tp_op mx = searched(ops_mxfp4_ct(TP_MX_CEIL), TP_SEARCH_MSE, false,
                               TP_IMPORTANCE_NONE);
    const struct tp_box3 box = {1, 1, 128};
    float values[128];
    (void)state;
    for (int i = 0; i < 128; i++)
        values[i] = 24.0f;
    struct packed p = encode(&nv, box, values, NULL); /* global 8: scale 0.5 gives 6 */
    assert_int_equal(((uint8_t *)p.scales)[0], tp_e4m3_of(0.5f));
    p = encode(&mx, box, values, NULL); /* 3 * 8 and 6 * 4 are both exact; ceil says 8 */
    assert_int_equal(((uint8_t *)p.scales)[0], 127 + 3);
    for (int i = 0; i < 128; i++) /* 264 / 2048 is as far from both as the plain 274 / 2048 */
        values[i] = i < 8 ? 1.0f : 0.09375f;
    p = encode(&int4, box, values, NULL);
    assert_int_equal(p.scales[0], tp_f32_to_bf16(1.0f / 7.5f));
}

/* A row too small for the kernel's scales: all zeros there, one scale for all groups. */
static void test_dead_rows(void **state)
{
    struct tp_op op = searched(ops_w4a8_ct(0), TP_SEARCH_W4A8, true, TP_IMPORTANCE_MAGNITUDE);
    const struct tp_box3 box = {1, 1, 256};
    float values[256];
    (void)state;
    fill(values, 256, 1e-8f);
    values[3] = 3e-8f;
    struct packed p = encode(&op, box, values, NULL);
    for (int i = 0; i < 128; i++)
        assert_int_equal(p.codes[i], 0x88);
    assert_int_equal(p.scales[0], tp_f32_to_bf16(3e-8f / 8.0f));
    assert_int_equal(p.scales[1], p.scales[0]);
}

/* A group of zeros takes the scale of the row's largest group. */
static void test_zero_groups(void **state)
{
    struct tp_op op = searched(ops_w4a8_ct(0), TP_SEARCH_W4A8, false, TP_IMPORTANCE_NONE);
    const struct tp_box3 box = {1, 1, 384};
    float values[384] = {0};
    (void)state;
    fill(values + 128, 128, 0.01f);
    fill(values + 256, 128, 0.02f);
    struct packed p = encode(&op, box, values, NULL);
    assert_int_equal(p.codes[0], 0x88);
    assert_int_equal(p.scales[0], p.scales[2]);
    assert_true(p.scales[1] < p.scales[2]);
}

/* The channel scale is the output's own rule's of one of the four scales of the top group, which
 * has g = 56 times the sign. */
static void test_channel_rules(void **state)
{
    const struct tp_box3 box = {1, 1, 256};
    float values[256], channel, quotient;
    uint8_t codes[128], group8[16];
    unsigned differ = 0;
    (void)state;
    for (int i = 0; i < 300; i++) {
        struct tp_op op = searched(ops_w4a8_cutlass(0, i % 3, false), TP_SEARCH_MSE, i & 1,
                                   TP_IMPORTANCE_NONE);
        struct tp_args args = {.box = box, .dtype = TP_F32, .in = {values}};
        int found = 0;
        op.out[0].layout = ops_layout(OPS_ROW);
        fill(values, 256, 0.01f);
        values[200] = i & 2 ? 0.03f : -0.03f;
        args.scratch = malloc(tp_encode_scratch(&op, box));
        memcpy(args.out, (void *[]){codes, NULL, group8, &channel}, 4 * sizeof(void *));
        tp_encode_ref(&op, &args);
        free(args.scratch);
        assert_int_equal(group8[15], (i & 3) == 3 ? 0x66 : 0xE6);
        for (int r = 0; r < TP_SEARCH_TOPS; r++) {
            uint16_t top = tp_search_w4a8_top(tp_f32_bits(0.03f), i & 1, r);
            quotient = tp_channel_quotient(top, (enum tp_channel_rule)(i % 3));
            found += channel == quotient * 8.0f;
            differ += quotient != tp_channel_quotient(top, TP_CHANNEL_CPU);
        }
        assert_int_equal(found, 1);
    }
    assert_true(differ > 0);
}

/* ---- what holds for every block ---------------------------------------------- */

static double value_of(const struct tp_op *op, const struct packed *p, uint64_t i, float global)
{
    uint8_t code = p->codes[i / 2] >> (i & 1 ? 4 : 0) & 15;
    uint64_t j = i / op->block_k;
    uint32_t bits = op->codec == TP_CODEC_INT4 ? p->scales[j] : ((const uint8_t *)p->scales)[j];
    double s = (double)tp_codec_scale_value(op, bits);
    if (op->codec == TP_CODEC_NVFP4)
        s = op->rule == TP_NVFP4_CT ? s / (double)global : s * (double)global;
    return (double)tp_codec_code_value(op, code) * s;
}

static double error_of(const struct tp_op *op, const struct packed *p, const float *values,
                       uint64_t count)
{
    double sum = 0.0;
    for (uint64_t i = 0; i < count; i++) {
        double d = (double)values[i] - value_of(op, p, i, 8.0f);
        sum += d * d;
    }
    return sum;
}

/* The search gains on the plain rule, but for the rounding to 12 bits; on Gaussian values
 * int4 and NVFP4 gain something. */
static void test_errors_shrink(void **state)
{
    const struct tp_box3 box = {1, 8, MAX_K};
    float values[8 * MAX_K];
    (void)state;
    for (int round = 0; round < 8; round++)
        for (int i = 0; i < ANY_OPS; i++) {
            struct tp_op plain = any_op(i), op = any_search(&plain, 0), both = any_search(&plain, 2);
            fill(values, 8 * MAX_K, plain.rule == TP_NVFP4_CT ? 20.0f : 300.0f);
            struct packed none = encode(&plain, box, values, NULL);
            double before = error_of(&plain, &none, values, 8 * MAX_K);
            struct packed p = encode(&op, box, values, NULL);
            double after = error_of(&op, &p, values, 8 * MAX_K);
            assert_true(after <= before * (plain.codec == TP_CODEC_MXFP4 ? 1.0001 : 0.95));
            p = encode(&both, box, values, NULL);
            assert_true(plain.codec != TP_CODEC_INT4 ||
                        error_of(&op, &p, values, 8 * MAX_K) < after);
        }
}

/* Equal importances, and none given, are no importance; one column alone is met best. */
static void test_importance(void **state)
{
    const struct tp_box3 box = {2, 3, 256};
    float values[2 * 3 * 256], h[2 * 256];
    (void)state;
    for (int i = 0; i < ANY_OPS; i++)
        for (unsigned s = 0; s < 4; s++) {
            struct tp_op plain = any_op(i), none = any_search(&plain, s), file;
            file = searched(none, (enum tp_search)none.search, none.search_signed,
                            TP_IMPORTANCE_FILE);
            fill(values, 2 * 3 * 256, 1.0f);
            for (int k = 0; k < 512; k++)
                h[k] = k < 256 ? 3.0f : (float)(k % 3) * 0x1p-103f; /* the second's: too small */
            struct packed want = encode(&none, box, values, NULL);
            struct packed got = encode(&file, box, values, h);
            same(&got, &want);
            got = encode(&file, box, values, NULL);
            same(&got, &want);
            h[7] = 300.0f;
            got = encode(&file, box, values, h);
            double a = 0.0, b = 0.0;
            for (int n = 0; n < 3; n++) {
                uint64_t at = (uint64_t)n * 256 + 7;
                double x = (double)values[at];
                a += fabs(x - value_of(&none, &want, at, 8.0f));
                b += fabs(x - value_of(&file, &got, at, 8.0f));
            }
            assert_true(b <= a || none.search == TP_SEARCH_W4A8);
            assert_memory_equal(got.codes + 3 * 128, want.codes + 3 * 128, 3 * 128);
        }
}

/* Rows one by one, with their own experts' importance: the same bytes. */
static void test_boxes(void **state)
{
    const struct tp_box3 box = {2, 3, 512}, row = {1, 1, 512};
    static float values[2 * 3 * 512], h[2 * 512];
    (void)state;
    for (int i = 0; i < ANY_OPS; i++)
        for (unsigned s = 0; s < ANY_SEARCHES; s++) {
            struct tp_op plain = any_op(i), op = any_search(&plain, s);
            uint64_t scales = 512 / op.block_k * (op.codec == TP_CODEC_INT4 ? 2 : 1);
            fill(values, 2 * 3 * 512, 0.03f);
            for (int k = 0; k < 2 * 512; k++)
                h[k] = (float)exp((double)normal() * 4.0);
            struct packed want = encode(&op, box, values, h);
            for (uint64_t r = 0; r < 6; r++) {
                struct packed got = encode(&op, row, values + r * 512, h + r / 3 * 512);
                assert_memory_equal(got.codes, want.codes + r * 256, 256);
                assert_memory_equal(got.scales, (uint8_t *)want.scales + r * scales, scales);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_searches),        cmocka_unit_test(test_rows_refuse),
        cmocka_unit_test(test_granule),         cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_steps_are_integers),
        cmocka_unit_test(test_half_candidates), cmocka_unit_test(test_not_searched),
        cmocka_unit_test(test_nvfp4_borders),   cmocka_unit_test(test_exact_blocks),
        cmocka_unit_test(test_first_of_equals), cmocka_unit_test(test_dead_rows),
        cmocka_unit_test(test_channel_rules),
        cmocka_unit_test(test_zero_groups),     cmocka_unit_test(test_errors_shrink),
        cmocka_unit_test(test_importance),      cmocka_unit_test(test_boxes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
