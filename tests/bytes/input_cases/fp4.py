"""The FP4 formats, and MX and NVFP4 checkpoints of other tools."""
import json
import os

import numpy as np

import oracle
import refquant as rq
import stfile
import tool
from input_cases.common import (FILE, case, decoded, golden_case, mx_source, nvfp4_global,
                                nvfp4_with, refused, same)
from golden import Mismatch
from stfile import tensor


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
    refused(report, source, "nvfp4-blocked", f"{FILE}: tensor 'x': nvfp4-modelopt cannot be "
            "converted to nvfp4-blocked: its global scale is a multiplier, that of the result a "
            "divisor", "--set scale=modelopt takes its codes and scales over as they are; "
            "--exclude leaves it as it is", extra=("--set", "scale=ct"))
    out, _ = tool.convert_tensors(source, "nvfp4-blocked")
    same(report, "followed global", out["x.weight_global_scale"], ws2, "F32")
    out, _ = tool.convert_tensors(source, "nvfp4-ct")
    same(report, "divisor", out["x.weight_global_scale"], np.float32(1) / ws2, "F32")
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
        tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", "mxfp4-blocked",
                 "--quiet")
        out, _ = tool.load(work.at("out"))
        units = oracle.Checkpoint(tool.shards(work.at("out")))
        for proj in ("gate_up_proj", "down_proj"):
            at = f"model.layers.0.mlp.experts.{proj}_"
            e, n, blocks, _ = g[at + "blocks"].shape
            same(report, proj, out[at + "weight_packed"],
                 g[at + "blocks"].bits.reshape(e, n, blocks * 16), "U8")
            same(report, proj, out[at + "weight_scale"], rq.tiles_128x4(g[at + "scales"].bits),
                 "U8")
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
    for extra in ((), ("--jobs", "12", "--max-memory", "32MiB")):
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
            same(report, at, out[at + "weight_global_scale"],
                 np.array(gs, np.float32).reshape(-1), "F32")
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
            "--requantize decodes it and quantizes again, and prints the error that costs; "
            "--exclude leaves it as it is")
    tool.convert_tensors(source, "nvfp4-blocked", None, ("--requantize",))


@case("nvfp4-ct of F16 whose largest value has no divisor: 1, and a warning")
def _(report):
    rng = np.random.default_rng(64)
    x = (rng.standard_normal((64, 256)) * 0.005).astype(np.float32)
    for dtype, to, extra, lost in (("F16", "nvfp4-ct", (), True), ("BF16", "nvfp4-ct", (), False),
                                   ("F16", "nvfp4-blocked", ("--jobs", "1"), True),
                                   ("F16", "nvfp4-marlin-64", (), False)):
        with tool.Workdir() as work:
            stfile.save(work.at("a.safetensors"), {"a.weight": stfile.from_f32(dtype, x),
                        "b.weight": stfile.from_f32(dtype, x * 0), "c.weight":
                        stfile.from_f32(dtype, x * 100)})
            done = tool.run("convert", work.at("a.safetensors"), "-o", work.at("o.safetensors"),
                            "--to", to, "--include", ".", *extra)
            out, _ = stfile.load(work.at("o.safetensors"))
        said = "warning: a: the largest value is 0.0" in done.stderr
        if said != lost or "others: the largest" in done.stderr:
            raise Mismatch(f"{dtype} to {to}: {done.stderr}")
        if lost:
            same(report, to, out["a.weight_global_scale"], np.ones(1, np.float32))
        report.bytes += len(done.stderr)


@case("nvfp4 and mxfp4 of random shapes and dtypes")
def _(report):
    rng = np.random.default_rng(21)
    for _ in range(12):
        n, k = int(rng.integers(1, 300)), 32 * int(rng.integers(1, 40))
        for dtype in ("BF16", "F16", "F32"):
            x = (rng.standard_normal((n, k)) * 2.0 ** rng.integers(-12, 3, (n, 1)))
            x = stfile.from_f32(dtype, np.where(rng.random((n, 1)) < 0.1, 0, x).astype(np.float32))
            source, v = {"x.weight": x}, x.f32()
            out, _ = tool.convert_tensors(source, "nvfp4-ct", None, ("--max-memory", "32MiB", "--jobs", "12"))
            with np.errstate(divide="ignore"):
                reciprocal = np.float32(1) / np.float32(np.abs(v).max())
            with np.errstate(over="ignore", invalid="ignore"):
                reciprocal = stfile.from_f32(dtype, np.array([reciprocal])).f32()
                g = stfile.from_f32(dtype, reciprocal * np.float32(2688)).f32()
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
