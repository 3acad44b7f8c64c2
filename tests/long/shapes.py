#!/usr/bin/env python3
"""shapes.py [--long]

What the weights that are worked on take: nothing that grows with their size, never more than
--max-memory, whatever their shape, and in as little memory as that the same bytes. --long (or
TILEPACK_TEST_LONG in the environment) converts 121 GB.
"""
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from memory import check, fits, measure, one_weight, refused, tally, within  # noqa: E402
import seekable  # noqa: E402
import sparse  # noqa: E402
import stfile  # noqa: E402
import tool  # noqa: E402


def streams(path, total, to):
    """A conversion whose memory has nothing to do with the size of the input."""
    status, errors, seconds, peak = measure("convert", path, "--discard", "--to", to, "--quiet")
    check(status == 0 and peak <= 128 << 20,
          f"{total / 1e9:.1f} GB to {to}: {peak / 1e6:.0f} MB, {seconds:.1f} s of CPU {errors}")


def fill(path):
    """Gives a sparse file values, other ones at every place."""
    block = np.random.default_rng(1).integers(0, 65536, (1 << 19) + 77, dtype=np.uint16)
    block = (block & 0x8FFF | 0x3000).tobytes()  # finite in bf16
    with open(path, "r+b") as f:
        at = 8 + int.from_bytes(f.read(8), "little")
        size = os.path.getsize(path)
        f.seek(at)
        while at < size:
            at += f.write(block[:size - at])


def digest(path):
    hash_ = hashlib.blake2b()
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            hash_.update(piece)
    return hash_.hexdigest()


def keeps_within(path, work, megabytes, to, jobs):
    """A conversion with as little memory as that: within it, and the same bytes."""
    out = {}
    for limit in (None, megabytes):
        name = os.path.join(work, f"limited-{limit}")
        more = ["--max-memory", f"{limit}MiB"] if limit else []
        status, errors, _, peak = measure("convert", path, "-o", name, "--to", to, "--quiet",
                                          "--device", "cpu", "--jobs", jobs, *more)
        check(status == 0 and peak <= (limit or 560) << 20,
              f"{to}, {jobs} jobs, {limit or 'default'} MiB: {peak / 2**20:.0f} MiB {errors}")
        shards = sorted(n for n in os.listdir(name) if n.endswith(".safetensors"))
        out[limit] = [digest(os.path.join(name, n)) for n in shards]
        shutil.rmtree(name)
    check(out[None] == out[megabytes] and out[None], f"{to}: the same bytes in {megabytes} MiB")


def crowd(work):
    """More workers than the memory is enough for: fewer work, most of them on copies."""
    path = os.path.join(work, "crowd.safetensors")
    text = json.dumps({
        "l.weight": {"dtype": "BF16", "shape": [4096, 4096], "data_offsets": [0, 1 << 25]},
        "kept": {"dtype": "F32", "shape": [1 << 26], "data_offsets": [1 << 25, 9 << 25]}}).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + (9 << 25))
    out = os.path.join(work, "crowd-out")
    to = ("convert", path, "--to", "w4a8-ct", "--include", ".", "-q", "-o")
    for argv in ((*to, out), ("unpack", out, "-q", "-o", out + "-plain")):
        status, errors, _, peak = measure(*argv, "--max-memory", "32MiB", "--jobs", 64)
        check(status == 0 and within(peak, 32),
              f"{argv[0]} with 64 workers in 32 MiB: {peak / 2**20:.0f} MiB {errors}")
    for name in (out, out + "-plain"):
        shutil.rmtree(name, ignore_errors=True)


def bounded(path, megabytes, to, *extra):
    """Any shape is converted within --max-memory."""
    status, errors, seconds, peak = measure("convert", path, "--discard", "--to", to, "--include",
                                            ".", "--quiet", "--max-memory", f"{megabytes}MiB",
                                            *extra)
    check(status == 0 and within(peak, megabytes), f"{os.path.basename(path)} to {to} in "
          f"{megabytes} MiB: {peak / 2**20:.0f} MiB, {seconds:.1f} s of CPU {errors}")
    return peak / 2**20


