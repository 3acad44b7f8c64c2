/* Inspection: --offset is the inverse of --at for every element and every byte of
 * small weights of every format, and both agree with the layouts as the kernels'
 * own documents write them. */
#include "kernels/op/scalar.h"
#include "pack/commit/commit.h"
#include "pack/inspect/inspect.h"
#include "pack/os/os.h"
#include "pack/run/run.h"
#include "pack/sink/sink.h"
#include "pack/source/invariants.h"
#include "pack/source/weight_complete.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[] = "/tmp/tilepack-inspect.XXXXXX";

struct source {
    struct tp_checkpoint ckpt;
    struct tp_weights weights;
};

static void must(enum tp_code code, const struct tp_err *err)
{
    if (code)
        fail_msg("%s: %s: %s (%s)", err->path, err->tensor, err->what, err->hint);
}

static void open_source(const char *path, struct source *source)
{
    struct tp_err err = {0};
    must(tp_checkpoint_open(path, 0, &source->ckpt, &err), &err);
    must(tp_weights_find(&source->ckpt, &source->weights, &err), &err);
}

static void close_source(struct source *source)
{
    tp_weights_close(&source->weights);
    tp_checkpoint_close(&source->ckpt);
}

/* A BF16 tensor of pseudo-random values with some zeros and an all-zero row. */
static void write_input(const char *path, const char *name, const uint64_t *shape, uint32_t rank)
{
    struct tp_st_tensor tensor = {name, TP_BF16, rank, {0}, 0, 2};
    struct tp_text text = {0};
    struct tp_err err = {0};
    uint32_t state = 12345;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (uint32_t d = 0; d < rank; d++) {
        tensor.shape[d] = shape[d];
        tensor.end *= shape[d];
    }
    must(tp_st_write_header(&tensor, 1, NULL, 0, 8, &text, &err), &err);
    fwrite(text.data, 1, text.size, file);
    for (uint64_t i = 0; i < tensor.end / 2; i++) {
        uint16_t half;
        state = state * 1664525 + 1013904223;
        half = tp_f32_to_bf16((float)((int)(state >> 16) - 32768) / 65536.0f);
        if (state % 97 == 0 || i / shape[rank - 1] == 3)
            half = 0;
        fwrite(&half, 2, 1, file);
    }
    tp_text_free(&text);
    assert_int_equal(fclose(file), 0);
}

/* Converts the tensor into the file packed.safetensors. */
static char *convert(const char *to, const char *setting, const char *name, const uint64_t *shape,
                     uint32_t rank)
{
    static char packed[200];
    char input[200];
    struct source source;
    struct tp_request request = {0};
    struct tp_plan plan;
    struct tp_convert_options options = {.if_exists = TP_EXISTS_REPLACE, .run = {.jobs = 2}};
    struct tp_convert_result result;
    struct tp_err err = {0};
    snprintf(input, sizeof input, "%s/input.safetensors", directory);
    snprintf(packed, sizeof packed, "%s/packed.safetensors", directory);
    write_input(input, name, shape, rank);
    open_source(input, &source);
    must(tp_request_to(&request, to, &setting, setting != NULL, &err), &err);
    must(tp_plan_convert(&source.ckpt, &source.weights, &request, "packed.safetensors", &plan,
                         &err), &err);
    if (plan.unit_count != 1)
        fail_msg("%s: nothing to convert: %s", to,
                 plan.kept_count ? plan.kept[0].reason : "no tensor");
    must(tp_convert(&plan, &request, packed, &options, &result, &err), &err);
    tp_plan_close(&plan);
    tp_request_close(&request);
    close_source(&source);
    return packed;
}

/* ---- every byte and every element ---------------------------------------- */

static bool covers(const struct tp_stored *item, const struct tp_element_info *at)
{
    return !item->padding && item->e0 <= at->e && at->e < item->e1 && item->n0 <= at->n &&
           at->n < item->n1 && item->k0 <= at->k && at->k < item->k1;
}

