/* Files of importance: the names of weights, and numbers of the three kinds of file. What
 * wrong files are refused with is in tests/errors/importance.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pack/source/importance.h"
#include "pack/source/importance_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *weight, *names[7]; /* in their order, with "#row" of an expert */
    } cases[] = {
        {"model.layers.3.self_attn.k_proj",
         {"model.layers.3.self_attn.k_proj", "blk.3.attn_k", "model.layers.3.self_attn.q_proj",
          "blk.3.attn_q", "model.layers.3.self_attn.v_proj", "blk.3.attn_v"}},
        {"model.layers.12.mlp.down_proj.weight",
         {"model.layers.12.mlp.down_proj", "blk.12.ffn_down"}},
        {"model.layers.0.mlp.experts.17.up_proj",
         {"model.layers.0.mlp.experts.17.up_proj", "blk.0.ffn_up_exps#17",
          "model.layers.0.mlp.experts.17.gate_proj", "blk.0.ffn_gate_exps#17"}},
        {"model.layers.0.block_sparse_moe.experts.1.w2",
         {"model.layers.0.block_sparse_moe.experts.1.w2", "blk.0.ffn_down_exps#1"}},
        {"model.language_model.layers.7.mlp.experts.gate_up_proj",
         {"model.language_model.layers.7.mlp.experts.gate_up_proj", "blk.7.ffn_gate_exps",
          "blk.7.ffn_up_exps", "blk.7.ffn_gate_up_exps"}},
        {"model.layers.2.mlp.shared_experts.gate_proj",
         {"model.layers.2.mlp.shared_experts.gate_proj", "blk.2.ffn_gate_shexp",
          "model.layers.2.mlp.shared_experts.up_proj", "blk.2.ffn_up_shexp"}},
        {"lm_head", {"lm_head", "output"}},
        {"model.embed_tokens", {"model.embed_tokens", "token_embd"}},
        {"model.layers.x.mlp.down_proj", {"model.layers.x.mlp.down_proj"}},
        {"model.layers.1.mlp.down_projx", {"model.layers.1.mlp.down_projx"}},
        {"encoder.layer.0.dense", {"encoder.layer.0.dense"}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct tp_importance_name name;
        uint32_t i = 0;
        for (; tp_importance_name(cases[c].weight, i, &name); i++) {
            char text[TP_IMPORTANCE_NAME + 24];
            snprintf(text, sizeof text, name.expert < 0 ? "%s" : "%s#%lld", name.text,
                     (long long)name.expert);
            assert_non_null(cases[c].names[i]);
            assert_string_equal(text, cases[c].names[i]);
            assert_false(name.known_only);
        }
        assert_null(cases[c].names[i]);
    }
}

/* llama.cpp's halves of kv_b_proj are known, but have other columns. */
static void halves_are_known_only(void **state)
{
    (void)state;
    struct tp_importance_name name;
    const char *weight = "model.layers.0.self_attn.kv_b_proj";
    assert_true(tp_importance_name(weight, 1, &name) && !name.known_only);
    assert_true(tp_importance_name(weight, 2, &name) && name.known_only);
    assert_string_equal(name.text, "blk.0.attn_k_b");
}

static void names_that_are_too_long(void **state)
{
    (void)state;
    char weight[2 * TP_IMPORTANCE_NAME];
    struct tp_importance_name name;
    memset(weight, 'a', sizeof weight - 1);
    weight[sizeof weight - 1] = '\0';
    assert_false(tp_importance_name(weight, 0, &name));
}

/* ---- numbers ---------------------------------------------------------------------- */

static char path[] = "/tmp/tilepack-importance-XXXXXX";

static void put(FILE *f, const void *data, size_t size)
{
    assert_int_equal(fwrite(data, 1, size, f), size);
}

static void put_int(FILE *f, int32_t number) { put(f, &number, sizeof number); }

