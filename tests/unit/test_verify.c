/* Verify and unpack on small files of every format: any flipped bit is found,
 * padding, eightfold scales and words are found even when the hash is made anew,
 * and figures do not depend on threads.
 *
 * TILEPACK_TEST_FLIPS sets the number of flipped bits in all (10,000). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/num.h"
#include "kernels/op/codec.h"
#include "kernels/op/distance.h"
#include "pack/commit/commit.h"
#include "pack/check/estimate.h"
#include "pack/check/verify.h"
#include "pack/source/descriptor.h"

#include <fcntl.h>
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/tilepack-verify-XXXXXX";
static char source[64], packed[64], plain[64];
static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

/* Two weights, one stack and a norm; N and K are no multiples of 128, so scales of
 * the tiled formats have padding. The stack is for the formats that take it apart. */
static const struct {
    const char *name;
    enum tp_dtype dtype;
    uint32_t rank;
    uint64_t shape[3];
} specs[] = {{"m.down_proj.weight", TP_BF16, 2, {144, 128}},
             {"m.experts.down_proj", TP_BF16, 3, {2, 48, 128}},
             {"m.experts.gate_up_proj", TP_BF16, 3, {2, 96, 128}},
             {"m.up_proj.weight", TP_F32, 2, {96, 256}},
             {"norm.weight", TP_BF16, 1, {50}}};

static void write_all(const char *path, const void *a, size_t a_size, const void *b, size_t b_size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(a, 1, a_size, file), a_size);
    assert_int_equal(fwrite(b, 1, b_size, file), b_size);
    fclose(file);
}

static void make_source(void)
{
    struct tp_st_tensor tensors[sizeof specs / sizeof *specs];
    size_t count = sizeof specs / sizeof *specs;
    struct tp_text text = {0};
    struct tp_err err = {0};
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = tp_dtype_bits(specs[i].dtype) / 8;
        tensors[i] = (struct tp_st_tensor){.name = specs[i].name, .dtype = specs[i].dtype,
                                           .rank = specs[i].rank, .begin = at};
        for (uint32_t d = 0; d < specs[i].rank; d++) {
            tensors[i].shape[d] = specs[i].shape[d];
            bytes *= specs[i].shape[d];
        }
        tensors[i].end = at += bytes;
    }
    assert_int_equal(tp_st_write_header(tensors, count, NULL, 0, 8, &text, &err), TP_OK);
    uint8_t *data = calloc(1, at);
    assert_non_null(data);
    for (size_t i = 0; i < count; i++)
        for (uint64_t b = tensors[i].begin; b < tensors[i].end; b += 2) {
            uint16_t high = (uint16_t)(0x3a00 + draw(0x180) + (draw(2) << 15)); /* 5e-4..4e-3 */
            bool low = tensors[i].dtype == TP_F32 && b % 4 == 0;
            uint16_t half = low ? (uint16_t)draw(65536) : high;
            memcpy(data + b, &half, 2);
        }
    write_all(source, text.data, text.size, data, at);
    free(data);
    tp_text_free(&text);
}

struct opened {
    struct tp_checkpoint ckpt;
    struct tp_weights weights;
};

static struct opened open_it(const char *path)
{
    struct opened o;
    struct tp_err err = {0};
    if (tp_checkpoint_open(path, 0, &o.ckpt, &err) || tp_weights_find(&o.ckpt, &o.weights, &err))
        fail_msg("%s: %s", path, err.what);
    return o;
}

static void close_it(struct opened *o)
{
    tp_weights_close(&o->weights);
    tp_checkpoint_close(&o->ckpt);
}

static void convert(const char *from, const char *to, const char *format)
{
    struct opened o = open_it(from);
    struct tp_request request = {.weights_only = true};
    struct tp_plan plan;
    struct tp_convert_result result;
    struct tp_convert_options options = {.run = {.jobs = 2}, .if_exists = TP_EXISTS_REPLACE};
    struct tp_err err = {0};
    const char *name = strrchr(to, '/') + 1;
    if (format ? (tp_request_to(&request, format, NULL, 0, &err) ||
                  tp_plan_convert(&o.ckpt, &o.weights, &request, name, &plan, &err))
               : tp_plan_unpack(&o.ckpt, &o.weights, TP_DTYPE_NONE, 0, name, &plan, &err))
        fail_msg("%s: %s", to, err.what);
    if (tp_convert(&plan, &request, to, &options, &result, &err))
        fail_msg("%s: %s", to, err.what);
    tp_plan_close(&plan);
    tp_request_close(&request);
    close_it(&o);
}

