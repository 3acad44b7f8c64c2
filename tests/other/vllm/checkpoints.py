"""Checkpoints for vllm.sh that samples/gen_checkpoint.py does not make, and damaged ones.

    checkpoints.py deepseek DIR        latent attention, a dense layer, then one with experts that
                                       vLLM's model loads by hand, and shared ones
    checkpoints.py gptoss DIR H I      gpt-oss as published, of hidden and intermediate size H and I
    checkpoints.py tied DIR            makes a checkpoint one whose output head is its embedding
    checkpoints.py biased DIR          gives the attention of a Llama biases
    checkpoints.py asymmetric DIR      gives AWQ weights other zero points than 8
    checkpoints.py activations DIR     declares MXFP8 activations for packed MXFP4 weights
    checkpoints.py calibrated DIR      gives nvfp4-ct or fp8-tensor-ct activation scales
    checkpoints.py nvidia DIR          gives calibrated nvfp4-ct the names that ModelOpt has for it
    checkpoints.py without DIR NAME    takes a tensor out of its file
    checkpoints.py flipped DIR NAME    changes the last bit of a tensor's first word
    checkpoints.py shorter DIR NAME    drops the last row of a tensor
"""
import json
import math
import os
import re
import sys

import numpy as np

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import stfile  # noqa: E402

CONFIG = "config.json"
DEEPSEEK = {
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 256,
    "intermediate_size": 512, "moe_intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "n_routed_experts": 4,
    "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "n_group": 1, "topk_group": 1, "topk_method": "greedy",
    "norm_topk_prob": False, "scoring_func": "softmax", "routed_scaling_factor": 1.0,
    "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "vocab_size": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "max_position_embeddings": 1024, "hidden_act": "silu", "tie_word_embeddings": False,
    "attention_bias": False, "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1,
}

EXPERTS = 4
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "num_local_experts": EXPERTS,
    "num_experts_per_tok": 2, "vocab_size": 512, "rms_norm_eps": 1e-5, "rope_theta": 150000.0,
    "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "rope_type": "yarn",
                     "original_max_position_embeddings": 4096, "truncate": False},
    "max_position_embeddings": 131072, "initial_context_length": 4096, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"], "hidden_act": "silu",
    "swiglu_limit": 7.0, "attention_bias": True, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
        "lm_head"]},
}


def mlp(prefix, inner):
    yield prefix + "gate_proj.weight", (inner, 256)
    yield prefix + "up_proj.weight", (inner, 256)
    yield prefix + "down_proj.weight", (256, inner)


def deepseek_tensors():
    yield "model.embed_tokens.weight", (512, 256)
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        yield prefix + "self_attn.q_proj.weight", (384, 256)
        yield prefix + "self_attn.kv_a_proj_with_mqa.weight", (576, 256)
        yield prefix + "self_attn.kv_a_layernorm.weight", (512,)
        yield prefix + "self_attn.kv_b_proj.weight", (512, 512)
        yield prefix + "self_attn.o_proj.weight", (256, 256)
        yield prefix + "input_layernorm.weight", (256,)
        yield prefix + "post_attention_layernorm.weight", (256,)
        if layer == 0:
            yield from mlp(prefix + "mlp.", 512)
            continue
        yield prefix + "mlp.gate.weight", (4, 256)
        yield from mlp(prefix + "mlp.shared_experts.", 256)
        for expert in range(4):
            yield from mlp(prefix + f"mlp.experts.{expert}.", 256)
    yield "model.norm.weight", (256,)
    yield "lm_head.weight", (512, 256)


def deepseek(path):
    dice = np.random.default_rng(16)
    os.makedirs(path)
    stfile.save(os.path.join(path, "model.safetensors"), {
        name: stfile.from_f32("BF16", dice.standard_normal(math.prod(shape), dtype=np.float32)
                              .reshape(shape) * np.float32(0.02))
        for name, shape in deepseek_tensors()})
    with open(os.path.join(path, CONFIG), "w", encoding="utf-8") as f:
        json.dump(DEEPSEEK, f, indent=1)


