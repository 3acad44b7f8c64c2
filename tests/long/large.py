#!/usr/bin/env python3
"""large.py [--long]

Checkpoints of many tensors and of many bytes, all of holes (sparse.py): time of plan
and dump, memory of a conversion, --max-memory, and what happens when memory is short. --long (or
TILEPACK_TEST_LONG in the environment) plans a million tensors and converts 121 GB.

Environment: TILEPACK_CPU_LIMIT, the seconds of CPU that a plan of 100,000 tensors may
take (default 1.0: for machines slower than those it was set on); a dump of plain ones
may take half.
"""
import json
import math
import hashlib
import os
import re
import resource
import shutil
import subprocess
import struct
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import own_hash  # noqa: E402
import seekable  # noqa: E402
import sparse  # noqa: E402
import stfile  # noqa: E402
import tool  # noqa: E402

LIMIT = float(os.environ.get("TILEPACK_CPU_LIMIT", "1.0"))
RSS_LIMIT = 512 << 20
tally = tool.Tally()
check = tally.check


# A child's peak begins with what the process had that made it: this one has little.
LAUNCHER = """
import os, resource, sys
most = int(sys.argv[1])
child = os.fork()
if child == 0:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if most:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(child, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""


def measure(*argv, memory=None):
    """(exit status, stderr, CPU seconds, peak RSS in bytes) of one command. `memory`: beside
    the program itself, which is large with kernels for many GPUs."""
    most = memory + os.path.getsize(tool.binary()) if memory else 0
    done = subprocess.run([sys.executable, "-ISc", LAUNCHER, str(most), tool.binary(),
                           *(str(a) for a in argv)], stdin=subprocess.DEVNULL, check=True,
                          capture_output=True, text=True)
    status, seconds, peak = done.stdout.split()
    return int(status), done.stderr, float(seconds), int(peak) * 1024


def in_program(*argv):
    """(exit status, stderr, CPU seconds that the program itself took, without what the kernel took
    to make and remove its files) of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run([tool.binary(), *argv], stdin=subprocess.DEVNULL, check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return done.returncode, done.stderr, seconds


def fast(path, *argv, limit=LIMIT, what=""):
    """The command must be quick and small; the best of three runs counts."""
    runs = [measure(argv[0], path, *argv[1:]) for _ in range(3)]
    seconds = min(run[2] for run in runs)
    peak = max(run[3] for run in runs)
    check(runs[0][0] == 0 and seconds <= limit and peak <= RSS_LIMIT,
          f"{' '.join(argv)}{what}: {seconds:.2f} s of CPU, {peak / 1e6:.0f} MB"
          f"{runs[0][1] if runs[0][0] else ''}")


def written_formats():
    """Every format that can be converted to."""
    listed = subprocess.run([tool.binary(), "formats", "--json"], check=True,
                            stdout=subprocess.PIPE).stdout
    return [f["name"] for f in json.loads(listed)["formats"]
            if not f.get("input_only", f.get("written") is False)]


def packed(work):
    """A checkpoint that tilepack wrote: 100,000 tensors of 50,000 small weights."""
    source, out = os.path.join(work, "small"), os.path.join(work, "packed")
    sparse.make(source, tensors=50_000, shards=2, hidden=32, inner=32)
    status, errors, _, _ = measure("convert", source, "-o", out, "--to", "mxfp4-ct", "--no-stack",
                                   "--quiet", "--shard-size", "200kB")
    check(status == 0, f"convert of 50,000 small weights {errors}")
    return out


def too_many(work):
    """One tensor above the limit: refused in a few words, however large the rest is."""
    path = os.path.join(work, "too-many")
    sparse.make(path, tensors=2_000_001, shards=163)
    status, errors, seconds, peak = measure("dump", path)
    check(status == 4 and "more than 2000000 tensors" in errors and peak <= RSS_LIMIT,
          f"2,000,001 tensors: exit status {status}, {seconds:.2f} s of CPU, {peak / 1e6:.0f} MB")


def too_many_outputs(work):
    """More than may be read again, in all or in one file, is refused before the first byte."""
    path = many_tensors(os.path.join(work, "third.safetensors"), 666_667, 5)
    for to, name, count in (("w4a16-ct --set group=32", "thrice", 2_000_001),
                            ("mxfp8-ct", "twice.safetensors", 1_333_334)):
        out = os.path.join(work, name)
        status, errors, _, _ = measure("convert", path, "-o", out, "--to", *to.split(),
                                       "--include", ".", "--quiet")
        check(status == 4 and f"would have {count} tensors" in errors
              and not os.path.exists(out + ".partial"), f"666,667 weights, {to}: {errors}")
    os.unlink(path)
    path = many_in_shards(os.path.join(work, "long-names"), 76_000, 1750, 4)
    out = os.path.join(work, "long-index")
    status, errors, _, _ = measure("convert", path, "-o", out, "--to", "mxfp8-ct", "--include",
                                   ".", "--quiet", "--max-memory", "2GiB", "--shard-size", "300kB")
    check(status == 4 and "the index of the output would have 276792072 bytes" in errors
          and not os.path.exists(out + ".partial"), f"an index beyond the limit: {errors}")
    shutil.rmtree(path)


def short_of_memory(path, megabytes, *argv):
    """Done, or refused with a message; never killed by a signal."""
    status, errors, _, _ = measure(argv[0], path, *argv[1:], memory=megabytes << 20)
    check(status == 0 or (status == 6 and "memory" in errors and "error: " in errors),
          f"{' '.join(argv)} in {megabytes} MiB: exit status {status} {errors.split(chr(10))[0]}")


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
        check(status == 0 and peak <= (limit or 512) << 20,
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


def one_weight(path, shape, fill_with=None, name="model.layers.0.mlp.down_proj.weight"):
    """A file of one BF16 weight, of holes or of these values."""
    size = 2 * math.prod(shape)
    text = json.dumps({name: {
        "dtype": "BF16", "shape": shape, "data_offsets": [0, size]}}).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        if fill_with is None:
            f.truncate(8 + len(text) + size)
        else:
            f.write(fill_with.tobytes())
    return path


def within(peak, megabytes):
    return peak <= megabytes << 20


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


def act_order_figure(work):
    """What a long row in act-order wants is named, and is enough; to plan it wants nothing of it."""
    source, out = os.path.join(work, "order-long"), os.path.join(work, "order-out")
    act_order(source, "gptq", 1 << 24)
    for argv in (("plan", source, "--to", "mxfp8-ct", "--requantize"), ("dump", source)):
        status, errors, _, peak = measure(*argv)
        check(status == 0 and within(peak, 32), f"{argv[0]} of 2^24 columns in act-order: "
              f"{peak / 2**20:.0f} MiB {errors}")
    shutil.rmtree(source)
    act_order(source, "gptq", 1 << 20)
    argv = (("unpack", "-o", out), ("convert", "--to", "mxfp8-ct", "--requantize", "-o", out),
            ("convert", "--to", "gptq", "--requantize", "-o", out)) # whose plan does not fit, too
    for name, *rest in argv:
        figure = refused(source, 32, name, *rest)
        status, errors, _, peak = measure(name, source, *rest, "--max-memory", f"{figure}MiB")
        check(status == 0 and within(peak, figure), f"{name} of 2^20 columns in act-order in "
              f"{figure} MiB: {peak / 2**20:.0f} MiB {errors}")
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
                                              "--device", "cpu", "--max-memory", memory)
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


def refused(path, megabytes, *argv):
    """What does not fit is refused within the limit; returns the figure of the hint."""
    status, errors, seconds, peak = measure(argv[0], path, *argv[1:], "--max-memory",
                                            f"{megabytes}MiB")
    hint = re.search(r"--max-memory (\d+)MiB is enough", errors)
    check(status == 6 and hint and within(peak, megabytes),
          f"{os.path.basename(path)}, {argv[0]} in {megabytes} MiB is refused: status {status}, "
          f"{peak / 2**20:.0f} MiB, {seconds:.1f} s of CPU {errors}")
    return int(hint.group(1)) if hint else 0


def many_tensors(path, count, letters, first=0, module=None, rows=1):
    """One file of so many small weights with long names: 24 characters more than these letters, or
    with these modules."""
    module, size = module or "x" * letters, 64 * rows
    parts = [f'"m.layers.{first + i:07}.{module}.weight":{{"dtype":"BF16",'
             f'"shape":[{rows},32],"data_offsets":[{size * i},{size * i + size}]}}'
             for i in range(count)]
    text = ("{" + ",".join(parts) + "}").encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + size * count)
    return path


