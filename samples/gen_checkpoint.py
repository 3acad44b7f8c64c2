#!/usr/bin/env python3
"""Writes a synthetic Hugging Face checkpoint in bf16: Llama-shaped, Qwen3-MoE or Mixtral.

The same options and seed give the same bytes on every run, whatever the numpy
version: random bits are PCG64's raw output, and no sampling function of numpy is
used. Values are normal with a log-normal spread from row to row and a few
outliers, which is what weight quantizers meet. Tensors are cut into shards by size
alone, so sets that belong together (q/k/v, gate/up, experts) do straddle shards.

It holds at most one block of rows in memory. With --sparse only headers are
written and the data is a hole of zeros: terabytes in no space.

    python3 gen_checkpoint.py DIR --preset tiny-mixtral
"""
import argparse
import json
import math
import os
import statistics
import struct
import sys

import numpy as np

PRESETS = {
    # 1,478,578,176 bytes of weights, 3 shards, 93 tensors
    "bench": {},
    # about 8 MB in 4 shards; experts straddle them; every shape is legal everywhere
    "tiny-mixtral": dict(layers=2, hidden=256, inter=512, heads=4, kv_heads=2, head_dim=64,
                         vocab=1024, moe_experts=4, moe_style="mixtral", shard_mb=2.5),
    "tiny-llama": dict(layers=2, hidden=256, inter=768, heads=4, kv_heads=2, head_dim=64,
                       vocab=512, shard_mb=1.5),
    # fused 3-D expert stacks
    "tiny-qwen3-moe": dict(layers=2, hidden=256, inter=256, heads=4, kv_heads=2, head_dim=64,
                           vocab=512, moe_experts=4, moe_style="fused", shard_mb=2.0),
}

STD, SPREAD, OUTLIERS, OUTLIER_GAIN = 0.02, 0.25, 1e-4, 8.0
BLOCK = 1 << 22  # elements made at a time


def normal_table():
    """The normal distribution cut into 65536 equally likely values, as float32."""
    inverse = statistics.NormalDist().inv_cdf
    half = np.array([inverse((i + 0.5) / 65536) for i in range(32768)], dtype=np.float32)
    return np.concatenate([half, -half[::-1]])


def to_bf16(values):
    """float32 -> bf16 bits, to nearest, ties to even; values are finite. Overwrites them."""
    bits = values.view(np.uint32)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits >> 16).astype(np.uint16)


