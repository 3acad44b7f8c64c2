#!/usr/bin/env python3
"""Proves the tests' own oracle, refquant.py and refsearch.py against every golden file with 0
differing bytes, and oracle.py on descriptors made by hand.

Nothing of the tool takes part. One line per golden file, then `N passed, N failed`
(comparisons). NaN codes are compared
modulo their sign, NaN scales as NaN; the goldens' README says so.
"""
import glob
import os
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import golden_data
import oracle
import refquant as rq
import reffeedback as rf
import refsearch as rs
import stfile
from stfile import load


class Tally:
    def __init__(self):
        self.passed = self.failed = 0

    def same(self, what, got, want):
        """want: Tensor; got: array of its bits."""
        got = np.ascontiguousarray(got)
        a, b = np.frombuffer(got.tobytes(), np.uint8), want.bytes
        ok = a.size == b.size
        if ok and want.dtype == "F32":
            x, y = a.view(np.uint32), b.view(np.uint32)
            nan = np.isnan(x.view(np.float32)) & np.isnan(y.view(np.float32))
            bad = int(np.count_nonzero((x != y) & ~nan))
        elif ok:
            bad = int(np.count_nonzero(a != b))
        else:
            bad = f"{a.size} bytes against {b.size}"
        self.note(what, ok and bad == 0, bad)

    def same8(self, what, got, want):
        """Like same() for e4m3 codes: NaN modulo bit 7."""
        a, b = np.ascontiguousarray(got).reshape(-1), want.bytes
        nan = ((a & 0x7F) == 0x7F) & ((b & 0x7F) == 0x7F) if a.size == b.size else None
        bad = int(np.count_nonzero((a != b) & ~nan)) if nan is not None else "size"
        self.note(what, bad == 0, bad)

    def note(self, what, good, bad=""):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print(f"  FAIL {what}: {bad} differ")


def w4a8(t, path, g):
    if "expected" in g:
        codes = rq.unpack_nibbles(g["input"].bits) ^ 8
        t.same("expected", rq.w4a8_reorder(rq.w4a8_encode(codes)), g["expected"])
        t.same("layout", rq.w4a8_layout_words(*codes.shape), g["layout"])
        t.same("packed_scales", rq.group8(g["scales"].bits), g["packed_scales"])
    elif "chan_scale" in g or "chan_scale_gpu" in g:
        rules = ("gpu",) if "chan_scale_gpu" in g else ("div", "cpu")
        for how in rules:
            scale, chan = rq.channel_scale(g["weight_scale"].bits, how)
            name = {"cpu": "rcp"}.get(how, how)
            t.same(f"group_scale_{name}", scale, g[f"group_scale_{name}"])
            t.same(f"chan_scale {how}", chan, g["chan_scale_gpu" if how == "gpu" else "chan_scale"])
        packed = f"packed_scales_{rules[0]}"
        t.same(packed, rq.group8(g[f"group_scale_{rules[0]}"].bits), g[packed])
    elif "scales" in g and "packed_scales" in g:
        t.same("table", rq.group8(g["scales"].bits), g["packed_scales"])
        with open(os.path.join(os.path.dirname(path), "scale_table_256x8.bin"), "rb") as f:
            t.same("table.bin", rq.group8(np.arange(256, dtype=np.uint8)),
                   stfile.Tensor("U8", (256, 8), f.read()))
    elif "weight_packed" in g:
        t.same("input", rq.pack_nibbles(rq.unpack_nibbles(g["weight_packed"].bits) ^ 8),
               g["input"])
    elif "qweight" in g:
        words = np.ascontiguousarray(g["qweight"].bits.T)
        t.same("input", rq.pack_nibbles(rq.unpack_nibbles(words) ^ 8), g["input"])


def ct4(t, _path, g):
    x = g["input"].f32()
    if "weight_packed" in g:
        for quotient, name in (("bf16", "weight_packed"), ("fp32", "weight_packed_f32div")):
            codes, scale = rq.int4(x, quotient)
            t.same(name, rq.pack_nibbles(codes), g[name])
            t.same("weight_scale", scale, g["weight_scale"])
        t.same("weight_shape", np.array(x.shape, dtype=np.int64), g["weight_shape"])
    elif g["weight_scale"].dtype == "BF16":
        for quotient, name in (("bf16", "weight"), ("fp32", "weight_f32div")):
            codes, scale = rq.fp8_ct(x, quotient)
            t.same8(name, codes, g[name])
            t.same("weight_scale", scale, g["weight_scale"])
    else:
        codes, scale = rq.mxfp8(x, "ct")
        t.same8("weight", codes, g["weight"])
        t.same8("weight_f32div", codes, g["weight_f32div"])
        t.same("weight_scale", scale, g["weight_scale"])


