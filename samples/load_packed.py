#!/usr/bin/env python3
"""Memory-maps what `tilepack convert` wrote and hands out the operands of the kernels.

    load_packed.py PATH [NAME]      show the operands of all packed weights, or of one
    load_packed.py PATH --check     prove every view against the stored descriptors

Nothing is copied: every array is a view into the mapped file, with exactly the shape
and the strides that the kernel's launcher asks for. That matters where safetensors
cannot say it, because it knows no strides:

  w4a8-cutlass        operands of vLLM's cutlass_w4a8_mm and cutlass_w4a8_moe_mm, with the
                      stride tensors that the grouped call takes
  fp8-1x128,          DeepGEMM's scales: MN-major, columns padded for TMA; the view has
  fp8-deepgemm-sm100  strides (1, A), and (A * columns, 1, A) for a stack
  mxfp8-torchao3d     (E, N, K) with strides (N * K, 1, N), column-major
  others              as they are stored

numpy is enough. numpy has no bf16 and no e4m3: such arrays hold the raw bits, and
Weight.torch() gives torch tensors of the right dtype with the same strides.
"""
import argparse
import glob
import json
import os
import struct
import sys

import numpy as np

# dtype of safetensors -> numpy's, or that of the raw bits; and torch's name.
DTYPES = {
    "F32": (np.float32, "float32"), "F16": (np.float16, "float16"),
    "BF16": (np.uint16, "bfloat16"), "F8_E4M3": (np.uint8, "float8_e4m3fn"),
    "F8_E8M0": (np.uint8, "float8_e8m0fnu"), "U8": (np.uint8, "uint8"),
    "I8": (np.int8, "int8"), "I32": (np.int32, "int32"), "I64": (np.int64, "int64"),
}


class Tensor:
    """One tensor of a mapped file: `array` is a view, `dtype` its name in safetensors."""

    def __init__(self, array, dtype):
        self.array, self.dtype = array, dtype

    def torch(self):
        import torch

        bits = torch.from_numpy(self.array)
        return bits.view(getattr(torch, DTYPES[self.dtype][1]))


def map_file(path):
    """{name: Tensor} and the metadata of one .safetensors file."""
    # copy-on-write, so that torch may hold it; nobody writes
    data = np.memmap(path, dtype=np.uint8, mode="c")
    (size,) = struct.unpack("<Q", data[:8].tobytes())
    header = json.loads(data[8:8 + size].tobytes())
    meta = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        raw = data[8 + size + begin:8 + size + end]
        kind = DTYPES[entry["dtype"]][0]
        tensors[name] = Tensor(raw.view(kind).reshape(entry["shape"]), entry["dtype"])
    return tensors, meta


class Weight:
    """A packed weight: name, format, box (E, N, K), rank, and its stored tensors."""

    def __init__(self, prefix, descriptor, tensors):
        self.name = prefix.rstrip("._")
        self.format, self.box = descriptor["format"], tuple(descriptor["box"])
        self.rank, self.outputs = descriptor["rank"], descriptor["outputs"]
        self.stored = {out["suffix"]: tensors[prefix + out["suffix"]]
                       for out in self.outputs}

    def operands(self):
        """{argument: Tensor} as the consumer's kernel takes them."""
        make = OPERANDS.get(self.format)
        return make(self) if make else dict(self.stored)

    def torch(self):
        return {name: operand.torch() for name, operand in self.operands().items()}


def columns_to_rows(tensor, rows=None):
    """The last two dimensions exchanged (a view), cut to `rows`: stored column by column."""
    array = np.swapaxes(tensor.array, -1, -2)
    return Tensor(array if rows is None else array[..., :rows, :], tensor.dtype)


def whole(values, dtype):
    return Tensor(np.ascontiguousarray(values), dtype)


def w4a8_cutlass(w):
    """A and B are exchanged inside the kernel: the weight is CUTLASS' operand A, and
    problem_sizes are rows of [N, M_e, K]."""
    e, n, k = w.box
    return {
        "b": w.stored["weight_packed"],                  # int32 (E, N, K/8)
        "b_scales": w.stored["weight_chan_scale"],       # fp32 (E, N, 1)
        # e4m3; expert i begins at i * (K/128) * N elements of 8 bytes
        "b_group_scales": w.stored["weight_group_scale"],
        "b_strides": w.stored["weight_layout"],          # int32 (E, 3): the layout's words
        "b_group_size": whole(np.int32(128), "I32"),
        "a_strides": whole(np.full(e, k, np.int64), "I64"),
        "c_strides": whole(np.full(e, n, np.int64), "I64"),
        # (stride of a group of k, batch stride) in 8-byte elements
        "group_scale_strides": whole(np.tile(np.array([n, 0], np.int64), (e, 1)), "I64"),
    }


def problem_sizes(w, rows_per_expert):
    """The int32 (E, 3) argument of the grouped kernel for so many tokens per expert."""
    _, n, k = w.box
    return np.array([[n, m, k] for m in rows_per_expert], np.int32)


def fp8_deepseek(w):
    return {"weight": w.stored["weight"], "scale": w.stored["weight_scale_inv"]}


def deepgemm_scales(suffix):
    """Scales stored as [.., columns, A]: shape [.., N, columns], strides (.., 1, A)."""
    def operands(w):
        return {"weight": w.stored["weight"],
                "scale": columns_to_rows(w.stored[suffix], w.box[1])}
    return operands


