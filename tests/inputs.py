#!/usr/bin/env python3
"""Packed checkpoints of other tools as input, and the FP4 formats.

    inputs.py [NAME ...]      only cases whose name contains one of the words

Golden files of the original libraries where there are some; else files made here,
word by word from their descriptions, in numpy code of its own. What is taken over
must have equal codes and scales (0 bytes may differ); what is decoded must equal
refquant.py applied to the decoded values; what is refused must be refused in these
words. Ends with `N passed, N failed`. The command is TILEPACK, else build/tilepack.
"""
import glob
import json
import os
import sys

import numpy as np

import golden
import golden_data
import oracle
import refquant as rq
import stfile
import tool
from golden import Mismatch, Report
from stfile import Tensor, tensor

ROOT = golden_data.root()
CASES = []  # (name, function(report))


def case(name):
    def add(function):
        CASES.append((name, function))
        return function
    return add


def golden_case(pattern):
    def add(function):
        paths = sorted(glob.glob(os.path.join(ROOT, pattern)))
        if not paths:
            CASES.append((pattern, lambda report: (_ for _ in ()).throw(
                Mismatch("there is no such golden file"))))
        for path in paths:
            CASES.append((os.path.relpath(path, ROOT),
                          lambda report, p=path: function(report, stfile.load(p)[0])))
        return function
    return add


def same(report, name, got, array, dtype=None):
    """A Tensor against an array of its bits."""
    array = np.ascontiguousarray(array)
    if tuple(got.shape) != array.shape:
        raise Mismatch(f"{name} has shape {list(got.shape)}, not {list(array.shape)}")
    if dtype and got.dtype != dtype:
        raise Mismatch(f"{name} is {got.dtype}, not {dtype}")
    report.equal(name, got.bytes, np.frombuffer(array.tobytes(), dtype=np.uint8))


# ---- making files --------------------------------------------------------------

def random_codes(rng, n, k):
    return rng.integers(0, 16, (n, k), dtype=np.uint8)


def f16_scales(rng, *shape):
    return (rng.uniform(0.5, 1.0, shape) * np.exp2(rng.integers(-9, -3, shape))).astype(np.float16)


