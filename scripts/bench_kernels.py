#!/usr/bin/env python3
"""Kernels of the CPU against memcpy, and several threads against one.

    bench_kernels.py --program build/tilepack --dir build/bench [--jobs 2] [--shape E,N,K]
                     [--long]

Runs `tilepack bench --device cpu`, whose ceiling is a copying loop that moves the same
bytes with the same threads in the same run, with --jobs threads and with one, in turns.
Inputs come from memory. Outputs go to a slot, the thread's own buffer that the next box
overwrites, as in a conversion, or to memory, as in a call of the library. The scaling of a
row is set against that of its own ceiling. Then once more with every instruction set
disabled: the reference rows are bound by the processor, not by memory, and there the best
times are compared, in which nobody else had the processor.
Writes kernels.md and kernels.json below DIR.
"""
import json
import os
import statistics
import subprocess
import sys

import measure

# What is asked of each row: the share of memcpy, with all threads. Input formats with
# another name are repacked or read.
TARGETS = [
    ("encode", "BF16", "fp8-deepseek", 0.80), ("encode", "BF16", "fp8-ct", 0.80),
    ("encode", "BF16", "mxfp8-blocked", 0.80), ("encode", "BF16", "mxfp8-ct", 0.80),
    ("repack", "w4a8-ct", "w4a8-cutlass", 0.80), ("repack", "mxfp8-ct", "mxfp8-blocked", 0.80),
    ("encode", "BF16", "mxfp8-torchao3d", 0.60), ("encode", "BF16", "w4a8-ct", 0.60),
    ("encode", "BF16", "w4a8-cutlass", 0.60),
    ("scales", "mxfp8-ct", "mxfp8-blocked", 0.80), ("scales", "w4a8-ct", "w4a8-cutlass", 0.80),
    ("scales", "fp8-deepseek", "fp8-deepgemm-sm100", 0.80),
]
# So many that they are larger than the caches; that takes minutes, so only with --long, once.
MORE_SCALES = {"fp8-deepgemm-sm100": "64,4096,7168"}
SCALING = 0.90      # of memcpy's own
SCALING_REF = 1.90  # with two threads


def run(opt, jobs, formats, shape, disable=None):
    """{(kind, from, to): row} of one run."""
    env = dict(os.environ)
    args = [opt.program, "bench", "--device", "cpu", "--json", "--jobs", str(jobs), "--shape",
            shape]
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
        kind = "scales" if row["scales_only"] else row["kind"]
        source = row["dtype"] if kind == "encode" else row.get("source", "")
        rows.setdefault((kind, source, row["format"]), row)
    return rows


def rate(row, far, which):
    """GB/s of the row or of its ceiling, with outputs to the slot or to memory."""
    seconds = row[("far_" if far else "") + ("ceiling_" if which == "ceiling" else "") + "seconds"]
    return (row["read_bytes"] + row["write_bytes"]) / seconds * 1e-9


def place(many, one, far):
    """Medians of a row with all threads, and what they gain over one."""
    def median(rows, which):
        return statistics.median(rate(r, far, which) for r in rows)

    return {"gb_per_s": median(many, "row"), "ceiling": median(many, "ceiling"),
            "fraction": statistics.median(rate(r, far, "row") / rate(r, far, "ceiling")
                                          for r in many),
            "scaling": median(many, "row") / median(one, "row"),
            "ceiling_scaling": median(many, "ceiling") / median(one, "ceiling")}


def shape_of(opt, fmt):
    return MORE_SCALES.get(fmt, opt.shape)


