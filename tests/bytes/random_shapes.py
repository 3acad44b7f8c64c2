#!/usr/bin/env python3
"""Random weights through the tilepack command, every format against the oracle.

    random_shapes.py [--seconds S] [--seed N] [--only JOB[:INDEX]] [JOB ...]

Each round makes a file of a few weights with random shapes, dtypes and contents,
converts it with random settings, thread count, box sizes (through --max-memory) and
instruction sets, FORMAT+SEARCH with a search of scales and random importance, and checks that
every output tensor holds the bytes of refquant.py (and refsearch.py), that the safetensors library
reads the file, and that oracle.py decodes from the stored descriptors alone exactly
the values of refquant.py. Rounds are numbered; the same seed and number give the
same round. Ends with `N passed, N failed` (weights).
"""
import argparse
import math
import sys
import time

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import oracle
import refhumming as rh
import refquant as rq
import refsearch as rs
import stfile
import tool
from stfile import tensor


class Mismatch(Exception):
    pass


# ---- contents ------------------------------------------------------------------

def normal(rng, shape, dtype):
    x = rng.standard_normal(shape) * 0.02 * np.exp(rng.standard_normal(shape[:-1] + (1,)) * 0.5)
    return stfile.from_f32(dtype, x.astype(np.float32))


def any_bits(rng, shape, dtype):
    """Every finite pattern alike, up to a size that no rule overflows at."""
    if dtype == "F16":
        bits = rng.integers(0, 1 << 16, shape, dtype=np.uint16)
        bits = np.where((bits & 0x7C00) == 0x7C00, bits & 0x8000, bits)
        return tensor("F16", bits.astype(np.uint16).view(np.float16))
    exponent = rng.integers(0, 250, shape, dtype=np.uint32)
    low = rng.integers(0, 1 << 23, shape, dtype=np.uint32)
    sign = rng.integers(0, 2, shape, dtype=np.uint32)
    bits = (sign << 31) | (exponent << 23) | low
    if dtype == "BF16":
        return tensor("BF16", (bits >> 16).astype(np.uint16))
    return tensor("F32", bits.view(np.float32))


def near_ties(rng, shape, dtype):
    """Small multiples of half a step, where rounding rules differ."""
    x = rng.integers(-30, 31, shape).astype(np.float32) / 2 * np.exp2(
        rng.integers(-10, 3, shape[:-1] + (1,)).astype(np.float32))
    return stfile.from_f32(dtype, x.astype(np.float32))


