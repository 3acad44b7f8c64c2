/* The planners: spot rows, ranking, launch numbers, heuristic borders, refusals,
 * roofline arithmetic. The full tables are compared by tests/bytes/schedule_golden.py,
 * the checks are tested in test_schedule_checks.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pack/schedule/gpus.h"
#include "pack/schedule/schedule.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static struct tp_sched_problem dense(enum tp_sched_kernel kernel, uint64_t m, uint64_t n,
                                     uint64_t k)
{
    return (struct tp_sched_problem){.kernel = kernel, .arch = 9, .m = m, .n = n, .k = k,
                                     .groups = 1, .experts = 1, .sms = 132};
}

static struct tp_sched_plan planned(const struct tp_sched_problem *p, size_t want)
{
    struct tp_sched_plan plan;
    struct tp_err err = {0};
    assert_int_equal(tp_sched_plan(p, want, &plan, &err), TP_OK);
    assert_int_equal(err.code, TP_OK);
    return plan;
}

/* A row of the table of 2025, by hand: 64 x 7168 x 2048 on 132 SMs. */
static void test_2025_row(void **state)
{
    (void)state;
    struct tp_sched_problem p = dense(TP_SCHED_DEEPGEMM_2025, 64, 7168, 2048);
    struct tp_sched_plan plan = planned(&p, 1);
    const struct tp_sched_config *c = &plan.config[0];
    assert_int_equal(plan.count, 1);
    assert_int_equal(c->block_m, 64);
    assert_int_equal(c->block_n, 56);
    assert_int_equal(c->blocks, 128);
    assert_int_equal(c->waves, 1);
    assert_int_equal(c->last_wave, 128);
    assert_int_equal(c->stages, 8);
    /* D 64*56*2, 8 stages of A 64*128, scales 64*4, B 56*128; B scales 2*16*4;
     * barriers 8*16 */
    assert_int_equal(c->smem, 64 * 56 * 2 + 8 * (64 * 128 + 64 * 4 + 56 * 128) + 128 + 128);
    assert_int_equal(c->swizzle, 0);
    assert_int_equal(c->sms, 128);
    assert_int_equal(c->cost, -1);
}

/* "Better" is not transitive: the scan order must decide, so that one element
 * gets a tile of 256 x 32. */
static void test_2025_scan_order(void **state)
{
    (void)state;
    struct tp_sched_problem p = dense(TP_SCHED_DEEPGEMM_2025, 1, 1, 1);
    struct tp_sched_plan plan = planned(&p, 1);
    assert_int_equal(plan.config[0].block_m, 256);
    assert_int_equal(plan.config[0].block_n, 32);
}

static void test_2025_multicast(void **state)
{
    (void)state;
    struct tp_sched_problem p = dense(TP_SCHED_DEEPGEMM_2025, 511, 4096, 7168);
    struct tp_sched_plan plan = planned(&p, 1);
    assert_int_equal(plan.config[0].cluster_m * plan.config[0].cluster_n, 1);
    p.m = 512; /* the border of the rule */
    plan = planned(&p, 1);
    assert_int_equal(plan.config[0].cluster_m * plan.config[0].cluster_n, 2);
    p.sms = 131; /* an odd number of SMs forbids pairs */
    plan = planned(&p, 1);
    assert_int_equal(plan.config[0].cluster_m * plan.config[0].cluster_n, 1);
}

/* k of about two million leaves no room for the scales of B beside one stage. */
static void test_2025_refusal(void **state)
{
    (void)state;
    struct tp_sched_problem p = dense(TP_SCHED_DEEPGEMM_2025, 512, 7168, 2000000);
    assert_int_equal(planned(&p, 1).count, 1);
    p.k = 2100000;
    struct tp_sched_plan plan = planned(&p, 1);
    assert_int_equal(plan.count, 0);
    assert_non_null(strstr(plan.refused, "no pipeline depth fits"));
}

