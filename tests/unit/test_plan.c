/* Plans: what is converted to what, stacks, fused sets, files, and determinism. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/op/distance.h"
#include "pack/plan/cut/box.h"
#include "pack/plan/unit/constant.h"
#include "pack/plan/unit/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct spec {
    const char *name;
    enum tp_dtype dtype;
    uint32_t rank;
    uint64_t shape[3];
};

static char folder[] = "/tmp/tilepack-plan-XXXXXX";
static char path[64];

/* A file with these tensors, all bytes zero. */
static void write_file(const struct spec *specs, size_t count)
{
    struct tp_st_tensor tensors[64];
    struct tp_text text = {0};
    struct tp_err err = {0};
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = tp_dtype_bits(specs[i].dtype) / 8;
        tensors[i] =
            (struct tp_st_tensor){specs[i].name, specs[i].dtype, specs[i].rank, {0}, at, 0};
        for (uint32_t d = 0; d < specs[i].rank; d++) {
            tensors[i].shape[d] = specs[i].shape[d];
            bytes *= specs[i].shape[d];
        }
        tensors[i].end = at += bytes;
    }
    assert_int_equal(tp_st_write_header(tensors, count, NULL, 0, 8, &text, &err), TP_OK);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text.data, 1, text.size, file), text.size);
    assert_int_equal(ftruncate(fileno(file), (off_t)(text.size + at)), 0);
    fclose(file);
    tp_text_free(&text);
}

struct made {
    struct tp_checkpoint ckpt;
    struct tp_weights weights;
    struct tp_request request;
    struct tp_plan plan;
    struct tp_err err;
    enum tp_code code;
};

static void make_plan(struct made *m, const char *to)
{
    if (tp_checkpoint_open(path, 0, &m->ckpt, &m->err) ||
        tp_weights_find(&m->ckpt, &m->weights, &m->err) ||
        tp_request_to(&m->request, to, NULL, 0, &m->err))
        fail_msg("%s", m->err.what);
    m->code = tp_plan_convert(&m->ckpt, &m->weights, &m->request, NULL, &m->plan, &m->err);
}

static void drop(struct made *m)
{
    tp_plan_close(&m->plan);
    tp_request_close(&m->request);
    tp_weights_close(&m->weights);
    tp_checkpoint_close(&m->ckpt);
}

static const struct tp_unit *unit_named(const struct made *m, const char *name)
{
    for (size_t u = 0; u < m->plan.unit_count; u++)
        if (strcmp(m->plan.units[u].name, name) == 0)
            return &m->plan.units[u];
    return NULL;
}

static const char *kept_reason(const struct made *m, const char *name)
{
    for (size_t k = 0; k < m->plan.kept_count; k++)
        if (strcmp(m->ckpt.tensors[m->plan.kept[k].tensor].name, name) == 0)
            return m->plan.kept[k].reason ? m->plan.kept[k].reason : "";
    return NULL;
}

static const struct spec moe[] = {
    {"m.embed_tokens.weight", TP_BF16, 2, {64, 256}},
    {"m.mlp.experts.0.down_proj.weight", TP_BF16, 2, {256, 128}},
    {"m.mlp.experts.0.gate_proj.weight", TP_BF16, 2, {128, 256}},
    {"m.mlp.experts.1.down_proj.weight", TP_BF16, 2, {256, 128}},
    {"m.mlp.experts.1.gate_proj.weight", TP_BF16, 2, {128, 256}},
    {"m.mlp.experts.0.up_proj.weight", TP_BF16, 2, {128, 256}},
    {"m.mlp.experts.1.up_proj.weight", TP_BF16, 2, {128, 256}},
    {"m.mlp.gate.weight", TP_BF16, 2, {2, 256}},
    {"m.norm.weight", TP_BF16, 1, {256}},
};
enum { MOE = sizeof moe / sizeof *moe };

