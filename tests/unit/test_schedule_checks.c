/* The checks: operands that are right pass them all; then one thing at a time is
 * made wrong, and exactly the check that is about it must fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pack/schedule/schedule.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { DENSE = 1, CONTIGUOUS = 2, MASKED = 4, WGRAD = 8, GROUPED = CONTIGUOUS | MASKED };

static struct tp_sched_problem problem_of(enum tp_sched_kernel kernel, int kind)
{
    struct tp_sched_problem p = {.kernel = kernel, .arch = 9, .m = 512, .n = 4096, .k = 7168,
                                 .groups = 1, .experts = 1, .sms = 132};
    if (kind & GROUPED)
        p.experts = 4;
    p.contiguous = kind == CONTIGUOUS;
    p.masked = kind == MASKED;
    p.wgrad = p.fp32_out = kind == WGRAD;
    if (p.masked)
        p.groups = 4;
    return p;
}

/* One test: everything a mutation may touch. */
struct trial {
    struct tp_sched_problem p;
    struct tp_sched_operands o;
    struct tp_sched_plan plan;
};

static struct trial trial_of(enum tp_sched_kernel kernel, int kind, uint32_t arch)
{
    struct trial t = {.p = problem_of(kernel, kind)};
    struct tp_err err = {0};
    t.p.arch = arch;
    t.p.one_d = arch == 10;
    assert_int_equal(tp_sched_plan(&t.p, 1, &t.plan, &err), TP_OK);
    assert_int_equal(t.plan.count, 1);
    tp_sched_operands(&t.p, &t.o);
    return t;
}

static void checks_of(const struct trial *t, struct tp_sched_checks *checks)
{
    checks->count = 0;
    if (t->p.kernel == TP_SCHED_DEEPGEMM_2025)
        tp_sched_checks_2025(&t->p, &t->o, &t->plan, checks);
    else
        tp_sched_checks_newest(&t->p, &t->o, &t->plan, checks);
    tp_sched_checks_gates(&t->p, &t->o, checks);
}

/* `ids` is a list of ids, each between commas: ",7.2.1,7.2.3,". */
static void expect_failures(const struct tp_sched_checks *checks, const char *ids)
{
    size_t failures = 0, wanted = 0;
    for (const char *at = ids; *at; at++)
        wanted += *at == ',' && at[1];
    for (size_t i = 0; i < checks->count; i++) {
        char id[32];
        snprintf(id, sizeof id, ",%s,", checks->check[i].id);
        bool expected = strstr(ids, id) != NULL;
        if (expected == checks->check[i].pass)
            fail_msg("check %s (%s): %s", checks->check[i].id,
                     checks->check[i].pass ? "passed" : "failed", checks->check[i].reason);
        failures += !checks->check[i].pass;
        assert_true(checks->check[i].reason[0]);
    }
    assert_int_equal(failures, wanted);
}

/* --- May 2025 --- */

