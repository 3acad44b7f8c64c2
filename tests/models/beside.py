#!/usr/bin/env python3
"""What a source carries beside its weights: scales of the KV cache and their scheme, biases,
generation_config.json, chat templates stay. What is of the old form alone, as scales of activations
that no kernel of the output takes, is left out and named once."""
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


def left_out(done):
    """What the line on it says: how many, and which."""
    said = [line.split(": ")[1] for line in done.stdout.splitlines() if line.startswith("left out")]
    return said[0] if len(said) == 1 else said


def check(path, to, source):
    tensors, _ = tool.load(path)
    tally.check(not any("input_scale" in name for name in tensors), f"{to}: input_scale is left out")
    for name in source:
        if not name.endswith((".weight", "input_scale")):
            good = name in tensors and np.array_equal(tensors[name].bytes, source[name].bytes)
            tally.check(good, f"{to}: {name} stays")
    for name, text in FILES.items():
        with open(os.path.join(path, name), encoding="utf-8") as f:
            tally.check(f.read() == text, f"{to}: {name} stays")


def static_fp8(dice, at):
    """FP8 of llm-compressor: one scale to a weight, one to its activations."""
    return {at + ".weight": stfile.tensor("F8_E4M3", dice.integers(0, 0x7F, (128, 256), dtype=np.uint8)),
            at + ".weight_scale": stfile.tensor("BF16", np.array([0x3C00], dtype=np.uint16)),
            at + ".input_scale": stfile.tensor("BF16", np.array([0x3C80], dtype=np.uint16))}


def nvfp4(dice, at, words=("weight_packed", "weight_global_scale", "input_global_scale"), power=1):
    """NVFP4 of llm-compressor, or by these names of NVIDIA's, whose scales are reciprocals."""
    codes, scale, inputs = words
    return {f"{at}.{codes}": stfile.tensor("U8", dice.integers(0, 256, (128, 128), dtype=np.uint8)),
            f"{at}.weight_scale": stfile.tensor("F8_E4M3", dice.integers(1, 0x70, (128, 16), dtype=np.uint8)),
            f"{at}.{scale}": stfile.tensor("F32", np.array([512.0 ** power], dtype=np.float32)),
            f"{at}.{inputs}": stfile.tensor("F32", np.array([256.0 ** power], dtype=np.float32))}


def nvidia(dice, at):
    return nvfp4(dice, at, ("weight", "weight_scale_2", "input_scale"), -1)


CT = {"quant_method": "compressed-tensors", "ignore": ["lm_head"], "kv_cache_scheme": SCHEME}
CALIBRATED = {
    "static FP8": (static_fp8, "input_scale", CT | {
        "format": "float-quantized", "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": SCHEME, "input_activations": SCHEME}}}),
    "llm-compressor's NVFP4": (nvfp4, "input_global_scale", CT | {
        "format": "nvfp4-pack-quantized", "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16,
                                               "strategy": "tensor_group", "symmetric": True},
            "input_activations": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": "local",
                                  "strategy": "tensor_group", "symmetric": True}}}}),
    "NVIDIA's NVFP4": (nvidia, "input_scale", {
        "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"],
        "kv_cache_scheme": SCHEME}),
}
# What readers of the format have a parameter for, beside the scales of the KV cache.
TAKES = {"fp8-dynamic-ct": {"weight", "weight_scale"},
         "w4a16-ct": {"weight_packed", "weight_scale", "weight_shape"},
         "nvfp4-marlin": {"weight", "weight_scale", "weight_scale_2"}}


def calibrated(work):
    """Outputs for kernels that scale activations themselves have nothing that vLLM would not load."""
    dice = np.random.default_rng(38)
    for what, (one, word, config) in CALIBRATED.items():
        source = {}
        for part in "qkvo":
            source |= one(dice, AT + f"{part}_proj")
        source |= {AT + f"{x}_scale": stfile.tensor("F32", np.array([0.5], dtype=np.float32)) for x in "kv"}
        path = work.at(what)
        os.makedirs(path)
        stfile.save(os.path.join(path, "model.safetensors"), source)
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
            json.dump({"model_type": "llama", "quantization_config": config}, f)
        for to, takes in TAKES.items():
            if to == "nvfp4-marlin" and one is static_fp8:
                continue
            out = work.at(f"{what} {to}")
            exact = (to == "fp8-dynamic-ct") == (one is static_fp8) and to != "w4a16-ct"
            done = tool.run("convert", path, "-o", out, "--to", to, *([] if exact else ["--requantize"]))
            tensors, _ = tool.load(out)
            words = {name.rsplit(".", 1)[1] for name in tensors}
            tally.check(words == takes | {"k_scale", "v_scale"}, f"{what} to {to}: {sorted(words)}")
            tally.check(left_out(done) == f"4 tensors (*.{word})", f"{what} to {to}: {left_out(done)}")


def main():
    with tool.Workdir() as work:
        source = make(work.at("src"))
        for to in ("w4a8-ct", "fp8-deepseek", "w4a8-cutlass"):
            done = tool.run("convert", work.at("src"), "-o", work.at(to), "--to", to)
            tally.check(left_out(done) == "1 tensor (*.input_scale)", f"{to}: {left_out(done)}")
            check(work.at(to), to, source)
        calibrated(work)
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