def torchao3d(w):
    """qdata (E, N, K) column-major; scales of expert i: blocked, in row i."""
    return {"qdata": columns_to_rows(w.stored["weight"]), "scale": w.stored["weight_scale"]}


OPERANDS = {
    "w4a8-cutlass": w4a8_cutlass,
    "fp8-deepseek": fp8_deepseek,
    "fp8-1x128": deepgemm_scales("weight_scale"),
    "fp8-deepgemm-sm100": deepgemm_scales("weight_scale_packed"),
    "mxfp8-torchao3d": torchao3d,
}


def load(path):
    """Packed weights by name, and the other tensors by name, of a file or directory."""
    files = [path]
    if os.path.isdir(path):
        files = sorted(glob.glob(os.path.join(path, "*.safetensors")))
    if not files:
        raise SystemExit(f"{path}: no .safetensors files")
    weights, others = {}, {}
    for name in files:
        tensors, meta = map_file(name)
        descriptors = json.loads(meta.get("tilepack.descriptors", "{}"))
        for unit in json.loads(meta.get("tilepack.units", "[]")):
            weight = Weight(unit["prefix"], descriptors[unit["desc"]], tensors)
            weights[weight.name] = weight
            for suffix in weight.stored:
                del tensors[unit["prefix"] + suffix]
        others.update(tensors)
    return weights, others


# ---- the check: every element where the descriptor says --------------------------------

def parse_layout(text):
    """"(E,(8,2),(4)):(..)" with numbers only -> per dimension the lists of sizes, strides."""
    def modes(part):
        values = json.loads(part.replace("(", "[").replace(")", "]"))
        return [m if isinstance(m, list) else [m] for m in values]
    shape, stride = text.split(":")
    return list(zip(modes(shape), modes(stride)))


def at(dim, x):
    """Offset of coordinate x (an array) along one dimension; the last mode is open."""
    sizes, strides = dim
    offset = 0
    for i, (size, stride) in enumerate(zip(sizes, strides)):
        digit = x if i + 1 == len(sizes) else x % size
        offset = offset + digit * stride
        x = x // size
    return offset


def logical(w, out, view):
    """The view as an array over (e, n / per_n, k / per_k), or None when its kernel reads
    it in another way than by index."""
    array = view.array if w.rank == 3 or view.array.ndim == 4 else view.array[None]
    if out["role"] == "group8":  # eight multiples of one scale
        array = array.reshape(w.box[0], -1, w.box[1], 8).view(np.uint64)[..., 0]
        return np.swapaxes(array, 1, 2)
    if w.format == "fp8-deepgemm-sm100" and out["role"] == "scale":  # four scales in a word
        four = [(array >> (8 * i)).astype(np.uint8) for i in range(4)]
        array = np.stack(four, axis=-1)
        return array.reshape(*array.shape[:2], -1)
    return array if array.ndim == 3 else None


ARGUMENTS = {"codes": ("weight", "qdata"), "scale": ("scale",), "group8": ("b_group_scales",),
             "channel": ("b_scales",)}


def blocks(size, per):
    """How many stored elements cover `size`; per 0: one covers all."""
    return -(-size // per) if per else 1


def check_weight(w, random):
    """Compares elements of each view with those that the layout text leads to."""
    operands, checked = w.operands(), 0
    for out in w.outputs:
        names = ARGUMENTS.get(out["role"], ()) + (out["suffix"],)
        view = next((operands[n] for n in names if n in operands), None)
        if view is None or "layout" not in out or out["element"] in ("int4", "e2m1"):
            continue
        array = logical(w, out, view)
        per = out["per"]
        if array is None or any(blocks(size, p) > have for size, p, have in
                                zip(w.box[1:], per, array.shape[1:])):
            continue  # tiles of scales: read by the kernel as they lie
        dims = parse_layout(out["layout"])
        e, n, k = (random.integers(0, size, 200) for size in w.box)
        n, k = (x // p if p else 0 * x for x, p in zip((n, k), per))
        offset = at(dims[0], e) + at(dims[1], n) + at(dims[2], k)
        flat = w.stored[out["suffix"]].array.reshape(-1).view(array.dtype)
        if (array[e, n, k] != flat[offset]).any():
            raise SystemExit(f"{w.name}: {out['suffix']} is not where its layout says")
        checked += 1
    return checked


def show(w):
    print(f"{w.name}  {w.format}  [{', '.join(map(str, w.box))}]")
    for name, operand in w.operands().items():
        strides = [s // operand.array.itemsize for s in operand.array.strides]
        print(f"    {name:20} {operand.dtype:8} shape {tuple(operand.array.shape)}"
              f"  strides {tuple(strides)}")


def main(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("path", help="a directory or file that tilepack wrote")
    p.add_argument("name", nargs="?", help="one weight, without the suffix of its tensors")
    p.add_argument("--check", action="store_true", help="prove the views")
    opt = p.parse_args(argv)
    weights, others = load(opt.path)
    if opt.name and opt.name not in weights:
        raise SystemExit(f"{opt.path}: no packed weight '{opt.name}'")
    chosen = [weights[opt.name]] if opt.name else weights.values()
    if opt.check:
        random = np.random.default_rng(1)
        views = sum(check_weight(w, random) for w in chosen)
        print(f"{len(list(chosen))} packed weights, {views} views proven, "
              f"{len(others)} other tensors")
        return
    for w in chosen:
        show(w)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BrokenPipeError:  # whoever read the list has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
