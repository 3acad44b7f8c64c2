"""Small models of transformers' own classes, one or more for each family of models.

MODELS: {name: (model_type, what its config says otherwise than COMMON)}. Sizes are such that every
format converts something: inputs in multiples of 128, heads of 64. A dict is a part of the config.
"""

import zoo_more
from sizes import (COMMON, DEEPSEEK, LINEAR_ATTENTION, MAMBA2, MOE, MROPE, NOAUX, QWEN_VISION, VISION,
                   text)

MODELS = {
    "bamba": ("bamba", {**MAMBA2, "attn_layer_indices": [1]}),
    "bloom": ("bloom", {"n_layer": 2, "n_head": 4, "hidden_size": 256}),
    "cohere": ("cohere", {}),
    "cohere2": ("cohere2", {"layer_types": ["sliding_attention", "full_attention"]}),
    "dbrx": ("dbrx", {"d_model": 256, "n_heads": 4, "n_layers": 2, "max_seq_len": 256,
                      "ffn_config": {"ffn_hidden_size": 256, "moe_num_experts": 4,
                                     "moe_top_k": 2, "hidden_size": 256},
                      "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0}}),
    "deepseek_v2": ("deepseek_v2", {**DEEPSEEK, "topk_method": "greedy"}),
    "deepseek_v3": ("deepseek_v3", {**DEEPSEEK, **NOAUX}),
    "deepseek_v32": ("deepseek_v32", {**DEEPSEEK, **NOAUX, "index_n_heads": 4,
                                      "index_head_dim": 128, "index_topk": 64}),
    "deepseek_v4": ("deepseek_v4", {
        "head_dim": 128, "num_key_value_heads": 1, "q_lora_rank": 256, "o_groups": 2,
        "o_lora_rank": 128, "moe_intermediate_size": 256, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "index_n_heads": 4, "index_head_dim": 128, "index_topk": 64,
        "num_nextn_predict_layers": 0, "num_hash_layers": 0, "topk_method": "noaux_tc"}),
    "ernie4_5": ("ernie4_5", {}),
    "ernie4_5_moe": ("ernie4_5_moe", {**MOE, "moe_num_experts": 4, "moe_k": 2,
                                      "moe_num_shared_experts": 1, "moe_layer_start_index": 1}),
    "falcon_h1": ("falcon_h1", {**MAMBA2, "mamba_d_ssm": 512}),
    "falcon": ("falcon", {"num_kv_heads": 2, "new_decoder_architecture": True,
                          "ffn_hidden_size": 1024}),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 64}),
    "gemma3": ("gemma3_text", {"query_pre_attn_scalar": 64}),
    "gemma3_images": ("gemma3", {**text(query_pre_attn_scalar=64),
                                 "vision_config": {**VISION, "vision_use_head": False},
                                 "mm_tokens_per_image": 4, "image_token_index": 500}),
    "gemma4_images": ("gemma4", {
        **text(model_type="gemma4_text", global_head_dim=64, num_kv_shared_layers=0,
               layer_types=["sliding_attention", "full_attention"], attention_k_eq_v=True,
               num_global_key_value_heads=2, vocab_size_per_layer_input=512,
               hidden_size_per_layer_input=0, enable_moe_block=False, sliding_window=64,
               tie_word_embeddings=True),
        "vision_config": {**VISION, "head_dim": 64, "num_key_value_heads": 2,
                          "global_head_dim": 64}, "audio_config": None,
        "image_token_id": 500, "tie_word_embeddings": True}),
    "gemma3n": ("gemma3n_text", {
        "vocab_size_per_layer_input": 512, "hidden_size_per_layer_input": 128, "laurel_rank": 64,
        "num_kv_shared_layers": 0, "activation_sparsity_pattern": [0.0, 0.0],
        "layer_types": ["sliding_attention", "full_attention"]}),
    "glm4": ("glm4", {}),
    "glm4_moe": ("glm4_moe", {**MOE, "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1,
                              "topk_group": 1, "first_k_dense_replace": 1}),
    "glm4v": ("glm4v", {**text(rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
        "mrope_section": [4, 6, 6]}), "vision_config": {
        **QWEN_VISION, "out_hidden_size": 256}}),
    "glm5": ("glm_moe_dsa", {**DEEPSEEK, **NOAUX, "index_n_heads": 4, "index_head_dim": 128,
                             "index_topk": 64}),
    "gpt2": ("gpt2", {"n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 256}),
    "gpt_neox": ("gpt_neox", {}),
    "gpt_oss": ("gpt_oss", {**MOE, "intermediate_size": 256,
                            "layer_types": ["sliding_attention", "full_attention"]}),
    "granite": ("granite", {}),
    "granitemoe": ("granitemoe", {**MOE, "intermediate_size": 256}),
    "hunyuan_moe": ("hunyuan_v1_moe", {**MOE, "intermediate_size": 256, "moe_topk": [2, 2],
                                       "num_shared_expert": [1, 1]}),
    "idefics3": ("idefics3", {**text(model_type="llama"), "image_token_id": 500,
                              "vision_config": VISION, "scale_factor": 2}),
    "internvl": ("internvl", {"text_config": {**COMMON, "model_type": "qwen2"},
                              "vision_config": {**VISION, "image_size": [56, 56],
                                                "patch_size": [14, 14]},
                              "image_token_id": 500}),
    "jamba": ("jamba", {**MOE, "attn_layer_period": 2, "attn_layer_offset": 1,
                        "expert_layer_period": 2, "expert_layer_offset": 1,
                        "mamba_d_state": 16, "mamba_dt_rank": 128, "use_mamba_kernels": False}),
    "kimi_k2": ("deepseek_v3", {**DEEPSEEK, **NOAUX}),
    "kimi_k25": ("kimi_k25", {
        **text(model_type="deepseek_v3", **DEEPSEEK, **NOAUX), "image_token_id": 500,
        "vision_config": {**VISION, "pos_emb_height": 4, "pos_emb_width": 4},
        "projection_hidden_size": 128, "tie_word_embeddings": False}),
    "lfm2": ("lfm2", {"conv_dim": 256, "block_dim": 256, "block_ff_dim": 512,
                      "layer_types": ["conv", "full_attention"],
                      "block_auto_adjust_ff_dim": False}),
    "lfm2_moe": ("lfm2_moe", {**MOE, "layer_types": ["conv", "full_attention"],
                              "num_dense_layers": 1}),
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama4": ("llama4_text", {**MOE, "intermediate_size": 256, "intermediate_size_mlp": 512,
                               "layer_types": ["chunked_attention", "full_attention"]}),
    "llama4_images": ("llama4", {
        **text(**MOE, model_type="llama4_text", intermediate_size_mlp=512,
               layer_types=["chunked_attention", "full_attention"]),
        "image_token_index": 500,
        "vision_config": {**VISION, "vision_output_dim": 256, "projector_input_dim": 256,
                          "projector_output_dim": 256}}),
    "llava": ("llava", {**text(model_type="llama"), "image_token_index": 500,
                        "vision_config": {**VISION, "model_type": "clip_vision_model",
                                          "projection_dim": 128}}),
    "llava_next": ("llava_next", {**text(model_type="llama"), "image_token_index": 500,
                                  "vision_config": {**VISION, "model_type": "clip_vision_model",
                                                    "projection_dim": 128}}),
    "llava_onevision": ("llava_onevision", {
        **text(model_type="qwen2"), "image_token_index": 500, "video_token_index": 501,
        "vision_config": {**VISION, "model_type": "siglip_vision_model"}}),
    "minimax_m2": ("minimax_m2", {**MOE, "rotary_dim": 32, "scoring_func": "sigmoid",
                                  "use_routing_bias": True, "intermediate_size": 256}),
    "ministral": ("ministral", {"layer_types": ["sliding_attention", "full_attention"]}),
    "mistral": ("mistral", {}),
    "mistral3": ("mistral3", {**text(model_type="mistral"), "image_token_index": 500,
                              "vision_config": {**VISION, "head_dim": 64,
                                                "model_type": "pixtral"}}),
    "mixtral": ("mixtral", MOE),
    "nemotron": ("nemotron", {}),
    "nemotron_h": ("nemotron_h", {
        **MOE, "mamba_num_heads": 8, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 1,
        "chunk_size": 16, "n_routed_experts": 4, "moe_shared_expert_intermediate_size": 256,
        "layers_block_type": ["mamba", "attention", "moe"], "num_hidden_layers": 3,
        "n_group": 1, "topk_group": 1}),
    "olmo": ("olmo", {}),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", {"layer_types": ["sliding_attention", "full_attention"]}),
    "olmoe": ("olmoe", {**MOE, "intermediate_size": 256}),
    "paligemma": ("paligemma", {
        **text(model_type="gemma"), "image_token_index": 500, "projection_dim": 256,
        "vision_config": {**VISION, "model_type": "siglip_vision_model",
                          "projection_dim": 256}}),
    "phi3": ("phi3", {"original_max_position_embeddings": 256}),
    "phimoe": ("phimoe", {**MOE, "intermediate_size": 256}),
    "qwen2": ("qwen2", {}),
    "qwen2_5_vl": ("qwen2_5_vl", {**text(**MROPE), "vision_config": {
        **QWEN_VISION, "fullatt_block_indexes": [1]}}),
    "qwen2_moe": ("qwen2_moe", {**MOE, "shared_expert_intermediate_size": 512}),
    "qwen3": ("qwen3", {}),
    "qwen3_score": ("qwen3", {"num_labels": 1}),
    "qwen3_5": ("qwen3_5_text", LINEAR_ATTENTION),
    "qwen3_5_moe": ("qwen3_5_moe_text", {**MOE, **LINEAR_ATTENTION,
                                         "shared_expert_intermediate_size": 256}),
    "qwen3_5_images": ("qwen3_5", {
        **text(model_type="qwen3_5_text", **LINEAR_ATTENTION),
        "vision_config": {**QWEN_VISION, "num_position_embeddings": 16}}),
    "qwen3_5_moe_images": ("qwen3_5_moe", {
        **text(model_type="qwen3_5_moe_text", **MOE, **LINEAR_ATTENTION,
               shared_expert_intermediate_size=256),
        "vision_config": {**QWEN_VISION, "num_position_embeddings": 16}}),
    "qwen3_moe": ("qwen3_moe", MOE),
    "qwen3_next": ("qwen3_next", {**MOE, **LINEAR_ATTENTION,
                                  "shared_expert_intermediate_size": 256}),
    "qwen3_vl": ("qwen3_vl", {**text(**MROPE), "vision_config": {
        **QWEN_VISION, "deepstack_visual_indexes": [0], "num_position_embeddings": 16}}),
    "qwen3_vl_moe": ("qwen3_vl_moe", {
        **text(**MOE, **MROPE, norm_topk_prob=True), "vision_config": {
            **QWEN_VISION, "deepstack_visual_indexes": [0], "num_position_embeddings": 16}}),
    "smollm3": ("smollm3", {}),
    "starcoder2": ("starcoder2", {}),
    "zamba2": ("zamba2", {"head_dim": 128, "mamba_d_state": 128, "mamba_ngroups": 1,
                          "n_mamba_heads": 8, "chunk_size": 16, "num_hidden_layers": 3,
                          "hybrid_layer_ids": [1],
                          "num_mem_blocks": 1, "use_mamba_kernels": False, "num_key_value_heads": 4,
                          "layers_block_type": ["mamba", "hybrid", "mamba"]}),
    **zoo_more.MODELS,
}