static void experts_are_stacked(void **state)
{
    (void)state;
    struct made m = {.code = TP_OK};
    write_file(moe, MOE);
    make_plan(&m, "w4a8-cutlass");
    assert_int_equal(m.code, TP_OK);
    assert_int_equal(m.plan.unit_count, 2);
    const struct tp_unit *w13 = unit_named(&m, "m.mlp.experts.w13");
    assert_non_null(w13);
    assert_int_equal(w13->form->box.e, 2);
    assert_int_equal(w13->form->box.n, 256);
    assert_int_equal(w13->form->views_per_expert, 2);
    uint64_t row, left; /* row 130 of expert 1 is row 2 of its up projection */
    struct tp_view view = tp_unit_view_at(w13, 1, 130, &row, &left);
    assert_string_equal(m.weights.items[view.weight].name, "m.mlp.experts.1.up_proj");
    assert_int_equal(row, 2);
    assert_int_equal(left, 126);
    assert_string_equal(m.plan.outputs[w13->output[0]].name, "m.mlp.experts.w13_weight_packed");
    assert_string_equal(kept_reason(&m, "m.mlp.gate.weight"), "router");
    assert_string_equal(kept_reason(&m, "m.embed_tokens.weight"), "embedding");
    assert_string_equal(kept_reason(&m, "m.norm.weight"), "");
    drop(&m);
}

static void interchange_formats_leave_experts_apart(void **state)
{
    (void)state;
    struct made m = {.code = TP_OK};
    write_file(moe, MOE);
    make_plan(&m, "w4a8-ct");
    assert_int_equal(m.code, TP_OK);
    assert_int_equal(m.plan.unit_count, 6);
    assert_non_null(unit_named(&m, "m.mlp.experts.1.up_proj"));
    drop(&m);
}

static void incomplete_stacks_are_refused(void **state)
{
    (void)state;
    struct made m = {.code = TP_OK};
    write_file(moe, 6); /* without the last up projection */
    make_plan(&m, "mxfp8-blocked");
    assert_int_equal(m.code, TP_E_INPUT);
    assert_non_null(strstr(m.err.hint, "--no-stack"));
    drop(&m);
}

/* k_proj has 100 rows, no multiple of 16: q and v stay with it. */
static void fused_sets_stay_together(void **state)
{
    (void)state;
    static const struct spec attention[] = {
        {"a.k_proj.weight", TP_F32, 2, {100, 256}},
        {"a.o_proj.weight", TP_F32, 2, {256, 256}},
        {"a.q_proj.weight", TP_F32, 2, {256, 256}},
        {"a.v_proj.weight", TP_F32, 2, {256, 256}},
    };
    struct made m = {.code = TP_OK};
    write_file(attention, 4);
    make_plan(&m, "w4a8-cutlass");
    assert_int_equal(m.code, TP_OK);
    assert_int_equal(m.plan.unit_count, 1);
    assert_non_null(unit_named(&m, "a.o_proj"));
    assert_non_null(strstr(kept_reason(&m, "a.q_proj.weight"), "a.k_proj"));
    assert_non_null(strstr(kept_reason(&m, "a.k_proj.weight"), "multiples of 16"));
    drop(&m);
    struct made strict = {.request = {.strict = true}};
    make_plan(&strict, "w4a8-cutlass");
    assert_int_equal(strict.code, TP_E_UNSUPPORTED);
    drop(&strict);
}

/* Small shards: every unit's outputs are together, files are full and gapless. */
static void shards_are_filled(void **state)
{
    (void)state;
    struct made m = {.request = {.shard_size = 70000}};
    write_file(moe, MOE);
    make_plan(&m, "fp8-deepseek");
    assert_int_equal(m.code, TP_OK);
    assert_true(m.plan.file_count > 2);
    uint64_t data = 0;
    for (size_t f = 0; f < m.plan.file_count; f++) {
        const struct tp_plan_file *file = &m.plan.files[f];
        uint64_t at = file->header_size;
        assert_int_equal(at % 4096, 0);
        for (uint32_t i = 0; i < file->output_count; i++) {
            const struct tp_output *output = &m.plan.outputs[file->first_output + i];
            assert_int_equal(output->offset, at);
            at += output->bytes;
            data += output->bytes;
            if (output->unit != UINT32_MAX)
                assert_int_equal(m.plan.units[output->unit].file, f);
        }
        assert_int_equal(at, file->size);
        assert_memory_equal(file->header + file->hash_at, "00000000000000000000000000000000\"", 33);
    }
    assert_int_equal(data, m.plan.bytes_out);
    struct made again = {.request = {.shard_size = 70000}};
    make_plan(&again, "fp8-deepseek");
    assert_memory_equal(m.plan.hash, again.plan.hash, sizeof m.plan.hash);
    drop(&m);
    drop(&again);
}

