#!/usr/bin/env python3
"""Checkpoints of random weights in the sizes of real models.

    models.py make KIND OUT            one layer of it, in bfloat16
    models.py grow ONE OUT [LAYERS]    the same layer under as many numbers, quantized or not

KIND is a key of KINDS: `mixture` has the sizes of Mixtral 8x7B, `dense` those of Llama 3.1 8B with
a smaller vocabulary, `small` those of SmolLM2-135M widened to 768, which W4A8 takes, `few` the
same as a mixture. Without LAYERS the model has as many as in KINDS. Needs torch and safetensors;
a GPU makes the weights where there is one.
"""
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import torch
from safetensors.torch import load_file, save_file

#         hidden  inner heads  kv  dim  vocab experts layers
KINDS = {
    "mixture": (4096, 14336, 32, 8, 128, 32000, 8, 14),
    "dense": (4096, 14336, 32, 8, 128, 49152, 0, 32),
    "small": (768, 1536, 12, 4, 64, 49152, 0, 30),
    "few": (768, 1536, 12, 4, 64, 49152, 8, 30),
}
LAYER = "model.layers.0."


def config_of(kind):
    hidden, inner, heads, kv_heads, dim, vocab, experts, layers = KINDS[kind]
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "intermediate_size": inner, "num_hidden_layers": 1, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": dim, "vocab_size": vocab,
        "rms_norm_eps": 1e-5, "rope_theta": 1e4, "max_position_embeddings": 8192,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "bos_token_id": 1, "eos_token_id": 2, "layers_of_the_model": layers}
    if experts:
        config.update({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
                       "num_local_experts": experts, "num_experts_per_tok": 2,
                       "sliding_window": None})
    return config


def shapes_of(kind):
    """{name: (rows, columns)} of matrices; of norms (size,)."""
    hidden, inner, heads, kv_heads, dim, vocab, experts, _ = KINDS[kind]
    found = {"model.embed_tokens": (vocab, hidden), "lm_head": (vocab, hidden),
             "model.norm": (hidden,), LAYER + "input_layernorm": (hidden,),
             LAYER + "post_attention_layernorm": (hidden,)}
    for name, rows, columns in (("q", heads * dim, hidden), ("k", kv_heads * dim, hidden),
                                ("v", kv_heads * dim, hidden), ("o", hidden, heads * dim)):
        found[f"{LAYER}self_attn.{name}_proj"] = (rows, columns)
    if not experts:
        found.update({LAYER + "mlp.gate_proj": (inner, hidden),
                      LAYER + "mlp.up_proj": (inner, hidden),
                      LAYER + "mlp.down_proj": (hidden, inner)})
        return found
    found[LAYER + "block_sparse_moe.gate"] = (experts, hidden)
    for expert in range(experts):
        at = f"{LAYER}block_sparse_moe.experts.{expert}."
        found.update({at + "w1": (inner, hidden), at + "w2": (hidden, inner),
                      at + "w3": (inner, hidden)})
    return found


def write(out, config, files):
    """files: {name: {tensor's name: tensor}}."""
    os.makedirs(out, exist_ok=True)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda item: save_file(item[1], os.path.join(out, item[0]),
                                             {"format": "pt"}), files.items()))
    if len(files) > 1:
        names = {name: file for file, tensors in files.items() for name in tensors}
        with open(os.path.join(out, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
            json.dump({"metadata": {}, "weight_map": names}, file)
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)


def make(kind, out):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(3)

    def weight(shape):
        if len(shape) == 1:
            return torch.ones(shape, dtype=torch.bfloat16)
        return (torch.randn(shape, device=device) * 0.02).to(torch.bfloat16).cpu()

    tensors = {name + ".weight": weight(shape) for name, shape in shapes_of(kind).items()}
    write(out, config_of(kind), {"model.safetensors": tensors})


def grow(one, out, layers=None):
    """Each layer has a file of its own, as checkpoints of that size have several."""
    with open(os.path.join(one, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    layers = int(layers or config["layers_of_the_model"])
    tensors = {}
    for name in os.listdir(one):
        if name.endswith(".safetensors"):
            tensors.update(load_file(os.path.join(one, name)))
    files = {f"model-{i + 1:05d}-of-{layers + 1:05d}.safetensors":
             {name.replace(LAYER, f"model.layers.{i}."): value
              for name, value in tensors.items() if name.startswith(LAYER)} for i in range(layers)}
    files[f"model-{layers + 1:05d}-of-{layers + 1:05d}.safetensors"] = {
        name: value for name, value in tensors.items() if not name.startswith(LAYER)}
    config["num_hidden_layers"] = layers
    ignored = config.get("quantization_config", {}).get("ignore")
    if ignored:
        config["quantization_config"]["ignore"] = sorted({
            name.replace(LAYER, f"model.layers.{i}.") for name in ignored for i in range(layers)})
    write(out, config, files)


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in ("make", "grow"):
        sys.exit(__doc__.strip())
    {"make": make, "grow": grow}[sys.argv[1]](*sys.argv[2:])
