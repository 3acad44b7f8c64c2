#!/usr/bin/env python3
"""Every form of source into every format, against values that nothing of the program has made.

    pairs.py [--all] [--via] [--unpack] [--no-stack] [--only SOURCE[:FORMAT]]
             [--to FORMAT,...] [--model NAME] [--size HIDDEN,EXPERT] [--seed N]

The weights of a source differ in all that they may: each part of each expert has its own scale,
order of groups, zero points; sizes end inside every tile. They are written here, from codes and
scales that are numbers of few bits, so that their values are exact in BF16. Each conversion is
then one of two things, for every packed weight of the result, as oracle.py decodes it by the
descriptor: the codes were taken over, and all values are those of the source; or the weight was
decoded and quantized again, and every byte is what the same conversion makes of a plain BF16
checkpoint with those values. What is refused is refused with status 4.

Without an option a part of the pairs runs: what engines want one of for parts that have one each
(ALWAYS), into every format of stacks; stacks of others (PACKED); results that were hard to read
(VIA); a sample of the rest.
--via takes every exact result as the source of every format. --unpack unpacks every result, and
compares with what oracle.py decodes of it. --no-stack leaves experts, and the names of stacks, as
the source has them. Ends with `N passed, N failed` (pairs that were converted).
"""
import argparse
import itertools
import json
import os
import shutil
import sys
import zlib

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import oracle
import refquant as rq
import stfile
import tool
from input_cases.common import awq_file, ct_file, e4m3_codes, gptq_file
from input_cases.int4 import gptq_bytes
from stfile import Tensor, tensor


class Mismatch(Exception):
    pass


# ---- sources -------------------------------------------------------------------
# Functions of a random generator, name, n, k, the factor of the weight and the group: its
# tensors, and its values.

def integers(rng, n, k, factor, group, bits=4, zeros=False, order=False):
    """Codes, scales [N,G], zero points, the group of each column, values."""
    middle = 1 << bits - 1
    codes = rng.integers(0, 2 * middle, (n, k)).astype(np.uint8)
    shape = n, k // group
    if bits == 8:  # BF16 has no more than these
        factor = 2.0 ** np.floor(np.log2(factor))
    scales = (factor * 2.0 ** rng.integers(0, 3, shape)).astype(np.float32)
    zero = rng.integers(middle - 7, middle + 7, shape) if zeros else np.full(shape, middle)
    column = np.arange(k) // group
    column = rng.permutation(column) if order else column
    values = (codes.astype(np.float32) - zero[:, column].astype(np.float32)) * scales[:, column]
    return codes, scales, zero.astype(np.uint8), column, values


def gptq(zeros=False, order=False, bits=4):
    def make(rng, name, n, k, factor, group):
        codes, scales, zero, column, values = integers(rng, n, k, factor, group, bits, zeros, order)
        half = scales.astype(np.float16)
        if bits == 8:
            return gptq_bytes(name, codes, half, zero - 1), values
        return gptq_file(name, codes, half, zero - 1, column), values
    return make


def awq(zeros=False):
    def make(rng, name, n, k, factor, group):
        codes, scales, zero, _, values = integers(rng, n, k, factor, group, 4, zeros)
        return awq_file(name, codes, scales.astype(np.float16), zero), values
    return make


def ct_int(zeros=False, order=False, bits=4, row=False):
    def make(rng, name, n, k, factor, group):
        group = k if row else group
        codes, scales, zero, column, values = integers(rng, n, k, factor, group, bits, zeros, order)
        made = ct_file(name, codes, stfile.f32_to_bf16(scales), zero if zeros else None,
                       column if order else None)
        if bits == 8:
            made[name + ".weight_packed"] = tensor("I32", codes.view(np.int32))
        return made, values
    return make


