#!/usr/bin/env python3
"""out_of_memory.py SHIM WORK [COMMAND ...]

Every allocation of the whole process fails once, whoever makes it: the C library, jansson,
PCRE2, zstd or the program (tests/tools/malloc_fails.c, preloaded). Each run of each command
either says "out of memory" and ends with status 6, or does and says exactly what it does with
enough memory. Nothing else: no other sentence, no JSON without some members, no other bytes.

TILEPACK_TEST_POINTS: how many calls of each command fail in turn, spread evenly (default 30);
TILEPACK_TEST_LONG: all of them, which takes an hour.
"""
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
sys.path.insert(0, os.path.join(HERE, "..", "long"))
import sparse  # noqa: E402
import tool  # noqa: E402

LONG = bool(os.environ.get("TILEPACK_TEST_LONG"))
POINTS = int(os.environ.get("TILEPACK_TEST_POINTS", "30"))
WEIGHT = "model.layers.0.self_attn.q_proj"

# Every command, as a user types it; {out} is made anew for each run, {src} and the others are
# there. What is written to {out} is compared, too.
COMMANDS = [
    "formats",
    "formats nvfp4-blocked --json",
    "plan {src} --to w4a8-cutlass",
    "plan {src} --to nvfp4-ct --json --verbose",
    "plan {src} --recipe {recipe} --json",
    "plan {src} --to mxfp8-ct --include mlp --exclude glob:*.0.* --tp 2",
    "dump {src}",
    "dump {packed} --json",
    "dump {packed} {weight}",
    "dump {packed} {weight} --at 3,5",
    "dump {packed} {weight} --at 3,5 --json",
    "dump {packed} {weight} --values 0:4,0:8 --json",
    "convert {src} -o {out} --to w4a8-cutlass -q",
    "convert {src} -o {out} --to nvfp4-blocked -q --include mlp",
    "convert {src} -o {out} --to mxfp4-ct -q --zstd",
    "convert {src} -o {out} --to fp8-deepseek -q --tp 2 --shard-size 100kB",
    "convert {src} -o {out} --to w4a8-ct -q --search mse",
    "convert {src} -o {out} --to mxfp8-ct --json -n --strict --exclude lm_head",
    "convert {src} -o {out} --to mxfp8-blocked -q --part 1/2",
    "convert {src} -o {done} --to w4a8-cutlass",
    "unpack {packed} -o {out} -q",
    "unpack {packed} -o {out} -q --to w4a8-ct",
    "verify {packed} -q",
    "verify {packed} --against {src} --json",
    "verify {zst} --json",
    "diff {packed} {src} --json",
    "join {cut} -o {out} -q",
    "merge {out} -q",
    "schedule {packed} --m 1,64 --json",
    "schedule --shape 4096,4096 --m 64 --why",
]


def digest(path):
    """One text for everything below a path, or None where there is nothing."""
    if os.path.isfile(path):
        with open(path, "rb") as f:
            return hashlib.blake2b(f.read()).hexdigest()
    if not os.path.isdir(path):
        return None
    return [(name, digest(os.path.join(path, name))) for name in sorted(os.listdir(path))]


def timeless(text):
    """What differs from run to run: times and rates."""
    return re.sub(rb'("seconds": *)[0-9.e-]+|\d+(\.\d+)? (s|ms|[MG]B/s)\b', rb"\1", text)


class Command:
    """One command line with a folder of its own."""

    def __init__(self, shim, work, text):
        self.work, self.text, self.shim = work, text, shim
        self.out = os.path.join(work, f"out-{os.getpid()}")
        self.argv = [word.format(out=self.out, weight=WEIGHT,
                                 **{n: os.path.join(work, n) for n in
                                    ("src", "packed", "zst", "cut", "done", "recipe")})
                     for word in text.split()]

    def run(self, point=None, count=None):
        """(exit status, stdout, stderr, what was written)"""
        partial = self.out + ".partial"
        for name in (self.out, partial):
            shutil.rmtree(name, ignore_errors=True)
        if self.argv[0] == "merge":
            shutil.copytree(os.path.join(self.work, "parts.partial"), partial)
        env = {**os.environ, "LD_PRELOAD": self.shim, "TILEPACK_JOBS": "1"}
        if point:
            env["MALLOC_FAILS_AT"] = str(point)
        if count:
            env["MALLOC_FAILS_COUNT"] = count
        done = subprocess.run([tool.binary()] + self.argv, env=env, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=60, check=False)
        out = self.out.encode()
        written = (digest(self.out), digest(partial)) if done.returncode in (0, 1) else None
        return (done.returncode, timeless(done.stdout.replace(out, b"OUT")),
                timeless(done.stderr.replace(out, b"OUT")), written)

    def count(self):
        """What run() says with enough memory, and the number of its allocations."""
        counter = os.path.join(self.work, f"count-{os.getpid()}")
        whole = self.run(count=counter)
        with open(counter, encoding="ascii") as f:
            return whole, int(f.read())


