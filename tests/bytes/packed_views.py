#!/usr/bin/env python3
"""The operands that tilepack_llm hands out, against the layouts stored in the file.

    packed_views.py PATH...

For 200 random elements of every operand that a kernel reads by index, the view has at that
index what the layout text leads to in the stored bytes. Prints `N views proven` for each PATH;
a view that differs, or a PATH without one, is exit status 1.
"""
import json
import math
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import tilepack_llm

ARGUMENTS = {"codes": ("weight", "qdata"), "scale": ("scale",), "group8": ("b_group_scales",),
             "channel": ("b_scales",)}


def parse_layout(text):
    """Numbers only -> per dimension the lists of sizes and strides."""
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


def logical(w, suffix, view):
    """The view as an array over (e, n / per_n, k / per_k), or None when its kernel reads
    it in another way than by index."""
    array = view.array
    if w.roles[suffix] == "group8":  # eight multiples of one scale
        array = array.reshape(w.box[0], -1, w.box[1], 8).view(np.uint64)[..., 0]
        return np.swapaxes(array, 1, 2)
    array = array if w.stacked else array[None]
    if w.format == "fp8-deepgemm-sm100" and w.roles[suffix] == "scale":  # four in a word
        four = [(array >> (8 * i)).astype(np.uint8) for i in range(4)]
        array = np.stack(four, axis=-1)
        return array.reshape(*array.shape[:2], -1)
    return array if array.ndim == 3 else None


def blocks(size, per):
    """How many stored elements cover `size`; per 0: one covers all."""
    return -(-size // per) if per else 1


def proven(w, out, random):
    """False when the kernel does not read the operand by index."""
    suffix, operands = out["suffix"], w.operands()
    names = ARGUMENTS.get(w.roles[suffix], ()) + (suffix,)
    view = next((operands[n] for n in names if n in operands), None)
    if view is None or suffix not in w.layouts or out["element"] in ("int4", "e2m1"):
        return False
    array, per = logical(w, suffix, view), out.get("per", [1, 1])
    if array is None or any(blocks(size, p) > have for size, p, have in
                            zip(w.box[1:], per, array.shape[1:])):
        return False  # tiles of scales: read by the kernel as they lie
    dims = parse_layout(w.layouts[suffix])
    e, n, k = (random.integers(0, size, 200) for size in w.box)
    n, k = (x // p if p else 0 * x for x, p in zip((n, k), per))
    offset = at(dims[0], e) + at(dims[1], n) + at(dims[2], k)
    flat = w.stored[suffix].array.reshape(-1).view(array.dtype)
    if (array[e, n, k] != flat[offset]).any():
        raise SystemExit(f"{w.name}: {suffix} is not where its layout says")
    return True


def same_memory(w):
    """No operand of a weight is a copy, but for constants of a few words."""
    for name, operand in w.operands().items():
        mapped = any(np.shares_memory(operand.array, s.array) for s in w.stored.values())
        if not mapped and math.prod(operand.shape) > 2 * w.box[0]:
            raise SystemExit(f"{w.name}: {name} is a copy")


def main(paths):
    random = np.random.default_rng(1)
    for path in paths:
        count = 0
        for w in tilepack_llm.open(path).weights.values():
            same_memory(w)
            outputs = tilepack_llm.format_facts(w.format)["outputs"]
            count += sum(proven(w, out, random) for out in outputs)
        print(f"{path}: {count} views proven")
        if not count:
            sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