VARIANTS = {"v2": ("v2", "fp32"), "seed": ("seed", "fp32"), "div": ("div", "fp32"),
            "cuda": ("cuda", "fp32"), "ue8m0": ("v2", "ue8m0")}


def fp8_cases(t, g, bn):
    for name in sorted({n.rsplit(".x", 1)[0] for n in g if n.endswith(".x")}):
        x = g[name + ".x"].f32()
        for variant, args in VARIANTS.items():
            at = f"{name}.{variant}."
            if at + "scale_inv" not in g:
                continue
            for suffix, saturate in (("q", True), ("q_sat", True), ("q_nosat", False)):
                if at + suffix in g:
                    codes, scale = rq.fp8_block(x, *args, bn=bn, saturate=saturate)
                    t.same8(at + suffix, codes, g[at + suffix])
            t.same(at + "scale_inv", scale, g[at + "scale_inv"])
            fp8_extras(t, g, at, x, codes, scale, bn)


def fp8_extras(t, g, at, x, codes, scale, bn):
    if at + "scale_e8m0" in g:
        t.same(at + "scale_e8m0", rq.exponent_byte(scale), g[at + "scale_e8m0"])
    if at + "dequant_f32_bf16" in g:
        values = rq.fp8_dequant(codes, scale, bn)
        t.same(at + "dequant", stfile.f32_to_bf16(values), g[at + "dequant_f32_bf16"])
    if at + "scale_phys" in g:
        t.same(at + "scale_phys", rq.mn_aligned(scale), g[at + "scale_phys"])
    if at + "scale_packed_phys" in g:
        packed = rq.mn_packed4(rq.exponent_byte(scale))
        t.same(at + "scale_packed_phys", packed, g[at + "scale_packed_phys"])
    if at + "scale_packed_rowmajor" in g:
        t.same(at + "rowmajor", np.ascontiguousarray(rq.exponent_byte(scale)).view(np.int32),
               g[at + "scale_packed_rowmajor"])


def fp8_requant(t, g):
    for case in ("c0", "c1", "experts"):
        q, s = g[case + ".q_in"].bits, g[case + ".scale_inv_in"].bits
        for through in ("f32", "bf16"):
            at = f"{case}.{through}."
            if at + "q" not in g:
                continue
            codes, scale = rq.requant_ue8m0(q, s, through)
            t.same8(at + "q", codes, g[at + "q"])
            t.same(at + "scale_inv", scale, g[at + "scale_inv"])
            t.same(at + "packed", rq.sm100_scales(scale, q.shape[-2]),
                   g[at + "scale_packed_phys"])


def fp8_layouts(t, g):
    for name in sorted(g):
        case = name.split(".")[0]
        if name.endswith(".sf") and case[0] in "cg":
            t.same(case + ".phys", rq.mn_aligned(g[name].bits), g[case + ".phys"])
        if name.endswith(".sf_pow2") and case[0] in "cg":
            packed = rq.mn_packed4(rq.exponent_byte(g[name].bits))
            t.same(case + ".packed", packed, g[case + ".packed_phys"])


def fp8(t, path, g):
    base = os.path.basename(path)
    if base == "cast_e4m3.safetensors":
        for kind in ("bf16", "f32"):
            x = g[kind + ".in"].f32()
            t.same8(kind + " sat", rq.to_e4m3(x), g[kind + ".e4m3_sat"])
            t.same8(kind + " nosat", rq.to_e4m3(x, False), g[kind + ".e4m3_nosat"])
        t.same("decode table", rq.E4M3, g["decode_table_f32"])
    elif base == "ue8m0_ceil.safetensors":
        out = rq.ue8m0_ceil(g["in_bits"].bits.view(np.float32))
        t.same("out", out, g["out"])
        t.same("out_byte", rq.exponent_byte(out), g["out_byte"])
    elif base == "requant_ue8m0.safetensors":
        fp8_requant(t, g)
    elif base == "layouts.safetensors":
        fp8_layouts(t, g)
    else:
        fp8_cases(t, g, 1 if base in ("act1x128.safetensors", "specials_rows.safetensors") else 128)