/* What verify makes of a file: TP_OK, TP_E_DIFF, or an error. The first problem is
 * copied to `what`. */
static enum tp_code verify(const char *path, char what[1200])
{
    struct tp_checkpoint ckpt;
    struct tp_weights weights = {0};
    struct tp_verify_report report = {0};
    struct tp_verify_options options = {.jobs = 1};
    struct tp_err err = {0};
    what[0] = '\0';
    enum tp_code code = tp_checkpoint_open(path, 0, &ckpt, &err);
    if (code)
        return code;
    code = tp_verify(&ckpt, &weights, &options, &report, &err);
    if (code == TP_OK && report.problem_count) {
        code = TP_E_DIFF;
        snprintf(what, 1200, "%s", report.problems[0].what);
    } else if (code == TP_OK && !report.by_tilepack) {
        code = TP_E_UNSUPPORTED; /* not recognised as ours: nothing was proven */
        snprintf(what, 1200, "%s", "not of tilepack");
    }
    tp_verify_report_close(&report);
    tp_weights_close(&weights);
    tp_checkpoint_close(&ckpt);
    return code;
}

static int exit_code_of_cli(const char *path)
{
    char what[1200];
    enum tp_code code = verify(path, what);
    return code == TP_E_UNSUPPORTED && strcmp(what, "not of tilepack") == 0 ? 0 : (int)code;
}

static void flip(int fd, uint64_t bit)
{
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte ^= (uint8_t)(1 << bit % 8);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
}

static size_t flip_file(const char *path, size_t count)
{
    struct stat st;
    size_t missed = 0;
    struct opened o = open_it(path);
    uint64_t header = o.ckpt.files[0].header.data_start;
    close_it(&o);
    assert_int_equal(exit_code_of_cli(path), 0);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    for (size_t i = 0; i < count; i++) {
        uint64_t bit = draw((i % 2 ? header : (uint64_t)st.st_size) * 8);
        flip(fd, bit);
        if (exit_code_of_cli(path) == 0) {
            missed++;
            print_message("missed: %s, bit %llu of byte %llu\n", path, (unsigned long long)bit % 8,
                          (unsigned long long)bit / 8);
        }
        flip(fd, bit);
    }
    close(fd);
    assert_int_equal(exit_code_of_cli(path), 0);
    return missed;
}

static void test_every_flipped_bit_is_found(void **unused)
{
    const char *wanted = getenv("TILEPACK_TEST_FLIPS");
    size_t count, files = 0, total = wanted ? strtoul(wanted, NULL, 10) : 10000, missed = 0;
    const struct tp_format *const *formats = tp_formats(&count);
    (void)unused;
    for (size_t f = 0; f < count; f++)
        files += !formats[f]->input_only;
    for (size_t f = 0; f < count; f++) {
        if (formats[f]->input_only)
            continue;
        convert(source, packed, formats[f]->name);
        missed += flip_file(packed, tp_ceil_div(total, files + 1));
    }
    convert(packed, plain, NULL);
    missed += flip_file(plain, tp_ceil_div(total, files + 1));
    assert_int_equal(missed, 0);
}

/* ---- contents, with the hash made anew ------------------------------------------ */

struct bytes {
    uint8_t *data;
};

static enum tp_code read_bytes(void *arg, void *data, uint64_t size, uint64_t offset,
                               struct tp_err *err)
{
    (void)err;
    memcpy(data, ((const struct bytes *)arg)->data + offset, size);
    return TP_OK;
}

/* The whole file, in memory. */
static uint8_t *load(const char *path, size_t *size)
{
    struct stat st;
    FILE *file = fopen(path, "rb");
    assert_true(file && fstat(fileno(file), &st) == 0);
    uint8_t *data = malloc((size_t)st.st_size + 1);
    assert_non_null(data);
    *size = fread(data, 1, (size_t)st.st_size, file);
    assert_int_equal(*size, st.st_size);
    fclose(file);
    return data;
}

/* Writes the bytes back with a hash that fits them. */
static void save_signed(const char *path, uint8_t *data, size_t size)
{
    static const char mark[] = "\"" TP_META_HASH "\":\"";
    char *digits = memmem(data, size, mark, strlen(mark)), text[TP_HASH_TEXT];
    uint8_t hash[TP_HASH_BYTES];
    struct bytes bytes = {data};
    struct tp_err err = {0};
    assert_non_null(digits);
    digits += strlen(mark);
    memset(digits, '0', TP_HASH_TEXT - 1);
    assert_int_equal(tp_leafhash_file(size, 1, read_bytes, &bytes, hash, &err), TP_OK);
    tp_hash_print(hash, text);
    memcpy(digits, text, TP_HASH_TEXT - 1);
    write_all(path, data, size, "", 0);
}

