/* Recognising packed weights by their tensors: siblings among sorted names, and the
 * two ways of asking for weights; what their contents say, while memory is short. */
#include "pack/source/weight_complete.h"
#include "pack/source/weights.h"

#include "failing_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/tilepack-weights-XXXXXX";
static char path[64], config[64];

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    snprintf(config, sizeof config, "%s/config.json", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    unlink(config);
    return rmdir(folder);
}

enum { MAX_BYTES = 100 };

struct file {
    struct tp_st_tensor tensors[MAX_BYTES];
    char names[MAX_BYTES][80];
    size_t count;
};

static void add(struct file *file, const char *name, enum tp_dtype dtype, uint64_t n, uint64_t k)
{
    struct tp_st_tensor *tensor = &file->tensors[file->count];
    uint64_t begin = file->count ? tensor[-1].end : 0;
    snprintf(file->names[file->count], sizeof file->names[0], "%s", name);
    *tensor = (struct tp_st_tensor){file->names[file->count], dtype, 2, {n, k}, begin,
                                    begin + n * k * tp_dtype_bits(dtype) / 8};
    file->count++;
}

/* Writes the file of these tensors; all of them are zero. */
static void write_file(const struct file *file)
{
    struct tp_text text = {0};
    struct tp_err err = {0};
    uint64_t bytes = file->tensors[file->count - 1].end;
    assert_int_equal(tp_st_write_header(file->tensors, file->count, NULL, 0, 8, &text, &err),
                     TP_OK);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(text.data, 1, text.size, out), text.size);
    assert_int_equal(ftruncate(fileno(out), (off_t)(text.size + bytes)), 0);
    fclose(out);
    tp_text_free(&text);
}

static void open_file(const struct file *file, struct tp_checkpoint *ckpt)
{
    struct tp_err err = {0};
    write_file(file);
    assert_int_equal(tp_checkpoint_open(path, 0, ckpt, &err), TP_OK);
}

/* `before` and `after` tensors between codes and scale, on both sides of the codes:
 * the scale is found, however far away it is. */
static void check_distance(int before, int after, bool with_scale)
{
    struct file file = {.count = 0};
    struct tp_checkpoint ckpt;
    struct tp_weights weights;
    struct tp_err err = {0};
    char name[80];
    for (int i = 0; i < before; i++) {
        snprintf(name, sizeof name, "m.a%02d", i);
        add(&file, name, TP_I32, 1, 1);
    }
    add(&file, "m.weight", TP_F8_E4M3, 128, 256);
    for (int i = 0; i < after; i++) {
        snprintf(name, sizeof name, "m.weight_a%02d", i);
        add(&file, name, TP_I32, 1, 1);
    }
    if (with_scale)
        add(&file, "m.weight_scale_inv", TP_F32, 1, 2);
    add(&file, "m.weight_z", TP_I32, 1, 1);
    open_file(&file, &ckpt);
    assert_int_equal(tp_weights_find(&ckpt, &weights, &err), TP_OK);
    assert_int_equal(weights.count, 1);
    if (!with_scale) /* numbers that were cast */
        assert_string_equal(weights.items[0].form->format->name, "fp8-values");
    if (with_scale) {
        assert_string_equal(weights.items[0].form->format->name, "fp8-deepseek");
        assert_string_equal(ckpt.tensors[weights.items[0].tensor[1]].name, "m.weight_scale_inv");
    }
    tp_weights_close(&weights);
    tp_checkpoint_close(&ckpt);
}

static void test_siblings(void **state)
{
    (void)state;
    for (int distance = 0; distance < 30; distance++) {
        check_distance(distance, 0, true);
        check_distance(0, distance, true);
        check_distance(distance, distance, true);
        check_distance(distance, distance, false);
    }
}

/* The packed ones are the same, in the same order, whether plain ones are asked for
 * or not. */
