#!/usr/bin/env python3
"""Humming's own functions on a GPU against the golden data and `tilepack convert`.

    humming_originals.py [--write FILE] [--random N] [--seed N]

Needs torch and humming-kernels 0.1.19, for a GPU of Hopper. Each case is what vLLM 0.33 hands to
Humming when it loads a layer (quantization/utils/humming/moe.py, linear.py): schema, sizes,
padding. What comes out must be golden/engines/humming.safetensors; --write makes that file,
instead. Each of N more cases of random sizes must be what TILEPACK (else build/tilepack) writes.
With them: random codes hold 0, and a weight without one is stored with sign and magnitude; on a
GPU Humming's kernel takes the bytes of such weights all the same, as tilepack writes them, and
multiplies by their values. Ends with `N passed, N failed` (cases).
"""
import argparse
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", name) for name in ("lib", "bytes")]
import stfile  # noqa: E402  (tests/lib)
from input_cases import engine_humming as cases  # noqa: E402  (tests/bytes)
from stfile import Tensor, tensor  # noqa: E402

try:
    import torch
    from humming import dtypes, schema, transform
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed")
    sys.exit(0)

GOLDEN = os.path.join(HERE, "..", "golden", "engines", "humming.safetensors")
TORCH = {"I32": torch.int32, "U8": torch.uint8, "BF16": torch.bfloat16, "F16": torch.float16}
NAMES = {"weight": "weight_packed", "zero_point": "weight_zero_point"}  # Humming's and the format's
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# kind, experts (0: one matrix), hidden size or N, intermediate size or K, group, dtype, others
CASES = {
    "int4_g128": ("int4", 1, 256, 128, 128, "BF16", ()),
    "int4_g64_f16": ("int4", 1, 64, 64, 64, "F16", ()),
    "int4_g32_pad": ("int4", 2, 96, 160, 32, "BF16", ("bias",)),
    "int4_zp_pad": ("int4", 2, 64, 96, 32, "BF16", ("zeros",)),
    "int4_linear": ("int4", 0, 200, 192, 64, "BF16", ("bias", "zeros")),
    "mxfp4": ("mxfp4", 2, 64, 64, 32, "BF16", ("bias",)),
    "mxfp4_linear": ("mxfp4", 0, 200, 160, 32, "BF16", ("bias",)),
    "w4a8": ("w4a8", 2, 128, 128, 128, "BF16", ()),
    "w4a8_linear": ("w4a8", 0, 200, 256, 128, "F16", ("bias",)),
}
FORMATS = cases.FORMATS


def sizes(case):
    """{part of a layer: (N, K)}"""
    _, e, h, i, _, _, _ = case
    return {"w13_": (2 * i, h), "w2_": (h, i)} if e else {"": (h, i)}


