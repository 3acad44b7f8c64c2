"""Searches that mean nothing, and files of importance that are damaged or of another model."""
import json
import struct

import numpy as np

from errors.common import PLAN, case, linear, tensors
import stfile

NAME = "model.layers.0.mlp.down_proj"
SEARCH = ("plan", "in.safetensors", "--to", "w4a8-ct", "--search", "mse")
FILE = SEARCH + ("--importance", "imp")


def words(name, *argv):
    """A command line over one good file, which says too much."""
    @case(name)
    def build():
        tensors(linear())
        return argv


words("search-unknown", *PLAN, "--search", "best")
UNSEARCHED = ("plan", "in.safetensors", "--to", "w4a8-int8-marlin-channel") # by default
words("search-signed-alone", *UNSEARCHED, "--signed")
words("search-importance-alone", *UNSEARCHED, "--importance", "magnitude")
words("search-w4a8-of-nvfp4", "plan", "in.safetensors", "--to", "nvfp4-ct", "--search", "w4a8")
words("search-w4a8-of-fp8", "plan", "in.safetensors", "--to", "fp8-ct", "--search", "w4a8")
words("search-w4a8-of-small-groups", "plan", "in.safetensors", "--to", "w4a16-ct", "--set",
      "group=channel", "--search", "w4a8")
words("search-signed-mxfp4", "plan", "in.safetensors", "--to", "mxfp4-ct", "--search", "mse",
      "--signed")
words("search-beside-recipe", "plan", "in.safetensors", "--recipe", "r.json", "--search", "mse")
words("importance-missing", *FILE)
words("importance-without-against", "verify", "in.safetensors", "--importance", "imp")


def entry(name, values, calls=1, count=None):
    """An entry of an imatrix in its older form."""
    values = np.asarray(values, np.float32)
    return (struct.pack("<i", len(name)) + name + struct.pack("<ii", calls,
            values.size if count is None else count) + values.tobytes())


def dat(*entries, count=None):
    return struct.pack("<i", len(entries) if count is None else count) + b"".join(entries)


def text(word):
    return struct.pack("<Q", len(word)) + word


