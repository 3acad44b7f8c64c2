#!/usr/bin/env python3
"""The parts of the plugin for vLLM that need no vLLM: the manifest, names, refusals, and slices
of packed weights, made of whole tiles, against the program's conversions and the oracle's values.

Merging q, k and v, and cutting rows and columns for ranks, must give the bytes of a weight that
was merged or cut before it was converted. Ends with `N passed, N failed`.
"""
import copy
import json
import os
import subprocess
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import oracle
import tool

import tilepack_llm as tp
from tilepack_llm import slices
from tilepack_llm.vllm import Refused, manifest, support

FORMATS = ("w4a8-cutlass", "fp8-deepgemm-sm100", "mxfp8-blocked", "mxfp4-blocked",
           "w4a16-marlin", "mxfp8-marlin", "fp8-marlin", "w8a16-machete")
STACKS = ("w4a8-cutlass", "mxfp8-blocked", "mxfp4-blocked", "w4a16-marlin", "mxfp4-marlin",
          "fp8-marlin", "fp8-marlin-channel", "nvfp4-marlin", "mxfp8-trtllm", "mxint4-trtllm",
          "fp8-tensor-trtllm")
SCALED = ("nvfp4-trtllm", "nvfp4-cutlass-moe", "nvfp4-vllm-cutlass", "nvfp4-cutedsl")
QKV = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}


def refused(function, *args):
    try:
        function(*args)
    except Refused as error:
        return str(error)
    return ""


def packed_of(fmt, box, stacked):
    per = {out["suffix"]: tuple(128 if one == "G" else one for one in out["per"])
           for out in tp.format_facts(fmt)["outputs"] if "per" in out}
    return slices.Packed(fmt, {}, box, stacked, per)


def view(output, array, box, rows, columns):
    grid = output.grid
    flat = array.reshape(-1).view(np.uint8)
    tiles = np.lib.stride_tricks.as_strided(flat, grid.shape(), grid.strides())
    return tiles[slices.region(grid, box, rows, columns)]


def cut_out(output, array, box, rows, columns, experts):
    """What view() shows of some experts, out of a copy of the one box of bytes that holds it."""
    _, n, k = slices.region(output.grid, box, rows, columns)
    cut = slices.cut(output.grid, (experts, n, k))
    whole = array.reshape(-1).view(np.uint8).reshape(cut.whole)
    alone = whole[tuple(slice(*span) for span in cut.spans)].reshape(-1).copy()
    assert alone.size == cut.bytes == np.prod(cut.shape) and len(cut.whole) <= 8
    return np.lib.stride_tricks.as_strided(alone, cut.shape, cut.strides)


def quantized(fmt, values):
    return {suffix: t.array for suffix, t in tp.quantize(values, fmt).items()}