/* From the element to its bytes, and back to a set that holds the element. */
static void check_element(const struct source *source, const struct tp_subject *unit, uint64_t e,
                          uint64_t n, uint64_t k)
{
    struct tp_element_info at;
    struct tp_err err = {0};
    must(tp_inspect_at(&source->ckpt, unit, e, n, k, &at, &err), &err);
    assert_true(at.has_value);
    for (uint32_t i = 0; i < at.spots; i++) {
        struct tp_subject part;
        struct tp_byte_info byte;
        const struct tp_spot *spot = &at.spot[i];
        if (spot->tensor == TP_NO_TENSOR)
            continue;
        part = tp_inspect_tensor(&source->ckpt, &source->weights, spot->tensor);
        assert_int_equal(part.out, i);
        must(tp_inspect_byte(&source->ckpt, &part, spot->byte, &byte, &err), &err);
        assert_int_equal(byte.offset, spot->offset);
        assert_int_equal(byte.count, spot->bits == 4 ? 2 : 1);
        const struct tp_stored *item = &byte.item[spot->bits == 4 ? spot->nibble : 0];
        assert_true(covers(item, &at));
        assert_int_equal(item->spot.index, spot->index);
        assert_memory_equal(item->spot.raw, spot->raw, 8);
        assert_int_equal(item->byte_of, 0);
    }
}

/* Every byte of an output: elements lie where they say, the rest is padding. Returns
 * the number of stored elements that are no padding. */
static uint64_t check_bytes(const struct source *source, const struct tp_subject *part)
{
    const struct tp_tensor *tensor = &source->ckpt.tensors[part->tensor];
    uint64_t real = 0;
    for (uint64_t b = 0; b < tensor->bytes; b++) {
        struct tp_byte_info byte;
        struct tp_err err = {0};
        must(tp_inspect_byte(&source->ckpt, part, b, &byte, &err), &err);
        for (unsigned i = 0; i < byte.count; i++) {
            const struct tp_stored *item = &byte.item[i];
            struct tp_element_info at;
            if (item->padding) {
                assert_int_equal(item->spot.raw[0], item->fill);
                continue;
            }
            real += item->byte_of == 0;
            if (item->word >= 0)
                continue;
            must(tp_inspect_at(&source->ckpt, part, item->e0, item->n0, item->k0, &at, &err),
                 &err);
            assert_int_equal(at.spot[part->out].index, item->spot.index);
            must(tp_inspect_at(&source->ckpt, part, item->e1 - 1, item->n1 - 1, item->k1 - 1, &at,
                               &err), &err);
            assert_int_equal(at.spot[part->out].index, item->spot.index);
        }
    }
    return real;
}

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static void check_outputs(const struct source *source, const struct tp_subject *unit)
{
    const struct tp_weight *weight = unit->weight;
    for (uint32_t i = 0; i < weight->form->op.outs; i++) {
        struct tp_subject part =
            tp_inspect_tensor(&source->ckpt, &source->weights, weight->tensor[i]);
        uint64_t per_n, per_k, real = check_bytes(source, &part);
        tp_inspect_per(weight, i, &per_n, &per_k);
        if (weight->form->op.out[i].role != TP_ROLE_WORDS && weight->form->op.out[i].layout)
            assert_int_equal(real, weight->form->box.e * ceil_div(weight->form->box.n, per_n) *
                                       ceil_div(weight->form->box.k, per_k));
    }
}

/* ---- values --------------------------------------------------------------- */

struct checking {
    const struct source *source;
    const struct tp_subject *unit;
    const struct tp_region *region;
    uint64_t rows;
};

static enum tp_code check_row(void *arg, uint64_t n, const double *values, uint64_t count,
                              struct tp_err *err)
{
    struct checking *c = arg;
    assert_int_equal(n, c->region->n0 + c->rows++);
    assert_int_equal(count, c->region->k1 - c->region->k0);
    for (uint64_t i = 0; i < count; i++) {
        struct tp_element_info at;
        must(tp_inspect_at(&c->source->ckpt, c->unit, c->region->e, n, c->region->k0 + i, &at,
                           err), err);
        assert_true(at.value == values[i]);
    }
    return TP_OK;
}

/* The values of a region are those of its elements, one by one. */
static void check_region(const struct source *source, const struct tp_subject *unit, uint64_t e,
                         uint64_t n0, uint64_t n1, uint64_t k0, uint64_t k1)
{
    struct tp_region region = {e, n0, n1, k0, k1};
    struct checking c = {source, unit, &region, 0};
    struct tp_err err = {0};
    must(tp_inspect_region(unit, &region, &err), &err);
    must(tp_inspect_values(&source->ckpt, unit, &region, check_row, &c, &err), &err);
    assert_int_equal(c.rows, region.n1 - region.n0);
}

