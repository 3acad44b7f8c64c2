/* The run loop's jobs: each header and each constant goes into the sink once, however
 * many files an earlier run has done already, also while GPUs would start. And what a
 * kernel could not do is an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../tools/ops.h"
#include "pack/plan/unit/constant.h"
#include "pack/run/compute.h"
#include "pack/run/device.h"
#include "pack/run/jobs.h"
#include "pack/run/run.h"

#include <string.h>

enum { FILES = 6, EACH = 40, OUTPUTS = FILES * EACH, TRIALS = 100 };

struct counting_sink {
    struct tp_sink sink;
    atomic_int headers[FILES], outputs[OUTPUTS];
};

static enum tp_code count(struct tp_sink *base, uint32_t file, uint32_t output, uint64_t offset,
                          const void *data, uint64_t size, struct tp_err *err)
{
    struct counting_sink *sink = (struct counting_sink *)base;
    (void)offset, (void)data, (void)size, (void)err;
    atomic_fetch_add(output == TP_SINK_HEADER ? &sink->headers[file] : &sink->outputs[output], 1);
    return TP_OK;
}

static enum tp_code prepare(struct tp_sink *sink, uint32_t file, struct tp_err *err)
{
    (void)sink, (void)file, (void)err;
    return TP_OK;
}

static uint8_t byte = 1;
static const struct tp_constant constant = {.made = &byte};

static void run_with(const bool *skip, unsigned workers)
{
    static struct tp_plan_file files[FILES];
    static struct tp_output outputs[OUTPUTS];
    struct tp_plan plan = {.files = files, .file_count = FILES, .outputs = outputs,
                           .output_count = OUTPUTS};
    char header[] = "header";
    for (uint32_t f = 0; f < FILES; f++)
        files[f] = (struct tp_plan_file){.header = header, .header_size = sizeof header,
                                         .first_output = f * EACH, .output_count = EACH};
    for (uint32_t o = 0; o < OUTPUTS; o++)
        outputs[o] = (struct tp_output){.bytes = 1, .file = o / EACH, .unit = UINT32_MAX,
                                        .constant = &constant};
    struct tp_devices none = {0}; /* as with GPUs: the first files are begun ahead */
    struct tp_run_options options = {.jobs = workers, .devices = &none, .skip_file = skip};
    for (int trial = 0; trial < TRIALS; trial++) {
        struct counting_sink sink = {.sink = {.write = count, .prepare = prepare}};
        struct tp_err err = {0};
        assert_int_equal(tp_run(&plan, &sink.sink, &options, &err), TP_OK);
        for (int f = 0; f < FILES; f++)
            assert_int_equal(sink.headers[f], !skip[f]);
        for (int o = 0; o < OUTPUTS; o++)
            assert_int_equal(sink.outputs[o], !skip[o / EACH]);
    }
}

static void all_files(void **state)
{
    const bool skip[FILES] = {false};
    (void)state;
    run_with(skip, 24);
    run_with(skip, 1);
}

/* What is summed by box is the same on a GPU, whatever its slots, if that is asked for. */
static void boxes_of_devices(void **state)
{
    (void)state;
    for (uint64_t slot = UINT64_C(1) << 20; slot <= UINT64_C(16) << 20; slot *= 2) {
        struct tp_devices one = {.count = 1, .slots_per_device = 3, .slot = slot};
        struct tp_run_options cpu = {.jobs = 3, .memory = UINT64_C(24) << 20}, gpu = cpu;
        gpu.devices = &one;
        struct tp_box_hints without = tp_run_box_hints(&cpu, 3), with = tp_run_box_hints(&gpu, 3);
        assert_int_equal(with.limit, slot);
        gpu.same_boxes = true;
        with = tp_run_box_hints(&gpu, 3);
        assert_memory_equal(&with, &without, sizeof with);
    }
}

static void one_file_is_left(void **state)
{
    const bool skip[FILES] = {true, true, true, true, false, true};
    (void)state;
    run_with(skip, 24);
}

static void no_file_is_left(void **state)
{
    const bool skip[FILES] = {true, true, true, true, true, true};
    (void)state;
    run_with(skip, 24);
}

/* A layout that a row cannot evaluate ends the run: bytes are never silently left out. */
static void a_row_that_failed_is_an_error(void **state)
{
    struct tp_op to = ops_fp8_ct(TP_FP8_CT_FP32), from = to;
    struct tp_compute compute = {0};
    static _Alignas(64) uint8_t values[128 * 128 * 4], codes[128 * 128], scale[64];
    (void)state;
    for (int call = 0; call < 4; call++) {
        struct tp_args args = {.box = {1, 128, 128}, .dtype = TP_F32};
        struct tp_err good = {0}, bad = {0};
        void *const out[2] = {codes, scale};
        to.out[1].layout = from.out[1].layout = ops_fp8_ct(TP_FP8_CT_FP32).out[1].layout;
        for (int broken = 0; broken < 2; broken++) {
            struct tp_err *err = broken ? &bad : &good;
            struct tp_args own = args;
            memcpy(own.out, out, sizeof out);
            own.in[0] = call == 0 ? values : codes;
            own.in[1] = scale;
            if (call == 1)
                own.out[0] = values;
            assert_int_equal(tp_compute_begin(&compute, 64, 64, err), TP_OK);
            if (call == 0)
                tp_compute_encode(&compute, &to, &own, err);
            else if (call == 1)
                tp_compute_decode(&compute, &from, &own, err);
            else if (call == 2)
                tp_compute_repack(&compute, &from, &to, &own, err);
            else
                tp_compute_requantize(&compute, &from, &to, TP_F32, &own, err);
            to.out[1].layout = from.out[1].layout =
                ops_layout("(E,N,K/0):(1,1,1)");
        }
        assert_int_equal(good.code, TP_OK);
        assert_int_equal(bad.code, TP_E_UNSUPPORTED);
        assert_non_null(strstr(bad.what, "1 x 128 x 128"));
    }
    tp_compute_close(&compute);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_files),
        cmocka_unit_test(boxes_of_devices),
        cmocka_unit_test(one_file_is_left),
        cmocka_unit_test(no_file_is_left),
        cmocka_unit_test(a_row_that_failed_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