static void out_shape(struct trial *t) { t->o.out.shape[t->o.out.rank - 1]++; }
static void out_rows(struct trial *t) { t->o.out.shape[t->o.out.rank - 2]++; }
static void rhs_k(struct trial *t) { t->o.rhs.rank = 1; }
static void lhs_rank(struct trial *t) { t->o.lhs.rank ^= 1; }
static void n_zero(struct trial *t)
{
    t->o.rhs.shape[t->o.rhs.rank - 2] = 0;
    t->o.out.shape[t->o.out.rank - 1] = 0;
    t->o.rhs_scales.shape[t->o.rhs_scales.rank - 2] = 0;
}
static void lhs_scale_shape(struct trial *t) { t->o.lhs_scales.shape[t->o.lhs_scales.rank - 1]--; }
static void lhs_scale_rows(struct trial *t) { t->o.lhs_scales.shape[t->o.lhs_scales.rank - 2]++; }
static void rhs_scale_shape(struct trial *t) { t->o.rhs_scales.shape[t->o.rhs_scales.rank - 2]++; }
static void lhs_dtype(struct trial *t) { t->o.lhs.dtype = TP_F8_E5M2; }
static void rhs_dtype(struct trial *t) { t->o.rhs.dtype = TP_BF16; }
static void lhs_scale_dtype(struct trial *t) { t->o.lhs_scales.dtype = TP_BF16; }
static void rhs_scale_dtype(struct trial *t) { t->o.rhs_scales.dtype = TP_BF16; }
static void out_dtype(struct trial *t) { t->o.out.dtype = TP_F16; }
static void lhs_column_stride(struct trial *t) { t->o.lhs.stride[t->o.lhs.rank - 1] = 2; }
static void rhs_column_stride(struct trial *t) { t->o.rhs.stride[t->o.rhs.rank - 1] = 2; }
static void out_column_stride(struct trial *t) { t->o.out.stride[t->o.out.rank - 1] = 2; }
static void lhs_row_stride(struct trial *t) { t->o.lhs.stride[t->o.lhs.rank - 2] += 8; }
static void rhs_row_stride(struct trial *t) { t->o.rhs.stride[t->o.rhs.rank - 2] += 8; }
static void out_row_stride(struct trial *t) { t->o.out.stride[t->o.out.rank - 2] += 4; }
static void out_row_stride_2(struct trial *t) { t->o.out.stride[t->o.out.rank - 2] += 2; }
static void rhs_scale_stride(struct trial *t)
{
    t->o.rhs_scales.stride[t->o.rhs_scales.rank - 2]++;
}
static void tile_n(struct trial *t) { t->plan.config[0].block_n = 200; }
static void tile_m(struct trial *t) { t->plan.config[0].block_m = 96; }
static void indices_count(struct trial *t) { t->o.m_indices.shape[0]--; }
static void indices_dtype(struct trial *t) { t->o.m_indices.dtype = TP_I64; }
static void indices_stride(struct trial *t) { t->o.m_indices.stride[0] = 2; }
static void group_count(struct trial *t) { t->o.masked_m.shape[0]--; }
static void expected_zero(struct trial *t) { t->p.m = 0; }
static void masked_dtype(struct trial *t) { t->o.masked_m.dtype = TP_I64; }
static void masked_stride(struct trial *t) { t->o.masked_m.stride[0] = 2; }
static void sms_zero(struct trial *t) { t->p.sms = 0; }
static void sms_many(struct trial *t) { t->o.device_sms = t->p.sms - 2; }
static void refused(struct trial *t)
{
    t->plan.count = 0;
    strcpy(t->plan.refused, "no pipeline depth fits");
}
static void more_sms(struct trial *t) { t->plan.config[0].sms = t->p.sms + 1; }
static void other_device(struct trial *t) { t->p.arch = 10; }

static const struct {
    int kinds;
    void (*break_it)(struct trial *t);
    const char *fails;
} rows_2025[] = {
    {DENSE | WGRAD, out_shape, ",7.2.1,"},
    {CONTIGUOUS, out_shape, ",7.2.1,7.2.14,"},
    {MASKED, out_shape, ",7.2.1,7.2.18,"},
    {DENSE | WGRAD, out_rows, ",7.2.1,"},
    {DENSE | WGRAD, lhs_dtype, ",7.2.5,"},
    {DENSE | GROUPED | WGRAD, rhs_dtype, ",7.2.5,"},
    {DENSE | GROUPED | WGRAD, lhs_scale_dtype, ",7.2.5,"},
    {DENSE | GROUPED | WGRAD, rhs_scale_dtype, ",7.2.5,"},
    {WGRAD, out_dtype, ",7.2.5,"},
    {DENSE | GROUPED, out_dtype, ",7.2.5,gate.sglang,gate.vllm,"},
    {DENSE | GROUPED | WGRAD, lhs_scale_shape, ",7.2.3,"},
    {DENSE | GROUPED | WGRAD, lhs_scale_rows, ",7.2.3,"},
    {DENSE | WGRAD, rhs_scale_shape, ",7.2.4,"},
    {GROUPED, rhs_scale_shape, ",7.2.4,7.2.8,"},
    {DENSE | WGRAD, lhs_column_stride, ",7.2.6,"},
    {DENSE | WGRAD, rhs_column_stride, ",7.2.6,"},
    {DENSE | WGRAD, out_column_stride, ",7.2.6,"},
    {CONTIGUOUS, lhs_column_stride, ",7.2.6,7.2.14,"},
    {MASKED, rhs_column_stride, ",7.2.6,7.2.18,"},
    {DENSE | WGRAD, lhs_row_stride, ",7.2.7,"},
    {DENSE | WGRAD, rhs_row_stride, ",7.2.7,"},
    {DENSE, out_row_stride, ",7.2.7,"},
    {WGRAD, out_row_stride, ","}, /* a multiple of 4 is enough there */
    {WGRAD, out_row_stride_2, ",7.2.7,"},
    {CONTIGUOUS, out_row_stride, ",7.2.7,7.2.14,"},
    {MASKED, out_row_stride, ",7.2.7,7.2.18,"},
    {DENSE | GROUPED, rhs_scale_stride, ",7.2.8,"},
    {WGRAD, rhs_scale_stride, ","}, /* not asserted for weight gradients */
    {DENSE | GROUPED | WGRAD, tile_n, ",7.2.10,"},
    {DENSE | CONTIGUOUS | WGRAD, tile_m, ",7.2.11,"},
    {MASKED, tile_m, ",7.2.11,7.2.19,"},
    {CONTIGUOUS, indices_count, ",7.2.12,"},
    {CONTIGUOUS, indices_dtype, ",7.2.13,"},
    {CONTIGUOUS, indices_stride, ",7.2.14,"},
    {MASKED, group_count, ",7.2.15,"},
    {MASKED, expected_zero, ",7.2.16,"},
    {MASKED, masked_dtype, ",7.2.17,"},
    {MASKED, masked_stride, ",7.2.18,"},
    {DENSE | GROUPED | WGRAD, sms_zero, ",7.2.21,7.2,"},
    {DENSE | GROUPED | WGRAD, sms_many, ",7.2.21,"},
    {DENSE | GROUPED | WGRAD, refused, ",7.1,"},
    {DENSE | GROUPED | WGRAD, more_sms, ",7.2,"},
    {DENSE | GROUPED | WGRAD, other_device, ",7.3,"},
};

