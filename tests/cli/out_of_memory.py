#!/usr/bin/env python3
"""out_of_memory.py [--jobs N] [--seconds S] [--report FILE] SHIM WORK [COMMAND ...]

Every allocation of the whole process fails once, whoever makes it: the C library, jansson,
PCRE2, zstd or the program (tests/tools/malloc_fails.c, preloaded), some with all that follow. Each
run of each command either says "out of memory" and ends with status 6, or does and says exactly
what it does with enough memory. Nothing else: no other sentence, no JSON without some members, no
other bytes. With status 6, too, stdout of --json is a whole object, and a page or picture is not
there or whole.

TILEPACK_TEST_POINTS: how many calls of each command fail in turn, spread evenly (default 30);
TILEPACK_TEST_LONG: all of them, which takes six processor hours. Then first come each command's
own calls; then those while the formats are parsed, which is the same in every command, divided
among the commands; then the rest. --seconds ends it wherever it is, and --report holds how far
each command has come, renewed every 5 seconds.
"""
import argparse
import functools
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
sys.path.insert(0, os.path.join(HERE, "..", "long"))
import sparse  # noqa: E402
import tool  # noqa: E402

LONG = bool(os.environ.get("TILEPACK_TEST_LONG"))
POINTS = int(os.environ.get("TILEPACK_TEST_POINTS", "30"))
LAST = 3  # of these that come right before the last call
ROWS = 30  # so many more of a command that prints a table at its end
ONWARD = 4  # of so many calls one fails with all that follow
CHUNK = 50  # calls that fail in one piece of work
EARLY = 200  # calls of a command that may come before the formats are parsed
WEIGHT = "model.layers.0.self_attn.q_proj"

