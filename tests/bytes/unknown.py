#!/usr/bin/env python3
"""Files whose format is not known by its name, or by its version: read by their descriptors alone.

A small weight, and a stack of experts, in every format that is written; the name of the format is
changed in the file, which is signed again. Then `dump --at`, `verify`, `unpack` and `diff` must say
what they say of the file as it was, and `convert` must refuse it. Of one file the descriptor is
damaged in every way that a reader has to see.
"""
import json
import os
import struct
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import own_hash
import stfile
import tool

ZEROS = b"0" * 32


def edit(path, to, change):
    """The file, whose descriptors `change` was applied to, with the hash that belongs to it."""
    with open(path, "rb") as file:
        data = file.read()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    meta = header["__metadata__"]
    descriptors = json.loads(meta["tilepack.descriptors"])
    change(descriptors)
    meta["tilepack.descriptors"] = json.dumps(descriptors)
    meta["tilepack.xxh3"] = ZEROS.decode()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 4096)
    data = struct.pack("<Q", len(text)) + text + data[8 + size:]
    if len(data) <= 1 << 20:
        leaf = bytes.fromhex(own_hash.xxh3(data))
        root = own_hash.xxh3(len(data).to_bytes(8, "little") + leaf)
        data = data.replace(ZEROS, root.encode(), 1)
    with open(to, "wb") as file:
        file.write(data)


def rename(descriptors):
    for descriptor in descriptors.values():
        descriptor["format"] = "zz-" + descriptor["format"]


def advance(descriptors):
    for descriptor in descriptors.values():
        descriptor["version"] = 999


def same_tensors(a, b):
    x, y = tool.load(a)[0], tool.load(b)[0]
    return x.keys() == y.keys() and all(
        x[n].dtype == y[n].dtype and x[n].shape == y[n].shape and x[n].data == y[n].data for n in x)


def one_format(tally, work, src, name, weight):
    packed, other, plain, again = (work.at(n + ".safetensors") for n in "pqab")
    done = tool.run("convert", src, "-o", packed, "--to", name, "--force", "--quiet",
                    *tool.weights_only(name), check=False)
    if done.returncode or stfile.header(packed)[1].get("tilepack.descriptors", "{}") == "{}":
        return 0
    edit(packed, other, rename)
    line = f"format 'zz-{name}', version 1, is not known here: it is read by its descriptor"
    tool.run("unpack", packed, "-o", plain, "--force", "--quiet")
    done = tool.run("unpack", other, "-o", again, "--force", check=False)
    tally.check(done.returncode == 0 and line in done.stderr and same_tensors(plain, again),
                f"{name}: unpack {done.stderr if done.returncode else ''}")
    done = tool.run("verify", other, check=False)
    tally.check(done.returncode == 0 and line in done.stderr, f"{name}: verify {done.stdout if done.returncode else ''}")
    at = [tool.run("dump", path, weight, "--at", "17,37", "--json").stdout
          for path in (packed, other)]
    values = [json.loads(text) for text in at]
    for value in values:
        for spot in value.get("outputs", []):
            spot.pop("file_offset", None)
    tally.check(values[0].get("value") == values[1].get("value") and "value" in values[0],
                f"{name}: dump --at")
    done = tool.run("diff", packed, other, check=False)
    tally.check(done.returncode == 0, f"{name}: diff {done.stdout if done.returncode else ''}")
    done = tool.run("convert", other, "-o", work.at("c.safetensors"), "--to", "fp8-ct",
                    "--force", check=False)
    tally.check(done.returncode == 4 and "is not known here" in done.stderr,
                f"{name}: convert refuses it")
    return 1


def outputs(descriptors):
    return descriptors["d0"]["outputs"]


