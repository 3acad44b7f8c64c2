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
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import sparse  # noqa: E402
import tool  # noqa: E402

LIMIT = float(os.environ.get("TILEPACK_CPU_LIMIT", "1.0"))
RSS_LIMIT = 512 << 20
tally = tool.Tally()
check = tally.check


def measure(*argv, memory=None):
    """(exit status, stderr, CPU seconds, peak RSS in bytes) of one command."""
    def limit():
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen([tool.binary()] + [str(a) for a in argv], preexec_fn=limit,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        return (child.returncode, errors.read().decode(), usage.ru_utime + usage.ru_stime,
                usage.ru_maxrss * 1024)


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
    sparse.make(path, tensors=1_000_001, shards=163)
    status, errors, seconds, peak = measure("dump", path)
    check(status == 4 and "more than 1000000 tensors" in errors and peak <= RSS_LIMIT,
          f"1,000,001 tensors: exit status {status}, {seconds:.2f} s of CPU, {peak / 1e6:.0f} MB")


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


def main():
    long = "--long" in sys.argv or bool(os.environ.get("TILEPACK_TEST_LONG"))
    with tempfile.TemporaryDirectory(prefix="tilepack-large-") as work:
        many = os.path.join(work, "many")
        sparse.make(many, tensors=100_000, shards=163)
        for name in written_formats():
            fast(many, "plan", "--to", name)
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
        if long:
            too_many(work)
            for megabytes in (250, 500, 1000, 2000, 4000):
                short_of_memory(million, megabytes, "plan", "--to", "w4a8-cutlass")
                short_of_memory(million, megabytes, "plan", "--to", "w4a8-ct")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