# Every command, as a user types it; {out} is made anew for each run, {src} and the others are
# there. What is written to {out} is compared, too.
COMMANDS = [
    "formats",
    "formats nvfp4-blocked --json",
    "formats --gpu h100 --json",
    "suggest {src} --gpu h100 --gpus 2",
    "suggest {packed} --gpu a100 --json",
    "models",
    "models llama",
    "completions bash",
    "plan {src} --to w4a8-cutlass",
    "plan {src} --to nvfp4-ct --json --verbose",
    "plan {src} --recipe {recipe} --json",
    "plan {src} --to mxfp8-ct --include mlp --exclude glob:*.0.*",
    "dump {src}",
    "dump {packed} --json",
    "dump {packed} {weight}",
    "dump {packed} {weight} --at 3,5",
    "dump {packed} {weight} --at 3,5 --json",
    "dump {packed} {weight} --offset 100",
    "dump {packed} {weight} --values 0:4,0:8 --json",
    "dump {packed} {weight} --svg {out}.svg -q",
    "dump {packed} {weight} --html {out}.html --json",
    "compare {src} --to w4a8-ct --html {out}.html --json",
    "recipe {src} --bits 9 --formats w4a8-ct,mxfp8-ct,bf16 -o {out}.json --html {out}.html",
    "convert {src} -o {out} --to w4a8-cutlass -q",
    "convert {src} -o {out} --to w4a8-ct",
    "convert {src} -o {out} --to nvfp4-blocked -q --include mlp",
    "convert {src} -o {out} --to mxfp4-ct -q --zstd",
    "convert {src} -o {out} --to fp8-deepseek -q --shard-size 100kB",
    "convert {src} -o {out} --to w4a8-ct -q --search mse",
    "convert {src} -o {out} --to mxfp8-ct --json -n --strict --exclude lm_head",
    "convert {src} -o {out} --to mxfp8-blocked -q --part 1/2",
    "convert {src} -o {done} --to w4a8-cutlass",
    "unpack {packed} -o {out} -q",
    "unpack {packed} -o {out} -q --to w4a8-ct",
    "verify {packed} -q",
    "verify {packed} --against {src} --json",
    "verify {packed} --against {src} -v",
    "verify {zst} --json",
    "diff {packed} {src} --json",
    "diff {packed} {packed} -v",
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
        self.done = os.path.join(work, f"done-{os.getpid()}")
        self.argv = [word.format(out=self.out, done=self.done, weight=WEIGHT,
                                 **{n: os.path.join(work, n) for n in
                                    ("src", "packed", "zst", "recipe")})
                     for word in text.split()]
        self.pages = [word for word in self.argv
                      if word.startswith(self.out) and word.endswith((".html", ".svg"))]
        if "{done}" in text and not os.path.isdir(self.done):  # a process has it for itself
            shutil.copytree(os.path.join(work, "done"), self.done)

    def run(self, point=None, count=None, onward=False):
        """(exit status, stdout, stderr, what was written); `onward`: all calls from there fail"""
        partial = self.out + ".partial"
        parts = [f"{self.out}.part-{i}-of-2" for i in (1, 2)]
        for name in (self.out, partial, *parts, *(part + ".partial" for part in parts)):
            shutil.rmtree(name, ignore_errors=True)
        for page in self.pages:
            if os.path.exists(page):
                os.unlink(page)
        if self.argv[0] == "merge":
            for part in parts:
                shutil.copytree(os.path.join(self.work, "parts" + part[len(self.out):]), part)
        env = {**os.environ, "LD_PRELOAD": self.shim, "TILEPACK_JOBS": "1"}
        if point:
            env["MALLOC_FAILS_AT"] = str(point)
        if onward:
            env["MALLOC_FAILS_ON"] = "1"
        if count:
            env["MALLOC_FAILS_COUNT"] = count
        done = subprocess.run([tool.binary()] + self.argv, env=env, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=60, check=False)
        written = None
        if done.returncode in (0, 1):
            written = [digest(path) for path in (*self.pages, self.out, partial, *parts)]
        return (done.returncode, *(self.nameless(timeless(text))
                                   for text in (done.stdout, done.stderr)), written)

    def nameless(self, text):
        """What differs from process to process: the names of its own folders."""
        return text.replace(self.out.encode(), b"OUT").replace(self.done.encode(), b"DONE")

    def count(self):
        """What run() says with enough memory, and the number of its allocations."""
        counter = os.path.join(self.work, f"count-{os.getpid()}")
        whole = self.run(count=counter)
        with open(counter, encoding="ascii") as f:
            return whole, int(f.read())


def whole_json(text):
    """Whether it is a JSON value as a whole."""
    try:
        return json.loads(text) is not None
    except ValueError:
        return False


def judge(command, whole, got):
    """None, or what is wrong with it."""
    if got[0] == 6:
        if "--json" in command.argv and not whole_json(got[1]):
            return f"status 6 and no JSON value as a whole, {len(got[1])} bytes: {got[1][-300:]!r}"
        if any(digest(page) not in (None, right)
               for page, right in zip(command.pages, whole[3])):
            return "status 6 and another page"
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


def chosen(text, count, parsing):
    """The numbers of the calls that fail: a few while the formats are parsed, which every
    command begins with, and more of its own; the last ones, with which a result is printed."""
    if text.endswith(" -v"):
        return sorted({*range(max(count - ROWS, 1), count), *few(count, parsing)})
    return few(count, parsing)


def few(count, parsing):
    """As many as of a command that prints no table."""
    if count <= POINTS:
        return range(1, count + 1)
    if count <= parsing:
        return sorted(spread(1, count, POINTS - LAST) | set(range(count - LAST, count)))
    return sorted(spread(1, parsing, POINTS // 6) |
                  spread(parsing + 1, count, POINTS - POINTS // 6 - LAST) |
                  set(range(count - LAST, count)))


def stages(number, commands, count, parsing):
    """All calls of one command in the order of what is most worth knowing: its own, its share
    of those that are the same in every command, the rest of them."""
    own = [n for n in range(1, count + 1) if n <= EARLY or n > parsing]
    shared = range(EARLY + 1, min(parsing, count) + 1)
    rest = (shared[(number + k) % commands::commands] for k in range(1, commands))
    return own, shared[number::commands], [n for share in rest for n in share]


class Progress:
    """How far a command has come, and what was wrong."""

    def __init__(self, number, commands, measured, parsing):
        self.text, whole, self.count = measured
        self.stages, self.reached, self.wrong = [], [], []
        if whole[0] not in (0, 1):
            self.wrong.append(f"status {whole[0]} with enough memory: {whole[2]!r}")
        elif LONG:
            self.stages = stages(number, commands, self.count, parsing)
        else:
            self.stages = [chosen(self.text, self.count, parsing)]
        self.reached = [0] * len(self.stages)

    def units(self):
        """(stage, how far into it, calls) of each piece of work, whose calls are spread evenly
        over the whole stage."""
        for stage, points in enumerate(self.stages):
            pieces = -(-len(points) // CHUNK)
            for piece in range(pieces):
                yield stage, piece / pieces, points[piece::pieces]

    def take(self, stage, points, wrong):
        self.reached[stage] += points
        self.wrong += wrong

    def told(self):
        names = ("own", "of its share of the parsing", "of the rest") if LONG else ("chosen",)
        return f"{self.text}: {self.count} calls; " + ", ".join(
            f"{reached} of {len(points)} {name}"
            for name, reached, points in zip(names, self.reached, self.stages)) + (
            f"; {len(self.wrong)} WRONG" if self.wrong else "")


@functools.lru_cache(maxsize=None)
def with_enough(shim, work, text):
    """(the command, what it does with enough memory, its allocations) of this process"""
    command = Command(shim, work, text)
    return command, *command.count()


def measure(job):
    """(text, what it does with enough memory, its allocations)"""
    return job[2], *with_enough(*job)[1:]


def sweep(unit):
    """(number of the command, stage, points, complaints) of one piece of work"""
    job, number, stage, points = unit
    command, whole, count = with_enough(*job)
    wrong = []
    for i, point in enumerate(points):
        for onward in (False, True) if LONG else (i % ONWARD == 0,):
            try:
                complaint = judge(command, whole, command.run(point, onward=onward))
            except subprocess.TimeoutExpired:
                complaint = "it does not end"
            if complaint:
                wrong.append(f"call {point}{' and on' if onward else ''} of {count}: {complaint}")
    return number, stage, len(points), wrong


def prepare(work):
    """A checkpoint with patterns in its config, and what the program makes of it."""
    at = {n: os.path.join(work, n) for n in ("src", "packed", "zst", "done", "parts", "recipe")}
    sparse.make(at["src"], tensors=24, shards=2, experts=2, hidden=256, inner=256)
    with open(os.path.join(at["src"], "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": "qwen3_moe", "hidden_size": 256, "note": "\u00e4\u200b\u2028",
                   "quantization_config": {"limit": 2 ** 64, "ignore": ["lm_head", "re:.*gate$"]}}, f)
    for name in ("Config.json", "consolidated.pth"):  # which are warned of
        with open(os.path.join(at["src"], name), "w", encoding="utf-8") as f:
            f.write("{}")
    with open(at["recipe"], "w", encoding="utf-8") as f:
        json.dump({"rules": [{"match": "mlp", "to": "w4a8-cutlass"},
                             {"match": ".*", "to": "mxfp8-blocked", "set": {}}]}, f)
    to = ("--to", "w4a8-cutlass", "-q")
    for name in ("packed", "done"):
        tool.run("convert", at["src"], "-o", at[name], *to)
    tool.run("convert", at["src"], "-o", at["zst"], *to, "--zstd")
    for part in ("1/2", "2/2"):
        tool.run("convert", at["src"], "-o", at["parts"], *to, "--part", part)


def write_report(path, progress):
    if not path:
        return
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.writelines(f"{command.told()}\n" + "".join(f"    {line}\n" for line in command.wrong[:5])
                     for command in progress)
        f.write(f"{sum(sum(command.reached) for command in progress)} calls failed in turn, "
                f"{sum(len(command.wrong) for command in progress)} wrong\n")
    os.replace(path + ".new", path)


def work_through(pool, jobs, progress, options):
    """Everything in its order, until it is done or the time is up."""
    units = sorted(((stage, place, number, points)
                    for number, command in enumerate(progress)
                    for stage, place, points in command.units()), key=lambda unit: unit[:3])
    results = pool.imap_unordered(sweep, [(jobs[number], number, stage, points)
                                          for stage, _, number, points in units])
    told = 0
    for number, stage, points, wrong in results:
        progress[number].take(stage, points, wrong)
        if time.monotonic() > told + 5:
            told = time.monotonic()
            write_report(options.report, progress)
        if options.end and time.monotonic() > options.end:
            break
    write_report(options.report, progress)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--report")
    parser.add_argument("shim")
    parser.add_argument("work")
    parser.add_argument("commands", nargs="*", default=COMMANDS)
    options = parser.parse_args()
    options.end = options.seconds and time.monotonic() + options.seconds
    return options


def main():
    options = arguments()
    tally = tool.Tally()
    prepare(options.work)
    place = options.shim, options.work
    parsing = Command(*place, "formats").count()[1] - 10  # the rest of it is its own
    jobs = [(*place, text) for text in options.commands]
    with multiprocessing.Pool(options.jobs) as pool:
        progress = [Progress(number, len(jobs), measured, parsing)
                    for number, measured in enumerate(pool.map(measure, jobs, 1))]
        work_through(pool, jobs, progress, options)
    for command in progress:
        reached, wanted = sum(command.reached), sum(map(len, command.stages))
        tally.check(not command.wrong, f"{command.text}: "
                    f"{reached if reached == wanted else f'{reached} of {wanted}'} "
                    "allocations failed in turn")
        for line in command.wrong[:None if LONG else 5]:
            print("    " + line)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