def damages():
    """(what is done to the descriptor, status, what is said)."""
    def at(change):
        return lambda d: (rename(d), change(d))
    return [
        (at(lambda d: d["d0"].update(colour="red")), 4, "its key 'colour'"),
        (at(lambda d: outputs(d)[0].update(rounding="up")), 4, "its key 'rounding'"),
        (at(lambda d: outputs(d)[0].update(role="sparse")), 4, "its role 'sparse'"),
        (at(lambda d: outputs(d)[0].update(element="e3m2")), 4, "its element 'e3m2'"),
        (at(lambda d: d["d0"].update(codec="mxfp6")), 4, "its codec 'mxfp6'"),
        (at(lambda d: d["d0"].update(stretches=3)), 4, "'stretches'"),
        (at(lambda d: d["d0"].update(part="sideways")), 4, "its part 'sideways'"),
        (at(lambda d: outputs(d).extend([outputs(d)[1]] * 20)), 4, "'outputs'"),
        (at(lambda d: outputs(d)[0].update(element="e4m3")), 4, "kind of outputs"),
        (at(lambda d: d["d0"].update(format="z" * 256)), 3, '"format" or "version"'),
        (at(lambda d: d["d0"].update(format="a\x1b[31mb")), 3, '"format" or "version"'),
        (at(lambda d: d["d0"].update(version=0)), 3, '"format" or "version"'),
        (at(lambda d: d["d0"].update(box=[1, 0, 256])), 3, '"box"'),
        (at(lambda d: d["d0"].update(box=[1 << 40, 1 << 40, 256])), 3, '"box"'),
        (at(lambda d: d["d0"].update(box=[1, 512, 256])), 3, "smaller than the weight"),
        (at(lambda d: outputs(d).pop(1)), 3, "not those of a weight"),
        (at(lambda d: outputs(d).append(dict(outputs(d)[0]))), 3, "two outputs have one role"),
        (at(lambda d: outputs(d)[0].pop("layout")), 3, '"layout"'),
        (at(lambda d: outputs(d)[0].update(layout="(E,N,K):(N*K,K,1)")), 3, "not of numbers"),
        (at(lambda d: outputs(d)[0].update(layout="(1,64,256):(1,256,2)")), 3, "bijection"),
        (at(lambda d: outputs(d)[0].update(layout="(1,128,256):(1,256,1)")), 3, "dtype and shape"),
        (at(lambda d: outputs(d)[0].update(fill=256)), 3, '"fill"'),
        (at(lambda d: outputs(d)[0].update(per=[1, 2])), 3, "one for each element"),
        (at(lambda d: outputs(d)[0].pop("values")), 3, '"values"'),
        (at(lambda d: outputs(d)[0].update(values=[0] * 16)), 3, '"values"'),
        (at(lambda d: outputs(d)[0].update(word_bits=[0] * 32)), 3, '"word_bits"'),
        (at(lambda d: outputs(d)[0].update(suffix="nowhere")), 3, "which is missing"),
        (at(lambda d: outputs(d)[1].update(suffix=outputs(d)[0]["suffix"])), 3, ""),
        (lambda d: d["d0"].update(colour="red"), 3, "contradicts the format"),
    ]


def main():
    tally, formats = tool.Tally(), json.loads(tool.run("formats", "--json").stdout)["formats"]
    rng = np.random.default_rng(37)
    with tool.Workdir() as work:
        matrix, stack = work.at("m.safetensors"), work.at("s.safetensors")
        stfile.save(matrix, {"m.down_proj.weight": stfile.from_f32(
            "BF16", rng.standard_normal((64, 256)).astype(np.float32))})
        stfile.save(stack, {
            f"m.experts.{e}.{part}.weight": stfile.from_f32(
                "BF16", rng.standard_normal(size).astype(np.float32))
            for e in range(2)
            for part, size in (("w1", (128, 256)), ("w3", (128, 256)), ("w2", (256, 128)))})
        read = 0
        for item in formats:
            if not item.get("input_only"):
                read += one_format(tally, work, matrix, item["name"], "m.down_proj")
        for name in ("mxfp4-trtllm", "nvfp4-marlin", "mxfp4-marlin", "w4a8-flashinfer-sm90"):
            read += one_format(tally, work, stack, name, "m.experts.w2")
        tally.check(read > 40, f"{read} files")
        packed, other = work.at("p.safetensors"), work.at("q.safetensors")
        tool.run("convert", matrix, "-o", packed, "--to", "w4a16-ct", "--force", "--quiet")
        edit(packed, other, advance)
        done = tool.run("dump", other, check=False)
        tally.check(done.returncode == 0 and "version 999, is not known" in done.stderr, "a version")
        for i, (change, status, text) in enumerate(damages()):
            edit(packed, other, change)
            done = tool.run("dump", other, check=False)
            tally.check(done.returncode == status and text in done.stderr,
                        f"damage {i}: {done.returncode} {done.stderr.splitlines()[:1]}")
        os.remove(other)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
