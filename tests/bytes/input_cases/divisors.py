"""NVFP4 with a divisor taken over by formats with a multiplier, and the other way round: codes
and block scales byte for byte, the global scale 1 / G in fp32, as vLLM has it when it loads
(`1.0 / weight_global_scale`)."""
import json

import numpy as np

import stfile
import tool
from input_cases.common import FILE, case, refused
from input_cases.engine_moe import (AT, WEIGHTS, both, check_values, equal_files, load, modelopt,
                                    reproduced)
from golden import Mismatch
from stfile import Tensor, tensor

FINITE = ("--nonfinite", "keep")  # scales of golden data are random bytes
ONE = np.float32(1)


def f32(*numbers):
    return tensor("F32", np.array(numbers, dtype=np.float32))


def divisor(e, down):
    """Of an expert: odd numbers, so that almost no reciprocal is exact."""
    return np.float32(777.1 + 31 * e + 5000 * down)


def expert_of(key):
    return int(key.split(".")[3]), "down" in key


def compressed(source, number=divisor):
    """A ModelOpt checkpoint's bytes as compressed-tensors names them, with divisors."""
    made = {}
    for key, t in source.items():
        if key.endswith(".weight"):
            made[key + "_packed"] = t
        elif key.endswith(".weight_scale_2"):
            made[key[:-7] + "global_scale"] = f32(number(*expert_of(key)))
        else:
            made[key] = t
    return made


def multiplied(source):
    """The ModelOpt checkpoint with the multipliers that engines make of those divisors."""
    return {key: Tensor("F32", (), (ONE / divisor(*expert_of(key))).tobytes())
            if key.endswith("_scale_2") else t for key, t in source.items()}


def line(done, what):
    """What a conversion prints of weights so taken over."""
    said = f"codes and scales taken over, global scales inverted: {what}"
    if said not in done.stdout:
        raise Mismatch(f"no {said!r} in {done.stdout}{done.stderr}")


GOLDEN = [("trtllm", "nvfp4_gated", "nvfp4-trtllm"), ("trtllm", "nvfp4_gated_pad", "nvfp4-trtllm"),
          ("nvfp4moe", "fi_cutlass", "nvfp4-cutlass-moe"),
          ("nvfp4moe", "vllm_cutlass", "nvfp4-vllm-cutlass"),
          ("nvfp4moe", "cutedsl_pad", "nvfp4-cutedsl")]


@case("NVFP4 with divisors: experts for kernels have the engine's bytes, and 1 / G")
def _(report):
    for family, name, to in GOLDEN:
        t = load(family)[name]
        source = modelopt(t)
        experts = t["in_w2_weight"].shape[0]
        with tool.Workdir() as work:
            stfile.save(work.at("ct.safetensors"), compressed(source))
            stfile.save(work.at("mo.safetensors"), multiplied(source))
            for device in ("cpu", "auto"):
                out, _ = tool.convert(work.at("ct.safetensors"), work.at("out.safetensors"), to,
                                      None, (*FINITE, "--device", device, "--force"))
            for key, want in both(t, *WEIGHTS).items():
                reproduced(report, f"{to} {key}", out[AT + key], want)
            for part in ("w13", "w2"):
                want = f32(*(ONE / divisor(e, part == "w2") for e in range(experts)))
                report.equal(f"{to} {part}", out[f"{AT}{part}_weight_scale_2"].bytes, want.bytes)
            tool.convert(work.at("mo.safetensors"), work.at("want.safetensors"), to, None, FINITE)
            equal_files(report, to, work.at("want.safetensors"), work.at("out.safetensors"))
            tool.run("verify", work.at("out.safetensors"), "--against", work.at("ct.safetensors"),
                     "--quiet")
            if to == "nvfp4-trtllm":
                check_values(report, work, out)


@case("NVFP4 with divisors: every format with a multiplier, and from layout to layout")
def _(report):
    formats = [f for f in json.loads(tool.run("formats", "--json").stdout)["formats"]
               if f["codec"] == "nvfp4" and not f.get("input_only") and
               f["name"] not in ("nvfp4-ct", "nvfp4-blocked")]
    if len(formats) < 8:
        raise Mismatch(f"{len(formats)} formats")
    source = modelopt(load("trtllm")["nvfp4_gated"])
    with tool.Workdir() as work:
        stfile.save(work.at("ct.safetensors"), compressed(source))
        stfile.save(work.at("mo.safetensors"), multiplied(source))
        tool.convert(work.at("ct.safetensors"), work.at("tiles.safetensors"), "nvfp4-blocked",
                     None, FINITE)
        for to in (f["name"] for f in formats):
            for src in ("mo", "ct", "tiles"):
                tool.convert(work.at(src + ".safetensors"), work.at(f"from_{src}.safetensors"), to,
                             None, (*FINITE, "--force"))
                equal_files(report, f"{src} to {to}", work.at("from_mo.safetensors"),
                            work.at(f"from_{src}.safetensors"))
            tool.run("verify", work.at("from_tiles.safetensors"), "--against",
                     work.at("tiles.safetensors"), "--quiet")


