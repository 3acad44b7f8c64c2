"""Checkpoints of full size as they are published, of which headers are real and values are holes:
hundreds of gigabytes in a few megabytes. Small tensors whose numbers decide what a weight is (global
scales, zero points, orders of columns) are written.

usage: giants.py OUT NAME   (makes OUT/NAME; without NAME it lists them)"""
import json
import os
import struct
import sys

import numpy as np

SIZES = {"BF16": 2, "F16": 2, "F32": 4, "U8": 1, "I32": 4, "F8_E4M3": 1}
SHARD = 5_000_000_000
BLOCK = 128


def plain(name, n, k):
    yield name + ".weight", "BF16", (n, k), None


def fp8_blocks(name, n, k):
    yield name + ".weight", "F8_E4M3", (n, k), None
    yield name + ".weight_scale_inv", "F32", (-(-n // BLOCK), -(-k // BLOCK)), None


def nvfp4(name, n, k):
    one = np.ones(1, np.float32).tobytes()
    yield name + ".weight", "U8", (n, k // 2), None
    yield name + ".weight_scale", "F8_E4M3", (n, k // 16), None
    yield name + ".weight_scale_2", "F32", (), one
    yield name + ".input_scale", "F32", (), one


def gptq(name, n, k):
    groups = k // BLOCK
    yield name + ".qweight", "I32", (k // 8, n), None
    yield name + ".qzeros", "I32", (groups, n // 8), b"\x77" * (groups * n // 2)
    yield name + ".scales", "F16", (groups, n), None
    yield name + ".g_idx", "I32", (k,), (np.arange(k, dtype=np.int32) // BLOCK).tobytes()


def vector(name, *shape):
    yield name, "BF16", shape, None


def ends(hidden, vocab):
    yield from plain("model.embed_tokens", vocab, hidden)
    yield from vector("model.norm.weight", hidden)
    yield from plain("lm_head", vocab, hidden)


def mlp(name, hidden, inter, store):
    yield from store(name + ".gate_proj", inter, hidden)
    yield from store(name + ".up_proj", inter, hidden)
    yield from store(name + ".down_proj", hidden, inter)


def norms(at, hidden):
    yield from vector(at + "input_layernorm.weight", hidden)
    yield from vector(at + "post_attention_layernorm.weight", hidden)


def attention(at, c, store):
    q, kv, hidden = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"], c["hidden_size"]
    yield from store(at + "self_attn.q_proj", q, hidden)
    yield from store(at + "self_attn.k_proj", kv, hidden)
    yield from store(at + "self_attn.v_proj", kv, hidden)
    yield from store(at + "self_attn.o_proj", hidden, q)


def llama(c, store=plain):
    yield from ends(c["hidden_size"], c["vocab_size"])
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield from norms(at, c["hidden_size"])
        yield from attention(at, c, store)
        yield from mlp(at + "mlp", c["hidden_size"], c["intermediate_size"], store)


def qwen3_moe(c):
    yield from ends(c["hidden_size"], c["vocab_size"])
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield from norms(at, c["hidden_size"])
        yield from attention(at, c, plain)
        yield from vector(at + "self_attn.q_norm.weight", c["head_dim"])
        yield from vector(at + "self_attn.k_norm.weight", c["head_dim"])
        yield from plain(at + "mlp.gate", c["num_experts"], c["hidden_size"])
        for e in range(c["num_experts"]):
            yield from mlp(f"{at}mlp.experts.{e}", c["hidden_size"], c["moe_intermediate_size"], plain)


def gpt_oss(c):
    hidden, inter, experts = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    yield from ends(hidden, c["vocab_size"])
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield from norms(at, hidden)
        yield from attention(at, c, plain)
        for part, heads in (("q", "num_attention_heads"), ("k", "num_key_value_heads"), ("v", "num_key_value_heads")):
            yield from vector(f"{at}self_attn.{part}_proj.bias", c[heads] * c["head_dim"])
        yield from vector(at + "self_attn.o_proj.bias", hidden)
        yield from vector(at + "self_attn.sinks", c["num_attention_heads"])
        yield from plain(at + "mlp.router", experts, hidden)
        yield from vector(at + "mlp.router.bias", experts)
        for name, n, k in (("gate_up_proj", 2 * inter, hidden), ("down_proj", hidden, inter)):
            yield f"{at}mlp.experts.{name}_blocks", "U8", (experts, n, k // 32, 16), None
            yield f"{at}mlp.experts.{name}_scales", "U8", (experts, n, k // 32), None
            yield from vector(f"{at}mlp.experts.{name}_bias", experts, n)


def mla(at, c):
    heads, hidden = c["num_attention_heads"], c["hidden_size"]
    rope, nope, value = c["qk_rope_head_dim"], c["qk_nope_head_dim"], c["v_head_dim"]
    yield from fp8_blocks(at + "q_a_proj", c["q_lora_rank"], hidden)
    yield from vector(at + "q_a_layernorm.weight", c["q_lora_rank"])
    yield from fp8_blocks(at + "q_b_proj", heads * (rope + nope), c["q_lora_rank"])
    yield from fp8_blocks(at + "kv_a_proj_with_mqa", c["kv_lora_rank"] + rope, hidden)
    yield from vector(at + "kv_a_layernorm.weight", c["kv_lora_rank"])
    yield from fp8_blocks(at + "kv_b_proj", heads * (nope + value), c["kv_lora_rank"])
    yield from fp8_blocks(at + "o_proj", hidden, heads * value)


def deepseek_v3(c):
    """With the layer of its multi-token prediction, as it is published."""
    hidden, inter = c["hidden_size"], c["moe_intermediate_size"]
    yield from ends(hidden, c["vocab_size"])
    for layer in range(c["num_hidden_layers"] + 1):
        at = f"model.layers.{layer}."
        yield from norms(at, hidden)
        yield from mla(at + "self_attn.", c)
        if layer < c["first_k_dense_replace"]:
            yield from mlp(at + "mlp", hidden, c["intermediate_size"], fp8_blocks)
            continue
        yield from plain(at + "mlp.gate", c["n_routed_experts"], hidden)
        yield at + "mlp.gate.e_score_correction_bias", "F32", (c["n_routed_experts"],), None
        yield from mlp(at + "mlp.shared_experts", hidden, inter, fp8_blocks)
        for e in range(c["n_routed_experts"]):
            yield from mlp(f"{at}mlp.experts.{e}", hidden, inter, fp8_blocks)
    yield from plain(at + "eh_proj", hidden, 2 * hidden)
    for name in ("enorm", "hnorm", "shared_head.norm"):
        yield from vector(f"{at}{name}.weight", hidden)
    yield from plain(at + "embed_tokens", c["vocab_size"], hidden)
    yield from plain(at + "shared_head.head", c["vocab_size"], hidden)


def sizes(kind, model, hidden, inter, layers, heads, kv, head, vocab, **more):
    return {"architectures": [kind], "model_type": model, "hidden_size": hidden, "intermediate_size": inter,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
            "head_dim": head, "vocab_size": vocab, "tie_word_embeddings": False, "torch_dtype": "bfloat16", **more}


LLAMA_70B = sizes("LlamaForCausalLM", "llama", 8192, 28672, 80, 64, 8, 128, 128256)
LLAMA_8B = sizes("LlamaForCausalLM", "llama", 4096, 14336, 32, 32, 8, 128, 128256)
MODELS = {  # name: (its tensors, its config.json)
    "Qwen3-30B-A3B": (qwen3_moe, sizes(
        "Qwen3MoeForCausalLM", "qwen3_moe", 2048, 6144, 48, 32, 4, 128, 151936, num_experts=128,
        num_experts_per_tok=8, moe_intermediate_size=768)),
    "Llama-3-70B": (llama, LLAMA_70B),
    "gpt-oss-120b": (gpt_oss, sizes(
        "GptOssForCausalLM", "gpt_oss", 2880, 2880, 36, 64, 8, 64, 201088, num_local_experts=128,
        num_experts_per_tok=4, quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]})),
    "DeepSeek-V3": (deepseek_v3, sizes(
        "DeepseekV3ForCausalLM", "deepseek_v3", 7168, 18432, 61, 128, 128, 56, 129280, n_routed_experts=256,
        num_experts_per_tok=8, n_shared_experts=1, moe_intermediate_size=2048, first_k_dense_replace=3,
        q_lora_rank=1536, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128,
        num_nextn_predict_layers=1, quantization_config={
            "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]})),
    "Llama-3-70B-NVFP4": (lambda c: llama(c, nvfp4), {**LLAMA_70B, "quantization_config": {
        "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}}),
    "Llama-3-8B-GPTQ": (lambda c: llama(c, gptq), {**LLAMA_8B, "quantization_config": {
        "quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True,
        "lm_head": False, "checkpoint_format": "gptq", "pack_dtype": "int32"}}),
}


def size_of(item):
    return int(np.prod(item[2], dtype=np.int64)) * SIZES[item[1]]


def shards(items):
    part, used = [], 0
    for item in items:
        if part and used + size_of(item) > SHARD:
            yield part
            part, used = [], 0
        part.append(item)
        used += size_of(item)
    yield part


def write_shard(path, items):
    header, end, held = {"__metadata__": {"format": "pt"}}, 0, []
    for item in items:
        name, dtype, shape, data = item
        begin, end = end, end + size_of(item)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
        if data is not None:
            held.append((begin, data))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + end)
        for begin, data in held:
            out.seek(8 + len(text) + begin)
            out.write(data)
    return end


def make(out, name):
    """Writes OUT/NAME unless it is there; returns its path."""
    path = os.path.join(out, name)
    if os.path.exists(path):
        return path
    return write(path, *MODELS[name])


def write(path, tensors, config):
    """Writes a model of these tensors and this config.json; returns its path."""
    os.makedirs(path)
    parts = list(shards(tensors(config)))
    total, where = 0, {}
    for number, items in enumerate(parts, 1):
        shard = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        total += write_shard(os.path.join(path, shard), items)
        where.update((item[0], shard) for item in items)
    with open(os.path.join(path, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, f)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    return path


if __name__ == "__main__":
    print("\n".join(MODELS) if len(sys.argv) < 3 else make(sys.argv[1], sys.argv[2]))
