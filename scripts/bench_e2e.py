#!/usr/bin/env python3
"""Times conversions against `cp`, in one run, and writes a table and a picture.

    bench_e2e.py --program build/tilepack --dir build/bench [--rounds 5] [--format NAME]...

DIR/src is the checkpoint. Its files are read once first, so that the page cache is warm.
Then, round by round and format by format, in turns:
    cp --reflink=never of the input, and sync -f
    tilepack convert to the format, checksums and fsync on
    the same with --jobs 1, and both without writing
and, on the result, `tilepack verify` and `cat`. The stages measured alone are a read of
the input, by as many threads, and a write with fsync of as many bytes as the output has,
by one thread and by as many, with and without asking the disk to begin early: the
fastest counts. Medians are compared. Everything is written below DIR and removed again, but for
bench.md, bench.json and stages.svg.
"""
import argparse
import ctypes
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time

STAGES = ["read", "kernel", "hash", "write", "sync", "other"]
COLORS = ["#4477aa", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb"]
BLOCK = 1 << 20


def peak(child):
    """The largest resident set so far, in bytes. (What wait() reports for a child counts
    the memory of the Python that forked it.)"""
    try:
        with open(f"/proc/{child.pid}/status", encoding="ascii") as f:
            return next((int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def run(*args):
    """(seconds, peak memory in bytes, stderr) of a command; it must succeed."""
    start = time.monotonic()
    child = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    memory, ended = [0], threading.Event()

    def watch():
        # Often at first, so that a run of milliseconds is seen; then it should not disturb.
        while not ended.wait(0.0005 if len(memory) < 100 else 0.01):
            memory.append(peak(child))

    watcher = threading.Thread(target=watch)
    watcher.start()
    text = child.stderr.read()
    status = child.wait()
    seconds = time.monotonic() - start
    ended.set()
    watcher.join()
    if status:
        raise SystemExit(f"bench: {' '.join(args)}: status {status}\n{text}")
    return seconds, max(memory), text


def startup_seconds(program):
    start = time.monotonic()
    subprocess.run([program, "--version"], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - start


def files_of(path):
    return sorted(os.path.join(path, n) for n in os.listdir(path) if n.endswith(".safetensors"))


def in_threads(count, work):
    """Seconds that work(i), i < count, takes in so many threads."""
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    start = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return time.monotonic() - start


def read_alone(paths, jobs):
    """Every block of the files into a buffer per thread, as a conversion reads."""
    blocks = [(p, at) for p in paths for at in range(0, os.path.getsize(p), BLOCK)]
    fds = {p: os.open(p, os.O_RDONLY) for p in paths}

    def work(i):
        buffer = memoryview(bytearray(BLOCK))
        for path, at in blocks[i::jobs]:
            os.preadv(fds[path], [buffer], at)

    seconds = in_threads(jobs, work)
    for fd in fds.values():
        os.close(fd)
    return seconds


def start_writeback(fd):
    """What tilepack does on the way: the disk begins, nobody waits for its end."""
    ctypes.CDLL(None).sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), 2)


def write_once(sizes, directory, jobs, early):
    """As many files of the same sizes, block by block, each with one fsync."""
    fds = [os.open(os.path.join(directory, f"w{i}"), os.O_RDWR | os.O_CREAT)
           for i in range(len(sizes))]
    blocks = [(fd, at, min(BLOCK, size - at))
              for fd, size in zip(fds, sizes) for at in range(0, size, BLOCK)]
    data = os.urandom(BLOCK)

    def work(i):
        for number, (fd, at, size) in enumerate(blocks[i::jobs]):
            os.pwrite(fd, memoryview(data)[:size], at)
            if early and i == 0 and number % (32 // jobs) == 31 // jobs:
                start_writeback(fd)

    start = time.monotonic()
    for fd, size in zip(fds, sizes):
        os.posix_fallocate(fd, 0, size)
    in_threads(jobs, work)
    in_threads(len(fds), lambda i: os.fsync(fds[i]))
    seconds = time.monotonic() - start
    for i, fd in enumerate(fds):
        os.close(fd)
        os.unlink(os.path.join(directory, f"w{i}"))
    return seconds


def write_alone(paths, directory, jobs):
    sizes = [os.path.getsize(p) for p in paths]
    ways = {(1, True), (jobs, True), (1, False)}
    return min(write_once(sizes, directory, threads, early) for threads, early in sorted(ways))


def stage_seconds(text):
    """Seconds of each stage, divided by the workers: so that they add up to the time."""
    line = re.search(r"seconds of (\d+) workers: (.*); ([\d.]+) in all", text)
    parts = dict(p.split(" ") for p in line[2].split(", "))
    return {name: float(parts[name]) / int(line[1]) for name in STAGES}


class Bench:
    def __init__(self, opt):
        self.opt = opt
        self.src, self.dir = os.path.join(opt.dir, "src"), opt.dir
        self.copies, self.times, self.memory = [], {}, {}

    def fresh(self, name):
        path = os.path.join(self.dir, name)
        shutil.rmtree(path, ignore_errors=True)
        return path

    def copy(self):
        dst = self.fresh("copy")
        start = time.monotonic()
        run("cp", "-r", "--reflink=never", self.src, dst)
        run("sync", "-f", dst)
        self.copies.append(time.monotonic() - start)
        shutil.rmtree(dst)
        return self.copies[-1]

    def note(self, fmt, key, value):
        self.times.setdefault(fmt, {}).setdefault(key, []).append(value)

    def convert(self, fmt):
        dst = self.fresh("out")
        args = [self.opt.program, "convert", self.src, "-o", dst, "--to", fmt, "--device", "cpu",
                "--jobs", str(self.opt.jobs)]
        seconds, memory, text = run(*args, "--verbose")
        self.note(fmt, "convert", seconds)
        self.memory[fmt] = max(memory, self.memory.get(fmt, 0))
        for stage, value in stage_seconds(text).items():
            self.note(fmt, stage, value)
        self.fresh("out")
        self.note(fmt, "one thread", run(*args[:-1], "1")[0])
        for jobs, name in ((self.opt.jobs, "discard"), (1, "discard one")):
            self.note(fmt, name, run(self.opt.program, "convert", self.src, "--discard", "--to",
                                     fmt, "--device", "cpu", "--jobs", str(jobs))[0])
        paths = files_of(dst)
        self.note(fmt, "bytes", sum(map(os.path.getsize, paths)))
        self.note(fmt, "cat", run("sh", "-c", 'cat "$@" >/dev/null', "cat", *paths)[0])
        self.note(fmt, "verify", run(self.opt.program, "verify", dst, "--jobs",
                                     str(self.opt.jobs))[0])
        self.note(fmt, "read alone", read_alone(files_of(self.src), self.opt.jobs))
        self.note(fmt, "read one", read_alone(files_of(self.src), 1))
        self.note(fmt, "write alone", write_alone(paths, self.dir, self.opt.jobs))
        shutil.rmtree(dst)

    def run(self):
        formats = self.opt.format or written_formats(self.opt.program)
        read_alone(files_of(self.src), 1)  # first touch
        self.copy()
        self.convert(formats[0])
        self.copies, self.times, self.memory = [], {}, {}
        for number in range(self.opt.rounds):
            for fmt in formats:
                if sys.stderr.isatty():
                    print(f"round {number + 1} of {self.opt.rounds}: {fmt}   ", end="\r",
                          file=sys.stderr)
                self.note(fmt, "cp", self.copy())  # compared with that of its own turn
                self.convert(fmt)
        if sys.stderr.isatty():
            print(" " * 60, end="\r", file=sys.stderr)
        return self.result(formats)

    def result(self, formats):
        startup = statistics.median(startup_seconds(self.opt.program) for _ in range(51))
        rows = {}
        for fmt in formats:
            rows[fmt] = {k: statistics.median(v) for k, v in self.times[fmt].items()}
            rows[fmt]["memory"] = self.memory[fmt]
        return {"input_bytes": sum(map(os.path.getsize, files_of(self.src))),
                "jobs": self.opt.jobs, "rounds": self.opt.rounds, "startup": startup,
                "cp": statistics.median(self.copies), "cp_min": min(self.copies),
                "cp_max": max(self.copies), "formats": rows}


def written_formats(program):
    done = subprocess.run([program, "formats", "--json"], stdout=subprocess.PIPE, check=True)
    return [f["name"] for f in json.loads(done.stdout)["formats"] if not f.get("input_only")]


# ---- output -----------------------------------------------------------------------------

def slowest_alone(row):
    """The stage that would take longest if it were alone. Kernel and hash are those of the
    conversion itself, where they share the memory with the others."""
    return max(row["read alone"], row["write alone"], row["kernel"], row["hash"])


def table(result):
    lines = [
        f"Conversions: `cp --reflink=never` of {result['input_bytes'] / 1e9:.2f} GB and `sync -f`: "
        f"{result['cp']:.2f} s ({result['cp_min']:.2f} to {result['cp_max']:.2f}); "
        f"{result['jobs']} threads, medians of {result['rounds']} rounds in turns; "
        f"`tilepack --version` {result['startup'] * 1e3:.1f} ms.", "",
        "| format | output | convert | / cp | slowest stage alone | reached | verify | / cat | "
        f"1 -> {result['jobs']} threads | nothing written | reading alone | memory |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for fmt, r in result["formats"].items():
        alone = slowest_alone(r)
        lines.append(
            f"| `{fmt}` | {r['bytes'] / 1e9:.2f} GB | {r['convert']:.2f} s | "
            f"{r['convert'] / r['cp']:.2f} | {alone:.2f} s | {alone / r['convert']:.2f} | "
            f"{r['verify']:.2f} s | {r['verify'] / r['cat']:.2f} | "
            f"{r['one thread'] / r['convert']:.2f} | {r['discard one'] / r['discard']:.2f} | "
            f"{r['read one'] / r['read alone']:.2f} | {r['memory'] / 2**20:.0f} MiB |")
    return "\n".join(lines) + "\n"


def picture(result):
    """A bar for each format, cut into stages; the time of cp is a line across them."""
    formats = result["formats"]
    left, top, bar, width = 170, 60, 22, 620
    longest = max([result["cp"]] + [sum(r[s] for s in STAGES) for r in formats.values()])
    scale = width / (longest * 1.05)
    height = top + bar * len(formats) + 50
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 30}" '
           f'height="{height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="10" y="20" font-size="14">tilepack convert, '
           f'{result["input_bytes"] / 1e9:.2f} GB, {result["jobs"]} threads: seconds by stage'
           '</text>']
    for i, (stage, color) in enumerate(zip(STAGES, COLORS)):
        svg.append(f'<rect x="{left + 85 * i}" y="32" width="12" height="12" fill="{color}"/>'
                   f'<text x="{left + 85 * i + 17}" y="43">{stage}</text>')
    for i, (fmt, row) in enumerate(formats.items()):
        y, x = top + bar * i, float(left)
        svg.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{fmt}</text>')
        for stage, color in zip(STAGES, COLORS):
            svg.append(f'<rect x="{x:.1f}" y="{y + 2}" width="{row[stage] * scale:.1f}" '
                       f'height="{bar - 5}" fill="{color}"><title>{fmt}: {stage} '
                       f'{row[stage]:.3f} s</title></rect>')
            x += row[stage] * scale
        svg.append(f'<text x="{x + 5:.1f}" y="{y + 15}">{row["convert"]:.2f} s</text>')
    x, end = left + result["cp"] * scale, top + bar * len(formats)
    svg.append(f'<line x1="{x:.1f}" y1="{top - 4}" x2="{x:.1f}" y2="{end + 4}" stroke="black" '
               f'stroke-dasharray="4 3"/><text x="{x:.1f}" y="{end + 18}" text-anchor="middle">'
               f'cp and sync {result["cp"]:.2f} s</text>')
    svg.append(f'<text x="{left}" y="{end + 38}" fill="#555">A bar is the mean of the workers; '
               f'input in the page cache, checksums and fsync on.</text></svg>')
    return "\n".join(svg) + "\n"


def main(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--program", required=True)
    p.add_argument("--dir", required=True)
    p.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS", "5")))
    p.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--format", action="append", help="default: every format that is written")
    opt = p.parse_args(argv)
    result = Bench(opt).run()
    outputs = {"bench.md": table(result), "stages.svg": picture(result),
               "bench.json": json.dumps(result, indent=2) + "\n"}
    for name, text in outputs.items():
        with open(os.path.join(opt.dir, name), "w", encoding="utf-8") as out:
            out.write(text)
    print(outputs["bench.md"])
    print(f"{opt.dir}/bench.md, bench.json, stages.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