class Source:
    """A stream of random 16-bit numbers, and the weights made from it."""

    def __init__(self, seed):
        self.bits = np.random.PCG64(seed)
        self.table = normal_table()

    def words(self, count):
        return self.bits.random_raw((count + 3) // 4).view(np.uint16)[:count]

    def normal(self, count):
        return self.table[self.words(count)]

    def norm_vector(self, count):
        return to_bf16(np.float32(1) + np.float32(0.05) * self.normal(count))

    def matrix_rows(self, rows, cols):
        """Yields the bf16 bits of `rows` rows, block by block."""
        step = max(1, BLOCK // cols)
        for first in range(0, rows, step):
            n = min(step, rows - first)
            scale = [math.exp(SPREAD * float(z)) * STD for z in self.normal(n)]
            values = self.normal(n * cols).reshape(n, cols)
            values *= np.array(scale, dtype=np.float32)[:, None]
            hits = int(n * cols * OUTLIERS)
            if hits:
                at = self.bits.random_raw(hits) % np.uint64(n * cols)
                values.reshape(-1)[at] *= np.float32(OUTLIER_GAIN)
            yield to_bf16(values)


def layer_mlp(opt, prefix):
    h, i, experts = opt.hidden, opt.inter, opt.moe_experts
    if not experts:
        yield prefix + "mlp.down_proj.weight", (h, i)
        yield prefix + "mlp.gate_proj.weight", (i, h)
        yield prefix + "mlp.up_proj.weight", (i, h)
        return
    if opt.moe_style == "mixtral":
        moe = prefix + "block_sparse_moe."
        yield moe + "gate.weight", (experts, h)
        for e in range(experts):
            yield moe + f"experts.{e}.w1.weight", (i, h)
            yield moe + f"experts.{e}.w2.weight", (h, i)
            yield moe + f"experts.{e}.w3.weight", (i, h)
        return
    moe = prefix + "mlp."
    yield moe + "gate.weight", (experts, h)
    if opt.moe_style == "fused":
        yield moe + "experts.gate_up_proj", (experts, 2 * i, h)
        yield moe + "experts.down_proj", (experts, h, i)
        return
    for e in range(experts):
        yield moe + f"experts.{e}.down_proj.weight", (h, i)
        yield moe + f"experts.{e}.gate_proj.weight", (i, h)
        yield moe + f"experts.{e}.up_proj.weight", (i, h)


def tensors(opt):
    """(name, shape) of every tensor, in file order."""
    h, q, kv = opt.hidden, opt.heads * opt.head_dim, opt.kv_heads * opt.head_dim
    yield "model.embed_tokens.weight", (opt.vocab, h)
    for layer in range(opt.layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (h,)
        yield from layer_mlp(opt, prefix)
        yield prefix + "post_attention_layernorm.weight", (h,)
        yield prefix + "self_attn.k_proj.weight", (kv, h)
        yield prefix + "self_attn.o_proj.weight", (h, q)
        yield prefix + "self_attn.q_proj.weight", (q, h)
        yield prefix + "self_attn.v_proj.weight", (kv, h)
        if opt.moe_experts and opt.moe_style == "qwen3":
            yield prefix + "self_attn.k_norm.weight", (opt.head_dim,)
            yield prefix + "self_attn.q_norm.weight", (opt.head_dim,)
    yield "model.norm.weight", (h,)
    yield "lm_head.weight", (opt.vocab, h)


def size_of(shape):
    return 2 * math.prod(shape)


def cut(items, limit):
    """Groups of consecutive tensors of at most `limit` bytes (or one tensor)."""
    shards, size = [[]], 0
    for name, shape in items:
        if shards[-1] and size + size_of(shape) > limit:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += size_of(shape)
    return shards


def write_shard(path, items, source, sparse):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in items:
        begin, end = end, end + size_of(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        if sparse:
            out.truncate(8 + len(text) + end)
            return
        for _, shape in items:
            if len(shape) == 1:
                out.write(source.norm_vector(shape[0]).tobytes())
                continue
            for block in source.matrix_rows(math.prod(shape[:-1]), shape[-1]):
                out.write(block)


def config(opt):
    experts = opt.moe_experts
    mixtral = experts and opt.moe_style == "mixtral"
    kind = ("MixtralForCausalLM", "mixtral") if mixtral else \
        ("Qwen3MoeForCausalLM", "qwen3_moe") if experts else ("LlamaForCausalLM", "llama")
    out = {
        "architectures": [kind[0]], "model_type": kind[1], "hidden_size": opt.hidden,
        "intermediate_size": opt.inter, "num_hidden_layers": opt.layers,
        "num_attention_heads": opt.heads, "num_key_value_heads": opt.kv_heads,
        "head_dim": opt.head_dim, "vocab_size": opt.vocab, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "max_position_embeddings": 8192, "hidden_act": "silu",
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if mixtral:
        out.update(num_local_experts=experts, num_experts_per_tok=2)
    elif experts:
        out.update(num_experts=experts, num_experts_per_tok=2, moe_intermediate_size=opt.inter)
    return out


def tokenizer(opt):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": {f"<t{i}>": i for i in range(opt.vocab)},
                      "unk_token": "<t0>"}}


def options(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out", help="directory to write")
    p.add_argument("--preset", choices=sorted(PRESETS), help="a named set of the options below")
    p.add_argument("--layers", type=int, default=10)
    p.add_argument("--hidden", type=int, default=2048)
    p.add_argument("--inter", type=int, default=8192, help="rows of gate and up")
    p.add_argument("--heads", type=int, default=32)
    p.add_argument("--kv-heads", type=int, default=8)
    p.add_argument("--head-dim", type=int, default=64)
    p.add_argument("--vocab", type=int, default=32000)
    p.add_argument("--moe-experts", type=int, default=0, help="0: a dense model")
    p.add_argument("--moe-style", choices=["qwen3", "mixtral", "fused"], default="qwen3",
                   help="names of expert tensors; fused: one 3-D stack")
    p.add_argument("--moe-fused", action="store_const", const="fused", dest="moe_style")
    p.add_argument("--shard-mb", type=float, default=500)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--sparse", action="store_true", help="zeros that take no disk space")
    p.add_argument("--quiet", action="store_true")
    first = p.parse_args(argv)
    if first.preset:
        p.set_defaults(**PRESETS[first.preset])
    return p.parse_args(argv)


def write_json(directory, name, value, **how):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as out:
        json.dump(value, out, **how)


def main(argv):
    opt = options(argv)
    os.makedirs(opt.out, exist_ok=True)
    source = None if opt.sparse else Source(opt.seed)
    shards = cut(tensors(opt), opt.shard_mb * 1e6)
    weight_map, total = {}, 0
    for number, items in enumerate(shards, 1):
        name = "model.safetensors" if len(shards) == 1 else \
            f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_shard(os.path.join(opt.out, name), items, source, opt.sparse)
        weight_map.update((tensor, name) for tensor, _ in items)
        total += sum(size_of(shape) for _, shape in items)
    if len(shards) > 1:
        write_json(opt.out, "model.safetensors.index.json",
                   {"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2)
    write_json(opt.out, "config.json", config(opt), indent=2)
    write_json(opt.out, "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2}, indent=2)
    write_json(opt.out, "tokenizer_config.json",
               {"model_max_length": 8192, "tokenizer_class": "PreTrainedTokenizerFast"}, indent=2)
    write_json(opt.out, "tokenizer.json", tokenizer(opt))
    if not opt.quiet:
        print(f"{opt.out}: {len(shards)} shards, {len(weight_map)} tensors, "
              f"{total} bytes of weights")


if __name__ == "__main__":
    main(sys.argv[1:])
