"""Writes models whose layers vLLM names, merges or divides in ways of its own, with random values.

    families.py DIR NAME ...

They are made as those of tests/other/models are, of which some are written, too.
"""
import os
import sys

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import make  # noqa: E402
import zoo  # noqa: E402

TEXT = {"intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 512}
MODELS = {
    "stablelm": ("stablelm", TEXT),
    "gptj": ("gptj", {"n_embd": 256, "n_layer": 2, "n_head": 4, "n_inner": 512, "rotary_dim": 32,
                      "n_positions": 512}),
    "bert": ("bert", TEXT),
    "whisper": ("whisper", {
        "d_model": 256, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512,
        "num_mel_bins": 80, "max_source_positions": 64, "max_target_positions": 64,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}),
    "minicpm3": ("minicpm3", {
        **TEXT, "q_lora_rank": 128, "kv_lora_rank": 128, "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 64, "v_head_dim": 64}),
    "granitemoehybrid": ("granitemoehybrid", {
        **zoo.MOE, **TEXT, "mamba_n_heads": 8, "mamba_d_head": 64, "mamba_d_state": 128,
        "mamba_n_groups": 1, "mamba_expand": 2, "mamba_chunk_size": 16,
        "layer_types": ["mamba", "attention"], "shared_intermediate_size": 256}),
    "falcon_one": ("falcon", {"multi_query": True, "new_decoder_architecture": False}),
    "falcon_old": ("falcon", {"multi_query": False, "new_decoder_architecture": False, "bias": True,
                              "parallel_attn": False}),
    "laguna": ("laguna", {**zoo.MOE, **TEXT}),
}
CLASSES = {"bert": "AutoModel", "whisper": "AutoModelForSpeechSeq2Seq",
           "llama4_images": "AutoModelForImageTextToText"}

if __name__ == "__main__":
    zoo.MODELS.update(MODELS)
    zoo.CLASSES.update(CLASSES)
    make.main(*sys.argv[1:])
