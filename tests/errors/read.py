"""dump, verify, unpack, diff and merge of what is not there or not whole."""
import json
import os

import tool
from errors.common import case, linear, one_shard, raw, tensors

PACKED = {"l.weight": ("BF16", (128, 128)), "n.norm.weight": ("BF16", (64,))}


def packed_file(to="w4a8-cutlass"):
    """p.safetensors, a converted file."""
    tensors(PACKED)
    tool.run("convert", "in.safetensors", "-o", "p.safetensors", "--to", to, "--quiet")


def packed_directory():
    """out, a converted checkpoint."""
    one_shard(PACKED, {"model_type": "llama"})
    tool.run("convert", "src", "-o", "out", "--to", "w4a8-ct", "--quiet")


def on_file(name, *argv):
    @case(name)
    def build():
        packed_file()
        return argv


on_file("dump-of-an-unknown-tensor", "dump", "p.safetensors", "m.weight")
on_file("dump-at-without-a-tensor", "dump", "p.safetensors", "--at", "0,0")
on_file("dump-at-outside-of-the-box", "dump", "p.safetensors", "l", "--at", "128,0")
on_file("dump-at-beyond-64-bits", "dump", "p.safetensors", "l", "--at", "0,18446744073709551616")
on_file("dump-offset-outside-of-the-tensor", "dump", "p.safetensors", "l", "--offset", "8192")
on_file("dump-values-outside-of-the-box", "dump", "p.safetensors", "l", "--values", "0:4,128:200")
on_file("dump-expert-outside-of-the-box", "dump", "p.safetensors", "l", "--values", "0:4,0:4",
        "--expert", "1")
on_file("verify-against-nothing", "verify", "p.safetensors", "--against", "none")
on_file("unpack-onto-itself", "unpack", "p.safetensors", "-o", "p.safetensors", "--force")
on_file("unpack-to-what-holds-other-numbers", "unpack", "p.safetensors", "-o", "u.safetensors",
        "--to", "fp8-deepseek")
on_file("unpack-to-an-unknown-format", "unpack", "p.safetensors", "-o", "u.safetensors", "--to",
        "w9")
on_file("diff-with-nothing", "diff", "p.safetensors", "none")
on_file("formats-unknown", "formats", "w9")
on_file("merge-without-parts", "merge", "out")
on_file("part-of-a-single-file", "convert", "in.safetensors", "-o", "x.safetensors", "--to",
        "w4a8-ct", "--part", "1/4")
on_file("part-zero", "convert", "in.safetensors", "-o", "x", "--to", "w4a8-ct", "--part", "0/4")
on_file("zstd-level-unknown", "convert", "in.safetensors", "-o", "x", "--to", "w4a8-ct",
        "--zstd=30")


@case("part-of-another-compression")
def part_of_another_compression():
    one_shard(linear())
    tool.run("convert", "src", "-o", "out", "--to", "w4a8-ct", "--part", "1/1", "--quiet")
    path = "out.part-1-of-1/tilepack-part.json"
    with open(path, encoding="utf-8") as f:
        changed = json.load(f)
    changed["zstd"] = -1
    raw(path, json.dumps(changed).encode())
    return "merge", "out"


def edited(name, change, *argv, to="w4a8-cutlass"):
    """The header of a converted file, changed; what the data says stays."""
    @case(name)
    def build():
        packed_file(to)
        with open("p.safetensors", "rb") as f:
            size = int.from_bytes(f.read(8), "little")
            header = json.loads(f.read(size))
            data = f.read()
        change(header)
        text = json.dumps(header, separators=(",", ":")).encode()
        raw("p.safetensors", len(text).to_bytes(8, "little") + text + data)
        return argv or ("dump", "p.safetensors")


def rank(header):
    """As `convert --tp` of 0.1.0 recorded it."""
    request = json.loads(header["__metadata__"]["tilepack.request"])
    request["tp"] = {"rank": 0, "ranks": 2}
    header["__metadata__"]["tilepack.request"] = json.dumps(request, separators=(",", ":"))


