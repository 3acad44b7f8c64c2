"""What Humming makes of a weight when vLLM loads it: golden/engines/humming, and any size by
lib/refhumming.py."""
import numpy as np

import refhumming as rh
import refquant as rq
import stfile
import tool
from golden import Mismatch
from input_cases.common import case
from input_cases.engine_moe import AT, KEEP, check_values, compressed
from input_cases.engine_zeros import ct_experts
from input_cases.engines import load
from stfile import tensor

FORMATS = {"int4": "w4a16-humming", "mxfp4": "mxfp4-humming", "w4a8": "w4a8-humming"}


def parts(t):
    """The weights of a case: of experts two, with what stands before their names in the result."""
    return {"w13_": AT + "w13_", "w2_": AT + "w2_"} if any(
        name.startswith("in_w13_") for name in t) else {"": "x."}


def source(t):
    """The checkpoint that a case was loaded from."""
    if len(parts(t)) == 2:
        return compressed(t) if "in_w13_weight" in t else ct_experts(t)
    found = {"x." + name[3:]: t[name] for name in t if name.startswith("in_")}
    if "x.weight" in found:
        found["x.weight_packed"] = found.pop("x.weight")
    else:
        n, words = found["x.weight_packed"].shape
        found["x.weight_shape"] = tensor("I64", np.array([n, words * 8], dtype=np.int64))
    return found


def settings(t, to):
    """The parameters of a format with which it holds the scales of a case."""
    if to.startswith("mxfp4"):
        return {}
    part = next(iter(parts(t)))
    codes, scale = t[f"in_{part}weight_packed"], t[f"in_{part}weight_scale"]
    sets = {"scales": {"BF16": "bf16", "F16": "f16"}[scale.dtype]}
    group = codes.shape[-1] * 8 // scale.shape[-1]
    return sets if to == "w4a8-humming" else sets | {"group": str(group)}


def convert(t, to, report=None, other=None):
    """The tensors of the result; with `report` what is read of them, and the way by `other`."""
    with tool.Workdir() as work:
        a, b, c, d = (work.at(name + ".safetensors") for name in ("in", "out", "other", "back"))
        stfile.save(a, source(t))
        out, _ = tool.convert(a, b, to, settings(t, to), KEEP)
        if report:
            tool.run("verify", b, "--against", a, "--quiet")
            check_values(report, work, out, "weight" if to == "mxfp4-humming" else "weight_packed")
            tool.convert(b, c, other, settings(t, other), KEEP)
            back, _ = tool.convert(c, d, to, settings(t, to), KEEP)
            for name, own in out.items():
                report.equal(f"{other} and back: {name}", back[name].bytes, own.bytes)
    return out


def check(report, what, got, want):
    if set(got) != set(want):
        raise Mismatch(f"{what} holds {sorted(got)}, not {sorted(want)}")
    for name, t in want.items():
        report.exact(f"{what}: {name}", got[name], t, t.shape)


@case("engines: Humming, int4 and MXFP4 for 16-bit activations, int4 for FP8 ones")
def _(report):
    for name, t in load("humming").items():
        to = FORMATS[name.partition("_")[0]]
        want = {at + key[4 + len(part):]: t[key] for part, at in parts(t).items()
                for key in t if key.startswith("out_" + part)}
        other = "mxfp4-ct" if to == "mxfp4-humming" else "w4a16-ct"
        if "zero_point" in " ".join(t):
            other = "awq"
        check(report, name, convert(t, to, report, other), want)


def random_bits(rng, *shape, high=1 << 16, kept=np.uint16):
    return rng.integers(0, high, shape, dtype=np.uint64).astype(kept)


def stack(rng, to, e, n, k, group):
    """A weight of random bits: its tensors in a source, and those that Humming makes of it."""
    rows, columns = rq.align(n, rh.ROWS), rq.align(k, rh.COLUMNS)
    codes = random_bits(rng, e, n, k, high=16, kept=np.uint8)
    plain = rh.padded(codes, rows, columns)
    if to == "mxfp4-humming":
        scale = random_bits(rng, e, n, k // group, high=256, kept=np.uint8)
        return {"weight_packed": tensor("U8", codes[..., ::2] | codes[..., 1::2] << 4),
                "weight_scale": tensor("U8", scale)}, \
            {"weight": tensor("I32", rh.codes(plain)),
             "weight_scale": tensor("U8", rh.scales(scale, rows, columns // group, 127))}
    scale = random_bits(rng, e, n, k // group)
    fp8 = to == "w4a8-humming"
    made = rh.codes(rh.for_fp8(plain), 8, True) if fp8 else rh.codes(plain)
    found = {"weight_packed": tensor("I32", rq.pack_nibbles(codes)),
             "weight_scale": tensor("BF16", scale)}
    want = {"weight_packed": tensor("I32", made),
            "weight_scale": tensor("BF16", rh.scales(scale, rows, columns // group))}
    if not fp8:
        zero = random_bits(rng, e, n, k // group, high=16, kept=np.uint8)
        words = rq.pack_nibbles(zero.swapaxes(1, 2)).swapaxes(1, 2)
        found["weight_zero_point"] = tensor("I32", np.ascontiguousarray(words))
        want["weight_zero_point"] = tensor("I32", rh.zeros(zero, rows, columns // group))
    return found, want


@case("engines: Humming, experts of any size")
def _(report):
    rng = np.random.default_rng(53)
    for to, group in (("w4a16-humming", 32), ("w4a16-humming", 64), ("w4a16-humming", 128),
                      ("mxfp4-humming", 32), ("w4a8-humming", 128)):
        step, t, want = max(group, 64), {}, {}
        e, h, i = (2 * int(rng.integers(2)) + 1 for _ in range(3))  # rows of w2 are padded
        for part, n, k in (("w13_", 2 * i * step, h * step), ("w2_", h * step, i * step)):
            found, made = stack(rng, to, e, n, k, group)
            names = {"weight_packed": "weight"} if to == "mxfp4-humming" else {}
            t |= {f"in_{part}{names.get(key, key)}": own for key, own in found.items()}
            values = random_bits(rng, e, n)
            t[f"in_{part}bias"] = tensor("BF16", values)
            made["bias"] = tensor("BF16", rh.bias(values, rq.align(n, rh.ROWS)))
            want |= {f"{AT}{part}{key}": own for key, own in made.items()}
        check(report, f"{to} {e}x{h * step}x{i * step}", convert(t, to), want)
