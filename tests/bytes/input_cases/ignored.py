"""What the source's config lists as not quantized stays so, unless it is asked for."""
import json
import os

import numpy as np

import stfile
import tool
from input_cases.common import awq_file, case, ct_file, f16_scales, fp8_scales, e4m3_codes
from input_cases.common import random_codes, to_bf16
from golden import Mismatch
from stfile import tensor


REASON, LEFT = "not quantized in the source", "left plain by its quantizer"


def plain(rng, n=64, k=256):
    return stfile.from_f32("BF16", rng.standard_normal((n, k)).astype(np.float32))


def plan(work, tensors, config, to, *extra):
    """(names of the units, {kept tensor: reason})"""
    os.makedirs(work.at("src"), exist_ok=True)
    stfile.save(work.at("src", "model.safetensors"), tensors)
    with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    out = json.loads(tool.run("plan", work.at("src"), "--to", to, "--json", *extra).stdout)
    return ({u["name"] for u in out["units"]},
            {k["name"]: k["reason"] for k in out["kept"] if k.get("reason")})


def expect(report, what, got, want):
    if got != want:
        raise Mismatch(f"{what}: {got}, not {want}")
    report.bytes += len(got)


@case("gpt-oss: the modules that are not MXFP4 stay as they are")
def _(report):
    rng = np.random.default_rng(40)
    at = "model.layers.0."
    source = {at + f"self_attn.{p}_proj.weight": plain(rng) for p in "qkvo"}
    source.update({at + "mlp.router.weight": plain(rng), "lm_head.weight": plain(rng),
                   "model.embed_tokens.weight": plain(rng)})
    for proj, n in (("gate_up_proj", 256), ("down_proj", 128)):
        source[at + f"mlp.experts.{proj}_blocks"] = tensor(
            "U8", rng.integers(0, 256, (2, n, 4, 16), dtype=np.uint8))
        source[at + f"mlp.experts.{proj}_scales"] = tensor(
            "U8", rng.integers(100, 130, (2, n, 4), dtype=np.uint8))
    config = {"model_type": "gpt_oss", "quantization_config": {
        "quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
            "lm_head"]}}
    experts = {at + f"mlp.experts.{p}" for p in ("gate_up_proj", "down_proj")}
    attention = {at + f"self_attn.{p}_proj" for p in "qkvo"}
    named = {at + "mlp.router.weight": "router", "lm_head.weight": "output head",
             "model.embed_tokens.weight": "embedding"}
    with tool.Workdir() as work:
        units, kept = plan(work, source, config, "mxfp4-blocked")
        expect(report, "units", units, experts)
        expect(report, "kept", kept, {**named, **{n + ".weight": REASON for n in attention}})
        units, kept = plan(work, source, config, "mxfp4-blocked", "--include", "experts",
                           "--include", "self_attn")
        expect(report, "units of --include", units, experts | attention)
        with open(work.at("r.json"), "w", encoding="utf-8") as f:
            json.dump({"rules": [{"match": "q_proj", "to": "mxfp4-blocked", "plain": "convert"},
                                 {"match": "experts", "to": "mxfp4-blocked"}]}, f)
        done = json.loads(tool.run("plan", work.at("src"), "--recipe", work.at("r.json"),
                                   "--merged", "convert", "--json").stdout)
        expect(report, "units of a recipe", {u["name"] for u in done["units"]},
               experts | {at + "self_attn.q_proj"})
        tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", "mxfp4-blocked", "-q")
        out, _ = tool.load(work.at("out"))
        for name in attention:
            report.equal(name, out[name + ".weight"].bytes, source[name + ".weight"].bytes)
        with open(work.at("out", "config.json"), encoding="utf-8") as f:
            listed = set(json.load(f)["quantization_config"]["ignore"])
        expect(report, "listed", listed,
               attention | {at + "mlp.router", "lm_head", "model.embed_tokens"})


@case("compressed-tensors: ignore with exact names and expressions")
def _(report):
    rng = np.random.default_rng(41)
    at = "model.layers.0."
    names = ("self_attn.o_proj", "mlp.mix_proj", "mlp.up_proj", "mlp.down_proj", "fc1", "fc2")
    source = {at + n + ".weight": plain(rng) for n in names}
    source.update(ct_file(at + "self_attn.q_proj", random_codes(rng, 64, 256),
                          to_bf16(f16_scales(rng, 64, 2))))
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 128}}
    config = {"quantization_config": {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": group},
        "ignore": [at + "self_attn.o_proj", "re:.*mlp\\.(?:up|down)_proj$", "Linear", "gate",
                   "re:fc1", "re:(?!model)", at + "self_attn.q_proj", "re:.*layers\\.\\d\\.fc2"]}}
    with tool.Workdir() as work:
        units, _ = plan(work, source, config, "w4a8-cutlass")
        expect(report, "units", units, {at + "self_attn.q_proj"})
        units, kept = plan(work, source, config, "w4a8-cutlass", "--plain", "convert")
        expect(report, "units", units, {at + n for n in ("self_attn.q_proj", "mlp.mix_proj",
                                                         "fc1")})
        expect(report, "kept", kept, {at + n + ".weight": REASON for n in
                                      ("self_attn.o_proj", "mlp.up_proj", "mlp.down_proj",
                                       "fc2")})


