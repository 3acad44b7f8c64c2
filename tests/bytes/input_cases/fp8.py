"""FP8 and MXFP8 sources, linear and tiled scales, other orientations, and unpack."""
import json
import os

import numpy as np

import refquant as rq
import stfile
import tool
from input_cases.common import (FILE, awq_file, case, check_int4, ct_file, decoded, e4m3_codes,
                                f16_scales, fp8_scales, gptq_file, int8_file, mx_source,
                                random_codes, refused, same, to_bf16, write_source)
from golden import Mismatch
from stfile import tensor


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
                                ("--include", ".", "--force", "--requantize"))[0]

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
            if "x.weight_scale" in out and out["x.weight_scale"].dtype == "BF16":
                report.e4m3("fp8-ct", out["x.weight"], tensor("F8_E4M3", q))
                same(report, "fp8-ct scale", out["x.weight_scale"], ct, "BF16")


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
            for extra in (("--jobs", "1"), ("--jobs", "12", "--max-memory", "32MiB")):
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
                if done.returncode != 4 or "rows of gate and up are interleaved" not in done.stderr:
                    raise Mismatch(f"not refused: {done.stderr}")


def split_experts(report, work, source, logical, at):
    tool.run("convert", work.at("src"), "-o", work.at("ct"), "--to", "w4a8-ct", "--search", "none",
             "--quiet")
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
                                      None, ("--include", ".", "--max-memory", "32MiB", "--jobs", "12"))
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