def fast_rows(opt):
    formats = sorted({to for _, _, to, _ in TARGETS if (not opt.format or to in opt.format) and
                      (opt.long or to not in MORE_SCALES)})
    result = []
    for shape in sorted({shape_of(opt, fmt) for fmt in formats}):
        group = [fmt for fmt in formats if shape_of(opt, fmt) == shape]
        runs = [(run(opt, opt.jobs, group, shape), run(opt, 1, group, shape))
                for _ in range(opt.rounds if shape == opt.shape else 1)]
        for kind, source, to, target in TARGETS:
            key = (kind, source, to)
            if to in group and key in runs[0][0]:
                rows = [many[key] for many, _ in runs], [one[key] for _, one in runs]
                result.append({"kind": kind, "from": source, "to": to, "shape": shape,
                               "row": rows[0][0]["row"], "target": target,
                               "slot": place(*rows, False), "memory": place(*rows, True)})
    return result


def reference_rows(opt):
    formats = [f for f in ("fp8-deepseek", "w4a8-ct") if not opt.format or f in opt.format]
    if not formats:
        return []
    shape, off = "1,4096,4096", "avx512,avx2,neon"
    rounds = [(run(opt, opt.jobs, formats, shape, off), run(opt, 1, formats, shape, off))
              for _ in range(opt.rounds)]
    result = []
    for fmt in formats:
        key = ("encode", "BF16", fmt)
        best = [min(r[side][key]["seconds_min"] for r in rounds) for side in (0, 1)]
        result.append({"to": fmt, "row": rounds[0][0][key]["row"], "scaling": best[1] / best[0]})
    return result


def mark(value, target):
    return f"{value:.2f}{'' if value >= target else ' *'}"


def name_of(row):
    source = row["from"].lower() if row["kind"] == "encode" else f"`{row['from']}`"
    return f"{source} to `{row['to']}`" + (", scales alone" if row["kind"] == "scales" else "")


def speed_table(result):
    rows = [["kernel", "into the slot", "memcpy", "share", "into memory", "memcpy", "share",
             "target"]]
    for r in result["rows"]:
        row = [name_of(r)]
        for p in (r["slot"], r["memory"]):
            row += [f"{p['gb_per_s']:.1f}", f"{p['ceiling']:.1f}", mark(p["fraction"], r["target"])]
        rows.append(row + [f"{r['target']:.2f}"])
    return (f"Kernels on the CPU, {result['jobs']} threads, shape {result['shape']}: GB/s of bytes "
            "in and out beside a copying loop of the same bytes and threads; medians of "
            f"{result['rounds']} runs in turns with one thread. * : below the target.\n\n"
            + measure.table(*rows))


def scaling_table(result):
    jobs = result["jobs"]
    rows = [["kernel", "into the slot", "memcpy", "reached", "into memory", "memcpy", "reached",
             "target"]]
    for r in result["rows"]:
        row = [name_of(r)]
        for p in (r["slot"], r["memory"]):
            row += [f"{p['scaling']:.2f}", f"{p['ceiling_scaling']:.2f}",
                    mark(p["scaling"] / p["ceiling_scaling"], SCALING)]
        rows.append(row + [f"{SCALING:.2f}"])
    target = SCALING_REF if jobs == 2 else SCALING_REF / 2 * jobs
    for r in result["reference"]:
        rows.append([f"bf16 to `{r['to']}`, reference", mark(r["scaling"], target)] + [""] * 5 +
                    [f"{target:.2f} in all"])
    return (f"The same with {jobs} threads against 1: how many times faster, the row and memcpy, "
            "and the first divided by the second.\n\n" + measure.table(*rows))


def main(argv):
    p = measure.options(__doc__, rounds=3)
    p.add_argument("--jobs", type=int, default=len(measure.processors()))
    p.add_argument("--long", action="store_true", help="fp8 scales as well: minutes more")
    p.add_argument("--shape", default="1,8192,8192", help="larger than the caches")
    p.add_argument("--format", action="append", help="default: those with a target")
    opt = p.parse_args(argv)
    result = {"jobs": opt.jobs, "rounds": opt.rounds, "shape": opt.shape, "rows": fast_rows(opt),
              "reference": reference_rows(opt)}
    measure.save(opt.dir, "kernels", speed_table(result) + "\n" + scaling_table(result), result)


if __name__ == "__main__":
    main(sys.argv[1:])
