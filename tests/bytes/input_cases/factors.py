"""Scales that a format stores times a power of two, or as bytes of five exponent bits
(formats/README.md, 5.6): every way there and back, against numpy code of its own."""
import os

import numpy as np

import oracle
import refquant as rq
import refsearch
import stfile
import tool
from input_cases.common import FILE, case, refused, same
from input_cases.engine_moe import AT, WEIGHTS, both, check, equal_files, experts, modelopt
from input_cases.engines import load
from golden import Mismatch
from stfile import Tensor, tensor

FACTOR = {"nvfp4": {"bf16": 119, "f16": 7}, "fp8": {"bf16": 120, "f16": 8}}


def parts(path, prefix="x."):
    """Stored elements of each output, in the order of their coordinates, rows of all stretches."""
    unit = oracle.Checkpoint([path]).unit(prefix)
    box, out = unit.descriptor["box"], {}
    for o in unit.descriptor["outputs"]:
        stretches = unit.descriptor.get("stretches", 1)
        stored = oracle.Stored(o, box, unit.data[o["suffix"]], stretches).at_blocks()
        out[o["role"]] = stored.reshape(box[0], -1, *stored.shape[2:])
    return unit, out


def e5m3(t, lift):
    """Bytes of e4m3 bytes, through numbers."""
    value = rq.E4M3[t & 0x7F].astype(np.float64) * 2.0 ** lift
    mantissa, exponent = np.frexp(value)  # value = mantissa * 2^exponent, mantissa from 0.5
    byte = ((exponent - 1 + 22) << 3) + (mantissa * 16).astype(np.int64) - 8
    return np.where((value == 0) | (byte < 128), 0, byte).astype(np.uint8)


def stored_f32(values, factor):
    return np.ldexp(np.asarray(values, dtype=np.float64), factor).astype(np.float32)


def half_scales(scales, kind, factor):
    """Bits of fp32 scales rounded to 16 bits, then multiplied."""
    if kind == "f16":
        return (scales.astype(np.float16) * np.float16(2.0 ** factor)).view(np.uint16)
    return stfile.f32_to_bf16(np.ldexp(stfile.bf16_to_f32(stfile.f32_to_bf16(scales)), factor))


