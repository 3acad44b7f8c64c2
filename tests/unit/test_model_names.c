/* Which weights are taken by default, and which belong together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pack/source/model_names.h"

#include <string.h>

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
        const char *reason = tp_kept_reason(tp_name_kept(cases[i].name));
        if (!cases[i].reason)
            assert_null(reason);
        else
            assert_string_equal(reason, cases[i].reason);
    }
}

static void experts(void **state)
{
    (void)state;
    struct tp_expert_name e;
    assert_true(tp_name_expert("model.layers.0.mlp.experts.17.up_proj.weight", &e));
    assert_int_equal(e.expert, 17);
    assert_int_equal(e.matrix, TP_EXPERT_UP);
    assert_int_equal(e.prefix, strlen("model.layers.0.mlp.experts"));
    assert_true(tp_name_expert("experts.0.w2", &e));
    assert_int_equal(e.matrix, TP_EXPERT_DOWN);
    assert_int_equal(e.prefix, strlen("experts"));
    assert_true(tp_name_expert("a.experts.3.b.experts.5.w1.weight", &e));
    assert_int_equal(e.expert, 5);
    assert_false(tp_name_expert("a.experts.07.w1.weight", &e)); /* not how a 7 is written */
    assert_false(tp_name_expert("a.experts.7.w4.weight", &e));
    assert_false(tp_name_expert("a.experts.7.w1.bias", &e));
    assert_false(tp_name_expert("a.experts.x.w1.weight", &e));
    assert_false(tp_name_expert("a.experts.99999999999999999999.w1", &e));
    assert_false(tp_name_expert("a.my_experts.1.w1.weight", &e));
}

static void stacks(void **state)
{
    (void)state;
    struct tp_stack_name s;
    assert_true(tp_name_stack("m.experts.gate_up_proj", &s) && s.gate_up);
    assert_true(tp_name_stack("m.experts.down_proj.weight", &s) && !s.gate_up);
    assert_int_equal(s.prefix, strlen("m.experts"));
    assert_true(tp_name_stack("experts.down_proj", &s));
    assert_false(tp_name_stack("m.myexperts.down_proj", &s));
    assert_false(tp_name_stack("m.experts.up_proj", &s));
}

static void fused_sets(void **state)
{
    (void)state;
    char q[64], k[64], gate[64];
    assert_true(tp_name_fused("l.0.attn.q_proj.weight", q, sizeof q));
    assert_true(tp_name_fused("l.0.attn.k_proj", k, sizeof k));
    assert_string_equal(q, k);
    assert_true(tp_name_fused("l.0.mlp.gate_proj.weight", gate, sizeof gate));
    assert_string_equal(gate, "l.0.mlp.gate_up");
    assert_false(tp_name_fused("l.0.attn.o_proj.weight", q, sizeof q));
    assert_false(tp_name_fused("l.0.attn.q_proj.weight", q, 8)); /* does not fit */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(experts),
        cmocka_unit_test(stacks),
        cmocka_unit_test(fused_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
