"""Sizes of the models of zoo.py: such that every format converts something, as inputs are in multiples
of 128 and heads are 64 wide."""

COMMON = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 512,
    "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}
MOE = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
       "moe_intermediate_size": 256}
MLA = {"q_lora_rank": 256, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
       "v_head_dim": 128, "num_key_value_heads": 4, "head_dim": 64}
DEEPSEEK = {**MLA, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
            "moe_intermediate_size": 256, "first_k_dense_replace": 1, "n_group": 1,
            "topk_group": 1}
NOAUX = {"topk_method": "noaux_tc", "scoring_func": "sigmoid"}
VISION = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
          "num_attention_heads": 2, "image_size": 56, "patch_size": 14}
QWEN_VISION = {"depth": 2, "hidden_size": 128, "intermediate_size": 256, "num_heads": 2,
               "patch_size": 14, "out_hidden_size": 256}
LINEAR_ATTENTION = {"linear_num_key_heads": 2, "linear_num_value_heads": 4,
                    "linear_key_head_dim": 64, "linear_value_head_dim": 64,
                    "layer_types": ["linear_attention", "full_attention"],
                    "full_attention_interval": 2}
MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                             "mrope_section": [8, 12, 12]}}
MAMBA2 = {"mamba_d_state": 128, "mamba_n_heads": 8, "mamba_d_head": 64, "mamba_n_groups": 1,
          "mamba_expand": 2, "mamba_chunk_size": 16}


def text(**changes):
    return {"text_config": {**COMMON, **changes}}