def mx_2d_3d(t, g):
    x = g["input"].f32()
    for rule in ("floor", "rceil"):
        if x.ndim == 3:
            codes, s = rq.mxfp8(x, rule, 32, 1)
            t.same8(rule, codes.swapaxes(1, 2), g[rule + ".q_storage_EKN"])
            t.same(rule, s, g[rule + ".scale_logical"])
            t.same(rule, rq.mx_nwise(x, rule)[1], g[rule + ".scale_blocked"])
            at = rule + ".32x32."
            if at + "scale_logical" in g:
                codes, tiles = rq.mx_nwise(x, rule, "32x32")
                t.same8(at, codes, g[at + "q_storage_EKN"])
                t.same(at, rq.mxfp8(x, rule, 32, 32)[1], g[at + "scale_logical"])
                t.same(at, tiles, g[at + "scale_blocked"])
            continue
        codes, s = rq.mxfp8(x, rule)
        t.same8(rule + ".dim0.q", codes, g[rule + ".dim0.q"])
        t.same(rule + ".dim0.scale", s, g[rule + ".dim0.scale_logical"])
        t.same(rule + ".dim0.tiles", rq.tiles_128x4(s), g[rule + ".dim0.scale_blocked"])
        if rule + ".dim1.q_storage_KM" in g:
            codes, tiles = rq.mx_nwise(x, rule)
            t.same8(rule + ".dim1.q", codes, g[rule + ".dim1.q_storage_KM"])
            t.same(rule + ".dim1.tiles", tiles, g[rule + ".dim1.scale_blocked"])
            t.same(rule + ".dim1.scale", rq.mxfp8(x, rule, 32, 1)[1].T,
                   g[rule + ".dim1.scale_logical_KxM32"])


def mx_semantic(t, g):
    for rule in ("floor", "rceil"):
        codes, s = rq.mxfp8(g["input." + rule].f32(), rule)
        t.same8(rule + ".q", codes, g[rule + ".q_expected"])
        t.same(rule + ".scale", s, g[rule + ".scale_expected"])


def mx_fp4(t, base, g):
    if base.startswith("ct_linear"):
        x = g["input.weight"]
        codes, s = rq.mxfp8(x.f32(), "ct")
        t.same8("mxfp8.weight", codes, g["mxfp8.weight"])
        t.same("mxfp8.scale", s, g["mxfp8.weight_scale"])
        codes, s = rq.mxfp4(x.f32(), "ct")
        t.same("mxfp4.packed", rq.pack_pairs(codes), g["mxfp4.weight_packed"])
        t.same("mxfp4.scale", s, g["mxfp4.weight_scale"])
        codes, s, divisor = rq.nvfp4_ct(x.bits)
        t.same("nvfp4.global", divisor, g["nvfp4.weight_global_scale"])
        t.same("nvfp4.scale", s, g["nvfp4.weight_scale"])
        t.same("nvfp4.packed", rq.pack_pairs(codes), g["nvfp4.weight_packed"])
    elif base.startswith("modelopt"):  # its FP4 is not among our formats
        codes, s = rq.mxfp8(g["input.weight"].f32(), "rceil")
        t.same8("mxfp8.weight", codes, g["mxfp8.weight"])
        t.same("mxfp8.scale", s, g["mxfp8.weight_scale"])
    elif base.startswith("mxfp4"):
        for rule in ("floor", "rceil", "even", "ceil"):
            codes, s = rq.mxfp4(g["input"].f32(), rule)
            t.same(rule + ".q", rq.pack_pairs(codes), g[rule + ".q_packed"])
            t.same(rule + ".scale", s, g[rule + ".scale"])
            t.same(rule + ".tiles", rq.tiles_128x4(s), g[rule + ".scale_blocked"])
    elif base.startswith("nvfp4"):
        multiplier = g["per_tensor_scale"].bits if "per_tensor_scale" in g else np.float32(1)
        codes, s = rq.nvfp4_torchao(g["input"].f32(), multiplier)
        t.same("q", rq.pack_pairs(codes), g["q_packed"])
        t.same("scale", s, g["scale_e4m3"])
        t.same("tiles", rq.tiles_128x4(s), g["scale_blocked"])