def act_order(folder, kind, columns, rows=8, group=128):
    """A weight of few long rows whose columns belong to groups in no order, all of holes: as GPTQ
    stores it, along K, or compressed-tensors, row by row."""
    os.makedirs(folder)
    groups = columns // group
    if kind == "gptq":
        config = {"quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": True,
                  "sym": True}
        tensors = {"qweight": ("I32", [columns // 8, rows]), "scales": ("F16", [groups, rows]),
                   "qzeros": ("I32", [groups, rows // 8]), "g_idx": ("I32", [columns])}
    else:
        weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
                   "group_size": group, "actorder": "group"}
        config = {"quant_method": "compressed-tensors", "format": "pack-quantized",
                  "config_groups": {"g": {"targets": ["Linear"], "weights": weights}}}
        tensors = {"weight_packed": ("I32", [rows, columns // 8]),
                   "weight_scale": ("F16", [rows, groups]), "weight_g_idx": ("I32", [columns])}
    header, size = {}, 0
    for name, (dtype, shape) in tensors.items():
        more = (4 if dtype == "I32" else 2) * int(np.prod(shape))
        header["l." + name] = {"dtype": dtype, "shape": shape, "data_offsets": [size, size + more]}
        size += more
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + size)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": "llama", "quantization_config": config}, f)
    return folder


def act_order_once(work):
    """Of rows in act-order every part needs the whole row: it is decoded once for all of them. All
    that is done with these takes about the time of decoding them."""
    for kind in ("gptq", "ct"):
        source = act_order(os.path.join(work, f"order-{kind}"), kind, 1 << 18)
        plain, out = os.path.join(work, "order-plain"), os.path.join(work, "order-out")
        status, errors, once, _ = measure("unpack", source, "-o", plain, "-q")
        check(status == 0, f"unpack of act-order of {kind} {errors}")
        for argv in (("compare", source, "--to", "w4a16-ct"), ("compare", source, "--to", "mxfp8-ct"),
                     ("convert", source, "--to", "mxfp8-ct", "-o", out, "--requantize", "-q"),
                     ("verify", out, "--against", source), ("diff", source, plain)):
            status, errors, seconds, _ = measure(*argv)
            check(status == 0 and seconds <= 12 * once + 0.2, f"{argv[0]} of act-order of {kind}: "
                  f"{seconds:.2f} s of CPU, decoded once {once:.2f} {errors}")
        argv = ("compare", source, "--to", "mxfp8-ct", "--jobs", 1)
        status, errors, _, _ = measure(*argv, memory=160 << 20)
        check(status == 0, f"compare of act-order of {kind} in 160 MiB of addresses {errors}")
        for path in (source, plain, out):
            shutil.rmtree(path)


def act_order_long(work):
    """A long row in act-order is wanted as a whole by those who decode it; to plan it takes nothing."""
    source, out = os.path.join(work, "order-long"), os.path.join(work, "order-out")
    act_order(source, "gptq", 1 << 24)
    for argv in (("plan", source, "--to", "mxfp8-ct", "--requantize"), ("dump", source)):
        status, errors, _, peak = measure(*argv)
        check(status == 0 and within(peak, 32), f"{argv[0]} of 2^24 columns in act-order: "
              f"{peak / 2**20:.0f} MiB {errors}")
    shutil.rmtree(source)
    act_order(source, "gptq", 1 << 20)
    for argv in (("unpack", source, "-o", out),
                 ("convert", source, "--to", "mxfp8-ct", "--requantize", "-o", out),
                 ("convert", source, "--to", "gptq", "--requantize", "-o", out)):
        refused(32, *argv)
        fits(256, *argv, what=" of 2^20 columns in act-order")
        shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(source)


def hostile_rows():
    """Rows with all that decides a scale, at either end: zeros and groups of zeros, tiny and
    large values, NaN and infinity."""
    rng = np.random.default_rng(3)
    n, k = 32, 150 * 1024
    x = rng.standard_normal((n, k)) * np.exp(3 * rng.standard_normal((n, 1)))
    x[3], x[4], x[5, :70_000], x[6, k - 1], x[7, 12_345] = 0, 1e-8, 0, -1e5, 3e38
    x[8] *= 1e-40
    x[:, 5120:5248] = 0
    x[20, 130_000], x[21, 3], x[22, k - 5] = np.nan, np.inf, -np.inf
    x[23, 7], x[23, 90_000] = np.nan, np.inf
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def rows_in_pieces(work):
    """Rows that are worked in pieces have the bytes of those that are worked whole."""
    rows = hostile_rows()
    plain = one_weight(os.path.join(work, "rows.safetensors"), rows.shape, rows)
    stack = one_weight(os.path.join(work, "columns.safetensors"), [1, *rows.T.shape],
                       np.ascontiguousarray(rows.T), "model.layers.0.mlp.experts.down_proj")
    rows = np.vstack((rows, rows[::-1]))[:, 32:]  # of Marlin's tiles the last is half a one
    tail = one_weight(os.path.join(work, "tail.safetensors"), rows.shape, rows)
    for source, *to in ((plain, "w4a8-cutlass"),
                        (plain, "w4a8-cutlass", "--set", "scale=div", "--set", "zero-groups=skip"),
                        (plain, "fp8-dynamic-ct"), (plain, "w4a16-ct", "--set", "group=channel"),
                        (tail, "fp8-marlin-channel"), (tail, "w4a16-marlin-channel"),
                        (tail, "w8a16-marlin-channel"), (tail, "w4a8-int8-marlin-channel"),
                        (stack, "w4a8-cutlass", "--stacks", "ekn"),
                        (stack, "fp8-dynamic-ct", "--stacks", "ekn")):
        digests = []
        for memory in ("2GiB", "32MiB"):
            out = os.path.join(work, f"rows-{memory}.safetensors")
            status, errors, _, peak = measure("convert", source, "-o", out, "--to", *to, "--force",
                                              "--include", ".", "--quiet", "--nonfinite", "keep",
                                              "--search", "none", "--device", "cpu", "--max-memory",
                                              memory)
            digests.append(digest(out) if status == 0 else errors)
        check(digests[0] == digests[1] and status == 0 and within(peak, 32),
              f"{' '.join(to)}: rows in pieces have the same bytes, {peak / 2**20:.0f} MiB")
    first = [measure("convert", stack, "--discard", "--to", "fp8-dynamic-ct", "--stacks", "ekn", "-q",
                     "--include", ".", "--device", "cpu", "--max-memory", memory)[1]
             for memory in ("2GiB", "32MiB")]
    check(first[0] == first[1] and "the first at e=0 n=20 k=130000," in first[0],
          f"the first value that is no number, in pieces, too: {first}")


def without_descriptors(path):
    """Makes it a file of another program, in place: tensors alone."""
    with open(path, "r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        del header["__metadata__"]
        file.seek(8)
        file.write(json.dumps(header).encode().ljust(size))


def stored_rows_in_pieces(work):
    """Stored rows with one scale each are decoded and taken over in pieces, too."""
    rows = np.random.default_rng(7).standard_normal((2, (1 << 22) + 128)).astype(np.float32)
    source = one_weight(os.path.join(work, "long.safetensors"), rows.shape,
                        (rows.view(np.uint32) >> 16).astype(np.uint16))
    stored = os.path.join(work, "stored.safetensors")
    for name, *of in (("fp8-dynamic-ct",), ("int8-ct",), ("w4a16-ct", "--set", "group=channel")):
        measure("convert", source, "-o", stored, "--to", name, *of, "--include", ".", "--force", "-q")
        if of:
            without_descriptors(stored)
        for argv in (("unpack",),
                     ("convert", "--to", "mxfp8-ct", "--requantize", "--include", ".")):
            digests = []
            for memory in ("2GiB", "32MiB"):
                out = os.path.join(work, f"decoded-{memory}.safetensors")
                status, errors, _, peak = measure(argv[0], stored, "-o", out, *argv[1:], "--force",
                                                  "-q", "--max-memory", memory)
                digests.append(digest(out) if status == 0 else errors)
            check(digests[0] == digests[1] and status == 0 and within(peak, 32),
                  f"{' '.join(argv[:3])} of {name} in pieces: {peak / 2**20:.0f} MiB {errors}")


def blocks_in_pieces(work):
    """Long rows of a source whose scales are those of several rows, too: each is decoded twice, not
    once for every row of its block."""
    rows = np.random.default_rng(9).standard_normal((128, 1 << 17)).astype(np.float32)
    source = one_weight(os.path.join(work, "wide.safetensors"), rows.shape,
                        (rows.view(np.uint32) >> 16).astype(np.uint16))
    stored = os.path.join(work, "stored.safetensors")
    for name, to in (("fp8-deepseek", "fp8-dynamic-ct"), ("w4a16-marlin", "int8-ct")):
        measure("convert", source, "-o", stored, "--to", name, "--include", ".", "--force", "-q")
        ends = []
        for memory in ("2GiB", "32MiB"):
            out = os.path.join(work, f"pieces-{memory}.safetensors")
            status, errors, seconds, peak = measure(
                "convert", stored, "-o", out, "--to", to, "--requantize", "--include", ".",
                "--force", "-q", "--device", "cpu", "--jobs", 1, "--max-memory", memory)
            ends.append((digest(out) if status == 0 else errors, seconds))
        check(ends[0][0] == ends[1][0] and status == 0 and within(peak, 32) and
              ends[1][1] <= 6 * ends[0][1] + 0.5, f"{name} to {to} in pieces: "
              f"{peak / 2**20:.0f} MiB, {ends[1][1]:.2f} s of CPU, whole {ends[0][1]:.2f} {errors}")


def many_experts(work):
    """What is compared or unpacked takes no memory for each expert of a stack, and those that
    differ are counted and found in any of them."""
    count = 1 << 19
    path, other, packed_ = (os.path.join(work, f"experts-{n}") for n in ("a", "b", "packed"))
    for name in (path, other):
        one_weight(name + ".safetensors", [count, 1, 1])
    with open(other + ".safetensors", "r+b") as f:
        f.seek(-2 * (count - 70_000), os.SEEK_END)
        f.write(b"\x80\x3f" * (count - 70_000))
    status, errors, _, _ = measure("convert", path + ".safetensors", "-o", packed_ + ".safetensors",
                                   "--to", "int8-ct", "--include", ".", "-q")
    check(status == 0, f"convert of 2^19 experts {errors}")
    for argv, right in ((("diff", path, path), 0), (("diff", path, other), 1),
                        (("diff", path, packed_), 0), (("unpack", packed_, "-o", path + "-again"), 0),
                        (("compare", path, "--to", "int8-ct", "--include", ".", "--full"), 0),
                        (("verify", packed_, "--against", path), 0)):
        words = [w + ".safetensors" if w.startswith(work) else w for w in argv]
        status, errors, _, peak = measure(*words, "--jobs", 2)
        check(status == right and within(peak, 32),
              f"{argv[0]} of 2^19 experts: {peak / 2**20:.0f} MiB {errors}")
    tensors, meta = stfile.load(packed_ + ".safetensors")
    units = json.loads(meta["tilepack.units"])
    units[0]["from"] = [{"name": "m.{e}.down_proj.weight", "rows": 1, "shape": [1, 1]}]
    stfile.save(packed_ + ".safetensors", tensors, {"tilepack.units": json.dumps(units), **{
        key: text for key, text in meta.items() if key in ("tilepack", "tilepack.descriptors")}})
    for argv, right in ((("verify", packed_), 1), (("convert", packed_, "-o", path + "-again",
                                                    "--to", "int8-ct", "--force"), 0)):
        words = [w + ".safetensors" if w.startswith(work) else w for w in argv]
        status, errors, _, peak = measure(*words)
        check(status == right and within(peak, 32),
              f"{argv[0]} of 2^19 experts of a name: {status}, {peak / 2**20:.0f} MiB {errors}")
    found = subprocess.run([tool.binary(), "diff", path + ".safetensors", other + ".safetensors"],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode()
    check("element [70000,0,0]: 0 in A, 1 in B (454288 of 524288 elements)" in found, found)
    for name in (path, path + "-again", other, packed_):
        os.unlink(name + ".safetensors")


def long_rows_compared(work):
    """A box of the sample has no more values than memory allows; all are measured in pieces."""
    path = one_weight(os.path.join(work, "long-row.safetensors"), [1, 1 << 27])
    for more, most in (((), 32), (("--full",), 32)):
        status, errors, seconds, peak = measure("compare", path, "--include", ".", "--to",
                                                "fp8-dynamic-ct", "--jobs", 1, *more)
        check(status == 0 and within(peak, most), f"compare {' '.join(more)} of a row of 2^27: "
              f"{peak / 2**20:.0f} MiB, {seconds:.1f} s of CPU {errors}")
    os.unlink(path)


def recast_in_pieces(work):
    """MXFP4 whose blocks are nearly all zeros: which of their scales count is asked of all codes,
    while planning, and as NVFP4 needs one global scale."""
    n, k = 8192, 16384
    codes, scales = n * k // 2, n * k // 32
    text = json.dumps({
        "l.q_proj.weight_packed": {"dtype": "U8", "shape": [n, k // 2],
                                   "data_offsets": [0, codes]},
        "l.q_proj.weight_scale": {"dtype": "U8", "shape": [n, k // 32],
                                  "data_offsets": [codes, codes + scales]}}).encode()
    path = os.path.join(work, "mxfp4.safetensors")
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"\x77" * 16)
        f.truncate(8 + len(text) + codes + scales)
        f.seek(8 + len(text) + codes)
        f.write(b"\x7f")
    bounded(path, 48, "nvfp4-ct")
    os.unlink(path)


def archive_of_zeros(path, columns):
    """A seekable archive whose frames are 64 MiB of zeros each."""
    plain = one_weight(path + ".plain", [1, columns])
    with open(plain, "rb") as f:
        size = 8 + int.from_bytes(f.read(8), "little")
        f.seek(0)
        head = f.read(size)
    os.unlink(plain)
    zeros = 64 << 20
    first, other = seekable.packed(head), seekable.packed(bytes(zeros))
    count = 2 * columns // zeros
    with open(path, "wb") as f:
        f.write(first)
        for _ in range(count):
            f.write(other)
        f.write(seekable.table((len(first), len(head)), *[(len(other), zeros)] * count))
    return path


def encoders_within(work):
    """Compressing is a part of --max-memory, whatever the level and the number of shards."""
    rows = np.random.default_rng(5).integers(0, 65536, (8192, 2048), dtype=np.uint16) & 0xBFFF
    path = one_weight(os.path.join(work, "dense.safetensors"), rows.shape, rows)
    out = os.path.join(work, "archives")
    for level, megabytes in ((3, 96), (12, 160)):
        status, errors, _, peak = measure("convert", path, "-o", out, "--to", "fp8-ct", "-q",
                                          "--include", ".", f"--zstd={level}", "--jobs", 8,
                                          "--max-memory", f"{megabytes}MiB", "--device", "cpu")
        check(status == 0 and within(peak, megabytes), f"--zstd={level} in {megabytes} MiB: "
              f"{peak / 2**20:.0f} MiB {errors}")
        shutil.rmtree(out, ignore_errors=True)
    refused(64, "convert", path, "-o", out, "--to", "fp8-ct", "--include", ".", "--zstd=19")


def errors_within(work):
    """What is lost is measured within the memory, or, of weights that are too wide for that, not."""
    rows = np.random.default_rng(6).integers(0x3C00, 0x3E00, (128, 1 << 18), dtype=np.uint16)
    wide = one_weight(os.path.join(work, "wide-rows.safetensors"), rows.shape, rows)
    rows = rows.reshape(2048, 16384)
    usual = one_weight(os.path.join(work, "usual-rows.safetensors"), rows.shape, rows)
    packed_, out = (os.path.join(work, n + ".safetensors") for n in ("errors", "errors-out"))
    said = "errors of some weights are not measured"
    for source, first, then, megabytes, missing in (
            (wide, "w4a8-ct", ("w4a8-cutlass", "--jobs", 1), 64, True),
            (wide, "w4a16-marlin", ("w4a8-cutlass", "--jobs", 8), 512, None),
            (wide, "fp8-ct", ("mxfp8-trtllm", "--requantize", "--jobs", 1), 48, True),
            (usual, "mxfp4-trtllm", ("w4a8-flashinfer-sm90", "--requantize", "--jobs", 1), 61, None),
            (usual, "mxfp4-trtllm", ("w4a8-flashinfer-sm90", "--requantize", "--jobs", 8), 512,
             False)):
        tool.run("convert", source, "-o", packed_, "--to", first, "--include", ".", "-q", "--force")
        status, errors, _, peak = measure("convert", packed_, "-o", out, "--to", *then, "--include",
                                          ".", "--force", "--max-memory", f"{megabytes}MiB")
        again = "1 weight was decoded and quantized again" in errors
        check(status == 0 and within(peak, megabytes) and missing in (None, said in errors) and
              again == ("--requantize" in then), f"{first} to {then} in {megabytes} MiB: {peak / 2**20:.0f} MiB {errors}")
    for path in (wide, usual, packed_, out):
        os.unlink(path)


def cards_within(work):
    """The sample for the model card of a directory keeps within --max-memory, whatever the shape."""
    out = os.path.join(work, "carded")
    for shape in ([1, 1 << 25], [16, 1 << 21]):
        source = os.path.join(work, "rows")
        os.makedirs(source)
        one_weight(os.path.join(source, "model.safetensors"), shape)
        formats = ["fp8-dynamic-ct", "int8-ct", "w8a16-marlin-channel"]
        for to in formats + ["w4a8-cutlass"] * (shape[0] >= 16):  # which wants tiles of 16 rows
            status, errors, _, peak = measure("convert", source, "-o", out, "--to", to, "-q",
                                              "--include", ".", "--max-memory", "32MiB",
                                              "--search", "none", "--device", "cpu")
            check(status == 0 and within(peak, 32),
                  f"{shape} to {to}, with a card: {peak / 2**20:.0f} MiB {errors}")
            shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(source)


def any_shape(work, long):
    """Memory has nothing to do with the shape, or the conversion is refused at once."""
    row = one_weight(os.path.join(work, "row.safetensors"), [1, 1 << (29 if long else 26)])
    flat = one_weight(os.path.join(work, "flat.safetensors"), [16, 1 << 22])
    column = one_weight(os.path.join(work, "column.safetensors"), [1 << 22, 1])
    for path, to in ((column, "fp8-1x128"), (column, "fp8-dynamic-ct"), (row, "nvfp4-blocked"),
                     (row, "mxfp8-blocked"), (row, "fp8-dynamic-ct"), (row, "fp8-deepseek"),
                     (flat, "mxfp8-ct"), (flat, "gptq")):
        bounded(path, 32, to)
    bounded(flat, 32, "w4a8-cutlass", "--search", "none")  # a search of these holds rows
    codes = os.path.join(work, "codes")
    tool.run("convert", flat, "-o", codes, "--to", "w4a8-ct", "--include", ".", "-q")
    bounded(codes, 512, "w4a8-cutlass")
    shutil.rmtree(codes)
    status, errors, _, _ = measure("convert", row, "--discard", "--to", "fp8-dynamic-ct",
                                   "--include", ".", "--quiet", memory=700 << 20)
    check(status == 0, f"a long row to fp8-dynamic-ct in 700 MiB of addresses {errors}")
    zero_points = one_weight(os.path.join(work, "zero-points.safetensors"), [1 << 22, 2048])
    for to in ("gptq", "awq"):  # 32 MiB of words that follow from the size
        fits(32, "plan", zero_points, "--to", to, "--include", ".")
    searched = ("--search", "w4a8")
    refused(64, "convert", flat, "--discard", "--include", ".", "--to", "w4a8-cutlass", *searched)
    bounded(flat, 512, "w4a8-cutlass", *searched)
    experts = os.path.join(work, "experts")
    sparse.make(experts, tensors=6 + 3 * 4096, shards=1, experts=4096)
    bounded(experts, 64, "w4a8-cutlass")
    zeros = archive_of_zeros(os.path.join(work, "zeros.safetensors.zst"), 1 << 27)
    bounded(zeros, 128, "fp8-deepseek")
    refused(64, "convert", zeros, "--discard", "--to", "fp8-deepseek", "--include", ".")
    status, errors, seconds, peak = measure("diff", zeros, shutil.copy(zeros, zeros + ".zst"))
    check(status == 0 and seconds <= 4 and within(peak, 200), "diff of archives with large frames: "
          f"{seconds:.1f} s of CPU, {peak / 2**20:.0f} MiB {errors}")


def main():
    long = "--long" in sys.argv or bool(os.environ.get("TILEPACK_TEST_LONG"))
    with tempfile.TemporaryDirectory(prefix="tilepack-shapes-") as work:
        layers = 41 if long else 1
        huge = os.path.join(work, "huge")
        total = sparse.make(huge, tensors=30 * layers, shards=layers, experts=8, hidden=4096,
                            inner=14336)
        for to in ("w4a8-cutlass", "fp8-deepseek") if not long else ("w4a8-cutlass",):
            streams(huge, total, to)
        wide = os.path.join(work, "wide")  # planes of 59 MB, which are transposed
        sparse.make(wide, tensors=9, shards=1, experts=1, hidden=4096, inner=14336)
        fill(os.path.join(wide, "model-00001-of-00001.safetensors"))
        for to, jobs in (("mxfp8-torchao3d", 2), ("mxfp8-torchao3d", 16), ("w4a8-cutlass", 16),
                         ("nvfp4-blocked", 3)):
            keeps_within(wide, work, 128, to, jobs)
        any_shape(work, long)
        many_experts(work)
        long_rows_compared(work)
        recast_in_pieces(work)
        rows_in_pieces(work)
        stored_rows_in_pieces(work)
        blocks_in_pieces(work)
        crowd(work)
        encoders_within(work)
        errors_within(work)
        cards_within(work)
        act_order_once(work)
        act_order_long(work)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
