/* Which weights are taken by default, and which belong together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pack/model/model_names.h"
#include "pack/os/os.h"

#include <string.h>

static struct tp_model_facts facts; /* of a model without a name */

static void *no_malloc(size_t size) { return (void)size, NULL; }

/* Memory that was short when the list was first asked for, and is back. */
static int read_facts(void **state)
{
    (void)state;
    struct tp_os saved = tp_os;
    tp_os.malloc = no_malloc;
    enum tp_code code = tp_model_facts_of(NULL, 0, NULL, &facts, NULL);
    tp_os = saved;
    return code != TP_E_MEMORY || tp_model_facts_of(NULL, 0, NULL, &facts, NULL) != TP_OK;
}

static void defaults(void **state)
{
    (void)state;
    static const struct {
        const char *name, *reason;
    } cases[] = {
        {"model.layers.0.self_attn.q_proj.weight", NULL},
        {"model.layers.0.mlp.gate_proj.weight", NULL},
        {"model.layers.0.mlp.experts.gate_up_proj", NULL},
        {"encoder.layer.3.attention.self.query.weight", NULL},
        {"encoder.layer.3.attention.output.dense.weight", NULL},
        {"model.layers.0.self_attn.kv_a_proj_with_mqa.weight", NULL},
        {"model.embed_tokens.weight", "embedding"},
        {"embeddings.word_embeddings.weight", "embedding"},
        {"lm_head.weight", "output head"},
        {"embed_out.weight", "output head"},
        {"model.layers.61.shared_head.head.weight", "output head"},
        {"model.layers.61.eh_proj.weight", "loaded plain by engines"},
        {"model.layers.0.self_attn.indexer.weights_proj.weight", "loaded plain by engines"},
        {"model.layers.0.self_attn.indexer.wq_b.weight", NULL},
        {"model.layers.0.attn.head_proj.weight", NULL},
        {"model.layers.0.mlp.gate.weight", "router"},
        {"model.layers.0.block_sparse_moe.gate.weight", "router"},
        {"model.layers.0.mlp.shared_expert_gate.weight", "router"},
        {"model.layers.0.input_layernorm.weight", "norm"},
        {"encoder.layer.3.attention.output.LayerNorm.weight", "norm"},
        {"transformer.h.0.ln_1.weight", "norm"},
        {"conv1.weight", "convolution"},
        {"model.layers.0.self_attn.q_proj.bias",
         "not a linear layer's weight (its name does not end in .weight)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tp_kept_name kept;
        assert_int_equal(tp_name_kept(&facts, cases[i].name, &kept), cases[i].reason != NULL);
        if (cases[i].reason)
            assert_string_equal(kept.why, cases[i].reason);
    }
}

static void experts(void **state)
{
    (void)state;
    struct tp_expert_name e;
    assert_true(tp_name_expert(&facts, "model.layers.0.mlp.experts.17.up_proj.weight", &e));
    assert_int_equal(e.expert, 17);
    assert_int_equal(e.matrix, TP_EXPERT_UP);
    assert_int_equal(e.prefix, strlen("model.layers.0.mlp.experts"));
    assert_true(tp_name_expert(&facts, "experts.0.w2", &e));
    assert_int_equal(e.matrix, TP_EXPERT_DOWN);
    assert_int_equal(e.prefix, strlen("experts"));
    assert_true(tp_name_expert(&facts, "a.experts.3.b.experts.5.w1.weight", &e));
    assert_int_equal(e.expert, 5);
    assert_false(tp_name_expert(&facts, "a.experts.07.w1.weight", &e)); /* not how a 7 is written */
    assert_false(tp_name_expert(&facts, "a.experts.7.w4.weight", &e));
    assert_true(tp_name_expert(&facts, "a.experts.7.w1.bias", &e));
    assert_int_equal(e.matrix, TP_EXPERT_GATE);
    assert_false(tp_name_expert(&facts, "a.experts.x.w1.weight", &e));
    assert_false(tp_name_expert(&facts, "a.experts.99999999999999999999.w1", &e));
    assert_false(tp_name_expert(&facts, "a.my_experts.1.w1.weight", &e));
}

static void stacks(void **state)
{
    (void)state;
    struct tp_stack_name s;
    assert_true(tp_name_stack(&facts, "m.experts.gate_up_proj", &s) && s.gate_up);
    assert_true(tp_name_stack(&facts, "m.experts.down_proj.weight", &s) && !s.gate_up);
    assert_int_equal(s.prefix, strlen("m.experts"));
    assert_true(tp_name_stack(&facts, "experts.down_proj", &s));
    assert_false(tp_name_stack(&facts, "m.myexperts.down_proj", &s));
    assert_false(tp_name_stack(&facts, "m.experts.up_proj", &s));
}

static void fused_sets(void **state)
{
    (void)state;
    char q[64], k[64], gate[64];
    assert_true(tp_name_fused(&facts, "l.0.attn.q_proj.weight", q, sizeof q, NULL));
    assert_true(tp_name_fused(&facts, "l.0.attn.k_proj", k, sizeof k, NULL));
    assert_string_equal(q, k);
    assert_true(tp_name_fused(&facts, "l.0.mlp.gate_proj.weight", gate, sizeof gate, NULL));
    assert_string_equal(gate, "l.0.mlp.gate_up");
    assert_false(tp_name_fused(&facts, "l.0.attn.o_proj.weight", q, sizeof q, NULL));
    assert_false(tp_name_fused(&facts, "l.0.attn.q_proj.weight", q, 8, NULL)); /* does not fit */
}

static bool matches(const char *pattern, const char *module)
{
    struct tp_module_pattern compiled;
    return tp_module_pattern_of(pattern, &compiled) &&
           tp_modules_match(&compiled, 1, module, strlen(module));
}

static void patterns(void **state)
{
    (void)state;
    assert_true(matches("gate", "a.gate.b") && matches("gate$", "a.gate") && matches("gate", "gate"));
    assert_false(matches("gate$", "a.gate.b") || matches("gate", "a.gates") || matches("gate", "agate"));
    assert_true(matches("*norm*", "a.layernorm1.b") && matches("*norm*", "norm"));
    assert_false(matches("*norm*", "a.nor.m") || matches("a*b", "ax.xb") || matches("a.*", "a"));
    assert_true(matches("a.*.b", "x.a.7.b.y") && matches("*a.b*", "xa.bx") && matches("*aab", "aaab"));
    assert_true(matches("^visual", "visual.x") && matches("a.b$", "x.a.b"));
    assert_true(matches("gate", ".gate") && matches("gate", "..a..gate.") && matches("^*", ".a"));
    assert_false(matches("gate", ".") || matches("gate", "") || matches("gate", "..gates"));
    assert_false(matches("^visual", "model.visual.x") || matches("a.b$", "x.a.bc"));
}

/* What a model type's own file adds to the default, or says otherwise. */
static void models(void **state)
{
    (void)state;
    static const char config[] = "{\"x\": NaN, \"model_type\": \"mllm\", \"text_config\": "
                                 "{\"model_type\": \"gpt_oss\", \"hidden_size\": 2880}}";
    struct tp_model_facts of;
    struct tp_stack_name s;
    assert_int_equal(tp_model_facts_of(config, sizeof config - 1, NULL, &of, NULL), TP_OK);
    assert_int_equal(of.count, 2);
    assert_string_equal(of.model[0]->name, "gpt_oss");
    assert_string_equal(of.type, "mllm");
    assert_false(of.known);
    assert_int_equal(of.hidden, 2880);
    assert_true(tp_name_stack(&of, "m.experts.down_proj", &s) && s.is->interleaved);
}

static enum tp_stack_layout layout(const char *config, uint64_t a, uint64_t b, uint64_t other_a,
                                   uint64_t other_b)
{
    struct tp_model_facts of;
    struct tp_stack_name s;
    const uint64_t is[] = {a, b}, other[] = {other_a, other_b};
    assert_int_equal(tp_model_facts_of(config, strlen(config), NULL, &of, NULL), TP_OK);
    assert_true(tp_name_stack(&of, "m.experts.gate_up_proj", &s));
    return tp_stack_layout_of(&of, s.is, is, other);
}

static void layouts(void **state)
{
    (void)state;
    static const char sizes[] = "{\"hidden_size\": 64, \"moe_intermediate_size\": 32}";
    assert_int_equal(layout("{}", 128, 96, 96, 64), TP_STACK_ENK);
    assert_int_equal(layout("{}", 96, 128, 64, 96), TP_STACK_EKN);
    assert_int_equal(layout("{}", 128, 128, 64, 128), TP_STACK_EKN);
    assert_int_equal(layout("{}", 128, 128, 0, 0), TP_STACK_BY_SIZES);
    assert_int_equal(layout(sizes, 64, 128, 0, 0), TP_STACK_EKN);  /* by the hidden size alone */
    assert_int_equal(layout(sizes, 64, 64, 0, 0), TP_STACK_BY_SIZES);
    assert_int_equal(layout("{\"model_type\": \"gpt_oss\"}", 96, 96, 0, 0), TP_STACK_EKN);
    assert_int_equal(layout("{\"model_type\": \"gpt_oss\"}", 128, 96, 96, 64),
                     TP_STACK_BY_SIZES); /* it contradicts the file */
}

/* A file that breaks the rules is refused with its place. */
static void strict(void **state)
{
    (void)state;
    static const struct {
        const char *text, *what;
    } cases[] = {
        {"{\"name\": \"x\", \"name\": \"y\"}", "duplicate object key"},
        {"[]", "\"the file\" is no object"},
        {"{\"name\": \"x\"}", "\"title\" is missing"},
        {"{\"name\": 1}", "\"name\" is no text"},
        {"{\"nam\": \"x\"}", "\"nam\" is an unknown key"},
        {"{\"name\": \"x\", \"title\": \"x\", \"source\": [\"x\"]}", "\"model_type\" is missing"},
        {"{\"name\": \"x\", \"title\": \"x\", \"source\": [\"x\"], \"model_type\": [\"x\"], "
         "\"keep\": [{\"modules\": [\"a\"], \"why\": \"x\"}, {\"modules\": [\"a..b\"], \"why\": \"x\"}]}",
         "keep[1]: \"modules\" holds something that is no module's name"},
        {"{\"name\": \"x\", \"title\": \"x\", \"source\": [\"x\"], \"model_type\": [\"x\"], "
         "\"stacks\": [{\"name\": \"a.b\", \"holds\": \"up\"}]}",
         "stacks[0]: \"holds\" is no known word"},
        {"{\"name\": \"x\", \"title\": \"x\", \"source\": [\"x\"], \"model_type\": [\"x\"], "
         "\"parallel\": [{\"modules\": [\"a$\"], \"cut\": \"n\"}]}",
         "parallel[0]: \"cut\" is no known word"},
        {"{\"name\": \"x\", \"title\": \"x\", \"source\": [\"x\"], \"model_type\": [\"x\"], "
         "\"parallel\": [{\"modules\": [\"a$\"], \"cut\": \"K\", \"rows\": \"qkv\"}]}",
         "parallel[0]: \"rows\" is an unknown key"},
        {"{\"name\": \"x\", \"title\": \"x\", \"source\": [\"x\"], \"model_type\": [\"x\"], "
         "\"experts\": [{\"gate\": \"a\", \"up\": \"b.c\", \"down\": \"d\"}]}",
         "experts[0]: \"up\" is no segment of a name"},
        {"{\"name\": \"x\", \"title\": \"x\", \"source\": [\"x\"], \"model_type\": [\"x\"], "
         "\"experts\": [{\"gate\": \"a\", \"up\": \"b\", \"down\": \"a\"}]}",
         "experts[0]: \"down\" is called as another of the matrices"},
        {"{\"name\": \"x\", \"title\": \"x\", \"source\": [\"x\"], \"model_type\": [\"x\"], "
         "\"keep\": [{\"modules\": [\"a\"], \"why\": \"x\", \"head\": 1}]}",
         "keep[0]: \"head\" is neither true nor false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tp_model model;
        struct tp_err err = {0};
        assert_int_equal(tp_model_parse(cases[i].text, strlen(cases[i].text), &model, &err),
                         TP_E_INPUT);
        if (!strstr(err.what, cases[i].what))
            fail_msg("%s, not %s", err.what, cases[i].what);
    }
}

static void found_by(const char *word, bool architecture, const struct tp_model *model)
{
    const struct tp_model *found;
    assert_int_equal(tp_model_of(word, architecture, &found, NULL), TP_OK);
    if (found != model)
        fail_msg("%s is found in %s, not in %s", word, found ? found->name : "none", model->name);
}

/* Files are parsed when they are asked for: here all, and each is found by all of its words. */
static void embedded_models_are_valid_and_found(void **state)
{
    (void)state;
    struct tp_err err = {0};
    const struct tp_model *found;
    size_t count;
    const struct tp_model *const *all = tp_models(&count, &err);
    if (err.code)
        fail_msg("%s: %s", err.path, err.what);
    assert_true(count > 30);
    for (size_t i = 0; i < count; i++) {
        assert_true(tp_model_get(all[i]->name, &found, NULL) == TP_OK && found == all[i]);
        for (size_t t = 0; t < all[i]->types; t++)
            found_by(all[i]->type[t], false, all[i]);
        for (size_t a = 0; a < all[i]->architectures; a++)
            found_by(all[i]->architecture[a], true, all[i]);
    }
    assert_true(tp_model_get("none", &found, NULL) == TP_OK && !found);
    assert_true(tp_model_of("", false, &found, NULL) == TP_OK && !found);
    assert_true(tp_model_of("name", false, &found, NULL) == TP_OK && !found); /* a key */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(experts),
        cmocka_unit_test(stacks),
        cmocka_unit_test(fused_sets),
        cmocka_unit_test(patterns),
        cmocka_unit_test(models),
        cmocka_unit_test(layouts),
        cmocka_unit_test(strict),
        cmocka_unit_test(embedded_models_are_valid_and_found),
    };
    return cmocka_run_group_tests(tests, read_facts, NULL);
}
