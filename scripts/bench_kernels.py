#!/usr/bin/env python3
"""Kernels of the CPU against memcpy, and several threads against one.

    bench_kernels.py --program build/tilepack --dir build/bench [--jobs 2] [--shape E,N,K]

Runs `tilepack bench --device cpu`, whose ceiling is a copying loop that moves the same
bytes with the same threads in the same run, with --jobs threads and with one, in turns.
The scaling of a row is set against that of its own ceiling. Then once more with every
instruction set disabled: the reference rows are bound by the processor, not by memory, and
there the best times are compared, in which nobody else had the processor.
Writes kernels.md and kernels.json below DIR.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

# What is asked of each row: the share of memcpy, with all threads. Input formats with
# another name are repacked or read.
TARGETS = [
    ("encode", "BF16", "fp8-deepseek", 0.80), ("encode", "BF16", "fp8-ct", 0.80),
    ("encode", "BF16", "mxfp8-blocked", 0.80), ("encode", "BF16", "mxfp8-ct", 0.80),
    ("repack", "w4a8-ct", "w4a8-cutlass", 0.80), ("repack", "mxfp8-ct", "mxfp8-blocked", 0.80),
    ("encode", "BF16", "mxfp8-torchao3d", 0.60), ("encode", "BF16", "w4a8-ct", 0.60),
    ("encode", "BF16", "w4a8-cutlass", 0.60),
]
SCALING = 0.90      # of memcpy's own
SCALING_REF = 1.90  # with two threads


def measure(opt, jobs, formats, disable=None, shape=None):
    """{(kind, from, to): row} of one run."""
    env = dict(os.environ)
    args = [opt.program, "bench", "--device", "cpu", "--json", "--jobs", str(jobs), "--shape",
            shape or opt.shape]
    for fmt in formats:
        args += ["--format", fmt]
    if disable:
        env["TILEPACK_DISABLE"] = disable
        args.append("--verbose")
    done = subprocess.run(args, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=disable is not None)
    rows = {}
    if done.returncode:  # no fast rows here, so nothing to measure
        return rows
    for row in json.loads(done.stdout)["rows"]:
        source = row["dtype"] if row["kind"] == "encode" else row.get("source", "")
        if row["kind"] == "decode" or row.get("scales_only"):
            continue
        rows.setdefault((row["kind"], source, row["format"]), row)
    return rows


def median(rows, key, field):
    return statistics.median(r[key][field] for r in rows)


def fast_rows(opt):
    formats = sorted({t[2] for t in TARGETS if not opt.format or t[2] in opt.format})
    many, one = [], []
    for _ in range(opt.rounds):
        many.append(measure(opt, opt.jobs, formats))
        one.append(measure(opt, 1, formats))
    result = []
    for kind, source, to, target in TARGETS:
        key = (kind, source, to)
        if key not in many[0]:
            continue
        result.append({
            "from": source, "to": to, "row": many[0][key]["row"], "target": target,
            "gb_per_s": median(many, key, "gb_per_s"),
            "ceiling": median(many, key, "ceiling_gb_per_s"),
            "fraction": median(many, key, "fraction"),
            "scaling": median(many, key, "gb_per_s") / median(one, key, "gb_per_s"),
            "ceiling_scaling": median(many, key, "ceiling_gb_per_s") /
                               median(one, key, "ceiling_gb_per_s"),
        })
    return result


def reference_rows(opt):
    formats = [f for f in ("fp8-deepseek", "w4a8-ct") if not opt.format or f in opt.format]
    if not formats:
        return []
    shape, off = "1,4096,4096", "avx512,avx2,neon"
    rounds = [(measure(opt, opt.jobs, formats, off, shape), measure(opt, 1, formats, off, shape))
              for _ in range(opt.rounds)]
    result = []
    for fmt in formats:
        key = ("encode", "BF16", fmt)
        best = [min(r[side][key]["seconds_min"] for r in rounds) for side in (0, 1)]
        result.append({"to": fmt, "row": rounds[0][0][key]["row"], "scaling": best[1] / best[0]})
    return result


def mark(value, target):
    return f"{value:.2f}{'' if value >= target else ' *'}"


def table(result):
    jobs = result["jobs"]
    lines = [
        f"Kernels, {jobs} threads, shape {result['shape']}, GB/s of bytes in and out beside a "
        "copying loop of the same bytes and threads; medians of "
        f"{result['rounds']} runs in turns with one thread. * : below the target.", "",
        "| kernel | GB/s | memcpy | share | target | 1 -> "
        f"{jobs} threads | memcpy 1 -> {jobs} | of memcpy's | target |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for r in result["rows"]:
        share = r["scaling"] / r["ceiling_scaling"]
        lines.append(
            f"| {r['from']} to `{r['to']}` | {r['gb_per_s']:.1f} | {r['ceiling']:.1f} | "
            f"{mark(r['fraction'], r['target'])} | {r['target']:.2f} | {r['scaling']:.2f} | "
            f"{r['ceiling_scaling']:.2f} | {mark(share, SCALING)} | {SCALING:.2f} |")
    for r in result["reference"]:
        target = SCALING_REF if jobs == 2 else 0.95 * jobs
        lines.append(f"| BF16 to `{r['to']}`, reference | | | | | {mark(r['scaling'], target)} | "
                     f"| | {target:.2f} |")
    return "\n".join(lines) + "\n"


def main(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--program", required=True)
    p.add_argument("--dir", required=True)
    p.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS", "3")))
    p.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--shape", default="1,8192,8192", help="larger than the caches")
    p.add_argument("--format", action="append", help="default: those with a target")
    opt = p.parse_args(argv)
    result = {"jobs": opt.jobs, "rounds": opt.rounds, "shape": opt.shape, "rows": fast_rows(opt),
              "reference": reference_rows(opt)}
    text = table(result)
    for name, content in (("kernels.md", text), ("kernels.json", json.dumps(result, indent=2))):
        with open(os.path.join(opt.dir, name), "w", encoding="utf-8") as out:
            out.write(content)
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