def gptq_words(codes):
    """[N,K] nibbles -> qweight int32 [K/8,N]: nibble i of word (w,n) is (n, 8w+i)."""
    n, k = codes.shape
    out = np.zeros((k // 8, n), dtype=np.uint32)
    for i in range(8):
        out |= codes[:, i::8].T.astype(np.uint32) << np.uint32(4 * i)
    return out.view(np.int32)


def rows_packed(values):
    """[G,N] nibbles -> int32 [G,N/8], the lowest n in the lowest bits."""
    out = np.zeros((values.shape[0], values.shape[1] // 8), dtype=np.uint32)
    for i in range(8):
        out |= (values[:, i::8].astype(np.uint32) & 15) << np.uint32(4 * i)
    return out.view(np.int32)


AWQ = [0, 2, 4, 6, 1, 3, 5, 7]


def awq_packed(values):
    """[R,N] nibbles -> int32 [R,N/8]: nibble p of word j is column 8j + AWQ[p]."""
    out = np.zeros((values.shape[0], values.shape[1] // 8), dtype=np.uint32)
    for p, column in enumerate(AWQ):
        out |= (values[:, column::8].astype(np.uint32) & 15) << np.uint32(4 * p)
    return out.view(np.int32)


def ct_zero_words(zeros):
    """[N,G] -> int32 [ceil(N/8), G], packed along N, the lowest n in the lowest bits."""
    n, g = zeros.shape
    padded = np.zeros((rq.align(n, 8), g), dtype=np.uint32)
    padded[:n] = zeros
    out = np.zeros((padded.shape[0] // 8, g), dtype=np.uint32)
    for i in range(8):
        out |= padded[i::8] << np.uint32(4 * i)
    return out.view(np.int32)


def gptq_file(name, codes, scales, zeros=None, g_idx=None):
    """scales [N,G] float16; zeros as stored: a word, an array [N,G], or None."""
    n, k = codes.shape
    groups = scales.shape[1]
    out = {f"{name}.qweight": tensor("I32", gptq_words(codes)),
           f"{name}.scales": tensor("F16", scales.T)}
    if isinstance(zeros, int):
        words = np.full((groups, n // 8), zeros, dtype=np.uint32).view(np.int32)
        out[f"{name}.qzeros"] = tensor("I32", words)
    elif zeros is not None:
        out[f"{name}.qzeros"] = tensor("I32", rows_packed(zeros.T))
    if g_idx is not None:
        out[f"{name}.g_idx"] = tensor("I32", np.asarray(g_idx, dtype=np.int32))
    elif zeros is not None:
        out[f"{name}.g_idx"] = tensor("I32", (np.arange(k) // (k // groups)).astype(np.int32))
    return out


def awq_file(name, codes, scales, zeros=None):
    n, _ = codes.shape
    if zeros is None:
        zeros = np.full((n, scales.shape[1]), 8, dtype=np.uint8)
    return {f"{name}.qweight": tensor("I32", awq_packed(codes.T)),
            f"{name}.qzeros": tensor("I32", awq_packed(zeros.T)),
            f"{name}.scales": tensor("F16", scales.T)}


def ct_file(name, codes, scales, zeros=None, g_idx=None, dtype="BF16"):
    """scales [N,G]: bf16 bits, or float16."""
    out = {f"{name}.weight_packed": tensor("I32", rq.pack_nibbles(codes)),
           f"{name}.weight_scale": tensor(dtype, scales),
           f"{name}.weight_shape": tensor("I64", np.array(codes.shape, dtype=np.int64))}
    if zeros is not None:
        out[f"{name}.weight_zero_point"] = tensor("I32", ct_zero_words(zeros))
    if g_idx is not None:
        out[f"{name}.weight_g_idx"] = tensor("I32", np.asarray(g_idx, dtype=np.int32))
    return out


def int8_file(name, codes, scales):
    return {f"{name}.weight": tensor("I8", codes.astype(np.int8) - np.int8(8)),
            f"{name}.weight_scale": tensor("BF16", scales)}


def repeated(scales, k):
    """bf16 scales of any group size, once for each 128 columns."""
    return np.repeat(scales, k // 128 // scales.shape[1], axis=1)


def to_bf16(scales):
    return scales if scales.dtype == np.uint16 else stfile.f32_to_bf16(scales.astype(np.float32))


def check_int4(report, tensors, codes, scales, extra=()):
    """Converts to both int4 formats; scales: bf16 bits [N, K/128]."""
    n, k = codes.shape
    out, _ = tool.convert_tensors(tensors, "w4a8-ct", None, extra)
    if {key.rpartition(".")[2] for key in out} != {"weight_packed", "weight_scale",
                                                   "weight_shape"}:
        raise Mismatch(f"w4a8-ct holds {sorted(out)}")
    same(report, "packed", out["x.weight_packed"], rq.pack_nibbles(codes), "I32")
    same(report, "scale", out["x.weight_scale"], scales, "BF16")
    same(report, "shape", out["x.weight_shape"], np.array([n, k], dtype=np.int64), "I64")
    if n % 16 or k % 256:
        return
    for zero in ("keep", "skip"):
        out, _ = tool.convert_tensors(tensors, "w4a8-cutlass", {"zero-groups": zero}, extra)
        want = rq.w4a8_cutlass(codes[None], scales[None], zero=zero)
        same(report, "cutlass", out["x.weight_packed"], want["weight_packed"][0], "I32")
        same(report, "group", out["x.weight_group_scale"], want["weight_group_scale"][0], "F8_E4M3")
        same(report, "chan", out["x.weight_chan_scale"], want["weight_chan_scale"][0], "F32")


# ---- int4, taken over ----------------------------------------------------------

@golden_case("w4a8/src_gptq_*.safetensors")
def gptq_golden(report, g):
    ct = stfile.load(os.path.join(ROOT, "w4a8/src_pack_quantized_n128_k512.safetensors"))[0]
    codes = rq.unpack_nibbles(ct["weight_packed"].bits)
    scales = stfile.f32_to_bf16(g["scales"].bits.T.astype(np.float32))
    for zeros, order in (("qzeros", True), ("qzeros_v2", True), ("qzeros", False), (None, False)):
        source = {"x.qweight": g["qweight"], "x.scales": g["scales"]}
        if zeros:
            source["x.qzeros"] = g[zeros]
        if order:
            source["x.g_idx"] = g["g_idx"]
        check_int4(report, source, codes, scales)
    report.equal("library", rq.pack_nibbles(codes).view(np.uint8).reshape(-1),
                 ct["weight_packed"].bytes)


@golden_case("w4a8/src_pack_quantized_*.safetensors")
def ct_golden(report, g):
    codes = rq.unpack_nibbles(g["weight_packed"].bits)
    source = {"x." + key: g[key] for key in ("weight_packed", "weight_scale", "weight_shape")}
    out, _ = tool.convert_tensors(source, "w4a8-cutlass")
    want = rq.w4a8_cutlass(codes[None], g["weight_scale"].bits[None])
    for key, dtype in (("weight_packed", "I32"), ("weight_group_scale", "F8_E4M3"),
                       ("weight_chan_scale", "F32")):
        same(report, key, out["x." + key], want[key][0], dtype)


SHAPES = [(16, 256, 128), (48, 512, 256), (112, 1280, 128), (24, 768, 384), (32, 1024, 1024),
          (128, 2304, 768), (8, 128, 128), (208, 640, 640)]


def each_shape(make, dtypes=("f16", "bf16")):
    def run(report):
        rng = np.random.default_rng(1)
        for n, k, group in SHAPES:
            for dtype in dtypes:
                codes = random_codes(rng, n, k)
                codes[0, :128] = 8  # a group of zeros
                scales = f16_scales(rng, n, k // group)
                if dtype == "bf16":
                    scales = stfile.f32_to_bf16(scales.astype(np.float32))
                made = make(rng, codes, scales)
                if made:
                    check_int4(report, made, codes, repeated(to_bf16(scales), k))
    return run


@case("gptq: every shape and group, v1 and v2")
def _(report):
    each_shape(lambda rng, c, s: gptq_file("x", c, s, 0x77777777), ("f16",))(report)
    each_shape(lambda rng, c, s: gptq_file("x", c, s, 0x88888888), ("f16",))(report)
    each_shape(lambda rng, c, s: gptq_file("x", c, s), ("f16",))(report)


@case("awq: every shape and group")
def _(report):
    each_shape(lambda rng, c, s: awq_file("x", c, s), ("f16",))(report)


@case("compressed-tensors: every shape and group, bf16 and fp16 scales")
def _(report):
    def make(_, codes, scales):
        group128 = scales.shape[1] * 128 == codes.shape[1]
        if group128 and scales.dtype == np.uint16:
            return None  # already w4a8-ct
        return ct_file("x", codes, scales, dtype="F16" if scales.dtype == np.float16 else "BF16")

    def run(rng, codes, scales):
        made = make(rng, codes, scales)
        if made and scales.shape[1] * 128 == codes.shape[1]:
            return None  # fp16 scales in groups of 128: see the next case
        return made
    each_shape(run)(report)


@case("compressed-tensors: explicit zero points of 8, a g_idx of k / group")
def _(report):
    def make(_, codes, scales):
        n, k = codes.shape
        g_idx = np.arange(k) // (k // scales.shape[1])
        zeros = np.full(scales.shape, 8, dtype=np.uint8)
        return ct_file("x", codes, scales, zeros if n % 8 == 0 else None, g_idx)
    each_shape(make, ("bf16",))(report)


@case("compressed-tensors: int8-stored int4, every shape and group")
def _(report):
    each_shape(lambda rng, c, s: int8_file("x", c, s), ("bf16",))(report)


@case("box size, thread count and instruction set change nothing")
def _(report):
    rng = np.random.default_rng(3)
    n, k = 2048, 1536
    codes, scales = random_codes(rng, n, k), f16_scales(rng, n, k // 256)
    for source in (gptq_file("x", codes, scales, 0x77777777), awq_file("x", codes, scales)):
        for extra in (("--jobs", "3", "--max-memory", "4MiB"), ("--jobs", "1")):
            check_int4(report, source, codes, repeated(to_bf16(scales), k), extra)


@case("experts of GPTQ, AWQ and compressed-tensors become w13 and w2")
def _(report):
    rng = np.random.default_rng(4)
    experts, inter, hidden = 3, 128, 256
    kinds = {"gptq": lambda *a: gptq_file(*a, 0x77777777), "awq": awq_file, "int8": None}
    for kind, make in kinds.items():
        source, codes, scales = {}, {}, {}
        for e in range(experts):
            for part, (n, k) in (("gate_proj", (inter, hidden)), ("up_proj", (inter, hidden)),
                                 ("down_proj", (hidden, inter * 2))):
                c, s = random_codes(rng, n, k), f16_scales(rng, n, k // 128)
                codes[e, part], scales[e, part] = c, to_bf16(s)
                name = f"model.layers.0.mlp.experts.{e}.{part}"
                source.update(make(name, c, s) if make else int8_file(name, c, to_bf16(s)))
        out, _ = tool.convert_tensors(source, "w4a8-cutlass")
        for stack, parts in (("w13", ("gate_proj", "up_proj")), ("w2", ("down_proj",))):
            c = np.stack([np.concatenate([codes[e, p] for p in parts]) for e in range(experts)])
            s = np.stack([np.concatenate([scales[e, p] for p in parts]) for e in range(experts)])
            want = rq.w4a8_cutlass(c, s)
            for key, array in want.items():
                same(report, f"{kind} {stack} {key}",
                     out[f"model.layers.0.mlp.experts.{stack}_{key}"], array)


# ---- int4, decoded and quantized again -----------------------------------------

def decoded(codes, scales, zeros, group):
    """bf16 values, as float32: (code - zero) * scale with the scale rounded to bf16."""
    s = stfile.bf16_to_f32(to_bf16(scales))[:, group]
    z = np.broadcast_to(zeros, scales.shape)[:, group].astype(np.float32)
    return rq.round_bf16((codes.astype(np.float32) - z) * s)


def check_requantized(report, source, values, config=None):
    """values: what is decoded, float32 that fits bf16."""
    codes, scales = rq.int4(values)
    with tool.Workdir() as work:
        os.mkdir(work.at("src"))
        stfile.save(work.at("src", "model.safetensors"), source)
        if config:
            with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
                json.dump({"quantization_config": config}, f)
        done = tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", "w4a8-ct",
                        "--include", ".", "--requantize")
        out, _ = tool.load(work.at("out"))
        same(report, "packed", out["x.weight_packed"], rq.pack_nibbles(codes), "I32")
        same(report, "scale", out["x.weight_scale"], scales, "BF16")
        after = (codes.astype(np.float64) - 8) * np.repeat(
            stfile.bf16_to_f32(scales).astype(np.float64), 128, axis=1)
        exact = values_before(source, values)
        share = 100 * np.sqrt(((after - exact) ** 2).sum() / (exact ** 2).sum())
        want = (f"tilepack: warning: 1 weights were decoded and quantized again: root mean square "
                f"error {share:.3g} % of the source's values, largest difference "
                f"{np.abs(after - exact).max():.3g} in x\n")
        if not done.stderr.endswith(want):
            raise Mismatch(f"the error is not reported: {done.stderr!r}, not {want!r}")
        out, _ = tool.convert(work.at("src"), work.at("o.safetensors"), "fp8-deepseek", None,
                              ("--include", ".", "--requantize"))
        q, s = rq.fp8_block(values)
        same(report, "fp8", out["x.weight"], q, "F8_E4M3")
        same(report, "fp8 scale", out["x.weight_scale_inv"], s, "F32")


EXACT = {}


def values_before(source, values):
    """The source's values before they were rounded to bf16."""
    return EXACT.get(id(source), values).astype(np.float64)


def remember(source, codes, scales, zeros, group):
    s = stfile.bf16_to_f32(to_bf16(scales))[:, group]
    z = np.broadcast_to(zeros, scales.shape)[:, group].astype(np.float32)
    EXACT[id(source)] = (codes.astype(np.float32) - z) * s
    return source


@case("--requantize: asymmetric GPTQ of both versions, by config.json")
def _(report):
    rng = np.random.default_rng(5)
    n, k = 64, 512
    codes, scales = random_codes(rng, n, k), f16_scales(rng, n, 4)
    stored = rng.integers(0, 16, (n, 4), dtype=np.uint8)
    group = np.arange(k) // 128
    for version, add in (("gptq", 1), ("gptq_v2", 0), (None, 1)):
        config = {"quant_method": "gptq", "bits": 4, "group_size": 128}
        if version:
            config["checkpoint_format"] = version
        source = remember(gptq_file("x", codes, scales, stored), codes, scales, stored + add, group)
        check_requantized(report, source, decoded(codes, scales, stored + add, group), config)


@case("--requantize: GPTQ act-order, and groups of 32")
def _(report):
    rng = np.random.default_rng(6)
    n, k = 40, 512
    codes = random_codes(rng, n, k)
    scales = f16_scales(rng, n, 4)
    g_idx = rng.permutation(np.arange(k) // 128)
    eight = np.uint8(8)
    source = remember(gptq_file("x", codes, scales, 0x77777777, g_idx), codes, scales, eight, g_idx)
    check_requantized(report, source, decoded(codes, scales, eight, g_idx))
    scales, group = f16_scales(rng, n, k // 32), np.arange(k) // 32
    source = remember(gptq_file("x", codes, scales, 0x88888888), codes, scales, eight, group)
    check_requantized(report, source, decoded(codes, scales, eight, group))


@case("--requantize: asymmetric AWQ")
def _(report):
    rng = np.random.default_rng(7)
    n, k = 72, 384
    codes, scales = random_codes(rng, n, k), f16_scales(rng, n, 3)
    zeros = rng.integers(0, 16, (n, 3), dtype=np.uint8)
    group = np.arange(k) // 128
    source = remember(awq_file("x", codes, scales, zeros), codes, scales, zeros, group)
    check_requantized(report, source, decoded(codes, scales, zeros, group),
                      {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True})


@case("--requantize: compressed-tensors with zero points, any number of rows, and g_idx")
def _(report):
    rng = np.random.default_rng(8)
    for n in (16, 21):
        codes = random_codes(rng, n, 512)
        scales = to_bf16(f16_scales(rng, n, 4))
        zeros = rng.integers(0, 16, (n, 4), dtype=np.uint8)
        g_idx = rng.permutation(np.arange(512) // 128)
        for order in (np.arange(512) // 128, g_idx):
            source = ct_file("x", codes, scales, zeros, order)
            remember(source, codes, scales, zeros, order)
            check_requantized(report, source, decoded(codes, scales, zeros, order))


# ---- refusals ------------------------------------------------------------------

def refused(report, tensors, to, message, hint=None, config=None, status=4, extra=()):
    """The last lines of stderr, the path before the tensor left out."""
    with tool.Workdir() as work:
        os.mkdir(work.at("src"))
        stfile.save(work.at("src", "model.safetensors"), tensors)
        if config is not None:
            with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
                json.dump({"quantization_config": config}, f)
        done = tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", to, "--include",
                        ".", "--quiet", *extra, check=False)
        text = done.stderr.replace(work.at("src") + "/", "")
        want = f"tilepack: error: {message}\n"
        if hint:
            want += f"  hint: {hint}\n"
        if done.returncode != status or not (text == want if hint else text.startswith(want)):
            raise Mismatch(f"exit {done.returncode}: {text!r}, not {want!r}")
        if os.path.exists(work.at("out")):
            raise Mismatch("there is an output")
    report.bytes += len(text)


OPTION = ("--requantize decodes it and quantizes again, and prints the error that costs; "
          "--exclude leaves it as it is")
FILE = "model.safetensors"


@case("refused: asymmetric, act-order, narrow groups")
def _(report):
    rng = np.random.default_rng(9)
    n, k = 64, 512
    codes, scales = random_codes(rng, n, k), f16_scales(rng, n, 4)
    ct = to_bf16(scales)
    mixed = np.full((n, 4), 7, dtype=np.uint8)
    mixed[3, 2] = 8  # neither all v1 nor all v2
    asym = "it is asymmetric: x.{} holds other zero points than 8"
    order = "it is in act-order: x.{} is not k / 128"
    g_idx = np.arange(k) // 128
    g_idx[[0, 511]] = g_idx[[511, 0]]
    cases = [
        ("gptq (groups of 128)", gptq_file("x", codes, scales, mixed), asym.format("qzeros")),
        ("awq (groups of 128)", awq_file("x", codes, scales, mixed), asym.format("qzeros")),
        ("awq (groups of 128)", awq_file("x", codes, scales, np.full((n, 4), 7, np.uint8)),
         asym.format("qzeros")),
        ("ct-int4 (groups of 128)", ct_file("x", codes, ct, mixed),
         asym.format("weight_zero_point")),
        ("gptq (groups of 128)", gptq_file("x", codes, scales, 0x77777777, g_idx),
         order.format("g_idx")),
        ("ct-int4 (groups of 128)", ct_file("x", codes, ct, None, g_idx),
         order.format("weight_g_idx")),
    ]
    for width in (32, 64):
        narrow = f16_scales(rng, n, k // width)
        reason = f"its groups are {width} columns wide, which is no multiple of 128"
        for kind, made in (("gptq", gptq_file("x", codes, narrow, 0x88888888)),
                           ("awq", awq_file("x", codes, narrow)),
                           ("ct-int4", ct_file("x", codes, to_bf16(narrow))),
                           ("ct-int8", int8_file("x", codes, to_bf16(narrow)))):
            cases.append((f"{kind} (groups of {width})", made, reason))
    for source, made, reason in cases:
        for to in ("w4a8-ct", "w4a8-cutlass"):
            refused(report, made, to, f"{FILE}: tensor 'x': {source} cannot be converted to {to}: "
                    f"{reason}", OPTION)
    refused(report, gptq_file("x", codes, scales, 0x77777777), "fp8-deepseek",
            f"{FILE}: tensor 'x': gptq (groups of 128) cannot be converted to fp8-deepseek: an "
            "int4 weight has to be decoded and quantized again for that", OPTION)


@case("refused: damaged or foreign tensors")
def _(report):
    rng = np.random.default_rng(10)
    n, k = 64, 512
    codes, scales = random_codes(rng, n, k), f16_scales(rng, n, 4)
    g_idx = np.arange(k) // 128
    for value in (4, -1):
        bad = g_idx.copy()
        bad[7] = value
        refused(report, gptq_file("x", codes, scales, 0x77777777, bad), "w4a8-ct",
                f"{FILE}: tensor 'x.g_idx': g_idx[7] is {value}, but there are only 4 groups",
                "get the file again: it is damaged", status=3)
    for value, shown in ((np.nan, "nan"), (np.inf, "inf"), (-0.25, "-0.25")):
        bad = scales.copy()
        bad[5, 1] = value
        for made in (gptq_file("x", codes, bad, 0x77777777), awq_file("x", codes, bad),
                     int8_file("x", codes, to_bf16(bad))):
            refused(report, made, "w4a8-cutlass", f"{FILE}: tensor 'x': one of its scales is "
                    f"{shown}: NaN, infinite and negative ones are no scales",
                    "--nonfinite keep takes it over as it is; --exclude leaves the weight out",
                    status=3)
    wide = int8_file("x", codes, to_bf16(scales))
    wide["x.weight"] = tensor("I8", np.where(codes == 3, 100, codes).astype(np.int8) - np.int8(8))
    refused(report, wide, "w4a8-ct", f"{FILE}: tensor 'x': it holds the code 92: these are 8-bit "
            "weights, not int4 ones stored as bytes",
            "only int8-stored int4 (W4AFP8) is read; --exclude leaves the weight out")
    eight_bit = gptq_file("x", codes, scales, 0x77777777)  # 8 bits: K/4 rows
    eight_bit["x.qweight"] = tensor("I32", np.repeat(eight_bit["x.qweight"].bits, 2, axis=0))
    refused(report, eight_bit, "w4a8-ct", f"{FILE}: tensor 'x.qweight': I32 [128,64] looks like the "
            "codes of a quantized weight, but with the tensors beside it it is of no format that "
            "is read here", "int4 is read from GPTQ, AWQ and compressed-tensors with 4 bits; "
            "--exclude leaves the tensor as it is")
    padded = ct_file("x", codes, to_bf16(scales))
    padded["x.weight_shape"] = tensor("I64", np.array([n, k - 8], dtype=np.int64))
    refused(report, padded, "w4a8-cutlass", f"{FILE}: tensor 'x.weight_shape': it says [64,504], "
            "but the packed codes are of [64,512]", "--exclude leaves the weight as it is")
    odd = gptq_file("x", random_codes(rng, 24, 256), f16_scales(rng, 24, 2), 0x77777777)
    refused(report, odd, "w4a8-cutlass", f"{FILE}: tensor 'x': gptq (groups of 128) cannot be "
            "converted to w4a8-cutlass: w4a8-cutlass needs N in multiples of 16, this is 24: a "
            "tile of the reordered layout is 16 output features", "--exclude leaves it as it is")


@case("config.json is checked against the tensors")
def _(report):
    rng = np.random.default_rng(11)
    n, k = 64, 512
    codes, scales = random_codes(rng, n, k), f16_scales(rng, n, 4)
    hint = 'correct "quantization_config" or take it out, then convert again'
    gptq = gptq_file("x", codes, scales, 0x77777777)
    ct = ct_file("x", codes, f16_scales(rng, n, 2), dtype="F16")
    fp8 = {"x.weight": tensor("F8_E4M3", random_codes(rng, 128, 256)),
           "x.weight_scale_inv": tensor("F32", np.ones((1, 2), np.float32))}
    group = {"weights": {"num_bits": 4, "group_size": 128, "strategy": "group"}}

    def ct_config(fmt, weights):
        return {"quant_method": "compressed-tensors", "format": fmt,
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}

    rows = [
        (gptq, {"quant_method": "awq", "bits": 4, "group_size": 128}, '"quant_method": "awq"',
         "gptq (groups of 128)"),
        (gptq, {"quant_method": "gptq", "bits": 8, "group_size": 128}, '"bits": 8',
         "gptq (groups of 128)"),
        (gptq, {"quant_method": "gptq", "bits": 4, "group_size": 64}, '"group_size": 64',
         "gptq (groups of 128)"),
        (gptq, {"quant_method": "gptq", "bits": 4, "group_size": -1}, '"group_size": -1',
         "gptq (groups of 128)"),
        (ct, ct_config("pack-quantized", group["weights"]), '"group_size": 128',
         "ct-int4 (groups of 256)"),
        (ct, ct_config("pack-quantized", {"num_bits": 8, "group_size": 256}), '"num_bits": 8',
         "ct-int4 (groups of 256)"),
        (ct, ct_config("int-quantized", {"num_bits": 4, "group_size": 256}),
         '"format": "int-quantized"', "ct-int4 (groups of 256)"),
        (fp8, {"quant_method": "fp8", "weight_block_size": [64, 128]},
         '"weight_block_size": [64,128]', "fp8-deepseek"),
    ]
    for made, config, says, source in rows:
        refused(report, made, "w4a8-cutlass", f"config.json: tensor 'x': config.json says {says}, "
                f"but the tensors are {source}", hint, config, status=3, extra=("--requantize",))
    plain = {"x.weight": stfile.from_f32("BF16", np.ones((128, 128), np.float32))}
    refused(report, plain, "w4a8-ct", 'config.json: config.json says "quant_method": "gptq", '
            '"bits": 3, but no tensors of a quantization that is read here were found',
            '`tilepack formats` lists what is read; if the weights are plain, take '
            '"quantization_config" out of config.json', {"quant_method": "gptq", "bits": 3})


@case("config.json that agrees is no obstacle")
def _(report):
    rng = np.random.default_rng(12)
    n, k = 64, 512
    codes, scales = random_codes(rng, n, k), f16_scales(rng, n, 4)
    one = f16_scales(rng, n, 1)
    rows = [
        (gptq_file("x", codes, scales, 0x77777777), scales,
         {"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "gptq_v2"}),
        (gptq_file("x", codes, one, 0x88888888), one,
         {"quant_method": "gptq", "bits": 4, "group_size": -1, "checkpoint_format": "gptq"}),
        (gptq_file("x", codes, scales, 0x77777777), scales,
         {"quant_method": "gptq", "bits": 8, "group_size": 32, "dynamic": {"+:x": {"bits": 4}}}),
        (ct_file("x", codes, to_bf16(one)), one,
         {"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {
             "a": {"format": "float-quantized", "weights": {"num_bits": 8}},
             "b": {"format": "pack-quantized", "weights": {"num_bits": 4, "group_size": None}}}}),
    ]
    for made, s, config in rows:
        with tool.Workdir() as work:
            os.mkdir(work.at("src"))
            stfile.save(work.at("src", "model.safetensors"), made)
            with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
                json.dump({"quantization_config": config, "torch_dtype": "float16"}, f)
            tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", "w4a8-ct",
                     "--include", ".", "--quiet")
            out, _ = tool.load(work.at("out"))
            same(report, "packed", out["x.weight_packed"], rq.pack_nibbles(codes))
            same(report, "scale", out["x.weight_scale"], repeated(to_bf16(s), k))
            with open(work.at("out", "config.json"), encoding="utf-8") as f:
                written = json.load(f)
            if written["quantization_config"]["format"] != "pack-quantized":
                raise Mismatch(f"config.json: {written}")


@case("plan names the source's format")
def _(report):
    rng = np.random.default_rng(13)
    codes = random_codes(rng, 64, 512)
    made = {**gptq_file("a", codes, f16_scales(rng, 64, 4), 0x77777777),
            **awq_file("b", codes, f16_scales(rng, 64, 2)),
            "c.weight": stfile.from_f32("BF16", np.ones((64, 512), np.float32))}
    want = {"a": "gptq (groups of 128)", "b": "awq (groups of 256)", "c": "BF16"}
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), made)
        args = ("plan", work.at("in.safetensors"), "--to", "w4a8-ct", "--include", ".")
        units = json.loads(tool.run(*args, "--json").stdout)["units"]
        if {u["name"]: u["source"] for u in units} != want:
            raise Mismatch(f"--json: {units}")
        text = tool.run(*args).stdout
        for source in want.values():
            if source not in text:
                raise Mismatch(f"{source} is not in the table: {text}")
        report.bytes += len(text)


# ---- fp8 sources ---------------------------------------------------------------

def e4m3_codes(rng, *shape):
    codes = rng.integers(0, 256, shape, dtype=np.uint8)
    return np.where((codes & 0x7F) == 0x7F, codes ^ 1, codes).astype(np.uint8)


def fp8_scales(rng, dtype, *shape):
    """(Tensor, float32 values)"""
    if dtype in ("F8_E8M0", "U8"):
        bits = rng.integers(110, 130, shape, dtype=np.uint8)
        return tensor(dtype, bits), rq.e8m0_value(bits)
    values = (rng.uniform(0.5, 1, shape) * np.exp2(rng.integers(-14, -6, shape)))
    t = stfile.from_f32(dtype, values.astype(np.float32))
    return t, t.f32()


@case("DeepSeek-style FP8 with scales of every kind and name, in one file or two")
def _(report):
    rng = np.random.default_rng(14)
    n, k = 256, 384
    for dtype in ("F32", "BF16", "F8_E8M0", "F16", "U8"):
        for suffix in ("weight_scale_inv", "weight_scale"):
            codes = e4m3_codes(rng, n, k)
            scale, s = fp8_scales(rng, dtype, n // 128, k // 128)
            files = ({"x.weight": tensor("F8_E4M3", codes)}, {f"x.{suffix}": scale})
            exact = rq.E4M3[codes] * rq.spread(s, 128, 128, n, k)
            fp8_targets(report, files, dtype, codes, s, exact)


def two_shards(work, files):
    os.mkdir(work.at("src"))
    weight_map = {}
    for i, part in enumerate(files):
        name = f"model-{i + 1:05}-of-{len(files):05}.safetensors"
        stfile.save(work.at("src", name), part)
        weight_map.update({key: name for key in part})
    with open(work.at("src", "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {}, "weight_map": weight_map}, f)
    return work.at("src")


def fp8_targets(report, files, dtype, codes, s, exact):
    values = rq.round_bf16(exact)
    n, _ = codes.shape
    with tool.Workdir() as work:
        src = two_shards(work, files)

        def go(to, sets=None):
            return tool.convert(src, work.at("o.safetensors"), to, sets,
                                ("--include", ".", "--force"))[0]

        for through, v in (("f32", exact), ("bf16", values)):
            out = go("fp8-deepgemm-sm100", {"requant": through})
            if dtype in ("F8_E8M0", "U8"):  # a power of two: taken over
                q, ue8m0 = codes, s
            else:
                q, ue8m0 = rq.fp8_block(v, "v2", "ue8m0")
            report.e4m3(f"{dtype} sm100", out["x.weight"], tensor("F8_E4M3", q))
            same(report, "packed", out["x.weight_scale_packed"], rq.sm100_scales(ue8m0, n), "I32")
        for rule in ("rceil", "floor"):
            q, mx = rq.mxfp8(values, rule)
            out = go("mxfp8-ct", {"scale": rule})
            report.e4m3("mxfp8-ct", out["x.weight"], tensor("F8_E4M3", q))
            same(report, "mx scale", out["x.weight_scale"], mx, "U8")
            out = go("mxfp8-blocked", {"scale": rule})
            report.e4m3("mxfp8-blocked", out["x.weight"], tensor("F8_E4M3", q))
            same(report, "mx tiles", out["x.weight_scale"], rq.tiles_128x4(mx), "U8")
        c, scale = rq.int4(values)
        out = go("w4a8-ct")
        same(report, "int4", out["x.weight_packed"], rq.pack_nibbles(c), "I32")
        same(report, "int4 scale", out["x.weight_scale"], scale, "BF16")
        want = rq.w4a8_cutlass(c[None], scale[None])
        out = go("w4a8-cutlass")
        same(report, "cutlass", out["x.weight_packed"], want["weight_packed"][0], "I32")
        same(report, "group", out["x.weight_group_scale"], want["weight_group_scale"][0])
        if dtype not in ("BF16", "F8_E8M0", "U8"):  # a bf16 scale does not hold it
            q, ct = rq.fp8_ct(values)
            out = go("fp8-ct")
            if "x.weight_scale" in out and "x.weight" in out and out["x.weight_scale"].dtype == "BF16":
                report.e4m3("fp8-ct", out["x.weight"], tensor("F8_E4M3", q))
                same(report, "fp8-ct scale", out["x.weight_scale"], ct, "BF16")


# ---- mx and nvfp4 --------------------------------------------------------------

MX_BACK = {"mxfp8-ct": "mxfp8-blocked", "mxfp4-ct": "mxfp4-blocked"}


@golden_case("mx/ct_linear_*.safetensors")
def fp4_ct_golden(report, g):
    x = {"x.weight": g["input.weight"]}
    out, _ = tool.convert_tensors(x, "mxfp4-ct")
    same(report, "mxfp4", out["x.weight_packed"], g["mxfp4.weight_packed"].bits, "U8")
    same(report, "mxfp4 scale", out["x.weight_scale"], g["mxfp4.weight_scale"].bits, "U8")
    out, _ = tool.convert_tensors(x, "nvfp4-ct")
    for key, dtype in (("weight_packed", "U8"), ("weight_scale", "F8_E4M3"),
                       ("weight_global_scale", "F32")):
        same(report, key, out["x." + key], g["nvfp4." + key].bits, dtype)
    source = {"x." + k.partition(".")[2]: t for k, t in g.items() if k.startswith("nvfp4.")}
    out, _ = tool.convert_tensors(source, "nvfp4-blocked")
    same(report, "tiles", out["x.weight_scale"], rq.tiles_128x4(g["nvfp4.weight_scale"].bits))
    same(report, "codes", out["x.weight_packed"], g["nvfp4.weight_packed"].bits)
    same(report, "global", out["x.weight_global_scale"], g["nvfp4.weight_global_scale"].bits)


@golden_case("mx/modelopt_linear_*.safetensors")
def fp4_modelopt_golden(report, g):
    x = {"x.weight": g["input.weight"]}
    out, _ = tool.convert_tensors(x, "nvfp4-blocked", {"scale": "modelopt"})
    ws2 = g["nvfp4.weight_scale_2"].bits.reshape(1)
    same(report, "global", out["x.weight_global_scale"], ws2, "F32")
    same(report, "scale", out["x.weight_scale"], rq.tiles_128x4(g["nvfp4.weight_scale"].bits))
    same(report, "codes", out["x.weight_packed"], g["nvfp4.weight"].bits)
    source = {"x." + k.partition(".")[2]: t for k, t in g.items() if k.startswith("nvfp4.")}
    out, _ = tool.convert_tensors(source, "nvfp4-blocked", {"scale": "modelopt"})
    same(report, "taken global", out["x.weight_global_scale"], ws2, "F32")
    same(report, "taken scale", out["x.weight_scale"], rq.tiles_128x4(g["nvfp4.weight_scale"].bits))
    same(report, "taken codes", out["x.weight_packed"], g["nvfp4.weight"].bits)
    for to, hint in (("nvfp4-ct", "modelopt"), ("nvfp4-blocked", "modelopt")):
        refused(report, source, to, f"{FILE}: tensor 'x': nvfp4-modelopt cannot be converted to "
                f"{to}: its global scale is a multiplier, that of the result a divisor",
                f"--set scale={hint} takes it over as it is; --requantize quantizes again")
    source = {"x." + k.partition(".")[2]: t for k, t in g.items() if k.startswith("mxfp4.")}
    out, _ = tool.convert_tensors(source, "mxfp4-ct")
    same(report, "mxfp4", out["x.weight_packed"], g["mxfp4.weight"].bits, "U8")
    same(report, "mxfp4 scale", out["x.weight_scale"], g["mxfp4.weight_scale"].bits, "U8")
    source = {"x." + k.partition(".")[2]: t for k, t in g.items() if k.startswith("mxfp8.")}
    out, _ = tool.convert_tensors(source, "mxfp8-blocked")
    report.equal("mxfp8", out["x.weight"].bytes, g["mxfp8.weight"].bytes)
    same(report, "mxfp8 tiles", out["x.weight_scale"], rq.tiles_128x4(g["mxfp8.weight_scale"].bits))


@golden_case("mx/mxfp4_torchao_*.safetensors")
def mxfp4_torchao(report, g):
    for rule, name in (("floor", "floor"), ("rceil", "rceil"), ("ceil", "ceil"), ("even", "ct")):
        out, _ = tool.convert_tensors({"x.weight": g["input"]}, "mxfp4-ct", {"scale": name})
        same(report, rule, out["x.weight_packed"], g[rule + ".q_packed"].bits, "U8")
        same(report, rule, out["x.weight_scale"], g[rule + ".scale"].bits, "U8")
        out, _ = tool.convert_tensors({"x.weight": g["input"]}, "mxfp4-blocked", {"scale": name})
        same(report, rule, out["x.weight_packed"], g[rule + ".q_packed"].bits, "U8")
        same(report, rule, out["x.weight_scale"], g[rule + ".scale_blocked"].bits, "U8")


@golden_case("mx/nvfp4_torchao_*.safetensors")
def nvfp4_torchao(report, g):
    kind = "torchao" if "per_tensor_scale" in g else "torchao-single"
    out, _ = tool.convert_tensors({"x.weight": g["input"]}, "nvfp4-blocked", {"scale": kind})
    want = g["per_tensor_scale"].bits.reshape(1) if kind == "torchao" else np.ones(1, np.float32)
    same(report, "global", out["x.weight_global_scale"], want, "F32")
    same(report, "codes", out["x.weight_packed"], g["q_packed"].bits, "U8")
    same(report, "scale", out["x.weight_scale"], g["scale_blocked"].bits, "F8_E4M3")


@golden_case("mx/gptoss_mxfp4_*.safetensors")
def gptoss(report, g):
    source = {k: t for k, t in g.items() if not k.startswith("hf_dequant")}
    with tool.Workdir() as work:
        os.mkdir(work.at("src"))
        stfile.save(work.at("src", "model.safetensors"), source)
        with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
            json.dump({"model_type": "gpt_oss", "quantization_config": {
                "quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}, f)
        tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", "mxfp4-blocked", "--quiet")
        out, _ = tool.load(work.at("out"))
        units = oracle.Checkpoint(tool.shards(work.at("out")))
        for proj in ("gate_up_proj", "down_proj"):
            at = f"model.layers.0.mlp.experts.{proj}_"
            e, n, blocks, _ = g[at + "blocks"].shape
            same(report, proj, out[at + "weight_packed"],
                 g[at + "blocks"].bits.reshape(e, n, blocks * 16), "U8")
            same(report, proj, out[at + "weight_scale"], rq.tiles_128x4(g[at + "scales"].bits), "U8")
            same(report, proj, out[at + "bias"], g[at + "bias"].bits)
            values = units.unit(at).values()  # the library's values are (E,in,out)
            same(report, "values", tensor("BF16", stfile.f32_to_bf16(values.transpose(0, 2, 1))),
                 g["hf_dequant." + proj].bits)
        out, _ = tool.convert(work.at("out"), work.at("back.safetensors"), "mxfp4-ct")
        for proj in ("gate_up_proj", "down_proj"):
            at = f"model.layers.0.mlp.experts.{proj}_"
            same(report, "back", out[at + "weight_packed"],
                 g[at + "blocks"].bits.reshape(out[at + "weight_packed"].shape), "U8")
            same(report, "back", out[at + "weight_scale"], g[at + "scales"].bits, "U8")


@golden_case("mx/gptoss_mxfp4_*.safetensors")
def gptoss_unpacked(report, g):
    """unpack gives the tensors of the plain model, as the library does."""
    with tool.Workdir() as work:
        stfile.save(work.at("a.safetensors"),
                    {k: t for k, t in g.items() if not k.startswith("hf_dequant")})
        tool.run("convert", work.at("a.safetensors"), "-o", work.at("b.safetensors"), "--to",
                 "mxfp4-blocked", "--quiet")
        for source in ("a", "b"):
            tool.run("unpack", work.at(source + ".safetensors"), "-o", work.at("c.safetensors"),
                     "--quiet", "--force")
            out, _ = tool.load(work.at("c.safetensors"))
            for proj in ("gate_up_proj", "down_proj"):
                same(report, proj, out[f"model.layers.0.mlp.experts.{proj}"],
                     g["hf_dequant." + proj].bits, "BF16")


# ---- other orientations --------------------------------------------------------

@case("experts stored (E,in,out): read, written back and compared in their own orientation")
def _(report):
    rng = np.random.default_rng(20)
    e, hidden, inter = 3, 256, 128
    at = "model.layers.0.mlp.experts."
    source = {at + "gate_up_proj": (e, hidden, 2 * inter), at + "down_proj": (e, inter, hidden)}
    source = {name: stfile.from_f32("BF16", (rng.standard_normal(shape) * 0.05).astype(np.float32))
              for name, shape in source.items()}
    logical = {name: t.f32().transpose(0, 2, 1) for name, t in source.items()}
    for model, names in (("llama4", ("w13_", "w2_")), ("gpt_oss", ("gate_up_proj_", "down_proj_"))):
        with tool.Workdir() as work:
            os.mkdir(work.at("src"))
            stfile.save(work.at("src", "model.safetensors"), source)
            with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
                json.dump({"model_type": model}, f)
            for extra in (("--jobs", "1"), ("--jobs", "3", "--max-memory", "4MiB")):
                tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", "mxfp8-blocked",
                         "--quiet", "--force", *extra)
                out, _ = tool.load(work.at("out"))
                for stored, name in zip(names, source):
                    q, s = rq.mxfp8(logical[name])
                    same(report, stored, out[f"{at}{stored}weight"], q, "F8_E4M3")
                    same(report, stored, out[f"{at}{stored}weight_scale"], rq.tiles_128x4(s), "U8")
            tool.run("verify", work.at("out"), "--against", work.at("src"))
            tool.run("unpack", work.at("out"), "-o", work.at("plain"), "--quiet")
            out, _ = tool.load(work.at("plain"))
            for name, t in source.items():
                q, s = rq.mxfp8(logical[name])
                v = rq.E4M3[q] * rq.spread(rq.e8m0_value(s), 1, 32, *q.shape[1:])
                same(report, "plain", out[name], stfile.f32_to_bf16(v.transpose(0, 2, 1)), "BF16")
                if out[name].shape != t.shape:
                    raise Mismatch(f"{name} is {out[name].shape}")
            done = tool.run("diff", work.at("src"), work.at("out"), check=False)
            if done.returncode != 1 or "2 of 2 tensors differ" not in done.stdout or \
                    done.stdout.count("mxfp8-blocked  values") != 2:
                raise Mismatch(f"diff: {done.stdout}{done.stderr}")
            if model == "llama4":
                split_experts(report, work, source, logical, at)
            else:
                done = tool.run("convert", work.at("src"), "-o", work.at("no"), "--to", "w4a8-ct",
                                "--strict", check=False)
                if done.returncode != 4 or "rows of gate and up alternate" not in done.stderr:
                    raise Mismatch(f"not refused: {done.stderr}")


def split_experts(report, work, source, logical, at):
    tool.run("convert", work.at("src"), "-o", work.at("ct"), "--to", "w4a8-ct", "--quiet")
    out, _ = tool.load(work.at("ct"))
    gate_up, down = logical.values()
    half = gate_up.shape[1] // 2
    for i in range(gate_up.shape[0]):
        for part, v in (("gate_proj", gate_up[i, :half]), ("up_proj", gate_up[i, half:]),
                        ("down_proj", down[i])):
            codes, scales = rq.int4(np.ascontiguousarray(v))
            same(report, part, out[f"{at}{i}.{part}.weight_packed"], rq.pack_nibbles(codes))
            same(report, part, out[f"{at}{i}.{part}.weight_scale"], scales)
    tool.run("unpack", work.at("ct"), "-o", work.at("plain2"), "--quiet")
    out, _ = tool.load(work.at("plain2"))
    for name, t in source.items():
        codes, scales = rq.int4(logical[name])
        v = (codes.astype(np.float32) - 8) * np.repeat(stfile.bf16_to_f32(scales), 128, axis=-1)
        same(report, "plain", out[name], stfile.f32_to_bf16(v.transpose(0, 2, 1)), "BF16")


def mx_source(rng, name, n, k):
    """Random bytes of a linear MX or NVFP4 file; {suffix: Tensor}."""
    if name == "mxfp8-ct":
        return {"weight": tensor("F8_E4M3", e4m3_codes(rng, n, k)),
                "weight_scale": tensor("U8", rng.integers(0, 255, (n, k // 32), dtype=np.uint8))}
    packed = tensor("U8", rng.integers(0, 256, (n, k // 2), dtype=np.uint8))
    if name == "mxfp4-ct":
        return {"weight_packed": packed,
                "weight_scale": tensor("U8", rng.integers(0, 255, (n, k // 32), dtype=np.uint8))}
    return {"weight_packed": packed,
            "weight_scale": tensor("F8_E4M3", rng.integers(0, 0x7F, (n, k // 16), dtype=np.uint8)),
            "weight_global_scale": stfile.from_f32("F32", rng.uniform(1, 2e4, 1).astype(np.float32))}


@case("linear and tiled scales, there and back")
def _(report):
    rng = np.random.default_rng(15)
    for name in ("mxfp8-ct", "mxfp4-ct", "nvfp4-ct"):
        tiled = name.replace("-ct", "-blocked")
        for n, k in ((1, 32), (128, 128), (130, 224), (257, 4160), (2048, 96), (640, 1024)):
            source = mx_source(rng, name, n, k)
            with tool.Workdir() as work:
                stfile.save(work.at("a.safetensors"), {"x." + s: t for s, t in source.items()})
                out, _ = tool.convert(work.at("a.safetensors"), work.at("b.safetensors"), tiled,
                                      None, ("--include", ".", "--max-memory", "4MiB"))
                for suffix, t in source.items():
                    want = t.bits
                    if suffix == "weight_scale":
                        want = rq.tiles_128x4(want)
                    same(report, f"{tiled} {suffix}", out["x." + suffix], want, t.dtype)
                back, _ = tool.convert(work.at("b.safetensors"), work.at("c.safetensors"), name,
                                       None, ("--include", "."))
                for suffix, t in source.items():
                    same(report, f"back {suffix}", back["x." + suffix], t.bits, t.dtype)


@case("e8m0 scales under other names and types")
def _(report):
    rng = np.random.default_rng(16)
    codes = tensor("F8_E4M3", e4m3_codes(rng, 64, 256))
    bits = rng.integers(0, 255, (64, 8), dtype=np.uint8)
    for suffix in ("weight_scale", "weight_scale_inv"):
        for dtype in ("U8", "F8_E8M0"):
            source = {"x.weight": codes, "x." + suffix: tensor(dtype, bits)}
            out, _ = tool.convert_tensors(source, "mxfp8-blocked")
            same(report, "codes", out["x.weight"], codes.bits)
            same(report, "tiles", out["x.weight_scale"], rq.tiles_128x4(bits), "U8")
    bad = bits.copy()
    bad[3, 3] = 255
    refused(report, {"x.weight": codes, "x.weight_scale": tensor("U8", bad)}, "mxfp8-blocked",
            f"{FILE}: tensor 'x': one of its scales is nan: NaN, infinite and negative ones are no "
            "scales", status=3)


def nvfp4_global(values_list):
    """compressed-tensors' divisor for the largest value of all of them."""
    amax = max(np.abs(v).max() for v in values_list)
    return rq.round_bf16(np.float32(2688) / np.float32(amax))


def nvfp4_with(values, g):
    n, k = values.shape
    s = rq.to_e4m3(rq.round_bf16(rq.block_amax(values, 1, 16) / np.float32(6)) * g)
    s = np.where(s == 0, np.uint8(0x20), s)
    return rq.to_e2m1(values / rq.spread(rq.E4M3[s] / g, 1, 16, n, k)), s


@case("nvfp4: fused matrices share the global scale, experts of a stack do not")
def _(report):
    rng = np.random.default_rng(17)

    def weight(n, k, size):
        return stfile.from_f32("BF16", (rng.standard_normal((n, k)) * size).astype(np.float32))

    layer = "model.layers.3."
    names = {f"{layer}self_attn.{p}_proj": weight(64, 256, 2.0 ** i)
             for i, p in enumerate(("q", "k", "v", "o"))}
    names.update({f"{layer}mlp.{p}_proj": weight(96, 256, 2.0 ** i)
                  for i, p in enumerate(("gate", "up", "down"))})
    for e in range(3):
        for i, p in enumerate(("gate", "up", "down")):
            names[f"{layer}mlp.experts.{e}.{p}_proj"] = weight(128, 256, 0.1 * (e + 1) + i)
    sets = [("q", "k", "v"), ("o",)], [("gate", "up"), ("down",)]
    groups = [[f"{layer}self_attn.{p}_proj" for p in s] for s in sets[0]]
    groups += [[f"{layer}mlp.{p}_proj" for p in s] for s in sets[1]]
    experts = [[f"{layer}mlp.experts.{e}.{p}_proj" for p in s] for e in range(3) for s in sets[1]]
    source = {name + ".weight": t for name, t in names.items()}
    for extra in ((), ("--jobs", "3", "--max-memory", "4MiB")):
        out, _ = tool.convert_tensors(source, "nvfp4-ct", None, extra)
        for group in groups + experts:
            g = nvfp4_global([names[n].f32() for n in group])
            for name in group:
                codes, s = nvfp4_with(names[name].f32(), g)
                same(report, name, out[name + ".weight_global_scale"],
                     np.full(1, g, dtype=np.float32), "F32")
                same(report, name, out[name + ".weight_scale"], s, "F8_E4M3")
                same(report, name, out[name + ".weight_packed"], rq.pack_pairs(codes), "U8")
        out, _ = tool.convert_tensors(source, "nvfp4-blocked", None, extra)
        for stack, parts in (("w13", ("gate", "up")), ("w2", ("down",))):
            at = f"{layer}mlp.experts.{stack}_"
            gs, all_codes, scales = [], [], []
            for e in range(3):
                v = np.concatenate([names[f"{layer}mlp.experts.{e}.{p}_proj"].f32() for p in parts])
                gs.append(nvfp4_global([v]))
                codes, s = nvfp4_with(v, gs[-1])
                all_codes.append(rq.pack_pairs(codes))
                scales.append(rq.tiles_128x4(s))
            same(report, at, out[at + "weight_global_scale"], np.array(gs, np.float32).reshape(-1), "F32")
            same(report, at, out[at + "weight_packed"], np.stack(all_codes), "U8")
            same(report, at, out[at + "weight_scale"], np.stack(scales), "F8_E4M3")


@case("nvfp4: experts of other tools are stacked if gate and up share their global scale")
def _(report):
    rng = np.random.default_rng(18)
    source, want = {}, []
    for e in range(2):
        shared = stfile.from_f32("F32", np.array([100.0 + e], np.float32))
        want.append(100.0 + e)
        for p in ("gate", "up", "down"):
            made = mx_source(rng, "nvfp4-ct", 128, 64)
            made["weight_global_scale"] = shared
            source.update({f"l.experts.{e}.{p}_proj.{s}": t for s, t in made.items()})
    out, _ = tool.convert_tensors(source, "nvfp4-blocked")
    same(report, "global", out["l.experts.w13_weight_global_scale"], np.array(want, np.float32))
    for e in range(2):
        rows = np.concatenate([source[f"l.experts.{e}.{p}_proj.weight_scale"].bits
                               for p in ("gate", "up")])
        got = out["l.experts.w13_weight_scale"].bits[e]
        report.equal("tiles", got, rq.tiles_128x4(rows))
    source["l.experts.1.up_proj.weight_global_scale"] = stfile.from_f32(
        "F32", np.array([7.0], np.float32))
    refused(report, source, "nvfp4-blocked", f"{FILE}: tensor 'l.experts.w13': nvfp4-ct cannot be "
            "converted to nvfp4-blocked: the global scales of l.experts.1.gate_proj and "
            "l.experts.1.up_proj differ (101 and 7), and the result has one for both",
            "--exclude leaves it as it is")
    tool.convert_tensors(source, "nvfp4-blocked", None, ("--requantize",))


@case("nvfp4 and mxfp4 of random shapes and dtypes")
def _(report):
    rng = np.random.default_rng(21)
    for _ in range(12):
        n, k = int(rng.integers(1, 300)), 32 * int(rng.integers(1, 40))
        for dtype in ("BF16", "F16", "F32"):
            x = (rng.standard_normal((n, k)) * 2.0 ** rng.integers(-12, 3, (n, 1)))
            x = stfile.from_f32(dtype, np.where(rng.random((n, 1)) < 0.1, 0, x).astype(np.float32))
            source, v = {"x.weight": x}, x.f32()
            out, _ = tool.convert_tensors(source, "nvfp4-ct", None, ("--max-memory", "4MiB"))
            with np.errstate(divide="ignore"):
                g = np.float32(2688) / np.float32(np.abs(v).max())
            g = stfile.from_f32(dtype, np.array([g])).f32()
            g = g if np.isfinite(g) else np.ones(1, np.float32)
            codes, s = nvfp4_with(v, g)
            same(report, "global", out["x.weight_global_scale"], g, "F32")
            same(report, "scale", out["x.weight_scale"], s, "F8_E4M3")
            same(report, "codes", out["x.weight_packed"], rq.pack_pairs(codes), "U8")
            for rule in ("ct", "rceil", "floor", "ceil"):
                out, _ = tool.convert_tensors(source, "mxfp4-blocked", {"scale": rule})
                codes, s = rq.mxfp4(v, rule)
                same(report, rule, out["x.weight_packed"], rq.pack_pairs(codes), "U8")
                same(report, rule, out["x.weight_scale"], rq.tiles_128x4(s), "U8")


@case("scales of another type or name are mended where that costs nothing")
def _(report):
    rng = np.random.default_rng(22)
    codes, scales = random_codes(rng, 64, 512), f16_scales(rng, 64, 4)
    check_int4(report, ct_file("x", codes, scales, dtype="F16"), codes, to_bf16(scales))
    q = e4m3_codes(rng, 128, 256)
    for dtype in ("BF16", "F8_E8M0"):
        scale, s = fp8_scales(rng, dtype, 1, 2)
        out, _ = tool.convert_tensors({"x.weight": tensor("F8_E4M3", q),
                                       "x.weight_scale_inv": scale}, "fp8-deepseek")
        same(report, "codes", out["x.weight"], q)
        same(report, "scale", out["x.weight_scale_inv"], s, "F32")
    bits = rng.integers(0, 255, (128, 8), dtype=np.uint8)
    out, _ = tool.convert_tensors({"x.weight": tensor("F8_E4M3", q),
                                   "x.weight_scale_inv": tensor("F8_E8M0", bits)}, "mxfp8-ct")
    same(report, "scale", out["x.weight_scale"], bits, "U8")


@case("unpack: every input format")
def _(report):
    rng = np.random.default_rng(23)
    codes, scales = random_codes(rng, 64, 512), f16_scales(rng, 64, 4)
    zeros = rng.integers(0, 16, (64, 4), dtype=np.uint8)
    group, order = np.arange(512) // 128, rng.permutation(np.arange(512) // 128)
    eight, one = np.uint8(8), f16_scales(rng, 64, 1)
    rows = [
        (gptq_file("x", codes, scales, 0x77777777), decoded(codes, scales, eight, group)),
        (gptq_file("x", codes, scales, zeros, order), decoded(codes, scales, zeros + 1, order)),
        (awq_file("x", codes, scales, zeros), decoded(codes, scales, zeros, group)),
        (ct_file("x", codes, to_bf16(one)), decoded(codes, one, eight, group * 0)),
        (ct_file("x", codes, to_bf16(scales), zeros), decoded(codes, scales, zeros, group)),
        (int8_file("x", codes, to_bf16(scales)), decoded(codes, scales, eight, group)),
    ]
    for name, width in (("mxfp8-ct", 32), ("mxfp4-ct", 32), ("nvfp4-ct", 16)):
        made = mx_source(rng, name, 64, 512)
        s = made["weight_scale"].bits
        s = rq.E4M3[s] / made["weight_global_scale"].bits if width == 16 else rq.e8m0_value(s)
        if name == "mxfp8-ct":
            v = rq.E4M3[made["weight"].bits]
        else:
            packed = made["weight_packed"].bits
            v = rq.E2M1[np.stack([packed & 15, packed >> 4], axis=-1).reshape(64, 512)]
        with np.errstate(over="ignore"):
            v = rq.round_bf16(v * rq.spread(s.astype(np.float32), 1, width, 64, 512))
        rows.append(({"x." + key: t for key, t in made.items()}, v))
    for source, values in rows:
        with tool.Workdir() as work:
            stfile.save(work.at("a.safetensors"), source)
            tool.run("unpack", work.at("a.safetensors"), "-o", work.at("b.safetensors"), "--quiet")
            out, _ = tool.load(work.at("b.safetensors"))
        if list(out) != ["x.weight"]:
            raise Mismatch(f"unpack left {list(out)}")
        same(report, "values", out["x.weight"], stfile.f32_to_bf16(values), "BF16")


@case("nvfp4 and mxfp4: the oracle decodes from the descriptors alone")
def _(report):
    rng = np.random.default_rng(19)
    x = stfile.from_f32("BF16", (rng.standard_normal((96, 160)) * 0.05).astype(np.float32))
    v = x.f32()
    rows = [("nvfp4-ct", "ct"), ("nvfp4-blocked", "ct"), ("nvfp4-blocked", "modelopt"),
            ("nvfp4-blocked", "torchao"), ("mxfp4-ct", "rceil"), ("mxfp4-blocked", "floor")]
    for to, scale in rows:
        with tool.Workdir() as work:
            stfile.save(work.at("a.safetensors"), {"x.weight": x})
            tool.convert(work.at("a.safetensors"), work.at("b.safetensors"), to,
                         None if to == "nvfp4-ct" else {"scale": scale}, ("--include", "."))
            got = oracle.Checkpoint([work.at("b.safetensors")]).unit("x.").values()[0]
        error = np.sqrt(((got - v) ** 2).sum() / (v ** 2).sum())
        if not 0.02 < error < 0.2:
            raise Mismatch(f"{to} {scale}: decoded values differ by {error}")
        if to == "nvfp4-ct":
            codes, s, g = rq.nvfp4_ct(x.bits)
            want = rq.E2M1[codes] * rq.spread(rq.E4M3[s] / g, 1, 16, 96, 160)
            same(report, "values", tensor("F32", got), want.astype(np.float32))
        report.bytes += got.nbytes


@case("config.json of nvfp4-ct and mxfp4-ct")
def _(report):
    want = {
        "nvfp4-ct": ("nvfp4-pack-quantized", {
            "num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
            "symmetric": True, "dynamic": False, "scale_dtype": "torch.float8_e4m3fn"}),
        "mxfp4-ct": ("mxfp4-pack-quantized", {
            "num_bits": 4, "type": "float", "strategy": "group", "group_size": 32,
            "symmetric": True, "dynamic": False, "scale_dtype": "torch.uint8"}),
    }
    x = stfile.from_f32("BF16", np.ones((128, 128), np.float32))
    for to, (name, weights) in want.items():
        with tool.Workdir() as work:
            os.mkdir(work.at("src"))
            stfile.save(work.at("src", "model.safetensors"),
                        {"model.layers.0.mlp.up_proj.weight": x, "lm_head.weight": x})
            with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
                json.dump({"model_type": "llama"}, f)
            tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", to, "--quiet")
            with open(work.at("out", "config.json"), encoding="utf-8") as f:
                config = json.load(f)["quantization_config"]
        if config != {"quant_method": "compressed-tensors", "format": name, "ignore": ["lm_head"],
                      "quantization_status": "compressed",
                      "config_groups": {"group_0": {"targets": ["Linear"], "format": name,
                                                    "weights": weights}}}:
            raise Mismatch(f"{to}: {config}")
        report.bytes += 1


def main():
    wanted = sys.argv[1:]
    passed = failed = 0
    for name, function in CASES:
        if wanted and not any(word in name for word in wanted):
            continue
        report = Report()
        try:
            function(report)
            if not report.bytes:
                raise Mismatch("nothing was compared")
        except (Mismatch, tool.ToolError, oracle.Wrong, KeyError, ValueError) as error:
            failed += 1
            print(f"FAIL {name}: {type(error).__name__}: {error}", flush=True)
        else:
            passed += 1
            print(f"ok   {name} {report.bytes} bytes", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
