#!/usr/bin/env python3
"""Time and memory against the size of the input.

    bench_scale.py --program build/tilepack --dir build/bench [--sizes 1.5,15,60]
                   [--random 1.5,15]

Converts mixtures of experts of so many GB (samples/gen_checkpoint.py) without writing: CPU
seconds per GB and peak memory should not depend on the size. --sizes are sparse: headers are
real, values are holes that read as zeros and take no room. --random have random values and
are stored for the time of their run; a size that would leave less than 20 GB of the disk is
left out, and the table says so. The page cache is emptied of the source before each run, so
that all sizes of a kind read through it alike: holes from nowhere, values from the disk.
Writes scale.md and scale.json below DIR.
"""
import argparse
import os
import shutil
import sys

import measure

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "samples"))
import gen_checkpoint  # noqa: E402

LAYER = ["--hidden", "4096", "--inter", "14336", "--head-dim", "128", "--vocab", "1024",
         "--moe-experts", "4", "--moe-style", "mixtral", "--shard-mb", "1600", "--quiet"]
LAYER_BYTES = 1.493e9
LONG = 45e9  # bytes read for one median
ROOM = 20e9  # left on the disk for others


def make(directory, layers, values):
    """The bytes of a new checkpoint."""
    shutil.rmtree(directory, ignore_errors=True)
    gen_checkpoint.main([directory, "--layers", str(layers), *LAYER,
                         *(["--sparse"] if values == "holes" else [])])
    return measure.bytes_of(measure.files_of(directory))


def evict(source):
    for path in measure.files_of(source):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def convert(opt, source, fmt):
    evict(source)
    return measure.run(opt.program, "convert", source, "--to", fmt, "--discard", "--device", "cpu",
                       "--jobs", str(opt.jobs), "--quiet")


def rows_of(opt, values, size):
    """One row for each format; none where the disk is too small."""
    layers = max(round(size * 1e9 / LAYER_BYTES), 1)
    if values == "random" and shutil.disk_usage(opt.dir).free < layers * LAYER_BYTES + ROOM:
        return [{"values": values, "size": size, "left_out": True}]
    source = os.path.join(opt.dir, "scale")
    rows = []
    try:
        total = make(source, layers, values)
        for fmt in opt.format:
            rounds = max(1, min(opt.rounds, int(LONG / total)))
            runs = sorted((convert(opt, source, fmt) for _ in range(rounds)),
                          key=lambda done: done.cpu)
            done = runs[len(runs) // 2]
            rows.append({"values": values, "size": size, "format": fmt, "bytes": total,
                         "wall": done.seconds, "cpu": done.cpu, "peak": done.memory})
    finally:
        shutil.rmtree(source, ignore_errors=True)
    return rows


def table(rows):
    lines = [["format", "values", "input", "CPU s / GB", "of the smallest's", "memory"]]
    first = {}
    for r in sorted(rows, key=lambda r: (r.get("format", ""), r["values"], r["size"])):
        if r.get("left_out"):
            lines.append(["", r["values"], f"{r['size']} GB", "no room", "", ""])
            continue
        per = r["cpu"] / r["bytes"]
        smallest = first.setdefault((r["format"], r["values"]), per)
        lines.append([f"`{r['format']}`", r["values"], f"{r['bytes'] / 1e9:.1f} GB",
                      f"{per * 1e9:.3f}", f"{per / smallest:.2f}", f"{r['peak'] / 2**20:.0f} MiB"])
    return ("Size: nothing written; holes read as zeros, random values come from the disk.\n\n"
            + measure.table(*lines))


def main(argv):
    def sizes(text):
        return [float(size) for size in text.split(",") if size]

    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--program", required=True)
    p.add_argument("--dir", required=True)
    p.add_argument("--jobs", type=int, default=len(measure.processors()))
    p.add_argument("--rounds", type=int, default=5, help="of small sizes; large ones have fewer")
    p.add_argument("--sizes", type=sizes, default=[1.5, 15], help="GB of holes")
    p.add_argument("--random", type=sizes, default=[], help="GB of random values")
    p.add_argument("--format", action="append", help="default: w4a8-cutlass and fp8-deepseek")
    opt = p.parse_args(argv)
    opt.format = opt.format or ["w4a8-cutlass", "fp8-deepseek"]
    rows = []
    for values, asked in (("holes", opt.sizes), ("random", opt.random)):
        for size in asked:
            rows += rows_of(opt, values, size)
    measure.save(opt.dir, "scale", table(rows), rows)


if __name__ == "__main__":
    main(sys.argv[1:])