edited("rank-of-an-earlier-version", rank)
edited("rank-of-an-earlier-version-to-verify", rank, "verify", "p.safetensors")
edited("rank-of-an-earlier-version-to-convert", rank, "convert", "p.safetensors", "-o", "out", "--to",
       "w4a8-ct")


@case("ranks-of-an-earlier-version")
def ranks_of_an_earlier_version():
    one_shard()
    os.renames("src", "out/rank_0")
    raw("out/tilepack-tp.json", b"{}")
    return "unpack", "out", "-o", "plain"


def rename(old, new):
    def change(header):
        header[new] = header.pop(old)
    return change


def retype(header):
    header["l.weight_packed"]["dtype"] = "F32"


def reshape(header):
    header["l.weight_packed"]["shape"] = [64, 32]


def twice(header):
    units = json.loads(header["__metadata__"]["tilepack.units"])
    header["__metadata__"]["tilepack.units"] = json.dumps(units * 2)


def origin_rows(header):
    units = json.loads(header["__metadata__"]["tilepack.units"])
    units[0]["from"][0]["rows"] = 64
    header["__metadata__"]["tilepack.units"] = json.dumps(units)


def origin_outside(header):
    units = json.loads(header["__metadata__"]["tilepack.units"])
    units[0]["from"][0]["row"] = 2 ** 62
    header["__metadata__"]["tilepack.units"] = json.dumps(units)


def huge_box(header):
    descriptors = json.loads(header["__metadata__"]["tilepack.descriptors"])
    descriptors["d0"]["box"] = [2 ** 31, 2 ** 31, 2 ** 31]
    header["__metadata__"]["tilepack.descriptors"] = json.dumps(descriptors)


def second_expert(header):
    """Of the tensors of one matrix: the other would be what lies behind them."""
    meta = header["__metadata__"]
    text = meta["tilepack.descriptors"].replace('"box":[1,', '"box":[2,')
    meta["tilepack.descriptors"] = text.replace('"layout":"(1,', '"layout":"(2,')


edited("packed-matrix-of-two-experts", second_expert, "dump", "p.safetensors", "l", "--values",
       "0:2,0:8", "--expert", "1", to="mxfp8-ct")
edited("packed-tensor-missing", rename("l.weight_packed", "l.weight_lost"))
edited("packed-tensor-of-another-dtype", retype)
edited("packed-tensor-of-another-shape", reshape)
edited("packed-tensor-claimed-twice", twice)
edited("packed-origin-of-other-rows", origin_rows)
edited("packed-origin-outside-of-its-tensor", origin_outside)
edited("packed-box-beyond-64-bits", huge_box)


def manifest(name, change):
    """verify of a directory whose manifest was changed (text in, text out)."""
    @case(name)
    def build():
        packed_directory()
        with open("out/tilepack.json", encoding="utf-8") as f:
            text = change(f.read())
        raw("out/tilepack.json", text.encode())
        return "verify", "out"


def with_key(key, value):
    def change(text):
        made = json.loads(text)
        made[key] = value
        return json.dumps(made)
    return change


manifest("manifest-empty", lambda text: "")
manifest("manifest-cut-off", lambda text: text[:200])
manifest("manifest-is-a-list", lambda text: "[]")
manifest("manifest-of-a-newer-version", with_key("tilepack", 9))
manifest("manifest-without-files", with_key("files", None))
manifest("manifest-file-climbs-out", with_key("files", [
    {"name": "../src/model.safetensors", "size": 1, "xxh3": "0" * 32}]))
manifest("manifest-file-is-absolute", with_key("files", [
    {"name": "/etc/passwd", "size": 1, "xxh3": "0" * 32}]))
manifest("manifest-size-negative", with_key("files", [
    {"name": "model.safetensors", "size": -1, "xxh3": "0" * 32}]))


@case("manifest-is-a-directory")
def manifest_is_a_directory():
    packed_directory()
    os.remove("out/tilepack.json")
    os.mkdir("out/tilepack.json")
    return "verify", "out"


@case("verify-of-nothing")
def verify_of_nothing():
    tensors(linear())
    return "verify", "nothing"