def put_together(mine, parts):
    """{suffix: array} of (tensors, packed, rows there, columns there, rows here)."""
    made = {}
    for suffix, output in mine.outputs.items():
        like = parts[0][0][suffix].dtype
        if output.words is not None:
            made[suffix] = np.array(output.words, like)
            continue
        made[suffix] = np.zeros(output.shape, like)
        for tensors, packed, rows, columns, at in parts:
            stored = packed.outputs[suffix], tensors[suffix], packed.box, rows, columns
            source = view(*stored)
            view(output, made[suffix], mine.box, at, (0, mine.box[2]))[...] = source
            for some in (slice(0, None), slice(len(source) // 2, None)):
                assert np.array_equal(cut_out(*stored, some), source[some]), (suffix, rows, columns)
    return made


def differing(mine, made, parts, skip=()):
    """Suffixes whose bytes, put together, are not those of `made`."""
    return [suffix for suffix, array in put_together(mine, parts).items()
            if suffix not in skip and array.tobytes() != made[suffix].tobytes()]


def merged_and_cut(t, fmt):
    random = np.random.default_rng(5)
    w = random.standard_normal((640, 2048), np.float32)
    sizes = (384, 128, 128)
    begins = np.cumsum((0,) + sizes)
    mine = packed_of(fmt, (1, 640, 2048), False)
    parts = []
    for begin, size in zip(begins, sizes):
        part = w[begin:begin + size]
        parts.append((quantized(fmt, part), packed_of(fmt, (1, size, 2048), False), (0, size),
                      (0, 2048), (int(begin), int(begin) + size)))
    wrong = differing(mine, quantized(fmt, w), parts)
    t.check(not wrong, f"{fmt}: q, k and v put together {wrong}")
    whole, packed = quantized(fmt, w), mine
    for rank in range(5):
        rows = slices.rows_of_rank(640, 128, rank, 5)
        part = packed.of_size((1, 128, 2048))
        wrong = differing(part, quantized(fmt, w[rank * 128:(rank + 1) * 128]),
                          [(whole, packed, rows, (0, 2048), (0, 128))])
        t.check(not wrong, f"{fmt}: rows of rank {rank} {wrong}")
    # Scales of whole rows are those of the uncut weight.
    skip = ("weight_group_scale", "weight_chan_scale") if fmt == "w4a8-cutlass" else ()
    for rank in range(4):
        columns = slices.columns_of_rank(2048, 512, rank, 4)
        part = packed.of_size((1, 640, 512))
        wrong = differing(part, quantized(fmt, w[:, rank * 512:(rank + 1) * 512]),
                          [(whole, packed, (0, 640), columns, (0, 640))], skip)
        t.check(not wrong, f"{fmt}: columns of rank {rank} {wrong}")


def calibrated(work):
    """A source with activation scales."""
    path = work.at("calibrated")
    tool.run("convert", work.at("src"), "-o", path, "--to", "nvfp4-ct", "--include", "experts",
             "--quiet")
    subprocess.run([sys.executable, os.path.join(tool.REPO, "tests", "other", "vllm",
                                                 "checkpoints.py"), "calibrated", path], check=True)


def stacks(t, work, fmt, source="src"):
    """Each rank's experts, from the whole: their values are those of its rows or columns."""
    whole, half = work.at(fmt), work.at("half-" + fmt)
    some = () if fmt == "w4a8-cutlass" else ("--include", "experts")
    tool.run("convert", work.at(source), "-o", whole, "--to", fmt, "--quiet", *some)
    tool.run("convert", work.at("half"), "-o", half, "--to", fmt, "--quiet", "--include", "experts",
             *tool.weights_only(fmt))
    experts = manifest.experts_of("model.layers.0.block_sparse_moe.experts", manifest.read(whole))
    t.check(set(experts) == {"w13", "w2"} and all(p.stacked for p in experts.values()),
            f"{fmt}: a layer of experts")
    checkpoint, decoder = tp.open(whole), oracle.Checkpoint(tool.shards(whole))
    of_a_rank = {u.prefix: u.descriptor for u in oracle.Checkpoint(tool.shards(half)).units}
    for part, packed in experts.items():
        name = f"model.layers.0.block_sparse_moe.experts.{part}"
        stored = {s: x.array for s, x in checkpoint.weights[name].stored.items()}
        [unit] = [u for u in decoder.units if u.prefix in (name + "_", name + ".")]
        values = unit.values()
        e, full_n, full_k = packed.box
        n, k = (full_n, full_k // 2) if part == "w2" else (full_n // 2, full_k)
        mine = packed.of_size((e, n, k))
        for rank in range(2):
            halves = [(i * full_n // 2 + rank * n // 2, i * full_n // 2 + (rank + 1) * n // 2)
                      for i in range(2)]
            if part == "w2":
                moves = [((0, n), slices.columns_of_rank(full_k, k, rank, 2), (0, n))]
                want = values[:, :, rank * k:(rank + 1) * k]
            elif any(out.grid and out.grid.stretches == 2 for out in mine.outputs.values()):
                moves = [((rank * n // 2, (rank + 1) * n // 2), (0, k), (0, n // 2))]
                want = np.concatenate([values[:, a:b] for a, b in halves], axis=1)
            else:
                moves = [(rows, (0, k), (i * n // 2, (i + 1) * n // 2))
                         for i, rows in enumerate(halves)]
                want = np.concatenate([values[:, a:b] for a, b in halves], axis=1)
            made = put_together(mine, [(stored, packed, *move) for move in moves])
            got = oracle.decode(of_a_rank[unit.prefix], {s: a.tobytes() for s, a in made.items()})
            t.check(np.array_equal(got, want), f"{fmt}: {part} of rank {rank}")


def inputs(t, work):
    """Activation scales: one number for each expert, which stands beside the weight."""
    experts = manifest.experts_of("model.layers.0.block_sparse_moe.experts",
                                  manifest.read(work.at("nvfp4-trtllm")))
    stored = tp.open(work.at("nvfp4-trtllm")).tensors
    for part, packed in experts.items():
        (suffix, output), = packed.inputs.items()
        tensor = stored[f"model.layers.0.block_sparse_moe.experts.{part}_{suffix}"]
        t.check((output.dtype, output.shape) == ("F32", tensor.shape) and
                output.grid.shape() == (4, 1, 1, 4), f"activation scales of {part}")
    t.check(packed_of("nvfp4-marlin", (4, 256, 256), True).inputs == {}, "no activation scales")
    tool.run("convert", work.at("src"), "-o", work.at("bare"), "--to", "nvfp4-trtllm", "--include",
             "experts", "--weights-only", "--quiet")
    t.check("no activation scales, and vLLM's kernel for nvfp4-trtllm" in
            refused(manifest.read, work.at("bare")), "refused: no activation scales")


def divisions(t):
    t.check([slices.rows_of_rank(512, 128, r, 4) for r in (0, 3)] == [(0, 128), (384, 512)],
            "rows: each rank its own")
    t.check([slices.rows_of_rank(256, 128, r, 4)[0] for r in range(4)] == [0, 0, 128, 128],
            "rows: heads that two ranks share")
    t.check(slices.rows_of_rank(256, 256, 3, 4) == (0, 256), "rows: all of them")
    for stored, mine, ranks in ((256, 96, 4), (256, 32, 4), (256, 192, 4)):
        error = None
        try:
            slices.rows_of_rank(stored, mine, 0, ranks)
        except tp.UnsupportedError as e:
            error = e
        t.check(error is not None, f"rows: not {mine} of {stored} for {ranks}")
    t.check(slices.runs([4, 5, 6]) == [(0, 4, 3)], "experts: one run")
    t.check(slices.runs([0, 2, 3]) == [(0, 0, 1), (1, 2, 2)], "experts: several runs")
    grid = packed_of("mxfp8-blocked", (1, 64, 256), False).outputs["weight_scale"].grid
    error = ""
    try:
        slices.region(grid, (1, 320, 256), (64, 192), (0, 256))
    except tp.UnsupportedError as e:
        error = str(e)
    try:
        slices.Packed("fp8-trtllm", {}, (8, 128, 256), True, {}, "gated").outputs
    except tp.UnsupportedError as e:
        t.check("N=128 is not a multiple of 256" in str(e), "too few rows for a rank")
    else:
        t.check(False, "too few rows for a rank")
    gated = slices.Packed("fp8-tensor-trtllm", {}, (4, 336, 256), True, {}, "gated").outputs
    t.check(gated["weight"].shape == (4, 352, 256), "gate and up have needs of their own")
    t.check("64 to 192 of 320 are not whole tiles of 128" in error, "not from inside of a tile")


def refusals(t, work):
    path = os.path.join(work.at("w4a8-cutlass"), manifest.FILE)
    with open(path, encoding="utf-8") as file:
        good = json.load(file)

    def changed(change):
        other = copy.deepcopy(good)
        change(other)
        return refused(manifest.units, other, path)

    t.check("version 2, this plugin reads 1; update" in
            changed(lambda m: m.update(tilepack=2)), "refused: another manifest")
    t.check("version 2, this plugin reads 1; update" in
            changed(lambda m: m["descriptors"]["d0"].update(version=2)),
            "refused: another version of a format")
    t.check("no kernel of vLLM reads nvfp4-blocked" in
            changed(lambda m: m["descriptors"]["d0"].update(format="nvfp4-blocked")),
            "refused: a format without a kernel")
    t.check("no manifest of tilepack" in changed(lambda m: m["descriptors"]["d0"].pop("box")),
            "refused: what is no manifest")
    for key, value in (("box", [1, 2]), ("box", [-1, 2, 3]), ("box", ["1", 2, 3]),
                       ("box", [1, 2, 1 << 64]), ("box", [1, 2, float("inf")]), ("params", ["x"]),
                       ("params", {"scale": {}}),
                       ("outputs", [{"suffix": "w", "per": ["x", 1]}])):
        t.check("no manifest of tilepack" in
                changed(lambda m: m["descriptors"]["d0"].update({key: value})),
                f"refused: a descriptor with {key} {value}")
    deep = work.at("deep.json")
    with open(deep, "w", encoding="ascii") as f:
        f.write("[" * 100_000)
    t.check("recursion" in refused(manifest.read, deep), "refused: a manifest that is too deep")
    t.check("one rank of `convert --tp`" in
            changed(lambda m: m["request"].update(tp={"rank": 0, "ranks": 2})), "refused: a rank")
    t.check("beside its weights" in refused(manifest.read, work.at("src")),
            "refused: no manifest at all")
    units = manifest.units(good, path)
    layer = "model.layers.0.self_attn."
    parts = manifest.parts_of(layer + "qkv_proj", units, QKV)
    t.check([p.box[1] for p in parts.values()] == [256, 128, 128], "parts of a merged layer")
    t.check(len(manifest.parts_of(layer + "o_proj", units, QKV)) == 1 and
            manifest.parts_of("model.layers.0.mlp.gate", units, QKV) == {},
            "a layer of one part, and one that is not packed")
    some = {name: p for name, p in units.items() if not name.endswith("0.self_attn.k_proj")}
    t.check("self_attn.k_proj is not packed" in
            refused(manifest.parts_of, layer + "qkv_proj", some, QKV), "refused: k is not packed")
    mixed = dict(units)
    mixed[layer + "k_proj"] = packed_of("mxfp8-blocked", (1, 128, 256), False)
    t.check("different formats or parameters" in
            refused(manifest.parts_of, layer + "qkv_proj", mixed, QKV), "refused: mixed formats")
    experts = "model.layers.0.block_sparse_moe.experts"
    half = {name: p for name, p in units.items() if name != experts + ":w2"}
    t.check("w13 and w2 must be packed" in refused(manifest.experts_of, experts, half),
            "refused: half of the experts")
    single = {experts + ".0.w1": packed_of("w4a8-cutlass", (1, 512, 256), False)}
    t.check("one by one; convert without --no-stack" in
            refused(manifest.experts_of, experts, single), "refused: single experts")
    t.check(manifest.experts_of("other.experts", units) == {}, "experts that are not packed")
    bias = slices.Packed("mxfp4-marlin", {}, (1, 320, 1), False, {"": (1, 1)}, "wide", True)
    t.check("the 320 numbers of a bias are padded" in refused(manifest._check_bias, "x", bias),
            "refused: a bias that is padded")
    turns = {experts + ":gate_up_proj": packed_of("mxfp4-blocked", (4, 512, 256), True)}
    t.check("rows of gate and up are interleaved, and no kernel of vLLM takes them so in mxfp4-blocked"
            in refused(manifest.experts_of, experts, turns), "refused: a stack in another order")
    for fmt, capability, good_here in (("w4a8-cutlass", 90, True), ("w4a8-cutlass", 100, False),
                                       ("mxfp8-blocked", 103, True), ("mxfp8-blocked", 90, False),
                                       ("mxfp4-blocked", 120, False),
                                       ("w4a16-marlin", 80, True), ("w4a16-marlin", 75, False),
                                       ("mxfp4-marlin", 120, True), ("w4a16-machete", 89, False)):
        said = refused(support.check_device, "w", fmt, capability, "NVIDIA X")
        t.check(good_here != ("is for" in said and "this is NVIDIA X" in said),
                f"{fmt} on SM{capability}")
    t.check("fp8" in refused(support.check_device, "w", "fp8-deepgemm-sm100", None, "no GPU"),
            "refused: no GPU")
    t.check("for linear layers reads mxfp8-trtllm" in
            refused(support.check_linear, "w", "mxfp8-trtllm"), "refused: a format of experts")
    t.check(not refused(support.check_version, "0.33.2") and
            "tested with 0.33" in refused(support.check_version, "0.34.0"),
            "refused: another vLLM")
    box = {"w13": (4, 1024, 256), "w2": (4, 256, 512)}
    t.check("the model asks for [8, 1024, 256]" in
            refused(support.check_boxes, "x", box, {"w13": (8, 1024, 256)}),
            "refused: another model")
    engine = json.loads(tool.run("engines", "vllm-tilepack", "--json").stdout)["engines"][0]
    said = {fmt for row in engine["reads"] for fmt in row["formats"]}
    t.check(said == set(support.SUPPORTED), f"formats that the plugin reads: {said}")
    t.check(issubclass(Refused, tp.Error) and not issubclass(Refused, ValueError),
            "a refusal is an Error, and no ValueError, which vLLM would wrap")


def searched(t, work):
    """How scales were found is no parameter of a layout."""
    outputs = []
    for options in ((), ("--search", "mse", "--importance", "magnitude", "--signed")):
        out = work.at(f"searched-{len(options)}")
        tool.run("convert", work.at("src"), "-o", out, "--to", "w4a16-marlin", "--quiet", *options)
        units = manifest.read(out)
        outputs.append({name: (packed, {s: (out.dtype, out.shape, out.grid)
                                        for s, out in packed.outputs.items()})
                        for name, packed in units.items()})
    t.check(len(outputs[0]) > 4 and outputs[0] == outputs[1],
            "what was searched is described like what was not")


def main():
    t = tool.Tally()
    for fmt in FORMATS:
        merged_and_cut(t, fmt)
    divisions(t)
    with tool.Workdir() as work:
        subprocess.run([sys.executable, os.path.join(tool.REPO, "samples", "gen_checkpoint.py"),
                        work.at("src"), "--preset", "tiny-mixtral", "--quiet"], check=True)
        subprocess.run([sys.executable, os.path.join(tool.REPO, "samples", "gen_checkpoint.py"),
                        work.at("half"), "--preset", "tiny-mixtral", "--inter", "256", "--quiet"],
                       check=True)
        for fmt in STACKS:
            stacks(t, work, fmt)
        calibrated(work)
        for fmt in SCALED:
            stacks(t, work, fmt, "calibrated")
        inputs(t, work)
        searched(t, work)
        refusals(t, work)
    return t.finish()


if __name__ == "__main__":
    sys.exit(main())