# Published checkpoints have stacks of experts the other way round than transformers 5 saves them,
# and other names: (from, to), ...
TRANSPOSED = ("qwen3_vl_moe",)
RENAMED = {
    "deepseek_v4": (("model.layers.", "layers."), ("model.embed_tokens.", "embed."),
                    ("model.norm.", "norm."), ("model.hc_head.hc_", "hc_head_"),
                    (".attn.norm.", ".attn.kv_norm.")),
    "gemma3_images": (("vision_tower.", "vision_tower.vision_model."),),
    "hy_v4": ((".mlp.linear_gate.", ".mlp.gate_proj."),
              (".shared_experts.linear_gate.", ".shared_experts.gate_proj."),
              ("model.hc_pre.hc_head.", "model.hc_head."),
              (".hc_pre.hc_attn_layer.", ".hc_attn_layer.hc_pre."),
              (".hc_pre.hc_mlp_layer.", ".hc_mlp_layer.hc_pre.")),
    "kimi_linear": (("layers.0.block_sparse_moe.", "layers.0.mlp."),),
    "qwen2_audio": (("language_model.model.model.", "language_model.model."),),
    "minimax_m3": ((".block_sparse_moe.fc", ".mlp.fc"),
                   ("layers.0.block_sparse_moe.", "layers.0.mlp.")),
    "kimi_k25": (("language_model.model.blocks.", "language_model.model.layers."),
                 ("model.mm_projector.", "mm_projector.")),
    **{name: (("vision_tower.", "vision_tower.vision_model."),)
       for name in ("cohere2_vision", "llava", "llava_next", "llava_onevision", "paligemma")},
}

