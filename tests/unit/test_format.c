/* Formats: every embedded file obeys the rules, settings apply, shapes invert. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pack/api/tilepack.h"
#include "pack/engine/gpu.h"
#include "pack/format/format.h"
#include "pack/format/format_parse.h"
#include "pack/text/embedded.h"
#include "pack/schedule/gpus.h"
#include "failing_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct tp_embedded tp_embedded_formats[];

/* The first test: the list is not read yet. It is begun anew until all of it is there, and what
 * is only not known yet is no usage error. */
static void memory_that_comes_back_is_used(void **state)
{
    (void)state;
    char message[200];
    tilepack_weight *weight;
    size_t count;
    int failed = 0;
    int status = -1;
    for (long at = 0; status != TILEPACK_OK; at += 1 + at / 20) {
        failing_begin(at);
        status = tilepack_weight_new("w8a16-ct", NULL, 1, 128, 256, &weight, message,
                                     sizeof message);
        failing_end();
        failed += status == TILEPACK_E_MEMORY;
        if (status != TILEPACK_OK && status != TILEPACK_E_MEMORY)
            fail_msg("allocation %ld: status %d, %s", at, status, message);
        if (status == TILEPACK_OK && failing_left < 0)
            fail_msg("allocation %ld failed, and nothing with it", at);
    }
    tilepack_weight_free(weight);
    tp_formats(&count);
    for (size_t i = 0; tp_embedded_formats[i].name; i++)
        if (!tp_format_find(tp_embedded_formats[i].name))
            fail_msg("%s is missing", tp_embedded_formats[i].name);
    assert_true(failed > 50 && count > 50);
}

static void embedded_formats_are_valid(void **state)
{
    (void)state;
    struct tp_err err = {0};
    size_t count;
    if (tp_formats_check(&err))
        fail_msg("%s: %s", err.path, err.what);
    const struct tp_format *const *formats = tp_formats(&count);
    assert_true(count >= 9);
    for (size_t i = 1; i < count; i++)
        assert_true(strcmp(formats[i - 1]->name, formats[i]->name) < 0);
    assert_non_null(tp_format_find("w4a8-cutlass"));
    assert_null(tp_format_find("w4a8"));
}

static void settings_change_the_operation(void **state)
{
    (void)state;
    const struct tp_format *format = tp_format_find("w4a8-cutlass");
    struct tp_settings settings = {0};
    struct tp_op op;
    struct tp_err err = {0};
    tp_format_op(format, &settings, &op);
    assert_int_equal(op.channel_rule, TP_CHANNEL_GPU);
    assert_int_equal(op.rule, TP_INT4_QUOTIENT_FP32);
    assert_int_equal(tp_format_set(&format, "scale=div", &settings, &err), TP_OK);
    assert_int_equal(tp_format_set(&format, "quotient=bf16", &settings, &err), TP_OK);
    tp_format_op(format, &settings, &op);
    assert_int_equal(op.channel_rule, TP_CHANNEL_DIV);
    assert_int_equal(op.rule, TP_INT4_QUOTIENT_BF16);
    static const char *const bad[] = {"scale", "scale=", "scale=half", "=div", "scal=div", "", "x=y"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tp_err wrong = {0};
        assert_int_equal(tp_format_set(&format, bad[i], &settings, &wrong), TP_E_USAGE);
        assert_non_null(strstr(wrong.hint, "scale=gpu|cpu|div"));
    }
}