def fp8_matrix(rng, n, k, bn, bk):
    scales = np.exp2(rng.uniform(-14, -8, (-(-n // bn), -(-k // bk)))).astype(np.float32)
    codes = rng.integers(0, 256, (n, k), dtype=np.uint8)
    return np.where(codes & 0x7F == 0x7F, 0, codes).astype(np.uint8), scales


@case("factors: NVFP4 as Marlin has it, from values and from codes, and back")
def _(report):
    rng = np.random.default_rng(61)
    x = stfile.from_f32("BF16", (rng.standard_normal((64, 128)) * np.exp2(
        rng.integers(-12, 0, (64, 8))).repeat(16, axis=1)).astype(np.float32))
    g = np.float32(np.abs(x.f32()).max()) / np.float32(2688)
    codes, t = refsearch.nvfp4(x.f32(), g, "modelopt", search=False)
    for kind, factor in FACTOR["nvfp4"].items():
        sets = {"scales": kind}
        with tool.Workdir() as work:
            at = work.at
            stfile.save(at("a.safetensors"), {"x.weight": x})
            tool.convert(at("a.safetensors"), at("b.safetensors"), "nvfp4-marlin", sets,
                         ("--include", "."))
            tool.run("verify", at("b.safetensors"), "--against", at("a.safetensors"), "--quiet")
            unit, got = parts(at("b.safetensors"))
            same(report, "codes", tensor("U8", got["codes"][0]), codes)
            same(report, "scales", tensor("U8", got["scale"][0]), e5m3(t, 0))
            same(report, "global", tensor("U32", got["global"].reshape(1)),
                 stored_f32(g, factor).reshape(1).view(np.uint32))
            kept = rq.spread((e5m3(t, 0) > 0).astype(np.float32), 1, 16, 64, 128)
            want = rq.E2M1[codes] * rq.spread(rq.E4M3[t] * g, 1, 16, 64, 128) * kept
            same(report, "values", tensor("F32", unit.values()[0]), want.astype(np.float32))
            tool.convert(at("b.safetensors"), at("c.safetensors"), "nvfp4-blocked",
                         {"scale": "modelopt"})
            tool.convert(at("c.safetensors"), at("d.safetensors"), "nvfp4-marlin", sets)
            equal_files(report, "there and back", at("b.safetensors"), at("d.safetensors"))
            back = oracle.Checkpoint([at("c.safetensors")]).unit("x.").values()[0]
            same(report, "back", tensor("F32", back), want.astype(np.float32))
            tool.run("diff", at("b.safetensors"), at("c.safetensors"))


@case("factors: NVFP4 scales are lifted, what engines load as one alike, all experts alike")
def _(report):
    rng = np.random.default_rng(62)
    source, made = {}, {}
    names = [f"m.self_attn.{p}_proj" for p in "qkvo"]
    names += [f"{AT}{e}.{p}_proj" for e in range(2) for p in ("gate", "up", "down")]
    for i, name in enumerate(names):
        most = 0x40 + 3 * i
        t = rng.integers(0, most + 1, (128, 8), dtype=np.uint8)
        t[0, :2] = most, 1
        made[name] = t
        source |= {name + ".weight": tensor("U8", rng.integers(0, 256, (128, 64), dtype=np.uint8)),
                   name + ".weight_scale": tensor("F8_E4M3", t),
                   name + ".weight_scale_2": Tensor("F32", (), np.float32(0.01).tobytes())}
    sets = [names[:3], names[3:4], [n for n in names[4:] if "down" not in n],
            [n for n in names[4:] if "down" in n]]
    with tool.Workdir() as work:
        stfile.save(work.at("a.safetensors"), source)
        tool.convert(work.at("a.safetensors"), work.at("b.safetensors"), "nvfp4-marlin")
        for members in sets:
            most = max(int(made[n].max()) for n in members)
            lift = int(np.floor(np.log2(448 / rq.E4M3[most])))
            if lift < 1:
                raise Mismatch("nothing is lifted")
            stack = "experts" in members[0]
            for n in members:
                prefix = n + "." if not stack else AT + ("w2_" if "down" in n else "w13_")
                _, got = parts(work.at("b.safetensors"), prefix)
                e = int(n.split(".")[3]) if stack else 0
                rows = slice(128, 256) if "up" in n else slice(0, 128)
                same(report, n, tensor("U8", got["scale"][e][rows]), e5m3(made[n], lift))
                want = stored_f32(np.float32(0.01), 119 - lift).reshape(1).view(np.uint32)
                same(report, n, tensor("U32", got["global"][e].reshape(1)), want)
        tool.run("verify", work.at("b.safetensors"), "--against", work.at("a.safetensors"),
                 "--quiet")


@case("factors: FP8 with scales times a power of two, blocks and rows, and back")
def _(report):
    rng = np.random.default_rng(63)
    for to, n, k, block, suffix in (("fp8-marlin", 192, 384, (128, 128), "weight_scale_inv"),
                                    ("fp8-marlin-channel", 64, 128, (1, 128), "weight_scale"),
                                    ("fp8-marlin-channel", 64, 192, (64, 192), "weight_scale")):
        codes, scales = fp8_matrix(rng, n, k, *block)
        shape = scales if block[0] < 64 or block[1] == 128 else scales.reshape(1)
        source = {"x.weight": tensor("F8_E4M3", codes), "x." + suffix: tensor("F32", shape)}
        for kind, factor in FACTOR["fp8"].items():
            with tool.Workdir() as work:
                at = work.at
                stfile.save(at("a.safetensors"), source)
                tool.convert(at("a.safetensors"), at("b.safetensors"), to, {"scales": kind})
                tool.run("verify", at("b.safetensors"), "--against", at("a.safetensors"), "--quiet")
                unit, got = parts(at("b.safetensors"))
                wide = np.repeat(scales, block[0], axis=0)[:n]
                same(report, "codes", tensor("U8", got["codes"][0]), codes)
                same(report, "scales", tensor("U16", got["scale"][0]),
                     half_scales(wide, kind, factor))
                rounded = wide.astype(np.float16) if kind == "f16" else rq.round_bf16(wide)
                want = rq.E4M3[codes] * np.repeat(rounded.astype(np.float32), block[1],
                                                  axis=1)[:, :k]
                same(report, "values", tensor("F32", unit.values()[0]), want)
                tool.run("unpack", at("b.safetensors"), "-o", at("c.safetensors"), "--dtype",
                         "f32", "--quiet")
                plain = tool.load(at("c.safetensors"))[0]["x.weight"]
                same(report, "unpacked", plain, want)
                other = {"bf16": "f16", "f16": "bf16"}[kind]
                tool.convert(at("b.safetensors"), at("d.safetensors"), to, {"scales": other})
                _, again = parts(at("d.safetensors"))
                same(report, "the other type", tensor("U16", again["scale"][0]), half_scales(
                    rounded.astype(np.float32), other, FACTOR["fp8"][other]))


@case("factors: FP8 from values is what the block and row formats store, rounded")
def _(report):
    rng = np.random.default_rng(64)
    x = stfile.from_f32("BF16", (rng.standard_normal((128, 256)) * 0.05).astype(np.float32))
    for to, other, suffix in (("fp8-marlin", "fp8-deepseek", "weight_scale_inv"),
                              ("fp8-marlin-channel", "fp8-dynamic-ct", "weight_scale")):
        with tool.Workdir() as work:
            at = work.at
            stfile.save(at("a.safetensors"), {"x.weight": x})
            plain, _ = tool.convert(at("a.safetensors"), at("b.safetensors"), other, None,
                                    ("--include", "."))
            tool.convert(at("a.safetensors"), at("c.safetensors"), to, None, ("--include", "."))
            tool.convert(at("b.safetensors"), at("d.safetensors"), to)
            equal_files(report, "values and codes", at("c.safetensors"), at("d.safetensors"))
            _, got = parts(at("c.safetensors"))
            scales = plain["x." + suffix].f32()
            wide = np.repeat(scales, 128 // scales.shape[0], axis=0)
            same(report, to, tensor("U16", got["scale"][0]), half_scales(wide, "bf16", 120))
            same(report, to, tensor("U8", got["codes"][0]), plain["x.weight"].bits)


@case("factors: experts as vLLM has them, unpacked, looked at and verified")
def _(report):
    cases = load("marlin_scales")
    check(report, modelopt(cases["nvfp4_moe"]), "nvfp4-marlin",
          both(cases["nvfp4_moe"], "weight"))
    t = cases["fp8block_moe"]
    names = {"weight": "weight", "weight_scale": "weight_scale_inv"}
    check(report, experts(t, names), "fp8-marlin-channel", both(t, *WEIGHTS))
    rng = np.random.default_rng(65)
    source = {}
    for e in range(2):
        for p, (n, k) in (("gate", (256, 512)), ("up", (256, 512)), ("down", (512, 512))):
            source[f"{AT}{e}.{p}_proj.weight"] = stfile.from_f32(
                "BF16", rng.standard_normal((n, k)).astype(np.float32))
    for to in ("nvfp4-marlin", "fp8-marlin", "fp8-marlin-channel"):
        with tool.Workdir() as work:
            os.mkdir(work.at("src"))
            stfile.save(work.at("src", "model.safetensors"), source)
            with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
                f.write('{"model_type": "mixtral", "num_attention_heads": 2}')
            run = ("convert", work.at("src"), "--to", to, "--quiet", "-o")
            tool.run(*run, work.at("one"), "--max-memory", "64MiB", "--jobs", "3")
            tool.run("verify", work.at("one"), "--against", work.at("src"), "--quiet")


@case("factors: numbers that a power of two makes infinite are refused; what is lost is said")
def _(report):
    rng = np.random.default_rng(66)
    codes, _ = fp8_matrix(rng, 64, 128, 64, 128)
    big = {"x.weight": tensor("F8_E4M3", codes),
           "x.weight_scale_inv": tensor("F32", np.full((1, 1), 300, dtype=np.float32))}
    hint = "--exclude leaves the weight out"
    why = "which is infinite times the power of two that this format multiplies it by"
    refused(report, big, "fp8-marlin-channel", f"{FILE}: tensor 'x': one of its scales is 300, "
            + why, hint, status=3)
    one = big | {"x.weight_scale": tensor("F32", np.full(1, 300, dtype=np.float32))}
    del one["x.weight_scale_inv"]
    refused(report, one, "fp8-marlin-channel", f"{FILE}: tensor 'x': one of its scales is 300, "
            + why, hint, status=3)
    nv = {"x.weight": tensor("U8", codes[:, :64]),
          "x.weight_scale": tensor("F8_E4M3", np.full((64, 8), 0x7E, dtype=np.uint8)),
          "x.weight_scale_2": Tensor("F32", (), np.float32(600).tobytes())}
    refused(report, nv, "nvfp4-marlin", f"{FILE}: tensor 'x': one of its scales is 600, " + why,
            hint, status=3)
    huge = stfile.from_f32("F32", np.full((64, 128), 1e9, dtype=np.float32))
    for to in ("nvfp4-marlin", "fp8-marlin-channel"):
        refused(report, {"x.weight": huge}, to, f"{FILE}: tensor 'x': some of its values are so "
                "large that a scale, times the power of two that this format multiplies it by, is "
                "infinite", "--exclude leaves it as it is", status=3)
    big["x.weight_scale_inv"] = tensor("F32", np.full((1, 1), 0.1, dtype=np.float32))
    with tool.Workdir() as work:
        stfile.save(work.at("a.safetensors"), big)
        done = tool.run("convert", work.at("a.safetensors"), "-o", work.at("b.safetensors"), "--to",
                        "fp8-marlin-channel")
        if "codes taken over, scales rounded: " not in done.stderr + done.stdout:
            raise Mismatch(done.stderr + done.stdout)
