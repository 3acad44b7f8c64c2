"""Marlin's other cases (golden/engines/marlin_rest): FP8 and NVFP4 that are padded, experts without a
gate, 8-bit weights of other tools, codes for int8 activations; and Machete's zero points."""
import json
import os

import numpy as np

import oracle
import stfile
import tool
from input_cases.common import awq_file, case, f16_scales, gptq_file, random_codes
from input_cases.engine_zeros import awq_experts, ct_experts
from input_cases.engines import load as load_scales
from input_cases.engine_moe import AT, KEEP, check_values, equal_files, load, refused
from input_cases.engine_moe import experts as matrices
from golden import Mismatch
from stfile import Tensor, tensor


def check(report, source, to, sets, want, others=()):
    """Converts, compares the bytes of all tensors, and goes to other formats and back."""
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), source)
        out, _ = tool.convert(work.at("in.safetensors"), work.at("out.safetensors"), to, sets, KEEP)
        for name, t in want.items():
            if out[name].shape != t.shape:
                raise Mismatch(f"{to} {name} is {out[name].shape}, not {t.shape}")
            report.equal(f"{to} {name}", out[name].bytes, t.bytes)
        if set(out) != set(want):
            raise Mismatch(f"{to} holds {sorted(out)}")
        tool.run("verify", work.at("out.safetensors"), "--against", work.at("in.safetensors"),
                 "--quiet")
        codes = next(name.rpartition(".")[2].removeprefix("w13_").removeprefix("w2_")
                     for name in want if name.endswith(("weight", "weight_packed")))
        check_values(report, work, out, codes)
        for other, other_sets in others:
            there, back = work.at(other + ".safetensors"), work.at(other + "-back.safetensors")
            tool.convert(work.at("out.safetensors"), there, other, other_sets, KEEP)
            back, _ = tool.convert(there, back, to, sets, KEEP)
            for name, t in want.items():
                report.equal(f"{other} and back: {name}", back[name].bytes, t.bytes)
            tool.run("verify", there, "--against", work.at("out.safetensors"), "--quiet")


def scales_of(t):
    return {"scales": {"BF16": "bf16", "F16": "f16"}[t.dtype]}


def modelopt(t, expert=None, part="", rows=slice(None)):
    """The three tensors of an NVFP4 matrix, without its name."""
    codes, scale = t[f"in_{part}weight"].bits, t[f"in_{part}weight_scale"].bits
    whole = t["in_weight_global_scale" if expert is None else f"in_{part}weight_scale_2"].bits
    if expert is not None:
        codes, scale, whole = codes[expert][rows], scale[expert][rows], whole[expert:expert + 1]
    return {"weight": tensor("U8", np.ascontiguousarray(codes)),
            "weight_scale": tensor("F8_E4M3", np.ascontiguousarray(scale)),
            "weight_scale_2": Tensor("F32", (), whole.tobytes())}


@case("engines: Marlin, NVFP4 that is padded")
def _(report):
    cases = load("marlin_rest")
    for name, scales in (("nvfp4_pad", "bf16"), ("nvfp4_bf16", "bf16")):
        t = cases[name] | (load_scales("marlin_scales")[name] if name == "nvfp4_bf16" else {})
        source = {"x." + key: value for key, value in modelopt(t).items()} | {"x.bias": t["in_bias"]}
        check(report, source, "nvfp4-marlin", {"scales": scales},
              {"x.weight": t["out_weight"], "x.weight_scale": t["out_weight_scale"],
               "x.weight_scale_2": t["out_weight_global_scale"], "x.bias": t["out_bias"]})
    for name, labels in (("nvfp4_moe_low_pad", ("gate_proj", "up_proj")),
                         ("nvfp4_moe_nongated_fp16", ("up_proj",))):
        t, source = cases[name], {}
        each = t["in_w13_weight"].shape[1] // len(labels)
        for i, label in enumerate(labels):
            rows = slice(i * each, (i + 1) * each)
            source |= {f"{AT}0.{label}.{k}": v for k, v in modelopt(t, 0, "w13_", rows).items()}
        source |= {f"{AT}0.down_proj.{k}": v for k, v in modelopt(t, 0, "w2_").items()}
        to = "nvfp4-marlin-64" if "low" in name else "nvfp4-marlin"
        if "low" in name:
            refused(source, "nvfp4-marlin", "vLLM pads the other size of experts otherwise")
        check(report, source, to, {"scales": "f16" if "fp16" in name else "bf16"},
              {AT + key[4:]: value for key, value in t.items() if key.startswith("out_")})