def mx_gptoss(t, g):
    """Their values, decoded with our tables: [E,out,in] in bf16, transposed as they do."""
    for name in ("gate_up_proj", "down_proj"):
        at = "model.layers.0.mlp.experts." + name
        blocks, scale = g[at + "_blocks"].bits, g[at + "_scales"].bits
        codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(scale.shape + (32,))
        values = rq.E2M1[codes] * rq.e8m0_value(scale)[..., None]
        values = values.reshape(scale.shape[:2] + (-1,)).swapaxes(1, 2)
        t.same(name, stfile.f32_to_bf16(values), g["hf_dequant." + name])


def mx(t, path, g):
    base = os.path.basename(path)
    if base.startswith(("mxfp8_2d", "mxfp8_3d")):
        mx_2d_3d(t, g)
    elif base.startswith("mxfp8_semantic"):
        mx_semantic(t, g)
    elif base.startswith("e4m3_cast"):
        x = rq.from_bits(np.arange(1 << 18, dtype=np.uint32) << 14)
        saturated = np.abs(x) > 464  # this golden was made by a cast that gives NaN there
        codes = rq.to_e4m3(x, saturate=False)
        t.same8("sweep", codes, g["e4m3"]) if (g["e4m3"].bits[saturated] & 127 == 127).all() \
            else t.same8("sweep", rq.to_e4m3(x), g["e4m3"])
    elif base.startswith("layout_random"):
        for name in sorted(n[:-7] for n in g if n.endswith(".linear") and n[0].isdigit()):
            t.same(name, rq.tiles_128x4(g[name + ".linear"].bits), g[name + ".blocked"])
    elif base.startswith("gptoss"):
        mx_gptoss(t, g)
    else:
        mx_fp4(t, base, g)


def search_importance(words, g):
    if "magnitude" in words:
        return "magnitude"
    return g["importance"].bits if "importance" in words else None


def search_case(t, prefix, g):
    """A case of search/ by its name, such as int4.mse.signed.importance."""
    codec, *words = prefix.split(".")
    x, importance = g["input"].f32(), search_importance(words, g)
    if codec == "int4":
        quotient, signed = "bf16" if "bf16" in words else "fp32", "signed" in words
        if "none" in words:
            codes, scale = rq.int4(x, quotient)
        else:
            search = rs.int4_mse if "mse" in words else rs.int4_w4a8
            codes, scale = search(x, quotient, signed, importance)
        if "w4a8" in words:
            for how in ("div", "cpu"):
                groups, channel = rq.channel_scale(scale[None], how)
                t.same(prefix + ".group_scale", groups[0].T, g[prefix + ".group_scale"])
                t.same(prefix + ".channel", channel[0, :, 0], g[prefix + ".channel"])
        packed = rq.pack_nibbles(codes)
    elif codec == "nvfp4":
        divisor = g[f"nvfp4.{words[0]}.global"].bits[0]
        codes, scale = rs.nvfp4(x, divisor, words[0], "mse" in words, importance)
        packed = rq.pack_pairs(codes)
    else:
        codes, scale = rs.mxfp4_mse(x, words[0], importance) if "mse" in words else \
            rq.mxfp4(x, words[0])
        packed = rq.pack_pairs(codes)
    t.same(prefix + ".weight_packed", packed, g[prefix + ".weight_packed"])
    t.same(prefix + ".weight_scale", scale, g[prefix + ".weight_scale"])


def search(t, _path, g):
    for name in sorted(g):
        if name.endswith(".weight_packed"):
            search_case(t, name[:-len(".weight_packed")], g)


def checkpoints(t, root):
    """Every quantized tensor of the whole checkpoints, from the input tensors."""
    for before, after, scheme, quotient in (
            (f"ct4/ckpt_{m}/before", f"ct4/ckpt_{m}/{a}/{s}", s, q)
            for m in ("dense", "moe", "moe3d") for a, q in (("after", "bf16"),
                                                            ("after_f32div", "fp32"))
            for s in ("W4AFP8_packed", "FP8_BLOCK", "MXFP8")):
        if not os.path.isdir(os.path.join(root, after)):
            continue
        source, out = ({}, {})
        for where, into in ((before, source), (after, out)):
            for path in sorted(glob.glob(os.path.join(root, where, "*.safetensors"))):
                into.update(load(path)[0])
        failed = t.failed
        for name, want in out.items():
            check_one(t, name, want, source, scheme, quotient)
        print(f"{'ok  ' if failed == t.failed else 'FAIL'} {after}")


