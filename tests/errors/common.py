"""What the error cases share: a registry, and small builders of broken inputs.

A case is a function that builds its input in the current directory (empty at
first) and returns the command line. Everything is deterministic: the same bytes,
the same relative names, so that the message can be compared as it is.
"""
import json
import os
import socket
import struct

CASES = {}
PLAN = ("plan", "in.safetensors", "--to", "w4a8-ct")
PLAN_DIR = ("plan", "src", "--to", "w4a8-ct")
CONVERT = ("convert", "in.safetensors", "-o", "out.safetensors", "--to", "w4a8-ct")
CONVERT_DIR = ("convert", "src", "-o", "out", "--to", "w4a8-ct")
INDEX = "src/model.safetensors.index.json"


class Skip(Exception):
    """This machine cannot make the situation; the text says why."""


class Command:
    """A command line with what it needs around it."""

    def __init__(self, argv, preexec=None, stdout=None, after=None, env=None):
        self.argv, self.preexec, self.stdout = list(argv), preexec, stdout
        self.after, self.env = after, env or {}


def case(name):
    """Registers the function below it under this name."""
    def register(function):
        if name in CASES:
            raise ValueError(f"two cases are named {name}")
        CASES[name] = function
        return function
    return register


def raw(path, data=b"", size=None):
    """A file of these bytes, made longer (with a hole) when size says so."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
        if size is not None:
            f.truncate(size)


def listen(path):
    """A socket there, which nobody serves."""
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)


def st(header, data=b"", path="in.safetensors", length=None, size=None):
    """A safetensors file: header (text, bytes or object) and data, right or wrong."""
    if not isinstance(header, (str, bytes)):
        header = json.dumps(header, separators=(",", ":"))
    if isinstance(header, str):
        header = header.encode()
    prefix = struct.pack("<Q", len(header) if length is None else length)
    raw(path, prefix + header + data, size)


def entry(shape=(2, 2), begin=0, end=None, dtype="F32"):
    """A header entry of consistent size unless `end` says otherwise."""
    bits = {"F32": 32, "BF16": 16, "F16": 16, "U8": 8, "I8": 8, "F8_E4M3": 8, "I32": 32, "I64": 64}
    if end is None:
        count = 1
        for n in shape:
            count *= n
        end = begin + count * bits[dtype] // 8
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def tensors(named, path="in.safetensors", meta=None):
    """A legal file of {name: (dtype, shape)} or {name: (dtype, shape, bytes)}; values
    not given are zeros in a hole."""
    header, end, filled = {}, 0, []
    if meta is not None:
        header["__metadata__"] = meta
    for name, item in named.items():
        header[name] = entry(item[1], end, dtype=item[0])
        if len(item) > 2:
            filled.append((end, item[2]))
        end = header[name]["data_offsets"][1]
    text = json.dumps(header, separators=(",", ":")).encode()
    start = 8 + len(text)
    raw(path, struct.pack("<Q", len(text)) + text, start + end)
    with open(path, "r+b") as f:
        for at, data in filled:
            f.seek(start + at)
            f.write(data)


def linear(name="l.weight", n=128, k=128, dtype="BF16"):
    return {name: (dtype, (n, k))}


def index(weight_map, **more):
    """The index of src; weight_map may be an object or the text of the whole file."""
    if isinstance(weight_map, (str, bytes)):
        raw(INDEX, weight_map if isinstance(weight_map, bytes) else weight_map.encode())
    else:
        raw(INDEX, json.dumps({"metadata": {}, "weight_map": weight_map, **more}).encode())


def two_shards():
    """src with a.weight in shard 1 and b.weight in shard 2, and its index."""
    tensors(linear("a.weight"), "src/model-00001-of-00002.safetensors")
    tensors(linear("b.weight"), "src/model-00002-of-00002.safetensors")
    index({"a.weight": "model-00001-of-00002.safetensors",
           "b.weight": "model-00002-of-00002.safetensors"})


def one_shard(named=None, config=None):
    """src with a single model.safetensors, and config.json when there is one."""
    tensors(named or linear(), "src/model.safetensors")
    if config is not None:
        raw("src/config.json", config if isinstance(config, bytes) else
            json.dumps(config).encode())