def many_in_shards(folder, count, letters, shards, module=None, rows=1):
    """The same in so many files, for headers that one must not have."""
    os.makedirs(folder)
    weight_map, each = {}, count // shards
    for s in range(shards):
        name = f"model-{s + 1:05}-of-{shards:05}.safetensors"
        many_tensors(os.path.join(folder, name), each, letters, s * each, module, rows)
        weight_map.update((f"m.layers.{i:07}.{module or 'x' * letters}.weight", name)
                          for i in range(s * each, (s + 1) * each))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {}, "weight_map": weight_map}, f)
    return folder


def names_within(work, long):
    """What README.md says of the lengths of names; beside a plan there are two copies of each."""
    path = many_tensors(os.path.join(work, "names.safetensors"), 300_000, 20)
    bounded(path, 200, "mxfp4-ct")
    single = many_tensors(os.path.join(work, "single.safetensors"), 100_000, 20)
    out = os.path.join(work, "names-out.safetensors")
    argv = ("convert", "-o", out, "--to", "mxfp4-ct", "--include", ".", "-q")
    figure = refused(single, 64, *argv)
    status, errors, _, peak = measure(argv[0], single, *argv[1:], "--max-memory", f"{figure}MiB")
    check(status == 0 and within(peak, figure),
          f"a single file in {figure} MiB: {peak / 2**20:.0f} MiB {errors}")
    for count, letters in ((1_000_000, 36), (300_000, 231))[:2 if long else 0]:
        folder = many_in_shards(os.path.join(work, f"names-{count}"), count, letters, 4)
        bounded(folder, 512, "mxfp4-ct")
        shutil.rmtree(folder)