def source_of(name, source):
    """The values a module's tensors were made from, cut out of a 3-D stack if need be."""
    module = name.rsplit(".", 1)[0]
    if module + ".weight" in source:
        return source[module + ".weight"].f32()
    head, expert, proj = module.rsplit(".", 2)
    stack = head + (".down_proj" if proj == "down_proj" else ".gate_up_proj")
    w = source[stack].f32()[int(expert)]
    half = w.shape[0] // 2
    return {"gate_proj": w[:half], "up_proj": w[half:], "down_proj": w}[proj]


def check_one(t, name, want, source, scheme, quotient):
    if name in source and source[name].dtype == want.dtype:
        t.same(name, source[name].bits, want)
    elif name.endswith("weight_packed"):
        t.same(name, rq.pack_nibbles(rq.int4(source_of(name, source), quotient)[0]), want)
    elif name.endswith("weight_shape"):
        t.same(name, np.array(source_of(name, source).shape, dtype=np.int64), want)
    elif scheme == "W4AFP8_packed":
        t.same(name, rq.int4(source_of(name, source), quotient)[1], want)
    else:
        x = source_of(name, source)
        codes, s = rq.mxfp8(x, "ct") if scheme == "MXFP8" else rq.fp8_ct(x, quotient)
        if name.endswith("weight_scale"):
            t.same(name, s, want)
        else:
            t.same8(name, codes, want)


def mini_checkpoint(t, root):
    source = load(os.path.join(root, "fp8/mini_ckpt/bf16/model.safetensors"))[0]
    for name, want in load(os.path.join(root, "fp8/mini_ckpt/fp8_expected/model.safetensors"))[
            0].items():
        base = name.replace("_scale_inv", "")
        if want.dtype == source[base].dtype and base == name:
            t.same(name, source[name].bits, want)
            continue
        codes, s = rq.fp8_block(source[base].f32(), "v2")
        t.same8(name, codes, want) if base == name else t.same(name, s, want)


def ml_dtypes_agree(t):
    """Our casts against another implementation, on every bf16 and many f32 patterns."""
    import ml_dtypes  # pylint: disable=import-outside-toplevel
    x = rq.from_bits(np.concatenate([np.arange(1 << 16, dtype=np.uint32) << 16,
                                     np.arange(0x3A000000, 0x43F00000, 4099, dtype=np.uint32)]))
    with np.errstate(all="ignore"):
        want = x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        bf16 = x.astype(ml_dtypes.bfloat16).view(np.uint16)
    nan = np.isnan(x)
    t.same8("ml_dtypes e4m3", rq.to_e4m3(x, False), stfile.tensor("U8", want))
    t.same("ml_dtypes bf16", stfile.f32_to_bf16(x)[~nan], stfile.tensor("U16", bf16[~nan]))
    t.same("ml_dtypes e4m3 values", rq.E4M3,
           stfile.tensor("F32", np.arange(256).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
                         .astype(np.float32)))


def must_refuse(t, what, descriptor, data):
    try:
        oracle.decode(descriptor, data)
    except oracle.Wrong:
        t.note(what, True)
    else:
        t.note(what + " was taken", False, "no byte")