static void check_weight(const struct source *source, const struct tp_subject *unit)
{
    struct tp_box3 box = unit->box;
    for (uint64_t e = 0; e < box.e; e++) {
        for (uint64_t n = 0; n < box.n; n++)
            for (uint64_t k = 0; k < box.k; k++)
                check_element(source, unit, e, n, k);
        check_region(source, unit, e, 0, UINT64_MAX, 0, UINT64_MAX);
        check_region(source, unit, e, box.n / 2, box.n / 2 + 2, box.k / 3, box.k / 3 + 5);
        check_region(source, unit, e, box.n - 1, box.n, box.k - 1, box.k);
    }
    check_outputs(source, unit);
}

struct example {
    const char *format, *setting;
    uint64_t shape[3];
    uint32_t rank;
};

static const struct example examples[] = {
    {"w4a8-ct", NULL, {5, 256}, 2},
    {"w4a8-cutlass", NULL, {32, 256}, 2},
    {"w4a8-cutlass", "scale=div", {2, 16, 128}, 3},
    {"fp8-deepseek", NULL, {130, 140}, 2},
    {"fp8-deepseek", "scale=ue8m0", {3, 130}, 2},
    {"fp8-ct", NULL, {129, 20}, 2},
    {"fp8-1x128", NULL, {6, 300}, 2},
    {"fp8-deepgemm-sm90", "variant=seed-cuda", {130, 300}, 2},
    {"fp8-deepgemm-sm100", NULL, {5, 700}, 2},
    {"fp8-deepgemm-sm100", NULL, {2, 9, 130}, 3},
    {"mxfp8-ct", NULL, {3, 96}, 2},
    {"mxfp8-blocked", NULL, {130, 160}, 2},
    {"mxfp8-blocked", NULL, {2, 33, 64}, 3},
    {"mxfp8-torchao3d", NULL, {2, 64, 40}, 3},
    {"mxfp8-torchao3d", "block=32x32", {1, 32, 64}, 3},
    {"mxfp4-ct", NULL, {3, 64}, 2},
    {"mxfp4-blocked", NULL, {33, 160}, 2},
    {"nvfp4-ct", NULL, {5, 48}, 2},
    {"nvfp4-blocked", "scale=modelopt", {2, 7, 80}, 3},
};

/* fp8-deepseek and its like split stacks, so that 3-D examples are of the others. */
static void every_format_goes_both_ways(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct example *x = &examples[i];
        const char *name = x->rank == 3 ? "m.experts.down_proj" : "m.q_proj.weight";
        const char *unit_name = x->rank == 3 ? "m.experts.w2_" : "m.q_proj";
        struct source source;
        struct tp_subject unit;
        struct tp_err err = {0};
        open_source(convert(x->format, x->setting, name, x->shape, x->rank), &source);
        must(tp_inspect_find(&source.ckpt, &source.weights, unit_name, &unit, &err), &err);
        assert_non_null(unit.weight);
        assert_string_equal(unit.weight->form->format->name, x->format);
        check_weight(&source, &unit);
        close_source(&source);
    }
}

/* ---- places, from the documents of the kernels --------------------------- */

static uint64_t place_of(const struct source *source, const char *tensor, uint64_t e, uint64_t n,
                         uint64_t k)
{
    struct tp_subject subject;
    struct tp_element_info at;
    struct tp_err err = {0};
    must(tp_inspect_find(&source->ckpt, &source->weights, tensor, &subject, &err), &err);
    must(tp_inspect_at(&source->ckpt, &subject, e, n, k, &at, &err), &err);
    return at.spot[subject.out].index;
}

static void w4a8_nibbles_lie_where_the_kernel_reads_them(void **state)
{
    const uint64_t shape[3] = {2, 32, 256}, rows = 32;
    struct source source;
    (void)state;
    open_source(convert("w4a8-cutlass", NULL, "m.experts.down_proj", shape, 3), &source);
    for (uint64_t e = 0; e < 2; e++)
        for (uint64_t n = 0; n < rows; n++)
            for (uint64_t k = 0; k < 256; k++) {
                uint64_t want = e * rows * 256 + (k >> 5) * 32 * rows + (n >> 4) * 512 +
                                (n & 7) * 64 + ((k >> 2) & 3) * 16 + ((k >> 4) & 1) * 8 +
                                ((n >> 3) & 1) * 4 + (k & 3);
                assert_int_equal(place_of(&source, "m.experts.w2_weight_packed", e, n, k), want);
            }
    close_source(&source);
}

