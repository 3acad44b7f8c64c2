"""Marlin's zero points, biases and padding (golden/engines), and asymmetric int4 to AWQ and GPTQ."""
import numpy as np

import refquant as rq
import tool
from input_cases.common import case
from input_cases.engine_moe import (AT, KEEP, WEIGHTS, both, check_values, compressed, equal_files, experts,
                                    gptoss, load, rows_of)
from input_cases.engine_moe import check as check_experts
from golden import Mismatch
from stfile import tensor
import stfile


def awq_source(t):
    return {"x.qweight": t["in_qweight"], "x.qzeros": t["in_qzeros"], "x.scales": t["in_scales"]}


def ct_source(t):
    n, words = t["in_weight_packed"].shape
    return {"x.weight_packed": t["in_weight_packed"], "x.weight_scale": t["in_weight_scale"],
            "x.weight_zero_point": t["in_weight_zero_point"],
            "x.weight_shape": tensor("I64", np.array([n, words * 8], dtype=np.int64))}


def ct_experts(t, bits=4):
    source = {}
    for e in range(t["in_w13_weight_packed"].shape[0]):
        for key in [k for k in t if k.startswith("in_w")]:
            part, name = key[3:].split("_", 1)
            half = t[key].shape[1] // 2
            halves = (("gate", slice(0, half)), ("up", slice(half, None)))
            for label, rows in halves if part == "w13" else (("down", slice(None)),):
                source[f"{AT}{e}.{label}_proj.{name}"] = rows_of(t[key], e, rows)
    for key in [k for k in source if k.endswith("weight_packed")]:
        n, words = source[key].shape
        source[key[:-6] + "shape"] = tensor("I64", np.array([n, words * 32 // bits], dtype=np.int64))
    return source


def awq_experts(t):
    source = {}
    for part, label, half in (("w13", "gate", 0), ("w13", "up", 1), ("w2", "down", None)):
        for suffix in ("qweight", "scales", "qzeros"):
            own = t[f"in_{part}_{suffix}"]
            bits = own.bits[0] if half is None else np.split(own.bits[0], 2, axis=1)[half]
            source[f"{AT}0.{label}_proj.{suffix}"] = tensor(own.dtype, np.ascontiguousarray(bits))
    return source


def settings(scale, k, groups):
    return {"scales": {"BF16": "bf16", "F16": "f16"}[scale.dtype], "group": str(k // groups)}


def check(report, source, sets, want, others):
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), source)
        out, _ = tool.convert(work.at("in.safetensors"), work.at("out.safetensors"),
                              "w4a16-marlin", sets, KEEP)
        for name, t in want.items():
            report.exact(name, out[name], t, t.shape)
        if set(out) != set(want):
            raise Mismatch(f"w4a16-marlin holds {sorted(out)}")
        tool.run("verify", work.at("out.safetensors"), "--against", work.at("in.safetensors"),
                 "--quiet")
        if "x.qweight" in source or "x.weight_packed" in source:
            check_values(report, work, out, "weight_packed")
        for other in others:
            tool.convert(work.at("out.safetensors"), work.at("other.safetensors"), other, sets, KEEP)
            back, _ = tool.convert(work.at("other.safetensors"), work.at("back.safetensors"),
                                   "w4a16-marlin", sets, KEEP)
            for name, t in want.items():
                report.equal(f"{other} and back: {name}", back[name].bytes, t.bytes)
            tool.run("verify", work.at("other.safetensors"), "--against",
                     work.at("out.safetensors"), "--quiet")


@case("engines: Marlin, zero points of AWQ and compressed-tensors")
def _(report):
    cases = load("marlin_moved")
    for name in ("awq_g64", "awq_g128", "ct4_zp", "awq_pad", "ct4_zp_pad"):
        t = cases[name]
        awq = name.startswith("awq")
        codes, scale, zero = (("qweight", "scales", "qzeros") if awq else
                              ("weight_packed", "weight_scale", "weight_zero_point"))
        groups = t["in_" + scale].shape[0 if awq else 1]
        k = t["in_" + codes].shape[0] if awq else t["in_" + codes].shape[1] * 8
        want = {"x.weight_packed": t["out_" + codes], "x.weight_scale": t["out_" + scale],
                "x.weight_zero_point": t["out_" + zero]}
        check(report, awq_source(t) if awq else ct_source(t), settings(t["in_" + scale], k, groups),
              want, ("awq",))
    for name in ("int4_moe_zp", "int4_moe_pad"):
        t = cases[name]
        k, groups = t["in_w13_weight_packed"].shape[2] * 8, t["in_w13_weight_scale"].shape[2]
        want = {AT + key[4:]: t[key] for key in t if key.startswith("out_")}
        check(report, ct_experts(t), settings(t["in_w13_weight_scale"], k, groups), want, ("awq",))
    t = cases["awq_moe_pad"]
    names = {"weight_packed": "qweight", "weight_scale": "scales", "weight_zero_point": "qzeros"}
    want = {f"{AT}{part}_{to}": t[f"out_{part}_{name}"] for part in ("w13", "w2")
            for to, name in names.items()}
    check(report, awq_experts(t), {"scales": "bf16", "group": "32"}, want, ("awq",))


@case("engines: Marlin, the bias of a matrix and of experts")
def _(report):
    cases = load("marlin_moved")
    t = cases["gptq4_g32"]
    source = {"x.qweight": t["in_qweight"], "x.scales": t["in_scales"], "x.bias": t["in_bias"]}
    check(report, source, {"group": "32"},
          {"x.weight_packed": t["out_qweight"], "x.weight_scale": t["out_scales"],
           "x.bias": t["out_bias"]}, ("w4a16-ct",))
    t = cases["gptq4_pad"]
    source = {"x.qweight": t["in_qweight"], "x.scales": t["in_scales"], "x.bias": t["in_bias"]}
    check(report, source, {"group": "32"},
          {"x.weight_packed": t["out_qweight"], "x.weight_scale": t["out_scales"],
           "x.bias": t["out_bias"]}, ("gptq",))
    t = cases["int4_moe"]
    want = {AT + key[4:]: t[key] for key in t if key.startswith("out_")}
    check(report, ct_experts(t), {"group": "32"}, want, ("w4a16-ct",))


def alternating(report, source):
    """Rows that stay in turn can be put apart later, and not the other way round."""
    with tool.Workdir() as work:
        a, b, c, d = (work.at(name + ".safetensors") for name in "abcd")
        stfile.save(a, source)
        tool.convert(a, b, "mxfp4-marlin", None, KEEP)
        tool.convert(b, c, "mxfp4-trtllm", None, KEEP)
        tool.convert(a, d, "mxfp4-trtllm", None, KEEP)
        equal_files(report, "in turn to apart", c, d)
        again, _ = tool.convert(b, work.at("again.safetensors"), "mxfp4-marlin", None, KEEP)
        report.equal("again", again[AT + "w13_weight"].bytes, tool.load(b)[0][AT + "w13_weight"].bytes)
        done = tool.run("convert", c, "-o", work.at("o.safetensors"), "--to", "mxfp4-marlin",
                        "--quiet", check=False)
        if done.returncode != 4 or "would have them interleaved" not in done.stderr:
            raise Mismatch(f"{done.returncode} {done.stderr}")


@case("engines: Marlin, MXFP4 and MXFP8 that are padded")
def _(report):
    cases = load("marlin_moved")
    for name, codes in (("mxfp4_pad", "weight_packed"), ("mxfp8_pad", "weight")):
        t = cases[name]
        source = {"x." + codes: t["in_weight"], "x.weight_scale": t["in_weight_scale"],
                  "x.bias": t["in_bias"]}
        with tool.Workdir() as work:
            stfile.save(work.at("in.safetensors"), source)
            out, _ = tool.convert(work.at("in.safetensors"), work.at("out.safetensors"),
                                  name[:5] + "-marlin", None, KEEP)
            for key in ("weight", "weight_scale", "bias"):
                report.equal(f"{name} {key}", out["x." + key].bytes, t["out_" + key].bytes)
            check_values(report, work, out)
    t = cases["mxfp4_moe_gateup_pad"]
    check_experts(report, compressed(t), "mxfp4-marlin", both(t, *WEIGHTS), ("mxfp4-trtllm",))
    t = cases["mxfp4_moe_gptoss_pad"]
    check_experts(report, gptoss(t), "mxfp4-marlin", both(t, *WEIGHTS))
    alternating(report, gptoss(t))
    t = cases["mxfp8_moe_pad"]
    check_experts(report, experts(t, {name: name for name in WEIGHTS}), "mxfp8-marlin",
                  both(t, *WEIGHTS), ("mxfp8-trtllm",))


@case("engines: Marlin, of two ways to pad a matrix the one that takes less room")
def _(report):
    for n, k, padded in ((192, 192, (192, 256)), (320, 192, (384, 192)), (64, 64, (64, 128)),
                         (192, 320, (192, 384)), (128, 64, (128, 64))):
        x = stfile.from_f32("BF16", np.ones((n, k), dtype=np.float32))
        out, _ = tool.convert_tensors({"x.weight": x}, "w4a16-marlin-channel")
        if out["x.weight_packed"].shape != (padded[1] // 16, 2 * padded[0]):
            raise Mismatch(f"{n},{k}: {out['x.weight_packed'].shape}")
        report.bytes += 1


@case("int4: asymmetric AWQ to GPTQ and back, and a zero point that GPTQ cannot hold")
def _(report):
    rng = np.random.default_rng(170)
    codes = rng.integers(0, 16, (64, 256), dtype=np.uint8)
    zeros = rng.integers(1, 16, (64, 2), dtype=np.uint8)
    zeros[3, 1] = 3
    scale = rng.uniform(0.001, 0.1, (64, 2)).astype(np.float16)
    for lowest in (1, 0):
        zeros[0, 0] = lowest
        source = {"x.qweight": tensor("I32", awq_pack(codes)), "x.qzeros": tensor("I32", awq_pack(zeros)),
                  "x.scales": tensor("F16", np.ascontiguousarray(scale.T))}
        with tool.Workdir() as work:
            stfile.save(work.at("in.safetensors"), source)
            done = tool.run("convert", work.at("in.safetensors"), "-o", work.at("g.safetensors"),
                            "--to", "gptq", "--quiet", check=False)
            if lowest == 0:
                if done.returncode != 4 or "one of its zero points is 0" not in done.stderr:
                    raise Mismatch(f"{done.returncode} {done.stderr}")
                continue
            if done.returncode:
                raise Mismatch(done.stderr)
            out = tool.load(work.at("g.safetensors"))[0]
            want = rq.pack_nibbles((zeros.T - 1).astype(np.uint8))
            report.equal("qzeros", out["x.qzeros"].bits.view(np.uint32), want.view(np.uint32))
            back, _ = tool.convert(work.at("g.safetensors"), work.at("b.safetensors"), "awq")
            for name, t in source.items():
                report.equal(name, back[name].bytes, t.bytes)
            report.bytes += unpacked(work, codes, zeros, scale)


def awq_pack(codes):
    """[N,K] -> int32 [K,N/8], in AutoAWQ's order of nibbles."""
    words = codes.T.reshape(codes.shape[1], -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]].astype(np.uint32)
    return (words << (4 * np.arange(8, dtype=np.uint32))).sum(axis=2, dtype=np.uint32).view(np.int32)


def unpacked(work, codes, zeros, scale):
    tool.run("unpack", work.at("g.safetensors"), "-o", work.at("p.safetensors"), "--dtype", "f32",
             "--quiet")
    got = tool.load(work.at("p.safetensors"))[0]["x.weight"].f32()
    values = codes.astype(np.float32) - np.repeat(zeros, 128, axis=1)
    want = values * np.repeat(scale.astype(np.float32), 128, axis=1)
    if not np.array_equal(got, want):
        raise Mismatch("other values are unpacked of GPTQ")
    return got.nbytes
