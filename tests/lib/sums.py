"""The sum of a source file's data (`data` of a manifest), from the text of formats/README.md alone."""
import json
import os
import struct

import numpy as np

BLOCK = 4096
ALL = (1 << 64) - 1


def mix(x):
    """The finalizer of splitmix64."""
    x = (x + 0x9E3779B97F4A7C15) & ALL
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & ALL
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & ALL
    return x ^ x >> 31


KEYS = np.array([mix(i) for i in range(128)], dtype=np.uint64)


def rotated(words, bits):
    return words << np.uint64(bits) | words >> np.uint64(64 - bits)


def block_sums(block):
    """A and B of a block of 4096 bytes."""
    lines = np.frombuffer(block, dtype="<u8").reshape(16, 4, 8)
    pairs = lines[:, 0::2] + rotated(lines[:, 1::2], 8)
    t = (pairs[:, 0] + rotated(pairs[:, 1], 20)).reshape(128)
    half = np.uint64(0xFFFFFFFF)
    low = ((t & half) + (KEYS & half)) & half
    high = ((t >> np.uint64(32)) + (KEYS >> np.uint64(32))) & half
    return int((low * high).sum(dtype=np.uint64)), int(t.sum(dtype=np.uint64))


def add(total, data, at):
    """Adds the blocks of bytes that begin at byte `at` of their file."""
    for begin in range(0, len(data), BLOCK):
        a, b = block_sums(data[begin:begin + BLOCK].ljust(BLOCK, b"\0"))
        place = mix(at + begin)
        total[0] = (total[0] + mix(a ^ place)) & ALL
        total[1] = (total[1] + mix((b + place) & ALL)) & ALL


def text(total):
    return f"{total[0]:016x}{total[1]:016x}"


def of_safetensors(path):
    """`data` of a plain safetensors file."""
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
        total = [0, 0]
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                f.seek(8 + size + begin)
                add(total, f.read(end - begin), 8 + size + begin)
    return text(total)


def of_file(path):
    """`data` of any other file: all of it is one tensor."""
    total = [0, 0]
    with open(path, "rb") as f:
        add(total, f.read(), 0)
    return text(total)


def of_source(folder, manifest):
    """{name: data} that a manifest's `source` should have, of the folder that it was made of."""
    return {entry["name"]: of_safetensors(os.path.join(folder, entry["name"]))
            if "header" in entry else of_file(os.path.join(folder, entry["name"]))
            for entry in manifest["source"]}
