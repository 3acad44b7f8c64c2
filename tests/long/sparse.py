#!/usr/bin/env python3
"""sparse.py OUT [--tensors N] [--shards S] [--bytes TOTAL] [--experts E]

Makes a checkpoint directory whose shards are holes: headers are real, all values
are zero, and next to nothing is stored. For tests of many tensors, and of more
bytes than memory or disk could hold. Layers are those of a mixture of experts.
"""
import argparse
import json
import os
import struct


def layer(number, experts, hidden, inner):
    """(name, dtype, shape) of one layer's tensors."""
    prefix = f"model.layers.{number}."
    yield prefix + "input_layernorm.weight", "BF16", [hidden]
    yield prefix + "mlp.gate.weight", "BF16", [experts, hidden]
    for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
        yield f"{prefix}self_attn.{part}.weight", "BF16", [hidden, hidden]
    for e in range(experts):
        for part, shape in (("gate_proj", [inner, hidden]), ("up_proj", [inner, hidden]),
                            ("down_proj", [hidden, inner])):
            yield f"{prefix}mlp.experts.{e}.{part}.weight", "BF16", shape


def names(count, experts, hidden, inner):
    """The first `count` tensors of as many layers as it takes, ending in whole layers
    as far as possible; the rest are norms."""
    per_layer = 6 + 3 * experts
    made = 0
    for number in range(count // per_layer):
        for item in layer(number, experts, hidden, inner):
            made += 1
            yield item
    for number in range(count - made):
        yield f"model.extra.{number}.norm.weight", "BF16", [hidden]


def size_of(shape):
    total = 2
    for n in shape:
        total *= n
    return total


def write_shard(path, items):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape in items:
        begin, end = end, end + size_of(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + end)
    return end


def make(out, tensors=100_000, shards=163, experts=128, hidden=128, inner=128):
    """Writes the checkpoint; returns the bytes of its tensors."""
    os.makedirs(out)
    items = list(names(tensors, experts, hidden, inner))
    weight_map, total, begin = {}, 0, 0
    for s in range(shards):
        name = f"model-{s + 1:05}-of-{shards:05}.safetensors"
        end = len(items) * (s + 1) // shards
        total += write_shard(os.path.join(out, name), items[begin:end])
        weight_map.update((item[0], name) for item in items[begin:end])
        begin = end
    with open(os.path.join(out, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, f)
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": "qwen3_moe", "hidden_size": hidden}, f)
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out")
    for name, default in (("tensors", 100_000), ("shards", 163), ("experts", 128),
                          ("hidden", 128), ("inner", 128)):
        parser.add_argument("--" + name, type=int, default=default)
    options = vars(parser.parse_args())
    print(f"{make(options.pop('out'), **options):,} bytes of tensors")


if __name__ == "__main__":
    main()
