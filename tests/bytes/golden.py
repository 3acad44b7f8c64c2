#!/usr/bin/env python3
"""Every golden file through the tilepack command, byte for byte.

    golden.py [FORMAT ...]      only goldens of these formats; default: all

Builds a .safetensors input from a golden's input tensors, converts it with the
settings the golden was made with, and compares every output tensor: 0 bytes may
differ. NaN bytes of e4m3 are compared modulo their sign, NaN scales as NaN, as
golden/README.md says. Whole checkpoints are golden_checkpoints.py's. One line per
golden and format, then `N passed, N failed`. The command is TILEPACK, else
build/tilepack.
"""
import glob
import os
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import golden_data
import refquant as rq
import stfile
import tool
from stfile import Tensor, tensor

ROOT = golden_data.root()
CASES = []  # (format, label, function)


class Mismatch(Exception):
    pass


class Report:
    """Comparisons of one case."""

    def __init__(self):
        self.bytes = 0

    def exact(self, name, got, want, shape=None):
        """`want`: a Tensor, compared with dtype (U8 stands for any byte type)."""
        if want.dtype not in ("U8", got.dtype) and not (want.dtype == "I32" == got.dtype):
            raise Mismatch(f"{name} is {got.dtype}, not {want.dtype}")
        if shape is not None and tuple(got.shape) != tuple(shape):
            raise Mismatch(f"{name} has shape {list(got.shape)}, not {list(shape)}")
        self.equal(name, got.bytes, want.bytes)

    def equal(self, name, a, b, same=None):
        if a.size != b.size:
            raise Mismatch(f"{name} has {a.size} bytes, not {b.size}")
        different = a != b
        if same is not None:
            different &= ~same
        bad = np.flatnonzero(different)
        if bad.size:
            i = bad[0]
            raise Mismatch(f"{name}: {bad.size} of {a.size} bytes differ, the first at byte {i} "
                           f"(0x{a[i]:02x}, golden 0x{b[i]:02x})")
        self.bytes += a.size

    def e4m3(self, name, got, want, shape=None):
        """Codes; NaN is written as 0x7F here and may have any sign in the golden."""
        if got.dtype != "F8_E4M3":
            raise Mismatch(f"{name} is {got.dtype}, not F8_E4M3")
        if shape is not None and tuple(got.shape) != tuple(shape):
            raise Mismatch(f"{name} has shape {list(got.shape)}, not {list(shape)}")
        a, b = got.bytes, want.bytes
        same = (a == 0x7F) & ((b & 0x7F) == 0x7F) if a.size == b.size else None
        self.equal(name, a, b, same)

    def f32(self, name, got, want, shape=None):
        if got.dtype != "F32":
            raise Mismatch(f"{name} is {got.dtype}, not F32")
        if shape is not None and tuple(got.shape) != tuple(shape):
            raise Mismatch(f"{name} has shape {list(got.shape)}, not {list(shape)}")
        a, b = got.bytes, want.bytes
        same = None
        if a.size == b.size:
            nan = np.isnan(got.bits.reshape(-1)) & np.isnan(want.bits.reshape(-1))
            same = np.repeat(nan, 4)
        self.equal(name, a, b, same)


def case(to, pattern):
    """Registers function(report, golden tensors) for every golden file that matches."""
    def add(function):
        paths = sorted(glob.glob(os.path.join(ROOT, pattern)))
        if not paths:
            CASES.append((to, pattern, lambda report: (_ for _ in ()).throw(
                Mismatch("there is no such golden file"))))
        for path in paths:
            label = os.path.relpath(path, ROOT)
            CASES.append((to, label, lambda report, p=path: function(report, stfile.load(p)[0])))
        return function
    return add


# ---- int4 ----------------------------------------------------------------------

