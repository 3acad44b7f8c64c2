"""What engines' own functions make of a weight when they load it (golden/engines)."""
import os

import numpy as np

import refquant as rq
import stfile
import tool
from input_cases.common import ROOT, case, gptq_file, same
from golden import Mismatch
from stfile import Tensor, tensor

KEEP = ("--nonfinite", "keep")  # random bits are also scales that are no numbers


def load(family):
    """{case: {name: tensor}}"""
    cases = {}
    tensors = stfile.load(os.path.join(ROOT, "engines", family + ".safetensors"))[0]
    for key, t in tensors.items():
        name, _, rest = key.partition(".")
        cases.setdefault(name, {})[rest] = t
    return cases


def scales_of(t):
    return {"scales": {"BF16": "bf16", "F16": "f16"}[t.dtype]}


def group_of(k, groups, sets):
    return sets | ({"group": "channel"} if groups == 1 else {"group": str(k // groups)})


def gptq_source(t):
    return {"x.qweight": t["in_qweight"], "x.scales": t["in_scales"]}


def ct_source(t, name="x", expert=None, rows=slice(None), part=""):
    packed, scale = t[f"in_{part}weight_packed"].bits, t[f"in_{part}weight_scale"]
    bits = scale.bits
    if expert is not None:
        packed, bits = packed[expert], bits[expert]
    packed = np.ascontiguousarray(packed[rows])
    n, k = packed.shape[0], packed.shape[1] * 8
    return {f"{name}.weight_packed": tensor("I32", packed),
            f"{name}.weight_scale": tensor(scale.dtype, np.ascontiguousarray(bits[rows])),
            f"{name}.weight_shape": tensor("I64", np.array([n, k], dtype=np.int64))}


def described_int8(t, sets):
    """A w8a16-ct file of these codes: its descriptor is that of a file with other ones."""
    words = t["in_qweight"].bits.view(np.uint32)  # [K/4, N], the first of four in the lowest bits
    codes = np.stack([words >> np.uint32(8 * i) & 255 for i in range(4)], axis=1)
    codes = codes.reshape(-1, words.shape[1]).T.astype(np.uint8)
    with tool.Workdir() as work:
        zeros = stfile.from_f32("BF16", np.zeros(codes.shape, dtype=np.float32))
        stfile.save(work.at("in.safetensors"), {"x.weight": zeros})
        tool.run("convert", work.at("in.safetensors"), "-o", work.at("ct.safetensors"), "--to",
                 "w8a16-ct", "--quiet", *tool.settings(sets))
        tensors, meta = stfile.load(work.at("ct.safetensors"))
    tensors["x.weight_packed"] = tensor("I32", np.ascontiguousarray(codes).view(np.int32))
    scale = np.ascontiguousarray(t["in_scales"].bits.T)
    tensors["x.weight_scale"] = tensor(t["in_scales"].dtype, scale)
    return tensors, meta


def check(report, source, to, sets, want, meta=None):
    """`want`: name in the result -> tensor; compared as bytes."""
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), source, meta)
        out, _ = tool.convert(work.at("in.safetensors"), work.at("out.safetensors"), to, sets, KEEP)
    for name, t in want.items():
        report.equal(f"{to} {name}", out[name].bytes, t.bytes)
    if set(out) != set(want):
        raise Mismatch(f"{to} holds {sorted(out)}")


@case("engines: Marlin, int4 and int8 of GPTQ and compressed-tensors")
def _(report):
    for name, t in load("marlin").items():
        if not name.startswith(("gptq", "ct4")):
            continue
        gptq = name.startswith("gptq")
        codes, scales = ("qweight", "scales") if gptq else ("weight_packed", "weight_scale")
        groups = t[f"in_{scales}"].shape[0 if gptq else 1]
        to = "w8a16-marlin" if name[4] == "8" else "w4a16-marlin"
        k = t["in_" + codes].shape[0 if gptq else 1] * (4 if name[4] == "8" else 8)
        sets = group_of(k, groups, scales_of(t["in_" + scales]))
        want = {"x.weight_packed": t["out_" + codes], "x.weight_scale": t["out_" + scales]}
        source, meta = described_int8(t, sets) if name[4] == "8" else (
            gptq_source(t) if gptq else ct_source(t), None)
        if groups == 1:
            to += "-channel"
            sets.pop("group")
        check(report, source, to, sets, want, meta)


@case("engines: Marlin, MXFP4 and MXFP8")
def _(report):
    cases = load("marlin")
    t = cases["mxfp4_bf16"]
    source = {"x.weight_packed": t["in_weight"], "x.weight_scale": t["in_weight_scale"]}
    check(report, source, "mxfp4-marlin", {}, {"x.weight": t["out_weight"],
                                               "x.weight_scale": t["out_weight_scale"]})
    t = cases["mxfp8"]
    source = {"x.weight": t["in_weight"], "x.weight_scale": t["in_weight_scale"]}
    check(report, source, "mxfp8-marlin", {}, {"x.weight": t["out_weight"],
                                               "x.weight_scale": t["out_weight_scale"]})


def nvfp4_source(t, part="", at="x.", expert=None, rows=slice(None)):
    """ModelOpt's tensors of one matrix."""
    codes, scale = t[f"in_{part}weight"].bits, t[f"in_{part}weight_scale"].bits
    whole = t["in_weight_global_scale" if expert is None else f"in_{part}weight_scale_2"].bits
    if expert is not None:
        codes, scale, whole = codes[expert][rows], scale[expert][rows], whole[expert:expert + 1]
    return {at + "weight": tensor("U8", np.ascontiguousarray(codes)),
            at + "weight_scale": tensor("F8_E4M3", np.ascontiguousarray(scale)),
            at + "weight_scale_2": Tensor("F32", (), whole.tobytes())}


@case("engines: Marlin, NVFP4, scales of five exponent bits")
def _(report):
    cases = load("marlin_scales")
    for name in ("nvfp4_bf16", "nvfp4_bf16_low", "nvfp4_fp16"):
        t = cases[name]
        check(report, nvfp4_source(t), "nvfp4-marlin",
              {"scales": "f16" if name.endswith("fp16") else "bf16"},
              {"x.weight": t["out_weight"], "x.weight_scale": t["out_weight_scale"],
               "x.weight_scale_2": t["out_weight_global_scale"]})
    t, source = cases["nvfp4_moe"], {}
    for e in range(2):
        at = f"m.mlp.experts.{e}."
        for part, name, rows in (("w13_", "gate_proj.", slice(0, 64)),
                                 ("w13_", "up_proj.", slice(64, 128)),
                                 ("w2_", "down_proj.", slice(None))):
            source |= nvfp4_source(t, part, at + name, e, rows)
    check(report, source, "nvfp4-marlin", {},
          {f"m.mlp.experts.{part}{s}": t[f"out_{part}{s}"] for part in ("w13_", "w2_")
           for s in ("weight", "weight_scale", "weight_scale_2")})


@case("engines: Marlin, FP8, scales times a power of two")
def _(report):
    cases = load("marlin_scales")
    for name in ("fp8block_bf16", "fp8block_fp16", "fp8channel"):
        t = cases[name]
        scale = "weight_scale" if name == "fp8channel" else "weight_scale_inv"
        check(report, {"x.weight": t["in_weight"], "x." + scale: t["in_" + scale]},
              "fp8-marlin-channel", {"scales": "f16" if name.endswith("fp16") else "bf16"},
              {"x.weight": t["out_weight"], "x.weight_scale": t["out_" + scale]})
    for name, suffix in (("fp8block_moe", "weight_scale_inv"), ("fp8tensor_moe", "weight_scale")):
        t, source = cases[name], {}
        for part, proj in (("w13_", "gate_proj."), ("w13_", "up_proj."), ("w2_", "down_proj.")):
            codes, scale = t[f"in_{part}weight"].bits[0], t[f"in_{part}weight_scale"].bits[0]
            half, second = codes.shape[0] // 2, proj[0] == "u"
            if part == "w13_":
                codes = codes[half:] if second else codes[:half]
                scale = scale[second:][:1] if scale.ndim else scale
            at = "m.mlp.experts.0." + proj
            source[at + "weight"] = tensor("F8_E4M3", np.ascontiguousarray(codes))
            source[at + suffix] = tensor("F32", np.ascontiguousarray(scale))
        check(report, source, "fp8-marlin-channel",
              {"scales": "f16" if name == "fp8tensor_moe" else "bf16"},
              {f"m.mlp.experts.{part}{s}": t[f"out_{part}{s}"] for part in ("w13_", "w2_")
               for s in ("weight", "weight_scale")})


@case("engines: Marlin, int4 experts, rows [gate; up]")
def _(report):
    for name in ("int4_moe", "int4_moe_channel"):
        t = load("marlin")[name]
        experts, rows, words = t["in_w13_weight_packed"].shape
        groups, source = t["in_w13_weight_scale"].shape[2], {}
        for e in range(experts):
            at = f"m.mlp.experts.{e}."
            source |= ct_source(t, at + "gate_proj", e, slice(0, rows // 2), "w13_")
            source |= ct_source(t, at + "up_proj", e, slice(rows // 2, rows), "w13_")
            source |= ct_source(t, at + "down_proj", e, slice(None), "w2_")
        to, sets = ("w4a16-marlin-channel", {}) if groups == 1 else (
            "w4a16-marlin", {"group": str(words * 8 // groups)})
        want = {f"m.mlp.experts.{part}_{suffix}": t[f"out_{part}_{suffix}"]
                for part in ("w13", "w2") for suffix in ("weight_packed", "weight_scale")}
        check(report, source, to, sets | scales_of(t["in_w13_weight_scale"]), want)


@case("engines: Machete")
def _(report):
    for name, t in load("machete").items():
        gptq = "gptq" in name
        codes, scales = ("qweight", "scales") if gptq else ("weight_packed", "weight_scale")
        groups = t[f"in_{scales}"].shape[0 if gptq else 1]
        k = t["in_" + codes].shape[0 if gptq else 1] * (4 if name[1] == "8" else 8)
        sets = group_of(k, 0 + groups, scales_of(t["in_" + scales]))
        if name == "m8_gptq_g128":  # one group of 128 is the row
            sets["group"] = "128"
        source, meta = described_int8(t, sets) if name[1] == "8" else (
            gptq_source(t) if gptq else ct_source(t), None)
        check(report, source, f"w{name[1]}a16-machete", sets,
              {"x.weight_packed": t["out_" + codes], "x.weight_scale": t["out_" + scales]}, meta)


@case("engines: a row of one group is refused where its scales would lie otherwise")
def _(report):
    rng = np.random.default_rng(175)
    codes = rng.integers(0, 16, (64, 128), dtype=np.uint8)
    source = gptq_file("x", codes, np.full((64, 1), .5, dtype=np.float16), 0x77777777)
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), source)
        done = tool.run("convert", work.at("in.safetensors"), "-o", work.at("o.safetensors"), "--to",
                        "w4a16-marlin", "--set", "group=128", "--quiet", check=False)
    if done.returncode != 4 or "a row has more than one" not in done.stderr:
        raise Mismatch(f"exit {done.returncode}: {done.stderr}")
    out, _ = tool.convert_tensors(source, "w4a16-marlin-channel", {"scales": "f16"})
    same(report, "scales", out["x.weight_scale"], np.full((1, 64), .5, dtype=np.float16), "F16")
    unpacked = rq.unpack_nibbles(out["x.weight_packed"].bits)
    if sorted(unpacked.reshape(-1)) != sorted(codes.reshape(-1)):
        raise Mismatch("other codes")
