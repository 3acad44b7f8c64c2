#!/usr/bin/env python3
"""Error feedback (`--importance FILE` with moments) against the golden files of
tests/golden/feedback, byte for byte, and what must not change them: other layouts, parts, threads,
memory, the dtype of the moments; `verify --against` derives all again."""
import json
import os
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import stfile
import tool

GOLDEN = os.path.join(tool.REPO, "tests", "golden", "feedback")
F32 = np.float32
NAME = "model.layers.0.self_attn.q_proj"
EXPERT = "model.layers.0.mlp.experts.{}.down_proj"
tally = tool.Tally()

# What of a golden is made how: format, --set values, options.
CASES = {
    "int4.mse": ("any-k", {}, ()),
    "int4.mse.signed": ("any-k", {}, ("--signed",)),
    "int4.mse.bf16": ("any-k", {"quotient": "bf16"}, ()),
    "int4.w4a8": ("w4a8-ct", {}, ("--search", "w4a8")),
    "int4.w4a8.signed": ("w4a8-ct", {}, ("--search", "w4a8", "--signed")),
    "nvfp4.ct.mse": ("nvfp4-ct", {}, ()),
    "nvfp4.torchao.mse": ("nvfp4-blocked", {"scale": "torchao"}, ()),
    "mxfp4.even.mse": ("mxfp4-ct", {}, ()),
}
# Layouts of the same codes and scales: what is made in one equals what is taken over into it.
LAYOUTS = {
    "w4a16-ct": ("gptq", "awq", "w4a16-marlin", "w4a16-machete"),
    "w4a8-ct": ("w4a8-cutlass",),
    "nvfp4-blocked": ("nvfp4-comfy",),
    "mxfp4-ct": ("mxfp4-marlin", "mxfp4-blocked"),
}
# Outputs without a channel scale are searched for the rules that divide.
SETS = {"w4a8-cutlass": {"scale": "cpu"}, "gptq": {"scales": "bf16"}, "awq": {"scales": "bf16"},
        "nvfp4-blocked": {"scale": "modelopt"}}