@case("w4a8-ct", "ct4/ct4_*.safetensors")
def int4_ct(report, g):
    n, k = g["input"].shape
    for quotient, want in (("fp32", "weight_packed_f32div"), ("bf16", "weight_packed")):
        for sets in ({"quotient": quotient},) + (({},) if quotient == "fp32" else ()):
            out, _ = tool.convert_tensors({"x.weight": g["input"]}, "w4a8-ct", sets)
            report.exact("weight_packed", out["x.weight_packed"], g[want], (n, k // 8))
            report.exact("weight_scale", out["x.weight_scale"], g["weight_scale"], (n, k // 128))
            report.exact("weight_shape", out["x.weight_shape"], g["weight_shape"], (2,))


def ct_file(words, scale):
    """The tensors of a w4a8-ct weight, from kernel words (two's complement)."""
    shape = np.array([words.shape[-2], words.shape[-1] * 8], dtype=np.int64)
    packed = (words.bits.view(np.uint32) ^ np.uint32(0x88888888)).view(np.int32)
    return {"x.weight_packed": tensor("I32", packed), "x.weight_scale": scale,
            "x.weight_shape": tensor("I64", shape)}


def random_scales(shape):
    rng = np.random.default_rng(7)
    return stfile.from_f32("BF16", rng.uniform(0.001, 0.02, shape).astype(np.float32))


@case("w4a8-cutlass", "w4a8/w4a8_e*.safetensors")
def w4a8_reorder(report, g):
    e, n, words = g["input"].shape
    scale = random_scales((e, n, words // 16))
    out, _ = tool.convert_tensors(ct_file(g["input"], scale), "w4a8-cutlass")
    report.exact("weight_packed", out["x.weight_packed"], g["expected"], (e, n, words))
    report.exact("weight_layout", out["x.weight_layout"], g["layout"], (e, 3))
    if e == 1:  # the same as a 2-D weight
        flat = ct_file(Tensor("I32", (n, words), g["input"].data),
                       Tensor("BF16", scale.shape[1:], scale.data))
        out, _ = tool.convert_tensors(flat, "w4a8-cutlass")
        report.exact("2-D weight_packed", out["x.weight_packed"], g["expected"], (n, words))
        report.exact("2-D weight_layout", out["x.weight_layout"], g["layout"], (1, 3))


def random_words(shape):
    rng = np.random.default_rng(8)
    return tensor("I32", rng.integers(0, 1 << 32, shape, dtype=np.uint32).view(np.int32))


def w4a8_scales(report, g, sets, codes, channel):
    """`codes`, `channel`: the golden's tensors for these settings."""
    e, n, groups = g["weight_scale"].shape
    source = ct_file(random_words((e, n, groups * 16)), g["weight_scale"])
    out, _ = tool.convert_tensors(source, "w4a8-cutlass", sets)
    packed = rq.group8(g[codes].bits)
    want = Tensor("F8_E4M3", packed.shape, packed.tobytes())
    report.exact("group_scale", out["x.weight_group_scale"], want, (e, groups, n, 8))
    report.f32("chan_scale", out["x.weight_chan_scale"], g[channel], (e, n, 1))
    return out["x.weight_group_scale"]


@case("w4a8-cutlass", "w4a8/scale_chain_e*.safetensors")
def w4a8_scales_cpu(report, g):
    for how, codes in (("cpu", "rcp"), ("rcp", "rcp"), ("div", "div")):
        got = w4a8_scales(report, g, {"scale": how}, f"group_scale_{codes}", "chan_scale")
        if how == "div":
            report.exact("packed_scales", got, g["packed_scales_div"])


@case("w4a8-cutlass", "w4a8/scale_chain_gpu_*.safetensors")
def w4a8_scales_gpu(report, g):
    for sets in ({}, {"scale": "gpu"}):
        got = w4a8_scales(report, g, sets, "group_scale_gpu", "chan_scale_gpu")
        report.exact("packed_scales", got, g["packed_scales_gpu"])


@case("w4a8-cutlass", "w4a8/scale_table_256.safetensors")
def w4a8_table(report, g):
    """Rows whose largest scale is 448 have sc = 1, so every group scale up to 56 can
    be asked for exactly: 0x00 .. 0x66 of the table."""
    with open(os.path.join(ROOT, "w4a8/scale_table_256x8.bin"), "rb") as f:
        table = np.frombuffer(f.read(), dtype=np.uint8).reshape(256, 8)
    report.exact("table", tensor("F8_E4M3", table), g["packed_scales"])
    codes = np.zeros((16, 8), dtype=np.uint8)
    codes[:, 0] = 0x66
    codes[:, 1:] = np.resize(np.arange(0x67, dtype=np.uint8), (16, 7))
    scale = stfile.from_f32("BF16", rq.E4M3[codes] * np.float32(8))
    for how in ("gpu", "cpu", "div"):
        out, _ = tool.convert_tensors(ct_file(random_words((16, 128)), scale), "w4a8-cutlass",
                                      {"scale": how})
        got = out["x.weight_group_scale"].bits.reshape(8, 16, 8)
        report.equal("rows", got.reshape(-1), table[codes.T].reshape(-1))


@case("w4a8-cutlass", "w4a8/src_pack_quantized*.safetensors")
def w4a8_from_ct(report, g):
    source = {"x." + name: g[name] for name in ("weight_packed", "weight_scale", "weight_shape")}
    out, _ = tool.convert_tensors(source, "w4a8-cutlass")
    codes = rq.unpack_nibbles(g["input"].bits)[None] ^ 8
    want = rq.w4a8_cutlass(codes, g["weight_scale"].bits[None])
    report.equal("weight_packed", out["x.weight_packed"].bytes,
                 tensor("I32", want["weight_packed"]).bytes)
    report.equal("group_scale", out["x.weight_group_scale"].bytes,
                 tensor("U8", want["weight_group_scale"]).bytes)
    report.f32("chan_scale", out["x.weight_chan_scale"], tensor("F32", want["weight_chan_scale"]))


# ---- fp8 -----------------------------------------------------------------------

VARIANTS = {"v2": {"variant": "v2"}, "seed": {"variant": "seed"}, "div": {"variant": "div"},
            "cuda": {}, "ue8m0": {"scale": "ue8m0", "variant": "v2"}}


def fp8_inputs(g):
    return sorted(n[:-2] for n in g if n.endswith(".x"))


def fp8_golden(report, g, to, by_row=False):
    """All inputs of a file at once for each variant. by_row: every row is a weight
    of its own, whose 128x128 blocks are then 1x128 blocks."""
    names = fp8_inputs(g)
    source = {f"{n}.weight": g[n + ".x"] for n in names}
    if by_row:
        source = {f"{n}.r{i}.weight": tensor("BF16", row[None])
                  for n in names for i, row in enumerate(g[n + ".x"].bits)}
    for variant, sets in VARIANTS.items():
        with_it = [n for n in names if f"{n}.{variant}.scale_inv" in g]
        if not with_it:
            continue
        out, _ = tool.convert_tensors(source, to, sets, ("--nonfinite", "keep"))
        for n in with_it:
            at = f"{n}.{variant}."
            q = g.get(at + "q") or g[at + "q_sat"]
            if by_row:
                rows = [out[f"{n}.r{i}.weight"].data for i in range(q.shape[0])]
                scales = [out[f"{n}.r{i}.weight_scale_inv"].data for i in range(q.shape[0])]
                got = Tensor("F8_E4M3", q.shape, b"".join(rows))
                scale = Tensor("F32", g[at + "scale_inv"].shape, b"".join(scales))
            else:
                got, scale = out[n + ".weight"], None
            report.e4m3(at + "q", got, q, q.shape)
            fp8_scales(report, g, out, n, at, scale)


def fp8_scales(report, g, out, n, at, scale):
    if scale is not None:
        report.f32(at + "scale_inv", scale, g[at + "scale_inv"])
    elif n + ".weight_scale_inv" in out:
        want = g[at + "scale_inv"]
        report.f32(at + "scale_inv", out[n + ".weight_scale_inv"], want, want.shape)
    else:  # fp8-1x128
        phys = rq.mn_aligned(g[at + "scale_inv"].bits)
        report.f32(at + "scale", out[n + ".weight_scale"], tensor("F32", phys), phys.shape)
        if at + "scale_phys" in g:
            report.f32(at + "phys", out[n + ".weight_scale"], g[at + "scale_phys"])


for _name in ("wblock", "wblock_edges", "specials_block"):
    case("fp8-deepseek", f"fp8/{_name}.safetensors")(
        lambda report, g: fp8_golden(report, g, "fp8-deepseek"))
for _name in ("act1x128", "specials_rows"):
    case("fp8-1x128", f"fp8/{_name}.safetensors")(
        lambda report, g: fp8_golden(report, g, "fp8-1x128"))
case("fp8-deepseek", "fp8/specials_rows.safetensors")(
    lambda report, g: fp8_golden(report, g, "fp8-deepseek", by_row=True))


@case("fp8-deepseek", "fp8/cast_e4m3.safetensors")
def fp8_cast(report, g):
    """A block whose largest value is 448 has scale 1: its codes are plain casts."""
    for kind in ("bf16", "f32"):
        x, want = g[kind + ".in"], g[kind + ".e4m3_sat"].bits
        fits = np.abs(x.f32()) <= 448
        bits = x.bits[fits]
        top = {"bf16": np.uint16(0x43E0), "f32": np.float32(448)}[kind]
        rows = -(-bits.size // 127)  # a row of 128 values begins with 448
        block = np.full((rows, 128), top, dtype=bits.dtype)
        codes = np.full((rows, 128), 0x7E, dtype=np.uint8)
        inner = np.zeros(rows * 127, dtype=bits.dtype)
        inner[:bits.size] = bits
        coded = np.zeros(rows * 127, dtype=np.uint8)
        coded[:bits.size] = want[fits]
        block[:, 1:], codes[:, 1:] = inner.reshape(rows, 127), coded.reshape(rows, 127)
        for sets in VARIANTS.values():
            if sets.get("variant", "cuda") in ("seed", "cuda"):
                continue  # there 1/448 is rounded before it is used
            out, _ = tool.convert_tensors({"x.weight": tensor(x.dtype, block)}, "fp8-deepseek",
                                          sets)
            report.e4m3(kind, out["x.weight"], tensor("F8_E4M3", codes), codes.shape)


@case("fp8-deepseek", "fp8/ue8m0_ceil.safetensors")
def fp8_ceil(report, g):
    """Scales that some amax / 448 hits exactly, one block of 128 columns each."""
    want = g["in_bits"].bits.view(np.float32)
    with np.errstate(all="ignore"):
        amax = (np.abs(want) * np.float32(448)).astype(np.float32)
        usable = (want > 0) & np.isfinite(amax) & (amax / np.float32(448) == want) & (amax >= 1e-4)
    if np.count_nonzero(usable) < 500:
        raise Mismatch("too few scales can be reached")
    row = np.repeat(amax[usable], 128)[None]
    out, _ = tool.convert_tensors({"x.weight": tensor("F32", row)}, "fp8-deepseek",
                                  {"scale": "ue8m0"})
    report.f32("scale", out["x.weight_scale_inv"],
               tensor("F32", g["out"].bits[usable][None]), (1, np.count_nonzero(usable)))


@case("fp8-deepgemm-sm100", "fp8/requant_ue8m0.safetensors")
def fp8_requant(report, g):
    for name in ("c0", "c1", "experts"):
        source = {"x.weight": g[name + ".q_in"], "x.weight_scale_inv": g[name + ".scale_inv_in"]}
        for through in ("f32", "bf16"):
            at = f"{name}.{through}."
            if at + "q" not in g:
                continue
            out, _ = tool.convert_tensors(source, "fp8-deepgemm-sm100", {"requant": through},
                                          ("--requantize",))
            want = g[at + "scale_packed_phys"]
            report.e4m3(at + "q", out["x.weight"], g[at + "q"], g[at + "q"].shape)
            report.exact(at + "packed", out["x.weight_scale_packed"], want, want.shape)


@case("fp8-deepgemm-sm100", "fp8/wblock*.safetensors")
def fp8_sm100(report, g):
    """From bf16: the codes of the ue8m0 variant, its scales repeated and packed."""
    names = fp8_inputs(g)
    out, _ = tool.convert_tensors({n + ".weight": g[n + ".x"] for n in names},
                                  "fp8-deepgemm-sm100")
    for n in names:
        q = g[n + ".ue8m0.q"]
        packed = rq.sm100_scales(g[n + ".ue8m0.scale_inv"].bits, q.shape[0])
        report.e4m3(n + ".q", out[n + ".weight"], q, q.shape)
        report.exact(n + ".packed", out[n + ".weight_scale_packed"], tensor("I32", packed),
                     packed.shape)


@case("fp8-ct", "ct4/fp8block_*.safetensors")
def fp8_ct(report, g):
    for quotient, want in (("fp32", "weight_f32div"), ("bf16", "weight")):
        out, _ = tool.convert_tensors({"x.weight": g["input"]}, "fp8-ct", {"quotient": quotient})
        report.e4m3("weight", out["x.weight"], g[want], g[want].shape)
        report.exact("weight_scale", out["x.weight_scale"], g["weight_scale"],
                     g["weight_scale"].shape)


# ---- mx ------------------------------------------------------------------------

@case("mxfp8-ct", "ct4/mxfp8_*.safetensors")
def mx_ct(report, g):
    """Groups from 1.75 * 2^127 on overflow the library's scale: refused, unless kept."""
    extra = ()
    if (np.abs(g["input"].f32()) >= 1.75 * 2.0 ** 127).any():
        extra = ("--nonfinite", "keep")
        try:
            tool.convert_tensors({"x.weight": g["input"]}, "mxfp8-ct", {"scale": "ct"})
        except tool.ToolError as error:
            if error.status != 3:
                raise
        else:
            raise Mismatch("a group whose scale the rule cannot hold was not refused")
    out, _ = tool.convert_tensors({"x.weight": g["input"]}, "mxfp8-ct", {"scale": "ct"}, extra)
    report.e4m3("weight", out["x.weight"], g["weight_f32div"], g["weight"].shape)
    report.exact("weight_scale", out["x.weight_scale"], g["weight_scale"],
                 g["weight_scale"].shape)


@case("mxfp8-ct", "mx/ct_linear_*.safetensors")
def mx_ct_linear(report, g):
    out, _ = tool.convert_tensors({"x.weight": g["input.weight"]}, "mxfp8-ct", {"scale": "ct"})
    report.e4m3("weight", out["x.weight"], g["mxfp8.weight"], g["mxfp8.weight"].shape)
    report.exact("scale", out["x.weight_scale"], g["mxfp8.weight_scale"],
                 g["mxfp8.weight_scale"].shape)


@case("mxfp8-ct", "mx/modelopt_linear_*.safetensors")
def mx_modelopt(report, g):
    out, _ = tool.convert_tensors({"x.weight": g["input.weight"]}, "mxfp8-ct")
    report.e4m3("weight", out["x.weight"], g["mxfp8.weight"], g["mxfp8.weight"].shape)
    report.exact("scale", out["x.weight_scale"], g["mxfp8.weight_scale"],
                 g["mxfp8.weight_scale"].shape)


@case("mxfp8-ct", "mx/mxfp8_2d_*.safetensors")
def mx_kwise_linear(report, g):
    n, k = g["input"].shape
    for rule in ("rceil", "floor"):
        out, _ = tool.convert_tensors({"x.weight": g["input"]}, "mxfp8-ct", {"scale": rule},
                                      ("--nonfinite", "keep"))
        report.e4m3(rule, out["x.weight"], g[rule + ".dim0.q"], (n, k))
        report.exact(rule, out["x.weight_scale"], g[rule + ".dim0.scale_logical"], (n, k // 32))


@case("mxfp8-blocked", "mx/mxfp8_2d_*.safetensors")
def mx_kwise_blocked(report, g):
    n, k = g["input"].shape
    for rule in ("rceil", "floor"):
        out, _ = tool.convert_tensors({"x.weight": g["input"]}, "mxfp8-blocked", {"scale": rule},
                                      ("--nonfinite", "keep"))
        want = g[rule + ".dim0.scale_blocked"]
        report.e4m3(rule, out["x.weight"], g[rule + ".dim0.q"], (n, k))
        report.exact(rule, out["x.weight_scale"], want, want.shape)


@case("mxfp8-torchao3d", "mx/mxfp8_2d_[!3]*.safetensors")  # 33 rows are not whole blocks
def mx_nwise_2d(report, g):
    n, k = g["input"].shape
    stack = Tensor(g["input"].dtype, (1, n, k), g["input"].data)
    for rule in ("rceil", "floor"):
        for source in (g["input"], stack):
            out, _ = tool.convert_tensors({"x.weight": source}, "mxfp8-torchao3d",
                                          {"scale": rule}, ("--nonfinite", "keep"))
            report.e4m3(rule, out["x.weight"], g[rule + ".dim1.q_storage_KM"])
            report.exact(rule, out["x.weight_scale"], g[rule + ".dim1.scale_blocked"])


@case("mxfp8-torchao3d", "mx/mxfp8_3d_nwise_*.safetensors")
def mx_nwise_3d(report, g):
    e, n, k = g["input"].shape
    for rule in ("rceil", "floor"):
        for block, at in (("32x1", rule), ("32x32", rule + ".32x32")):
            if at + ".q_storage_EKN" not in g:
                continue
            sets = {"scale": rule, "block": block}
            out, _ = tool.convert_tensors({"x.weight": g["input"]}, "mxfp8-torchao3d", sets,
                                          ("--nonfinite", "keep"))
            want = g[at + ".scale_blocked"]
            report.e4m3(at, out["x.weight"], g[at + ".q_storage_EKN"], (e, k, n))
            report.exact(at, out["x.weight_scale"], want, want.shape)


@case("mxfp8-ct", "mx/mxfp8_semantic_cases_*.safetensors")
def mx_semantic(report, g):
    for rule in ("rceil", "floor"):
        out, _ = tool.convert_tensors({"x.weight": g["input." + rule]}, "mxfp8-ct",
                                      {"scale": rule}, ("--nonfinite", "keep"))
        report.e4m3(rule, out["x.weight"], g[rule + ".q_expected"], (18, 32))
        report.exact(rule, out["x.weight_scale"], g[rule + ".scale_expected"], (18, 1))


@case("mxfp8-ct", "mx/e4m3_cast_sweep.safetensors")
def mx_cast(report, g):
    """Blocks that begin with 448 have scale 1 under both rules: plain casts."""
    bits = np.arange(1 << 18, dtype=np.uint32) << 14
    with np.errstate(invalid="ignore"):
        fits = np.abs(bits.view(np.float32)) <= 448
    rows = -(-np.count_nonzero(fits) // 31)
    values = np.zeros(rows * 31, dtype=np.uint32)
    codes = np.zeros(rows * 31, dtype=np.uint8)
    values[:np.count_nonzero(fits)] = bits[fits]
    codes[:np.count_nonzero(fits)] = g["e4m3"].bits[fits]
    block = np.full((rows, 32), 0x43E00000, dtype=np.uint32)
    want = np.full((rows, 32), 0x7E, dtype=np.uint8)
    block[:, 1:], want[:, 1:] = values.reshape(rows, 31), codes.reshape(rows, 31)
    for rule in ("rceil", "floor"):
        out, _ = tool.convert_tensors({"x.weight": tensor("F32", block.view(np.float32))},
                                      "mxfp8-ct", {"scale": rule})
        report.e4m3(rule, out["x.weight"], tensor("F8_E4M3", want), want.shape)


@case("mxfp8-blocked", "mx/layout_random_bytes.safetensors")
def mx_tiles(report, g):
    """Random scale bytes of an mxfp8-ct file into tiles, and back."""
    for name in sorted(n[:-7] for n in g if n.endswith(".linear") and n[0].isdigit()):
        rows, cols = g[name + ".linear"].shape
        codes = np.arange(rows * cols * 32, dtype=np.uint32).astype(np.uint8) & 0x77
        source = {"x.weight": tensor("F8_E4M3", codes.reshape(rows, cols * 32)),
                  "x.weight_scale": g[name + ".linear"]}
        out, _ = tool.convert_tensors(source, "mxfp8-blocked", None, ("--nonfinite", "keep"))
        report.exact(name, out["x.weight_scale"], g[name + ".blocked"])
        report.exact(name, out["x.weight"], source["x.weight"], (rows, cols * 32))


def main():
    wanted = sys.argv[1:]
    known = sorted({to for to, _, _ in CASES})
    for name in wanted:
        if name not in known:
            sys.exit(f"golden.py: no golden belongs to '{name}'; there are: {' '.join(known)}")
    passed = failed = 0
    for to, label, function in CASES:
        if wanted and to not in wanted:
            continue
        report = Report()
        try:
            function(report)
            if not report.bytes:
                raise Mismatch("nothing was compared")
        except (Mismatch, tool.ToolError, KeyError, ValueError) as error:
            failed += 1
            print(f"FAIL {to:18} {label}: {type(error).__name__}: {error}", flush=True)
        else:
            passed += 1
            print(f"ok   {to:18} {label} {report.bytes} bytes", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
