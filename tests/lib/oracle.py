"""A second decoder: packed tensors from their stored descriptors alone.

Follows formats/README.md and nothing else; imports nothing of the tool and knows
no format by name. Given the bytes of a unit's tensors and its descriptor it finds
every code and scale through the layout texts, checks that each layout is a
bijection and that padding holds the fill, and returns the values that the
consumer's kernel would compute with.
"""
import json
import math
import re

import numpy as np

import stfile

ELEMENT_BITS = {"int4": 4, "e2m1": 4, "e4m3": 8, "e5m2": 8, "e5m3": 8, "int8": 8,
                "uint8b128": 8, "e8m0": 8, "bf16": 16,
                "f16": 16, "f32": 32, "i32": 32, "i64": 64, "e4m3x8": 64}


class Wrong(Exception):
    """The file does not say what the specification wants it to say."""


# ---- layouts -------------------------------------------------------------------

def parse_tuple(text):
    """'(1,(8,2))' -> [1, [8, 2]]; numbers only."""
    tokens = re.findall(r"\d+|[(),]", text)
    if "".join(tokens) != text:
        raise Wrong(f"layout has other characters than numbers and brackets: {text}")

    def read(at):
        if tokens[at] != "(":
            return int(tokens[at]), at + 1
        items, at = [], at + 1
        while True:
            item, at = read(at)
            items.append(item)
            if tokens[at] == ")":
                return items, at + 1
            if tokens[at] != ",":
                raise Wrong(f"layout: ',' or ')' expected: {text}")
            at += 1

    value, end = read(0)
    if end != len(tokens):
        raise Wrong(f"layout: text after the end: {text}")
    return value


class Layout:
    """shape:stride with three modes, for e, n and k; see the normative text."""

    def __init__(self, text):
        shape, _, stride = text.partition(":")
        self.text = text
        self.modes = []
        for size, step in zip(*self.three(parse_tuple(shape), parse_tuple(stride))):
            size = size if isinstance(size, list) else [size]
            step = step if isinstance(step, list) else [step]
            if len(size) != len(step):
                raise Wrong(f"layout: shape and stride differ in form: {text}")
            self.modes.append(list(zip(size, step)))

    def three(self, shape, stride):
        if not (isinstance(shape, list) and isinstance(stride, list)
                and len(shape) == 3 == len(stride)):
            raise Wrong(f"layout: three modes expected: {self.text}")
        return shape, stride

    def extent(self, dim):
        return math.prod(size for size, _ in self.modes[dim])

    @property
    def size(self):
        return math.prod(self.extent(dim) for dim in range(3))

    def offsets_of(self, dim):
        """Contribution of coordinates 0..extent-1 of one dimension."""
        x = np.arange(self.extent(dim), dtype=np.int64)
        out = np.zeros_like(x)
        for size, step in self.modes[dim]:
            out += x % size * step
            x = x // size
        return out

    def offsets(self):
        """Offset of every coordinate of the (aligned) box, [e,n,k]."""
        e, n, k = (self.offsets_of(dim) for dim in range(3))
        return e[:, None, None] + n[:, None] + k

    def check(self):
        """Raises unless every offset below size is hit exactly once."""
        seen = np.zeros(self.size, dtype=bool)
        offsets = self.offsets().reshape(-1)
        if offsets.max() >= self.size:
            raise Wrong(f"layout reaches beyond its size: {self.text}")
        seen[offsets] = True
        if not seen.all():
            raise Wrong(f"layout is not a bijection: {self.text}")


# ---- elements ------------------------------------------------------------------

def elements(data, bits):
    """The stored elements in order of offset, as unsigned integers (8 bytes: rows)."""
    raw = np.frombuffer(data, dtype=np.uint8)
    if bits == 4:
        return np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1)
    if bits == 64:
        return raw.reshape(-1, 8)
    return raw.view({8: np.uint8, 16: np.uint16, 32: np.uint32}[bits])


def unmoved(data, bits):
    """Words of 32 bits as their layout fills them: bit i of a stored word is bit bits[i] of it."""
    if bits is None:
        return data
    stored = np.frombuffer(data, dtype="<u4")
    words = np.zeros_like(stored)
    for i, bit in enumerate(bits):
        words |= (stored >> np.uint32(i) & np.uint32(1)) << np.uint32(bit)
    return words.tobytes()