def rows_scaled(scale, n):
    """[n,1] of the scales of ranges of rows: half, a quarter and a quarter."""
    each = np.repeat(scale, [n // 2, n // 4, n // 4])
    return tensor("F32", np.ascontiguousarray(each[:, None]))


@case("engines: Marlin, FP8 that is padded, biases, one scale for each range of rows")
def _(report):
    cases = load("marlin_rest")
    t = cases["fp8block_bf16"] | load_scales("marlin_scales")["fp8block_bf16"]
    source = {"x." + key: t["in_" + key] for key in ("weight", "weight_scale_inv", "bias")}
    check(report, source, "fp8-marlin-channel", {"scales": "bf16"},
          {"x.weight": t["out_weight"], "x.weight_scale": t["out_weight_scale_inv"],
           "x.bias": t["out_bias"]})
    t = cases["fp8channel_pad"]
    source = {"x." + key[3:]: value for key, value in t.items() if key.startswith("in_")}
    check(report, source, "fp8-marlin-channel", {"scales": "f16"},
          {"x." + key[4:]: value for key, value in t.items() if key.startswith("out_")})
    t = cases["fp8tensor"]
    source = {"x.weight": t["in_weight"],
              "x.weight_scale": rows_scaled(t["in_weight_scale"].bits, t["in_weight"].shape[0])}
    check(report, source, "fp8-marlin-channel", {},
          {"x.weight": t["out_weight"], "x.weight_scale": t["out_weight_scale"]})
    t = cases["fp8channel_moe_pad"]
    names = {name: name for name in ("weight", "weight_scale")}
    check(report, matrices(t, names), "fp8-marlin-channel", {},
          {AT + key[4:]: value for key, value in t.items() if key.startswith("out_")})


def ct_source(t, bits):
    """compressed-tensors pack-quantized, of as many bits."""
    n, words = t["in_weight_packed"].shape
    names = [key[3:] for key in t if key.startswith("in_")]
    return {"x." + name: t["in_" + name] for name in names} | {
        "x.weight_shape": tensor("I64", np.array([n, words * 32 // bits], dtype=np.int64))}


@case("engines: Machete, zero points times their scales")
def _(report):
    cases = load("machete_zeros")
    for name, bits in (("m4_ct_zp", 4), ("m8_ct_zp", 8)):
        t = cases[name]
        sets = scales_of(t["in_weight_scale"]) | {"group": "64"}
        marlin = ("w8a16-marlin-channel" if bits == 8 else "w4a16-marlin",
                  sets if bits == 4 else scales_of(t["in_weight_scale"]))
        check(report, ct_source(t, bits), f"w{bits}a16-machete", sets,
              {"x." + key[4:]: value for key, value in t.items() if key.startswith("out_")},
              (marlin,))


@case("engines: Machete, what is stored as zero points and is none")
def _(report):
    for name, bits in (("m4_ct_zp", 4), ("m8_ct_zp", 8)):
        t = load("machete_zeros")[name]
        sets = tool.settings(scales_of(t["in_weight_scale"]) | {"group": "64", "zeros": "stored"})
        with tool.Workdir() as work:
            source = ct_source(t, bits)
            scale = source["x.weight_scale"]
            source["x.weight_scale"] = stfile.from_f32(scale.dtype, np.abs(scale.f32()))
            stfile.save(work.at("in.safetensors"), source)
            run = ("convert", work.at("in.safetensors"), "--to", f"w{bits}a16-machete", "--quiet", *sets)
            tool.run(*run, "-o", work.at("own.safetensors"))
            made, meta = stfile.load(work.at("own.safetensors"))
            zero = made["x.weight_zero_point"]
            scale = made["x.weight_scale"].f32().ravel()[0]
            for number in (np.nan, np.inf, -np.inf, scale, -scale / 2, -(2 ** bits) * scale, -3e4):
                bad = stfile.from_f32(zero.dtype, np.array([number], dtype=np.float32)).data + zero.data[2:]
                made["x.weight_zero_point"] = Tensor(zero.dtype, zero.shape, bad)
                stfile.save(work.at("bad.safetensors"), made, meta)
                for to, copied in (("marlin" if bits == 4 else "marlin-channel", False), ("machete", True)):
                    done = tool.run("convert", work.at("bad.safetensors"), "--to", f"w{bits}a16-{to}", "--force", "--quiet",
                                    *(sets if bits == 4 or copied else sets[:2]), "-o",
                                    work.at("o.safetensors"), check=False)
                    says = "NaN or infinite" if copied else "not minus a whole number"
                    if copied and np.isfinite(number):
                        says = ""
                    if done.returncode != (3 if says else 0) or says not in done.stderr:
                        raise Mismatch(f"{number} to {to}: {done.returncode} {done.stderr}")
                    report.bytes += len(done.stderr)


@case("engines: Marlin, int8 with zero points")
def _(report):
    t = load("marlin_rest")["ct8_zp"]
    sets = scales_of(t["in_weight_scale"]) | {"group": "64"}
    check(report, ct_source(t, 8), "w8a16-marlin", sets,
          {"x." + key[4:]: value for key, value in t.items() if key.startswith("out_")})


def gptq_source(t):
    return {"x." + key[3:]: value for key, value in t.items() if key.startswith("in_")}


def check_gptq8(report, source, to, sets, want):
    """A checkpoint whose config.json alone says that codes have 8 bits."""
    with tool.Workdir() as work:
        os.makedirs(work.at("src"))
        stfile.save(work.at("src", "model.safetensors"), source)
        for bits in (4, 8):
            with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
                json.dump({"quantization_config": {"quant_method": "gptq", "bits": bits}}, f)
            out, _ = tool.convert(work.at("src"), work.at(f"{bits}.safetensors"), to if bits == 8
                                  else "w4a16-marlin-channel", sets if bits == 8 else scales_of(
                                      source["x.scales"]), KEEP + ("--requantize",))
        for name, t in want.items():
            report.exact(name, out[name], t, t.shape)
        tool.run("verify", work.at("8.safetensors"), "--against", work.at("src"), "--quiet")
        tool.run("unpack", work.at("src"), "-o", work.at("plain"), "--dtype", "f32", "--quiet")
        tool.run("unpack", work.at("8.safetensors"), "-o", work.at("p.safetensors"), "--dtype",
                 "f32", "--quiet")
        if source["x.scales"].dtype == "F16":  # of which a source's are read as bf16
            return
        mine, theirs = (tool.load(work.at(*at))[0]["x.weight"]
                        for at in (("plain", "model.safetensors"), ("p.safetensors",)))
        report.equal("values", mine.bytes, theirs.bytes)


@case("engines: Marlin, int8 of GPTQ, padded and not")
def _(report):
    cases = load("marlin_rest") | load_scales("marlin")
    for name in ("gptq8_g64", "gptq8_channel", "gptq8_pad"):
        t = cases[name]
        k, groups = t["in_qweight"].shape[0] * 4, t["in_scales"].shape[0]
        sets = scales_of(t["in_scales"])
        to = "w8a16-marlin-channel" if groups == 1 else "w8a16-marlin"
        check_gptq8(report, gptq_source(t), to,
                    sets | ({} if groups == 1 else {"group": str(k // groups)}),
                    {"x.weight_packed": t["out_qweight"], "x.weight_scale": t["out_scales"]})


@case("engines: int8 of GPTQ with zero points, told by its shapes, and one too large")
def _(report):
    rng = np.random.default_rng(178)
    codes = rng.integers(0, 256, (64, 256), dtype=np.uint8)
    zeros = rng.integers(0, 255, (64, 2), dtype=np.uint8)
    scale = rng.uniform(0.001, 0.1, (64, 2)).astype(np.float16)
    words = np.ascontiguousarray(codes.reshape(64, 64, 4)).view(np.uint32)[..., 0].T
    for stored in (zeros, np.full_like(zeros, 127), np.full_like(zeros, 255)):
        source = {"x.qweight": tensor("I32", np.ascontiguousarray(words).view(np.int32)),
                  "x.qzeros": tensor("I32", np.ascontiguousarray(stored.T).view(np.int32)),
                  "x.scales": tensor("F16", np.ascontiguousarray(scale.T))}
        with tool.Workdir() as work:
            stfile.save(work.at("in.safetensors"), source)
            done = tool.run("convert", work.at("in.safetensors"), "-o", work.at("o.safetensors"),
                            "--to", "w8a16-marlin", "--set", "scales=f16", "--quiet", check=False)
            if stored[0, 0] == 255:
                if done.returncode != 4 or "is 256, and the largest that" not in done.stderr:
                    raise Mismatch(f"{done.returncode} {done.stderr}")
                continue
            if done.returncode:
                raise Mismatch(done.stderr)
            unit = oracle.Checkpoint([work.at("o.safetensors")]).unit("x.")
            want = codes.astype(np.float32) - np.repeat(stored.astype(np.float32) + 1, 128, axis=1)
            want *= np.repeat(scale.astype(np.float32), 128, axis=1)
            if not np.array_equal(unit.values()[0], want):
                raise Mismatch("other values")
            if (len(unit.data) == 3) != (stored is zeros):
                raise Mismatch(f"{sorted(unit.data)} are stored")
            report.bytes += want.nbytes


@case("engines: a zero point of GPTQ that 4 bits do not hold is refused")
def _(report):
    rng = np.random.default_rng(179)
    codes = rng.integers(0, 16, (64, 256), dtype=np.uint8)
    zeros = rng.integers(0, 15, (64, 2), dtype=np.uint8)
    for largest in (14, 15):  # stored less 1
        zeros[3, 1] = largest
        source = gptq_file("x", codes, np.full((64, 2), .5, dtype=np.float16), zeros)
        with tool.Workdir() as work:
            stfile.save(work.at("in.safetensors"), source)
            for to in ("awq", "w4a16-marlin"):
                done = tool.run("convert", work.at("in.safetensors"), "-o", work.at(to + ".safetensors"),
                                "--to", to, "--quiet", check=False)
                if done.returncode != (4 if largest == 15 else 0) or (
                        largest == 15 and "one of its zero points is 16" not in done.stderr):
                    raise Mismatch(f"{done.returncode} {done.stderr}")
                report.bytes += 1


@case("engines: Marlin, groups of 64 and one group to a row, MXFP4 of models in f16")
def _(report):
    cases = load("marlin_rest")
    for name, to, sets in (("gptq4_g64", "w4a16-marlin", {"group": "64"}),
                           ("gptq4_gk", "w4a16-marlin-channel", {})):
        t = cases[name]
        check(report, gptq_source(t), to, scales_of(t["in_scales"]) | sets,
              {"x.weight_packed": t["out_qweight"], "x.weight_scale": t["out_scales"]})
    t = cases["mxfp4_fp16"]
    check(report, {"x.weight_packed": t["in_weight"], "x.weight_scale": t["in_weight_scale"]},
          "mxfp4-marlin", {}, {"x.weight": t["out_weight"], "x.weight_scale": t["out_weight_scale"]})


@case("engines: Marlin, int4 for int8 activations, and experts, which it has none of")
def _(report):
    t = load("marlin_rest")["a8int8_channel"]
    check(report, gptq_source(t), "w4a8-int8-marlin-channel", scales_of(t["in_scales"]),
          {"x.weight_packed": t["out_qweight"], "x.weight_scale": t["out_scales"]},
          (("w4a16-marlin-channel", {}), ("w4a16-machete", {"group": "channel"})))
    rng = np.random.default_rng(180)
    source = {}
    for n, k in ((192, 192), (96, 160)):  # padded both ways, with a bias
        source[f"m{n}.weight"] = stfile.from_f32("BF16", rng.standard_normal((n, k)))
        source[f"m{n}.bias"] = stfile.from_f32("BF16", rng.standard_normal(n))
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), source)
        out, _ = tool.convert(work.at("in.safetensors"), work.at("out.safetensors"),
                              "w4a8-int8-marlin-channel")
        check_values(report, work, out, "weight_packed")
    if out["m192.weight_packed"].shape != (16, 384) or out["m96.bias"].shape != (128,):
        raise Mismatch({name: t.shape for name, t in out.items()})
    refused(ct_experts(load_scales("marlin")["int4_moe_channel"]), "w4a8-int8-marlin-channel", "holds matrices, no stacks of them")


@case("engines: Marlin, int experts of one group to a row of the last matrix")
def _(report):
    """vLLM reads the scales of w13 in another order than its kernel then, so that such a layer is
    refused. All other tensors are those of vLLM."""
    names = {"weight_packed": "qweight", "weight_scale": "scales", "weight_zero_point": "qzeros"}
    for t, to, scales, config in (
            (load("marlin_rest")["int8_moe"], "w8a16-marlin", "bf16", {
                "quant_method": "compressed-tensors", "format": "pack-quantized",
                "config_groups": {"g": {"weights": {"num_bits": 8, "group_size": 64}}}}),
            (load("marlin_moved")["awq_moe"], "w4a16-marlin", "f16",
             {"quant_method": "awq", "bits": 4, "group_size": 64})):
        awq = to == "w4a16-marlin"
        source = awq_experts(t) if awq else ct_experts(t, 8)
        with tool.Workdir() as work:
            os.makedirs(work.at("src"))
            stfile.save(work.at("src", "model.safetensors"), source)
            with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
                json.dump({"quantization_config": config}, f)
            run = ("convert", work.at("src"), "--set", f"scales={scales}", "--quiet", *KEEP, "-o")
            done = tool.run(*run, work.at("no"), "--to", to, "--set", "group=64", check=False)
            if done.returncode != 4 or "a row has more than one: else Marlin" not in done.stderr:
                raise Mismatch(f"{done.returncode} {done.stderr}")
            tool.run(*run, work.at("w2"), "--to", to + "-channel", "--include", "down_proj",
                     "--exclude", "gate|up_proj")
            tool.run(*run, work.at("w13"), "--to", to, "--set", "group=64", "--exclude", "down_proj")
            for part in ("w13", "w2"):
                out = tool.load(work.at(part, "model.safetensors"))[0]
                for name in [n for n in names if AT + "w2_" + n in out or AT + "w13_" + n in out]:
                    want = t[f"out_{part}_{names[name] if awq else name}"]
                    if (part, name) == ("w13", "weight_scale"):
                        continue
                    report.exact(name, out[f"{AT}{part}_{name}"], want, want.shape)


@case("engines: zero points times their scales, compared and taken back")
def _(report):
    rng = np.random.default_rng(181)
    source, at = {}, "model.layers.0.mlp."
    for name in ("gate_proj", "up_proj", "down_proj"):
        zeros = rng.integers(0, 16, (512, 8), dtype=np.uint8)
        scale = f16_scales(rng, 512, 8)
        source |= awq_file(at + name, random_codes(rng, 512, 512), scale, zeros)
    with tool.Workdir() as work:
        os.makedirs(work.at("src"))
        stfile.save(work.at("src", "model.safetensors"), source)
        with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
            json.dump({"model_type": "llama", "num_attention_heads": 2,
                       "quantization_config": {"quant_method": "awq", "bits": 4}}, f)
        sets = ("--set", "group=64", "--set", "scales=f16", "--quiet")
        run = ("convert", work.at("src"), "--to", "w4a16-machete", *sets, "-o")
        tool.run(*run, work.at("one"))
        tool.run("verify", work.at("one"), "--against", work.at("src"), "--quiet")
        tool.run("convert", work.at("one"), "--to", "w4a16-marlin", *sets, "-o", work.at("marlin"))
        tool.run("convert", work.at("src"), "--to", "w4a16-marlin", *sets, "-o", work.at("straight"))
        equal_files(report, "around", work.at("marlin", "model.safetensors"),
                    work.at("straight", "model.safetensors"))