# What `make test-models` takes when no model is named.
DEFAULT = ("llama", "llama4", "mistral3", "mixtral", "qwen2", "qwen3_score", "qwen3_moe", "qwen3_vl",
           "qwen3_5", "qwen4_exp", "deepseek_v3", "glm4_moe", "glm5_next", "gpt_oss", "gemma3_images",
           "gemma4_images", "minimax_m3", "hy_v3", "nemotron_h", "xlm_roberta_score")
# What is loaded for other GPUs, too.
EVERYWHERE = ("mixtral", "llama", "deepseek_v3", "gpt_oss")
# transformers reads these with a package that needs a GPU.
UNREAD = ("gptq", "awq")

# Cosines of logits that are less near than others' in formats of 4 bits, with weights as near.
NOISY = {"gemma4": 0.7, "gemma4_images": 0.7}

# vLLM runs these through transformers, and counts shared experts under other names than it loads.
UNCOUNTED = ("dots1", "hunyuan_moe", "mistral4", "solar_open")

# vLLM adds rows to these behind those of the file, and leaves them as they are: {end: rows of the file}.
PADDED = {"input_mix_weight_down_block_inject.weight": 132}

# Models with another head than that of language.
CLASSES = {"qwen3_score": "AutoModelForSequenceClassification", **zoo_more.CLASSES}

