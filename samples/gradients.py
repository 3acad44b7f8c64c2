#!/usr/bin/env python3
"""Adds how much the outputs of each weight count to a file of importance, for `tilepack recipe`.

    gradients.py MODEL TEXT FILE.safetensors [--windows 4] [--window 512] [--device cpu]

FILE is what moments.py wrote. For each linear layer of a causal language model of transformers, but
the head, it gets

    NAME.gradient  F32 []  the mean square of the gradients of the layer's outputs

of the loss of tokens that the model itself predicts. Few windows of the text suffice. Experts that are
modules of their own have their own; stacks of experts have none.
"""
import argparse

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def gradients(model, windows):
    """{NAME.gradient: its number}. The tokens of the loss are drawn from what the model predicts."""
    sums, counts = {}, {}
    draw = torch.Generator(windows.device).manual_seed(1)

    def watch(name):
        def hook(_module, _inputs, outputs):
            square = outputs[0].detach().double().square()
            sums[name] = sums.get(name, 0) + square.sum()
            counts[name] = counts.get(name, 0) + square.numel()
        return hook

    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    hooks = [module.register_full_backward_hook(watch(name)) for name, module in model.named_modules()
             if isinstance(module, torch.nn.Linear) and module is not head]
    model.requires_grad_(False)
    for window in windows:
        inputs = embedding(window[None]).requires_grad_()
        hidden = model.base_model(inputs_embeds=inputs, use_cache=False).last_hidden_state[0]
        likely = torch.log_softmax(head(hidden).float(), -1)
        drawn = torch.multinomial(likely.detach().exp(), 1, generator=draw)
        (-likely.gather(1, drawn).sum()).backward()
    for hook in hooks:
        hook.remove()
    return {name + ".weight.gradient": (sums[name] / counts[name]).float().cpu() for name in sums}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    for name in ("model", "text", "file"):
        p.add_argument(name)
    for name, default in (("--windows", 4), ("--window", 512), ("--device", "cpu")):
        p.add_argument(name, type=type(default), default=default)
    opt = p.parse_args()
    with open(opt.text, encoding="utf-8") as f:
        tokens = AutoTokenizer.from_pretrained(opt.model)(f.read(), return_tensors="pt").input_ids[0]
    if len(tokens) < opt.window:
        p.error(f"{opt.text} has only {len(tokens)} tokens")
    windows = tokens[:len(tokens) // opt.window * opt.window].reshape(-1, opt.window)[:opt.windows]
    model = AutoModelForCausalLM.from_pretrained(opt.model, dtype="auto").to(opt.device)
    save_file(load_file(opt.file) | gradients(model, windows.to(opt.device)), opt.file)


if __name__ == "__main__":
    main()