static void test_2025_launch(void **state)
{
    (void)state;
    struct tp_sched_problem p = dense(TP_SCHED_DEEPGEMM_2025, 4094, 4096, 7100);
    struct tp_sched_plan plan = planned(&p, 1);
    struct tp_sched_launch launch;
    tp_sched_launch_2025(&p, &plan.config[0], &launch);
    assert_int_equal(launch.threads, plan.config[0].block_m == 64 ? 256 : 384);
    assert_int_equal(launch.grid, plan.config[0].sms);
    assert_int_equal(launch.cluster, 2);
    assert_int_equal(launch.a.inner, 128);
    assert_int_equal(launch.a.outer, plan.config[0].block_m);
    assert_int_equal(launch.b.outer, plan.config[0].block_n);
    assert_int_equal(launch.scales_a_rows, 4096);  /* align(4094, 4) */
    assert_int_equal(launch.scales_a_columns, 56); /* ceil(7100 / 128) */
    assert_int_equal(launch.d.inner, plan.config[0].swizzle / 2);
    assert_int_equal(launch.last_stages, 0);
    assert_non_null(strstr(launch.jit_key, "k=7168 ")); /* dense: k aligned */
    assert_null(strstr(launch.jit_key, "groups"));
    p.wgrad = p.fp32_out = true;
    p.k = 128 * 57;
    plan = planned(&p, 1);
    tp_sched_launch_2025(&p, &plan.config[0], &launch);
    assert_int_equal(launch.last_stages, 57 % plan.config[0].stages);
    assert_int_equal(launch.d.inner, plan.config[0].block_n); /* no swizzle */
    p = dense(TP_SCHED_DEEPGEMM_2025, 100, 4096, 7100);
    p.masked = true;
    p.groups = p.experts = 6;
    plan = planned(&p, 1);
    tp_sched_launch_2025(&p, &plan.config[0], &launch);
    assert_int_equal(launch.scales_a_columns, 56 * 6);
    assert_non_null(strstr(launch.jit_key, "k=7100 "));
    assert_non_null(strstr(launch.jit_key, "groups=6 type=masked"));
}

static void test_newest_sm90(void **state)
{
    (void)state;
    struct tp_sched_problem p = dense(TP_SCHED_DEEPGEMM, 4096, 7168, 2048);
    struct tp_sched_plan plan = planned(&p, TP_SCHED_RANKED);
    assert_int_equal(plan.count, TP_SCHED_RANKED);
    assert_int_equal(plan.config[0].block_m, 256);
    assert_int_equal(plan.config[0].block_n, 128);
    assert_int_equal(plan.config[0].cluster_n, 2);
    assert_int_equal(plan.config[0].sms, 132); /* not reduced */
    for (size_t i = 1; i < plan.count; i++)
        assert_true(plan.config[i].cost >= plan.config[i - 1].cost);
    p.m = 16; /* one wave: a cluster must never win, whatever it saves */
    plan = planned(&p, 1);
    assert_int_equal(plan.config[0].cluster_m * plan.config[0].cluster_n, 1);
    assert_int_equal(plan.config[0].block_m, 16);
    p.m = 17;
    assert_int_equal(planned(&p, 1).config[0].block_m, 32);
    p.m = 33;
    assert_int_equal(planned(&p, 1).config[0].block_m, 64);
}

static void test_newest_sm100(void **state)
{
    (void)state;
    struct tp_sched_problem p = dense(TP_SCHED_DEEPGEMM, 8192, 7168, 2048);
    p.arch = 10;
    p.one_d = true;
    p.sms = 148;
    struct tp_sched_plan plan = planned(&p, 2);
    assert_int_equal(plan.count, 2);
    assert_int_equal(plan.config[0].cluster_m * plan.config[0].cluster_n, 2);
    assert_int_equal(plan.config[0].threads, 256);
    p.contiguous = true; /* one layout only */
    plan = planned(&p, TP_SCHED_RANKED);
    assert_int_equal(plan.count, 1);
    assert_int_equal(plan.config[0].block_m, 128);
    assert_true(plan.config[0].swap_ab);
    assert_int_equal(plan.config[0].cluster_n, 2);
    p.n = 128 * 3; /* an odd number of tiles along n */
    assert_int_equal(planned(&p, 1).config[0].cluster_n, 1);
}

static void test_newest_refusals(void **state)
{
    (void)state;
    struct tp_sched_problem p = dense(TP_SCHED_DEEPGEMM, 64, 4096, 7168);
    struct tp_sched_plan plan;
    struct tp_err err = {0};
    p.sms = 131;
    plan = planned(&p, 1);
    assert_int_equal(plan.count, 0);
    assert_non_null(strstr(plan.refused, "even"));
    p.sms = 132;
    p.k = 8000000; /* the scales of B alone fill the shared memory */
    plan = planned(&p, 1);
    assert_int_equal(plan.count, 0);
    assert_non_null(strstr(plan.refused, "no tile"));
    p.k = 7168;
    p.contiguous = p.masked = true;
    assert_int_equal(tp_sched_plan(&p, 1, &plan, &err), TP_E_USAGE);
    p.masked = false;
    p.arch = 10; /* 1D2D does not exist there */
    err = (struct tp_err){0};
    assert_int_equal(tp_sched_plan(&p, 1, &plan, &err), TP_E_USAGE);
}

