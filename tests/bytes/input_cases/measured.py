"""Activation scales of a plain model: made of the largest inputs in a file of importance, as
llm-compressor (divisors) and ModelOpt (multipliers) make them of the same numbers."""
import json
import os

import numpy as np

import stfile
import tool
from golden import Mismatch
from input_cases.activations import f32
from input_cases.common import case

LAYER = "model.layers.0."
ATTENTION = [f"{LAYER}self_attn.{p}_proj" for p in "qkvo"]
EXPERTS, SIZE = 3, 256
MATRICES = [f"{LAYER}mlp.experts.{e}.{p}_proj" for e in range(EXPERTS)
            for p in ("gate", "up", "down")]
F32 = np.float32
FP4, FP8 = F32(6 * 448), F32(448)


def write_model(work, names):
    rng = np.random.default_rng(17)
    os.makedirs(work.at("src"))
    stfile.save(work.at("src", "model.safetensors"),
                {name + ".weight": stfile.from_f32("BF16", rng.standard_normal((SIZE, SIZE), F32))
                 for name in names})
    with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": "qwen3_moe", "num_attention_heads": 2}, f)


def measured(names):
    """A number for each, the same for those that share their input."""
    rng = np.random.default_rng(18)
    shared = {name: name.replace("k_proj", "q_proj").replace("v_proj", "q_proj")
              .replace("up_proj", "gate_proj") for name in names}
    numbers = {name: F32(rng.uniform(.1, 90)) for name in sorted(set(shared.values()))}
    return {name: numbers[shared[name]] for name in names}


def convert(work, to, amax, *more, check=True):
    stfile.save(work.at("amax"), {name + ".amax": value for name, value in amax.items()})
    done = tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", to, "--quiet",
                    "--force", "--search", "mse", "--importance", work.at("amax"), *more,
                    check=check)
    return done if not check else stfile.load(work.at("out", "model.safetensors"))[0]


def expect(report, tensors, want):
    got = sorted(name for name in tensors if "input" in name)
    if got != sorted(want):
        raise Mismatch(f"{got}, not {sorted(want)}")
    for name, numbers in want.items():
        numbers = np.asarray(numbers, F32)
        if tensors[name].dtype != "F32" or tuple(tensors[name].shape) != numbers.shape:
            raise Mismatch(f"{name} is {tensors[name].dtype} {tensors[name].shape}")
        report.equal(name, tensors[name].bytes, np.frombuffer(numbers.tobytes(), np.uint8))


def groups(work):
    with open(work.at("out", "config.json"), encoding="utf-8") as f:
        return json.load(f)["quantization_config"]["config_groups"].values()


@case("measured inputs: linear layers in NVFP4 and FP8")
def _(report):
    amax = measured(ATTENTION)
    with tool.Workdir() as work:
        write_model(work, ATTENTION)
        for shape in ((), (1,)):
            made = convert(work, "nvfp4-ct", {n: f32(v, shape=shape) for n, v in amax.items()})
            expect(report, made, {n + ".input_global_scale": [FP4 / v] for n, v in amax.items()})
        if any("input_activations" not in group for group in groups(work)):
            raise Mismatch("config.json does not say that activations are quantized")
        tool.run("verify", work.at("out"), "--against", work.at("src"), "--importance",
                 work.at("amax"), "--quiet")
        stfile.save(work.at("other"), {n + ".amax": f32(2 * v) for n, v in amax.items()})
        done = tool.run("verify", work.at("out"), "--against", work.at("src"), "--importance",
                        work.at("other"), "--quiet", check=False)
        if done.returncode not in (1, 3):
            raise Mismatch(f"verify with other numbers ends with {done.returncode}")
        # One entry serves those that share their input.
        made = convert(work, "nvfp4-ct", {n: f32(amax[n]) for n in (ATTENTION[1], ATTENTION[3])})
        expect(report, made, {n + ".input_global_scale": [FP4 / v] for n, v in amax.items()})
        made = convert(work, "fp8-tensor-ct", {n + ".weight": f32(v) for n, v in amax.items()})
        expect(report, made, {n + ".input_scale": [v / FP8] for n, v in amax.items()})
        made = convert(work, "nvfp4-ct", {n: f32(v) for n, v in amax.items()}, "--weights-only")
        expect(report, made, {})


@case("measured inputs: experts in NVFP4 and FP8")
def _(report):
    amax = measured(MATRICES)
    w13 = [amax[MATRICES[3 * e]] for e in range(EXPERTS)]
    w2 = [amax[MATRICES[3 * e + 2]] for e in range(EXPERTS)]
    at = LAYER + "mlp.experts."
    with tool.Workdir() as work:
        write_model(work, MATRICES)
        numbers = {n: f32(v) for n, v in amax.items()}
        made = convert(work, "nvfp4-trtllm", numbers)
        expect(report, made, {at + "w13_input_scale": [max(w13) / FP4] * EXPERTS,
                              at + "w2_input_scale": [max(w2) / FP4] * EXPERTS})
        made = convert(work, "nvfp4-vllm-cutlass", numbers)
        expect(report, made, {at + "w13_input_scale": np.array(w13) / FP4,
                              at + "w2_input_scale": np.array(w2) / FP4})
        made = convert(work, "fp8-tensor-trtllm", numbers)
        expect(report, made, {at + "w13_input_scale": max(w13) / FP8,
                              at + "w2_input_scale": max(w2) / FP8})


@case("measured inputs: what is refused")
def _(report):
    amax = {n: f32(v) for n, v in measured(MATRICES).items()}
    first = MATRICES[0]
    refused = (
        ({n: v for n, v in amax.items() if ".1." not in n}, 3, "for 4 of the 6 parts"),
        (amax | {first: f32(0)}, 3, "is finite and above 0"),
        (amax | {first: f32(np.inf)}, 3, "is finite and above 0"),
        (amax | {first: f32(1, 2, 3, 4)}, 3, "which do not fit the experts"),
        (amax | {first: stfile.tensor("F64", np.ones(1))}, 3, "is F32, [], [1] or [E]"),
        (amax | {first + "x": f32(1)}, 3, "belongs to no weight"),
        ({first.replace("gate", "other"): f32(1)}, 3, "belongs to no weight"))
    with tool.Workdir() as work:
        write_model(work, MATRICES)
        for numbers, status, text in refused:
            done = convert(work, "nvfp4-trtllm", numbers, check=False)
            if done.returncode != status or text not in done.stderr:
                raise Mismatch(f"'{text}' is not in {done.returncode}: {done.stderr}")
            report.equal("nothing is written", np.uint8([os.path.exists(work.at("out"))]), np.uint8([0]))
