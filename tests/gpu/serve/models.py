#!/usr/bin/env python3
"""Checkpoints in bfloat16: a real small model, and random weights in the sizes of large ones.

    models.py smollm2 GGUF OUT [EXPERTS]   SmolLM2-135M, or a mixture of it, with its tokenizer
    models.py make KIND OUT                one layer of random weights
    models.py grow ONE OUT [LAYERS]        the same layer under as many numbers, quantized or not

KIND is a key of KINDS: `mixture` has the sizes of Mixtral 8x7B, `dense` those of Llama 3.1 8B with
a smaller vocabulary. Without LAYERS the model has as many as in KINDS. SmolLM2 gets zeros up to a
hidden size of 768, which W4A8 takes, and 12 heads; its values stay what they are. Every expert of
the mixture is the MLP with its inner units in another order, the router is random. Needs torch and
safetensors, for SmolLM2 transformers and gguf; a GPU makes random weights where there is one.
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
}
LAYER = "model.layers.0."


SMOLLM2 = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 768,
           "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 64,
           "hidden_act": "silu", "tie_word_embeddings": True, "torch_dtype": "bfloat16"}


def mixture_of(experts):
    return {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
            "num_local_experts": experts, "num_experts_per_tok": 2, "sliding_window": None,
            "tie_word_embeddings": False}


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
        config.update(mixture_of(experts))
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


def widened(name, value, config):
    """With zeros. RMSNorm divides by the root of the mean, which is smaller over more values."""
    heads, kv_heads, hidden = (config[key] for key in (
        "num_attention_heads", "num_key_value_heads", "hidden_size"))
    rows = {"q_proj": heads * 64, "k_proj": kv_heads * 64, "v_proj": kv_heads * 64}
    part = name.split(".")[-2]
    if value.dim() == 1:
        value = value * (len(value) / hidden) ** 0.5
        shape = (hidden,)
    elif part == "down_proj" or part == "o_proj":
        shape = (hidden, heads * 64 if part == "o_proj" else value.shape[1])
    else:
        shape = (rows.get(part, value.shape[0]), hidden)
    out = torch.zeros(shape)
    out[tuple(slice(size) for size in value.shape)] = value
    return out.to(torch.bfloat16)


def experts_of(tensors, config, experts):
    """The tensors of a mixture whose experts are the MLPs of `tensors`."""
    made, dice = {}, torch.Generator().manual_seed(7)
    words = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
    for name, value in tensors.items():
        layer, _, rest = name.partition(".mlp.")
        if not rest:
            made[name] = value
            continue
        word, at = words[rest.split(".")[0]], layer + ".block_sparse_moe."
        for expert in range(experts):
            order = torch.randperm(config["intermediate_size"], generator=torch.Generator().manual_seed(expert))
            made[f"{at}experts.{expert}.{word}.weight"] = (
                value[:, order] if word == "w2" else value[order]).contiguous()
        router = torch.randn((experts, config["hidden_size"]), generator=dice) * 0.05
        made[at + "gate.weight"] = router.to(torch.bfloat16)
    made["lm_head.weight"] = made["model.embed_tokens.weight"].clone()
    return made


def smollm2(path, out, experts="0"):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    at = {"pretrained_model_name_or_path": os.path.dirname(path), "gguf_file": os.path.basename(path)}
    model = AutoModelForCausalLM.from_pretrained(**at, dtype=torch.float32)
    config = {**SMOLLM2, **{key: getattr(model.config, key) for key in (
        "intermediate_size", "num_hidden_layers", "vocab_size", "rms_norm_eps", "bos_token_id",
        "eos_token_id", "max_position_embeddings")}}
    config["rope_theta"] = model.config.rope_parameters["rope_theta"]
    tensors = {name: widened(name, value.detach(), config)
               for name, value in model.state_dict().items() if name != "lm_head.weight"}
    if int(experts):
        tensors = experts_of(tensors, config, int(experts))
        config.update(mixture_of(int(experts)))
    write(out, config, {"model.safetensors": tensors})
    AutoTokenizer.from_pretrained(**at).save_pretrained(out)


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
    COMMANDS = {"smollm2": smollm2, "make": make, "grow": grow}
    if len(sys.argv) < 4 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__.strip())
    COMMANDS[sys.argv[1]](*sys.argv[2:])