/* The two words of one choice, and the one that files hold. */
/* A choice of a group size is another format of the same name, and may be taken back. */
static void group_sizes_are_chosen(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        uint32_t block_k;
        uint64_t scales;
    } choices[] = {{"group=64", 64, 16}, {"group=channel", 0, 1}, {"group=32", 32, 32},
                   {"group=128", 128, 8}};
    const struct tp_format *own = tp_format_find("w4a16-ct"), *format = own;
    struct tp_settings settings = {0};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        uint64_t shape[TP_MAX_RANK];
        uint32_t rank;
        struct tp_op op;
        assert_int_equal(tp_format_set(&format, choices[i].word, &settings, NULL), TP_OK);
        tp_format_op(format, &settings, &op);
        assert_int_equal(op.block_k, choices[i].block_k);
        assert_int_equal(op.out[1].per_k, choices[i].block_k);
        assert_int_equal(tp_format_shape(format, 1, (struct tp_box3){1, 2, 1024}, 2, shape, &rank,
                                         NULL), TP_OK);
        assert_int_equal(shape[1], choices[i].scales);
    }
    assert_ptr_equal(format, own);
}

static void aliases_mean_their_choice(void **state)
{
    (void)state;
    const struct tp_format *format = tp_format_find("w4a8-cutlass");
    const struct tp_param *scale = &format->param[1];
    assert_string_equal(scale->key, "scale");
    assert_string_equal(scale->choices[1], "cpu");
    assert_string_equal(scale->stored[0], "gpu");
    assert_string_equal(scale->stored[1], "rcp"); /* as version 0.1.0 wrote it */
    static const char *const words[] = {"scale=cpu", "scale=rcp"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct tp_settings settings = {0};
        struct tp_op op;
        assert_int_equal(tp_format_set(&format, words[i], &settings, NULL), TP_OK);
        assert_int_equal(settings.choice[1], 1);
        tp_format_op(format, &settings, &op);
        assert_int_equal(op.channel_rule, TP_CHANNEL_CPU);
    }
    assert_int_equal(tp_param_find(scale, "gpu"), 0);
    assert_int_equal(tp_param_find(scale, "div"), 2);
    assert_int_equal(tp_param_find(scale, "rc"), -1);
}

typedef enum tp_code (*find_granule)(const struct tp_op *op, uint64_t *n, uint64_t *k,
                                     struct tp_err *err);

/* The granule times any factor must give boxes that embed in the whole, for every
 * output of every format: what the run loop relies on. */
static void embed(find_granule find)
{
    size_t count;
    const struct tp_format *const *formats = tp_formats(&count);
    for (size_t f = 0; f < count; f++) {
        const struct tp_op *op = &formats[f]->op;
        uint64_t n, k;
        struct tp_err err = {0};
        assert_int_equal(find(op, &n, &k, &err), TP_OK);
        struct tp_box3 whole = {3, 6 * n, k ? 6 * k : 1536}, box = {1, 2 * n, k ? 3 * k : 1536};
        for (uint32_t i = 0; i < op->outs; i++) {
            struct tp_layout part, all;
            if (!op->out[i].layout)
                continue;
            assert_int_equal(tp_op_layout(op, i, box, &part, &err), TP_OK);
            assert_int_equal(tp_op_layout(op, i, whole, &all, &err), TP_OK);
            assert_int_equal(tp_layout_check(&part, &err), TP_OK);
            assert_true(tp_layout_embeds(&part, &all));
        }
    }
}

static void granules_embed(void **state)
{
    (void)state;
    embed(tp_op_granule);
    embed(tp_op_stored_granule);
}

/* Stored shape of the codes -> weight -> the same shape, for 2-D and 3-D. */
static void shapes_invert(void **state)
{
    (void)state;
    size_t count;
    const struct tp_format *const *formats = tp_formats(&count);
    for (size_t f = 0; f < count; f++)
        for (int rank = 2; rank <= 3; rank++) {
            const struct tp_format *format = formats[f];
            uint32_t c = (uint32_t)tp_op_find(&format->op, TP_ROLE_CODES), shape_rank;
            struct tp_box3 box = {rank == 3 ? 5 : 1, 256, 512}, back;
            uint64_t shape[TP_MAX_RANK];
            int back_rank;
            struct tp_err err = {0};
            assert_int_equal(tp_format_shape(format, c, box, rank, shape, &shape_rank, &err), TP_OK);
            if (!tp_format_box_of(format, shape, shape_rank, &back, &back_rank))
                continue; /* formats that always hold experts have one rank only */
            assert_int_equal(back.n, box.n);
            assert_int_equal(back.k, box.k);
        }
}

