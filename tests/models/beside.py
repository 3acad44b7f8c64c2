#!/usr/bin/env python3
"""What a source carries beside its weights stays: scales of the KV cache and their scheme, scales
of activations, biases, generation_config.json, chat templates."""
import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "lib"))
import stfile  # noqa: E402
import tool  # noqa: E402

AT = "model.layers.0.self_attn."
SCHEME = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True,
          "dynamic": False}
FILES = {"generation_config.json": '{"temperature": 0.6}\n', "chat_template.jinja": "{{ x }}\n",
         "tokenizer_config.json": '{"chat_template": "{{ x }}"}\n'}

tally = tool.Tally()


def make(path):
    dice = np.random.default_rng(6)
    tensors = {AT + f"{p}_proj.weight": stfile.from_f32("BF16", dice.standard_normal(
        (128, 256), dtype=np.float32)) for p in "qkv"}
    tensors[AT + "q_proj.bias"] = stfile.from_f32("BF16", np.ones(128, dtype=np.float32))
    for name, value in (("k_scale", 0.5), ("v_scale", 0.25), ("q_proj.input_scale", 2)):
        tensors[AT + name] = stfile.tensor("F32", np.array([value], dtype=np.float32))
    os.makedirs(path)
    stfile.save(os.path.join(path, "model.safetensors"), tensors)
    for name, text in {**FILES, "config.json": '{"model_type": "llama"}'}.items():
        with open(os.path.join(path, name), "w", encoding="utf-8") as f:
            f.write(text)
    return tensors


def check(path, to, source):
    tensors, _ = tool.load(path)
    for name in source:
        if not name.endswith(".weight"):
            good = name in tensors and np.array_equal(tensors[name].bytes, source[name].bytes)
            tally.check(good, f"{to}: {name} stays")
    for name, text in FILES.items():
        with open(os.path.join(path, name), encoding="utf-8") as f:
            tally.check(f.read() == text, f"{to}: {name} stays")


def main():
    with tool.Workdir() as work:
        source = make(work.at("src"))
        for to in ("w4a8-ct", "fp8-deepseek", "w4a8-cutlass"):
            tool.run("convert", work.at("src"), "-o", work.at(to), "--to", to, "--quiet")
            check(work.at(to), to, source)
        path = work.at("w4a8-ct", "config.json")
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        config["quantization_config"]["kv_cache_scheme"] = SCHEME
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
        for to, extra in (("nvfp4-ct", ["--requantize"]), ("w4a8-cutlass", [])):
            out = work.at(to + "-again")
            tool.run("convert", work.at("w4a8-ct"), "-o", out, "--to", to, "--quiet", *extra)
            with open(os.path.join(out, "config.json"), encoding="utf-8") as f:
                got = json.load(f)["quantization_config"].get("kv_cache_scheme")
            tally.check(got == SCHEME, f"{to}: the scheme of the KV cache stays")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
