"""What the cases of inputs.py share: the list of cases, comparisons, and files made
word by word from the descriptions of the formats."""
import glob
import json
import os

import numpy as np

import golden_data
import refquant as rq
import stfile
import tool
from golden import Mismatch
from stfile import tensor


ROOT = golden_data.root()


CASES = []  # (name, function(report))


def case(name):
    def add(function):
        CASES.append((name, function))
        return function
    return add


def golden_case(pattern):
    def add(function):
        paths = sorted(glob.glob(os.path.join(ROOT, pattern)))
        if not paths:
            CASES.append((pattern, lambda report: (_ for _ in ()).throw(
                Mismatch("there is no such golden file"))))
        for path in paths:
            CASES.append((os.path.relpath(path, ROOT),
                          lambda report, p=path: function(report, stfile.load(p)[0])))
        return function
    return add


def same(report, name, got, array, dtype=None):
    """A Tensor against an array of its bits."""
    array = np.ascontiguousarray(array)
    if tuple(got.shape) != array.shape:
        raise Mismatch(f"{name} has shape {list(got.shape)}, not {list(array.shape)}")
    if dtype and got.dtype != dtype:
        raise Mismatch(f"{name} is {got.dtype}, not {dtype}")
    report.equal(name, got.bytes, np.frombuffer(array.tobytes(), dtype=np.uint8))


def random_codes(rng, n, k):
    return rng.integers(0, 16, (n, k), dtype=np.uint8)


def f16_scales(rng, *shape):
    return (rng.uniform(0.5, 1.0, shape) * np.exp2(rng.integers(-9, -3, shape))).astype(np.float16)