/* Changes one byte of a tensor of the packed file, hashes it anew, and expects the
 * words in the first problem. */
static void expect(const char *tensor, uint64_t byte, uint8_t xor, const char *words)
{
    char what[1200];
    size_t size;
    struct opened o = open_it(packed);
    const struct tp_tensor *t = tp_checkpoint_find(&o.ckpt, tensor);
    assert_non_null(t);
    assert_true(byte < t->bytes);
    uint64_t at = t->offset + byte;
    close_it(&o);
    uint8_t *data = load(packed, &size);
    data[at] ^= xor;
    save_signed(packed, data, size);
    assert_int_equal(verify(packed, what), TP_E_DIFF);
    if (!strstr(what, words))
        fail_msg("%s: '%s' is not in '%s'", tensor, words, what);
    data[at] ^= xor;
    save_signed(packed, data, size);
    assert_int_equal(verify(packed, what), TP_OK);
    free(data);
}

/* Every byte of padding, by the layout itself. */
static void test_padding_is_found(void **unused)
{
    static const char *const names[] = {"mxfp8-blocked", "mxfp8-torchao3d"};
    (void)unused;
    for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
        uint64_t padding = 0, at[TP_DIMS];
        convert(source, packed, names[f]);
        struct opened o = open_it(packed);
        for (size_t w = 0; w < o.weights.count; w++) {
            const struct tp_weight *weight = &o.weights.items[w];
            struct tp_layout layout;
            if (!weight->form->format)
                continue;
            int i = tp_op_find(&weight->form->op, TP_ROLE_SCALE);
            const struct tp_op_out *out = &weight->form->op.out[i];
            assert_int_equal(
                tp_op_layout(&weight->form->op, (uint32_t)i, weight->form->box, &layout, NULL),
                TP_OK);
            const char *name = o.ckpt.tensors[weight->tensor[i]].name;
            for (uint64_t b = 0; b < tp_layout_size(&layout); b++) {
                tp_layout_coord(&layout, b, at);
                if (at[TP_DIM_N] * out->per_n < weight->form->box.n &&
                    at[TP_DIM_K] * out->per_k < weight->form->box.k)
                    continue;
                if (padding++ % 37 == 0) /* a sample: each takes two passes */
                    expect(name, b, 0x10, "padding");
            }
        }
        close_it(&o);
        assert_true(padding >= 512);
    }
}

static void test_eightfold_scales_and_words_are_found(void **unused)
{
    (void)unused;
    convert(source, packed, "w4a8-cutlass");
    for (uint64_t byte = 0; byte < 8; byte++)
        expect("m.down_proj.weight_group_scale", 8 * 17 + byte, 0x01, "eight multiples");
    expect("m.down_proj.weight_layout", 4, 0x04, "word 1");
    expect("m.experts.w13_weight_layout", 12, 0x80, "word 3");
    convert(source, packed, "w4a8-ct");
    expect("m.down_proj.weight_shape", 0, 0x01, "word 0 is 145");
}

/* Every e4m3 group scale has one set of multiples, and its last byte tells which. */
static void test_last_multiple_names_the_scale(void **unused)
{
    (void)unused;
    for (unsigned scale = 0; scale < 256; scale++) {
        uint8_t made[8], again[8];
        tp_group8((uint8_t)scale, made);
        tp_group8(made[7] ^ 0x80, again);
        assert_memory_equal(made, again, 8);
    }
}

/* ---- figures ---------------------------------------------------------------------- */

static void against(const char *from, unsigned jobs, struct tp_verify_report *report)
{
    struct opened a = open_it(packed), b = open_it(from);
    struct tp_side stored = {.ckpt = &a.ckpt, .weights = &a.weights};
    struct tp_side origin = {.ckpt = &b.ckpt, .weights = &b.weights};
    struct tp_verify_options options = {.jobs = jobs};
    struct tp_err err = {0};
    *report = (struct tp_verify_report){0};
    if (tp_verify_against(&stored, &origin, &options, report, &err))
        fail_msg("%s", err.what);
    close_it(&a);
    close_it(&b);
}