@case("FP8 with one scale, a scalar or [1], under the names that config.json gives it")
def _(report):
    rng = np.random.default_rng(31)
    q = e4m3_codes(rng, 128, 256)
    groups = {"format": "float-quantized", "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}}}
    for shape, methods in (((), ("fp8", "modelopt", "compressed-tensors")),
                           ((1,), ("compressed-tensors",))):
        for method in methods:
            source = {"x.weight": tensor("F8_E4M3", q),
                      "x.weight_scale": stfile.Tensor("F32", shape, np.float32(0.0078125).tobytes())}
            config = {"quant_method": method} | (groups if method == "compressed-tensors" else {})
            with tool.Workdir() as work:
                write_source(work, source, config)
                tool.run("convert", work.at("src"), "-o", work.at("made"), "--to", "fp8-tensor-ct",
                         "--quiet")
                tool.run("unpack", work.at("src"), "-o", work.at("plain"), "--quiet")
                out, _ = stfile.load(work.at("made", "model.safetensors"))
                same(report, "codes", out["x.weight"], q)
                plain, _ = stfile.load(work.at("plain", "model.safetensors"))
                with np.errstate(invalid="ignore"):
                    same(report, "values", plain["x.weight"],
                         stfile.f32_to_bf16(rq.round_bf16(rq.E4M3[q] * np.float32(0.0078125))), "BF16")


@case("FP8 stacks with one fp32 scale to an expert, whichever method config.json names")
def _(report):
    rng, name = np.random.default_rng(207), "model.layers.0.mlp.experts.down_proj"
    for shape, count in (((3, 256, 128), 3), ((256, 128), 1)):
        codes = e4m3_codes(rng, *shape)
        scales = np.exp2(rng.integers(-9, -3, count)).astype(np.float32)
        source = {f"{name}.weight": tensor("F8_E4M3", codes),
                  f"{name}.weight_scale": tensor("F32", scales)}
        want = rq.E4M3[codes] * scales.reshape(-1, 1, 1)
        for method in ("modelopt", "modelopt_fp8", "fp8", "compressed-tensors", None):
            with tool.Workdir() as work:
                write_source(work, source, method and {"quant_method": method})
                tool.run("unpack", work.at("src"), "-o", work.at("out"), "--dtype", "f32",
                         "--quiet")
                out = list(stfile.load(work.at("out", "model.safetensors"))[0].values())[0]
            same(report, f"{shape} of {method}", out,
                 want.reshape(shape).astype(np.float32).view(np.uint32), "F32")


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
        (ct_file("x", codes, to_bf16(one)), decoded(codes, to_bf16(one), eight, group * 0)),
        (ct_file("x", codes, to_bf16(scales), zeros),
         decoded(codes, to_bf16(scales), zeros, group)),
        (int8_file("x", codes, to_bf16(scales)), decoded(codes, to_bf16(scales), eight, group)),
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


def expert_parts(rng, make):
    """Experts of 192 rows: the source's tensors, and the values of gate and up as a stack."""
    source, values = {}, []
    for e in range(2):
        for part in ("gate_proj", "up_proj"):
            made, v = make(rng, f"l.experts.{e}.{part}")
            source.update(made)
            values.append(rq.round_bf16(v))
    return source, np.stack(values).reshape(2, 384, 256)


def fp8_of_one_scale(rng, name):
    q, s = e4m3_codes(rng, 192, 256), np.float32(2.0 ** rng.integers(-12, 0) * rng.uniform(1, 2))
    return ({name + ".weight": tensor("F8_E4M3", q),
             name + ".weight_scale": tensor("F32", s.reshape(1))}, rq.E4M3[q] * s)


def nvfp4_of_one_scale(rng, name):
    made = mx_source(rng, "nvfp4-ct", 192, 256)
    packed, scales = made["weight_packed"].bits, rq.E4M3[made["weight_scale"].bits]
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(192, 256)
    scales = (scales / made["weight_global_scale"].bits).astype(np.float32)
    return ({f"{name}.{key}": t for key, t in made.items()},
            rq.E2M1[codes] * rq.spread(scales, 1, 16, 192, 256))


def int4_in_act_order(rng, name):
    codes, scales = random_codes(rng, 192, 256), to_bf16(f16_scales(rng, 192, 2))
    order = rng.permutation(np.arange(256) // 128)
    return ct_file(name, codes, scales, None, order), decoded(codes, scales, np.uint8(8), order)


@case("experts' gate and up that share tiles of the result: each with its own scale and order")
def _(report):
    rng = np.random.default_rng(61)
    for make in (fp8_of_one_scale, nvfp4_of_one_scale, int4_in_act_order):
        source, v = expert_parts(rng, make)
        q, s = rq.mxfp8(v)
        for extra in ((), ("--max-memory", "32MiB", "--jobs", "12")):
            out, _ = tool.convert_tensors(source, "mxfp8-blocked", None, ("--requantize", *extra))
            report.e4m3(make.__name__, out["l.experts.w13_weight"], tensor("F8_E4M3", q))
            same(report, make.__name__, out["l.experts.w13_weight_scale"], rq.tiles_128x4(s))
    source, v = expert_parts(rng, fp8_of_one_scale)
    one, other = (f"l.experts.0.{part}.weight_scale" for part in ("gate_proj", "up_proj"))
    scales = source[one].f32()[0], source[other].f32()[0]
    refused(report, source, "fp8-deepgemm-sm90", f"{FILE}: tensor 'l.experts.w13': fp8-tensor-ct "
            "cannot be converted to fp8-deepgemm-sm90: the global scales of l.experts.0.gate_proj "
            "and l.experts.0.up_proj differ (%.9g and %.9g), and rows of both lie in one of its "
            "128-row tiles" % scales, "--no-stack leaves the experts apart; or --requantize "
            "decodes it and quantizes again, and prints the error that costs")
    out, _ = tool.convert_tensors(source, "fp8-deepgemm-sm90", None, ("--requantize",))
    q, s = rq.fp8_block(v, "cuda")
    report.e4m3("blocks", out["l.experts.w13_weight"], tensor("F8_E4M3", q))
    same(report, "block scales", out["l.experts.w13_weight_scale_inv"], s, "F32")
    for e in range(2):  # one scale for both: taken over
        at = f"l.experts.{e}."
        source[at + "up_proj.weight_scale"] = source[at + "gate_proj.weight_scale"]
    out, _ = tool.convert_tensors(source, "fp8-deepgemm-sm90")
    codes = np.stack([np.concatenate([source[f"l.experts.{e}.{part}.weight"].bits
                                      for part in ("gate_proj", "up_proj")]) for e in range(2)])
    s = np.stack([np.full((3, 2), source[f"l.experts.{e}.gate_proj.weight_scale"].f32()[0])
                  for e in range(2)])
    same(report, "codes", out["l.experts.w13_weight"], codes)
    same(report, "their scale", out["l.experts.w13_weight_scale_inv"], s, "F32")


@case("stacks with a scale to each row, whose up begins inside a block: not one scale for both")
def _(report):
    rng = np.random.default_rng(62)
    for rows in (128, 192):
        source = {f"l.experts.{e}.{part}.weight": stfile.from_f32("BF16", (rng.standard_normal(
            (rows, 128)) * np.exp2(rng.integers(-4, 4, (rows, 1)))).astype(np.float32))
            for e in range(2) for part in ("gate_proj", "up_proj")}
        for to in ("fp8-deepseek", "fp8-ct"):
            with tool.Workdir() as work:
                stacks, out = work.at("stacks.safetensors"), work.at("out.safetensors")
                stfile.save(work.at("in.safetensors"), source)
                tool.convert(work.at("in.safetensors"), stacks, "fp8-deepgemm-sm100", None,
                             ("--include", "."))
                if rows % 128:
                    done = tool.run("convert", stacks, "-o", out, "--to", to, check=False)
                    if done.returncode != 4 or ("row 192 of l.experts.w13, where it begins, is "
                                                f"inside a block of {to}") not in done.stderr:
                        raise Mismatch(f"{done.returncode}: {done.stderr}")
                    continue
                tool.convert(stacks, out, to)
                plain = [unpacked(work, path) for path in (stacks, out)]
                for name in source:
                    same(report, name, plain[1][name], plain[0][name].bits)


def unpacked(work, path):
    tool.run("unpack", path, "-o", work.at("plain.safetensors"), "--dtype", "f32", "--quiet",
             "--force")
    return stfile.load(work.at("plain.safetensors"))[0]
