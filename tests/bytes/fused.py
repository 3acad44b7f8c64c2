#!/usr/bin/env python3
"""Weights that engines load as one have one NVFP4 global scale, also where their dtypes differ, in
which the divisor is rounded: the least of them, as compressed-tensors takes it. Figures by numpy and
ml_dtypes."""
import itertools
import json
import os
import sys

import ml_dtypes
import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import stfile  # noqa: E402
import tool  # noqa: E402

tally = tool.Tally()
DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
PARTS = ("q_proj", "k_proj", "v_proj")


def divisor(dtype, amax):
    """Each step rounded to the dtype; 1 where that holds no such number."""
    with np.errstate(over="ignore"):
        kind = DTYPES[dtype]
        reciprocal = np.float32(kind(np.float32(1) / np.float32(amax)))
        rounded = np.float32(kind(reciprocal * np.float32(2688)))
    return rounded if np.isfinite(rounded) else np.float32(1)


def make(work, dtypes, size, dice):
    tensors, amax = {}, np.float32(0)
    for part, dtype in zip(PARTS, dtypes):
        values = (dice.standard_normal((64, 128)) * size).astype(DTYPES[dtype])
        tensors[f"model.layers.0.self_attn.{part}.weight"] = stfile.Tensor(
            dtype, [64, 128], values.tobytes())
        amax = max(amax, np.abs(values.astype(np.float32)).max())
    os.makedirs(work.at("src"), exist_ok=True)
    stfile.save(work.at("src", "model.safetensors"), tensors)
    with open(work.at("src", "config.json"), "w", encoding="ascii") as f:
        json.dump({"model_type": "llama"}, f)
    return amax


def case(work, dtypes, size, dice):
    amax = make(work, dtypes, size, dice)
    done = tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", "nvfp4-ct", "--force")
    tensors = stfile.load(work.at("out", "model.safetensors"))[0]
    found = [float(np.frombuffer(tensor.bytes.tobytes(), np.float32)[0])
             for name, tensor in sorted(tensors.items()) if name.endswith("weight_global_scale")]
    want = min(float(divisor(dtype, amax)) for dtype in dtypes)
    tally.check(found == [want] * 3, f"{dtypes} of {amax:.4g}: {found}, {want}")
    lost = any(divisor(dtype, amax) == 1 for dtype in dtypes)
    tally.check(("holds no divisor" in done.stderr) == lost, f"{dtypes}: {done.stderr}")
    done = tool.run("verify", work.at("out"), "--against", work.at("src"), "-q", check=False)
    tally.check(done.returncode == 0, f"{dtypes}: verify {done.stdout}")


def refused(work, dice):
    """The value that is too large is not that of the matrix in whose dtype it is."""
    make(work, ("F32", "F32", "F16"), 0.02, dice)
    path = work.at("src", "model.safetensors")
    tensors = stfile.load(path)[0]
    name = "model.layers.0.self_attn.q_proj.weight"
    values = np.frombuffer(tensors[name].bytes.tobytes(), np.float32).copy()
    values[77] = 2e8
    tensors[name] = stfile.Tensor("F32", [64, 128], values.tobytes())
    stfile.save(path, tensors)
    done = tool.run("convert", work.at("src"), "-o", work.at("none"), "--to", "nvfp4-ct", check=False)
    said = "with what shares its global scale, its largest value is 2e+08: so large that"
    tally.check(done.returncode == 3 and said in done.stderr, f"too large: {done.stderr}")


def main():
    dice = np.random.default_rng(5)
    with tool.Workdir() as work:
        for dtypes in itertools.product(DTYPES, repeat=3):
            for size in (0.02, 0.001):
                case(work, dtypes, size, dice)
        refused(work, dice)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