static void test_packed_only(void **state)
{
    (void)state;
    struct file file = {.count = 0};
    struct tp_checkpoint ckpt;
    struct tp_weights all, packed;
    struct tp_err err = {0};
    char name[80];
    for (int i = 12; i-- > 0;) { /* data not in the order of names */
        snprintf(name, sizeof name, "m.%d.weight_scale_inv", i);
        add(&file, name, TP_F32, 1, 1);
        snprintf(name, sizeof name, "m.%d.weight", i);
        add(&file, name, TP_F8_E4M3, 128, 128);
        snprintf(name, sizeof name, "m.%d.gate.weight", i);
        add(&file, name, TP_BF16, 8, 128);
        snprintf(name, sizeof name, "m.%d.index", i);
        add(&file, name, TP_I64, 1, 1);
    }
    open_file(&file, &ckpt);
    assert_int_equal(tp_weights_find(&ckpt, &all, &err), TP_OK);
    assert_int_equal(tp_weights_find_packed(&ckpt, &packed, &err), TP_OK);
    assert_int_equal(all.count, 24);
    assert_int_equal(all.other_count, 12);
    assert_int_equal(packed.count, 12);
    assert_int_equal(packed.other_count, 0);
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "m.%d", 11 - i);
        assert_string_equal(packed.items[i].name, name);
        assert_string_equal(all.items[i].name, name);
        assert_ptr_equal(packed.items[i].form->format, all.items[i].form->format);
        assert_memory_equal(packed.items[i].tensor, all.items[i].tensor,
                            sizeof all.items[i].tensor);
    }
    tp_weights_close(&all);
    tp_weights_close(&packed);
    tp_checkpoint_close(&ckpt);
}

/* GPTQ of the second version, of so many shapes that their forms need more than one block. */
static void open_second_version(struct tp_checkpoint *ckpt)
{
    static const char said[] = "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, "
                               "\"group_size\": 128, \"checkpoint_format\": \"gptq_v2\"}}";
    struct file file = {.count = 0};
    struct tp_err err = {0};
    char name[80];
    for (unsigned i = 0; i < 9; i++) {
        snprintf(name, sizeof name, "m.%u.qweight", i);
        add(&file, name, TP_I32, 16, 64 + 64 * i);
        snprintf(name, sizeof name, "m.%u.qzeros", i);
        add(&file, name, TP_I32, 1, 8 + 8 * i);
        snprintf(name, sizeof name, "m.%u.scales", i);
        add(&file, name, TP_F16, 1, 64 + 64 * i);
    }
    write_file(&file);
    FILE *out = fopen(config, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(said, 1, sizeof said - 1, out), sizeof said - 1);
    fclose(out);
    assert_int_equal(tp_checkpoint_open(folder, 0, ckpt, &err), TP_OK);
}

/* An allocation that fails once leaves nothing behind that a later look would believe. */
static void test_memory_that_comes_back(void **state)
{
    struct tp_checkpoint ckpt;
    int failures = 0;
    (void)state;
    open_second_version(&ckpt);
    for (long at = 0, over = -1; over < 0; at++) {
        struct tp_weights weights;
        struct tp_err err = {0};
        assert_int_equal(tp_weights_find(&ckpt, &weights, &err), TP_OK);
        assert_int_equal(weights.count, 9);
        failing_begin(at);
        for (size_t w = 0; w < 9; w++) {
            enum tp_code code = tp_weight_complete(&ckpt, &weights, w, &err);
            assert_true(code == TP_OK || code == TP_E_MEMORY);
            failures += code == TP_E_MEMORY;
        }
        failing_end();
        over = failing_left;
        for (size_t w = 0; w < 9; w++) {
            err = (struct tp_err){0};
            assert_int_equal(tp_weight_complete(&ckpt, &weights, w, &err), TP_OK);
            assert_int_equal(weights.items[w].form->op.zero_add, 0);
        }
        tp_weights_close(&weights);
    }
    assert_true(failures > 50);
    tp_checkpoint_close(&ckpt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_siblings),
        cmocka_unit_test(test_packed_only),
        cmocka_unit_test(test_memory_that_comes_back),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