static void test_2025_each(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows_2025 / sizeof rows_2025[0]; i++)
        for (int kind = DENSE; kind <= WGRAD; kind *= 2) {
            if (!(rows_2025[i].kinds & kind))
                continue;
            struct trial t = trial_of(TP_SCHED_DEEPGEMM_2025, kind, 9);
            struct tp_sched_checks checks;
            checks_of(&t, &checks);
            expect_failures(&checks, ",");
            rows_2025[i].break_it(&t);
            checks_of(&t, &checks);
            expect_failures(&checks, rows_2025[i].fails);
        }
}

/* Breakages that no single check owns: at least the named one must fail. */
static void test_2025_ranks(void **state)
{
    (void)state;
    static void (*const breaks[])(struct trial *) = {rhs_k, lhs_rank, n_zero};
    static const char *const ids[] = {"7.2.1", "7.2.1", "7.2.2"};
    for (int i = 0; i < 3; i++)
        for (int kind = DENSE; kind <= WGRAD; kind *= 2) {
            struct trial t = trial_of(TP_SCHED_DEEPGEMM_2025, kind, 9);
            struct tp_sched_checks checks;
            bool found = false;
            breaks[i](&t);
            checks_of(&t, &checks);
            for (size_t j = 0; j < checks.count; j++)
                found |= strcmp(checks.check[j].id, ids[i]) == 0 && !checks.check[j].pass;
            assert_true(found);
        }
}

