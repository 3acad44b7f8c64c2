"""More small models for zoo.py: those of 2026, rerankers and embeddings, and others that have no
file of their own in models/."""

from sizes import DEEPSEEK, LINEAR_ATTENTION, MAMBA2, MLA, MOE, NOAUX, QWEN_VISION, VISION, text

SPARSE = {"index_n_heads": 4, "index_head_dim": 128, "index_topk": 64}
ENCODER = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
           "num_attention_heads": 4, "vocab_size": 512, "max_position_embeddings": 256}
FOUR = {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "moe_intermediate_size": 256}
HYPER = {"hc_count": 4, "hc_lowrank": 128, "layer_types": ["linear_attention", "indexed_attention"]}
QWEN4 = {**MOE, **LINEAR_ATTENTION, "shared_expert_intermediate_size": 256, **HYPER,
         "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 64,
         "indexer_compress_ratio": 4}
DENSE_THEN_SPARSE = ["dense", "sparse"]
KDA = {"linear_head_dim": 64, "linear_num_heads": 4, "linear_conv_kernel_dim": 4}
WHISPER = {
    "d_model": 256, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512,
    "num_mel_bins": 80, "max_source_positions": 64, "max_target_positions": 64,
    "decoder_start_token_id": 1}

MODELS = {
    "afmoe": ("afmoe", {**MOE, "num_dense_layers": 1, "num_shared_experts": 1, "score_func": "sigmoid",
                        "route_norm": True, "n_group": 1, "topk_group": 1,
                        "layer_types": ["sliding_attention", "full_attention"]}),
    "apertus": ("apertus", {}),
    "arcee": ("arcee", {}),
    "bailing_hybrid": ("bailing_hybrid", {
        **DEEPSEEK, **KDA, "num_local_experts": 4, "num_experts": 4, "layer_group_size": 2,
        "head_dim": 64, "num_mtp_layers": 0, "num_shared_experts": 1, "use_bias": False,
        "moe_shared_expert_intermediate_size": 256}),
    "bert": ("bert", ENCODER),
    "bert_score": ("bert", {**ENCODER, "num_labels": 1}),
    "cohere2_moe": ("cohere2_moe", {**MOE, "intermediate_size": 256, "num_shared_experts": 1,
                                    "layer_types": ["sliding_attention", "full_attention"]}),
    "cohere2_vision": ("cohere2_vision", {
        **text(model_type="cohere2", layer_types=["sliding_attention", "full_attention"]),
        "vision_config": {**VISION, "model_type": "siglip_vision_model"}, "image_token_id": 500,
        "alignment_intermediate_size": 512}),
    "dots1": ("dots1", {**FOUR, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
                        "layer_types": ["full_attention", "full_attention"]}),
    "embeddinggemma": ("gemma3_text", {"query_pre_attn_scalar": 64,
                                       "use_bidirectional_attention": True}),
    "exaone4": ("exaone4", {"layer_types": ["sliding_attention", "full_attention"]}),
    "exaone_moe": ("exaone_moe", {**MOE, "num_shared_experts": 1, "first_k_dense_replace": 1,
                                  "layer_types": ["sliding_attention", "full_attention"],
                                  "mlp_layer_types": DENSE_THEN_SPARSE}),
    "flex_olmo": ("flex_olmo", {**MOE, "intermediate_size": 256}),
    "gemma4": ("gemma4_text", {
        "global_head_dim": 64, "num_kv_shared_layers": 0,
        "layer_types": ["sliding_attention", "full_attention"], "attention_k_eq_v": False,
        "num_global_key_value_heads": 2, "vocab_size_per_layer_input": 512,
        "hidden_size_per_layer_input": 0, "sliding_window": 64}),
    "glm4_moe_lite": ("glm4_moe_lite", {**DEEPSEEK, **NOAUX}),
    "glm5_next": ("glm5_next", {
        **text(model_type="glm5_next_text", **{
            **DEEPSEEK, **NOAUX, **SPARSE, **KDA, "hc_mult": 4, "qk_rope_head_dim": 0,
            "layer_types": ["linear_attention", "indexed_attention"],
            "mlp_layer_types": DENSE_THEN_SPARSE}),
        "vision_config": QWEN_VISION, "image_token_id": 500}),
    "granitemoehybrid": ("granitemoehybrid", {
        **MOE, **MAMBA2, "intermediate_size": 512, "layer_types": ["mamba", "attention"],
        "shared_intermediate_size": 256}),
    "hunyuan_dense": ("hunyuan_v1_dense", {}),
    "hy_v3": ("hy_v3", {**MOE, "num_shared_experts": 1, "mlp_layer_types": DENSE_THEN_SPARSE}),
    "hy_v4": ("hy_v4", {**MLA, **SPARSE, **FOUR, "num_attention_heads": 4,
                        "mlp_layer_types": DENSE_THEN_SPARSE, "indexer_types": ["full", "full"]}),
    "hyperclovax": ("hyperclovax", {}),
    "kimi_linear": ("kimi_linear", {
        **MLA, **FOUR, **KDA, "q_lora_rank": None, "num_local_experts": 4,
        "layer_types": ["linear_attention", "full_attention"],
        "mlp_layer_types": DENSE_THEN_SPARSE}),
    "llama_score": ("llama", {"num_labels": 2}),
    "longcat_flash": ("longcat_flash", {**MLA, "num_layers": 2, "ffn_hidden_size": 512,
                                        "expert_ffn_hidden_size": 256, "n_routed_experts": 4,
                                        "zero_expert_num": 0, "moe_topk": 2,
                                        "zero_expert_type": "identity",
                                        "mla_scale_q_lora": False, "mla_scale_kv_lora": False}),
    "mimo_v2_flash": ("mimo_v2_flash", {
        **FOUR, "v_head_dim": 64, "layernorm_epsilon": 1e-5,
        "hybrid_layer_pattern": [1, 0], "moe_layer_freq": [0, 1], "swa_num_key_value_heads": 2,
        "swa_num_attention_heads": 4, "swa_head_dim": 64, "swa_v_head_dim": 64,
        "sliding_window_size": 64,
        "scoring_func": "sigmoid", "topk_method": "noaux_tc", "n_group": 1, "topk_group": 1,
        "sliding_window": 64,
        "layer_types": ["sliding_attention", "full_attention"],
        "mlp_layer_types": DENSE_THEN_SPARSE}),
    "minimax_m3": ("minimax_m3_vl", {
        **text(**MOE, **{**SPARSE, "index_n_heads": 2}, head_dim=128, intermediate_size=256,
               dense_intermediate_size=512, shared_intermediate_size=256,
               mlp_layer_types=DENSE_THEN_SPARSE, layer_types=["full_attention", "minimax_m3_sparse"]),
        "vision_config": VISION, "image_token_index": 500, "video_token_index": 501,
        "projector_hidden_size": 256}),
    "mistral4": ("mistral4", {**DEEPSEEK, "qk_nope_head_dim": 64}),
    "modernbert_score": ("modernbert", {**ENCODER, "num_labels": 1, "pad_token_id": 0,
                                        "layer_types": ["full_attention", "sliding_attention"]}),
    "opt": ("opt", {"ffn_dim": 512, "word_embed_proj_dim": 256}),
    "persimmon": ("persimmon", {}),
    "qwen2_audio": ("qwen2_audio", {
        **text(model_type="qwen2"), "audio_token_index": 500,
        "audio_config": {"d_model": 128, "encoder_layers": 2, "encoder_attention_heads": 2,
                         "encoder_ffn_dim": 256, "num_mel_bins": 80, "max_source_positions": 64}}),
    "qwen4_exp": ("qwen4_exp_text", QWEN4),
    "qwen4_exp_images": ("qwen4_exp", {
        **text(model_type="qwen4_exp_text", **QWEN4),
        "vision_config": {**QWEN_VISION, "num_position_embeddings": 16}}),
    "seed_oss": ("seed_oss", {}),
    "solar_open": ("solar_open", {**FOUR, "n_group": 1, "topk_group": 1}),
    "stablelm": ("stablelm", {}),
    "step3p7": ("step3p7", {
        **text(**FOUR, model_type="step3p5", num_local_experts=4, share_expert_dim=256,
               layer_types=["full_attention", "sliding_attention"],
               mlp_layer_types=DENSE_THEN_SPARSE, sliding_window=64),
        "vision_config": VISION, "image_token_id": 500}),
    "whisper": ("whisper", WHISPER),
    "xlm_roberta_score": ("xlm-roberta", {**ENCODER, "num_labels": 1, "type_vocab_size": 1}),
    "youtu": ("youtu", {**MLA, "head_dim": 64}),
}
RETYPED = {
    "glm5_next": {"text_config": {"mhc": True, "mla_use_nope": True, "scoring_func": "sigmoid",
                                  "topk_method": "noaux_tc", "indexer_rope_interleave": False,
                                  "num_nextn_predict_layers": 0}},
    "hy_v3": {"first_k_dense_replace": 1, "expert_hidden_dim": 256, "qk_norm": True, "route_norm": True},
    "qwen4_exp": {"output_gate_type": "silu"},
    "qwen4_exp_images": {"text_config": {"output_gate_type": "silu"},
                         "vision_config": {"deepstack_visual_indexes": []}},
    "step3p7": {"vision_config": {
        "model_type": "perception_encoder", "width": 128, "layers": 2, "heads": 2, "mlp_ratio": 2.0,
        "output_dim": 128}},
    "bailing_hybrid": {"architectures": ["BailingMoeV3ForCausalLM"], "no_kda_lora": True,
                       "q_lora_rank": None},
    "kimi_linear": {
        "num_experts": 4, "num_experts_per_token": 2, "num_shared_experts": 1,
        "first_k_dense_replace": 1, "mla_use_nope": True, "linear_attn_config": {
            "kda_layers": [1], "full_attn_layers": [2], "head_dim": 64, "num_heads": 4,
            "short_conv_kernel_size": 4}},
    "minimax_m3": {
        "text_config": {"hidden_act": "swigluoai", "moe_layer_freq": [0, 1], "rope_theta": 5000000,
                        "partial_rotary_factor": 1.0, "use_gemma_norm": True, "swiglu_beta": 1.0,
                        "scoring_func": "sigmoid", "n_shared_experts": 1, "use_routing_bias": True,
                        "sparse_attention_config": {
                            "use_sparse_attention": True, "sparse_index_dim": 128,
                            "sparse_num_index_heads": 2, "sparse_topk_blocks": 16,
                            "sparse_block_size": 128, "sparse_disable_index_value": [0, 1],
                            "sparse_score_type": "max", "sparse_init_block": 0,
                            "sparse_local_block": 1, "sparse_attention_freq": [0, 1]}},
        "vision_config": {"rope_theta": 10000.0, "img_token_compression_config": {
            "temporal_patch_size": 2, "spatial_merge_size": 2}}},
}
CLASSES = {
    "qwen4_exp_images": "AutoModelForImageTextToText", "qwen2_audio": "AutoModelForMultimodalLM",
    "bert": "AutoModel", "embeddinggemma": "AutoModel", "whisper": "AutoModelForSpeechSeq2Seq",
    **{name: "AutoModelForSequenceClassification"
       for name in ("bert_score", "llama_score", "modernbert_score", "xlm_roberta_score")},
}