# What config.json of published checkpoints says otherwise than transformers'.
RETYPED = {"kimi_k2": {"model_type": "kimi_k2"},
           **zoo_more.RETYPED}

EVERY = ("w4a16-ct", "w8a16-ct", "gptq", "awq", "w4a8-ct", "int8-ct", "fp8-dynamic-ct",
         "fp8-tensor-ct", "fp8-deepseek", "fp8-ct", "mxfp8-ct", "mxfp4-ct", "nvfp4-ct")
# Beside these a dense model and one of experts in what `tilepack recipe` chooses of two formats at 6 bits.
RECIPE, BY_RECIPE = "recipe", ("llama", "mixtral")
# {kernel-ready format: (interchange format whose codes it takes over, how vLLM is told to take the
# same kernel, what `convert` is told for the interchange checkpoint, and for this one)}, on SM90. vLLM's
# kernel for W4A8 does not take the rows of latent attention.
MARLIN = {"linear_backend": "marlin", "moe_backend": "marlin"}
PLUGGED = {
    "w4a16-marlin": ("w4a16-ct", MARLIN, (), ()),
    "w8a16-marlin": ("w8a16-ct", MARLIN, ("--set", "group=128"), ("--set", "group=128")),
    "fp8-marlin-channel": ("fp8-dynamic-ct", MARLIN, (), ()),
    "mxfp8-marlin": ("mxfp8-ct", MARLIN, (), ()),
    "mxfp4-marlin": ("mxfp4-ct", MARLIN, (), ()),
    "nvfp4-marlin": ("nvfp4-ct", MARLIN, (), ()),
    "w4a8-cutlass": ("w4a8-ct", {}, ("--exclude", "_a_proj"), ("--set", "scale=cpu")),
}
# What readers are known to refuse or misread: {(reader, name): ((formats, a part of what the
# test says), ...)}, None where it loads after all; "source" stands for the model before it is
# converted.
KNOWN = {
    ("vllm", "bamba"): ((("source",), "does not dispatch through"),),  # removed in vLLM 0.23
    ("vllm", "dbrx"): ((("source",), "KeyError"),),
    # Rows of one group, whose scales are stored as those of two.
    **{("vllm", name): ((("w4a16-marlin",), "b_scales: shape"),)
       for name in ("gemma3_images", "glm4v", "mistral3", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")},
    # The plug-in says it in one sentence when it loads: keys that are values.
    ("vllm", "gemma4_images"): ((tuple(PLUGGED), "is not packed"),),
    # Rows that are no multiple of 128: it derives another size of blocks.
    **{("transformers", name): ((("fp8-deepseek",), "automatic conversion of the weights"),)
       for name in ("bamba", "deepseek_v2", "deepseek_v3", "deepseek_v32", "falcon_h1", "glm5", "glm4_moe_lite",
                    "granitemoehybrid", "longcat_flash", "youtu", "zamba2")},
    # Its image processor and tokenizer are code that a published checkpoint brings.
    ("vllm", "kimi_k25"): ((("source",), "Can't load image processor"),),
    ("transformers", "kimi_k2"): ((("source",), "does not recognize this architecture"),),
    # It calls the modules of the tower and the projector otherwise than files do.
    ("transformers", "kimi_k25"): ((("w4a16-ct", "w4a8-ct", "fp8-dynamic-ct", "mxfp4-ct", "nvfp4-ct"), "missing_keys"),
                                   (("fp8-deepseek",), "automatic conversion of the weights")),
    **{("transformers", name): ((("fp8-deepseek",), "missing_keys"),
                                (("fp8-ct", "mxfp8-ct", "nvfp4-ct", "int8-ct"), None))
       for name in ("llama4", "llama4_images")},
    ("transformers", "gemma3_images"): (
        (("w4a16-ct", "w8a16-ct", "w4a8-ct", "mxfp4-ct", "nvfp4-ct"), "'Linear' object has no attribute 'weight'"),),
    ("transformers", "glm5_next"): (
        (("w4a16-ct", "w8a16-ct", "w4a8-ct", "mxfp4-ct", "nvfp4-ct"), "automatic conversion of the weights"),),
    **{("transformers", name): (
        (("w4a16-ct", "w8a16-ct", "w4a8-ct", "mxfp4-ct", "nvfp4-ct", "fp8-deepseek"), "automatic conversion of the weights"),
        (("fp8-tensor-ct",), "unexpected_keys" if name == "bailing_hybrid" else None))
       for name in ("bailing_hybrid", "kimi_linear")},
    ("transformers", "hy_v4"): (
        (UNREAD, None), (("fp8-deepseek",), "automatic conversion of the weights"), (EVERY, "missing_keys")),
    ("transformers", "modernbert_score"): (
        (("w4a16-ct", "w8a16-ct", "w4a8-ct", "mxfp4-ct", "nvfp4-ct"), "'Linear' object has no attribute 'weight'"),),
    # Models without logits, or that this transformers does not run or save as vLLM reads them.
    **{("transformers", name): ((("source",), "no attribute 'logits'"),) for name in ("bert", "embeddinggemma")},
    ("transformers", "mistral4"): ((("source",), "must match the size of tensor b"),),
    ("transformers", "whisper"): ((("source",), "has no attribute 'shape'"),),
    ("transformers", "step3p7"): ((("source",), "ignore_mismatched_sizes"),),
    ("vllm", "step3p7"): ((("source",), "'Step3p7VisionConfig' object has no attribute 'heads'"),),
    ("transformers", "minimax_m3"): (
        (("w4a16-ct", "w8a16-ct", "w4a8-ct", "fp8-tensor-ct", "nvfp4-ct"), "ignore_mismatched_sizes"),),
    ("transformers", "nemotron_h"): ((("int8-ct",), "missing_keys"),
                                     (("fp8-deepseek",), "automatic conversion of the weights")),
    ("transformers", "falcon"): (
        (("w4a16-ct", "w8a16-ct", "w4a8-ct", "mxfp4-ct", "nvfp4-ct"),
         "'FalconLinear' object has no attribute 'weight'"),),
    ("transformers", "qwen3_vl_moe"): ((UNREAD, None), (EVERY, "missing_keys")),
}
# Kernels that vLLM misses only when they run: it loads the format there.
LATE = (("int8-ct", "sm100"),)
# The same of each model whose experts are converted.
OF_EXPERTS = {
    "transformers": ((("fp8-ct", "mxfp8-ct", "int8-ct"), "automatic conversion of the weights"),
                     (("nvfp4-ct",), "output: 0.")),
}


def refused(reader, name, fmt, experts):
    rows = KNOWN.get((reader, name), ()) + (OF_EXPERTS.get(reader, ()) if experts else ())
    return next((says for formats, says in rows if fmt in formats), None)
