/* What `prove` computes without a GPU: activations, the reference and its bound, predictions and
 * the choice of a kernel. The whole command is tested by tests/cli/prove.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/op/scalar.h"
#include "pack/prove/prove_kernels.h"
#include "pack/prove/prove_reference.h"
#include "pack/prove/prove_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void products_have_names(void **state)
{
    (void)state;
    static const struct {
        const char *product;
        uint32_t sms;
        const char *name;
    } rows[] = {
        {"NVIDIA H200", 132, "h200"},           {"NVIDIA H100 80GB HBM3", 132, "h100"},
        {"NVIDIA H100 PCIe", 114, "h100-pcie"}, {"NVIDIA GH200 480GB", 132, "gh200"},
        {"NVIDIA H20", 78, "h20"},              {"NVIDIA H200", 120, NULL},
        {"NVIDIA H2000", 132, NULL},            {"NVIDIA A100-SXM4-80GB", 108, "a100"},
        {"", 132, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct tp_gpu *gpu = tp_gpu_of_product(rows[i].product, rows[i].sms);
        assert_int_equal(gpu != NULL, rows[i].name != NULL);
        if (gpu)
            assert_string_equal(gpu->name, rows[i].name);
    }
}

static void rows_depend_on_nothing_else(void **state)
{
    (void)state;
    enum { LONG = 200000, SHORT = 300 };
    uint8_t *whole = malloc(LONG), part[SHORT];
    tp_prove_row(3, 17, LONG, whole);
    tp_prove_row(3, 17, SHORT, part);
    assert_memory_equal(whole, part, SHORT);
    tp_prove_row(3, 18, SHORT, part);
    assert_memory_not_equal(whole, part, SHORT);
    tp_prove_row(4, 17, SHORT, part);
    assert_memory_not_equal(whole, part, SHORT);
    for (size_t i = 0; i < LONG; i++)
        assert_true((whole[i] & 0x7F) != 0x7F);
    free(whole);
    for (uint64_t b = 0; b < 1000; b++) {
        float scale = tp_prove_row_scale(1, 2, b);
        assert_true(scale >= 1.0f / 512 && scale < 1.0f / 256);
    }
}

static void units_are_an_identity(void **state)
{
    (void)state;
    uint8_t codes[3 * 8];
    tp_prove_units(4, 3, 8, codes);
    for (uint64_t i = 0; i < 3; i++)
        for (uint64_t k = 0; k < 8; k++)
            assert_true(tp_e4m3_value(codes[i * 8 + k]) == (k == 4 + i ? 1.0f : 0.0f));
}

/* One row of W against X's rows, by the definition. */
static double direct(const double *w, uint64_t k, uint64_t expert, uint64_t row, bool blocks)
{
    uint8_t *codes = malloc(k);
    double sum = 0;
    tp_prove_row(expert, row, k, codes);
    for (uint64_t i = 0; i < k; i++)
        sum += w[i] * (double)tp_e4m3_value(codes[i]) *
               (double)tp_prove_row_scale(expert, row, blocks ? i / 128 : 0);
    free(codes);
    return sum;
}

static void check_reference(bool blocks)
{
    enum { K = 300, N = 2, E = 2 };
    struct tp_prove_reference r = {.box = {E, N, K}, .blocks = blocks, .row = {0, 9}, .rows = 2};
    struct tp_err err = {0};
    double w[K];
    assert_int_equal(tp_prove_reference_open(&r, &err), TP_OK);
    for (uint64_t e = 0; e < E; e++) {
        tp_prove_reference_enter(&r, e);
        for (uint64_t n = 0; n < N; n++) {
            for (int k = 0; k < K; k++)
                w[k] = sin((double)(k * 7) + (double)(n + 10 * e));
            tp_prove_reference_add(&r, e, n, w);
            for (uint32_t lane = 0; lane < 2; lane++) {
                size_t at = (e * 2 + lane) * N + n;
                double expected = direct(w, K, e, r.row[lane], blocks);
                assert_true(fabs(r.value[at] - expected) < 1e-9);
                assert_true(r.bound[at] > fabs(expected) / 256);
                assert_true(r.bound[at] < 10); /* products are below 448 / 256 */
            }
        }
    }
    tp_prove_reference_close(&r);
    tp_prove_reference_close(&r);
}

static void references_are_sums(void **state)
{
    (void)state;
    check_reference(false);
    check_reference(true);
}

/* A weight that is left out, or has another sign, must not fit into the bound. */
static void the_bound_is_tight_enough(void **state)
{
    (void)state;
    enum { K = 512 };
    struct tp_prove_reference r = {.box = {1, 1, K}, .row = {5}, .rows = 1};
    struct tp_err err = {0};
    double w[K], sum = 0;
    uint8_t codes[K];
    assert_int_equal(tp_prove_reference_open(&r, &err), TP_OK);
    tp_prove_reference_enter(&r, 0);
    tp_prove_row(0, 5, K, codes);
    for (int k = 0; k < K; k++)
        w[k] = cos(k);
    tp_prove_reference_add(&r, 0, 0, w);
    for (int k = 0; k < 128; k++) /* a group of scales twice as large */
        sum += w[k] * (double)tp_e4m3_value(codes[k]);
    assert_true(fabs(sum * (double)tp_prove_row_scale(0, 5, 0)) > r.bound[0]);
    tp_prove_reference_close(&r);
}

static int takes(const struct tilepack_prove_problem *problem, char *message, size_t size)
{
    (void)message;
    (void)size;
    return problem->n % 16 != 0;
}