static bool same(const struct tp_sched_config *a, const struct tp_sched_config *b)
{
    return a->name == b->name && a->block_m == b->block_m && a->block_n == b->block_n &&
           a->cluster_m == b->cluster_m && a->cluster_n == b->cluster_n &&
           a->swap_ab == b->swap_ab;
}

/* No two ranked configurations are the same, and asking for more of them does
 * not change the plan. */
static void test_ranking(void **state)
{
    (void)state;
    static const enum tp_sched_kernel kernels[] = {TP_SCHED_DEEPGEMM_2025, TP_SCHED_DEEPGEMM,
                                                   TP_SCHED_W4A8};
    for (size_t i = 0; i < 3; i++)
        for (uint64_t m = 1; m < 20000; m = m * 3 + 1) {
            struct tp_sched_problem p = dense(kernels[i], m, 4096, 7168);
            struct tp_sched_plan one = planned(&p, 1), all = planned(&p, TP_SCHED_RANKED);
            assert_int_equal(one.count, 1);
            assert_int_equal(all.count, TP_SCHED_RANKED);
            assert_true(same(&one.config[0], &all.config[0]));
            assert_int_equal(one.config[0].smem, all.config[0].smem);
            for (size_t a = 0; a < all.count; a++)
                for (size_t b = 0; b < a; b++)
                    assert_false(same(&all.config[a], &all.config[b]));
        }
}

static const char *w4a8_name(uint64_t m, uint64_t n, uint64_t k, uint64_t experts)
{
    struct tp_sched_problem p = dense(TP_SCHED_W4A8, m, n, k);
    p.experts = experts;
    p.contiguous = experts > 1;
    struct tp_sched_plan plan = planned(&p, 1);
    assert_int_equal(plan.count, 1);
    return plan.config[0].name;
}

