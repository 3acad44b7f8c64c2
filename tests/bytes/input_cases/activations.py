"""Activation scales of calibrated sources: carried over as engines make them of a checkpoint's, or
needed, or left out."""
import json
import os

import numpy as np

import stfile
import tool
from input_cases.common import case, e4m3_codes
from golden import Mismatch
from stfile import Tensor, tensor

AT = "model.layers.0.mlp.experts."
E, H, I = 3, 256, 256
PROJS = ("gate_proj", "up_proj", "down_proj")


def f32(*numbers, shape=None):
    array = np.array(numbers, dtype=np.float32)
    return Tensor("F32", array.shape if shape is None else shape, array.tobytes())


def calibrated(kind, rng):
    """Experts as ModelOpt or llm-compressor stores them, and {(expert, projection): scale}."""
    source, scales = {}, {}
    for e in range(E):
        for proj in PROJS:
            n, k = (H, I) if proj == "down_proj" else (I, H)
            at = f"{AT}{e}.{proj}."
            codes = tensor("U8", rng.integers(0, 256, (n, k // 2), dtype=np.uint8))
            source[at + "weight_scale"] = tensor("F8_E4M3", rng.integers(1, 0x70, (n, k // 16), dtype=np.uint8))
            if kind == "modelopt":
                scale = np.float32(rng.uniform(1e-4, 1e-2))
                source |= {at + "weight": codes, at + "weight_scale_2": f32((e + 1) / 1024, shape=()),
                           at + "input_scale": f32(scale, shape=())}
            else:
                scale = np.float32(rng.uniform(100, 10000))
                source |= {at + "weight_packed": codes, at + "weight_global_scale": f32(1024 / (e + 1)),
                           at + "input_global_scale": f32(scale)}
            scales[e, proj] = scale
    return source, scales


def convert(source, to, *extra, work, name="out", src="src", config=None):
    """A checkpoint of its own: config.json says what there is. Tensors and quantization_config."""
    if source is not None:
        os.makedirs(work.at(src))
        stfile.save(work.at(src, "model.safetensors"), source)
        with open(work.at(src, "config.json"), "w", encoding="utf-8") as f:
            json.dump({"model_type": "mixtral", "num_attention_heads": 2}
                      | ({"quantization_config": config} if config else {}), f)
    tool.run("convert", work.at(src), "-o", work.at(name), "--to", to, "--quiet", *extra)
    tool.run("verify", work.at(name), "--against", work.at(src), "--quiet")
    with open(work.at(name, "config.json"), encoding="utf-8") as f:
        return (stfile.load(work.at(name, "model.safetensors"))[0],
                json.load(f)["quantization_config"])


def scale_names(tensors):
    return sorted(name for name in tensors if "input" in name)


def expect(report, tensors, want):
    """`want`: name behind the experts -> fp32 numbers; no other activation scale."""
    if scale_names(tensors) != sorted(AT + name for name in want):
        raise Mismatch(f"{scale_names(tensors)}, not {sorted(want)}")
    for name, numbers in want.items():
        numbers = np.asarray(numbers, dtype=np.float32)
        got = tensors[AT + name]
        if got.dtype != "F32" or tuple(got.shape) != numbers.shape:
            raise Mismatch(f"{name} is {got.dtype} {got.shape}")
        report.equal(name, got.bytes, np.frombuffer(numbers.tobytes(), dtype=np.uint8))


def fused(scales, e, first, pick=max):
    return pick(scales[e, p] for p in (PROJS[:2] if first else PROJS[2:]))


LARGEST = ("nvfp4-trtllm", "nvfp4-cutlass-moe", "nvfp4-cutedsl")


def apart(scales):
    """Matrices of their own: gate and up, which engines load as one, have the same."""
    return {(e, p): fused(scales, e, p != "down_proj") for e, p in scales}


def stacked(scales, largest):
    """What vLLM's loading makes of ModelOpt's: for each expert the largest of its parts, and where
    the kernel takes one number, the largest of all, once for each expert."""
    want = {}
    for name, first in (("w13", True), ("w2", False)):
        each = [fused(scales, e, first) for e in range(E)]
        want[name + "_input_scale"] = [max(each)] * E if largest else each
    return want


@case("activation scales: experts of ModelOpt, for the kernels of NVFP4")
def _(report):
    source, scales = calibrated("modelopt", np.random.default_rng(171))
    for to in (*LARGEST, "nvfp4-vllm-cutlass"):
        with tool.Workdir() as work:
            tensors, _ = convert(source, to, work=work)
            expect(report, tensors, stacked(scales, to in LARGEST))
            again, _ = convert(None, "nvfp4-trtllm", work=work, name="again", src="out")
            expect(report, again, stacked(scales, True))
            tool.run("verify", work.at("out"), "--against", work.at("src"), "--quiet")
            tool.run("unpack", work.at("out"), "-o", work.at("plain"), "--quiet")
            left = scale_names(stfile.load(work.at("plain", "model.safetensors"))[0])
            if left:
                raise Mismatch(f"plain weights have {left}")


@case("activation scales: as divisors and as multipliers")
def _(report):
    rng = np.random.default_rng(172)
    source, scales = calibrated("modelopt", rng)
    one = np.float32(1)
    with tool.Workdir() as work:
        tensors, config = convert(source, "nvfp4-ct", "--requantize", work=work)
        expect(report, tensors, {f"{e}.{p}.input_global_scale": [one / s]
                                 for (e, p), s in apart(scales).items()})
        group = config["config_groups"]["group_0"]
        if group["input_activations"]["dynamic"] != "local" or len(config["config_groups"]) != 1:
            raise Mismatch(json.dumps(config))
        tensors, config = convert(None, "nvfp4-ct", "--weights-only", work=work, name="a16", src="out")
        expect(report, tensors, {})
        if "input_activations" in config["config_groups"]["group_0"]:
            raise Mismatch(json.dumps(config))
        tensors, _ = convert(None, "nvfp4-comfy", "--no-stack", work=work, name="comfy", src="src")
        expect(report, tensors, {f"{e}.{p}.input_scale": s for (e, p), s in apart(scales).items()})
    source, scales = calibrated("ct", rng)
    with tool.Workdir() as work:
        own = {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
               "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": {"num_bits": 4}}}}
        tensors, config = convert(source, "nvfp4-ct", work=work, config=own)  # it is that already
        expect(report, tensors, {f"{e}.{p}.input_global_scale": [s]
                                 for (e, p), s in scales.items()})
        if config != own:
            raise Mismatch(json.dumps(config))
        tensors, _ = convert(None, "nvfp4-blocked", work=work, name="blocked", src="src")
        least = {f"{name}_input_global_scale": [fused(scales, e, first, min) for e in range(E)]
                 for name, first in (("w13", True), ("w2", False))}
        expect(report, tensors, least)
        tensors, _ = convert(None, "nvfp4-trtllm", "--requantize", work=work, name="kernel", src="blocked")
        expect(report, tensors, {name.replace("_global", ""): [one / min(numbers)] * E
                                 for name, numbers in least.items()})
        tensors, _ = convert(None, "nvfp4-ct", "--requantize", work=work, name="apart", src="kernel")
        expect(report, tensors, {
            f"{e}.{p}.input_global_scale":
                [one / (one / min(least[f"w{2 if p == 'down_proj' else 13}_input_global_scale"]))]
            for e, p in scales})


def refused(report, source, to, status, *says):
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), source)
        done = tool.run("convert", work.at("in.safetensors"), "-o", work.at("o.safetensors"), "--to", to,
                        "--quiet", check=False)
        if done.returncode != status or any(s not in done.stderr for s in says):
            raise Mismatch(f"{done.returncode} {done.stderr}")
        report.bytes += len(done.stderr)


@case("activation scales: kernels that need them, and --weights-only")
def _(report):
    rng = np.random.default_rng(173)
    source, _ = calibrated("modelopt", rng)
    bare = {name: t for name, t in source.items() if "input" not in name}
    plain = {f"{AT}{e}.{p}.weight": stfile.from_f32("BF16", rng.standard_normal(
        (H, I) if p == "down_proj" else (I, H)).astype(np.float32)) for e in range(2) for p in PROJS}
    some = {name: t for name, t in source.items() if name != AT + "1.up_proj.input_scale"}
    for to in (*LARGEST, "nvfp4-vllm-cutlass"):
        for this in (bare, plain, some):
            refused(report, this, to, 4, f"experts.w13': {to} needs activation scales, and the source "
                    "has none for it: its kernels quantize", "--weights-only")
        for this in (source, bare, plain):
            with tool.Workdir() as work:
                tensors, _ = convert(this, to, "--weights-only", work=work)
                expect(report, tensors, {})
                manifest = json.load(open(work.at("out", "tilepack.json"), encoding="utf-8"))
                if manifest["request"]["weights_only"] is not True:
                    raise Mismatch("the request does not say it")
    for wrong, word in ((np.nan, "nan"), (-1, "-1"), (np.inf, "inf"), (0, "0")):
        damaged = source | {f"{AT}{e}.{p}.input_scale": f32(wrong, shape=())
                            for e in range(E) for p in PROJS}
        refused(report, damaged, "nvfp4-trtllm", 3, "activation scale", word, "--weights-only")
    ones = source | {name: f32(1 / 1024 * (int(name.split(".")[5]) + 1)) for name in source
                     if name.endswith("weight_scale_2")}  # [1] and not []
    if not all(np.array_equal(ones[name].bytes, source[name].bytes) for name in source):
        raise Mismatch("other numbers")
    with tool.Workdir() as work:
        scalars, _ = convert(source, "nvfp4-trtllm", work=work, name="a", src="scalars")
        lists, _ = convert(ones, "nvfp4-trtllm", work=work, name="b", src="lists")
        for name, t in scalars.items():
            report.equal(name, lists[name].bytes, t.bytes)
        tool.run("unpack", work.at("lists"), "-o", work.at("plain"), "--quiet")
    for zero, word in ((0.0, "is 0, which is no positive number"), (-0.0, "is -0, which")):
        for to in ("nvfp4-trtllm", "nvfp4-cutlass-moe"):
            refused(report, source | {AT + "1.up_proj.input_scale": f32(zero, shape=())}, to, 3,
                    "1.up_proj.input_scale", word)
    for wrong, words in ((f32(1, 1), "F32 [2]"), (f32(), "F32 [0]"), (f32(1, shape=(1, 1)), "F32 [1,1]"),
                         (tensor("F64", np.array(1.)), "F64 [1]"), (tensor("I32", np.array(1, np.int32)), "I32 [1]")):
        for to in LARGEST:
            refused(report, source | {AT + "1.up_proj.input_scale": wrong}, to, 3,
                    f"tensor '{AT}1.up_proj.input_scale': the activation scale is {words}, and has to be "
                    "F32 or BF16 with one number", "--weights-only")
    source, _ = calibrated("ct", rng)
    refused(report, source | {AT + "2.down_proj.input_global_scale": f32(1, 1)}, "nvfp4-vllm-cutlass", 3,
            f"tensor '{AT}2.down_proj.input_global_scale': the activation scale is F32 [2]")
    # What is of the format already is looked at before it is copied.
    name = AT + "1.up_proj.input_global_scale"
    for wrong, word in ((np.nan, "nan"), (-1, "-1"), (np.inf, "inf"), (-np.inf, "-inf")):
        refused(report, source | {name: f32(wrong)}, "nvfp4-ct", 3, f"tensor '{name}'", word, "--weights-only")
    with tool.Workdir() as work:
        made, _ = convert(calibrated("modelopt", rng)[0], "nvfp4-trtllm", work=work)
        made[AT + "w2_input_scale"] = f32(1, np.nan, 1)
        path = work.at("out", "model.safetensors")
        stfile.save(path, made, stfile.header(path)[1])
        os.rename(work.at("out"), work.at("damaged"))
        done = tool.run("convert", work.at("damaged"), "-o", work.at("o"), "--to", "nvfp4-trtllm",
                        "--quiet", check=False)
        if done.returncode != 3 or "w2_input_scale" not in done.stderr:
            raise Mismatch(f"of a stack: {done.returncode} {done.stderr}")


@case("activation scales: one that is none, and the others kept")
def _(report):
    rng = np.random.default_rng(175)
    source, scales = calibrated("modelopt", rng)
    others = scales | {(1, "up_proj"): scales[1, "gate_proj"]}
    bad = source | {AT + "1.up_proj.input_scale": f32(np.inf, shape=())}
    named = f"--weights-only=glob:{AT}1.up_proj"
    hint = f"--weights-only='glob:{AT}1.up_proj' leaves this one out and keeps the others"
    for to in LARGEST:
        refused(report, bad, to, 3, f"'{AT}1.up_proj.input_scale': the activation scale is inf", hint)
        with tool.Workdir() as work:
            tensors, _ = convert(bad, to, named, work=work)
            expect(report, tensors, stacked(others, True))
            with open(work.at("out", "tilepack.json"), encoding="utf-8") as f:
                if json.load(f)["request"]["weights_only"] != [named.split("=")[1]]:
                    raise Mismatch("the request does not say it")
    # gate and up of an expert have one scale: that of gate where only up's is left out.
    both = "--weights-only=experts.1.(gate|up)"
    with tool.Workdir() as work:
        tensors, _ = convert(bad, "nvfp4-ct", "--requantize", "--no-stack", named, work=work)
        expect(report, tensors, {
            f"{e}.{p}.input_global_scale": [np.float32(1) / s] for (e, p), s in
            apart(others).items()})
        done = tool.run("convert", work.at("src"), "-o", work.at("two"), "--to", "nvfp4-ct", "--requantize",
                        "--no-stack", both, check=False)
        if done.returncode != 4 or "it has no activation scale, and" not in done.stderr:
            raise Mismatch(f"{done.returncode} {done.stderr}")
    # What is of the format already, and one of a stack that has one for each expert.
    source, scales = calibrated("ct", rng)
    bad = source | {AT + "1.up_proj.input_global_scale": f32(np.inf)}
    refused(report, bad, "nvfp4-ct", 3, f"'{AT}1.up_proj.input_global_scale'", hint)
    with tool.Workdir() as work:
        tensors, config = convert(bad, "nvfp4-ct", named, work=work)
        if sorted("input_activations" in g for g in config["config_groups"].values()) != [False, True]:
            raise Mismatch(json.dumps(config))
        expect(report, tensors, {f"{e}.{p}.input_global_scale": [s] for (e, p), s in scales.items()
                                 if (e, p) != (1, "up_proj")})
        tensors, _ = convert(None, "nvfp4-blocked", both, work=work, name="blocked")
        w13 = [fused(scales, e, True, min) for e in range(E)]
        w13[1] = min(w13[0], w13[2])
        expect(report, tensors, {"w13_input_global_scale": w13, "w2_input_global_scale":
                                 [fused(scales, e, False, min) for e in range(E)]})


@case("activation scales: FP8 with one to a weight")
def _(report):
    rng = np.random.default_rng(174)
    source, scales = {}, {}
    for e in range(E):
        for proj in PROJS:
            n, k = (H, I) if proj == "down_proj" else (I, H)
            at, scales[e, proj] = f"{AT}{e}.{proj}.", np.float32(rng.uniform(1e-3, 1e-1))
            source |= {at + "weight": tensor("F8_E4M3", e4m3_codes(rng, n, k)),
                       at + "weight_scale": f32(2.0 ** (e - 9), shape=()),
                       at + "input_scale": f32(scales[e, proj], shape=())}
    with tool.Workdir() as work:
        tensors, config = convert(source, "fp8-tensor-ct", work=work, config={
            "quant_method": "modelopt", "quant_algo": "FP8"})
        expect(report, tensors, {f"{e}.{p}.input_scale": [s] for (e, p), s in apart(scales).items()})
        if config["config_groups"]["group_0"]["input_activations"]["dynamic"] is not False:
            raise Mismatch(json.dumps(config))
        tensors, _ = convert(None, "fp8-tensor-trtllm", work=work, name="kernel", src="src")
        expect(report, tensors, {name: numbers[0] for name, numbers in stacked(scales, True).items()})
