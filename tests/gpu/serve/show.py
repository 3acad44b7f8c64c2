#!/usr/bin/env python3
"""What the jobs of a run found: times and memory, and tokens beside those of stock vLLM.

    show.py OUT       ends with `N passed, N failed`; a job that did not end has failed
"""
import glob
import json
import os
import sys

import plan


def read(out):
    found = {}
    for path in sorted(glob.glob(os.path.join(out, "*.json"))):
        with open(path, encoding="utf-8") as file:
            job = json.load(file)
        found[job["name"]] = job
    return found


def best(rounds, step):
    """The round in which that step was fastest; the first one also warms up."""
    ran = [one for steps in rounds for one in steps if one["step"] == step]
    return min(ran, key=lambda one: one["seconds"], default=None)


COLUMNS = ("create", "load", "(first)", "process", "copying", "flushing", "flushes", "GB", "peak",
           "reserved", "start")


def times_of(job):
    """The values of COLUMNS; None where the job loaded nothing."""
    rounds = job.get("rounds") or []
    load, made, process = (best(rounds, step) for step in ("load", "create", "process"))
    if not load or not process:
        return None
    first = {one["step"]: one for one in rounds[0]}
    peak, reserved = (max(first[step][key] for step in ("load", "process")) / 1e9
                      for key in ("peak", "reserved"))
    return (made["seconds"], load["seconds"], first["load"]["seconds"], process["seconds"],
            load["copying"], load["flushing"], load["flushes"], first["process"]["after"] / 1e9,
            peak, reserved, job.get("start", 0.0))


def show_times(jobs):
    print("GB: what stays; peak, reserved: torch's largest in GB while loading; others in seconds")
    print(f"{'job':26s}", *(f"{column:>8s}" for column in COLUMNS))
    for name, job in jobs.items():
        times = times_of(job)
        if times:
            print(f"{name:26s}", *(f"{value:8.3f}" if isinstance(value, float) else f"{value:8d}"
                                   for value in times))
    for name, job in jobs.items():
        if "answers" in job:
            print(f"{name}: the server answers after {job['answers']:.1f} s")


def difference(one, two):
    """(tokens that are equal before the first that differs, tokens, largest of logprobs)."""
    same = total = 0
    worst = 0.0
    for a, b in zip(one, two):
        equal = next((i for i, pair in enumerate(zip(a["ids"], b["ids"])) if pair[0] != pair[1]),
                     len(a["ids"]))
        same, total = same + equal, total + len(a["ids"])
        for x, y in zip(a["logprobs"][:equal + 1], b["logprobs"]):
            worst = max([worst, *(abs(x[token] - y[token]) for token in x if token in y)])
        worst = max([worst, *(abs(x - y) for x, y in zip(a["prompt"], b["prompt"])
                              if x is not None)])
    return same, total, worst


def compared(jobs):
    """(what, whether it is right) of everything that is compared."""
    for stock, packed in plan.PAIRS:
        if packed in jobs and stock in jobs and jobs[packed]["ok"] and jobs[stock]["ok"]:
            same, total, worst = difference(jobs[stock]["outputs"], jobs[packed]["outputs"])
            yield (f"{packed}: {same} of {total} tokens of stock vLLM, logprobs differ by "
                   f"{worst:.3g}", same == total and worst <= plan.JOBS[packed].get("off", 0))
    for name, job in jobs.items():
        if "again" in job:
            same, total, worst = difference(job["outputs"], job["again"])
            yield f"{name}: {same} of {total} tokens once more, {worst:.3g}", same == total
        if "products" in job:
            yield f"{name}: products of {len(job['products'])} layers", bool(job["products"])
        for layer, off, most in job.get("products", []):
            yield f"{name}: {layer} off by {off:.3g} of {most:.3g}", off <= most * plan.JOBS[name]["bound"]
        for layer, off, size in job.get("experts", []):
            yield f"{name}: {layer} off by {off / size:.2g} of its size", off <= size * plan.JOBS[name]["experts"]


def main(out):
    jobs = read(out)
    show_times(jobs)
    passed, failed = sum(job["ok"] for job in jobs.values()), []
    failed += [f"{name}: {job.get('error')}" for name, job in jobs.items() if not job["ok"]]
    for what, right in compared(jobs):
        print("ok  " if right else "FAIL", what)
        passed += right
        failed += [] if right else [what]
    for what in failed:
        print("FAIL", what)
    print(f"{passed} passed, {len(failed)} failed")
    return bool(failed) or not jobs


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    sys.exit(main(sys.argv[1]))
