#!/usr/bin/env python3
"""moments.py PROGRAM WORK: samples/moments.py and samples/gradients.py on two small models of transformers, dense and with
experts, against second moments that numpy makes of the same inputs; and what convert does with it."""
import argparse
import importlib.util
import os
import subprocess
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

REPO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
SIZES = {"vocab_size": 96, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "initializer_range": .3}
MODELS = {"llama": (LlamaForCausalLM, LlamaConfig(**SIZES)),
          "qwen3_moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig(
              **SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=256))}


def sample(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(REPO, "samples", name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs_of(model, windows):
    """{name: all inputs of the linear layers of attention and of dense layers, float64}."""
    seen = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name:
            module.register_forward_hook(lambda _m, x, _y, name=name: seen.setdefault(
                name + ".weight", []).append(x[0].detach().flatten(0, -2).double().numpy()))
    with torch.no_grad():
        for window in windows:
            model(window[None], use_cache=False)
    return {name: np.concatenate(parts) for name, parts in seen.items()}


def wrong(numbers, inputs):
    """What of the file's is not what the inputs say: None, or a sentence."""
    for name, x in inputs.items():
        moments = x.T @ x / len(x)
        h, v = numbers[name].double().numpy(), numbers[name + ".v"].double().numpy()
        if not np.allclose(h, np.diag(moments), rtol=1e-4):
            return f"{name}: the mean squares are others"
        if float(numbers[name + ".amax"]) != np.float32(np.abs(x).max()):
            return f"{name}: the largest magnitude is another"
        near = np.diag(h - (v * v).sum(1)) + v @ v.T
        far, plain = np.linalg.norm(near - moments), np.linalg.norm(np.diag(h) - moments)
        if far > (.01 if x.shape[1] <= v.shape[1] else .2) * plain:
            return f"{name}: {far / plain:.3f} of the moments beside the diagonal are not there"
        stack = "blk." + name.split(".")[2] + ".ffn_gate_exps.amax"
        if name.endswith("mlp.gate.weight") and numbers[stack].max() != np.float32(np.abs(x).max()):
            return f"{stack}: its largest is not that of what the router gets"
    return None


def squares_of(model, windows):
    """{NAME.gradient: the mean square}, by gradients that the outputs themselves keep."""
    outputs, sums = {}, {}
    hooks = [module.register_forward_hook(lambda _m, _x, y, name=name: outputs.__setitem__(name, y))
             for name, module in model.named_modules()
             if isinstance(module, torch.nn.Linear) and name != "lm_head"]
    draw = torch.Generator().manual_seed(1)
    for window in windows:
        logits = model(window[None], use_cache=False).logits[0]
        for output in outputs.values():
            output.retain_grad()
        drawn = torch.multinomial(torch.softmax(logits.detach(), -1), 1, generator=draw)[:, 0]
        torch.nn.functional.cross_entropy(logits, drawn, reduction="sum").backward()
        for name, output in outputs.items():
            if output.grad is not None:
                sums.setdefault(name + ".weight.gradient", []).append(output.grad.double().flatten().numpy())
    for hook in hooks:
        hook.remove()
    return {name: (np.concatenate(parts) ** 2).mean() for name, parts in sums.items()}


def check(name, program, work):
    torch.manual_seed(1)
    kind, config = MODELS[name]
    model = kind(config).eval()
    windows = torch.randint(0, 96, (4, 128), generator=torch.Generator().manual_seed(2))
    inputs = inputs_of(model, windows)
    collected = sample("moments")
    options = argparse.Namespace(rank=128, least=64)
    numbers = collected.results(collected.collect(model, windows, options), options)
    counted, added = squares_of(model, windows[:2]), sample("gradients").gradients(model, windows[:2])
    at = os.path.join(work, name)
    model.to(torch.bfloat16).save_pretrained(at)
    save_file(numbers | added, at + ".moments")
    said = wrong(numbers, inputs)
    for weight, square in counted.items():
        if not np.isclose(float(added[weight]), square, rtol=1e-3):
            said = said or f"{weight}: {float(added[weight])}, and its outputs say {square}"
    for to in ("w4a16-ct", "nvfp4-ct"):
        for words in (["convert", at, "-o", at + "." + to, "--to", to, "--search", "mse", "--force"],
                      ["verify", at + "." + to, "--against", at]):
            done = subprocess.run([program, *words, "--importance", at + ".moments", "--quiet"],
                                  capture_output=True, text=True, check=False)
            if done.returncode or "without importance" in done.stderr:
                said = said or f"{words[0]} {to}: {done.returncode} {done.stderr}"
    if name == "llama":
        words = ["--bits", "6", "--formats", "w4a16-ct,w8a16-ct", "--importance", at + ".moments", "-o"]
        done = subprocess.run([program, "recipe", at, *words, at + ".json"], capture_output=True, text=True, check=False)
        if done.returncode:
            said = said or f"recipe: {done.returncode} {done.stderr}"
    print(f"not ok {name}: {said}" if said else f"ok {name}")


if __name__ == "__main__":
    for which in MODELS:
        check(which, *sys.argv[1:])