static const struct tilepack_prove_kernel kernels[] = {
    {"Kernel_128x256_2x1x1_Coop", TILEPACK_PROVE_W4A8_GROUPED, 128, 256, 2, 1, takes, NULL},
    {"Kernel_256x64_1x1x1_Coop", TILEPACK_PROVE_W4A8_GROUPED, 256, 64, 1, 1, takes, NULL},
};
static const struct tilepack_prove_kernel *const table[] = {&kernels[0], &kernels[1]};

static const char *nearest(uint32_t kind, struct tilepack_prove_problem problem,
                           char predicted[TP_PROVE_NAME])
{
    const struct tilepack_prove_plugin plugin = {.kernels = 2, .kernel = table};
    struct tp_prove_prediction prediction;
    struct tp_err err = {0};
    uint32_t i;
    assert_int_equal(tp_prove_predict(kind, &problem, 132, 1, &prediction, &err), TP_OK);
    strcpy(predicted, prediction.name);
    return tp_prove_nearest(&plugin, kind, &problem, &prediction, &i) ? kernels[i].name : NULL;
}

static void predictions_find_schedules(void **state)
{
    (void)state;
    char name[TP_PROVE_NAME];
    const uint32_t grouped = TILEPACK_PROVE_W4A8_GROUPED;
    struct tilepack_prove_problem p = {.e = 8, .n = 4096, .k = 7168, .m = 64};
    assert_string_equal(nearest(grouped, p, name), "Kernel_256x64_1x1x1_Coop");
    assert_string_equal(name, "Kernel_256x64_1x1x1_Coop");
    p.m = 4096;
    assert_string_equal(nearest(grouped, p, name), "Kernel_128x256_2x1x1_Coop");
    p.m = 1; /* not built: a narrow tile is nearer than a wide one */
    assert_string_equal(nearest(grouped, p, name), "Kernel_256x64_1x1x1_Coop");
    assert_string_equal(name, "Kernel_128x16_2x1x1_Coop");
    p.n = 4100;
    assert_null(nearest(grouped, p, name));
    p.n = 4096;
    p.e = 1;
    assert_null(nearest(TILEPACK_PROVE_W4A8_DENSE, p, name));
}

static int any_config(const struct tp_sched_config *config,
                      const struct tilepack_prove_problem *problem, char *message, size_t size)
{
    (void)config;
    snprintf(message, size, "n is odd");
    return problem->n % 2 != 0;
}

/* The very configuration that schedule plans, for rows that lie as the planner was told. */
static void fp8_runs_what_is_planned(void **state)
{
    (void)state;
    static const struct {
        uint64_t e, m;
        uint32_t layout;
        const char *name;
        uint64_t stages;
    } rows[] = {
        {1, 64, TILEPACK_PROVE_ONE, "64x32_1x1", 16},
        {1, 4096, TILEPACK_PROVE_ONE, "256x128_1x2", 3},
        {8, 256, TILEPACK_PROVE_CONTIGUOUS, "128x192_2x1", 4},
        {8, 192, TILEPACK_PROVE_MASKED, "128x192_2x1", 4},
        {8, 16, TILEPACK_PROVE_MASKED, "64x128_2x1", 8},
    };
    const struct tilepack_prove_plugin plugin = {.fp8_can_run = any_config};
    const uint32_t fp8 = TILEPACK_PROVE_FP8_BLOCK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tp_err err = {0};
        struct tp_prove_prediction prediction;
        struct tp_prove_kernel kernel;
        struct tilepack_prove_problem p =
            tp_prove_problem_of(fp8, (struct tp_box3){rows[i].e, 4096, 7168}, rows[i].m);
        assert_int_equal(p.layout, rows[i].layout);
        assert_int_equal(tp_prove_predict(fp8, &p, 132, 8, &prediction, &err), TP_OK);
        assert_int_equal(tp_prove_fp8(&plugin, &p, &prediction, 0, &kernel, &err), TP_OK);
        assert_string_equal(kernel.name, rows[i].name);
        assert_string_equal(prediction.name, rows[i].name);
        assert_int_equal(kernel.config.stages, rows[i].stages);
        assert_null(kernel.built);
        struct tp_prove_kernel other = kernel;
        assert_true(tp_prove_same(&kernel, &other));
        other.layout++;
        assert_false(tp_prove_same(&kernel, &other));
        assert_int_equal(tp_prove_fp8(&plugin, &p, &prediction, 9, &other, &err),
                         TP_E_UNSUPPORTED);
        p.n = 4097;
        err = (struct tp_err){0};
        assert_int_equal(tp_prove_fp8(&plugin, &p, &prediction, 0, &other, &err),
                         TP_E_UNSUPPORTED);
        assert_string_equal(err.what, "n is odd");
    }
    assert_int_equal(tp_prove_problem_of(TILEPACK_PROVE_W4A8_GROUPED,
                                         (struct tp_box3){8, 64, 128}, 128).layout,
                     TILEPACK_PROVE_ONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_have_names),
        cmocka_unit_test(rows_depend_on_nothing_else),
        cmocka_unit_test(units_are_an_identity),
        cmocka_unit_test(references_are_sums),
        cmocka_unit_test(the_bound_is_tight_enough),
        cmocka_unit_test(predictions_find_schedules),
        cmocka_unit_test(fp8_runs_what_is_planned),
    };
    return cmocka_run_group_tests_name("prove", tests, NULL, NULL);
}
