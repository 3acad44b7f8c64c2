"""Between the interchange formats of integers, and what FP8 with one scale shares."""
import json
import os

import numpy as np

import refquant as rq
import stfile
import tool
from input_cases.common import (FILE, awq_file, case, ct_file, f16_scales, gptq_file, random_codes,
                                refused, same, to_bf16)
from golden import Mismatch
from stfile import tensor


def taken_over(report, source, to, want, sets=None):
    """Every tensor of the result, all of them."""
    out, _ = tool.convert_tensors(source, to, sets)
    if set(out) != set(want):
        raise Mismatch(f"{to} holds {sorted(out)}")
    for name, t in want.items():
        same(report, name, out[name], t.bits, t.dtype)


@case("gptq, awq and w4a16-ct: codes and scales go from one to the other and back")
def _(report):
    rng = np.random.default_rng(171)
    for n, k, group in ((16, 256, 128), (40, 512, 64), (24, 96, 32)):
        codes, half = random_codes(rng, n, k), f16_scales(rng, n, k // group)
        sets = {"group": str(group)} if group != 128 else {}
        gptq, awq = gptq_file("x", codes, half, 0x77777777), awq_file("x", codes, half)
        gptq["x.g_idx"] = tensor("I32", (np.arange(k) // group).astype(np.int32))
        ct = ct_file("x", codes, half, dtype="F16")
        for source in (gptq, awq, ct, gptq_file("x", codes, half, 0x88888888),
                       {key: t for key, t in gptq.items() if key != "x.g_idx"}):
            taken_over(report, source, "awq", awq, sets)
            taken_over(report, source, "gptq", gptq, sets)
            taken_over(report, source, "w4a16-ct", ct, sets | {"scales": "f16"})
            taken_over(report, source, "w4a16-ct", ct, {}) # its choices follow the source
        bf16 = to_bf16(half)
        rounded = ct_file("x", codes, bf16)
        taken_over(report, gptq, "w4a16-ct", rounded, sets | {"scales": "bf16"})
        gptq["x.scales"] = tensor("BF16", np.ascontiguousarray(bf16.T))
        taken_over(report, rounded, "gptq", gptq, sets | {"scales": "bf16"})


@case("a scale of bf16 that is no number of F16 is not taken over")
def _(report):
    codes = random_codes(np.random.default_rng(172), 16, 128)
    scales = np.full((16, 1), 0x3C00, dtype=np.uint16)
    scales[3] = 0x2F01
    source = ct_file("x", codes, scales)
    refused(report, source, "gptq", f"{FILE}: tensor 'x': one of its scales is 1.17324817e-10, "
            "which is no number of F16", "--set scales=bf16 keeps it; --exclude leaves the weight "
            "out", extra=("--set", "scales=f16"))
    scales = np.full((16, 2), 1e-3, dtype=np.float16)
    asymmetric = gptq_file("x", random_codes(np.random.default_rng(1), 16, 256), scales,
                           np.full((16, 2), 3))
    refused(report, asymmetric, "w4a16-ct", f"{FILE}: tensor 'x': gptq (groups of 128) cannot be "
            "converted to w4a16-ct: it is asymmetric: x.qzeros holds other zero points than 8")


@case("gptq and awq: what config.json says, kept layers by name")
def _(report):
    rng = np.random.default_rng(173)
    plain = {f"m.0.{name}.weight": stfile.from_f32("BF16", rng.standard_normal((n, 256)).astype(
        np.float32)) for name, n in (("q_proj", 16), ("a-b.gate", 8), ("o_proj", 12))}
    fields = {"gptq": {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False,
                       "sym": True, "lm_head": False, "checkpoint_format": "gptq",
                       "pack_dtype": "int32",
                       "dynamic": {r"-:^m\.0\.a\-b\.gate$": {}, r"-:^m\.0\.o_proj$": {},
                                   r"-:^lm_head$": {}}},
              "awq": {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True,
                      "version": "gemm",
                      "modules_to_not_convert": ["m.0.a-b.gate", "m.0.o_proj", "lm_head"]}}
    for to, want in fields.items():
        with tool.Workdir() as work:
            os.mkdir(work.at("src"))
            stfile.save(work.at("src", "model.safetensors"), plain)
            with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
                f.write("{}")
            tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", to, "--set",
                     "group=64", "--quiet")
            with open(work.at("out", "config.json"), encoding="utf-8") as f:
                got = json.load(f)["quantization_config"]
            if got != want:
                raise Mismatch(f"{to}: {got}")
            again = tool.run("convert", work.at("out"), "-o", work.at("again"), "--to", to, "--set",
                             "group=64", check=False)
            if again.returncode != 0:
                raise Mismatch(f"its own output is not read: {again.stderr}")
    report.bytes += 1


@case("fp8-tensor-ct: fused=shared gives q, k and v one scale")
def _(report):
    rng = np.random.default_rng(174)
    x = {name: stfile.from_f32("BF16", (rng.standard_normal((32, 64)) * size).astype(np.float32))
         for name, size in (("q_proj", 1), ("k_proj", 3), ("v_proj", .2), ("o_proj", 9))}
    source = {f"m.self_attn.{name}.weight": t for name, t in x.items()}
    largest = max(np.abs(x[name].f32()).max() for name in ("q_proj", "k_proj", "v_proj"))
    for fused in ("own", "shared"):
        out, _ = tool.convert_tensors(source, "fp8-tensor-ct", {"fused": fused})
        for name, t in x.items():
            amax = np.abs(t.f32()).max()
            if fused == "shared" and name != "o_proj":
                amax = largest
            s = stfile.f32_to_bf16(np.array([amax / np.float32(448)], dtype=np.float32))
            codes = rq.to_e4m3(t.f32() / stfile.bf16_to_f32(s))
            same(report, name, out[f"m.self_attn.{name}.weight_scale"], s, "BF16")
            same(report, name, out[f"m.self_attn.{name}.weight"], codes, "F8_E4M3")