static void test_numbers_do_not_depend_on_threads(void **unused)
{
    (void)unused;
    convert(source, packed, "w4a8-cutlass");
    struct tp_verify_report one, four;
    against(source, 1, &one);
    against(source, 4, &four);
    assert_int_equal(one.problem_count, 0);
    assert_int_equal(one.unit_count, 4);
    for (size_t u = 0; u < one.unit_count; u++) {
        const struct tp_distance *d = &one.units[u].distance;
        assert_memory_equal(d, &four.units[u].distance, sizeof *d);
        assert_true(d->count == one.units[u].box.e * one.units[u].box.n * one.units[u].box.k);
        assert_true(tp_distance_relative(d) > 0.02 && tp_distance_relative(d) < 0.2);
    }
    tp_verify_report_close(&one);
    tp_verify_report_close(&four);
}

/* A wrong code, hashed anew, is found against the source only, with its element. */
static void test_against_names_the_element(void **unused)
{
    char what[1200];
    size_t size;
    (void)unused;
    convert(source, packed, "mxfp8-ct");
    struct opened o = open_it(packed);
    uint64_t at = tp_checkpoint_find(&o.ckpt, "m.down_proj.weight")->offset + 3 * 128 + 5;
    close_it(&o);
    uint8_t *data = load(packed, &size);
    data[at] ^= 0x80;
    save_signed(packed, data, size);
    assert_int_equal(verify(packed, what), TP_OK);
    struct tp_verify_report report;
    against(source, 2, &report);
    assert_int_equal(report.problem_count, 1);
    assert_string_equal(report.problems[0].tensor, "m.down_proj.weight");
    assert_non_null(strstr(report.problems[0].what, "byte 389"));
    assert_non_null(strstr(report.problems[0].what, "n=3 k=5"));
    tp_verify_report_close(&report);
    free(data);
}

static void test_another_model_is_refused(void **unused)
{
    (void)unused;
    struct tp_verify_report report = {0};
    struct tp_verify_options options = {.jobs = 1};
    struct tp_err err = {0};
    convert(source, packed, "mxfp8-ct");
    struct opened a = open_it(packed), b = open_it(packed); /* not what it was made from */
    struct tp_side stored = {.ckpt = &a.ckpt, .weights = &a.weights};
    struct tp_side other = {.ckpt = &b.ckpt, .weights = &b.weights};
    for (size_t t = 0; t < b.ckpt.tensor_count; t++)
        b.ckpt.tensors[t].shape[0] = 12345;
    assert_int_equal(tp_verify_against(&stored, &other, &options, &report, &err), TP_E_INPUT);
    assert_non_null(strstr(err.what, "another model"));
    tp_verify_report_close(&report);
    close_it(&a);
    close_it(&b);
}

/* The sums by a plain loop, and the cases that have no number. */
static void test_distance(void **unused)
{
    (void)unused;
    float a[] = {1, -2, 0.5f, 0, 3}, b[] = {1.5f, -2, 0, -0.0f, 3};
    struct tp_distance d;
    tp_distance_of(TP_F32, a, b, 5, 5, &d);
    assert_true(d.differing == 2 && d.first == 0 && d.max_abs == 0.5 && d.error == 0.5);
    assert_true(d.value == 1 + 4 + 0.25 + 9);
    float x[] = {1, 0.0f / 0.0f, 1.0f / 0.0f, 1.0f / 0.0f},
          y[] = {1, 0.0f / 0.0f, 1.0f / 0.0f, 2};
    tp_distance_of(TP_F32, x, y, 4, 4, &d);
    assert_true(d.nonfinite == 3 && d.differing == 1 && d.first == 3 && d.error == 0);
    assert_true(isnan(tp_distance_relative(&d))); /* what differs is in no sum: not exact */
    tp_distance_of(TP_F32, x, y, 3, 3, &d);
    assert_true(d.nonfinite == 2 && d.differing == 0 && tp_distance_relative(&d) == 0);
}

/* Runs by a plain loop, for rows that end within a run and blocks that end within a row; zeros of
 * both signs, NaN and the smallest numbers of each type. */