def untiled(data, n, k):
    """Scales [n,k] out of 128x4 tiles."""
    columns = -(-k // 4)
    row, col = np.meshgrid(np.arange(n), np.arange(k), indexing="ij")
    at = (row % 32 * 16 + row // 32 % 4 * 4 + col % 4 + 512 * (col // 4)
          + 512 * columns * (row // 128))
    return np.frombuffer(data, np.uint8)[at].tobytes()


def names_of(tensor):
    return [EXPERT.format(e) for e in range(tensor.shape[0])] if len(tensor.shape) == 3 else [NAME]


def part(tensor, e, stacked):
    """Expert e of a stack."""
    if not stacked:
        return tensor
    size = len(tensor.data) // tensor.shape[0]
    return stfile.Tensor(tensor.dtype, tensor.shape[1:], tensor.data[e * size:(e + 1) * size])


def write_source(work, tensors):
    """The checkpoint, and its file of importance with moments and without."""
    names, stacked = names_of(tensors["input"]), len(tensors["input"].shape) == 3
    weights, h, v = ({} for _ in range(3))
    for e, name in enumerate(names):
        weights[name + ".weight"] = part(tensors["input"], e, stacked)
        h[name] = part(tensors["h"], e, stacked)
        v[name + ".v"] = part(tensors["v"], e, stacked)
    stfile.save(work.at("in.safetensors"), weights)
    stfile.save(work.at("h"), h)
    stfile.save(work.at("hv"), h | v)
    return names


def write_format(work):
    """w4a16-ct for any K: its last group may be a part of one."""
    with open(os.path.join(tool.REPO, "formats", "w4a16-ct.json"), encoding="utf-8") as f:
        text = f.read().replace("K/G", "ceil(K,G)").replace('"w4a16-ct"', '"any-k"')
    form = json.loads(text)
    form["needs"] = []
    with open(work.at("any-k.json"), "w", encoding="utf-8") as f:
        json.dump(form, f)


def made_by(work, to, sets, options, importance="hv", out="out.safetensors", more=()):
    search = () if "--search" in options else ("--search", "mse")
    own = ("--format-file", work.at("any-k.json")) if to == "any-k" else ()
    tool.run("convert", work.at("in.safetensors"), "-o", work.at(out), "--to", to, "--quiet",
             *tool.settings(sets), "--include", ".", *search, *options, "--importance",
             work.at(importance), "--force", *own, *more)
    return tool.load(work.at(out))[0]


def same_as_golden(made, want, case, names):
    """Codes and scales of every weight."""
    codes, scale = want[case + ".weight_packed"], want[case + ".weight_scale"]
    good = True
    for e, name in enumerate(names):
        stacked = len(names) > 1
        got = made[name + ".weight_scale"].data
        wanted = part(scale, e, stacked)
        if "torchao" in case:
            got = untiled(got, *wanted.shape)
        good &= got == wanted.data
        good &= made[name + ".weight_packed"].data == part(codes, e, stacked).data
    return good


def data_of(made):
    return {name: t.data for name, t in made.items()}


def descriptor(path):
    meta = tool.load(path)[1]
    return next(iter(json.loads(meta["tilepack.descriptors"]).values()))["params"]


def golden(path):
    want = stfile.load(path)[0]
    with tool.Workdir() as work:
        names = write_source(work, want)
        write_format(work)
        for case, (to, sets, options) in CASES.items():
            if case + ".weight_packed" not in want:
                continue
            made = made_by(work, to, sets, options, out="golden.safetensors")
            tally.check(same_as_golden(made, want, case, names), f"golden {case}")
            params = descriptor(work.at("golden.safetensors"))
            plain = made_by(work, to, sets, options, "h")
            tally.check(data_of(plain) != data_of(made) and
                        descriptor(work.at("out.safetensors"))["importance"] !=
                        params["importance"] and len(params["importance"]) == 32,
                        f"{case}: the moments change it, and the descriptor says so")
            proved(work, case, to)


def proved(work, case, to):
    own = ("--format-file", work.at("any-k.json")) if to == "any-k" else ()
    words = ("verify", work.at("golden.safetensors"), "--against", work.at("in.safetensors"),
             *own, "--importance")
    done = tool.run(*words, work.at("hv"), check=False)
    tally.check(done.returncode == 0, f"{case}: verify derives it again {done.stderr}")
    done = tool.run(*words, work.at("h"), check=False)
    tally.check(done.returncode == 3 and "is not what the weight was converted" in done.stderr,
                f"{case}: and knows that moments are missing")


def random_source(work, rng, n, k, rank):
    v = (rng.standard_normal((k, rank)) * rng.lognormal(0, 1, (k, 1))).astype(F32)
    h = ((v ** 2).sum(axis=1) * rng.uniform(.9, 2, k)).astype(F32)
    stfile.save(work.at("in.safetensors"), {NAME + ".weight": stfile.from_f32(
        "BF16", rng.standard_t(4, (n, k)).astype(F32))})
    stfile.save(work.at("h"), {NAME: stfile.tensor("F32", h)})
    stfile.save(work.at("hv"), {NAME: stfile.tensor("F32", h), NAME + ".v": stfile.from_f32(
        "BF16", v)})
    wide = stfile.bf16_to_f32(stfile.f32_to_bf16(v))
    stfile.save(work.at("wide"), {NAME + ".weight.v": stfile.tensor("F32", wide),
                                  NAME + ".weight": stfile.tensor("F32", h)})


def layouts(work):
    for base, others in LAYOUTS.items():
        search = ("--search", "w4a8") if base == "w4a8-ct" else ()
        made_by(work, base, SETS.get(base, {}), search, out="base.safetensors")
        for to in others:
            sets = SETS.get(to, {})
            made = made_by(work, to, sets, (), out="also.safetensors")
            taken = tool.convert(work.at("base.safetensors"), work.at("taken.safetensors"), to,
                                 sets, ("--force",))[0]
            tally.check(data_of(made) == data_of(taken), f"{to} as {base}")


def planned(work):
    for importance, rank in (("hv", 3), ("h", None)):
        words = ("plan", work.at("in.safetensors"), "--to", "w4a16-ct", "--search", "mse",
                 "--include", ".", "--importance", work.at(importance))
        text, units = tool.run(*words).stdout, json.loads(tool.run(*words, "--json").stdout)["units"]
        tally.check(("errors fed back" in text) == bool(rank) and
                    units[0].get("feedback_rank") == rank, f"plan says whether errors are fed back: {rank}")


def alike(work):
    """What changes nothing: how much is done at once, and how moments are stored."""
    for to, options in (("w4a16-ct", ("--signed",)), ("nvfp4-ct", ()), ("mxfp4-ct", ()),
                        ("w4a8-cutlass", ())):
        want = data_of(made_by(work, to, {}, options))
        for more in (("-j", "1"), ("-j", "3"), ("--max-memory", "40M")):
            made = data_of(made_by(work, to, {}, options, more=more))
            tally.check(made == want, f"{to}: {' '.join(more)} changes nothing")
        made = data_of(made_by(work, to, {}, options, "wide"))
        tally.check(made == want, f"{to}: F32 moments of the same numbers, by the tensor's name")


def main():
    for name in sorted(os.listdir(GOLDEN)):
        golden(os.path.join(GOLDEN, name))
    rng = np.random.default_rng(4)
    with tool.Workdir() as work:
        random_source(work, rng, 128, 256, 5)
        layouts(work)
    with tool.Workdir() as work:
        random_source(work, rng, 1024, 1024, 3)
        alike(work)
        planned(work)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