def writes_all(path, work, megabytes):
    """Index, manifest and journal are within the limit, too, and so is who reads them: a second run
    looks at what is there, and finds it complete."""
    out = os.path.join(work, "tensors")
    for times in ("once", "again"):
        status, errors, seconds, peak = measure("convert", path, "-o", out, "--to", "mxfp8-ct",
                                                "--include", ".", "--quiet", "--max-memory",
                                                f"{megabytes}MiB")
        check(status == 0 and within(peak, megabytes), f"to a directory in {megabytes} MiB, "
              f"{times}: {peak / 2**20:.0f} MiB, {seconds:.1f} s of CPU {errors}")
    shutil.rmtree(out, ignore_errors=True)


def one_header(work):
    """Of one file the header of what is made is one, too, and counts in the figure of the hint:
    it is enough to see that this one would be larger than a header may be."""
    source = many_tensors(os.path.join(work, "names.safetensors"), 85_000, 230)
    out = os.path.join(work, "named.safetensors")
    to = ("-o", out, "--to", "mxfp8-ct", "--include", ".", "--quiet")
    figure = refused(source, 190, "convert", *to)
    status, errors, _, peak = measure("convert", source, *to, "--max-memory", f"{figure}MiB")
    check(status == 4 and "header would be larger" in errors and within(peak, figure),
          f"one header in {figure} MiB: {peak / 2**20:.0f} MiB {errors}")
    os.unlink(source)


def cards_within(work):
    """The sample for the model card of a directory keeps within --max-memory, whatever the shape."""
    out = os.path.join(work, "carded")
    for shape in ([1, 1 << 25], [16, 1 << 21]):
        source = os.path.join(work, "rows")
        os.makedirs(source)
        one_weight(os.path.join(source, "model.safetensors"), shape)
        for to in ("fp8-dynamic-ct", "int8-ct", "w8a16-marlin-channel", "w4a8-cutlass"):
            status, errors, _, peak = measure("convert", source, "-o", out, "--to", to, "-q",
                                              "--include", ".", "--max-memory", "32MiB",
                                              "--device", "cpu")
            check(status == 0 and within(peak, 32),
                  f"{shape} to {to}, with a card: {peak / 2**20:.0f} MiB {errors}")
            shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(source)


