#!/usr/bin/env python3
"""A flipped bit of packed codes, wherever a format puts the bits of one: `verify --against` names
the element whose value is another when the weight is unpacked."""
import json
import os
import re
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import stfile  # noqa: E402
import tool  # noqa: E402

tally = tool.Tally()
FLIPS = 12
ELEMENT = re.compile(r", element e=(\d+) n=(\d+) k=(\d+)$", re.M)
PLAIN = ("fp8-ct", "gptq", "awq", "mxfp4-ct", "nvfp4-comfy", "w4a16-marlin", "nvfp4-ct")
STACKS = ("mxfp4-flashinfer-sm90", "mxfp4-triton-hopper", "mxfp4-marlin")


def make(work, experts, dice):
    names = [f"experts.{e}.down_proj" for e in range(experts)] if experts else ["down_proj"]
    stfile.save(work.at("src", "model.safetensors"), {
        f"model.layers.0.mlp.{name}.weight": stfile.from_f32(
            "BF16", dice.standard_normal((256, 256), dtype=np.float32)) for name in names})
    with open(work.at("src", "config.json"), "w", encoding="ascii") as f:
        json.dump({"model_type": "qwen3_moe"} if experts else {"model_type": "llama"}, f)


def values(work, out):
    tool.run("unpack", work.at("packed"), "-o", work.at(out), "--quiet", "--force")
    tensors = stfile.load(work.at(out, "model.safetensors"))[0]
    return np.stack([tensors[name].bytes.view(np.uint16).reshape(256, 256)
                     for name in sorted(tensors)])


def codes_of(path):
    """Name, begin and end of the largest tensor, which are the codes."""
    entries, _, start = stfile.header(path)
    spans = [(end - begin, name, start + begin, start + end)
             for name, (begin, end) in ((n, e["data_offsets"]) for n, e in entries.items())]
    return max(spans)[1:]


def flips(work, to, dice):
    path = work.at("packed", "model.safetensors")
    tool.run("convert", work.at("src"), "-o", work.at("packed"), "--to", to, "--quiet", "--force")
    before = values(work, "before")
    with open(path, "rb") as f:
        good = f.read()
    _, begin, end = codes_of(path)
    for _ in range(FLIPS):
        at, bit = int(dice.integers(begin, end)), int(dice.integers(8))
        with open(path, "wb") as f:
            f.write(good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1:])
        said = tool.run("verify", work.at("packed"), "--against", work.at("src"), check=False)
        element = [tuple(map(int, found)) for found in ELEMENT.findall(said.stdout)]
        changed = [tuple(map(int, place)) for place in np.argwhere(before != values(work, "after"))]
        tally.check(said.returncode == 1 and element == changed,
                    f"{to}: bit {bit} of byte {at - begin} is of {changed}: {element}")


def main():
    dice = np.random.default_rng(9)
    for experts, formats in ((0, PLAIN), (2, STACKS)):
        for to in formats:
            with tool.Workdir() as work:
                os.makedirs(work.at("src"))
                make(work, experts, dice)
                flips(work, to, dice)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