static void put_entry(FILE *f, const char *name, int32_t calls, const float *values, int32_t count)
{
    put_int(f, (int32_t)strlen(name));
    put(f, name, strlen(name));
    put_int(f, calls);
    put_int(f, count);
    put(f, values, (size_t)count * sizeof *values);
}

/* The older imatrix: two experts of three columns, and one weight of three. */
static struct tp_importance_file *open_dat(void)
{
    static const float experts[] = {2, 4, 6, 8, 10, 12}, one[] = {1, 0, 3};
    struct tp_importance_file *file;
    struct tp_err err = {0};
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "wb");
    assert_non_null(f);
    put_int(f, 2);
    put_entry(f, "blk.0.ffn_down_exps.weight", 2, experts, 6);
    put_entry(f, "blk.0.attn_v.weight", 0, one, 3);
    fclose(f);
    assert_int_equal(tp_importance_open(path, &file, &err), TP_OK);
    unlink(path);
    strcpy(path + strlen(path) - 6, "XXXXXX");
    return file;
}

static void numbers_of_experts(void **state)
{
    (void)state;
    struct tp_importance_file *file = open_dat();
    struct tp_importance_ref ref;
    struct tp_err err = {0};
    float got[3];
    assert_int_equal(tp_importance_find(file, "model.layers.0.mlp.experts.1.down_proj", 0, 1, 3,
                                        &ref, &err), TP_OK);
    assert_int_equal(tp_importance_read(file, ref, 3, 0, 3, got, &err), TP_OK);
    assert_memory_equal(got, ((float[]){4, 5, 6}), sizeof got); /* divided by two calls */
    assert_int_equal(tp_importance_find(file, "model.layers.0.mlp.experts.down_proj", 0, 2, 3,
                                        &ref, &err), TP_OK);
    assert_int_equal(tp_importance_read(file, ref, 3, 1, 2, got, &err), TP_OK);
    assert_memory_equal(got, ((float[]){2, 3}), 2 * sizeof *got);
    assert_int_equal(tp_importance_find(file, "model.layers.0.mlp.experts.2.down_proj", 0, 1, 3,
                                        &ref, &err), TP_E_INPUT); /* there are two */
    tp_importance_close(file);
}

static void siblings_and_none(void **state)
{
    (void)state;
    struct tp_importance_file *file = open_dat();
    struct tp_importance_ref ref;
    struct tp_err err = {0};
    float got[3] = {7, 7, 7};
    assert_int_equal(tp_importance_find(file, "model.layers.0.self_attn.q_proj", 0, 1, 3, &ref,
                                        &err), TP_OK);
    assert_int_equal(tp_importance_read(file, ref, 3, 0, 3, got, &err), TP_OK);
    assert_memory_equal(got, ((float[]){1, 0, 3}), sizeof got); /* no calls: as they are */
    assert_int_equal(tp_importance_find(file, "model.layers.1.self_attn.q_proj", 0, 1, 3, &ref,
                                        &err), TP_OK);
    assert_int_equal(ref.entry, TP_NO_IMPORTANCE);
    assert_int_equal(tp_importance_read(file, ref, 3, 0, 3, got, &err), TP_OK);
    assert_memory_equal(got, ((float[]){0, 0, 0}), sizeof got);
    tp_importance_close(file);
}

static void every_entry_is_claimed(void **state)
{
    (void)state;
    struct tp_importance_file *file = open_dat();
    struct tp_err err = {0};
    tp_importance_claim(file, "model.layers.0.self_attn.v_proj");
    assert_int_equal(tp_importance_all_claimed(file, &err), TP_E_INPUT);
    assert_string_equal(err.tensor, "blk.0.ffn_down_exps");
    tp_importance_claim(file, "model.layers.0.mlp.experts.0.down_proj");
    assert_int_equal(tp_importance_all_claimed(file, &err), TP_OK);
    tp_importance_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(halves_are_known_only),
        cmocka_unit_test(names_that_are_too_long),
        cmocka_unit_test(numbers_of_experts),
        cmocka_unit_test(siblings_and_none),
        cmocka_unit_test(every_entry_is_claimed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