static void scale_tiles_lie_where_tensor_cores_read_them(void **state)
{
    const uint64_t shape[2] = {130, 160};
    struct source source;
    (void)state;
    open_source(convert("mxfp8-blocked", NULL, "m.q_proj.weight", shape, 2), &source);
    for (uint64_t n = 0; n < 130; n++)
        for (uint64_t k = 0; k < 160; k += 32) {
            uint64_t c = k / 32; /* 5 columns: two tiles side by side */
            uint64_t want = (n / 128 * 2 + c / 4) * 512 + n % 32 * 16 + n % 128 / 32 * 4 + c % 4;
            assert_int_equal(place_of(&source, "m.q_proj.weight_scale", 0, n, k), want);
        }
    close_source(&source);
}

/* The value is q times g rounded to e4m3, times the channel scale. */
static void w4a8_value_is_what_the_kernel_computes(void **state)
{
    const uint64_t shape[2] = {16, 256};
    struct source source;
    struct tp_subject unit;
    struct tp_err err = {0};
    unsigned inexact = 0;
    (void)state;
    open_source(convert("w4a8-cutlass", NULL, "m.q_proj.weight", shape, 2), &source);
    must(tp_inspect_find(&source.ckpt, &source.weights, "m.q_proj", &unit, &err), &err);
    for (uint64_t n = 0; n < 16; n++)
        for (uint64_t k = 0; k < 256; k++) {
            struct tp_element_info at;
            must(tp_inspect_at(&source.ckpt, &unit, 0, n, k, &at, &err), &err);
            float q = (float)at.spot[0].value, g = (float)at.spot[2].value;
            float w = tp_e4m3_value(tp_e4m3_of(q * g));
            assert_true((float)at.value == w * (float)at.spot[3].value);
            inexact += w != q * g;
        }
    assert_true(inexact > 100); /* or the test shows nothing */
    close_source(&source);
}

/* ---- a weight of another tool -------------------------------------------- */

enum { GN = 16, GK = 64, GROUP = 32 };

struct gptq {
    uint32_t qweight[GK / 8][GN];
    uint32_t zeros[GK / GROUP][GN / 8];
    uint32_t order[GK];
    uint16_t scales[GK / GROUP][GN];
};

/* GPTQ, asymmetric and in act-order: what its own readers would compute. */
static double gptq_value(const struct gptq *g, uint64_t n, uint64_t k)
{
    uint32_t group = g->order[k];
    int code = (int)(g->qweight[k / 8][n] >> 4 * (k % 8) & 15);
    int zero = (int)(g->zeros[group][n / 8] >> 4 * (n % 8) & 15) + 1; /* version 1 */

    return (float)(code - zero) * tp_f16_to_f32(g->scales[group][n]);
}

static void write_gptq(const char *path, struct gptq *g)
{
    struct tp_st_tensor tensors[] = {
        {"a.qweight", TP_I32, 2, {GK / 8, GN}, 0, sizeof g->qweight},
        {"a.qzeros", TP_I32, 2, {GK / GROUP, GN / 8}, 0, sizeof g->zeros},
        {"a.g_idx", TP_I32, 1, {GK}, 0, sizeof g->order},
        {"a.scales", TP_F16, 2, {GK / GROUP, GN}, 0, sizeof g->scales}};
    struct tp_text text = {0};
    struct tp_err err = {0};
    uint32_t state = 7;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (size_t i = 1; i < 4; i++) {
        tensors[i].begin = tensors[i - 1].end;
        tensors[i].end += tensors[i].begin;
    }
    for (size_t i = 0; i < sizeof g->qweight / 4; i++)
        ((uint32_t *)g->qweight)[i] = state = state * 1664525 + 1013904223;
    for (size_t i = 0; i < sizeof g->zeros / 4; i++)
        ((uint32_t *)g->zeros)[i] = state = state * 1664525 + 1013904223;
    for (uint32_t k = 0; k < GK; k++)
        g->order[k] = (k * 5 + k / 7) % (GK / GROUP);
    for (uint32_t i = 0; i < sizeof g->scales / 2; i++)
        ((uint16_t *)g->scales)[i] = tp_f32_to_f16(0.01f * (float)(i + 1));
    must(tp_st_write_header(tensors, 4, NULL, 0, 8, &text, &err), &err);
    fwrite(text.data, 1, text.size, file);
    fwrite(g, 1, sizeof *g, file);
    tp_text_free(&text);
    assert_int_equal(fclose(file), 0);
}