def float_value(element, stored):
    """Value of scale and e4m3 elements."""
    if element == "e4m3":
        sign, exponent, mantissa = stored >> 7, (stored >> 3) & 15, (stored & 7).astype(np.float64)
        size = np.where(exponent == 0, np.ldexp(mantissa, -9),
                        np.ldexp(8 + mantissa, exponent.astype(np.int32) - 10))
        size = np.where((stored & 0x7F) == 0x7F, np.nan, size)
        return np.where(sign == 1, -size, size).astype(np.float32)
    if element == "e8m0":
        size = np.ldexp(1.0, stored.astype(np.int32) - 127)
        return np.where(stored == 255, np.nan, size).astype(np.float32)
    if element == "e5m3":
        size = np.ldexp(8 + (stored & 7).astype(np.float64), (stored >> 3).astype(np.int32) - 25)
        size = np.where(stored < 0x80, 0, np.where(stored > 0xF6, np.nan, size))
        return size.astype(np.float32)
    if element == "bf16":
        return stfile.bf16_to_f32(stored)
    if element == "f16":
        return stored.view(np.float16).astype(np.float32)
    if element == "f32":
        return stored.view(np.float32)
    raise Wrong(f"element {element} has no value of its own")


class Stored:
    """One output of a unit: its elements at the logical coordinates."""

    def __init__(self, out, box, data, stretches=1):
        self.out, self.role, self.element = out, out["role"], out["element"]
        self.stretches = stretches if out["per"][0] else 1
        box = [box[0] * self.stretches, box[1] // self.stretches, box[2]]
        bits = ELEMENT_BITS[self.element]
        self.layout = Layout(out["layout"])
        self.layout.check()
        if self.layout.size * bits != len(data) * 8:
            raise Wrong(f"{out['suffix']}: the layout has {self.layout.size} elements of {bits} "
                        f"bits, the tensor {len(data)} bytes")
        per_n, per_k = out["per"]
        per_n, per_k = per_n or box[1], per_k or box[2]
        self.counts = (box[0], -(-box[1] // per_n), -(-box[2] // per_k))
        for dim in range(3):
            if self.counts[dim] > self.layout.extent(dim):
                raise Wrong(f"{out['suffix']}: the layout is smaller than the weight")
        self.per = (per_n, per_k)
        self.all = elements(unmoved(data, out.get("word_bits")), bits)
        self.index = self.layout.offsets()
        self.check_padding(bits)

    def check_padding(self, bits):
        e, n, k = self.counts
        inside = np.zeros(self.layout.size, dtype=bool)
        inside[self.index[:e, :n, :k].reshape(-1)] = True
        padding = self.all[~inside]
        fill = self.out.get("fill", 0)
        if bits >= 8:
            padding = np.ascontiguousarray(padding).view(np.uint8)
        elif padding.size:
            fill &= 15
        if not (padding == fill).all():
            raise Wrong(f"{self.out['suffix']}: padding does not hold {fill}")

    def at_blocks(self):
        """Stored integers by (e, n / per_n, k / per_k); stretches count as experts."""
        e, n, k = self.counts
        return self.all[self.index[:e, :n, :k]]

    def at_elements(self, box):
        """Stored integers by (e, n, k): each block's at every one of its elements."""
        wide = self.at_blocks()
        wide = np.repeat(np.repeat(wide, self.per[0], axis=1), self.per[1], axis=2)
        wide = wide[:, :box[1] // self.stretches, :box[2]]
        return wide.reshape(box[0], box[1], box[2], *wide.shape[3:])

    def numbers(self, box):
        """The values of a scale's elements by (e, n, k), without the factor that they are
        stored times."""
        stored = float_value(self.element, self.at_elements(box))
        return np.ldexp(stored, -self.out.get("factor", 0))


# ---- units ---------------------------------------------------------------------

def combine_group8(stored, groups, channel, box):
    """W4A8: the table entry that the nibble selects, times the row's channel scale."""
    table = float_value("e4m3", groups.at_elements(box))
    picked = np.take_along_axis(table, (stored & 7)[..., None].astype(np.int64), axis=-1)[..., 0]
    value = np.where(stored & 8, picked, -picked)
    value = np.where(stored == 0, np.float32(0), value)
    return value * float_value(channel.element, channel.at_elements(box))


def decode(descriptor, data):
    """Values [E,N,K] float32 of one unit. `data`: suffix -> bytes of that tensor."""
    box = descriptor["box"]
    parts = {}
    for out in descriptor["outputs"]:
        if out["role"] == "words":
            check_words(out, box, data[out["suffix"]])
        else:
            parts[out["role"]] = Stored(out, box, data[out["suffix"]],
                                        descriptor.get("stretches", 1))
    codes = parts.pop("codes")
    stored = codes.at_elements(box)
    if "group8" in parts:
        return combine_group8(stored, parts.pop("group8"), parts.pop("channel"), box)
    if "values" in codes.out:
        value = np.array(codes.out["values"], dtype=np.float32)[stored]
    elif codes.element == "int8":
        value = stored.view(np.int8).astype(np.float32)
    elif codes.element == "uint8b128":
        value = stored.astype(np.float32) - np.float32(128)
    else:
        value = float_value(codes.element, stored)
    if descriptor.get("codec") == "float":
        if parts:
            raise Wrong(f"numbers have {sorted(parts)} beside them")
        return value
    with np.errstate(all="ignore"):
        if "scale" in parts:
            scale = parts.pop("scale")
            factor = scale.numbers(box)
        else:
            scale = parts.pop("global")
            if scale.out["divides"]:
                raise Wrong("a divisor stands alone")
            factor = scale.numbers(box)
        product = "zero" in parts and parts["zero"].element in ("bf16", "f16")
        if product:  # of codes that count from 0
            values = codes.out.get("values")
            value = value - np.float32(min(values) if values else -128)
            added = parts.pop("zero").numbers(box)
        elif "zero" in parts:
            value = value - zero_points(parts.pop("zero"), box)
        if "order" in parts:
            check_order(parts.pop("order"), scale.per[1])
        if "global" in parts:
            whole = parts.pop("global")
            number = whole.numbers(box)
            factor = factor / number if whole.out["divides"] else factor * number
        value = value * factor
        if product:
            value = value + added
    if parts:
        raise Wrong(f"roles {sorted(parts)} are not described")
    return value


def zero_points(zero, box):
    """The number that each code is counted from."""
    if zero.element == "uint8b128":
        return zero.at_elements(box).astype(np.float32) - np.float32(128)
    return np.array(zero.out["values"], dtype=np.float32)[zero.at_elements(box)]


def check_order(order, group):
    """What is written has its groups in order."""
    columns = order.at_blocks()[0, 0]
    if (columns != np.arange(columns.size) // group).any():
        raise Wrong("the groups are in another order")


def check_words(out, box, data):
    """Constants: the row of words, once per expert or once."""
    width = np.int64 if out["element"] == "i64" else np.int32
    row = np.array(out["words"], dtype=width).tobytes()
    if data not in (row, row * box[0]):
        raise Wrong(f"{out['suffix']} is not {out['words']}")


class Unit:
    """One packed weight of a checkpoint: its entry in "units" and its descriptor."""

    def __init__(self, entry, descriptors, tensors):
        self.prefix, self.dtype, self.sources = entry["prefix"], entry["dtype"], entry["from"]
        self.descriptor = descriptors[entry["desc"]]
        self.data = {out["suffix"]: tensors[self.prefix + out["suffix"]].data
                     for out in self.descriptor["outputs"]}

    def values(self):
        """[E,N,K] float32."""
        return decode(self.descriptor, self.data)


class Checkpoint:
    """Tensors and units of converted files. Descriptor ids belong to one file."""

    def __init__(self, paths):
        self.tensors, self.units = {}, []
        for path in paths:
            tensors, meta = stfile.load(path)
            if meta.get("format") != "pt" or meta.get("tilepack") != "1":
                raise Wrong(f"{path}: __metadata__ says neither format pt nor tilepack 1")
            self.tensors.update(tensors)
            descriptors = json.loads(meta.get("tilepack.descriptors", "{}"))
            self.units += [Unit(entry, descriptors, tensors)
                           for entry in json.loads(meta.get("tilepack.units", "[]"))]

    def unit(self, prefix):
        for unit in self.units:
            if unit.prefix == prefix:
                return unit
        raise Wrong(f"no unit has the prefix {prefix}")