def judge(whole, got):
    """None, or what is wrong with it."""
    if got[0] == 6:
        said = re.search(rb"^tilepack( \w+|: error): .*(out of|no|allocate|enough) memory", got[2], re.M)
        return None if said else f"status 6 without its sentence: {got[2][:300]!r}"
    if got == whole:
        return None
    what = next(name for name, a, b in zip(("status", "stdout", "stderr", "output"), whole, got)
                if a != b)
    return f"another {what}: status {got[0]}, {got[2][:300]!r}"


def spread(first, last, points):
    """So many numbers of [first, last], both ends among them."""
    points = min(points, last - first + 1)
    return {first + i * (last - first) // max(points - 1, 1) for i in range(points)}


def chosen(count, parsing):
    """The numbers of the calls that fail: all, or a few while the formats are parsed, which
    every command begins with, and more of its own."""
    if LONG or count <= POINTS:
        return range(1, count + 1)
    if count <= parsing:
        return sorted(spread(1, count, POINTS))
    return sorted(spread(1, parsing, POINTS // 6) |
                  spread(parsing + 1, count, POINTS - POINTS // 6))


def sweep(job):
    """(command, points, complaints) of one command."""
    shim, work, text, parsing = job
    command = Command(shim, work, text)
    whole, count = command.count()
    if whole[0] not in (0, 1):
        return text, 0, [f"status {whole[0]} with enough memory: {whole[2]!r}"]
    points = chosen(count, parsing)
    wrong = []
    for point in points:
        complaint = judge(whole, command.run(point))
        if complaint:
            wrong.append(f"call {point} of {count}: {complaint}")
    return text, len(points), wrong


def prepare(work):
    """A checkpoint with patterns in its config, and what the program makes of it."""
    at = {n: os.path.join(work, n) for n in ("src", "packed", "zst", "cut", "done", "parts", "recipe")}
    sparse.make(at["src"], tensors=24, shards=2, experts=2, hidden=256, inner=256)
    with open(os.path.join(at["src"], "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": "qwen3_moe", "hidden_size": 256, "note": "\u00e4\u200b\u2028",
                   "quantization_config": {"ignore": ["lm_head", "re:.*gate$"]}}, f)
    with open(at["recipe"], "w", encoding="utf-8") as f:
        json.dump({"rules": [{"match": "mlp", "to": "w4a8-cutlass"},
                             {"match": ".*", "to": "mxfp8-blocked", "set": {}}]}, f)
    to = ("--to", "w4a8-cutlass", "-q")
    for name in ("packed", "done"):
        tool.run("convert", at["src"], "-o", at[name], *to)
    tool.run("convert", at["src"], "-o", at["zst"], *to, "--zstd")
    tool.run("convert", at["src"], "-o", at["cut"], *to, "--tp", "2")
    for part in ("1/2", "2/2"):
        tool.run("convert", at["src"], "-o", at["parts"], *to, "--part", part)


def main():
    shim, work = sys.argv[1:3]
    tally = tool.Tally()
    prepare(work)
    parsing = Command(shim, work, "formats").count()[1] - 10  # the rest of it is its own
    jobs = [(shim, work, text, parsing) for text in sys.argv[3:] or COMMANDS]
    with multiprocessing.Pool(2) as pool:
        for text, points, wrong in pool.imap(sweep, jobs, 1):
            tally.check(not wrong, f"{text}: {points} allocations failed in turn")
            for line in wrong[:None if LONG else 5]:
                print("    " + line)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