/* The format's text with `from` replaced once. */
static char *edited(const struct tp_format *format, const char *from, const char *to)
{
    char *text = json_dumps(format->json, 0), *bad;
    assert_non_null(text);
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("the format file has no %s", from);
    assert_true(asprintf(&bad, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    free(text);
    return bad;
}

static void refused(const char *name, const char *from, const char *to, const char *what)
{
    struct tp_format parsed;
    struct tp_err err = {0};
    char *bad = edited(tp_format_find(name), from, to);
    assert_int_equal(tp_format_parse(bad, &(struct tp_format_as){0}, &parsed, &err), TP_E_INPUT);
    assert_true(err.what[0]);
    if (!strstr(err.what, what))
        fail_msg("%s: '%s', not '%s'", to, err.what, what);
    free(bad);
}

/* What a tensor holds by its shape is what its layout reaches: reading by the layout never
 * leaves the tensor. Formats without E in the shape of their codes hold one matrix. */
static void shapes_hold_their_layouts(void **state)
{
    (void)state;
    size_t count, held = 0;
    const struct tp_format *const *formats = tp_formats(&count);
    for (size_t f = 0; f < count; f++)
        for (int rank = 2; rank <= 3; rank++) {
            const struct tp_format *format = formats[f];
            const struct tp_op *op = &format->op;
            const char *first = format->out[tp_op_find(op, TP_ROLE_CODES)].shape[0];
            struct tp_box3 box = {rank == 3 && strcmp(first, "E") == 0 ? 9 : 1, 256, 512};
            for (uint32_t i = 0; i < op->outs; i++) {
                uint64_t shape[TP_MAX_RANK], bytes, size = tp_dtype_bits(format->out[i].dtype) / 8;
                uint32_t dims;
                struct tp_err err = {0};
                if (!op->out[i].layout)
                    continue;
                assert_int_equal(tp_format_shape(format, i, box, rank, shape, &dims, &err), TP_OK);
                assert_int_equal(tp_op_bytes(op, i, box, &bytes, &err), TP_OK);
                for (uint32_t d = 0; d < dims; d++)
                    size *= shape[d];
                if (size != bytes)
                    fail_msg("%s of %s: %llu bytes, but its layout has %llu",
                             format->out[i].suffix, format->name, (unsigned long long)size,
                             (unsigned long long)bytes);
                held++;
            }
        }
    assert_true(held > 2 * 2 * count); /* codes and scales of all */
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    static const char *const edits[][2] = {
        {"\"codec\": \"int4\"", "\"codec\": \"int5\""},
        {"\"role\": \"codes\"", "\"role\": \"scale\""},
        {"(E,N,K):(N*K,K,1)", "(E,N,K):(N*K,K,2)"},
        {"\"dtype\": \"I32\"", "\"dtype\": \"I33\""},
        {"\"rule\": \"fp32\"", "\"rule\": \"fp33\""},
        {"\"dim\": \"K\"", "\"dim\": \"Q\""},
        {"[0, 1, 2", "[0, 0, 2"},
        {"\"version\": 1", "\"version\": 0"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++)
        refused("w4a8-ct", edits[i][0], edits[i][1], "");
    refused("w4a16-ct", "{\"group\": 64}", "{}", "\"group\" of choice \"64\"");
    refused("w4a16-ct", "{\"group\": 64}", "{\"group\": 0}", "\"group\" of choice \"64\"");
    refused("w4a16-ct", "{\"group\": 64}", "{\"group\": \"rows\"}", "\"group\" of choice");
    refused("w4a16-ct", "\"let\": {\"G\": \"128\"},", "", "");
}

/* A factor is that of a float scale, five exponent bits those of NVFP4's scales. */
static void bad_factors_are_refused(void **state)
{
    (void)state;
    static const char factor[] = "is no exponent from -126 to 126";
    refused("nvfp4-marlin", "\"factor\": 119", "\"factor\": 127", factor);
    refused("nvfp4-marlin", "\"factor\": 119", "\"factor\": -127", factor);
    refused("nvfp4-marlin", "\"factor\": 119", "\"factor\": \"119\"", factor);
    refused("mxfp4-marlin", "{\"rule\": \"even\"}", "{\"factor\": 1}", factor);
    refused("nvfp4-marlin", "\"element\": \"e2m1\"", "\"element\": \"e5m3\"", "only scales are");
    refused("nvfp4-marlin", "\"element\": \"e5m3\"", "\"element\": \"e4m3\"", "\"lift\" for such");
    refused("mxfp4-marlin", "\"element\": \"e8m0\"", "\"element\": \"e5m3\"", "scales of nvfp4");
    refused("fp8-marlin", "\"scale_element\": \"f16\"", "\"scale_element\": \"e8m0\"",
            "no known word");
    refused("w4a16-ct", "{\"rule\": \"fp32\"}", "{\"scale_element\": \"f16\"}",
            "for FP8 scales that are floats");
}

/* A zero point is a code of the integers, or a product with a scale of the same block. */
static void bad_zero_points_are_refused(void **state)
{
    (void)state;
    static const char what[] = "a zero point is \"int4\"";
    static const char product[] = "\"shape\": [\"E\", \"K/G\", \"N\"], \"element\": \"bf16\", "
                                  "\"per\": [1, \"G\"], \"layout\": \"(E,N,K/G):(N*(K/G),1,N)\"}]";
    static const char wider[] = "\"shape\": [\"E\", \"1\", \"N\"], \"element\": \"bf16\", "
                                "\"per\": [1, 0], \"layout\": \"(E,N,1):(N,1,1)\"}]";
    refused("w8a16-machete", product, wider, what);
    refused("nvfp4-modelopt", "\"role\": \"global\"", "\"role\": \"zero\"", what);
}

static void bad_searches_are_refused(void **state)
{
    (void)state;
    static const char what[] = "\"search\" and \"signed\" are none of codec";
    static const char mse[] = "\"search\": \"mse\"";
    refused("w4a8-ct", mse, "\"search\": \"best\"", "which is no known word");
    refused("w4a8-ct", "\"search\": \"mse\", ", "", what);
    refused("nvfp4-ct", mse, "\"search\": \"w4a8\"", what);
    refused("nvfp4-ct", mse, "\"search\": \"mse\", \"signed\": true", what);
    refused("fp8-ct", "\"block\"", "\"search\": \"mse\", \"block\"", what);
    refused("w4a8-ct", "\"search\": \"none\"", mse, "\"search\" of a choice");
}

/* What is not said of a search is the format's, unless a choice takes it away. */
static void choices_take_a_search_away(void **state)
{
    (void)state;
    struct tp_err err = {0};
    struct tp_settings settings = {0};
    const struct tp_format *format = tp_format_find("gptq"), *none = tp_format_find("fp8-ct");
    struct tp_format_search search = tp_format_search(format, &settings);
    assert_true(search.search == TP_SEARCH_MSE && search.is_signed);
    assert_int_equal(tp_format_unsearched(format, &settings), format->params);
    assert_int_equal(tp_format_set(&format, "group=channel", &settings, &err), TP_OK);
    assert_int_equal(tp_format_search(format, &settings).search, TP_SEARCH_NONE);
    assert_string_equal(format->param[tp_format_unsearched(format, &settings)].key, "group");
    settings = (struct tp_settings){0};
    assert_int_equal(tp_format_search(none, &settings).search, TP_SEARCH_NONE);
}

static void bad_words_are_refused(void **state)
{
    (void)state;
    static const char twice[] = "is used twice";
    static const char *const edits[][3] = {
        {"\"channel_rule\": \"gpu\"", "\"channel_rule\": \"gnu\"",
         "'gnu', which is no known word"},
        {"[\"rcp\"]", "[\"gpu\"]", twice},
        {"[\"rcp\"]", "[\"div\"]", twice},
        {"[\"rcp\"]", "[\"cpu\"]", twice},
        {"[\"rcp\"]", "[\"rcp\", \"rcp\"]", twice},
        {"\"name\": \"div\"", "\"name\": \"rcp\"", twice},
        {"\"name\": \"div\"", "\"name\": \"gpu\"", twice},
        {"[\"rcp\"]", "[\"rcp\", 7]", "no string"},
        {"[\"rcp\"]", "\"rcp\"", "no list"},
        {"[\"rcp\"]", "[\"rcp\", \"b\", \"c\"]", "more than 2 entries"},
        {"\"stored\": \"rcp\"", "\"stored\": \"host\"", "neither its name nor an alias"},
        {"\"stored\": \"rcp\"", "\"stored\": \"div\"", "neither its name nor an alias"},
        {"\"stored\": \"rcp\"", "\"stored\": 1", "no string"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++)
        refused("w4a8-cutlass", edits[i][0], edits[i][1], edits[i][2]);
}

/* What readers do stands in engines/. */
static void former_keys_are_refused(void **state)
{
    (void)state;
    static const char *const keys[] = {"loads_in", "serve", "requires", "snr_db"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char edit[80];
        snprintf(edit, sizeof edit, "\"%s\": \"x\", \"codec\"", keys[i]);
        refused("w4a8-ct", "\"codec\"", edit,
                "is no key of a format any more: who reads what stands in engines/");
    }
}

/* Who plans a kernel for a GPU can ask what is served on it. */
static void gpus_of_schedules_are_known(void **state)
{
    (void)state;
    size_t count;
    const struct tp_gpu *gpus = tp_gpus(&count);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++)
        if (tp_chip_sm(gpus[i].name) / 10 != gpus[i].arch)
            fail_msg("%s", gpus[i].name);
}

/* What nvidia-smi calls products. */
static void products_are_chips(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name;
    } pairs[] = {
        {"NVIDIA H100 80GB HBM3", "h100"}, {"NVIDIA H100 NVL", "h100-nvl"},
        {"h100-pcie", "h100-pcie"},
        {"NVIDIA A100-SXM4-40GB", "a100-40gb"}, {"NVIDIA A100 80GB PCIe", "a100"},
        {"NVIDIA A10G", "a10g"}, {"NVIDIA GeForce RTX 4090", "4090"}, {"NVIDIA GB200", "gb200"},
        {"NVIDIA GH200 144G HBM3e", "gh200-144g"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const struct tp_chip *chip = tp_chip_find(pairs[i].text);
        assert_non_null(chip);
        assert_string_equal(chip->name, pairs[i].name);
    }
    static const char *const none[] = {"", "h", "h100x", "NVIDIA", "h100 ", "xh100",
                                       "NVIDIA GeForce RTX 5090 Laptop GPU",
                                       "NVIDIA H100 80GB HBM3 MIG 1g.10gb"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_null(tp_chip_find(none[i]));
    assert_true(tp_chip_is_amd("MI300X") && !tp_chip_is_amd("h100"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_chips),
        cmocka_unit_test(memory_that_comes_back_is_used),
        cmocka_unit_test(embedded_formats_are_valid), cmocka_unit_test(settings_change_the_operation),
        cmocka_unit_test(granules_embed),             cmocka_unit_test(shapes_invert),
        cmocka_unit_test(shapes_hold_their_layouts),
        cmocka_unit_test(former_keys_are_refused),
        cmocka_unit_test(gpus_of_schedules_are_known),
        cmocka_unit_test(bad_files_are_refused),      cmocka_unit_test(bad_factors_are_refused),
        cmocka_unit_test(bad_zero_points_are_refused),
        cmocka_unit_test(bad_words_are_refused),
        cmocka_unit_test(bad_searches_are_refused), cmocka_unit_test(choices_take_a_search_away),
        cmocka_unit_test(group_sizes_are_chosen),
        cmocka_unit_test(aliases_mean_their_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