static void gptq_with_zero_points_and_act_order(void **state)
{
    static struct gptq g;
    char path[200];
    struct source source;
    struct tp_subject unit;
    struct tp_err err = {0};
    (void)state;
    snprintf(path, sizeof path, "%s/gptq.safetensors", directory);
    write_gptq(path, &g);
    open_source(path, &source);
    must(tp_inspect_find(&source.ckpt, &source.weights, "a", &unit, &err), &err);
    assert_non_null(unit.weight);
    must(tp_weight_complete(&source.ckpt, &source.weights, 0, &err), &err);
    for (uint64_t n = 0; n < GN; n++)
        for (uint64_t k = 0; k < GK; k++) {
            struct tp_element_info at;
            must(tp_inspect_at(&source.ckpt, &unit, 0, n, k, &at, &err), &err);
            assert_true(at.value == gptq_value(&g, n, k));
        }
    check_region(&source, &unit, 0, 0, GN, 0, GK);
    check_region(&source, &unit, 0, 3, 5, 40, 50);
    close_source(&source);
}

/* Puts another group number into the file, as the one of column k. */
static void patch_order(const char *path, uint32_t k, int32_t group)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, -(long)sizeof(struct gptq) + (long)offsetof(struct gptq, order) + 4 * (long)k,
          SEEK_END);
    assert_int_equal(fwrite(&group, sizeof group, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

static enum tp_code ignore_row(void *arg, uint64_t n, const double *values, uint64_t count,
                               struct tp_err *err)
{
    (void)arg, (void)n, (void)values, (void)count, (void)err;
    return TP_OK;
}

static void assert_refused(enum tp_code code, const struct tp_err *err)
{
    assert_int_equal(code, TP_E_INPUT);
    assert_string_equal(err->tensor, "a.g_idx");
    assert_non_null(strstr(err->path, "gptq.safetensors"));
    assert_non_null(strstr(err->what, "g_idx[63] is 2147483647"));
}

/* Between the plan and the run the file may become another one: what is read then is
 * checked again, as it decides an address. */
static void an_order_that_changes_after_its_check_is_refused(void **state)
{
    static struct gptq g;
    char path[200];
    struct source source;
    struct tp_subject unit;
    struct tp_plan plan;
    struct tp_region region = {0, 0, GN, 0, GK};
    struct tp_run_options options = {.jobs = 1};
    struct tp_err err = {0}, inspected = {0}, unpacked = {0};
    (void)state;
    snprintf(path, sizeof path, "%s/gptq.safetensors", directory);
    write_gptq(path, &g);
    open_source(path, &source);
    must(tp_plan_unpack(&source.ckpt, &source.weights, TP_F32, 0, "u.safetensors", &plan, &err),
         &err);
    must(tp_run(&plan, &tp_discard_sink, &options, &err), &err);
    patch_order(path, GK - 1, INT32_MAX);
    assert_refused(tp_run(&plan, &tp_discard_sink, &options, &unpacked), &unpacked);
    must(tp_inspect_find(&source.ckpt, &source.weights, "a", &unit, &err), &err);
    assert_refused(tp_inspect_values(&source.ckpt, &unit, &region, ignore_row, NULL, &inspected),
                   &inspected);
    tp_plan_close(&plan);
    close_source(&source);
}

/* Whoever copies packed weights has to hand over every byte, however it reads them. */
static void bytes_that_nobody_looked_at_are_not_copied(void **state)
{
    const uint64_t shape[2] = {128, 256};
    struct source source;
    struct tp_invariants invariants;
    struct tp_err err = {0}, none = {0}, part = {0};
    (void)state;
    open_source(convert("fp8-deepseek", NULL, "a.weight", shape, 2), &source);
    must(tp_invariants_open(&source.ckpt, &source.weights, NULL, true, &invariants, &err), &err);
    assert_int_equal(invariants.count, 2); /* codes and scales */
    assert_int_equal(tp_invariants_end(&invariants, &none), TP_E_UNSUPPORTED);
    uint64_t size = source.ckpt.files[0].size;
    uint8_t *data = malloc(size);
    assert_non_null(data);
    must(tp_checkpoint_read(&source.ckpt, 0, data, size, 0, &err), &err);
    must(tp_invariants_check(&invariants, 0, data, size - 1, 0, &err), &err);
    assert_int_equal(tp_invariants_end(&invariants, &part), TP_E_UNSUPPORTED);
    assert_non_null(strstr(part.what, "1 of its"));
    must(tp_invariants_check(&invariants, 0, data + size - 1, 1, size - 1, &err), &err);
    must(tp_invariants_end(&invariants, &err), &err);
    free(data);
    tp_invariants_close(&invariants);
    close_source(&source);
}

/* ---- plain tensors, names, refusals -------------------------------------- */

static void plain_tensors_are_matrices(void **state)
{
    const uint64_t shape[3] = {2, 3, 5};
    char path[200];
    struct source source;
    struct tp_subject subject;
    struct tp_err err = {0};
    (void)state;
    snprintf(path, sizeof path, "%s/plain.safetensors", directory);
    write_input(path, "a.weight", shape, 3);
    open_source(path, &source);
    must(tp_inspect_find(&source.ckpt, &source.weights, "a", &subject, &err), &err);
    assert_null(subject.weight);
    for (uint64_t b = 0; b < 60; b++) {
        struct tp_byte_info byte;
        struct tp_element_info at;
        must(tp_inspect_byte(&source.ckpt, &subject, b, &byte, &err), &err);
        must(tp_inspect_at(&source.ckpt, &subject, byte.item[0].e0, byte.item[0].n0,
                           byte.item[0].k0, &at, &err), &err);
        assert_int_equal(at.spot[0].byte + byte.item[0].byte_of, b);
        assert_int_equal(at.spot[0].index,
                         (byte.item[0].e0 * 3 + byte.item[0].n0) * 5 + byte.item[0].k0);
    }
    for (uint64_t e = 0; e < 2; e++)
        check_region(&source, &subject, e, 0, 3, 1, 4);
    close_source(&source);
}

static void wrong_names_and_places_are_refused(void **state)
{
    const uint64_t shape[2] = {16, 128};
    struct source source;
    struct tp_subject unit;
    struct tp_element_info at;
    struct tp_byte_info byte;
    struct tp_region region = {0, 16, 17, 0, 1};
    (void)state;
    open_source(convert("w4a8-cutlass", NULL, "m.q_proj.weight", shape, 2), &source);
    struct tp_err typo = {0}, n = {0}, e = {0}, b = {0}, r = {0}, none = {0};
    assert_int_equal(tp_inspect_find(&source.ckpt, &source.weights, "m.q_porj", &unit, &typo),
                     TP_E_USAGE);
    assert_string_equal(typo.hint, "did you mean 'm.q_proj'?");
    assert_int_equal(tp_inspect_find(&source.ckpt, &source.weights, "weight_pack", &unit, &none),
                     TP_E_USAGE);
    assert_string_equal(none.hint, "did you mean 'm.q_proj.weight_packed'?");
    must(tp_inspect_find(&source.ckpt, &source.weights, "m.q_proj.", &unit, &n), &n);
    assert_int_equal(tp_inspect_at(&source.ckpt, &unit, 0, 16, 0, &at, &n), TP_E_USAGE);
    assert_string_equal(n.hint, "e is 0 to 0, n 0 to 15, k 0 to 127");
    assert_int_equal(tp_inspect_at(&source.ckpt, &unit, 1, 0, 0, &at, &e), TP_E_USAGE);
    assert_int_equal(tp_inspect_byte(&source.ckpt, &unit, 1024, &byte, &b), TP_E_USAGE);
    assert_int_equal(tp_inspect_region(&unit, &region, &r), TP_E_USAGE);
    close_source(&source);
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    static const char *const names[] = {"input", "packed", "plain", "gptq"};
    char path[200];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s.safetensors", directory, names[i]);
        unlink(path);
    }
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_goes_both_ways),
        cmocka_unit_test(w4a8_nibbles_lie_where_the_kernel_reads_them),
        cmocka_unit_test(scale_tiles_lie_where_tensor_cores_read_them),
        cmocka_unit_test(w4a8_value_is_what_the_kernel_computes),
        cmocka_unit_test(gptq_with_zero_points_and_act_order),
        cmocka_unit_test(an_order_that_changes_after_its_check_is_refused),
        cmocka_unit_test(bytes_that_nobody_looked_at_are_not_copied),
        cmocka_unit_test(plain_tensors_are_matrices),
        cmocka_unit_test(wrong_names_and_places_are_refused),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
