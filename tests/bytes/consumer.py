#!/usr/bin/env python3
"""What a consumer's kernel would compute with the stored operands.

    consumer.py [FORMAT ...]

Converts the small checkpoints of samples/ to every format. For each packed weight
the operands are read the way the kernel addresses them (its own index formulas, not
the stored descriptors), activations are multiplied, and the product is compared with
that of the source weights. The values must equal, exactly, those that oracle.py decodes
from the descriptors alone, and the bytes those that refquant.py makes of the sources,
stacked as the unit says. Every source tensor must be accounted for: kept
byte for byte, or named as a part of exactly one unit. Ends with `N passed, N failed`
(weights).
"""
import glob
import os
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import oracle
import random_shapes
import refquant as rq
import tool

SAMPLES = ["tiny-llama", "tiny-mixtral", "tiny-qwen3-moe"]


class Mismatch(Exception):
    pass


# ---- operands as the kernels read them: W[E,N,K] float32 ------------------------

def fetch(tensors, prefix, suffix, rank):
    """Bits of an output with a leading E."""
    bits = tensors[prefix + suffix].bits
    return bits if rank == 3 else bits[None]


def int4_ct(t, p, rank, _box):
    """The group size follows from the shapes."""
    codes = rq.unpack_nibbles(fetch(t, p, "weight_packed", rank))
    scale = rq.bf16_to_f32(fetch(t, p, "weight_scale", rank))
    group = codes.shape[-1] // scale.shape[-1]
    return (codes.astype(np.float32) - 8) * np.repeat(scale, group, axis=-1)


