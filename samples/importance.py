#!/usr/bin/env python3
"""Collects E[x^2] of what each weight is multiplied with, for `tilepack convert --importance`.

    importance.py MODEL TEXT OUT.safetensors [--window 512] [--device cpu]

Runs a causal language model of transformers over the whole windows of a text; a few thousand
tokens of the kind that the model will see are enough. OUT gets one F32 tensor [K] for each
linear layer, under the weight's own name. The head is left out, and so are experts that the
model holds as one stack and those that saw no token: their weights count alike.
"""
import argparse

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def collect(model, windows):
    """{name of the weight: mean of the squares of its inputs, float32 [K]}."""
    sums, counts = {}, {}

    def watch(name):
        def hook(_module, inputs):
            x = inputs[0].detach().flatten(0, -2).double()
            sums[name] = sums.get(name, 0) + x.square().sum(0)
            counts[name] = counts.get(name, 0) + len(x)
        return hook

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and module is not model.get_output_embeddings():
            module.register_forward_pre_hook(watch(name + ".weight"))
    with torch.no_grad():
        for window in windows:
            model(window[None], use_cache=False)
    return {n: (sums[n] / counts[n]).float().cpu() for n in sums if counts[n]}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("out")
    p.add_argument("--window", type=int, default=512, help="tokens (default: 512)")
    p.add_argument("--device", default="cpu")
    opt = p.parse_args()
    with open(opt.text, encoding="utf-8") as f:
        tokens = AutoTokenizer.from_pretrained(opt.model)(f.read(), return_tensors="pt").input_ids
    count = tokens.shape[1] // opt.window
    if not count:
        p.error(f"{opt.text} has {tokens.shape[1]} tokens, less than one window")
    windows = tokens[0, :count * opt.window].reshape(count, -1).to(opt.device)
    # In float32 whatever the checkpoint holds: the squares are sums over many tokens.
    model = AutoModelForCausalLM.from_pretrained(opt.model, dtype=torch.float32).to(opt.device)
    save_file(collect(model, windows), opt.out)


if __name__ == "__main__":
    main()