static void test_w4a8_grouped_borders(void **state)
{
    (void)state;
    static const struct {
        uint64_t per_expert;
        const char *name;
    } rows[] = {
        {1, "Kernel_128x16_2x1x1_Coop"},   {16, "Kernel_128x16_2x1x1_Coop"},
        {17, "Kernel_256x32_1x1x1_Coop"},  {32, "Kernel_256x32_1x1x1_Coop"},
        {33, "Kernel_256x64_1x1x1_Coop"},  {64, "Kernel_256x64_1x1x1_Coop"},
        {65, "Kernel_256x128_2x1x1_Coop"}, {128, "Kernel_256x128_2x1x1_Coop"},
        {129, "Kernel_128x256_2x1x1_Coop"}, {5000, "Kernel_128x256_2x1x1_Coop"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t m = rows[i].per_expert * 8;
        assert_string_equal(w4a8_name(m, 4096, 7168, 8), rows[i].name);
        /* integer division: 7 rows more change nothing */
        assert_string_equal(w4a8_name(m + 7, 4096, 7168, 8), rows[i].name);
    }
    assert_string_equal(w4a8_name(3, 4096, 7168, 8), "Kernel_128x16_2x1x1_Coop");
}

static void test_w4a8_dense_borders(void **state)
{
    (void)state;
    static const struct {
        uint64_t m, n, k;
        const char *name;
    } rows[] = {
        {16, 4096, 4096, "128x16_1x1x1"},     {17, 4096, 4096, "128x32_1x1x1"},
        {32, 9000, 9000, "128x32_1x1x1"},     {64, 8192, 8192, "128x32_1x1x1"},
        {64, 8208, 8192, "128x64_1x1x1"},     {64, 8192, 8448, "128x64_1x1x1"},
        {65, 8192, 8448, "128x64_1x1x1"},     {128, 8208, 512, "128x128_1x1x1"},
        {129, 4096, 512, "128x64_1x1x1"},     {256, 4112, 512, "128x128_1x1x1"},
        {256, 8208, 512, "128x256_1x1x1"},    {512, 4096, 512, "128x128_1x1x1"},
        {512, 4112, 512, "128x256_1x1x1"},    {513, 4096, 512, "128x256_1x1x1"},
        {1024, 64, 512, "128x256_1x1x1"},     {1025, 64, 512, "128x256_2x1x1"},
        {16, 18432, 16384, "256x16_1x1x1"},   {32, 18432, 16384, "256x32_1x1x1"},
        {64, 18432, 16384, "256x64_1x1x1"},   {128, 18432, 16384, "256x128_1x1x1"},
        {129, 18432, 16384, "128x256_1x1x1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(w4a8_name(rows[i].m, rows[i].n, rows[i].k, 1), rows[i].name);
}

static void test_w4a8_waves(void **state)
{
    (void)state;
    struct tp_sched_problem p = dense(TP_SCHED_W4A8, 64, 4096, 7168);
    p.experts = 8;
    p.contiguous = true;
    struct tp_sched_plan plan = planned(&p, 1);
    /* 8 rows an expert: one tile of 16 rows, 4096 / 128 tiles along n, 8 experts */
    assert_int_equal(plan.config[0].blocks, 32 * 8);
    assert_int_equal(plan.config[0].waves, 2);
    assert_int_equal(plan.config[0].last_wave, 256 - 132);
    p.m = 3; /* at most three experts have a row */
    assert_int_equal(planned(&p, 1).config[0].blocks, 32 * 3);
    p.masked = true;
    struct tp_err err = {0};
    assert_int_equal(tp_sched_plan(&p, 1, &plan, &err), TP_E_USAGE);
}

static void test_ranges(void **state)
{
    (void)state;
    for (int field = 0; field < 6; field++)
        for (int large = 0; large < 2; large++) {
            struct tp_sched_problem p = dense(TP_SCHED_W4A8, 64, 4096, 7168);
            uint64_t *fields[] = {&p.m, &p.n, &p.k, &p.groups, &p.experts, &p.sms};
            struct tp_sched_plan plan;
            struct tp_err err = {0};
            *fields[field] = large ? UINT64_C(1) << 31 : 0;
            assert_int_equal(tp_sched_plan(&p, 1, &plan, &err), TP_E_USAGE);
            assert_true(err.hint[0]);
            *fields[field] = large ? (UINT64_C(1) << 31) - 1 : 1;
            err = (struct tp_err){0};
            assert_int_equal(tp_sched_plan(&p, 1, &plan, &err), TP_OK);
        }
    struct tp_sched_problem p = dense(TP_SCHED_DEEPGEMM, 64, 4096, 7168);
    struct tp_sched_plan plan;
    struct tp_err err = {0};
    p.arch = 8;
    assert_int_equal(tp_sched_plan(&p, 1, &plan, &err), TP_E_USAGE);
}

/* Numbers that the planner's own 64-bit arithmetic cannot hold are refused. */
static void test_overflow(void **state)
{
    (void)state;
    for (int kernel = TP_SCHED_DEEPGEMM_2025; kernel <= TP_SCHED_DEEPGEMM; kernel++) {
        struct tp_sched_problem p = dense(kernel, INT32_MAX, INT32_MAX, 4096);
        struct tp_sched_plan plan;
        struct tp_err err = {0};
        p.masked = true;
        p.groups = p.experts = INT32_MAX;
        assert_int_equal(tp_sched_plan(&p, 1, &plan, &err), TP_E_UNSUPPORTED);
        assert_true(err.what[0]);
    }
    struct tp_sched_problem p = dense(TP_SCHED_DEEPGEMM, INT32_MAX, INT32_MAX, 200000);
    struct tp_sched_plan plan;
    struct tp_err err = {0};
    assert_int_equal(tp_sched_plan(&p, 1, &plan, &err), TP_E_UNSUPPORTED);
}

static void close_to(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-9 * fabs(b));
}

static void test_roofline(void **state)
{
    (void)state;
    struct tp_sched_cost cost;
    struct tp_sched_problem p = dense(TP_SCHED_DEEPGEMM, 64, 7168, 2048);
    tp_sched_roofline(&p, 3.35e12, 1979e12, &cost);
    double bytes = 7168.0 * 2048 + 56 * 16 * 4 + 64.0 * (2048 + 16 * 4) + 64.0 * 7168 * 2;
    close_to(cost.flops, 2.0 * 64 * 7168 * 2048);
    close_to(cost.bytes, bytes);
    close_to(cost.intensity, cost.flops / bytes);
    close_to(cost.seconds, bytes / 3.35e12);
    p.arch = 10; /* a scale word for every row and 512 of k */
    tp_sched_roofline(&p, 1, 1, &cost);
    close_to(cost.bytes, 7168.0 * 2048 + 7168.0 * 16 + 64.0 * (2048 + 16) + 64.0 * 7168 * 2);
    p = dense(TP_SCHED_W4A8, 64, 7168, 2048);
    tp_sched_roofline(&p, 1, 1, &cost);
    close_to(cost.bytes, 7168.0 * 2048 / 2 + 7168.0 * 16 * 8 + 7168.0 * 4 + 64.0 * 2048 +
                             64.0 * 4 + 64.0 * 7168 * 2);
    close_to(cost.seconds, cost.flops); /* more flops than bytes at equal rates */
    p.experts = 8;
    p.m = 3; /* five experts are not read */
    tp_sched_roofline(&p, 1, 1, &cost);
    close_to(cost.bytes, 3 * (7168.0 * 2048 / 2 + 7168.0 * 16 * 8 + 7168.0 * 4) + 3.0 * 2048 +
                             3.0 * 4 + 3.0 * 7168 * 2);
    p = dense(TP_SCHED_DEEPGEMM, 100, 7168, 2048);
    p.masked = true;
    p.groups = p.experts = 4;
    tp_sched_roofline(&p, 1, 1, &cost);
    close_to(cost.flops, 4 * 2.0 * 100 * 7168 * 2048);
    close_to(cost.bytes, 4 * (7168.0 * 2048 + 56 * 16 * 4 + 100.0 * (2048 + 64) +
                              100.0 * 7168 * 2));
}

static void test_gpus(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t arch, sms;
    } known[] = {{"h100", 9, 132}, {"h100-pcie", 9, 114}, {"h200", 9, 132},
                 {"h800", 9, 132}, {"h20", 9, 78},        {"b200", 10, 148}, {"b300", 10, 148},
                 {"a100", 8, 108},        {"l40s", 8, 142},       {"4090", 8, 128}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const struct tp_gpu *gpu = tp_gpu_find(known[i].name);
        assert_non_null(gpu);
        assert_int_equal(gpu->arch, known[i].arch);
        assert_int_equal(gpu->sms, known[i].sms);
    }
    assert_null(tp_gpu_find("H100"));
    size_t count;
    const struct tp_gpu *all = tp_gpus(&count);
    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(tp_gpu_find(all[i].name), &all[i]); /* names are unique */
        assert_true(all[i].bandwidth > 5e11 && all[i].bandwidth < 1e13);
        assert_true(all[i].fp8_flops > 1e14 && all[i].fp8_flops < 1e16);
        assert_int_equal(all[i].sms % 2, 0);
    }
}