def int8_packed(t, p, rank, _box):
    """Bytes of a word from the lowest on, each the value plus 128."""
    words = np.ascontiguousarray(fetch(t, p, "weight_packed", rank)).view(np.uint32)
    codes = np.stack([words >> np.uint32(8 * i) & 255 for i in range(4)], axis=-1)
    q = codes.reshape(words.shape[:-1] + (-1,)).astype(np.float32) - 128
    scale = rq.bf16_to_f32(fetch(t, p, "weight_scale", rank))
    return q * np.repeat(scale, q.shape[-1] // scale.shape[-1], axis=-1)


def gptq(t, p, _rank, box):
    """Word (k/8, n) holds eight columns; the zero point is one more than stored, the group g_idx's."""
    bits = {key: t[p + key].bits for key in ("qweight", "scales", "qzeros", "g_idx")}
    col, row = np.arange(box[2])[:, None], np.arange(box[1])[None]
    word = bits["qweight"].view(np.uint32)[col // 8, row]
    code = (word >> (4 * (col % 8)).astype(np.uint32)) & 15
    group = bits["g_idx"][col]
    zero = (bits["qzeros"].view(np.uint32)[group, row // 8]
            >> (4 * (row % 8)).astype(np.uint32) & 15) + 1
    value = (code.astype(np.float32) - zero) * bits["scales"].astype(np.float32)[group, row]
    return value.T[None]


def awq(t, p, _rank, box):
    bits = {key: t[p + key].bits for key in ("qweight", "scales", "qzeros")}
    col, row = np.arange(box[2])[:, None], np.arange(box[1])[None]
    shift = (4 * np.array([0, 4, 1, 5, 2, 6, 3, 7])[row % 8]).astype(np.uint32)
    code = bits["qweight"].view(np.uint32)[col, row // 8] >> shift & 15
    group = col // (box[2] // bits["scales"].shape[0])
    zero = bits["qzeros"].view(np.uint32)[group, row // 8] >> shift & 15
    value = code.astype(np.float32) - zero.astype(np.float32)
    return (value * bits["scales"].astype(np.float32)[group, row]).T[None]


def int8_rows(t, p, rank, _box):
    q = fetch(t, p, "weight", rank).astype(np.float32)
    return q * rq.bf16_to_f32(fetch(t, p, "weight_scale", rank))


def w4a8_cutlass(t, p, rank, box):
    """(n,k) to nibble as the mainloop's layout does, through the layout words; the value
    is the entry of the eight stored multiples that the nibble selects."""
    e, n, k = box
    layout = t[p + "weight_layout"].bits
    if layout.shape != (e, 3) or (layout != [n // 16, k // 32, 32 * n]).any():
        raise Mismatch(f"{p}weight_layout is {layout.tolist()}")
    row, col = np.arange(n)[:, None], np.arange(k)[None]
    off = ((col >> 5) * int(layout[0, 2]) + (row >> 4) * 512 + (row & 7) * 64
           + ((col >> 2) & 3) * 16 + ((col >> 4) & 1) * 8 + ((row >> 3) & 1) * 4 + (col & 3))
    raw = t[p + "weight_packed"].bytes.reshape(e, n * k // 2)
    nibble = (raw[:, off >> 1] >> ((off & 1) * 4).astype(np.uint8)) & 15
    groups = fetch(t, p, "weight_group_scale", rank).reshape(e, k // 128, n, 8)
    table = groups[np.arange(e)[:, None, None], (col >> 7)[None], row[None], nibble & 7]
    value = np.where(nibble & 8, rq.E4M3[table], -rq.E4M3[table])
    value = np.where(nibble == 0, np.float32(0), value)
    return value * fetch(t, p, "weight_chan_scale", rank)


def w4a16_humming(t, p, _rank, box):
    """A thread of a warp, n % 8 and k % 8 / 2, loads four words of a tile of 64 rows and 16 columns:
    16 rows each; a row's scale is that of its place in the tile, n % 8 before n / 8."""
    e, n, k = box
    wide = rq.align(n, 256)
    row, col = np.arange(n)[:, None], np.arange(k)[None]
    lane = row % 8 * 4 + col % 8 // 2
    at = col // 16 * (2 * wide) + row // 64 * 128 + lane * 4 + row % 64 // 16
    shift = col % 2 * 16 + row % 16 // 8 * 8 + col % 16 // 8 * 4
    words = t[p + "weight_packed"].bits.view(np.uint32).reshape(e, -1)
    code = (words[:, at] >> shift.astype(np.uint32) & 15).astype(np.float32)
    scale = rq.bf16_to_f32(t[p + "weight_scale"].bits).reshape(e, -1, wide)
    group = rq.align(k, 128) // scale.shape[1]
    own = scale[:, col // group, row // 64 * 64 + row % 8 * 8 + row % 64 // 8]
    return (code - 8) * own


def fp8_blocks(t, p, rank, scale, block):
    codes = fetch(t, p, "weight", rank)
    return rq.E4M3[codes] * rq.spread(scale, block, 128, *codes.shape[1:])


def fp8_deepseek(t, p, rank, _box):
    return fp8_blocks(t, p, rank, fetch(t, p, "weight_scale_inv", rank), 128)


def fp8_ct(t, p, rank, _box):
    return fp8_blocks(t, p, rank, rq.bf16_to_f32(fetch(t, p, "weight_scale", rank)), 128)


def fp8_dynamic_ct(t, p, rank, _box):
    scale = rq.bf16_to_f32(fetch(t, p, "weight_scale", rank))
    return rq.E4M3[fetch(t, p, "weight", rank)] * scale


def fp8_tensor_ct(t, p, rank, _box):
    scale = rq.bf16_to_f32(t[p + "weight_scale"].bits)
    return rq.E4M3[fetch(t, p, "weight", rank)] * scale[0]


def fp8_1x128(t, p, rank, box):
    phys = fetch(t, p, "weight_scale", rank)  # [E, K/128, align(N,4)]
    return fp8_blocks(t, p, rank, phys.transpose(0, 2, 1)[:, :box[1]], 1)


def fp8_sm100(t, p, rank, box):
    """Byte k/128 % 4 of word (k/512, n) is the exponent."""
    words = fetch(t, p, "weight_scale_packed", rank).view(np.uint32)
    blocks = np.arange(-(-box[2] // 128))
    byte = words[:, blocks // 4, :box[1]] >> (8 * (blocks % 4)).astype(np.uint32)[:, None]
    scale = rq.from_bits((byte & 0xFF) << np.uint32(23))
    return fp8_blocks(t, p, rank, scale.transpose(0, 2, 1), 1)


def mxfp8_ct(t, p, rank, _box):
    codes = fetch(t, p, "weight", rank)
    scale = rq.e8m0_value(fetch(t, p, "weight_scale", rank))
    return rq.E4M3[codes] * np.repeat(scale, 32, axis=-1)


def tile_offset(row, col, columns):
    """Byte of (row, col) in the 128x4 scale tiles of a matrix with that many columns."""
    padded = rq.align(columns, 4)
    return ((row // 128) * 128 * padded + (col // 4) * 512 + (row % 32) * 16
            + (row % 128) // 32 * 4 + col % 4)


def mxfp8_blocked(t, p, rank, box):
    row, col = np.arange(box[1])[:, None], np.arange(box[2] // 32)[None]
    tiles = fetch(t, p, "weight_scale", rank)
    scale = rq.e8m0_value(tiles[:, tile_offset(row, col, box[2] // 32)])
    return rq.E4M3[fetch(t, p, "weight", rank)] * np.repeat(scale, 32, axis=-1)


def mxfp8_torchao3d(t, p, rank, box):
    """Column-major experts; the scale matrix has K rows and N/32 columns."""
    e, n, k = box
    row, col = np.arange(k)[None], np.arange(n // 32)[:, None]
    tiles = t[p + "weight_scale"].bytes.reshape(e, -1)
    scale = rq.e8m0_value(tiles[:, tile_offset(row, col, n // 32)])  # [E, N/32, K]
    codes = fetch(t, p, "weight", rank).swapaxes(1, 2)
    return rq.E4M3[codes] * np.repeat(scale, 32, axis=1)


# reader, largest relative error of a product with normal weights
FORMATS = {
    "w4a8-ct": (int4_ct, 0.14),
    "w4a8-cutlass": (w4a8_cutlass, 0.15),
    "w4a16-humming": (w4a16_humming, 0.14),
    "fp8-deepseek": (fp8_deepseek, 0.035),
    "fp8-deepgemm-sm90": (fp8_deepseek, 0.035),
    "mxfp8-blocked": (mxfp8_blocked, 0.035),
    "mxfp8-torchao3d": (mxfp8_torchao3d, 0.035),
    "fp8-ct": (fp8_ct, 0.035),
    "fp8-deepgemm-sm100": (fp8_sm100, 0.035),
    "fp8-1x128": (fp8_1x128, 0.035),
    "fp8-dynamic-ct": (fp8_dynamic_ct, 0.035),
    "fp8-tensor-ct": (fp8_tensor_ct, 0.035),
    "w4a16-ct": (int4_ct, 0.14),
    "gptq": (gptq, 0.14),
    "awq": (awq, 0.14),
    "w8a16-ct": (int8_packed, 0.012),
    "int8-ct": (int8_rows, 0.012),
    "mxfp8-ct": (mxfp8_ct, 0.035),
}


# What experts have by default in the place of the format's defaults; K is a multiple of 128 here.
OF_EXPERTS = {"w8a16-ct": {"group": "128"}}


# ---- checks --------------------------------------------------------------------

def source_rows(origin, e, source, used):
    """The rows that one entry of "from" gives to expert e."""
    name = origin["name"].replace("{e}", str(e))
    t = source[name]
    if list(t.shape) != origin["shape"]:
        raise Mismatch(f"{name} has shape {t.shape}, \"from\" says {origin['shape']}")
    values = t.f32()
    if values.ndim == 3:
        expert = origin.get("expert", e)
        values = values[expert]
        name += f"[{expert}]"
    first = origin.get("row", 0)
    used.append((name, first, first + origin["rows"]))
    return values[first:first + origin["rows"]]


def source_weight(unit, source, used):
    """W[E,N,K] of a unit, put together from the tensors it names."""
    return np.stack([np.concatenate([source_rows(origin, e, source, used)
                                     for origin in unit.sources])
                     for e in range(unit.descriptor["box"][0])])


def check_account(source, out, used):
    """Every row of every source tensor is kept or went into one unit."""
    kept = {n for n, t in source.items() if n in out and out[n].data == t.data}
    rows = {}
    for name, first, end in used:
        rows.setdefault(name, []).append((first, end))
    for name, t in source.items():
        parts = [name] if len(t.shape) < 3 else [f"{name}[{e}]" for e in range(t.shape[0])]
        for part in parts:
            spans = sorted(rows.pop(part, []))
            if name in kept:
                if spans:
                    raise Mismatch(f"{name} was both kept and converted")
                continue
            ends = [0] + [end for _, end in spans]
            if [first for first, _ in spans] != ends[:-1] or ends[-1] != t.shape[-2]:
                raise Mismatch(f"of {part} with {t.shape[-2]} rows, {spans} were converted")
    if rows:
        raise Mismatch(f"no such source: {sorted(rows)[:3]}")


def product_error(rng, values, weight):
    """Relative Frobenius error of the kernel's product, for activations in e4m3."""
    a = rng.standard_normal((8, weight.shape[2])).astype(np.float32)
    token = np.abs(a).max(axis=1, keepdims=True) / np.float32(448)
    a8 = rq.E4M3[rq.to_e4m3(a / token)].astype(np.float64) * token
    got = np.einsum("mk,enk->emn", a8, values.astype(np.float64))
    want = np.einsum("mk,enk->emn", a8, weight.astype(np.float64))
    return np.linalg.norm(got - want) / np.linalg.norm(want)


def check_unit(unit, tensors, to, source, used, rng):
    box, rank = unit.descriptor["box"], unit.descriptor["rank"]
    values = unit.values()
    reader, limit = FORMATS[to]
    if not np.array_equal(reader(tensors, unit.prefix, rank, box), values):
        raise Mismatch(f"{unit.prefix}: the descriptor decodes to other values than the "
                       "kernel's addressing")
    weight = source_weight(unit, source, used)
    if weight.shape != tuple(box):
        raise Mismatch(f"{unit.prefix}: sources give {weight.shape}, the descriptor {box}")
    sets = OF_EXPERTS.get(to, {}) if ".experts." in unit.prefix else {}
    outputs, _ = random_shapes.FORMATS[to][4](weight if rank == 3 else weight[0], sets)
    random_shapes.check_outputs(unit.prefix, outputs, tensors)
    error = product_error(rng, values, weight)
    if not error < limit:
        raise Mismatch(f"{unit.prefix}: products are off by {error:.4f}")
    return error


def check_sample(source_dir, to):
    """(weights, largest error) of one sample in one format."""
    rng = np.random.default_rng(5)
    with tool.Workdir() as work:
        tool.run("convert", source_dir, "-o", work.at("out"), "--to", to, "--search", "none", "--quiet")
        tool.load(work.at("out"))
        checkpoint = oracle.Checkpoint(tool.shards(work.at("out")))
    source, used = tool.load(source_dir)[0], []
    errors = [check_unit(unit, checkpoint.tensors, to, source, used, rng)
              for unit in checkpoint.units]
    check_account(source, checkpoint.tensors, used)
    if not errors:
        raise Mismatch("nothing was converted")
    return len(errors), max(errors)


def main():
    names = sys.argv[1:] or list(FORMATS)
    passed = failed = 0
    sys.path.insert(0, os.path.join(tool.REPO, "samples"))
    import gen_checkpoint  # pylint: disable=import-outside-toplevel,import-error
    with tool.Workdir() as work:
        for sample in SAMPLES:
            gen_checkpoint.main([work.at(sample), "--preset", sample, "--quiet"])
            assert glob.glob(work.at(sample, "*.safetensors"))
            for to in names:
                try:
                    count, error = check_sample(work.at(sample), to)
                except (Mismatch, random_shapes.Mismatch, oracle.Wrong, tool.ToolError,
                        KeyError, ValueError, IndexError) as problem:
                    failed += 1
                    print(f"FAIL {to:18} {sample}: {type(problem).__name__}: {problem}",
                          flush=True)
                else:
                    passed += count
                    print(f"ok   {to:18} {sample} {count} weights, product error at most "
                          f"{error:.4f}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
