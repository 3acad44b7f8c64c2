#!/usr/bin/env python3
"""Time and memory against the size of the input.

    bench_scale.py --program build/tilepack --dir build/bench [--sizes 1.5,15,60]

Converts sparse checkpoints of so many GB (tests/sparse.py: headers are real, values are
holes that read as zeros) without writing: CPU seconds per GB and peak memory should not
depend on the size. Zeros cost the kernels what other values cost, but for the paths of
NaN; the page cache is emptied of the source before each run, so that all sizes read
through it alike. Nothing is stored but headers. Writes scale.md and scale.json below DIR.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests"))
import sparse  # noqa: E402

LAYER_BYTES = 1.543e9  # 4 experts of (4096, 14336) and attention


def evict(source):
    for name in os.listdir(source):
        fd = os.open(os.path.join(source, name), os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def run(opt, source, fmt):
    """(wall, CPU seconds, peak bytes) of a conversion that is discarded. The peak is read
    from the process itself: wait() would count this Python, which forked it."""
    evict(source)
    args = [opt.program, "convert", source, "--to", fmt, "--discard", "--device", "cpu", "--jobs",
            str(opt.jobs), "--quiet"]
    done = subprocess.run([sys.executable, "-c", SPAWN, *args], stdout=subprocess.PIPE, check=True)
    return tuple(json.loads(done.stdout))


# Runs a command from a small process, and says what it took.
SPAWN = r"""
import json, os, sys, time
args = sys.argv[1:]
start = time.monotonic()
pid = os.posix_spawn(args[0], args, os.environ)
peak = 0
while True:
    done, status, usage = os.wait4(pid, os.WNOHANG)
    if done:
        break
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            for line in f:
                if line.startswith("VmHWM"):
                    peak = int(line.split()[1]) * 1024
    except OSError:
        pass
    time.sleep(0.01)
took = time.monotonic() - start
print(json.dumps([took, usage.ru_utime + usage.ru_stime, peak]))
sys.exit(1 if status else 0)
"""


def main(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--program", required=True)
    p.add_argument("--dir", required=True)
    p.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--rounds", type=int, default=5, help="of sizes below 4 GB")
    p.add_argument("--sizes", default="1.5,15", help="GB")
    p.add_argument("--format", action="append", help="default: w4a8-cutlass and fp8-deepseek")
    opt = p.parse_args(argv)
    formats = opt.format or ["w4a8-cutlass", "fp8-deepseek"]
    rows = []
    for size in opt.sizes.split(","):
        layers = max(round(float(size) * 1e9 / LAYER_BYTES), 1)
        source = os.path.join(opt.dir, "sparse")
        shutil.rmtree(source, ignore_errors=True)
        total = sparse.make(source, tensors=18 * layers, shards=layers, experts=4, hidden=4096,
                            inner=14336)
        for fmt in formats:
            runs = [run(opt, source, fmt) for _ in range(opt.rounds if total < 4e9 else 1)]
            wall, cpu, peak = sorted(runs, key=lambda r: r[1])[len(runs) // 2]
            rows.append({"bytes": total, "format": fmt, "wall": wall, "cpu": cpu, "peak": peak})
        shutil.rmtree(source)
    lines = ["Size: sparse input, nothing written.", "",
             "| format | input | CPU s / GB | of the smallest's | memory |", "|---|--:|--:|--:|--:|"]
    for fmt in formats:
        own = [r for r in rows if r["format"] == fmt]
        for r in own:
            per, first = r["cpu"] / r["bytes"], own[0]["cpu"] / own[0]["bytes"]
            lines.append(f"| `{fmt}` | {r['bytes'] / 1e9:.1f} GB | {per * 1e9:.3f} | "
                         f"{per / first:.2f} | {r['peak'] / 2**20:.0f} MiB |")
    text = "\n".join(lines) + "\n"
    for name, content in (("scale.md", text), ("scale.json", json.dumps(rows, indent=2))):
        with open(os.path.join(opt.dir, name), "w", encoding="utf-8") as out:
            out.write(content)
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