/* Any target size cuts a unit into boxes that cover every element once. */
/* More sizes than planning remembers, each met again after all others: every output
 * has the shape, the bytes and the constant of its own unit. */
static void sizes_are_those_of_the_unit(void **state)
{
    (void)state;
    enum { KINDS = TP_KNOWN_SIZES + 4, COUNT = 2 * KINDS };
    static char names[COUNT][24];
    struct spec specs[COUNT];
    for (uint64_t i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "a.%u.x.weight", (unsigned)i);
        specs[i] = (struct spec){names[i], TP_BF16, 2, {16 * (i % KINDS + 1), 128}};
    }
    struct made m = {.code = TP_OK};
    write_file(specs, COUNT);
    make_plan(&m, "w4a8-ct");
    assert_int_equal(m.code, TP_OK);
    assert_int_equal(m.plan.unit_count, COUNT);
    for (size_t o = 0; o < m.plan.output_count; o++) {
        const struct tp_output *output = &m.plan.outputs[o];
        const struct tp_unit *unit = &m.plan.units[output->unit];
        uint64_t shape[TP_MAX_RANK], bytes;
        uint32_t rank, i = output->source;
        assert_int_equal(
            tp_format_shape(unit->form->format, i, unit->form->box, 2, shape, &rank, NULL), TP_OK);
        assert_int_equal(output->rank, rank);
        assert_memory_equal(output->shape, shape, rank * sizeof *shape);
        if (unit->form->op.out[i].role == TP_ROLE_WORDS) {
            uint64_t words[2] = {0};
            assert_int_equal(output->bytes, sizeof words);
            assert_int_equal(tp_constant_bytes(output->constant, 0, words, sizeof words, NULL),
                             TP_OK);
            assert_memory_equal(words, &unit->form->box.n, sizeof words); /* N and K */
            continue;
        }
        assert_null(output->constant);
        assert_int_equal(tp_op_bytes(&unit->form->op, i, unit->form->box, &bytes, NULL), TP_OK);
        assert_int_equal(output->bytes, bytes);
    }
    drop(&m);
}

/* Wide elements, then large tensors, then by name; an outline has no order, but the
 * same outputs for every unit. */
static void outputs_are_sorted(void **state)
{
    (void)state;
    struct made m = {.code = TP_OK}, outline = {.request = {.outline = true}};
    write_file(moe, MOE);
    make_plan(&m, "fp8-deepseek");
    assert_int_equal(m.code, TP_OK);
    assert_int_equal(m.plan.file_count, 1);
    for (size_t o = 1; o < m.plan.output_count; o++) {
        const struct tp_output *a = &m.plan.outputs[o - 1], *b = &m.plan.outputs[o];
        unsigned a_bits = tp_dtype_bits(a->dtype), b_bits = tp_dtype_bits(b->dtype);
        assert_true(a_bits > b_bits || (a_bits == b_bits && a->bytes > b->bytes) ||
                    (a_bits == b_bits && a->bytes == b->bytes &&
                     strcmp(a->name, b->name) < 0));
    }
    make_plan(&outline, "fp8-deepseek");
    assert_int_equal(outline.code, TP_OK);
    assert_int_equal(outline.plan.unit_count, m.plan.unit_count);
    assert_int_equal(outline.plan.bytes_out, m.plan.bytes_out);
    for (size_t u = 0; u < m.plan.unit_count; u++)
        for (uint32_t i = 0; i < m.plan.units[u].form->outs; i++) {
            const struct tp_output *own = &m.plan.outputs[m.plan.units[u].output[i]];
            const struct tp_output *other =
                &outline.plan.outputs[outline.plan.units[u].output[i]];
            assert_string_equal(other->name, own->name);
        }
    drop(&m);
    drop(&outline);
}

