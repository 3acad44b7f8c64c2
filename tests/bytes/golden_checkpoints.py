#!/usr/bin/env python3
"""Whole golden checkpoints through the tilepack command.

    golden_checkpoints.py [FORMAT ...]

Converts each golden input directory and compares with the directory that the
original tool wrote: the names of all tensors, their dtypes, shapes and bytes (file
order and shards may differ), the meaning of config.json, the index, and the files
beside them. The list of kept layers must name exactly modules that were kept, and
every linear layer among them. One line per checkpoint, then `N passed, N failed`.
"""
import json
import os
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import golden_data
import refquant as rq
import tool

ROOT = golden_data.root()

# golden input, golden result, format, settings
CASES = [
    ("ct4/ckpt_dense/before", "ct4/ckpt_dense/after_f32div/W4AFP8_packed", "w4a8-ct", {}),
    ("ct4/ckpt_dense/before", "ct4/ckpt_dense/after/W4AFP8_packed", "w4a8-ct",
     {"quotient": "bf16"}),
    ("ct4/ckpt_dense/before", "ct4/ckpt_dense/after/FP8_BLOCK", "fp8-ct", {"quotient": "bf16"}),
    ("ct4/ckpt_dense/before", "ct4/ckpt_dense/after/MXFP8", "mxfp8-ct", {"scale": "ct"}),
    ("ct4/ckpt_moe/before", "ct4/ckpt_moe/after_f32div/W4AFP8_packed", "w4a8-ct", {}),
    ("ct4/ckpt_moe/before", "ct4/ckpt_moe/after/W4AFP8_packed", "w4a8-ct", {"quotient": "bf16"}),
    ("ct4/ckpt_moe/before", "ct4/ckpt_moe/after/FP8_BLOCK", "fp8-ct", {"quotient": "bf16"}),
    ("ct4/ckpt_moe/before", "ct4/ckpt_moe/after/MXFP8", "mxfp8-ct", {"scale": "ct"}),
    ("ct4/ckpt_moe3d/before", "ct4/ckpt_moe3d/after_f32div/W4AFP8_packed", "w4a8-ct", {}),
    ("ct4/ckpt_moe3d/before", "ct4/ckpt_moe3d/after/W4AFP8_packed", "w4a8-ct",
     {"quotient": "bf16"}),
    ("fp8/mini_ckpt/bf16", "fp8/mini_ckpt/fp8_expected", "fp8-deepseek", {"variant": "v2"}),
]


class Mismatch(Exception):
    pass


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return json.load(f)


def compare_tensors(got, want):
    missing, extra = set(want) - set(got), set(got) - set(want)
    if missing or extra:
        raise Mismatch(f"missing {sorted(missing)[:3]}, not in the golden {sorted(extra)[:3]}")
    for name, t in want.items():
        mine = got[name]
        if (mine.dtype, mine.shape) != (t.dtype, t.shape):
            raise Mismatch(f"{name} is {mine.dtype} {list(mine.shape)}, golden {t.dtype} "
                           f"{list(t.shape)}")
        bad = np.flatnonzero(mine.bytes != t.bytes)
        if bad.size:
            raise Mismatch(f"{name}: {bad.size} of {t.bytes.size} bytes differ, the first at "
                           f"byte {bad[0]}")


def plain(value):
    """A scheme without what only the original library's own fields say."""
    return {k: v for k, v in value.items() if v is not None and v != {} and "observer" not in k}


def compare_quantization(got, want):
    if got["quant_method"] != want["quant_method"]:
        raise Mismatch(f"quant_method is {got['quant_method']}")
    if "config_groups" not in want:
        for key, value in want.items():
            if got.get(key) != value:
                raise Mismatch(f"quantization_config.{key} is {got.get(key)}, not {value}")
        return
    for key in ("format", "quantization_status"):
        if got.get(key) != want[key]:
            raise Mismatch(f"quantization_config.{key} is {got.get(key)}, not {want[key]}")
    (mine,), (theirs,) = got["config_groups"].values(), want["config_groups"].values()
    for key in ("targets", "format"):
        if mine.get(key) != theirs[key]:
            raise Mismatch(f"config_groups: {key} is {mine.get(key)}, not {theirs[key]}")
    for key in ("weights", "input_activations"):
        if plain(mine[key]) != plain(theirs[key]):
            raise Mismatch(f"config_groups: {key} is {mine[key]}, not {plain(theirs[key])}")


def compare_kept(config, before, after):
    """The names of kept layers: exact, complete, and nothing that was quantized."""
    kept_tensors = {n for n, t in after.items() if n in before and t.dtype == before[n].dtype}
    linear = {n[:-len(".weight")] for n in kept_tensors
              if n.endswith(".weight") and len(before[n].shape) == 2 and "embed" not in n}
    lists = [config[key] for key in ("ignore", "ignored_layers", "modules_to_not_convert")
             if key in config]
    if not lists:
        raise Mismatch("config.json names no kept layers")
    for names in lists:
        if len(set(names)) != len(names):
            raise Mismatch("a kept layer is named twice")
        if not linear <= set(names):
            raise Mismatch(f"kept, but not named: {sorted(linear - set(names))}")
        for name in names:
            if name + ".weight" not in kept_tensors and name != "lm_head":  # may be tied
                raise Mismatch(f"named as kept, but there is no kept {name}.weight")


