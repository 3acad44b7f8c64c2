#!/usr/bin/env python3
"""Measures what each weight is multiplied with, for `tilepack convert --importance`.

    moments.py MODEL TEXT OUT.safetensors [--rank 64] [--window 512] [--device cpu]

Runs a causal language model of transformers once over the whole windows of a text. For each linear
layer but the head, OUT gets under the name of its weight

    NAME       F32 [K]     h, the mean squares of its inputs
    NAME.v     BF16 [K,r]  v, with which the second moments are about diag(h - |v|^2) + v v^T
    NAME.amax  F32 []      the largest magnitude of its inputs

and, for a stack of experts under llama.cpp's name of it, [E,K], [E,K,r] and [E]. No K x K matrix is
made: moments are seen through 2 r random vectors (Nystroem). An expert that saw fewer tokens than
--least has the numbers of its layer.
"""
import argparse
import re

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

STACK = re.compile(r"(blk\.\d+\.ffn_\w+_exps)\.\d+")


class Seen:
    """What came in at one place: sums over tokens."""

    def __init__(self, columns, rank, device):
        signs = torch.randint(0, 2, (columns, 2 * rank), generator=torch.Generator().manual_seed(1))
        self.probe = (2.0 * signs - 1).to(device)
        self.squares = torch.zeros(columns, dtype=torch.float64, device=device)
        self.through = torch.zeros(columns, 2 * rank, device=device)
        self.tokens, self.largest = 0, 0.0

    def add(self, x):
        if len(x):
            self.sum(x.double().square().sum(0), x.T @ (x @ self.probe), len(x), float(x.abs().max()))

    def sum(self, squares, through, tokens, largest):
        self.squares += squares
        self.through += through
        self.tokens, self.largest = self.tokens + tokens, max(self.largest, largest)

    def numbers(self, rank):
        """h [K], v [K,r] and amax. With Y what was seen, the moments are about Y core^-1 Y^T."""
        through = self.through.double() / self.tokens
        core = self.probe.double().T @ through
        values, vectors = torch.linalg.eigh((core + core.T) / 2)
        some = values > values[-1] * 1e-7
        left, sizes, _ = torch.linalg.svd(through @ vectors[:, some] / values[some].sqrt(), False)
        v = torch.zeros(len(through), rank, dtype=torch.float64, device=through.device)
        v[:, :sizes[:rank].numel()] = left[:, :rank] * sizes[:rank]
        return ((self.squares / self.tokens).float().cpu(), v.bfloat16().cpu(),
                torch.tensor(self.largest, dtype=torch.float32))


def collect(model, windows, opt):
    """{name: Seen} of linear layers but the head, and of each expert in a stack."""
    seen = {}

    def add(name, x):
        seen.setdefault(name, Seen(x.shape[-1], opt.rank, x.device)).add(x.flatten(0, -2).float())

    def watch_experts(layer):
        def hook(module, inputs):  # tokens, and the experts that each of them is given to
            for e, matrix in enumerate(module.gate_up_proj.detach()):
                rows = inputs[0][(inputs[1] == e).any(-1)]
                gate, up = torch.nn.functional.linear(rows, matrix).chunk(2, -1)
                add(f"blk.{layer}.ffn_gate_exps.{e}", rows)
                add(f"blk.{layer}.ffn_down_exps.{e}", module.act_fn(gate) * up)
        return hook

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and module is not model.get_output_embeddings():
            module.register_forward_pre_hook(
                lambda _module, inputs, name=name + ".weight": add(name, inputs[0].detach()))
        elif isinstance(getattr(module, "gate_up_proj", None), torch.nn.Parameter):
            module.register_forward_pre_hook(watch_experts(re.search(r"layers\.(\d+)", name)[1]))
    with torch.no_grad():
        for window in windows:
            model.base_model(window[None], use_cache=False)  # all but the head
    return seen


def results(seen, opt):
    tensors, stacks, ends = {}, {}, ("", ".v", ".amax")
    for name, one in seen.items():
        if match := STACK.fullmatch(name):
            stacks.setdefault(match[1], []).append(one)
        elif one.tokens:
            tensors |= zip((name + end for end in ends), one.numbers(opt.rank))
    for name, experts in stacks.items():
        layer = Seen(len(experts[0].squares), opt.rank, experts[0].squares.device)
        for one in experts:
            layer.sum(one.squares, one.through, one.tokens, one.largest)
        parts = zip(*((one if one.tokens >= opt.least else layer).numbers(opt.rank) for one in experts))
        tensors |= {name + end: torch.stack(part) for end, part in zip(ends, parts)}
    return tensors


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    for name in ("model", "text", "out"):
        p.add_argument(name)
    for name, default in (("--rank", 64), ("--least", 256), ("--window", 512), ("--device", "cpu")):
        p.add_argument(name, type=type(default), default=default)
    opt = p.parse_args()
    with open(opt.text, encoding="utf-8") as f:
        tokens = AutoTokenizer.from_pretrained(opt.model)(f.read(), return_tensors="pt").input_ids[0]
    if len(tokens) < opt.window:
        p.error(f"{opt.text} has only {len(tokens)} tokens")
    windows = tokens[:len(tokens) // opt.window * opt.window].reshape(-1, opt.window).to(opt.device)
    model = AutoModelForCausalLM.from_pretrained(opt.model, dtype="auto").to(opt.device)
    save_file(results(collect(model, windows, opt), opt), opt.out)


if __name__ == "__main__":
    main()