/* What follows from the shape alone, with contiguous tensors. */
static void test_2025_shapes(void **state)
{
    (void)state;
    static const struct {
        uint64_t m, n, k;
        const char *fails;
    } rows[] = {
        {64, 4096, 7168, ","},
        {1, 4096, 7168, ","},
        {64, 4032, 7168, ",gate.vllm,"},
        {64, 4096, 7184, ",gate.sglang,gate.vllm,"},
        {64, 4088, 7168, ",gate.sglang,gate.vllm,"},
        {64, 4092, 7168, ",7.2.7,7.2.9,gate.sglang,gate.vllm,"},
        {64, 4096, 7176, ",7.2.7,gate.sglang,gate.vllm,"},
        {512, 7168, 3000064, ",7.1,"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct trial t = {.p = problem_of(TP_SCHED_DEEPGEMM_2025, DENSE)};
        struct tp_sched_checks checks;
        struct tp_err err = {0};
        t.p.m = rows[i].m;
        t.p.n = rows[i].n;
        t.p.k = rows[i].k;
        assert_int_equal(tp_sched_plan(&t.p, 1, &t.plan, &err), TP_OK);
        tp_sched_checks(&t.p, 132, &t.plan, &checks);
        expect_failures(&checks, rows[i].fails);
        bool legal = strncmp(rows[i].fails, ",7", 2) != 0;
        assert_int_equal(tp_sched_illegal(&checks) == 0, legal);
    }
}

/* Weight gradients may bring scales transposed, but only with rows % 4 == 0. */
static void test_wgrad_transposed(void **state)
{
    (void)state;
    for (uint64_t m = 510; m <= 512; m += 2) {
        struct trial t = trial_of(TP_SCHED_DEEPGEMM_2025, WGRAD, 9);
        struct tp_sched_checks checks;
        uint64_t lhs[2] = {m, 7168}, out[2] = {m, 4096}, scales[2] = {56, m};
        tp_sched_tensor_set(&t.o.lhs, TP_F8_E4M3, 2, lhs);
        tp_sched_tensor_set(&t.o.out, TP_F32, 2, out);
        tp_sched_tensor_set(&t.o.lhs_scales, TP_F32, 2, scales);
        checks_of(&t, &checks);
        expect_failures(&checks, m % 4 ? ",7.2.3," : ",");
        t.o.lhs_scales.stride[0] = m + 4; /* and not with gaps */
        checks_of(&t, &checks);
        expect_failures(&checks, ",7.2.3,");
    }
    struct trial t = trial_of(TP_SCHED_DEEPGEMM_2025, WGRAD, 9);
    struct tp_sched_checks checks;
    t.o.lhs.shape[0] = t.o.out.shape[0] = t.o.lhs_scales.shape[0] = 0;
    checks_of(&t, &checks);
    expect_failures(&checks, ",7.2.20,");
}

static void test_masked_rows(void **state)
{
    (void)state;
    static const struct {
        uint64_t m_max, groups;
        bool pass;
    } rows[] = {{512, 4, true}, {64, 4, true}, {128, 4, true}, {192, 4, false}, {192, 1, true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct trial t = trial_of(TP_SCHED_DEEPGEMM_2025, MASKED, 9);
        struct tp_sched_checks checks;
        t.plan.config[0].block_m = 128;
        t.p.groups = rows[i].groups;
        uint64_t g = rows[i].groups, m = rows[i].m_max;
        uint64_t lhs[3] = {g, m, 7168}, rhs[3] = {g, 4096, 7168}, out[3] = {g, m, 4096};
        uint64_t a[3] = {g, m, 56}, b[3] = {g, 32, 56};
        tp_sched_tensor_set(&t.o.lhs, TP_F8_E4M3, 3, lhs);
        tp_sched_tensor_set(&t.o.rhs, TP_F8_E4M3, 3, rhs);
        tp_sched_tensor_set(&t.o.out, TP_BF16, 3, out);
        tp_sched_tensor_set(&t.o.lhs_scales, TP_F32, 3, a);
        tp_sched_tensor_set(&t.o.rhs_scales, TP_F32, 3, b);
        tp_sched_tensor_set(&t.o.masked_m, TP_I32, 1, &g);
        checks_of(&t, &checks);
        expect_failures(&checks, rows[i].pass ? "," : ",7.2.19,");
    }
}

static void test_segments(void **state)
{
    (void)state;
    static const char *const ids[] = {",6.1,", ",8.7,"};
    for (int kernel = TP_SCHED_DEEPGEMM_2025; kernel <= TP_SCHED_DEEPGEMM; kernel++) {
        struct tp_sched_problem p = problem_of(kernel, CONTIGUOUS);
        struct tp_sched_plan plan;
        struct tp_sched_checks checks;
        struct tp_err err = {0};
        p.m = 1000;
        assert_int_equal(tp_sched_plan(&p, 1, &plan, &err), TP_OK);
        tp_sched_checks(&p, 132, &plan, &checks);
        expect_failures(&checks, ids[kernel]);
        assert_int_equal(tp_sched_illegal(&checks), 1);
    }
}

/* --- June 2026 --- */

static void sms_odd(struct trial *t)
{
    t->p.sms = 131;
    t->plan.count = 0;
    strcpy(t->plan.refused, "odd");
}
static void scale_rank(struct trial *t) { t->o.rhs_scales.rank ^= 1; }
static void scale_row_major(struct trial *t)
{
    t->o.rhs_scales.stride[1] = 1;
    t->o.rhs_scales.stride[0] = t->o.rhs_scales.shape[1];
}

static void test_newest_each(void **state)
{
    (void)state;
    static const struct {
        uint32_t arch;
        void (*break_it)(struct trial *t);
        const char *fails;
    } rows[] = {
        {9, sms_odd, ",8.1,"},          {9, sms_many, ",8.2,"},
        {9, refused, ",8.3,"},          {9, lhs_row_stride, ",8.4,"},
        {9, rhs_row_stride, ",8.4,"},   {9, out_row_stride, ",8.4,"},
        {9, rhs_dtype, ",8.5,"},        {9, rhs_scale_dtype, ",8.6,"},
        {9, rhs_scale_shape, ",8.6,"},  {9, scale_rank, ",8.6,"},
        {10, rhs_scale_dtype, ",8.6,"}, {10, scale_row_major, ",8.6,"},
        {10, rhs_scale_shape, ",8.6,"}, {10, sms_many, ",8.2,"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct trial t = trial_of(TP_SCHED_DEEPGEMM, DENSE, rows[i].arch);
        struct tp_sched_checks checks;
        checks_of(&t, &checks);
        expect_failures(&checks, ",");
        rows[i].break_it(&t);
        checks_of(&t, &checks);
        expect_failures(&checks, rows[i].fails);
    }
}

/* --- W4A8 --- */

static void w4a8_n16(struct tp_sched_w4a8 *o) { o->n += 8; }
static void w4a8_k256(struct tp_sched_w4a8 *o) { o->k += 128; }
static void w4a8_n128(struct tp_sched_w4a8 *o) { o->n += 16; }
static void w4a8_n2112(struct tp_sched_w4a8 *o) { o->n = 2112; }
static void w4a8_weight(struct tp_sched_w4a8 *o) { o->weight = TP_U8; }
static void w4a8_strided(struct tp_sched_w4a8 *o) { o->contiguous = false; }
static void w4a8_int(struct tp_sched_w4a8 *o) { o->n = 65536, o->k = 32768; }
static void w4a8_scale(struct tp_sched_w4a8 *o) { o->group_scale = TP_BF16; }
static void w4a8_experts(struct tp_sched_w4a8 *o) { o->e = 1025; }
static void w4a8_offsets(struct tp_sched_w4a8 *o) { o->offsets = TP_I32; }
static void w4a8_out(struct tp_sched_w4a8 *o) { o->out = TP_F16; }
static void w4a8_act(struct tp_sched_w4a8 *o) { o->activation = TP_BF16; }
static void w4a8_token(struct tp_sched_w4a8 *o) { o->token_scale = TP_BF16; }
static void w4a8_channel(struct tp_sched_w4a8 *o) { o->channel_scale = TP_BF16; }
static void w4a8_group64(struct tp_sched_w4a8 *o) { o->group_size = 64; }
static void w4a8_group_all(struct tp_sched_w4a8 *o) { o->group_size = o->k; }
static void w4a8_asymmetric(struct tp_sched_w4a8 *o) { o->symmetric = false; }
static void w4a8_order(struct tp_sched_w4a8 *o) { o->act_order = true; }
static void w4a8_bits(struct tp_sched_w4a8 *o) { o->bits = 8; }
static void w4a8_arch(struct tp_sched_w4a8 *o) { o->arch = 10; }

static void test_w4a8_each(void **state)
{
    (void)state;
    static const struct {
        int kinds;
        void (*break_it)(struct tp_sched_w4a8 *o);
        const char *fails;
    } rows[] = {
        {DENSE, w4a8_n16, ",f.3,f.7,"},       {CONTIGUOUS, w4a8_n16, ",f.3,f.8,"},
        {DENSE, w4a8_k256, ",f.2,"},          {CONTIGUOUS, w4a8_k256, ",f.2,f.8,"},
        {DENSE, w4a8_n128, ",f.7,"},          {CONTIGUOUS, w4a8_n128, ",f.8,"},
        {DENSE, w4a8_n2112, ",f.7,"},         {DENSE | CONTIGUOUS, w4a8_weight, ",f.1,"},
        {DENSE | CONTIGUOUS, w4a8_strided, ",f.1,"},
        {DENSE, w4a8_int, ",f.5,"},           {CONTIGUOUS, w4a8_int, ","},
        {DENSE | CONTIGUOUS, w4a8_scale, ",f.6,"},
        {CONTIGUOUS, w4a8_experts, ",f.9,"},  {CONTIGUOUS, w4a8_offsets, ",f.10,"},
        {DENSE | CONTIGUOUS, w4a8_out, ",f.11,"},
        {DENSE | CONTIGUOUS, w4a8_act, ",f.11,"},
        {DENSE | CONTIGUOUS, w4a8_token, ",f.11,"},
        {DENSE | CONTIGUOUS, w4a8_channel, ",f.11,"},
        {DENSE | CONTIGUOUS, w4a8_group64, ",f.12,f.13,"},
        {DENSE | CONTIGUOUS, w4a8_group_all, ",f.13,"},
        {DENSE | CONTIGUOUS, w4a8_asymmetric, ",f.13,"},
        {DENSE | CONTIGUOUS, w4a8_order, ",f.13,"},
        {DENSE | CONTIGUOUS, w4a8_bits, ",f.13,"},
        {DENSE | CONTIGUOUS, w4a8_arch, ",f.14,"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int kind = DENSE; kind <= CONTIGUOUS; kind *= 2) {
            if (!(rows[i].kinds & kind))
                continue;
            struct tp_sched_problem p = problem_of(TP_SCHED_W4A8, kind);
            struct tp_sched_w4a8 ops;
            struct tp_sched_checks checks = {0};
            tp_sched_w4a8_operands(&p, &ops);
            tp_sched_checks_w4a8(&ops, &checks);
            expect_failures(&checks, ",");
            rows[i].break_it(&ops);
            checks.count = 0;
            tp_sched_checks_w4a8(&ops, &checks);
            expect_failures(&checks, rows[i].fails);
        }
}

/* 24 x 64 = 1536 is a multiple of 32 although neither rule holds; 3 x 5 is not. */
static void test_w4a8_dense_product(void **state)
{
    (void)state;
    struct tp_sched_problem p = problem_of(TP_SCHED_W4A8, DENSE);
    struct tp_sched_w4a8 ops;
    struct tp_sched_checks checks = {0};
    p.n = 24;
    p.k = 64;
    tp_sched_w4a8_operands(&p, &ops);
    tp_sched_checks_w4a8(&ops, &checks);
    expect_failures(&checks, ",f.2,f.3,f.7,");
    ops.n = 3;
    ops.k = 5;
    checks.count = 0;
    tp_sched_checks_w4a8(&ops, &checks);
    expect_failures(&checks, ",f.2,f.3,f.4,f.7,");
}

static void test_formats(void **state)
{
    (void)state;
    static const struct {
        enum tp_sched_kernel kernel;
        uint32_t arch;
        const char *format;
        bool pass;
    } rows[] = {
        {TP_SCHED_W4A8, 9, "w4a8-cutlass", true},
        {TP_SCHED_W4A8, 9, "w4a8-ct", true},
        {TP_SCHED_W4A8, 9, "fp8-deepseek", false},
        {TP_SCHED_DEEPGEMM, 9, "fp8-deepseek", true},
        {TP_SCHED_DEEPGEMM, 9, "fp8-deepgemm-sm100", false},
        {TP_SCHED_DEEPGEMM, 10, "fp8-deepgemm-sm100", true},
        {TP_SCHED_DEEPGEMM, 10, "mxfp8-blocked", false},
        {TP_SCHED_DEEPGEMM_2025, 9, "fp8-ct", true},
        {TP_SCHED_DEEPGEMM_2025, 9, "fp8-1x128", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tp_sched_problem p = problem_of(rows[i].kernel, DENSE);
        struct tp_sched_checks checks = {0};
        p.arch = rows[i].arch;
        tp_sched_check_format(&p, rows[i].format, &checks);
        expect_failures(&checks, rows[i].pass ? "," : ",format,");
        tp_sched_check_format(&p, NULL, &checks);
        assert_int_equal(checks.count, 1); /* plain weights: nothing to say */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_2025_each),      cmocka_unit_test(test_2025_ranks),
        cmocka_unit_test(test_2025_shapes),    cmocka_unit_test(test_wgrad_transposed),
        cmocka_unit_test(test_masked_rows),    cmocka_unit_test(test_segments),
        cmocka_unit_test(test_newest_each),    cmocka_unit_test(test_w4a8_each),
        cmocka_unit_test(test_w4a8_dense_product), cmocka_unit_test(test_formats),
    };
    return cmocka_run_group_tests_name("schedule checks", tests, NULL, NULL);
}