def gguf(tensors=1, pairs=0, infos=b"", version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + infos


def info(name, *sizes, kind=0, offset=0):
    return (text(name) + struct.pack("<I", len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)
            + struct.pack("<IQ", kind, offset))


def file_case(name, data):
    """A plan with a file of importance of these bytes."""
    @case(name)
    def build():
        tensors(linear(NAME + ".weight", 128, 256))
        with open("imp", "wb") as f:
            f.write(data)
        return FILE


GOOD = np.ones(256)
DOWN = b"blk.0.ffn_down.weight"
file_case("importance-empty", b"")
file_case("importance-text", b"this is no such file at all\n" * 4)
file_case("importance-of-no-weight", dat(entry(DOWN, GOOD), entry(b"blk.7.ffn_down.weight", GOOD)))
file_case("importance-too-short", dat(entry(DOWN, np.ones(128))))
for case_name, sizes in (("importance-transposed", (256, 1)), ("importance-folded", (2, 128))):
    header = json.dumps({NAME: {"dtype": "F32", "shape": sizes, "data_offsets": [0, 1024]}}).encode()
    file_case(case_name, struct.pack("<Q", len(header)) + header + np.ones(256, "<f4").tobytes())
file_case("importance-too-long", dat(entry(DOWN, np.ones(512))))
file_case("importance-nan", dat(entry(DOWN, np.where(np.arange(256) == 9, np.nan, 1))))
file_case("importance-infinite", dat(entry(DOWN, np.where(np.arange(256) == 9, np.inf, 1))))
file_case("importance-negative", dat(entry(DOWN, np.where(np.arange(256) == 9, -1, 1))))
file_case("importance-twice", dat(entry(DOWN, GOOD), entry(DOWN, GOOD)))
file_case("importance-cut-off", dat(entry(DOWN, GOOD))[:-7])
file_case("importance-cut-off-in-name", dat(entry(DOWN, GOOD), entry(DOWN, GOOD))[:1070])
file_case("importance-too-many-entries", dat(entry(DOWN, GOOD), count=2**31 - 1))
file_case("importance-no-entries", dat(entry(DOWN, GOOD), count=0))
file_case("importance-negative-count", dat(entry(DOWN, GOOD, count=-4)))
file_case("importance-huge-count", dat(entry(DOWN, GOOD, count=2**31 - 1)))
file_case("importance-bytes-behind", dat(entry(DOWN, GOOD)) + b"x" * 20)
file_case("importance-gguf-version", gguf(version=9, infos=b"\0" * 64))
file_case("importance-gguf-too-many", gguf(tensors=2**60, infos=b"\0" * 64))
file_case("importance-gguf-pairs", gguf(pairs=2**50, infos=b"\0" * 64))
file_case("importance-gguf-long-name", gguf(infos=struct.pack("<Q", 2**62) + b"\0" * 64))
file_case("importance-gguf-list", gguf(pairs=1, infos=text(b"k") + struct.pack("<IIQ", 9, 6, 2**62)
                                       + b"\0" * 64))
file_case("importance-gguf-overflow", gguf(infos=info(DOWN + b".in_sum2", 2**40, 2**40) + b"\0" * 64))
file_case("importance-gguf-f16", gguf(infos=info(DOWN + b".in_sum2", 256, 1, kind=1) + b"\0" * 64))
file_case("importance-gguf-no-counts", gguf(infos=info(DOWN + b".in_sum2", 256, 1) + b"\0" * 2048))
file_case("importance-gguf-no-sums", gguf(infos=info(DOWN + b".counts", 1, 1) + b"\0" * 2048))
file_case("importance-gguf-cut-off", gguf(tensors=2, infos=info(DOWN + b".in_sum2", 256, 1)
                                          + info(DOWN + b".counts", 1, 1, offset=1024)
                                          + b"\0" * 512))


@case("importance-of-wrong-dtype")
def wrong_dtype():
    tensors(linear(NAME + ".weight", 128, 256))
    stfile.save("imp", {NAME + ".weight": stfile.from_f32("BF16", np.ones(256, np.float32))})
    return FILE


@case("recipe-search-and-keep")
def search_and_keep():
    tensors(linear())
    with open("r.json", "w", encoding="utf-8") as f:
        f.write('{"rules": [{"match": ".", "keep": true, "search": "mse"}]}')
    return "plan", "in.safetensors", "--recipe", "r.json"


@case("recipe-two-importances")
def two_importances():
    tensors(linear())
    with open("r.json", "w", encoding="utf-8") as f:
        f.write('{"rules": [{"match": "a", "to": "w4a8-ct", "search": "mse", "importance": "x"},'
                '{"match": "b", "to": "w4a8-ct", "search": "mse", "importance": "y"}]}')
    return "plan", "in.safetensors", "--recipe", "r.json"


def moments_case(name, dtype="F32", shape=(256, 3), number=None, h=True, of=NAME + ".v"):
    """The same of a file with moments: of which dtype and shape, with which number 5."""
    @case(name)
    def build():
        tensors(linear(NAME + ".weight", 128, 256))
        v = np.ones(shape, np.float32)
        if number is not None:
            v.reshape(-1)[5] = number
        entries = {NAME: stfile.tensor("F32", np.ones(256, np.float32))} if h else {}
        entries[of] = stfile.from_f32(dtype, v)
        stfile.save("imp", entries)
        return FILE


moments_case("moments-of-wrong-dtype", dtype="F16")
moments_case("moments-of-four-dimensions", shape=(1, 1, 256, 3))
moments_case("moments-of-large-rank", shape=(256, 129))
moments_case("moments-of-rank-0", shape=(256, 0))
moments_case("moments-of-one-dimension", shape=(256,))
moments_case("moments-transposed", shape=(3, 256))
moments_case("moments-too-short", shape=(128, 6))
moments_case("moments-of-experts", shape=(2, 256, 3))
moments_case("moments-nan", number=np.nan)
moments_case("moments-infinite-bf16", dtype="BF16", number=np.inf)
moments_case("moments-alone", h=False)
moments_case("moments-of-no-weight", of="model.layers.7.mlp.down_proj.v")


@case("moments-of-some-experts")
def some_experts():
    weights, entries = {}, {}
    for e in range(2):
        name = f"model.layers.0.mlp.experts.{e}.down_proj"
        weights |= linear(name + ".weight", 128, 256)
        entries[name] = stfile.tensor("F32", np.ones(256, np.float32))
    entries[name + ".v"] = stfile.tensor("F32", np.ones((256, 2), np.float32))
    tensors(weights)
    stfile.save("imp", entries)
    return ("plan", "in.safetensors", "--to", "w4a8-cutlass", "--search", "mse", "--importance",
            "imp")


@case("moments-beyond-the-memory")
def beyond_the_memory():
    tensors(linear(NAME + ".weight", 16, 32768))
    stfile.save("imp", {NAME: stfile.tensor("F32", np.ones(32768, np.float32)),
                        NAME + ".v": stfile.from_f32("BF16", np.ones((32768, 128), np.float32))})
    return ("convert", "in.safetensors", "-o", "out.safetensors", "--to", "nvfp4-ct", "--search",
            "mse", "--importance", "imp", "--max-memory", "64M")