static void test_lost_runs(void **unused)
{
    enum { ROWS = 300, MAX = 4099 };
    static const uint64_t widths[] = {1, 7, 8, 9, 64, 100, 1023, MAX};
    static const enum tp_dtype dtypes[] = {TP_F32, TP_BF16, TP_F16};
    static const uint16_t odd[] = {0, 0x8000, 1, 0x8001, 0x7fff};
    uint16_t *a = malloc(sizeof(float) * ROWS * MAX);
    float *b = malloc(sizeof *b * ROWS * MAX);
    (void)unused;
    for (size_t i = 0; i < 3 * sizeof widths / sizeof *widths; i++) {
        const uint64_t columns = widths[i / 3], count = ROWS * columns;
        const size_t words = dtypes[i % 3] == TP_F32 ? 2 : 1;
        struct tp_distance d = {0};
        uint64_t runs = 0, lost = 0;
        for (uint64_t k = 0; k < count; k++) {
            memset(a + k * words, 0, words * sizeof *a);
            a[(k + 1) * words - 1] = draw(8) ? odd[draw(2)] : odd[draw(5)];
            b[k] = draw(4) ? draw(2) ? -0.0f : 0 : 1e-45f;
        }
        for (uint64_t row = 0; row < ROWS; row++)
            for (uint64_t k = 0; k < columns; k += TP_RUN) {
                bool some = false, none = true;
                for (uint64_t j = row * columns + k;
                     j < row * columns + tp_min_u64(k + TP_RUN, columns); j++) {
                    some |= (a[(j + 1) * words - 1] & 0x7fff) != 0;
                    none &= b[j] == 0;
                }
                runs += some || !none;
                lost += some && none;
            }
        tp_distance_of(dtypes[i % 3], a, b, count, columns, &d);
        assert_true(d.runs == runs && d.lost_runs == lost && lost > 0 && lost < runs);
    }
    free(a);
    free(b);
}

/* More than a limit, and more than what a short sample has by accident. */
static void test_what_loses(void **unused)
{
    (void)unused;
    struct tp_distance d = {.runs = 1000, .lost_runs = 10};
    assert_true(tp_distance_lost(&d) == TP_LOST_LIMIT && !tp_distance_loses(&d));
    d = (struct tp_distance){.runs = 799, .lost_runs = 8};
    assert_true(tp_distance_loses(&d));
    d = (struct tp_distance){.runs = 100, .lost_runs = 7};
    assert_false(tp_distance_loses(&d));
    assert_true(tp_distance_lost(&(struct tp_distance){0}) == 0);
}

static int set_up(void **unused)
{
    (void)unused;
    if (!mkdtemp(folder))
        return -1;
    snprintf(source, sizeof source, "%s/source.safetensors", folder);
    snprintf(packed, sizeof packed, "%s/packed.safetensors", folder);
    snprintf(plain, sizeof plain, "%s/plain.safetensors", folder);
    make_source();
    return 0;
}

static int tear_down(void **unused)
{
    (void)unused;
    unlink(source);
    unlink(packed);
    unlink(plain);
    return rmdir(folder);
}

static void add_bytes(void *sum, uint64_t bytes, const char *tensor)
{
    (void)tensor;
    *(uint64_t *)sum += bytes;
}

/* What an estimate tells of its progress comes to what it said before. */
static void test_estimate_does_its_work(void **unused)
{
    (void)unused;
    struct opened o = open_it(source);
    struct tp_side side = {.ckpt = &o.ckpt, .weights = &o.weights};
    struct tp_request request = {.weights_only = true};
    struct tp_plan plan;
    struct tp_err err = {0};
    assert_int_equal(tp_request_to(&request, "mxfp8-ct", NULL, 0, &err), TP_OK);
    assert_int_equal(tp_plan_convert(&o.ckpt, &o.weights, &request, NULL, &plan, &err), TP_OK);
    assert_true(plan.kept_count);
    for (int full = 0; full <= 1; full++) {
        uint64_t done = 0;
        struct tp_estimate_options options = {.full = full, .jobs = 1, .progress = add_bytes,
                                              .progress_arg = &done};
        struct tp_unit_result *units = tp_unit_results_new(&plan, &err);
        assert_non_null(units);
        assert_int_equal(tp_estimate(&plan, &side, &options, units, &err), TP_OK);
        assert_true(done);
        assert_int_equal(done, tp_estimate_work(&plan, full));
        tp_unit_results_free(units, plan.unit_count);
    }
    tp_plan_close(&plan);
    tp_request_close(&request);
    close_it(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distance), cmocka_unit_test(test_lost_runs),
        cmocka_unit_test(test_what_loses),
        cmocka_unit_test(test_last_multiple_names_the_scale),
        cmocka_unit_test(test_padding_is_found),
        cmocka_unit_test(test_eightfold_scales_and_words_are_found),
        cmocka_unit_test(test_numbers_do_not_depend_on_threads),
        cmocka_unit_test(test_estimate_does_its_work),
        cmocka_unit_test(test_against_names_the_element),
        cmocka_unit_test(test_another_model_is_refused),
        cmocka_unit_test(test_every_flipped_bit_is_found),
    };
    return cmocka_run_group_tests_name("verify", tests, set_up, tear_down);
}