def compare_index(out, tensors):
    index = read_json(out, "model.safetensors.index.json")
    for name, shard in index["weight_map"].items():
        if not os.path.isfile(os.path.join(out, shard)):
            raise Mismatch(f"the index says {name} is in {shard}, which does not exist")
    if set(index["weight_map"]) != set(tensors):
        raise Mismatch("the index does not list the tensors of the shards")
    for path in tool.shards(out):
        for name in tool.stfile.header(path)[0]:
            if index["weight_map"][name] != os.path.basename(path):
                raise Mismatch(f"{name} is in {os.path.basename(path)}, not where the index says")
    size = sum(len(t.data) for t in tensors.values())
    if index["metadata"]["total_size"] != size:
        raise Mismatch(f"total_size is {index['metadata']['total_size']}, not {size}")


def compare_files(src, out):
    skip = ("config.json", "model.safetensors.index.json")
    for name in sorted(os.listdir(src)):
        if name in skip or name.endswith(".safetensors"):
            continue
        with open(os.path.join(src, name), "rb") as a, open(os.path.join(out, name), "rb") as b:
            if a.read() != b.read():
                raise Mismatch(f"{name} was changed")
    before, after = read_json(src, "config.json"), read_json(out, "config.json")
    after.pop("quantization_config")
    if before != after:
        raise Mismatch("config.json: other keys than quantization_config were changed")


def checkpoint(src, golden, to, sets):
    with tool.Workdir() as work:
        out = work.at("out")
        tool.run("convert", src, "-o", out, "--to", to, "--quiet", "--merged", "convert",
                 "--search", "none", *tool.settings(sets))
        before, after = tool.load(src)[0], tool.load(out)[0]
        compare_tensors(after, tool.load(golden)[0])
        config = read_json(out, "config.json")["quantization_config"]
        compare_quantization(config, read_json(golden, "config.json")["quantization_config"])
        compare_kept(config, before, after)
        compare_index(out, after)
        compare_files(src, out)
        tool.run("verify", out, "--against", src, "--quiet")
        return len(after)


def stacked(src):
    """A w4a8-ct checkpoint into w4a8-cutlass: codes taken over, experts stacked."""
    with tool.Workdir() as work:
        out = work.at("out")
        tool.run("convert", src, "-o", out, "--to", "w4a8-cutlass", "--quiet")
        source, got = tool.load(src)[0], tool.load(out)[0]
        method = read_json(out, "config.json")["quantization_config"]["quant_method"]
        if method != "tilepack":
            raise Mismatch(f"quant_method is {method}, so that a stock loader might take it")
    used, count = set(), 0
    for name in got:
        if not name.endswith("weight_layout"):
            continue
        prefix = name[:-len("weight_layout")]
        modules = members(prefix, source)
        used |= {m for row in modules for m in row}
        codes = np.stack([np.concatenate([rq.unpack_nibbles(source[m + ".weight_packed"].bits)
                                          for m in row]) for row in modules])
        scale = np.stack([np.concatenate([source[m + ".weight_scale"].bits for m in row])
                          for row in modules])
        for suffix, want in rq.w4a8_cutlass(codes, scale).items():
            if got[prefix + suffix].data != np.ascontiguousarray(want).tobytes():
                raise Mismatch(f"{prefix + suffix} differs from the oracle")
            count += 1
    missing = {n[:-len(".weight_packed")] for n in source if n.endswith("_packed")} - used
    if missing:
        raise Mismatch(f"not converted: {sorted(missing)}")
    return count


def members(prefix, source):
    """Modules behind an output prefix: one row of modules per expert."""
    if prefix.endswith(("w13_", "w2_")):
        head = prefix.rsplit(".", 1)[0]
        names = ("gate_proj", "up_proj") if prefix.endswith("w13_") else ("down_proj",)
        experts = sorted({int(n[len(head) + 1:].split(".")[0]) for n in source
                          if n.startswith(head + ".")})
        return [[f"{head}.{e}.{p}" for p in names] for e in experts]
    return [[prefix[:-1]]]


def main():
    wanted = sys.argv[1:]
    jobs = [(to, f"{golden} {sets or ''}",
             lambda s=src, g=golden, t=to, o=sets: checkpoint(os.path.join(ROOT, s),
                                                              os.path.join(ROOT, g), t, o))
            for src, golden, to, sets in CASES]
    jobs += [("w4a8-cutlass", f"{src} stacked", lambda s=src: stacked(os.path.join(ROOT, s)))
             for src in ("ct4/ckpt_dense/after/W4AFP8_packed", "ct4/ckpt_moe/after/W4AFP8_packed",
                         "ct4/ckpt_moe3d/after/W4AFP8_packed")]
    passed = failed = 0
    for to, label, job in jobs:
        if wanted and to not in wanted:
            continue
        try:
            count = job()
        except (Mismatch, tool.ToolError, KeyError, ValueError, OSError) as error:
            failed += 1
            print(f"FAIL {to:18} {label}: {type(error).__name__}: {error}", flush=True)
        else:
            passed += 1
            print(f"ok   {to:18} {label} {count} tensors", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not (passed or wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
