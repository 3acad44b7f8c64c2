"""Safetensors files for the tests: a plain reader and writer, and bf16.

Own code on purpose: numpy has no bf16 or fp8, so tensors are handed out as the
unsigned integers of their bits, and a test says itself what they mean. Whether a
file is legal is judged by the safetensors library (check_with_library), not here.
"""
import json
import math
import struct

import numpy as np

# dtype name -> numpy type of its bits
BITS = {
    "BOOL": np.uint8, "U8": np.uint8, "I8": np.int8, "F8_E4M3": np.uint8, "F8_E5M2": np.uint8,
    "F8_E8M0": np.uint8, "U16": np.uint16, "I16": np.int16, "BF16": np.uint16, "F16": np.float16,
    "U32": np.uint32, "I32": np.int32, "F32": np.float32, "U64": np.uint64, "I64": np.int64,
    "F64": np.float64,
}


class Tensor:
    """dtype (safetensors name), shape (tuple), data (bytes)."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, tuple(shape), data

    @property
    def bits(self):
        """The elements as an array of BITS[dtype], in the stored shape."""
        return np.frombuffer(self.data, dtype=BITS[self.dtype]).reshape(self.shape)

    @property
    def bytes(self):
        return np.frombuffer(self.data, dtype=np.uint8)

    def f32(self):
        """Float tensors (BF16, F16, F32) widened to float32."""
        if self.dtype == "BF16":
            return bf16_to_f32(self.bits)
        if self.dtype in ("F16", "F32"):
            return self.bits.astype(np.float32)
        raise ValueError(f"{self.dtype} is not a float type")


def tensor(dtype, array):
    """A Tensor from an array whose items have the size of the dtype."""
    array = np.ascontiguousarray(array)
    if array.itemsize != np.dtype(BITS[dtype]).itemsize:
        raise ValueError(f"{dtype} from {array.dtype}")
    return Tensor(dtype, array.shape, array.tobytes())


def bf16_to_f32(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def f32_to_bf16(values):
    """To nearest, ties to even; finite and infinite values, NaN becomes 0x7FC0."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    out = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), out)


def from_f32(dtype, values):
    """A float Tensor of that dtype from float32 values."""
    if dtype == "BF16":
        return tensor(dtype, f32_to_bf16(values))
    return tensor(dtype, np.asarray(values, dtype=BITS[dtype]))


def header(path):
    """(tensors as in the header, metadata, offset of the data) of one file."""
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        entries = json.loads(f.read(size))
    meta = entries.pop("__metadata__", {})
    return entries, meta, 8 + size


def load(path):
    """({name: Tensor}, metadata) of one file."""
    entries, meta, start = header(path)
    with open(path, "rb") as f:
        data = f.read()
    out = {}
    for name, entry in entries.items():
        begin, end = entry["data_offsets"]
        out[name] = Tensor(entry["dtype"], entry["shape"], data[start + begin:start + end])
        want = math.prod(entry["shape"]) * np.dtype(BITS[entry["dtype"]]).itemsize
        if end - begin != want:
            raise ValueError(f"{path}: {name} has {end - begin} bytes, not {want}")
    return out, meta


def save(path, tensors, meta=None):
    """Writes {name: Tensor} in the given order."""
    entries = {"__metadata__": meta if meta is not None else {"format": "pt"}}
    end = 0
    for name, t in tensors.items():
        begin, end = end, end + len(t.data)
        entries[name] = {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(t.data)


def check_with_library(path, tensors):
    """Raises unless the safetensors library reads the same tensors from the file."""
    import safetensors  # pylint: disable=import-outside-toplevel

    with open(path, "rb") as f:
        seen = dict(safetensors.deserialize(f.read()))
    if set(seen) != set(tensors):
        raise ValueError(f"{path}: the library lists other tensors: {set(seen) ^ set(tensors)}")
    for name, t in tensors.items():
        got = seen[name]
        if tuple(got["shape"]) != t.shape or bytes(got["data"]) != t.data:
            raise ValueError(f"{path}: the library reads other contents for {name}")