@case("AWQ and FP8: modules_to_not_convert, ignored_layers")
def _(report):
    rng = np.random.default_rng(42)
    source = {n + ".weight": plain(rng) for n in ("side.blocks.0.attn.qkv", "m.0.mlp.fc",
                                                  "m.0.attn.o", "m.0.attn.o2")}
    awq = {**source, **awq_file("m.0.attn.q", random_codes(rng, 64, 256), f16_scales(rng, 64, 2))}
    scale, _ = fp8_scales(rng, "F32", 1, 2)
    fp8 = {**source, "m.0.attn.q.weight": tensor("F8_E4M3", e4m3_codes(rng, 64, 256)),
           "m.0.attn.q.weight_scale_inv": scale}
    kept = {n: REASON for n in ("side.blocks.0.attn.qkv.weight", "m.0.attn.o.weight")}
    with tool.Workdir() as work:
        for tensors, key, to, config in (
                (awq, "modules_to_not_convert", "w4a8-cutlass", {"quant_method": "awq", "bits": 4,
                                                                 "group_size": 128}),
                (fp8, "ignored_layers", "mxfp8-ct", {"quant_method": "fp8"})):
            config[key] = ["side", "m.0.attn.o"]
            got = plan(work, tensors, {"quantization_config": config}, to, "--plain", "convert")
            expect(report, "units", got[0], {"m.0.attn.q", "m.0.mlp.fc", "m.0.attn.o2"})
            expect(report, "kept", got[1], kept)


@case("compression_config is read where quantization_config is missing, and taken out")
def _(report):
    rng = np.random.default_rng(43)
    source = {"m.a.weight": plain(rng), "m.b.weight": plain(rng)}
    source.update(ct_file("m.c", random_codes(rng, 64, 256), to_bf16(f16_scales(rng, 64, 2))))
    old = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["m.a"]}
    with tool.Workdir() as work:
        _, kept = plan(work, source, {"compression_config": old, "x": 1}, "w4a8-cutlass")
        expect(report, "kept", kept, {"m.a.weight": REASON, "m.b.weight": LEFT})
        for verb, last, want in (("convert", ("--to", "w4a8-cutlass"),
                                  {"x", "quantization_config", "transformers_weights"}),
                                 ("unpack", (), {"x"})):
            tool.run(verb, work.at("src"), "-o", work.at(verb), "-q", *last)
            with open(work.at(verb, "config.json"), encoding="utf-8") as f:
                expect(report, verb, set(json.load(f)), want)
        new = {**old, "ignore": ["m.b"]}
        _, kept = plan(work, source, {"compression_config": old, "quantization_config": new},
                       "w4a8-cutlass")
        expect(report, "kept", kept, {"m.b.weight": REASON, "m.a.weight": LEFT})


@case("what only experts want is no warning for other weights")
def _(report):
    rng = np.random.default_rng(44)
    source = {"m.self_attn.q_proj.weight": plain(rng, 128, 896),
              "m.mlp.shared_experts.up_proj.weight": plain(rng, 128, 896),
              "m.mlp.experts.0.up_proj.weight": plain(rng, 128, 896)}
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), source)
        done = tool.run("plan", work.at("in.safetensors"), "--to", "w4a8-ct", "--json")
        warned = {u["name"] for u in json.loads(done.stdout)["units"] if u.get("warning")}
        expect(report, "warned", warned, {"m.mlp.experts.0.up_proj"})


@case("a kept stack beside a converted one of the same experts is listed without the other")
def _(report):
    rng = np.random.default_rng(45)
    source = {}
    for layer in "01":
        at = f"model.layers.{layer}.mlp.experts."
        source[at + "gate_up_proj"] = stfile.from_f32("BF16", rng.standard_normal((2, 256, 512)))
        source[at + "down_proj"] = stfile.from_f32("BF16", rng.standard_normal((2, 512, 128)))
    config = {"model_type": "qwen3_moe", "hidden_size": 512, "moe_intermediate_size": 128}
    at, whole = "model.layers.0.mlp.experts", "model.layers.1.mlp.experts"
    exclude = ("--exclude", "0.mlp.experts.gate_up", "--exclude", "1.mlp.experts")
    own = {at + ".gate_up_proj"}
    each = own | {f"{at}.{e}.{p}_proj" for e in "01" for p in ("gate", "up")} | {"lm_head"}
    converted = {f"{at}.{e}.down_proj" for e in "01"}
    with tool.Workdir() as work:
        for to, key, units, want in (
                ("mxfp4-ct", "ignore", converted,
                 each | {"re:.*layers[.]1[.]mlp[.]experts[.].*"}),
                ("fp8-deepseek", "modules_to_not_convert", converted, each | {whole}),
                ("w4a8-cutlass", "ignore", {at + ".w2"}, own | {whole})):
            got, _ = plan(work, source, config, to, *exclude)
            expect(report, "units", got, units)
            tool.run("convert", work.at("src"), "-o", work.at(to), "-q", "--to", to, *exclude)
            with open(work.at(to, "config.json"), encoding="utf-8") as f:
                listed = json.load(f)["quantization_config"][key]
            expect(report, f"listed of {to}", set(listed), want)
            again = json.loads(tool.run("plan", work.at(to), "--to", to, "--json").stdout)
            reasons = {k["name"]: k.get("reason") for k in again["kept"]}
            expect(report, f"{to} again", reasons[at + ".gate_up_proj"], REASON)
