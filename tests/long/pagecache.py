#!/usr/bin/env python3
"""Drop-behind: converting more than the page cache should hold, or verifying it, leaves no
trace in it, and evicts nothing that was there before. TILEPACK_CACHE makes a small checkpoint
count as too large."""
import ctypes
import mmap
import os
import shutil
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import sparse  # noqa: E402
import stfile  # noqa: E402
import tool  # noqa: E402

PAGE = mmap.PAGESIZE
KEPT_BEGIN, KEPT_SIZE = 24 << 20, 8 << 20  # the stretch of a shard that is cached before
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
tally = tool.Tally()
check = tally.check


def resident(path):
    """One byte for each page of the file: 1 if it is in the page cache."""
    size = os.path.getsize(path)
    pages = ctypes.create_string_buffer((size + PAGE - 1) // PAGE)
    fd = os.open(path, os.O_RDONLY)
    try:
        at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if libc.mincore(at, size, pages):
            raise OSError(ctypes.get_errno(), "mincore")
        libc.munmap(at, size)
    finally:
        os.close(fd)
    return [b & 1 for b in pages.raw]


def kept_is_cached(path):
    return all(resident(path)[KEPT_BEGIN // PAGE:(KEPT_BEGIN + KEPT_SIZE) // PAGE])


def evict(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def touch(path, begin, size):
    """Reads that stretch and nothing ahead of it."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(fd, size, begin)
    os.close(fd)


def shards(directory):
    return [os.path.join(directory, n) for n in sorted(os.listdir(directory))
            if n.endswith((".safetensors", ".safetensors.zst"))]


def megabytes(pages):
    return sum(pages) * PAGE / 2**20


def convert(source, out, cache, *more):
    """`cache`: what counts as too large, in bytes; empty: half of memory."""
    tool.run("convert", source, "-o", out, "--quiet", "--device", "cpu", *more,
             env={"TILEPACK_CACHE": cache})


def leaves_nothing(what, *directories, cache="1000000"):
    """The command, with what it reads evicted before, leaves no more than the headers."""
    for shard in (s for d in directories for s in shards(d)):
        evict(shard)
    tool.run(*what, "--quiet", env={"TILEPACK_CACHE": cache})
    left = sum(megabytes(resident(s)) for d in directories for s in shards(d))
    total = sum(os.path.getsize(s) for d in directories for s in shards(d)) / 2**20
    check(left < 6 * len(directories),
          f"{what[0]} {' '.join(w for w in what if w[:2] == '--')}: {left:.1f} of "
          f"{total:.0f} MiB read are left")


def stays(what, files, run):
    """After `run` the files are in the page cache. The kernel may take pages back at any time when
    others want memory: one of three runs must leave them there."""
    total = sum(os.path.getsize(s) for s in files) / 2**20
    for _ in range(3):
        for file in files:
            evict(file)
        run()
        inside = sum(megabytes(resident(s)) for s in files)
        if inside > 0.95 * total:
            break
    check(inside > 0.95 * total, f"{what}: {inside:.0f} of {total:.0f} MiB stay in the cache")


def verified(source, work):
    """verify reads every byte of what it verifies, and --against of the source as well."""
    out = os.path.join(work, "dropped0")
    leaves_nothing(("verify", out), out)
    leaves_nothing(("verify", out, "--against", source), out, source)
    stays("verify of small files", shards(out),
          lambda: tool.run("verify", out, "--quiet", env={"TILEPACK_CACHE": ""}))


def compressed(work):
    """Of archives the bytes behind the tensors are others than the tensors'."""
    source, archives = os.path.join(work, "values"), os.path.join(work, "archives")
    os.mkdir(source)
    rng = np.random.default_rng(1)
    stfile.save(os.path.join(source, "model.safetensors"), {
        f"model.layers.{i}.mlp.up_proj.weight": stfile.tensor(
            "BF16", rng.integers(0x3000, 0x4000, (2048, 2048), dtype=np.uint16))
        for i in range(16)})
    convert(source, archives, "1000000", "--to", "mxfp4-ct", "--zstd=1")
    leaves_nothing(("unpack", archives, "-o", os.path.join(work, "from-zst")), archives)
    leaves_nothing(("verify", archives), archives)


def keeps_cached(source, witness, out, fmt):
    """Converts a source of which a stretch is cached: is it afterwards? The kernel itself may
    take pages back at any time; it then takes those of the witness, too, a file that nobody
    reads, cached in the same way before. Only a run in which the witness stays says anything."""
    path = shards(source)[0]
    for _ in range(5):
        shutil.rmtree(out, ignore_errors=True)
        for file in (*shards(source), witness):
            evict(file)
        touch(witness, KEPT_BEGIN, KEPT_SIZE)
        touch(path, KEPT_BEGIN, KEPT_SIZE)
        there = kept_is_cached(path)
        convert(source, out, "1000000", "--to", fmt)
        stayed = kept_is_cached(path)
        if there and stayed or kept_is_cached(witness):
            return there and stayed
    return False


def main():
    with tempfile.TemporaryDirectory(prefix="tilepack-cache-") as work:
        source = os.path.join(work, "source")
        total = sparse.make(source, tensors=60, shards=2, experts=8, hidden=1024, inner=3584)
        path = shards(source)[0]
        evict(path)
        if sum(resident(path)):
            check(True, "this file system keeps everything in memory: nothing to test")
            return tally.finish()
        witness = os.path.join(work, "witness")
        shutil.copyfile(path, witness)
        for number, fmt in enumerate(("fp8-deepseek", "mxfp8-torchao3d")):
            out = os.path.join(work, f"dropped{number}")
            check(keeps_cached(source, witness, out, fmt), f"{fmt}: what was cached stays")
            left = sum(megabytes(resident(s)) for s in shards(source)) - KEPT_SIZE / 2**20
            check(left < 6, f"{fmt}: {left:.1f} of {total / 2**20:.0f} MiB read are left")
            left = sum(megabytes(resident(s)) for s in shards(out))
            check(left < 4, f"{fmt}: {left:.1f} MiB written are left")
        out = os.path.join(work, "cached")
        stays("convert of small files", shards(source),
              lambda: convert(source, out, "", "--to", "fp8-deepseek", "--force"))
        for shard in shards(out):
            with open(shard, "rb") as a, \
                    open(os.path.join(work, "dropped0", os.path.basename(shard)), "rb") as b:
                check(a.read() == b.read(), "the same bytes")
        verified(source, work)
        compressed(work)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