def descriptors(t):
    """The descriptor decoder on descriptors made by hand: values, and what it refuses."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 16, (2, 48, 512), dtype=np.uint8)
    scale = stfile.f32_to_bf16(rng.uniform(0.001, 0.1, (2, 48, 4)).astype(np.float32))
    packed = rq.w4a8_cutlass(codes, scale)
    data = {name: np.ascontiguousarray(a).tobytes() for name, a in packed.items()}
    d = {"box": [2, 48, 512], "outputs": [
        {"suffix": "weight_packed", "role": "codes", "element": "int4", "per": [1, 1],
         "layout": "(2,(8,2,3),(4,4,2,16)):(24576,(64,4,512),(1,16,8,1536))"},
        {"suffix": "weight_layout", "role": "words", "element": "i32", "words": [3, 16, 1536]},
        {"suffix": "weight_group_scale", "role": "group8", "element": "e4m3x8", "per": [1, 128],
         "layout": "(2,48,4):(192,1,48)"},
        {"suffix": "weight_chan_scale", "role": "channel", "element": "f32", "per": [1, 0],
         "layout": "(2,48,1):(48,1,1)"}]}
    want = rq.w4a8_values(codes, packed["weight_group_scale"], packed["weight_chan_scale"])
    t.note("w4a8 descriptor", np.array_equal(oracle.decode(d, data), want))
    must_refuse(t, "wrong words", d, {**data, "weight_layout": b"\1" * 24})
    must_refuse(t, "short tensor", d, {**data, "weight_packed": data["weight_packed"][:-4]})
    d["outputs"][0]["layout"] = "(2,(8,2,3),(4,4,2,16)):(24576,(64,4,512),(1,16,4,1536))"
    must_refuse(t, "overlapping layout", d, data)

    x = rng.standard_normal((100, 96)).astype(np.float32)
    codes, s = rq.mxfp8(x)
    tiles = rq.tiles_128x4(s)
    d = {"box": [1, 100, 96], "outputs": [
        {"suffix": "weight", "role": "codes", "element": "e4m3", "per": [1, 1],
         "layout": "(1,100,96):(9600,96,1)"},
        {"suffix": "weight_scale", "role": "scale", "element": "e8m0", "per": [1, 32],
         "layout": "(1,(32,4,1),(4,1)):(512,(16,4,512),(1,512))", "fill": 0}]}
    data = {"weight": codes.tobytes(), "weight_scale": tiles.tobytes()}
    want = rq.E4M3[codes] * rq.spread(rq.e8m0_value(s), 1, 32, 100, 96)
    t.note("mx descriptor", np.array_equal(oracle.decode(d, data)[0], want))
    dirty = tiles.copy()
    dirty[3] = 1
    must_refuse(t, "dirty padding", d, {**data, "weight_scale": dirty.tobytes()})


def feedback_case(case, x, h, v):
    """(codes, scales) of a case of feedback/ by its name, such as int4.mse.signed."""
    signed = case.endswith(".signed")
    most = np.abs(x).max()
    if case.startswith("int4.mse"):
        return rf.int4_mse(x, h, v, "bf16" if case.endswith("bf16") else "fp32", signed)
    if case.startswith("int4.w4a8"):
        return rf.int4_w4a8(x, h, v, signed=signed)
    if case == "nvfp4.ct.mse":
        return rf.nvfp4(x, h, v, rq.round_bf16(rq.round_bf16(np.float32(1) / most)
                                               * np.float32(2688)))
    if case == "nvfp4.torchao.mse":
        return rf.nvfp4(x, h, v, most / np.float32(2688), "torchao")
    return rf.mxfp4_mse(x, h, v)


def feedback(t, _path, g):
    x, h, v = g["input"].f32(), g["h"].f32(), g["v"].f32()
    if x.ndim == 2:
        x, h, v = x[None], h[None], v[None]
    for name in g:
        if not name.endswith(".weight_packed"):
            continue
        case = name[:-len(".weight_packed")]
        made = [feedback_case(case, *expert) for expert in zip(x, h, v)]
        codes, scale = (np.stack([m[i] for m in made]) for i in range(2))
        pack = rq.pack_nibbles if case.startswith("int4") else rq.pack_pairs
        t.note(case, pack(codes).tobytes() == g[name].data and
               scale.tobytes() == g[case + ".weight_scale"].data)


def main():
    root = golden_data.root()
    t = Tally()
    for folder, check in (("w4a8", w4a8), ("ct4", ct4), ("fp8", fp8), ("mx", mx),
                          ("search", search), ("feedback", feedback)):
        for path in sorted(glob.glob(os.path.join(root, folder, "*.safetensors"))):
            failed, passed = t.failed, t.passed
            check(t, path, load(path)[0])
            if t.passed == passed and t.failed == failed:
                t.note(path + " has nothing that was compared", False)
            print(f"{'ok  ' if failed == t.failed else 'FAIL'} {folder}/{os.path.basename(path)} "
                  f"{t.passed - passed} of {t.passed + t.failed - passed - failed}")
    checkpoints(t, root)
    mini_checkpoint(t, root)
    ml_dtypes_agree(t)
    descriptors(t)
    print(f"{t.passed} passed, {t.failed} failed")
    return 1 if t.failed or not t.passed else 0


if __name__ == "__main__":
    sys.exit(main())