static void test_cuts(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum tp_sched_cut cut;
    } rows[] = {
        {"model.layers.0.self_attn.q_proj.weight", TP_SCHED_CUT_N},
        {"model.layers.0.self_attn.o_proj", TP_SCHED_CUT_K},
        {"model.layers.0.mlp.down_proj.weight", TP_SCHED_CUT_K},
        {"model.layers.0.mlp.experts.w13", TP_SCHED_CUT_N},
        {"model.layers.0.mlp.experts.7.w2.weight", TP_SCHED_CUT_K},
        {"model.layers.0.self_attn.kv_a_proj_with_mqa.weight", TP_SCHED_CUT_NONE},
        {"model.layers.0.mlp.gate.weight", TP_SCHED_CUT_NONE},
        {"q_proj", TP_SCHED_CUT_N},
        {"my_q_proj", TP_SCHED_CUT_ANY},
        {"", TP_SCHED_CUT_ANY},
        {".weight", TP_SCHED_CUT_ANY},
    };
    struct tp_model_facts facts;
    assert_int_equal(tp_model_facts_of(NULL, 0, NULL, &facts, NULL), TP_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(tp_sched_cut_of(&facts, rows[i].name), rows[i].cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_2025_row),
        cmocka_unit_test(test_2025_scan_order),
        cmocka_unit_test(test_2025_multicast),
        cmocka_unit_test(test_2025_refusal),
        cmocka_unit_test(test_2025_launch),
        cmocka_unit_test(test_newest_sm90),
        cmocka_unit_test(test_newest_sm100),
        cmocka_unit_test(test_newest_refusals),
        cmocka_unit_test(test_ranking),
        cmocka_unit_test(test_w4a8_grouped_borders),
        cmocka_unit_test(test_w4a8_dense_borders),
        cmocka_unit_test(test_w4a8_waves),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_roofline),
        cmocka_unit_test(test_gpus),
        cmocka_unit_test(test_cuts),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