@case("NVFP4 with multipliers: nvfp4-ct has 1 / G, and what is lost is said")
def _(report):
    source = {key: t if key.endswith("_scale_2") else tensor(t.dtype, t.bits & 0x77)
              for key, t in multiplied(modelopt(load("trtllm")["nvfp4_gated"])).items()}
    want = compressed(source, lambda e, down: ONE / (ONE / divisor(e, down)))
    with tool.Workdir() as work:
        stfile.save(work.at("mo.safetensors"), source)
        stfile.save(work.at("ct.safetensors"), want)
        run = ("convert", work.at("mo.safetensors"), "--to", "nvfp4-ct")
        line(tool.run(*run, "-o", work.at("out.safetensors")), f"{len(source) // 3} weights, ")
        said = json.loads(tool.run(*run, "-o", work.at("again.safetensors"), "--json").stdout)
        if said["globals_inverted"]["weights"] != len(source) // 3 or \
                not said["globals_inverted"]["relative"] < 1e-6:
            raise Mismatch(json.dumps(said))
        equal_files(report, "nvfp4-ct", work.at("ct.safetensors"), work.at("out.safetensors"))
        tool.run("verify", work.at("out.safetensors"), "--against", work.at("mo.safetensors"),
                 "--quiet")
        tool.convert(work.at("out.safetensors"), work.at("mid.safetensors"), "nvfp4-trtllm")
        tool.convert(work.at("ct.safetensors"), work.at("same.safetensors"), "nvfp4-trtllm")
        equal_files(report, "around", work.at("same.safetensors"), work.at("mid.safetensors"))
        done = tool.run("unpack", work.at("ct.safetensors"), "-o", work.at("unpacked.safetensors"),
                        "--to", "nvfp4-comfy")
        line(done, "2 weights, ")
        tool.convert(work.at("ct.safetensors"), work.at("direct.safetensors"), "nvfp4-comfy")
        equal_files(report, "unpack --to", work.at("direct.safetensors"),
                    work.at("unpacked.safetensors"))


@case("NVFP4 with divisors: what is refused")
def _(report):
    packed = {"x.weight_packed": tensor("U8", np.zeros((16, 32), np.uint8)),
              "x.weight_scale": tensor("F8_E4M3", np.full((16, 4), 0x38, np.uint8))}
    least = np.float32(2) ** -128
    refused(report, packed | {"x.weight_global_scale": f32(least)}, "nvfp4-comfy",
            f"{FILE}: tensor 'x': one of its scales is {least:.9g}, whose reciprocal, which this "
            "format stores, is infinite", "--exclude leaves the weight out")
    out, _ = tool.convert_tensors(packed | {"x.weight_global_scale": f32(2 * least)},
                                  "nvfp4-comfy")
    report.equal("the largest", out["x.weight_scale_2"].bytes, f32(2.0 ** 127).bytes)
    refused(report, packed | {"x.weight_global_scale": f32(3)}, "nvfp4-blocked",
            f"{FILE}: tensor 'x': nvfp4-ct cannot be converted to nvfp4-blocked: its global scale "
            "is a divisor, that of the result a multiplier",
            "--set scale=ct takes its codes and scales over as they are; --exclude leaves it as it "
            "is",
            extra=("--set", "scale=torchao"))
    source = compressed(modelopt(load("nvfp4moe")["fi_cutlass"]))
    source[AT + "0.up_proj.weight_global_scale"] = f32(7)
    refused(report, source, "nvfp4-cutlass-moe", f"{FILE}: tensor '{AT}w13': nvfp4-ct cannot be "
            f"converted to nvfp4-cutlass-moe: the global scales of {AT}0.up_proj and "
            f"{AT}0.gate_proj differ (7 and {divisor(0, False):.9g}), and the result has one for "
            "both", "--requantize decodes it and quantizes again, and prints the error that costs; "
            "--exclude leaves it as it is", extra=("--weights-only",))