static void boxes_cover_units(void **state)
{
    (void)state;
    static const char *const formats[] = {"w4a8-cutlass", "mxfp8-torchao3d", "fp8-deepgemm-sm100"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct made m = {.code = TP_OK};
        write_file(moe, MOE);
        make_plan(&m, formats[i]);
        assert_int_equal(m.code, TP_OK);
        for (uint64_t target = 512; target < 1 << 20; target *= 8) {
            const struct tp_unit *unit = unit_named(&m, "m.mlp.experts.w13");
            struct tp_grid grid;
            assert_int_equal(tp_unit_grid(&m.plan, unit, target, 2 * target, &grid, &m.err), TP_OK);
            uint8_t *seen = calloc(unit->form->box.e * unit->form->box.n, unit->form->box.k);
            for (uint64_t b = 0; b < grid.count; b++) {
                struct tp_box box = tp_grid_box(unit, &grid, b);
                for (uint64_t e = 0; e < box.size.e; e++)
                    for (uint64_t n = 0; n < box.size.n; n++)
                        for (uint64_t k = 0; k < box.size.k; k++)
                            seen[((box.e + e) * unit->form->box.n + box.n + n) * unit->form->box.k +
                                 box.k + k]++;
            }
            for (uint64_t x = 0; x < unit->form->box.e * unit->form->box.n * unit->form->box.k; x++)
                assert_int_equal(seen[x], 1);
            free(seen);
        }
        drop(&m);
    }
}

/* Where a scale is of more than a block, columns could be cut anywhere; runs are counted whole. */
static void boxes_hold_whole_runs(void **state)
{
    (void)state;
    static const struct spec odd[] = {{"m.down_proj.weight", TP_BF16, 2, {16, 1004}}};
    struct made m = {.code = TP_OK};
    write_file(odd, 1);
    make_plan(&m, "fp8-tensor-ct");
    assert_int_equal(m.code, TP_OK);
    for (uint64_t target = 16; target < 2048; target *= 2) {
        struct tp_grid grid;
        assert_int_equal(tp_unit_grid(&m.plan, m.plan.units, target, target, &grid, &m.err), TP_OK);
        assert_true(grid.k_count > 1 && grid.k_step % TP_RUN == 0);
    }
    drop(&m);
}

/* A transposed weight lies in columns: few rows of it would be read with one call for a few bytes of
 * each column, whether whole rows are too long for the memory or nearly. */
static void columns_are_read_in_long_runs(void **state)
{
    (void)state;
    static const struct spec stacks[] = {
        {"m.mlp.experts.down_proj", TP_BF16, 3, {1, 960, 60032}},
        {"m.mlp.experts.gate_up_proj", TP_BF16, 3, {1, 60032, 1920}},
    };
    static const char *const formats[] = {"fp8-dynamic-ct", "w4a8-cutlass", "int8-ct"};
    write_file(stacks, 2);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct made m = {.code = TP_OK};
        make_plan(&m, formats[i]);
        assert_int_equal(m.code, TP_OK);
        for (size_t u = 0; u < m.plan.unit_count; u++)
            for (uint64_t memory = UINT64_C(3) << 20; memory < UINT64_C(1) << 30; memory *= 2) {
                const struct tp_unit *unit = &m.plan.units[u];
                struct tp_box_hints hints = {1 << 20, memory / 4 + (1 << 20), 1 << 20, memory};
                struct tp_grid grid;
                assert_int_equal(tp_unit_boxes(&m.plan, unit, &hints, &grid, &m.err), TP_OK);
                assert_true(m.weights.items[unit->views[0].weight].form->transposed);
                assert_true(tp_grid_memory(&m.plan, unit, &grid) <= memory);
                assert_in_range(2 * grid.n_step, 256, UINT64_MAX);
            }
        drop(&m);
    }
}