def sparse(rng, shape, dtype):
    """Many zeros of both signs, whole blocks of them, and subnormals."""
    x = rng.standard_normal(shape).astype(np.float32)
    x *= rng.random(shape) < 0.1
    x[..., :shape[-1] // 2] *= rng.random() < 0.5
    tiny = rng.random(shape) < 0.02
    x = np.where(tiny, np.float32(3e-40 if dtype != "F16" else 2e-7), x)
    return stfile.from_f32(dtype, np.where(rng.random(shape) < 0.5, x, -x))


def outliers(rng, shape, dtype):
    x = rng.standard_normal(shape) * np.where(rng.random(shape) < 0.01, 300, 1)
    return stfile.from_f32(dtype, x.astype(np.float32))


CONTENTS = [normal, any_bits, near_ties, sparse, outliers]


# ---- formats -------------------------------------------------------------------

def u8(array):
    return tensor("F8_E4M3", array)


def int_scale(scale, sets):
    """The stored scales as a tensor, and their values."""
    f16 = sets.get("scales") == "f16"
    return tensor("F16", scale.view(np.float16)) if f16 else tensor("BF16", scale), \
        rq.INT_SCALES["f16" if f16 else "bf16"][1](scale)


def packed_integers(x, sets, bits, group):
    group = x.shape[-1] if group == "channel" else int(group)
    codes, scale = rq.integers(x, bits, sets.get("quotient", "fp32"), group,
                               sets.get("scales", "bf16"))
    stored, value = int_scale(scale, sets)
    q = codes.astype(np.float32) - np.float32(1 << bits - 1)
    words = rq.pack_nibbles(codes) if bits == 4 else np.ascontiguousarray(codes).view(np.int32)
    return {"weight_packed": tensor("I32", words), "weight_scale": stored,
            "weight_shape": tensor("I64", np.array(x.shape[-2:], dtype=np.int64))}, \
        q * rq.spread(value, 1, group, *x.shape[-2:])


def w4a16_ct(x, sets):
    return packed_integers(x, sets, 4, sets.get("group", "128"))


def w8a16_ct(x, sets):
    return packed_integers(x, sets, 8, sets.get("group", "channel"))


def group_of(x, sets):
    group = sets.get("group", "128")
    return x.shape[-1] if group == "channel" else int(group)


def grouped_int4(x, sets):
    """Codes, scales as stored [K/G, N] and the values of gptq and awq."""
    group = group_of(x, sets)
    f16 = {"scales": sets.get("scales", "f16")}
    codes, scale = rq.integers(x, 4, sets.get("quotient", "fp32"), group, f16["scales"])
    stored, value = int_scale(np.ascontiguousarray(scale.T), f16)
    values = (codes.astype(np.float32) - 8) * rq.spread(value.T, 1, group, *x.shape)
    return codes, stored, values


def gptq(x, sets):
    n, k = x.shape
    codes, scales, values = grouped_int4(x, sets)
    group = group_of(x, sets)
    return {"qweight": tensor("I32", np.ascontiguousarray(rq.pack_nibbles(codes).T)),
            "scales": scales,
            "qzeros": tensor("I32", np.full((k // group, n // 8), 0x77777777, np.int32)),
            "g_idx": tensor("I32", (np.arange(k) // group).astype(np.int32))}, values


def awq(x, sets):
    n, k = x.shape
    codes, scales, values = grouped_int4(x, sets)
    words = np.zeros((k, n // 8), dtype=np.uint32)
    for nibble, column in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
        words |= codes[column::8].T.astype(np.uint32) << np.uint32(4 * nibble)
    zeros = np.full((k // group_of(x, sets), n // 8), 0x88888888, np.uint32)
    return {"qweight": tensor("I32", words.view(np.int32)), "scales": scales,
            "qzeros": tensor("I32", zeros.view(np.int32))}, values


def int8_ct(x, sets):
    codes, scale = rq.integers(x, 8, sets.get("quotient", "fp32"), x.shape[-1],
                               sets.get("scales", "bf16"))
    stored, value = int_scale(scale, sets)
    q = (codes ^ 128).view(np.int8)
    return {"weight": tensor("I8", q), "weight_scale": stored}, q.astype(np.float32) * value


def w4a8_cutlass(x, sets):
    codes, scale = rq.int4(x, sets.get("quotient", "fp32"))
    return w4a8_from_codes(codes, scale, sets)


def w4a8_from_codes(codes, scale, sets):
    flat = codes.ndim == 2
    if flat:
        codes, scale = codes[None], scale[None]
    out = rq.w4a8_cutlass(codes, scale, sets.get("scale", "gpu"), sets.get("zero-groups", "keep"))
    values = rq.w4a8_values(codes, out["weight_group_scale"], out["weight_chan_scale"])
    cut = (lambda a: a[0]) if flat else (lambda a: a)
    return {"weight_packed": tensor("I32", cut(out["weight_packed"])),
            "weight_layout": tensor("I32", out["weight_layout"]),
            "weight_group_scale": u8(cut(out["weight_group_scale"])),
            "weight_chan_scale": tensor("F32", cut(out["weight_chan_scale"]))}, cut(values)


def w4a16_humming(x, sets):
    group, flat = int(sets.get("group", "128")), x.ndim == 2
    codes, scale = rq.integers(x[None] if flat else x, 4, sets.get("quotient", "fp32"), group,
                               sets.get("scales", "bf16"))
    n, k = x.shape[-2:]
    rows, columns = rq.align(n, rh.ROWS), rq.align(k, rh.COLUMNS)
    value = int_scale(scale, sets)[1]
    values = (codes.astype(np.float32) - 8) * rq.spread(value, 1, group, n, k)
    words = rh.codes(rh.padded(codes, rows, columns))
    scale = rh.scales(scale, rows, columns // group)
    words, scale, values = (a[0] if flat else a for a in (words, scale, values))
    return {"weight_packed": tensor("I32", words), "weight_scale": int_scale(scale, sets)[0]}, values


def fp8_deepseek(x, sets):
    codes, s = rq.fp8_block(x, sets.get("variant", "cuda"), sets.get("scale", "fp32"))
    return {"weight": u8(codes), "weight_scale_inv": tensor("F32", s)}, rq.fp8_dequant(codes, s)


def fp8_ct(x, sets):
    codes, s = rq.fp8_ct(x, sets.get("quotient", "fp32"))
    return {"weight": u8(codes), "weight_scale": tensor("BF16", s)}, \
        rq.fp8_dequant(codes, rq.bf16_to_f32(s))


def fp8_dynamic_ct(x, sets):
    codes, s = rq.fp8_ct(x, sets.get("quotient", "fp32"), 1, x.shape[-1])
    return {"weight": u8(codes), "weight_scale": tensor("BF16", s)}, \
        rq.fp8_dequant(codes, rq.bf16_to_f32(s), 1, x.shape[-1])


def fp8_1x128(x, sets):
    codes, s = rq.fp8_block(x, sets.get("variant", "cuda"), sets.get("scale", "fp32"), bn=1)
    return {"weight": u8(codes), "weight_scale": tensor("F32", rq.mn_aligned(s))}, \
        rq.fp8_dequant(codes, s, 1)


def fp8_tensor_ct(x, sets):
    """One scale, that of all values."""
    codes, s = rq.fp8_ct(x, sets.get("quotient", "fp32"), *x.shape[-2:])
    return {"weight": u8(codes), "weight_scale": tensor("BF16", s.reshape(1))}, \
        rq.E4M3[codes] * rq.bf16_to_f32(s)


def fp8_sm100(x, _sets):
    codes, s = rq.fp8_block(x, "v2", "ue8m0")
    return sm100_outputs(codes, s)


def sm100_outputs(codes, s):
    return {"weight": u8(codes),
            "weight_scale_packed": tensor("I32", rq.sm100_scales(s, codes.shape[-2]))}, \
        rq.fp8_dequant(codes, s)


def mx_values(codes, s, bn=1, bk=32):
    return rq.E4M3[codes] * rq.spread(rq.e8m0_value(s), bn, bk, *codes.shape[-2:])


def mxfp8_ct(x, sets):
    codes, s = rq.mxfp8(x, sets.get("scale", "rceil"))
    return {"weight": u8(codes), "weight_scale": tensor("U8", s)}, mx_values(codes, s)


def mxfp8_blocked(x, sets):
    codes, s = rq.mxfp8(x, sets.get("scale", "rceil"))
    return {"weight": u8(codes), "weight_scale": tensor("U8", rq.tiles_128x4(s))}, \
        mx_values(codes, s)


def mxfp8_torchao3d(x, sets):
    block, rule = sets.get("block", "32x1"), sets.get("scale", "rceil")
    stored, tiles = rq.mx_nwise(x, rule, block)
    bk = 32 if block == "32x32" else 1
    codes, s = rq.mxfp8(x, rule, 32, bk)
    return {"weight": u8(stored), "weight_scale": tensor("U8", tiles)}, mx_values(codes, s, 32, bk)


QUOTIENT = {"quotient": ["fp32", "bf16"]}
GROUP = {"group": ["128", "64", "32", "channel"]}
SCALES = {"scales": ["bf16", "f16"]}
RULES = {"scale": ["rceil", "floor", "ct"]}
W4A8 = {"scale": ["gpu", "cpu", "div"], "zero-groups": ["keep", "skip"]}
FP8 = {"variant": ["v2", "seed", "div", "cuda", "seed-cuda"], "scale": ["fp32"]}

# step and largest multiple of N and of K, ranks, settings, expected outputs
FORMATS = {
    "w4a8-ct": ((1, 200), (128, 7), (2,), QUOTIENT, w4a16_ct),
    "w4a16-ct": ((1, 200), (128, 9), (2,), {**QUOTIENT, **GROUP, **SCALES}, w4a16_ct),
    "gptq": ((8, 20), (128, 5), (2,), {**QUOTIENT, **GROUP, **SCALES}, gptq),
    "awq": ((8, 20), (128, 5), (2,), {**QUOTIENT, **GROUP, **SCALES}, awq),
    "w8a16-ct": ((1, 100), (128, 5), (2,), {**QUOTIENT, **GROUP, **SCALES}, w8a16_ct),
    "int8-ct": ((1, 200), (1, 1000), (2,), {**QUOTIENT, **SCALES}, int8_ct),
    "w4a8-cutlass": ((16, 9), (128, 7), (2, 3), {**QUOTIENT, **W4A8}, w4a8_cutlass),
    "w4a16-humming": ((8, 40), (128, 5), (2, 3),
                      {**QUOTIENT, **SCALES, "group": ["128", "64", "32"]}, w4a16_humming),
    "fp8-deepseek": ((1, 400), (1, 600), (2,), FP8, fp8_deepseek),
    "mxfp8-blocked": ((1, 300), (32, 20), (2, 3), RULES, mxfp8_blocked),
    "mxfp8-torchao3d": ((32, 9), (1, 300), (2, 3), {"scale": ["rceil", "floor"]},
                        mxfp8_torchao3d),
    "fp8-ct": ((1, 400), (1, 600), (2,), QUOTIENT, fp8_ct),
    "fp8-dynamic-ct": ((1, 400), (1, 2000), (2,), QUOTIENT, fp8_dynamic_ct),
    "fp8-tensor-ct": ((1, 300), (1, 1000), (2,), QUOTIENT, fp8_tensor_ct),
    "fp8-deepgemm-sm90": ((1, 300), (1, 600), (2, 3), {"variant": FP8["variant"]},
                          fp8_deepseek),
    "fp8-deepgemm-sm100": ((1, 300), (1, 1200), (2, 3), {}, fp8_sm100),
    "fp8-1x128": ((1, 100), (1, 1200), (2, 3), FP8, fp8_1x128),
    "mxfp8-ct": ((1, 300), (32, 20), (2,), RULES, mxfp8_ct),
}


def source_plain(x, _sets, expect):
    return {"weight": x}, expect(x.f32(), _sets)


def source_int4(x, sets, _expect):
    """A w4a8-ct weight as the source: codes and scales are taken over."""
    codes, scale = rq.int4(x.f32())
    tensors = {"weight_packed": tensor("I32", rq.pack_nibbles(codes)),
               "weight_scale": tensor("BF16", scale),
               "weight_shape": tensor("I64", np.array(x.shape[-2:], dtype=np.int64))}
    return tensors, w4a8_from_codes(codes, scale, sets)


def source_mx(x, sets, expect):
    return mxfp8_ct(x.f32(), sets)[0], expect(x.f32(), sets)


def source_fp8(x, sets, _expect):
    """fp8-deepseek as the source, quantized once more with power-of-two scales."""
    codes, s = rq.fp8_block(x.f32())
    again = rq.requant_ue8m0(codes, s, sets.get("requant", "f32"))
    return {"weight": u8(codes), "weight_scale_inv": tensor("F32", s)}, sm100_outputs(*again)


# other sources for a format: name of the job -> (format, settings, ranks, source)
SOURCES = {
    "w4a8-cutlass<w4a8-ct": ("w4a8-cutlass", W4A8, (2, 3), source_int4),
    "mxfp8-blocked<mxfp8-ct": ("mxfp8-blocked", {}, (2,), source_mx),
    "fp8-deepgemm-sm100<fp8-deepseek": ("fp8-deepgemm-sm100", {"requant": ["f32", "bf16"]},
                                        (2, 3), source_fp8),
}


# ---- searched ------------------------------------------------------------------
# Functions of values, settings, importance (as in refsearch.py) and whether scales may be
# negative; the stored dtype of the values matters to NVFP4's global scale alone.

def int4_tensors(codes, scale, shape):
    q = codes.astype(np.float32) - np.float32(8)
    return {"weight_packed": tensor("I32", rq.pack_nibbles(codes)),
            "weight_scale": tensor("BF16", scale),
            "weight_shape": tensor("I64", np.array(shape[-2:], dtype=np.int64))}, \
        q * rq.spread(rq.bf16_to_f32(scale), 1, 128, *shape[-2:])


def int4_mse(x, sets, h, signed):
    values = x.f32()
    return int4_tensors(*rs.int4_mse(values, sets.get("quotient", "fp32"), signed, h), values.shape)


def w4a16_mse(x, sets, h, signed):
    values = x.f32()
    group = group_of(values, sets)
    codes, scale = rs.int4_mse(values, sets.get("quotient", "fp32"), signed, h, group,
                               sets.get("scales", "bf16"))
    stored, value = int_scale(scale, sets)
    q = codes.astype(np.float32) - np.float32(8)
    return {"weight_packed": tensor("I32", rq.pack_nibbles(codes)), "weight_scale": stored,
            "weight_shape": tensor("I64", np.array(codes.shape[-2:], dtype=np.int64))}, \
        q * rq.spread(value, 1, group, *codes.shape[-2:])


def int4_w4a8(x, sets, h, signed):
    values = x.f32()
    return int4_tensors(*rs.int4_w4a8(values, sets.get("quotient", "fp32"), signed, h),
                        values.shape)


def cutlass_searched(x, sets, h, signed):
    rule = sets.get("scale", "gpu")
    return w4a8_from_codes(*rs.int4_w4a8(x.f32(), sets.get("quotient", "fp32"), signed, h, rule),
                           {"scale": rule})


def mxfp4_searched(x, sets, h, _signed):
    codes, s = rs.mxfp4_mse(x.f32(), sets.get("scale", "even"), h)
    return {"weight_packed": tensor("U8", rq.pack_pairs(codes)), "weight_scale": tensor("U8", s)}, \
        rq.E2M1[codes] * rq.spread(rq.e8m0_value(s), 1, 32, *codes.shape[-2:])


def nvfp4_global(x):
    """G of rule ct, section 5.5: rounded to the dtype of the weight after each step."""
    to = {"F32": np.asarray, "F16": np.float16, "BF16": rq.round_bf16}[x.dtype]
    with np.errstate(all="ignore"):
        inverse = to(np.float32(1) / np.abs(x.f32()).max(keepdims=True)).astype(np.float32)
        g = to(inverse * np.float32(2688)).astype(np.float32).ravel()[0]
    return g if np.isfinite(g) else np.float32(1)


def nvfp4_searched(x, _sets, h, _signed):
    g = nvfp4_global(x)
    codes, s = rs.nvfp4(x.f32(), g, "ct", True, h)
    return {"weight_packed": tensor("U8", rq.pack_pairs(codes)),
            "weight_scale": tensor("F8_E4M3", s),
            "weight_global_scale": tensor("F32", np.array([g], np.float32))}, \
        rq.E2M1[codes] * rq.spread(rq.E4M3[s] / g, 1, 16, *codes.shape[-2:])


# name of the job -> (format, search, N, K, settings, expected outputs)
SEARCHED = {
    "w4a8-ct+mse": ("w4a8-ct", "mse", (1, 60), (128, 5), QUOTIENT, int4_mse),
    "w4a16-ct+mse": ("w4a16-ct", "mse", (1, 60), (128, 5), {**QUOTIENT, **GROUP, **SCALES},
                     w4a16_mse),
    "w4a8-ct+w4a8": ("w4a8-ct", "w4a8", (1, 40), (128, 5), QUOTIENT, int4_w4a8),
    "w4a8-cutlass+w4a8": ("w4a8-cutlass", "w4a8", (16, 3), (128, 5),
                          {**QUOTIENT, "scale": W4A8["scale"]}, cutlass_searched),
    "mxfp4-ct+mse": ("mxfp4-ct", "mse", (1, 100), (32, 20), {}, mxfp4_searched),
    "nvfp4-ct+mse": ("nvfp4-ct", "mse", (1, 100), (16, 40), {}, nvfp4_searched),
}


class Job:
    def __init__(self, name):
        self.name, self.search = name, None
        self.to, params, ranks, self.source = name, None, None, source_plain
        if name in SEARCHED:
            self.to, self.search, self.n, self.k, self.params, self.expect = SEARCHED[name]
            self.ranks = (2,)
            return
        if name in SOURCES:
            self.to, params, ranks, self.source = SOURCES[name]
        self.n, self.k, format_ranks, format_params, self.expect = FORMATS[self.to]
        self.ranks = ranks or format_ranks
        self.params = format_params if params is None else params


class Search:
    """How one round is searched: options of the command, and the numbers of its file."""

    def __init__(self, rng, job):
        self.kind = job.search and str(rng.choice(["none", "magnitude", "file"]))
        self.signed = bool(job.search and job.to.startswith("w4a") and rng.integers(2))
        self.words = ["--search", job.search or "none"] + ["--signed"] * self.signed
        self.file = {}

    def importance(self, rng, name, k):
        """As refsearch.py takes it; a file has no numbers for some weights."""
        if self.kind != "file":
            return "magnitude" if self.kind == "magnitude" else None
        if self.file and rng.integers(4) == 0:
            return None
        h = rng.lognormal(0, 2, k) * (rng.random(k) < 0.9)
        self.file[name] = tensor("F32", h.astype(np.float32))
        return self.file[name].bits

    def options(self, path):
        """Writes the file; (those of convert, those of verify)."""
        if not self.kind:
            return self.words, []
        if not self.file:
            return self.words + ["--importance", self.kind], []
        stfile.save(path, self.file)
        return self.words + ["--importance", path], ["--importance", path]


# ---- a round -------------------------------------------------------------------

def pick_size(rng, step_most):
    """A multiple of the step, small sizes and multiples of 128 more often."""
    step, most = step_most
    kind = rng.integers(3)
    if kind == 0:
        count = rng.integers(1, min(most, 8) + 1)
    elif kind == 1:
        unit = 128 // math.gcd(128, step)
        count = unit * rng.integers(1, max(1, most // unit) + 1)
    else:
        count = rng.integers(1, most + 1)
    return step * int(count)


def pick_sets(rng, job):
    sets = {}
    for key, choices in job.params.items():
        if rng.random() < 0.7:
            sets[key] = str(rng.choice(choices))
    if job.to in ("fp8-deepseek", "fp8-1x128") \
            and not sets.get("variant", "cuda").startswith("seed") \
            and rng.random() < 0.4:
        sets["scale"] = "ue8m0"
    if job.to == "mxfp8-torchao3d" and rng.random() < 0.4:
        sets["block"] = "32x32"
    return sets


def make_round(rng, job):
    """(input tensors, {name: (expected outputs, expected values)}, settings, search)."""
    sets, search = pick_sets(rng, job), Search(rng, job)
    tensors, expected = {}, {}  # t0, t1: names w1 and w3 would be gate and up, which share a G
    large = 1 if rng.random() > 0.05 else 4
    for i in range(int(rng.integers(1, 5)) if large == 1 else 1):
        n, k = (pick_size(rng, (step, large * most)) for step, most in (job.n, job.k))
        if sets.get("block") == "32x32":
            k = rq.align(k, 32)
        shape = (n, k)
        if rng.choice(job.ranks) == 3:
            shape = (int(rng.integers(1, 5)), n, k)
        content, dtype = rng.choice(CONTENTS), str(rng.choice(["BF16", "F16", "F32"]))
        if content is any_bits and "scales" in job.params and sets.get("scales") != "bf16":
            dtype = "F16"  # others have blocks that no scale in F16 reaches
        x = content(rng, shape, dtype)
        if job.search:
            h = search.importance(rng, f"t{i}.weight", shape[-1])
            made, want = {"weight": x}, job.expect(x, sets, h, search.signed)
        else:
            made, want = job.source(x, sets, job.expect)
        tensors.update((f"t{i}.{suffix}", t) for suffix, t in made.items())
        expected[f"t{i}."] = want
    return tensors, expected, sets, search


def check_outputs(prefix, want, got):
    for suffix, t in want.items():
        mine = got.get(prefix + suffix)
        if mine is None:
            raise Mismatch(f"there is no {prefix + suffix}")
        if (mine.dtype, mine.shape) != (t.dtype, t.shape):
            raise Mismatch(f"{prefix + suffix} is {mine.dtype} {mine.shape}, "
                           f"not {t.dtype} {t.shape}")
        if mine.data != t.data:
            bad = np.flatnonzero(mine.bytes != t.bytes)
            raise Mismatch(f"{prefix + suffix} {mine.dtype} {mine.shape}: {bad.size} bytes "
                           f"differ, the first at {bad[0]} (0x{mine.bytes[bad[0]]:02x}, oracle "
                           f"0x{t.bytes[bad[0]]:02x})")


def check_values(unit_values, want, prefix):
    want = want if want.ndim == 3 else want[None]
    if not np.array_equal(unit_values, want, equal_nan=True):
        raise Mismatch(f"{prefix} decodes to other values")


def run_round(job, rng):
    tensors, expected, sets, search = make_round(rng, job)
    extra = ["--include", ".", "--jobs", str(rng.integers(1, 4)), "--quiet", "--requantize",
             *tool.settings(sets)]
    if rng.random() < 0.5:
        extra += ["--max-memory", "32MiB"]  # the smallest boxes
    env = {"TILEPACK_DISABLE": str(rng.choice(["", "avx512", "avx512,avx2"]))}
    with tool.Workdir() as work:
        src, dst = work.at("in.safetensors"), work.at("out.safetensors")
        stfile.save(src, tensors)
        searched, proved = search.options(work.at("importance"))
        label = " ".join(extra[5:] + searched) + " " + env["TILEPACK_DISABLE"]
        tool.run("convert", src, "-o", dst, "--to", job.to, *tool.weights_only(job.to), *extra,
                 *searched, env=env)
        got, _ = tool.load(dst)
        checkpoint = oracle.Checkpoint([dst])
        tool.run("verify", dst, "--against", src, "--quiet", *proved)
    try:
        names = {prefix + suffix for prefix, (want, _) in expected.items() for suffix in want}
        if set(got) != names:
            raise Mismatch(f"tensors {sorted(set(got) ^ names)} are too many or missing")
        for prefix, (want, values) in expected.items():
            check_outputs(prefix, want, got)
            check_values(checkpoint.unit(prefix).values(), values, prefix)
    except Mismatch as error:
        shapes = {n: (t.dtype, t.shape) for n, t in tensors.items()}
        raise Mismatch(f"{error} [{label.strip()}] {shapes}") from error
    return len(expected)


def run_job(job, seed, seconds, only):
    passed = failed = 0
    until, index = time.monotonic() + seconds, 0 if only is None else only
    while True:
        rng = np.random.default_rng([seed, sum(map(ord, job.name)), index])
        try:
            passed += run_round(job, rng)
        except (Mismatch, oracle.Wrong, tool.ToolError, KeyError, ValueError) as error:
            failed += 1
            print(f"FAIL --seed {seed} --only '{job.name}:{index}': {type(error).__name__}: "
                  f"{error}", flush=True)
        index += 1
        if only is not None or failed >= 3 or time.monotonic() > until:
            return passed, failed, index


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=60, help="for all formats together")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", help="JOB:INDEX, one round")
    p.add_argument("job", nargs="*", help="formats, FORMAT<SOURCE or FORMAT+SEARCH")
    a = p.parse_args()
    only = None
    if a.only:
        name, _, number = a.only.partition(":")
        a.job, only = [name], int(number or 0)
    names = a.job or list(FORMATS) + list(SOURCES) + list(SEARCHED)
    total = [0, 0]
    for name in names:
        job = Job(name)
        passed, failed, rounds = run_job(job, a.seed, a.seconds / len(names), only)
        total[0] += passed
        total[1] += failed
        print(f"{'FAIL' if failed else 'ok  '} {name} {passed} weights, {rounds} rounds",
              flush=True)
    print(f"{total[0]} passed, {total[1]} failed")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