def inputs(case, rng):
    """What a checkpoint has for the layer: {in_PART NAME: Tensor}."""
    kind, e, _, _, group, dtype, more = case
    found = {}
    for part, (n, k) in sizes(case).items():
        def put(name, kept, shape, high, part=part):
            bits = rng.integers(0, high, ((e,) if e else ()) + shape, dtype=np.uint64)
            own = bits.astype({"I32": np.uint32, "U8": np.uint8}.get(kept, np.uint16))
            found[f"in_{part}{name}"] = Tensor(kept, own.shape, own.tobytes())
        if kind == "mxfp4":
            put("weight", "U8", (n, k // 2), 256)
            put("weight_scale", "U8", (n, k // 32), 256)
        else:
            put("weight_packed", "I32", (n, k // 8), 1 << 32)
            put("weight_scale", dtype, (n, k // group), 1 << 16)
        if "zeros" in more:
            put("weight_zero_point", "I32", (n // 8, k // group), 1 << 32)
        if "bias" in more:
            put("bias", dtype, (n,), 1 << 16)
    return found


def on_device(t):
    bits = torch.from_numpy(np.frombuffer(t.data, np.uint8).copy())
    return bits.view(TORCH[t.dtype]).view(*t.shape).to(DEVICE)


def weight_schema(case, tensors):
    """What vLLM says of the checkpoint: oracle/int_wna16.py:1208, mxfp4.py:1630, w4a8.py:134."""
    kind, _, _, _, group, _, more = case
    if kind == "mxfp4":
        return schema.Mxfp4WeightSchema()
    if kind == "w4a8":
        tensors["weight"] = tensors.pop("weight_packed")
        return schema.HummingWeightSchema(b_dtype=dtypes.uint4, weight_scale_group_size=group)
    return schema.CompressedTensorsWeightSchema(
        format="pack-quantized", type="int", num_bits=4, strategy="group", group_size=group,
        symmetric="zeros" not in more)


def engine(case, source):
    """What Humming makes of the layer: {out_PART NAME: Tensor}."""
    kind, e, _, _, _, dtype, more = case
    made = {}
    for part, (n, k) in sizes(case).items():
        tensors = {key[3 + len(part):]: on_device(t) for key, t in source.items()
                   if key.startswith("in_" + part)}
        said = weight_schema(case, tensors)
        said, tensors = said.convert_humming(
            tensors, [n // 2] * 2 if e else [n], [k], TORCH[dtype], e or None)
        _, tensors = transform.prepare_and_transform_humming_tensors(
            tensors, n, k, said, num_experts=e or None, pad_n_to_multiple=256,
            pad_k_to_multiple=128, has_bias="bias" in more, torch_dtype=TORCH[dtype],
            input_schema=schema.HummingInputSchema(
                a_dtype=dtypes.float8e4m3 if kind == "w4a8" else None))
        for name, t in tensors.items():
            as_bytes = t.contiguous().view(torch.uint8).cpu().numpy().tobytes()
            kept = "U8" if t.dtype == torch.float8_e8m0fnu else next(
                key for key, dtype_of in TORCH.items() if dtype_of == t.dtype)
            own = name if kind == "mxfp4" else NAMES.get(name, name)
            made[f"out_{part}{own}"] = Tensor(kept, tuple(t.shape), as_bytes)
    return made


def different(got, want):
    """What differs, or nothing."""
    if set(got) != set(want):
        return f"{sorted(got)}, not {sorted(want)}"
    for name, t in want.items():
        own = got[name]
        if (own.dtype, own.shape, own.data) != (t.dtype, t.shape, t.data):
            count = int((own.bytes != t.bytes).sum()) if own.shape == t.shape else -1
            return f"{name} {own.dtype} {own.shape}: {count} of {t.dtype} {t.shape} differ"
    return ""


def converted(case, source):
    """What tilepack writes of the same layer, under the engine's names."""
    out = cases.convert(source, FORMATS[case[0]])
    at = "m.mlp.experts." if case[1] else "x."
    return {"out_" + name[len(at):]: t for name, t in out.items()}


def random_case(rng):
    kind = list(FORMATS)[rng.integers(3)]
    group = {"mxfp4": 32, "w4a8": 128}.get(kind) or int(rng.choice([32, 64, 128]))
    step = max(group, 64)
    more = [name for name in ("bias", "zeros") if rng.integers(2) and (name, kind) not in
            (("zeros", "mxfp4"), ("zeros", "w4a8"))]
    dtype = "BF16" if kind == "mxfp4" or rng.integers(2) else "F16"
    hidden, inter = (step * int(rng.integers(1, 9)) for _ in range(2))
    return kind, int(rng.integers(4)), hidden, inter, group, dtype, tuple(more)


def magnitudes(rng):
    """A weight without a code 0 is stored as sign and magnitude, whatever its schema said."""
    case = ("int4", 0, 256, 128, 128, "BF16", ())
    source = inputs(case, rng)
    nibbles = rng.integers(1, 16, (256, 128)).astype(np.uint8)
    packed = (nibbles[:, ::2] | nibbles[:, 1::2] << 4).view(np.int32)
    source["in_weight_packed"] = tensor("I32", packed)
    value = nibbles.astype(np.int64) - 8
    signed = (np.abs(value) | (value < 0) << 3).astype(np.uint8)
    other = source | {"in_weight_packed": tensor(
        "I32", (signed[:, ::2] | signed[:, 1::2] << 4).view(np.int32))}
    want = converted(case, other)  # its codes are these nibbles
    return different(engine(case, source), want)


def values_of(source, case, k):
    """W [N,K] of a matrix, float32, from its codes, scales and zero points."""
    kind, _, _, _, group, _, more = case
    raw = next(source[name] for name in ("in_weight", "in_weight_packed") if name in source).bytes
    nibbles = np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1, k)
    if kind == "mxfp4":
        sizes_of = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
        codes = np.where(nibbles & 8, -sizes_of[nibbles & 7], sizes_of[nibbles & 7])
        scale = np.exp2(source["in_weight_scale"].bits.astype(np.float32) - 127)
        return codes * np.repeat(scale, group, axis=1)
    zero = np.full((nibbles.shape[0], k // group), 8, dtype=np.uint8)
    if "zeros" in more:
        words = np.ascontiguousarray(source["in_weight_zero_point"].bits.T)  # [J, N/8]
        packed = words.view(np.uint8).reshape(k // group, -1)
        zero = np.stack([packed & 15, packed >> 4], axis=-1).reshape(k // group, -1).T
    codes = nibbles.astype(np.float32) - np.repeat(zero.astype(np.float32), group, axis=1)
    return codes * np.repeat(source["in_weight_scale"].f32(), group, axis=1)


def tame(source, case, rng):
    """Scales that are powers of two near 1, and no code 0, which stock would store otherwise."""
    for name, t in list(source.items()):
        if name.endswith("weight_scale"):
            power = rng.integers(124, 131, t.shape)
            bits = power.astype(np.uint8) if case[0] == "mxfp4" else (power << 7).astype(np.uint16)
            source[name] = tensor(t.dtype, bits)
        elif name.endswith("weight_packed"):
            raw = t.bytes.copy()
            raw = np.where(raw & 15, raw, raw | 1)
            raw = np.where(raw >> 4, raw, raw | 16).astype(np.uint8)
            source[name] = Tensor(t.dtype, t.shape, raw.tobytes())


def product(case, rng):
    """Humming's kernel on what tilepack writes, with unit vectors: the columns of the weight."""
    from humming.forward import humming_forward  # pylint: disable=import-outside-toplevel

    kind, _, n, k, group, dtype, more = case
    source = inputs(case, rng)
    tame(source, case, rng)
    made = {name[4:]: on_device(t) for name, t in converted(case, source).items()}
    mxfp4 = kind == "mxfp4"
    config = transform.prepare_layer_config(
        n, k, schema.HummingWeightSchema(
            b_dtype=dtypes.float4e2m1 if mxfp4 else dtypes.uint4, has_zero_point="zeros" in more,
            bs_dtype=dtypes.float8e8m0 if mxfp4 else None, weight_scale_group_size=group),
        schema.HummingInputSchema(a_dtype=dtypes.float8e4m3 if kind == "w4a8" else None),
        pad_n_to_multiple=256, pad_k_to_multiple=128, torch_dtype=TORCH[dtype])
    scale = made["weight_scale"]
    got = humming_forward(
        config, inputs=torch.eye(k, dtype=TORCH[dtype], device=DEVICE),
        weight=made["weight" if mxfp4 else "weight_packed"],
        weight_scale=scale.view(torch.float8_e8m0fnu) if mxfp4 else scale,
        zero_point=made.get("weight_zero_point"), hadamard_block_size=0,
        locks=torch.zeros(8 * 256, dtype=torch.int32, device=DEVICE),
        compute_config={"use_batch_invariant": False, "use_f16_accum": False, "gemm_type": "dense"})
    got = got.float().cpu().numpy().T[:n]
    want = values_of(source, case, k)
    error = np.abs(got - want).max() / np.abs(want).max()
    return "" if error <= 4e-3 else f"products are off by {error:.4f}"


PRODUCTS = [("int4", 0, 320, 384, 128, "BF16", ()), ("int4", 0, 320, 320, 32, "BF16", ("zeros",)),
            ("mxfp4", 0, 320, 320, 32, "BF16", ()), ("w4a8", 0, 320, 384, 128, "BF16", ())]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    golden = {} if args.write else stfile.load(GOLDEN)[0]
    written, results = {}, {}
    for name, case in CASES.items():
        at = name + "."
        source = inputs(case, rng) if args.write else {
            key[len(at):]: t for key, t in golden.items() if key.startswith(at + "in_")}
        made = engine(case, source)
        written |= {at + key: t for key, t in (source | made).items()}
        results[name] = "" if args.write else different(made, {
            key[len(at):]: t for key, t in golden.items() if key.startswith(at + "out_")})
    for number in range(args.random):
        case = random_case(rng)
        source = inputs(case, rng)
        results[f"{number} {case}"] = different(converted(case, source), engine(case, source))
    if args.random:
        results["sign and magnitude"] = magnitudes(rng)
    for case in PRODUCTS if args.random and DEVICE == "cuda" else ():
        results[f"product {case}"] = product(case, rng)
    if args.write:
        stfile.save(args.write, written)
    failed = {name: said for name, said in results.items() if said}
    for name, said in failed.items():
        print(f"FAIL {name}: {said}")
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else "no GPU"
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed, on {device}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