/* Of 0.1.0, which stacked the experts that it had been given: `verify --against` makes them again. */
static void recorded_stacks_may_lack_experts(void **state)
{
    static const char text[] = "{\"rules\":[{\"to\":\"w4a8-cutlass\"}],"
                               "\"exclude\":[\"experts[.]1[.]\"]}";
    struct made m = {.code = TP_OK};
    (void)state;
    write_file(moe, MOE);
    if (tp_checkpoint_open(path, 0, &m.ckpt, &m.err) ||
        tp_weights_find(&m.ckpt, &m.weights, &m.err) || tp_request_parse(text, &m.request, &m.err))
        fail_msg("%s", m.err.what);
    m.code = tp_plan_convert(&m.ckpt, &m.weights, &m.request, NULL, &m.plan, &m.err);
    assert_int_equal(m.code, TP_OK);
    const struct tp_unit *w13 = unit_named(&m, "m.mlp.experts.w13");
    assert_non_null(w13);
    assert_int_equal(w13->form->box.e, 1);
    tp_plan_close(&m.plan);
    m.request.recorded = false; /* as if somebody asked for it today */
    m.code = tp_plan_convert(&m.ckpt, &m.weights, &m.request, NULL, &m.plan, &m.err);
    assert_int_equal(m.code, TP_E_UNSUPPORTED);
    drop(&m);
}

/* 0.2.0, whose requests do not say it, quantized what the source's quantizer had left plain. */
static void recorded_requests_say_what_becomes_of_plain_weights(void **state)
{
    static const struct {
        const char *text;
        bool plain;
    } cases[] = {{"{\"rules\":[]}", true},
                 {"{\"rules\":[],\"plain\":\"convert\"}", true},
                 {"{\"rules\":[],\"plain\":\"keep\"}", false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tp_request request;
        struct tp_err err = {0};
        assert_int_equal(tp_request_parse(cases[i].text, &request, &err), TP_OK);
        assert_int_equal(request.plain, cases[i].plain);
        tp_request_close(&request);
    }
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/in.safetensors", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

/* Of the same plan: whole, and with a tensor that is taken twice. */
static void no_tensor_is_taken_twice(void **state)
{
    (void)state;
    struct made m = {.code = TP_OK};
    struct tp_err err = {0};
    write_file(moe, MOE);
    make_plan(&m, "mxfp4-ct");
    assert_int_equal(m.code, TP_OK);
    assert_int_equal(tp_plan_check_unique_sources(&m.plan, &err), TP_OK);
    struct tp_weight *items = m.weights.items;
    uint32_t one = m.plan.units[0].views[0].weight, two = m.plan.units[1].views[0].weight;
    uint32_t own = items[two].tensor[0], copied = m.plan.kept[0].tensor;
    items[two].tensor[0] = items[one].tensor[0];
    assert_int_equal(tp_plan_check_unique_sources(&m.plan, &err), TP_E_UNSUPPORTED);
    assert_string_equal(err.tensor, m.ckpt.tensors[items[one].tensor[0]].name);
    items[two].tensor[0] = own;
    m.plan.kept[0].tensor = own; /* of a unit */
    err = (struct tp_err){0};
    assert_int_equal(tp_plan_check_unique_sources(&m.plan, &err), TP_E_UNSUPPORTED);
    m.plan.kept[0].tensor = m.plan.kept[1].tensor; /* copied twice */
    err = (struct tp_err){0};
    assert_int_equal(tp_plan_check_unique_sources(&m.plan, &err), TP_E_UNSUPPORTED);
    m.plan.kept[0].tensor = copied;
    err = (struct tp_err){0};
    assert_int_equal(tp_plan_check_unique_sources(&m.plan, &err), TP_OK);
    drop(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_are_stacked),
        cmocka_unit_test(interchange_formats_leave_experts_apart),
        cmocka_unit_test(incomplete_stacks_are_refused),
        cmocka_unit_test(fused_sets_stay_together),
        cmocka_unit_test(shards_are_filled),
        cmocka_unit_test(sizes_are_those_of_the_unit),
        cmocka_unit_test(outputs_are_sorted),
        cmocka_unit_test(boxes_cover_units), cmocka_unit_test(boxes_hold_whole_runs),
        cmocka_unit_test(columns_are_read_in_long_runs),
        cmocka_unit_test(recorded_stacks_may_lack_experts),
        cmocka_unit_test(recorded_requests_say_what_becomes_of_plain_weights),
        cmocka_unit_test(no_tensor_is_taken_twice),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