def gptoss_tensors(dice, hidden, inner):
    """MXFP4 experts with biases whose rows are interleaved; attention and router in bf16, with biases."""
    def plain(*shape):
        return stfile.from_f32("BF16", dice.standard_normal(shape, dtype=np.float32)
                               * np.float32(0.02))

    def packed(name, n, k):
        yield name + "_blocks", stfile.tensor(
            "U8", dice.integers(0, 256, (EXPERTS, n, k // 32, 16), np.uint8))
        yield name + "_scales", stfile.tensor(
            "U8", dice.integers(100, 125, (EXPERTS, n, k // 32), np.uint8))
        yield name + "_bias", plain(EXPERTS, n)

    yield "model.embed_tokens.weight", plain(512, hidden)
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        for name, n, k in (("q", 256, hidden), ("k", 128, hidden), ("v", 128, hidden),
                           ("o", hidden, 256)):
            yield f"{prefix}self_attn.{name}_proj.weight", plain(n, k)
            yield f"{prefix}self_attn.{name}_proj.bias", plain(n)
        yield prefix + "self_attn.sinks", plain(4)
        yield prefix + "input_layernorm.weight", plain(hidden)
        yield prefix + "post_attention_layernorm.weight", plain(hidden)
        yield prefix + "mlp.router.weight", plain(EXPERTS, hidden)
        yield prefix + "mlp.router.bias", plain(EXPERTS)
        yield from packed(prefix + "mlp.experts.gate_up_proj", 2 * inner, hidden)
        yield from packed(prefix + "mlp.experts.down_proj", hidden, inner)
    yield "model.norm.weight", plain(hidden)
    yield "lm_head.weight", plain(512, hidden)


def gptoss(path, hidden, inner):
    hidden, inner = int(hidden), int(inner)
    os.makedirs(path)
    stfile.save(os.path.join(path, "model.safetensors"),
                dict(gptoss_tensors(np.random.default_rng(20), hidden, inner)))
    with open(os.path.join(path, CONFIG), "w", encoding="utf-8") as f:
        json.dump({**GPT_OSS, "hidden_size": hidden, "intermediate_size": inner}, f, indent=1)


def change(path, name, how):
    """how(tensor) -> a tensor, or None for none, in the file that has it."""
    for file in sorted(os.listdir(path)):
        if not file.endswith(".safetensors"):
            continue
        whole = os.path.join(path, file)
        tensors, meta = stfile.load(whole)
        if name not in tensors:
            continue
        changed = how(tensors.pop(name))
        stfile.save(whole, {**tensors, **({name: changed} if changed else {})}, meta)
        index = os.path.join(path, "model.safetensors.index.json")
        if not changed and os.path.exists(index):
            with open(index, encoding="utf-8") as f:
                listed = json.load(f)
            del listed["weight_map"][name]
            with open(index, "w", encoding="utf-8") as f:
                json.dump(listed, f)
        return
    sys.exit(f"{path} has no {name}")


def configure(path, **words):
    file = os.path.join(path, CONFIG)
    with open(file, encoding="utf-8") as f:
        config = json.load(f)
    with open(file, "w", encoding="utf-8") as f:
        json.dump({**config, **words}, f, indent=1)


def tied(path):
    change(path, "lm_head.weight", lambda tensor: None)
    configure(path, tie_word_embeddings=True)


def each_file(path, described=False):
    """The tensors of each file in turn, which is written as they are changed, with the index. What
    the file says of itself stays if it is `described`."""
    listing = os.path.join(path, "model.safetensors.index.json")
    with open(listing, encoding="utf-8") as f:
        index = json.load(f)
    for file in sorted(set(index["weight_map"].values())):
        whole = os.path.join(path, file)
        tensors, meta = stfile.load(whole)
        before = set(tensors)
        yield tensors
        for name in before - set(tensors):
            del index["weight_map"][name]
        index["weight_map"].update((name, file) for name in tensors if name not in before)
        stfile.save(whole, tensors, *([meta] if described else []))
    with open(listing, "w", encoding="utf-8") as f:
        json.dump(index, f)


def biased(path):
    dice = np.random.default_rng(17)
    for tensors in each_file(path, described=True):
        for name in [name for name in tensors if ".self_attn." in name]:
            values = dice.standard_normal(tensors[name].shape[0], dtype=np.float32)
            bias = name.replace(".weight", ".bias")
            tensors[bias] = stfile.from_f32("BF16", values)
    configure(path, attention_bias=True)


def asymmetric(path):
    dice = np.random.default_rng(18)
    for file in sorted(os.listdir(path)):
        if not file.endswith(".safetensors"):
            continue
        whole = os.path.join(path, file)
        tensors = stfile.load(whole)[0]
        for name in [name for name in tensors if name.endswith(".qzeros")]:
            shape = tensors[name].shape
            tensors[name] = stfile.tensor("I32", dice.integers(-2**31, 2**31, shape, np.int32))
        stfile.save(whole, tensors)  # whose descriptors would say that they are 8


def quantization_of(path):
    with open(os.path.join(path, CONFIG), encoding="utf-8") as f:
        return json.load(f)["quantization_config"]


def activations(path):
    quantization = quantization_of(path)
    quantization["config_groups"]["group_0"]["input_activations"] = {
        "num_bits": 8, "type": "float", "strategy": "group", "group_size": 32,
        "symmetric": True, "dynamic": True}
    configure(path, quantization_config=quantization)


# By format: an activation scale's suffix, its values and the widest, and what config.json says.
CALIBRATED = {
    "nvfp4-pack-quantized": ("input_global_scale", (200, 2000), 150, {
        "num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
        "symmetric": True, "dynamic": "local"}),
    "float-quantized": ("input_scale", (0.01, 0.1), 0.125, {
        "num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True,
        "dynamic": False}),
}


def calibrated(path):
    """Of each half of the experts one has the widest scale: stock vLLM takes that of a rank's
    experts, and the file has that of all."""
    dice = np.random.default_rng(21)
    quantization = quantization_of(path)
    suffix, values, widest, said = CALIBRATED[quantization["format"]]
    same = {}
    for tensors in each_file(path):
        for name in sorted(name for name in tensors if name.endswith(".weight_scale")):
            # vLLM's loader wants gate and up of FP8 to have the same.
            pair = name.replace(".w3.", ".w1.") if suffix == "input_scale" else name
            at_the_end = re.search(rf"[.]experts[.](0|{EXPERTS - 1})[.](w[12]|gate|down)", pair)
            value = same.setdefault(pair, widest if at_the_end else dice.uniform(*values))
            scale = name.replace("weight_scale", suffix)
            tensors[scale] = stfile.tensor("F32", np.array([value], np.float32))
    quantization["config_groups"]["group_0"]["input_activations"] = said
    configure(path, quantization_config=quantization)


# NVIDIA's names of what llm-compressor has reciprocals of, but for the codes.
NVIDIA = {"weight_packed": "weight", "weight_global_scale": "weight_scale_2",
          "input_global_scale": "input_scale"}


def nvidia(path):
    for tensors in each_file(path):
        for name in list(tensors):
            module, _, suffix = name.rpartition(".")
            if suffix not in NVIDIA:
                continue
            tensor = tensors.pop(name)
            if tensor.dtype == "F32":
                tensor = stfile.tensor("F32", np.float32(1) / tensor.bits.reshape(()))
            tensors[f"{module}.{NVIDIA[suffix]}"] = tensor
    configure(path, quantization_config={
        "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]})


def without(path, name):
    change(path, name, lambda tensor: None)


def flipped(path, name):
    change(path, name, lambda t: stfile.Tensor(t.dtype, t.shape,
                                               bytes([t.data[0] ^ 1]) + t.data[1:]))


def shorter(path, name):
    change(path, name, lambda t: stfile.Tensor(
        t.dtype, (t.shape[0] - 1,) + t.shape[1:], t.data[:len(t.data) // t.shape[0]
                                                         * (t.shape[0] - 1)]))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