def gptq_words(codes):
    """[N,K] nibbles -> qweight int32 [K/8,N]: nibble i of word (w,n) is (n, 8w+i)."""
    n, k = codes.shape
    out = np.zeros((k // 8, n), dtype=np.uint32)
    for i in range(8):
        out |= codes[:, i::8].T.astype(np.uint32) << np.uint32(4 * i)
    return out.view(np.int32)


def rows_packed(values):
    """[G,N] nibbles -> int32 [G,N/8], the lowest n in the lowest bits."""
    out = np.zeros((values.shape[0], values.shape[1] // 8), dtype=np.uint32)
    for i in range(8):
        out |= (values[:, i::8].astype(np.uint32) & 15) << np.uint32(4 * i)
    return out.view(np.int32)


AWQ = [0, 2, 4, 6, 1, 3, 5, 7]


def awq_packed(values):
    """[R,N] nibbles -> int32 [R,N/8]: nibble p of word j is column 8j + AWQ[p]."""
    out = np.zeros((values.shape[0], values.shape[1] // 8), dtype=np.uint32)
    for p, column in enumerate(AWQ):
        out |= (values[:, column::8].astype(np.uint32) & 15) << np.uint32(4 * p)
    return out.view(np.int32)


def ct_zero_words(zeros):
    """[N,G] -> int32 [ceil(N/8), G], packed along N, the lowest n in the lowest bits."""
    n, g = zeros.shape
    padded = np.zeros((rq.align(n, 8), g), dtype=np.uint32)
    padded[:n] = zeros
    out = np.zeros((padded.shape[0] // 8, g), dtype=np.uint32)
    for i in range(8):
        out |= padded[i::8] << np.uint32(4 * i)
    return out.view(np.int32)


def gptq_file(name, codes, scales, zeros=None, g_idx=None):
    """scales [N,G] float16; zeros as stored: a word, an array [N,G], or None."""
    n, k = codes.shape
    groups = scales.shape[1]
    out = {f"{name}.qweight": tensor("I32", gptq_words(codes)),
           f"{name}.scales": tensor("F16", scales.T)}
    if isinstance(zeros, int):
        words = np.full((groups, n // 8), zeros, dtype=np.uint32).view(np.int32)
        out[f"{name}.qzeros"] = tensor("I32", words)
    elif zeros is not None:
        out[f"{name}.qzeros"] = tensor("I32", rows_packed(zeros.T))
    if g_idx is not None:
        out[f"{name}.g_idx"] = tensor("I32", np.asarray(g_idx, dtype=np.int32))
    elif zeros is not None:
        out[f"{name}.g_idx"] = tensor("I32", (np.arange(k) // (k // groups)).astype(np.int32))
    return out


def awq_file(name, codes, scales, zeros=None):
    n, _ = codes.shape
    if zeros is None:
        zeros = np.full((n, scales.shape[1]), 8, dtype=np.uint8)
    return {f"{name}.qweight": tensor("I32", awq_packed(codes.T)),
            f"{name}.qzeros": tensor("I32", awq_packed(zeros.T)),
            f"{name}.scales": tensor("F16", scales.T)}


def ct_file(name, codes, scales, zeros=None, g_idx=None, dtype="BF16"):
    """scales [N,G]: bf16 bits, or float16."""
    out = {f"{name}.weight_packed": tensor("I32", rq.pack_nibbles(codes)),
           f"{name}.weight_scale": tensor(dtype, scales),
           f"{name}.weight_shape": tensor("I64", np.array(codes.shape, dtype=np.int64))}
    if zeros is not None:
        out[f"{name}.weight_zero_point"] = tensor("I32", ct_zero_words(zeros))
    if g_idx is not None:
        out[f"{name}.weight_g_idx"] = tensor("I32", np.asarray(g_idx, dtype=np.int32))
    return out


def int8_file(name, codes, scales):
    return {f"{name}.weight": tensor("I8", codes.astype(np.int8) - np.int8(8)),
            f"{name}.weight_scale": tensor("BF16", scales)}


def repeated(scales, k):
    """bf16 scales of any group size, once for each 128 columns."""
    return np.repeat(scales, k // 128 // scales.shape[1], axis=1)


def to_bf16(scales):
    return scales if scales.dtype == np.uint16 else stfile.f32_to_bf16(scales.astype(np.float32))


def check_int4(report, tensors, codes, scales, extra=()):
    """Converts to both int4 formats; scales: bf16 bits [N, K/128]."""
    n, k = codes.shape
    out, _ = tool.convert_tensors(tensors, "w4a8-ct", None, extra)
    if {key.rpartition(".")[2] for key in out} != {"weight_packed", "weight_scale",
                                                   "weight_shape"}:
        raise Mismatch(f"w4a8-ct holds {sorted(out)}")
    same(report, "packed", out["x.weight_packed"], rq.pack_nibbles(codes), "I32")
    same(report, "scale", out["x.weight_scale"], scales, "BF16")
    same(report, "shape", out["x.weight_shape"], np.array([n, k], dtype=np.int64), "I64")
    if n % 16 or k % 256:
        return
    for zero in ("keep", "skip"):
        out, _ = tool.convert_tensors(tensors, "w4a8-cutlass", {"zero-groups": zero}, extra)
        want = rq.w4a8_cutlass(codes[None], scales[None], zero=zero)
        same(report, "cutlass", out["x.weight_packed"], want["weight_packed"][0], "I32")
        same(report, "group", out["x.weight_group_scale"], want["weight_group_scale"][0], "F8_E4M3")
        same(report, "chan", out["x.weight_chan_scale"], want["weight_chan_scale"][0], "F32")


def to_f32(scales):
    """bf16 bits, or float16."""
    return stfile.bf16_to_f32(scales) if scales.dtype == np.uint16 else scales.astype(np.float32)


def decoded(codes, scales, zeros, group):
    """bf16 values, as float32: (code - zero) * scale with the scale as it is stored."""
    s = to_f32(scales)[:, group]
    z = np.broadcast_to(zeros, scales.shape)[:, group].astype(np.float32)
    return rq.round_bf16((codes.astype(np.float32) - z) * s)


def write_source(work, tensors, config=None):
    """The folder src: one shard, and a config.json that says this of its quantization."""
    os.makedirs(work.at("src"), exist_ok=True)
    stfile.save(work.at("src", "model.safetensors"), tensors)
    if config is not None:
        with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
            json.dump({"quantization_config": config}, f)


def refused(report, tensors, to, message, hint=None, config=None, status=4, extra=()):
    """The last lines of stderr, the path before the tensor left out."""
    with tool.Workdir() as work:
        write_source(work, tensors, config)
        done = tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", to, "--include",
                        ".", "--quiet", *extra, check=False)
        text = done.stderr.replace(work.at("src") + "/", "")
        want = f"tilepack: error: {message}\n"
        if hint:
            want += f"  hint: {hint}\n"
        if done.returncode != status or not (text == want if hint else text.startswith(want)):
            raise Mismatch(f"exit {done.returncode}: {text!r}, not {want!r}")
        if os.path.exists(work.at("out")):
            raise Mismatch("there is an output")
    report.bytes += len(text)


FILE = "model.safetensors"


def e4m3_codes(rng, *shape):
    codes = rng.integers(0, 256, shape, dtype=np.uint8)
    return np.where((codes & 0x7F) == 0x7F, codes ^ 1, codes).astype(np.uint8)


def fp8_scales(rng, dtype, *shape):
    """(Tensor, float32 values)"""
    if dtype in ("F8_E8M0", "U8"):
        bits = rng.integers(110, 130, shape, dtype=np.uint8)
        return tensor(dtype, bits), rq.e8m0_value(bits)
    values = (rng.uniform(0.5, 1, shape) * np.exp2(rng.integers(-14, -6, shape)))
    t = stfile.from_f32(dtype, values.astype(np.float32))
    return t, t.f32()


def mx_source(rng, name, n, k):
    """Random bytes of a linear MX or NVFP4 file; {suffix: Tensor}."""
    if name == "mxfp8-ct":
        return {"weight": tensor("F8_E4M3", e4m3_codes(rng, n, k)),
                "weight_scale": tensor("U8", rng.integers(0, 255, (n, k // 32), dtype=np.uint8))}
    packed = tensor("U8", rng.integers(0, 256, (n, k // 2), dtype=np.uint8))
    if name == "mxfp4-ct":
        return {"weight_packed": packed,
                "weight_scale": tensor("U8", rng.integers(0, 255, (n, k // 32), dtype=np.uint8))}
    return {"weight_packed": packed,
            "weight_scale": tensor("F8_E4M3", rng.integers(0, 0x7F, (n, k // 16), dtype=np.uint8)),
            "weight_global_scale": tensor("F32", rng.uniform(1, 2e4, 1).astype(np.float32))}


def nvfp4_global(values_list):
    """compressed-tensors' divisor for the largest value of all of them: torch divides a
    number by a tensor through the reciprocal, rounded to the tensor's dtype."""
    amax = max(np.abs(v).max() for v in values_list)
    return rq.round_bf16(rq.round_bf16(np.float32(1) / np.float32(amax)) * np.float32(2688))


def nvfp4_with(values, g):
    n, k = values.shape
    s = rq.to_e4m3(rq.round_bf16(rq.block_amax(values, 1, 16) / np.float32(6)) * g)
    s = np.where(s == 0, np.uint8(0x20), s)
    return rq.to_e2m1(values / rq.spread(rq.E4M3[s] / g, 1, 16, n, k)), s