def fp8(rows, columns, scale, dtype, alone=None):
    """A scale to so many rows and columns, 0: all of them; `alone`: the shape of the only one."""
    def make(rng, name, n, k, factor, _group):
        bn, bk = rows or n, columns or k
        codes = e4m3_codes(rng, n, k)
        shape = rq.ceil_div(n, bn), rq.ceil_div(k, bk)
        scales = (factor * 2.0 ** rng.integers(0, 3, shape)).astype(np.float32)
        values = rq.E4M3[codes] * rq.spread(scales, bn, bk, n, k)
        stored = scales if alone is None else scales.reshape(alone)
        return {f"{name}.weight": tensor("F8_E4M3", codes),
                f"{name}.{scale}": stfile.from_f32(dtype, stored)}, values
    return make


def powers(rng, n, k, factor):
    """Scales of MX blocks; those of 32 rows have a size in common, as formats may scale them."""
    base = 127 + int(np.floor(np.log2(factor)))
    rows = np.repeat(rng.integers(0, 4, rq.ceil_div(n, 32)), 32)[:n, None]
    return (base + rows + rng.integers(0, 4, (n, k // 32))).astype(np.uint8)


def mxfp8(rng, name, n, k, factor, _group):
    codes, scales = e4m3_codes(rng, n, k), powers(rng, n, k, factor)
    return {f"{name}.weight": tensor("F8_E4M3", codes),
            f"{name}.weight_scale": tensor("U8", scales)}, \
        rq.E4M3[codes] * np.repeat(rq.e8m0_value(scales), 32, axis=1)


def mxfp4(rng, name, n, k, factor, _group):
    codes, scales = rng.integers(0, 16, (n, k), dtype=np.uint8), powers(rng, n, k, factor)
    return {f"{name}.weight_packed": tensor("U8", rq.pack_pairs(codes)),
            f"{name}.weight_scale": tensor("U8", scales)}, \
        rq.E2M1[codes] * np.repeat(rq.e8m0_value(scales), 32, axis=1)


def nvfp4(divisor):
    def make(rng, name, n, k, factor, _group):
        codes = rng.integers(0, 16, (n, k), dtype=np.uint8)
        scales = (rng.integers(10, 24, (n, k // 16)) << 2).astype(np.uint8)  # of two bits
        whole = np.float32(2.0 ** np.floor(np.log2(factor)))
        values = rq.E2M1[codes] * np.repeat(rq.E4M3[scales], 16, axis=1) * whole
        made = {f"{name}.weight_scale": tensor("F8_E4M3", scales)}
        packed = tensor("U8", rq.pack_pairs(codes))
        if divisor:
            made |= {f"{name}.weight_packed": packed,
                     f"{name}.weight_global_scale": stfile.from_f32("F32", [1 / whole])}
        else:
            made |= {f"{name}.weight": packed,
                     f"{name}.weight_scale_2": Tensor("F32", (), whole.tobytes())}
        return made, values
    return make


def plain(rng, name, n, k, factor, _group):
    t = stfile.from_f32("BF16", (rng.standard_normal((n, k)) * factor).astype(np.float32))
    return {f"{name}.weight": t}, t.f32()


SOURCES = {
    "plain": plain, "gptq": gptq(), "gptq-order": gptq(order=True), "gptq-zeros": gptq(True),
    "gptq-zeros-order": gptq(True, True), "gptq8-zeros": gptq(True, bits=8),
    "awq": awq(), "awq-zeros": awq(True),
    "ct-int4": ct_int(), "ct-int4-row": ct_int(row=True), "ct-int4-zeros": ct_int(True),
    "ct-int4-zeros-order": ct_int(True, True), "ct-int8": ct_int(bits=8),
    "ct-int8-row": ct_int(bits=8, row=True),
    "fp8-deepseek": fp8(128, 128, "weight_scale_inv", "F32"),
    "fp8-ct": fp8(128, 128, "weight_scale", "BF16"),
    "fp8-rows": fp8(1, 0, "weight_scale", "BF16"),
    "fp8-tensor": fp8(0, 0, "weight_scale", "BF16", (1,)),
    "fp8-tensor-f32": fp8(0, 0, "weight_scale", "F32", ()),
    "mxfp8": mxfp8, "mxfp4": mxfp4, "nvfp4": nvfp4(True), "nvfp4-modelopt": nvfp4(False),
}
# With one factor for all parts that engines load as one: only such are taken over by some.
SHARED = tuple(form + "-shared" for form in ("fp8-tensor", "nvfp4", "nvfp4-modelopt"))
FORMS = (*SOURCES, *SHARED)


# ---- models --------------------------------------------------------------------

class Source:
    """A checkpoint: `tensors`, and of each packed tensor's plain name its `values`; `wanted`: its
    own group and zero points, for formats that have a choice."""

    def __init__(self, form, rng, group):
        words = form.split("-")
        self.make, self.rng, self.group = SOURCES[form.removesuffix("-shared")], rng, group
        self.shares = "shared" in words
        self.wanted = {"group": "channel" if "row" in words else str(group),
                       "zeros": "stored" if "zeros" in words else "none"}
        self.tensors, self.values, self.others, self.made = {}, {}, {}, {}
        self.config = {"num_attention_heads": 4, "num_key_value_heads": 2}
        self.packed = {}  # of config.json, too, and not of that of the plain values
        if form.startswith("ct-int8"):  # a stack has no weight_shape to tell
            self.packed["quantization_config"] = {
                "quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
                    "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int"}}}}

    def factor(self):
        return 2.0 ** self.rng.integers(-9, -3) * (1 + self.rng.integers(0, 4) / 4)

    def add(self, *parts):
        """Weights (name, n, k) that engines load as one."""
        together = self.factor()
        for name, n, k in parts:
            factor = together if self.shares else self.factor()
            made, values = self.make(self.rng, name, n, k, factor, self.group)
            self.tensors |= made
            self.values[name + ".weight"] = values.astype(np.float32)
            self.made[name + ".weight"] = made

    def add_stack(self, name, count, n, k):
        """A stack of experts [E,N,K] with what belongs to it in stacks beside it."""
        made, values = zip(*(self.make(self.rng, name, n, k, self.factor(), self.group)
                             for _ in range(count)))
        stacked = {key: tensor(t.dtype, np.stack([m[key].bits for m in made]))
                   for key, t in made[0].items() if not key.endswith("_shape")}
        stacked = {key: t if len(t.shape) != 2 or t.shape[1] != 1 else
                   Tensor(t.dtype, t.shape[:1], t.data) for key, t in stacked.items()}
        if set(stacked) == {name + ".weight"}:  # plain: as it is called in checkpoints
            stacked = {name: stacked[name + ".weight"]}
        plain_name = name if set(stacked) == {name} else name + ".weight"
        self.tensors |= stacked
        self.values[plain_name] = np.stack(values).astype(np.float32)
        self.made[plain_name] = stacked

    def stack(self, name, n, k):
        """Two experts of MXFP4 as gpt-oss has them; plain, they are [E,K,N]."""
        made, values = zip(*(self.make(self.rng, "", n, k, self.factor(), self.group)
                             for _ in range(2)))
        blocks = np.stack([t[".weight_packed"].bits for t in made])
        self.tensors[name + "_blocks"] = tensor("U8", blocks.reshape(2, n, k // 32, 16))
        self.tensors[name + "_scales"] = tensor(
            "U8", np.stack([t[".weight_scale"].bits for t in made]))
        self.values[name] = np.stack(values).swapaxes(1, 2)
        self.made[name] = {name + end: self.tensors[name + end] for end in ("_blocks", "_scales")}

    def keep(self, name, shape):
        t = stfile.from_f32("BF16", self.rng.standard_normal(shape).astype(np.float32))
        self.tensors[name] = self.others[name] = t


def experts(source, hidden, inter, count=2):
    """Experts one by one."""
    for e in range(count):
        at = f"model.layers.0.mlp.experts.{e}."
        source.add((at + "gate_proj", inter, hidden), (at + "up_proj", inter, hidden))
        source.add((at + "down_proj", hidden, inter))


def one(source, hidden, inter):
    experts(source, hidden, inter, 1)


def ungated(source, hidden, inter, count=1):
    source.config["model_type"] = "nemotron_h"
    for e in range(count):
        at = f"backbone.layers.0.mixer.experts.{e}."
        source.add((at + "up_proj", inter, hidden))
        source.add((at + "down_proj", hidden, inter))


def ungated_three(source, hidden, inter):
    ungated(source, hidden, inter, 3)


def mixtral(source, hidden, inter):
    source.config |= {"model_type": "mixtral", "intermediate_size": inter, "hidden_size": hidden}
    for e in range(3):
        at = f"model.layers.0.block_sparse_moe.experts.{e}."
        source.add((at + "w1", inter, hidden), (at + "w3", inter, hidden))
        source.add((at + "w2", hidden, inter))


def phi(source, hidden, inter):
    """All that can be is one matrix, with biases of its rows."""
    source.config |= {"model_type": "phi3", "intermediate_size": inter, "hidden_size": hidden,
                      "num_attention_heads": 8, "num_key_value_heads": 4}
    at = "model.layers.0."
    for name, n, k in (("self_attn.qkv_proj", 2 * hidden, hidden),
                       ("self_attn.o_proj", hidden, hidden),
                       ("mlp.gate_up_proj", 2 * inter, hidden), ("mlp.down_proj", hidden, inter)):
        source.add((at + name, n, k))
        source.keep(f"{at}{name}.bias", n)


def gpt_oss_apart(source, hidden, inter):
    """Experts of gpt-oss one by one, with biases, as quantizers write them."""
    source.config["model_type"] = "gpt_oss"
    for e in range(2):
        at = f"model.layers.0.mlp.experts.{e}."
        source.add((at + "gate_proj", inter, hidden), (at + "up_proj", inter, hidden))
        source.add((at + "down_proj", hidden, inter))
        for name, n in (("gate", inter), ("up", inter), ("down", hidden)):
            source.keep(f"{at}{name}_proj.bias", n)


def stacks(source, hidden, inter):
    """Experts in stacks, gate before up."""
    source.config |= {"hidden_size": hidden, "moe_intermediate_size": inter}
    at = "model.layers.0.mlp.experts."
    source.add_stack(at + "gate_up_proj", 3, 2 * inter, hidden)
    source.add_stack(at + "down_proj", 3, hidden, inter)


def dense(source, hidden, inter):
    """What engines fuse, of unequal rows and with biases, and what is fused in the file."""
    at = "model.layers.0.self_attn."
    sizes = {"q": hidden, "k": hidden // 2, "v": hidden // 2}
    source.add(*((f"{at}{p}_proj", n, hidden) for p, n in sizes.items()))
    for p, n in sizes.items():
        source.keep(f"{at}{p}_proj.bias", n)
    at = "model.layers.0.mlp."
    source.add((at + "gate_proj", inter, hidden), (at + "up_proj", inter, hidden))
    source.add(("model.layers.1.self_attn.qkv_proj", 2 * hidden, hidden))
    source.add(("model.layers.1.mlp.gate_up_proj", 2 * inter, hidden))


def in_turn(source, hidden, inter):
    """Stacks as of gpt-oss: rows of gate and up are interleaved."""
    source.config["model_type"] = "gpt_oss"
    at = "model.layers.0.mlp.experts."
    for name, n, k in (("gate_up_proj", 2 * inter, hidden), ("down_proj", hidden, inter)):
        source.stack(at + name, n, k)
        source.keep(f"{at}{name}_bias", (2, n))


MODELS = {"experts": experts, "ungated": ungated, "dense": dense, "in-turn": in_turn}
MORE = {"one": one, "ungated-three": ungated_three, "mixtral": mixtral, "phi": phi,
        "gpt-oss-apart": gpt_oss_apart, "stacks": stacks}  # for --all and --model
SIZES = ((256, 192), (320, 160), (256, 224), (512, 320), (256, 256))  # hidden, of an expert


def checkpoint(work, form, model, sizes, seed):
    """Writes the source and the plain checkpoint of its values."""
    rng = np.random.default_rng([seed, zlib.crc32(f"{form} {model} {sizes}".encode())])
    common = int(np.gcd(*sizes))
    source = Source(form, rng, min(128, common & -common))  # a power of two
    (MODELS | MORE)[model](source, *sizes)
    values = {name: stfile.from_f32("BF16", v) for name, v in source.values.items()}
    for name, t in values.items():
        if not np.array_equal(t.f32(), source.values[name]):
            raise Mismatch(f"{form}: the values of {name} are none of BF16")
    for folder, tensors, packed in (("src", source.tensors, source.packed),
                                    ("plain", values | source.others, {})):
        os.makedirs(work.at(folder))
        stfile.save(work.at(folder, "model.safetensors"), tensors)
        with open(work.at(folder, "config.json"), "w", encoding="utf-8") as f:
            json.dump(source.config | packed, f)
    return source


# ---- one pair ------------------------------------------------------------------

ROUNDS = {"w4a8-cutlass": 0.04}  # taken over, a scale becomes e4m3 times that of the row: its error


def rows_of(source, origin, expert):
    """The values of the source that became rows of a unit."""
    name = origin["name"].replace("{e}", str(expert))
    if name in source.values:
        want = source.values[name]
    else:
        want = source.others[name].f32()[..., None]  # a bias
    if want.ndim == 3:
        want = want[origin.get("expert", expert)]
    if origin.get("transposed"):
        want = want.T
    first, step = origin.get("row", 0), origin.get("step", 1)
    return want[first:first + (origin["rows"] - 1) * step + 1:step]


def row_error(want, got):
    """The largest relative error of a row."""
    want = want.astype(np.float64)
    off = want - got
    with np.errstate(all="ignore"):
        share = (off ** 2).sum(axis=1) / (want ** 2).sum(axis=1)
    share[~off.any(axis=1)] = 0
    return float(np.sqrt(share.max()))


def error_of(unit, source):
    """The largest relative error of a row of the unit, by the names and rows that it came from."""
    values, row, worst = unit.values(), 0, 0.0
    for origin in unit.sources:
        shape = origin["shape"]
        if len(shape) == 2 and origin["rows"] < shape[0]:
            raise Mismatch(f"{unit.prefix} has {origin['rows']} of {shape[0]} rows of "
                           f"{origin['name']}, a matrix by itself")
        end = row + origin["rows"]
        for e in range(values.shape[0]):
            worst = max(worst, row_error(rows_of(source, origin, e), values[e, row:end]))
        row = end
    if row != values.shape[1]:
        raise Mismatch(f"{unit.prefix} has {values.shape[1]} rows, and came from {row}")
    return worst


def converted(work, src, out, options):
    """The result, or None: 4 is the only other status that is right."""
    done = tool.run("convert", work.at(src), "-o", work.at(out), "--quiet", "--force", "--jobs",
                    "1", "--weights-only", "--merged", "convert", "--search", "none", *options,
                    check=False)
    if done.returncode not in (0, 4):
        raise Mismatch(f"status {done.returncode}: {done.stderr}")
    return None if done.returncode else oracle.Checkpoint(tool.shards(work.at(out)))


def covered(result, source):
    """Raises unless all rows of each weight are in a unit, or its tensors are kept as they were,
    and so are tensors that belong to no unit."""
    rows, inside = {}, set()
    for unit in result.units:
        inside |= {unit.prefix + suffix for suffix in unit.data}
        for origin in unit.sources:
            first, step = origin.get("row", 0), origin.get("step", 1)
            for e in range(unit.descriptor["box"][0]):
                name = origin["name"].replace("{e}", str(e))
                at = origin.get("expert", e) if "{e}" not in origin["name"] else 0
                rows.setdefault(name, []).extend(
                    (at, first + i * step) for i in range(origin["rows"]))
    everything = source.values | {name: t.f32()[..., None] for name, t in source.others.items()}
    for name, values in everything.items():
        if name in rows:
            n = values.shape[-1] if name in source.values and values.ndim == 3 and \
                name + "_blocks" in source.tensors else values.shape[-2]
            count = values.shape[0] if values.ndim == 3 else 1
            if sorted(rows[name]) != [(e, i) for e in range(count) for i in range(n)]:
                raise Mismatch(f"{name}: not every row is in one unit, and in one only")
        elif name in source.values and name not in source.made:
            raise Mismatch(f"{name} is in no unit")
        else:
            for kept, t in source.made.get(name, {name: source.others.get(name)}).items():
                got = result.tensors.get(kept)
                if got is None or (got.dtype, got.shape, got.data) != (t.dtype, t.shape, t.data):
                    raise Mismatch(f"{kept} is in no unit, and not kept as it was")
    return len(result.units)


def plain_of(units):
    """Values by the names of the source, as float32: {(name, expert): {row: values}}."""
    out = {}
    for unit in units:
        values, row = unit.values(), 0
        for origin in unit.sources:
            first, step = origin.get("row", 0), origin.get("step", 1)
            for e in range(values.shape[0]):
                name = origin["name"].replace("{e}", str(e))
                expert = origin.get("expert", e) if len(origin["shape"]) == 3 or \
                    "{e}" not in origin["name"] else 0
                part = out.setdefault((name, expert, bool(origin.get("transposed"))), {})
                part |= {first + i * step: values[e, row + i] for i in range(origin["rows"])}
            row += origin["rows"]
    return out


def unpacked(work, result, src):
    """Raises unless `unpack` gives what oracle.py decodes. Status 4: nothing."""
    done = tool.run("unpack", work.at(src), "-o", work.at("plain-again"), "--dtype", "f32",
                    "--quiet", "--force", "--jobs", "1", check=False)
    if done.returncode:
        raise Mismatch(f"unpack: status {done.returncode}: {done.stderr}")
    got = {}
    for path in tool.shards(work.at("plain-again")):
        got |= stfile.load(path)[0]
    for (name, expert, transposed), rows in plain_of(result.units).items():
        if name not in got:
            raise Mismatch(f"unpack: {name} is missing")
        values = got[name].f32()
        if values.ndim == 3 or (values.ndim == 2 and next(iter(rows.values())).shape == (1,)):
            values = values[expert]
        values = values.T if transposed else values
        values = values if values.ndim == 2 else values[:, None]
        want = np.stack([rows[i] for i in range(len(rows))])
        if values.shape != want.shape or not np.array_equal(values, want, equal_nan=True):
            raise Mismatch(f"unpack: {name} expert {expert} {values.shape}, oracle {want.shape}")


def apart(name):
    """A stack that keeps its name is joined to what stands behind it as its source is."""
    return name.replace("_proj_", "_proj.")


def requantized(got, want, wrong, tolerance, name_of=str):
    """Raises unless every tensor of the units `wrong` (prefix: its error) is that of the plain
    checkpoint's result, or the error is that of a scale's rounding."""
    got, want = ({name_of(name): t for name, t in of.items()} for of in (got, want))
    wrong = {name_of(prefix): error for prefix, error in wrong.items()}
    if set(got) != set(want):
        raise Mismatch(f"other names than of plain weights: {sorted(set(got) ^ set(want))[:4]}")
    for name, t in got.items():
        error = max((e for prefix, e in wrong.items() if name.startswith(prefix)), default=0)
        if error > tolerance and (t.dtype, t.shape, t.data) != (
                want[name].dtype, want[name].shape, want[name].data):
            raise Mismatch(f"{name} is neither the source's values (a row is off by {error:.2g}) "
                           "nor what plain weights become")


def pair(work, source, src, to, options, also=()):
    """None: refused. Else whether all values of the result, in `out`, are those of the source.
    also: functions of the result."""
    options = ("--to", to, "--requantize", *options)
    result = converted(work, src, "out", options)
    if result is None:
        return None
    covered(result, source)
    for check in also:
        check(work, result, src, source, options)
    wrong = {unit.prefix: e for unit in result.units if (e := error_of(unit, source)) > 0}
    biases = {unit.prefix for unit in result.units if unit.descriptor.get("bias")}
    if biases & set(wrong) and "f16" not in " ".join(options):
        raise Mismatch(f"biases are others: {biases & set(wrong)}")
    if wrong:
        again = converted(work, "plain", "again", options)
        if again is None:
            raise Mismatch(f"values differ, but the plain weights are refused: {wrong}")
        if not again.units and source.config.get("model_type") == "gpt_oss":
            return False  # plain stacks whose rows are interleaved are kept in formats of single experts
        requantized(result.tensors, again.tensors, wrong, ROUNDS.get(to, 0),
                    apart if "--no-stack" in options else str)
    return not wrong


# ---- which pairs ---------------------------------------------------------------

# Parts with one number each for all their rows, or one order of columns.
ALWAYS = ("fp8-tensor", "gptq-order", "nvfp4")
# Exact results with a scale for many rows, where gate and up meet inside a block, where there is no
# gate and where they alternate: form, model, format, and the kind of formats that these then go to.
VIA = (("mxfp4", "experts", "fp8-deepgemm-sm100", "split"),
       ("mxfp4", "ungated", "mxfp4-trtllm", "split"),
       ("mxfp4", "in-turn", "mxfp8-torchao3d", "stack"))
# Stacks that somebody else has packed are laid out as plain ones are.
PACKED = [("fp8-deepseek", "stacks", SIZES[0], to)
          for to in ("mxfp4-marlin", "mxfp8-trtllm", "w8a16-marlin-channel")]
SAMPLE = 1 / 250


class Pairs:
    def __init__(self, args):
        self.args, self.passed, self.failed, self.refused = args, 0, 0, 0
        self.sample = np.random.default_rng(args.seed)
        self.also = []
        if args.unpack:
            self.also.append(lambda work, result, *_: unpacked(work, result, "out"))
        self.listed = {f["name"]: f for f in json.loads(
            tool.run("formats", "--json").stdout)["formats"] if not f.get("input_only")}

    def chosen(self, form, model, sizes, to):
        stacks = self.listed[to]["experts"] == "stack"
        if model == "in-turn" and form != "mxfp4":
            return False
        if model in MORE and not (self.args.all or self.args.model == model or
                                  (form, model, sizes, to) in PACKED):
            return False
        if model == "in-turn" and not (stacks or self.args.all):  # others keep plain stacks
            return False
        if self.args.size not in (None, ",".join(map(str, sizes))):
            return False
        if self.args.to and to not in self.args.to.split(","):
            return False
        sampled = self.sample.random() < SAMPLE
        wanted, _, only = (self.args.only or "").partition(":")
        if self.args.model not in (None, model) or wanted not in ("", form) or only not in ("", to):
            return False
        always = (form, model, sizes, to) in PACKED or (
            sizes == SIZES[0] and model == "experts" and form in ALWAYS and stacks)
        return (sampled or always or wanted or self.args.all
                or bool(self.then(form, model, sizes, to)))

    def then(self, form, model, sizes, to):
        """The formats that the exact result of a pair goes to."""
        for *pair_of, kind in VIA:
            if [form, model, to] == pair_of and sizes == SIZES[0]:
                return [name for name, f in self.listed.items() if f["experts"] == kind]
        return []

    def settings(self, source, to):
        choices = {p["key"]: [c["name"] for c in p["choices"]]
                   for p in self.listed[to].get("params", [])}
        return (*tool.settings({key: value for key, value in source.wanted.items()
                                if value in choices.get(key, ())}),
                *(("--no-stack",) if self.args.no_stack else ()))

    def fail(self, label, text):
        self.failed += 1
        print(f"FAIL {label}: {text}", flush=True)

    def one(self, label, work, source, src, to):
        """Whether all values of the result are those of the source. None: refused, or failed."""
        try:
            exact = pair(work, source, src, to, self.settings(source, to), self.also)
        except (Mismatch, oracle.Wrong, tool.ToolError, KeyError, ValueError) as error:
            self.fail(label, f"{type(error).__name__}: {error}")
            return None
        self.passed += exact is not None
        self.refused += exact is None
        return exact

    def same_origins(self, label, work, source, to):
        """The result has the names that the source's own has, says that its weights came from the
        same rows, and its biases have no other way in."""
        options = ("--to", to, "--requantize", *self.settings(source, to))
        result = oracle.Checkpoint(tool.shards(work.at("out")))
        direct = converted(work, "src", "direct", options)
        if direct is None:
            if source.others:
                self.fail(label, "is refused of the source itself, whose weights have biases")
            return
        if set(result.tensors) != set(direct.tensors):
            self.fail(label, "has other names than of the source itself: "
                      f"{sorted(set(result.tensors) ^ set(direct.tensors))[:4]}")
        came, comes = ({u.prefix: u.sources for u in of.units} for of in (result, direct))
        other = {prefix for prefix in came.keys() & comes.keys() if came[prefix] != comes[prefix]}
        if other:
            prefix = min(other)
            self.fail(label, f"{prefix} came from {came[prefix]}, directly from {comes[prefix]}")

    def via(self, label, work, source, formats):
        """The last result as a source."""
        os.rename(work.at("out"), work.at("middle"))
        for to in formats:
            done = self.one(f"{label} to {to}", work, source, "middle", to)
            if done is not None:
                self.same_origins(f"{label} to {to}", work, source, to)
        shutil.rmtree(work.at("middle"))

    def checkpoint(self, form, model, sizes, formats):
        with tool.Workdir() as work:
            source = checkpoint(work, form, model, sizes, self.args.seed)
            for to in formats:
                label = f"{form} {model} {sizes} to {to}"
                then = self.then(form, model, sizes, to)
                exact = self.one(label, work, source, "src", to)
                if exact and (then or self.args.via):
                    self.via(label, work, source, self.listed if self.args.via else then)
                elif then:
                    self.fail(label, "is not exact, and others were to be made of it")

    def run(self):
        for form, model, sizes in itertools.product(FORMS, MODELS | MORE, SIZES):
            formats = [to for to in self.listed if self.chosen(form, model, sizes, to)]
            if formats:
                before = self.passed, self.refused
                self.checkpoint(form, model, sizes, formats)
                print(f"ok   {form} {model} {sizes}: {self.passed - before[0]} converted, "
                      f"{self.refused - before[1]} refused", flush=True)
        if self.passed <= self.refused:
            self.fail("all", f"{self.refused} refused are more than {self.passed} converted")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--all", action="store_true", help="every pair, of every model and size")
    p.add_argument("--via", action="store_true", help="exact results as sources, too")
    p.add_argument("--no-stack", action="store_true", help="convert with --no-stack")
    p.add_argument("--unpack", action="store_true", help="unpack every result")
    p.add_argument("--only", help="SOURCE[:FORMAT]")
    p.add_argument("--to", help="FORMAT,...: these alone")
    p.add_argument("--model", choices=list(MODELS | MORE))
    p.add_argument("--size", help="HIDDEN,EXPERT: of the sizes this one")
    p.add_argument("--seed", type=int, default=1)
    pairs = Pairs(p.parse_args())
    pairs.run()
    print(f"{pairs.passed} passed, {pairs.failed} failed")
    return 1 if pairs.failed else 0


if __name__ == "__main__":
    sys.exit(main())