def hostile_manifest(work, megabytes):
    """A manifest of so many small values, without its checksum or with it: neither `verify` nor a
    second run takes memory for them."""
    source, out = os.path.join(work, "few"), os.path.join(work, "manifest")
    sparse.make(source, tensors=30, shards=1, experts=8, hidden=128, inner=128)
    argv = ("convert", source, "-o", out, "--to", "w4a8-cutlass", "--quiet")
    measure(*argv)
    manifest = os.path.join(out, "tilepack.json")
    with open(manifest, "r+b") as f:
        f.seek(-len("\n}\n"), os.SEEK_END)
        f.write(b',"x":[')
        for _ in range(megabytes):
            f.write(b"[0,0]," * ((1 << 20) // 6))
        f.write(b"0]}")
    for again, right in ((("verify", out), 1), (argv, 2), (("verify", out), 0), (argv, 0)):
        if right == 0 and again[0] == "verify":
            with open(manifest, "r+b") as f:
                signed = own_hash.sign(f.read())
                f.seek(0)
                f.write(signed)
        status, errors, seconds, peak = measure(*again)
        check(status == right and within(peak, 64), f"{again[0]} with a manifest of {megabytes} MB: "
              f"status {status}, {peak / 2**20:.0f} MiB, {seconds:.1f} s of CPU {errors}")
    shutil.rmtree(out)


def many_files(work, count):
    """Whether so many small files beside the weights are an output's own is known without asking
    each about all others."""
    source, out = os.path.join(work, "files"), os.path.join(work, "files-out")
    sparse.make(source, tensors=30, shards=1, experts=8, hidden=128, inner=128)
    os.mkdir(os.path.join(source, "folder"))
    for i in range(count):
        with open(os.path.join(source, "folder", f"{i:06}.txt"), "wb"):
            pass
    last = os.path.join(source, "zz.dat")
    sparse_bytes = 1 << 25
    with open(last, "wb") as f:
        f.truncate(sparse_bytes)
    argv = ("convert", source, "-o", out, "--to", "w4a8-ct", "--quiet")
    status = subprocess.run([tool.binary(), *argv], stderr=subprocess.DEVNULL, preexec_fn=lambda:
                            resource.setrlimit(resource.RLIMIT_FSIZE,
                                               (sparse_bytes - 1,) * 2)).returncode
    check(status == 5, f"{count} files: the last one is too large, status {status}")
    runs = [("resumed", argv), ("verify", ("verify", out)), ("--force", (*argv, "--force")),
            ("fresh", (*argv[:3], out + "-fresh", *argv[4:]))]
    took = {what: in_program(*line) for what, line in runs}
    once = took["fresh"][2]
    for what, _ in runs[:3]:
        status, errors, seconds = took[what]
        check(status == 0 and seconds < 3 * once + LIMIT,  # it was 9 to 26 times that
              f"{count} files, {what}: {seconds:.2f} s of CPU, once: {once:.2f} {errors}")
    for name in (source, out, out + "-fresh"):
        shutil.rmtree(name, ignore_errors=True)


def many_shards(work, count):
    """The entry of each of so many shards is found without asking each about all others: four
    times as many take no more than five times as long: it was ten."""
    took = []
    for shards in (count // 4, count):
        folder = os.path.join(work, f"shards-{shards}")
        os.mkdir(folder)
        weight_map, files = {}, []
        for s in range(shards):
            file, name = f"model-{s + 1:05}-of-{shards:05}.safetensors", f"layers.{s}.norm.weight"
            data = json.dumps({name: {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}}).encode()
            with open(os.path.join(folder, file), "wb") as f:
                f.write(struct.pack("<Q", len(data)) + data + bytes(8))
            weight_map[name] = file
            files.append({"name": file, "size": 16 + len(data), "xxh3": "0" * 32})
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
            json.dump({"weight_map": weight_map}, f)
        with open(os.path.join(folder, "tilepack.json"), "wb") as f:
            f.write(own_hash.signed({"tilepack": 1, "xxh3": "", "plan": "0" * 32, "files": files}))
        status, errors, seconds = in_program("verify", folder, "-q", "--json")
        took.append(seconds)
        check(status == 1, f"verify of {shards} shards of other contents: {seconds:.2f} s of CPU {errors}")
        shutil.rmtree(folder)
    check(took[1] < 5 * took[0] + LIMIT / 5, f"four times as many take {took[1] / took[0]:.1f} times")


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
    refused(path, 64, "convert", "-o", out, "--to", "fp8-ct", "--include", ".", "--zstd=19")


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


def small_files_within(work):
    """Many small files are a part of what a conversion takes, and of its figures."""
    source = os.path.join(work, "crowded")
    sparse.make(source, tensors=8, shards=1, experts=1, hidden=256, inner=512)
    os.makedirs(os.path.join(source, "notes"))
    for i in range(20_000):
        with open(os.path.join(source, "notes", f"{'n' * 200}{i:06}.txt"), "wb"):
            pass
    out = os.path.join(work, "crowded-out")
    to = ("--to", "mxfp8-ct", "-q")
    for argv in (("convert", source, "-o", out, *to), ("unpack", out, "-o", out + "-plain", "-q"),
                 ("convert", source, "-o", out + "-hashed", *to, "--digest", "sha256")):
        figure = refused(argv[1], 32, argv[0], *argv[2:])
        status, errors, _, peak = measure(*argv, "--max-memory", f"{figure}MiB")
        check(status == 0 and within(peak, figure), f"{argv[0]} of 20,000 small files in {figure} "
              f"MiB: {peak / 2**20:.0f} MiB {errors}")
    for name in (source, out, out + "-plain", out + "-hashed"):
        shutil.rmtree(name, ignore_errors=True)


def names_of_files_within(work):
    """Names that do not fit are refused where they are listed, in the directory and below it."""
    for folder in ("", "notes"):
        source, out = os.path.join(work, "named"), os.path.join(work, "named-out")
        sparse.make(source, tensors=8, shards=1, experts=1, hidden=256, inner=512)
        os.makedirs(os.path.join(source, folder), exist_ok=True)
        for i in range(45_000):
            with open(os.path.join(source, folder, f"{'n' * 240}{i:06}.txt"), "wb"):
                pass
        argv = ("convert", source, "-o", out, "--to", "mxfp8-ct", "-q")
        refused(source, 32, "unpack", "-o", out, "-q")
        figure = refused(source, 32, argv[0], *argv[2:])
        status, errors, _, peak = measure(*argv, "--discard", "--max-memory", f"{figure}MiB")
        check(status == 0 and within(peak, figure), f"45,000 names of files in {figure} MiB: "
              f"{peak / 2**20:.0f} MiB {errors}")
        shutil.rmtree(source)


def encoders_have_figures(work):
    """The figure of a plan that does not fit knows of encoders and of frames of archives."""
    plain = many_tensors(os.path.join(work, "encoded.safetensors"), 20_000, 20)
    archive, back = plain + ".zst", os.path.join(work, "decoded.safetensors")
    for path, argv in ((plain, ("convert", "-o", archive, "--to", "mxfp8-ct", "--include", ".", "-q",
                                "--zstd=19", "--force")),
                       (archive, ("unpack", "-o", back, "-q", "--force"))):
        figure = refused(path, 32, *argv)
        status, errors, _, peak = measure(argv[0], path, *argv[1:], "--max-memory", f"{figure}MiB")
        check(status == 0 and within(peak, figure), f"{argv[0]} in {figure} MiB: "
              f"{peak / 2**20:.0f} MiB {errors}")
    for path in (plain, archive, back):
        os.unlink(path)


def opened_within(work):
    """What opens packed weights is refused with a figure that is enough."""
    source = many_tensors(os.path.join(work, "opened.safetensors"), 30_000, 20)
    packed_, out = (os.path.join(work, n) for n in ("whole", "opened"))
    measure("convert", source, "-o", packed_, "--to", "mxfp8-ct", "--include", ".", "--quiet")
    figure = refused(packed_, 32, "unpack", "-o", out, "-q")
    status, errors, _, peak = measure("unpack", packed_, "-o", out, "-q", "--max-memory",
                                      f"{figure}MiB")
    check(status == 0 and within(peak, figure), f"unpack in {figure} MiB: {peak / 2**20:.0f} MiB "
          f"{errors}")
    shutil.rmtree(out, ignore_errors=True)


def copied_within(work):
    """What is known of packed weights that are copied is within the least limit that is enough."""
    source = many_tensors(os.path.join(work, "copied.safetensors"), 60_000, 20, rows=32)
    packed_, out = os.path.join(work, "in-format"), os.path.join(work, "copied")
    to = ("--to", "mxfp8-ct", "--include", ".", "--quiet")
    measure("convert", source, "-o", packed_, *to)
    status = 6
    for megabytes in range(104, 160, 8):
        if status == 6:
            status, errors, _, peak = measure("convert", packed_, "-o", out, *to, "--max-memory",
                                              f"{megabytes}MiB")
            check(status in (0, 6) and within(peak, megabytes), f"60,000 packed weights are copied "
                  f"in {megabytes} MiB, or not: status {status}, {peak / 2**20:.0f} MiB {errors}")
    check(status == 0, "they are copied in one of these limits")


def figures_of_the_unseen(work):
    """Of an archive, whose header is packed, of a stack whose experts come apart, and of names that
    are longer than most."""
    plain = many_tensors(os.path.join(work, "unseen.safetensors"), 60_000, 20)
    archive = os.path.join(work, "unseen-z.safetensors.zst")
    measure("unpack", plain, "-o", archive, "-q")
    experts = one_weight(os.path.join(work, "apart.safetensors"), [1 << 16, 16, 16],
                         name="model.layers.0.mlp.experts.gate_up_proj")
    names = many_tensors(os.path.join(work, "long-names.safetensors"), 40_000, 230, rows=32)
    for path, to in ((archive, "mxfp8-ct"), (experts, "int8-ct"), (names, "mxfp8-ct")):
        argv = (*(("convert", "--discard") if path == names else ("plan",)), "--to", to,
                "--include", ".", "-q")
        figure = refused(path, 32, *argv)
        status, errors, _, peak = measure(argv[0], path, *argv[1:], "--max-memory",
                                          f"{figure}MiB")
        check(status == 0 and within(peak, figure),
              f"{os.path.basename(path)} in {figure} MiB: {peak / 2**20:.0f} MiB {errors}")
        os.unlink(path)


def config_has_a_figure(work):
    """However small its values are, or long; and so has a recipe that is none."""
    source, out = os.path.join(work, "configured"), os.path.join(work, "configured-out")
    sparse.make(source, tensors=8, shards=1, experts=1, hidden=256, inner=512)
    values = {
        "groups": {f"g{i}": {"targets": ["x"], "weights": {"num_bits": 4}} for i in range(30_000)},
        "objects": [{}] * 150_000, "texts": ["a"] * 300_000, "numbers": [0] * 300_000,
        "no numbers": [math.nan] * 300_000, "long numbers": [10**30] * 60_000}
    texts = {name: json.dumps({"model_type": "llama", "quantization_config": {"notes": notes}},
                              separators=(",", ":")) for name, notes in values.items()}
    texts["a long text"] = json.dumps({"model_type": "llama", "chat_template": "a" * (8 << 20)})
    texts["a long type"] = json.dumps({"model_type": "a" * (8 << 20)})
    texts["a long number"] = '{"model_type": "llama", "hidden_size": ' + "1" * (8 << 20) + "}"
    for name, text in texts.items():
        with open(os.path.join(source, "config.json"), "w") as f:
            f.write(text)
        for argv in (("plan", source, "--to", "mxfp8-ct", "-q"), ("unpack", source, "-o", out, "-q")):
            figure = refused(source, 32, argv[0], *argv[2:])
            status, errors, _, peak = measure(*argv, "--max-memory", f"{figure}MiB")
            check(status == 0 and within(peak, figure), f"{argv[0]} with a config.json of {name} in "
                  f"{figure} MiB: {peak / 2**20:.0f} MiB {errors}")
        shutil.rmtree(out, ignore_errors=True)
    os.unlink(os.path.join(source, "config.json"))
    recipe = os.path.join(work, "numbers.json")
    with open(recipe, "w") as f:
        json.dump({"rules": [0] * 300_000}, f, separators=(",", ":"))
    figure = refused(source, 32, "plan", "--recipe", recipe, "-q")
    status, errors, _, peak = measure("plan", source, "--recipe", recipe, "-q", "--max-memory",
                                      f"{figure}MiB")
    check(status == 2 and within(peak, figure), f"a recipe of numbers in {figure} MiB: status "
          f"{status}, {peak / 2**20:.0f} MiB {errors}")
    os.unlink(recipe)
    shutil.rmtree(source)


def patterns_have_a_figure(work):
    """What they are compiled to is many times their text."""
    source, made, recipe = (os.path.join(work, n) for n in ("matched", "matched-ct", "matched.json"))
    os.mkdir(source)
    one_weight(os.path.join(source, "model.safetensors"), [256, 256])
    with open(os.path.join(source, "config.json"), "w") as f:
        json.dump({"model_type": "llama"}, f)
    words = ["|".join(f"z{i}_{k}" for k in range(400)) for i in range(1000)]
    measure("convert", source, "-o", made, "--to", "w4a8-ct", "-q")
    path = os.path.join(made, "config.json")
    with open(path) as f:
        config = json.load(f)
    config["quantization_config"]["ignore"] += ["re:" + p for p in words]
    with open(path, "w") as f:
        json.dump(config, f)
    options = [a for i in range(400) for a in ("--exclude", f"z{i}(?:[ab]){{900}}")]
    cases = [("ignored", made, "--to", "mxfp8-ct", "--requantize"),
             ("excluded", source, "--to", "w4a8-ct", *options)]
    for i, patterns in enumerate((words, [f"zz{i}q" + "[ab]" * 1000 for i in range(480)])):
        with open(f"{recipe}.{i}", "w") as f:
            json.dump({"rules": [{"match": p, "keep": True, "optional": True} for p in patterns] +
                                [{"match": ".", "to": "w4a8-ct"}]}, f)
        cases.append((f"recipe {i}", source, "--recipe", f"{recipe}.{i}"))
    for name, path, *argv in cases:
        figure = refused(path, 32, "plan", *argv, "-q")
        status, errors, _, peak = measure("plan", path, *argv, "-q", "--max-memory", f"{figure}MiB")
        check(status == 0 and within(peak, figure), f"long patterns, {name}, in {figure} MiB: status "
              f"{status}, {peak / 2**20:.0f} MiB {errors[:200]}")
    shutil.rmtree(source)
    shutil.rmtree(made)


def importance_has_a_figure(work):
    """A file of importance is read before the headers are."""
    count = 50_000
    names = [f"model.layers.{i % 50}.mlp.expert_{i:06}.down_proj.weight" for i in range(count)]
    source, importance, out = (os.path.join(work, n + ".safetensors")
                               for n in ("weighed", "importance", "weighed-out"))
    for path, dtype, shape, size in ((source, "BF16", [8, 32], 512), (importance, "F32", [32], 128)):
        text = json.dumps({name: {"dtype": dtype, "shape": shape,
                                  "data_offsets": [size * i, size * i + size]}
                           for i, name in enumerate(names)}, separators=(",", ":")).encode()
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            f.write(np.ones(count * size // 4, np.float32))
    argv = ("convert", source, "-o", out, "--to", "w4a16-ct", "--set", "group=32", "--search", "mse",
            "--importance", importance, "-q")
    figure = refused(source, 32, argv[0], *argv[2:])
    status, errors, _, peak = measure(*argv, "--max-memory", f"{figure}MiB")
    check(status == 0 and within(peak, figure), f"{count} weights with importance in {figure} MiB: "
          f"{peak / 2**20:.0f} MiB {errors}")
    recipe = os.path.join(work, "weighed.json")
    with open(recipe, "w") as f:
        json.dump({"rules": [{"match": ".", "to": "w4a16-ct", "set": {"group": "32"}, "search": "mse",
                              "importance": importance}]}, f)
    figure = refused(source, 32, "plan", "--recipe", recipe, "-q")
    status, errors, _, peak = measure("plan", source, "--recipe", recipe, "-q", "--max-memory",
                                      f"{figure}MiB")
    check(status == 0 and within(peak, figure), f"a recipe with importance in {figure} MiB: "
          f"{peak / 2**20:.0f} MiB {errors}")
    matrix = os.path.join(work, "imatrix.dat")  # of none of the weights, by long names
    with open(matrix, "wb") as f:
        f.write(struct.pack("<i", 30_000))
        for i in range(30_000):
            f.write(struct.pack("<i900siif", 900, f"blk.{i}.".encode().ljust(900, b"y"), 1, 1, 1))
    argv = (*argv[:argv.index(importance)], matrix, "-q")
    figure = refused(source, 32, argv[0], *argv[2:])
    status, errors, _, peak = measure(*argv, "--max-memory", f"{figure}MiB")
    check(status == 3 and within(peak, figure), f"long names of importance in {figure} MiB: "
          f"{peak / 2**20:.0f} MiB {errors}")
    for path in (source, importance, out, recipe, matrix):
        os.unlink(path)


def unpacks_within(work):
    """What unpack says to be enough is, of one file and of several, plain or archives, and of
    tensors that are copied."""
    source, packed_, out = (os.path.join(work, n) for n in ("kept", "kept-packed", "kept-plain"))
    os.makedirs(source)
    for count, letters, shard, more, to in ((60_000, 0, "5GB", (), ()), (100_000, 0, "5GB", (), ()),
                                            (100_000, 80, "2MB", ("--zstd",), ()),
                                            (80_000, 0, "1MB", (), ("--to", "w4a8-cutlass"))):
        header = {f"model.layers.{i}.{'n' * letters}norm.bias":
                  {"dtype": "BF16", "shape": [7], "data_offsets": [14 * i, 14 * i + 14]}
                  for i in range(count)}
        end = 14 * count
        header["model.layers.0.q_proj.weight"] = {"dtype": "BF16", "shape": [256, 256],
                                                  "data_offsets": [end, end + 131072]}
        with open(os.path.join(source, "model.safetensors"), "wb") as f:
            text = json.dumps(header, separators=(",", ":")).encode()
            f.write(struct.pack("<Q", len(text)) + text)
            f.truncate(8 + len(text) + end + 131072)
        with open(os.path.join(source, "config.json"), "w") as f:
            json.dump({"model_type": "llama", "hidden_size": 256}, f)
        measure("convert", source, "-o", packed_, "--to", "w4a8-ct", "-q", "--force",
                "--shard-size", shard, *more)
        figure = refused(packed_, 32, "unpack", "-o", out, "-q", *to)
        status, errors, _, peak = measure("unpack", packed_, "-o", out, "-q", "--force", *to,
                                          "--max-memory", f"{figure}MiB")
        check(status == 0 and within(peak, figure), f"unpack of {count} tensors in {figure} MiB: "
              f"{peak / 2**20:.0f} MiB {errors}")
    for name in (source, packed_, out):
        shutil.rmtree(name, ignore_errors=True)


def index_has_a_figure(work):
    """An index that says more than the shards it is of."""
    source, out = os.path.join(work, "indexed"), os.path.join(work, "indexed-out")
    sparse.make(source, tensors=8, shards=1, experts=1, hidden=256, inner=512)
    path = os.path.join(source, "model.safetensors.index.json")
    with open(path) as f:
        index = json.load(f)
    index["metadata"] = {"notes": "y" * 50_000_000}
    with open(path, "w") as f:
        json.dump(index, f)
    for argv in (("convert", source, "-o", out, "--to", "mxfp8-ct", "-q"),
                 ("unpack", source, "-o", out + "-plain", "-q")):
        figure = refused(source, 32, argv[0], *argv[2:])
        status, errors, _, peak = measure(*argv, "--max-memory", f"{figure}MiB")
        check(status == 0 and within(peak, figure),
              f"{argv[0]} with a large index in {figure} MiB: {peak / 2**20:.0f} MiB {errors}")
    for name in (source, out, out + "-plain"):
        shutil.rmtree(name, ignore_errors=True)


def any_shape(work, long):
    """Memory has nothing to do with the shape, or the conversion is refused at once."""
    row = one_weight(os.path.join(work, "row.safetensors"), [1, 1 << (29 if long else 26)])
    flat = one_weight(os.path.join(work, "flat.safetensors"), [16, 1 << 22])
    column = one_weight(os.path.join(work, "column.safetensors"), [1 << 22, 1])
    for path, to in ((column, "fp8-1x128"), (column, "fp8-dynamic-ct"), (row, "nvfp4-blocked"),
                     (row, "mxfp8-blocked"), (row, "fp8-dynamic-ct"), (row, "fp8-deepseek"),
                     (flat, "w4a8-cutlass"), (flat, "mxfp8-ct"), (flat, "gptq")):
        bounded(path, 32, to)
    codes = os.path.join(work, "codes")
    tool.run("convert", flat, "-o", codes, "--to", "w4a8-ct", "--include", ".", "-q")
    bounded(codes, 512, "w4a8-cutlass")
    shutil.rmtree(codes)
    status, errors, _, _ = measure("convert", row, "--discard", "--to", "fp8-dynamic-ct",
                                   "--include", ".", "--quiet", memory=700 << 20)
    check(status == 0, f"a long row to fp8-dynamic-ct in 700 MiB of addresses {errors}")
    zero_points = one_weight(os.path.join(work, "zero-points.safetensors"), [1 << 22, 2048])
    for to in ("gptq", "awq"):  # 32 MiB of words that follow from the size
        status, errors, seconds, peak = measure("plan", zero_points, "--to", to, "--include", ".",
                                                "--max-memory", "32MiB")
        check(status == 0 and within(peak, 32), f"plan of 2^22 rows to {to} in 32 MiB: "
              f"{peak / 2**20:.0f} MiB, {seconds:.1f} s of CPU {errors}")
    refused(flat, 64, "convert", "--discard", "--include", ".", "--to", "w4a8-cutlass",
            "--search", "w4a8")
    bounded(flat, 512, "w4a8-cutlass", "--search", "w4a8")
    experts = os.path.join(work, "experts")
    sparse.make(experts, tensors=6 + 3 * 4096, shards=1, experts=4096)
    bounded(experts, 64, "w4a8-cutlass")
    zeros = archive_of_zeros(os.path.join(work, "zeros.safetensors.zst"), 1 << 27)
    bounded(zeros, 128, "fp8-deepseek")
    refused(zeros, 64, "convert", "--discard", "--to", "fp8-deepseek", "--include", ".")
    status, errors, seconds, peak = measure("diff", zeros, shutil.copy(zeros, zeros + ".zst"))
    check(status == 0 and seconds <= 4 and within(peak, 200), "diff of archives with large frames: "
          f"{seconds:.1f} s of CPU, {peak / 2**20:.0f} MiB {errors}")
    many_experts(work)
    long_rows_compared(work)
    recast_in_pieces(work)
    rows_in_pieces(work)
    stored_rows_in_pieces(work)
    blocks_in_pieces(work)
    argv = ("convert", "--discard", "--to", "mxfp8-ct", "--include", ".")
    for count, letters in ((300_000, 20), (300_000, 230), (1_000_000, 5))[:3 if long else 1]:
        path = many_tensors(os.path.join(work, "tensors.safetensors"), count, letters)
        figures = [refused(path, megabytes, *argv) for megabytes in (32, 128)]
        peak = bounded(path, figures[1], "mxfp8-ct")
        check(max(figures) <= 1.4 * peak, f"{count} tensors, the figures that are enough: "
              f"{figures} MiB, the peak {peak:.0f} MiB")
        bounded(path, 512, "mxfp8-ct")
        if letters == 20 or count == 1_000_000:
            writes_all(path, work, figures[1])


def main():
    long = "--long" in sys.argv or bool(os.environ.get("TILEPACK_TEST_LONG"))
    with tempfile.TemporaryDirectory(prefix="tilepack-large-") as work:
        many = os.path.join(work, "many")
        sparse.make(many, tensors=100_000, shards=163)
        for name in written_formats():
            fast(many, "plan", "--to", name, "--weights-only")
        fast(many, "plan", "--to", "w4a8-ct", "--shard-size", "10MB")
        fast(many, "plan", "--to", "w4a8-ct", "--json", limit=3 * LIMIT)
        fast(many, "dump", limit=LIMIT / 2)
        fast(many, "dump", "--json", limit=LIMIT / 2)
        many_packed = packed(work)
        fast(many_packed, "dump", limit=LIMIT / 2, what=" of packed weights")
        fast(many_packed, "dump", "--json", limit=LIMIT / 2, what=" of packed weights")
        million = os.path.join(work, "million")
        sparse.make(million, tensors=1_000_000, shards=163)
        fast(million, "dump", limit=5 * LIMIT, what=" of 1,000,000 tensors")
        for megabytes in (100, 200, 300, 400):
            short_of_memory(million, megabytes, "dump")
        for megabytes in (24, 40, 64, 100, 160):
            short_of_memory(many, megabytes, "plan", "--to", "w4a8-ct")
            short_of_memory(many, megabytes, "dump")
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
        crowd(work)
        encoders_within(work)
        errors_within(work)
        small_files_within(work)
        names_of_files_within(work)
        encoders_have_figures(work)
        opened_within(work)
        copied_within(work)
        figures_of_the_unseen(work)
        index_has_a_figure(work)
        unpacks_within(work)
        importance_has_a_figure(work)
        config_has_a_figure(work)
        patterns_have_a_figure(work)
        act_order_once(work)
        act_order_figure(work)
        names_within(work, long)
        cards_within(work)
        one_header(work)
        hostile_manifest(work, 60)
        many_files(work, 50_000)
        many_shards(work, 16_000)
        too_many_outputs(work)
        if long:
            too_many(work)
            for megabytes in (250, 500, 1000, 2000, 4000):
                short_of_memory(million, megabytes, "plan", "--to", "w4a8-cutlass")
                short_of_memory(million, megabytes, "plan", "--to", "w4a8-ct")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
