#!/usr/bin/env python3
"""Times conversions against `cp`, in one run, and writes a table and a picture.

    bench_e2e.py --program build/tilepack --dir build/bench [--rounds 5] [--default-search] [--format NAME]...

DIR/src is the checkpoint. Its files are read once first, so that the page cache is warm.
Then, round by round and format by format, in turns:
    cp --reflink=never of the input, and sync -f
    tilepack convert to the format, checksums and fsync on, without a search of scales
and, on the result, `tilepack verify` and `cat`. The stages measured alone are a read of
the input, by as many threads, and a write with fsync of as many bytes as the output has,
by one thread and by as many, with and without asking the disk to begin early: the
fastest counts. Medians are compared. Everything is written below DIR and removed again, but for
bench.md, bench.json and stages.svg.
"""
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

import measure

STAGES = ["read", "kernel", "hash", "write", "sync", "other"]
COLORS = ["#4477aa", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb"]


def startup_seconds(program):
    start = time.monotonic()
    subprocess.run([program, "--version"], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - start


def read_alone(paths, jobs):
    """Every block of the files into a buffer per thread, as a conversion reads."""
    blocks = measure.blocks_of(paths)
    fds = {p: os.open(p, os.O_RDONLY) for p in paths}

    def work(i):
        buffer = memoryview(bytearray(measure.BLOCK))
        for path, at in blocks[i::jobs]:
            os.preadv(fds[path], [buffer], at)

    seconds = measure.in_threads(jobs, work)
    for fd in fds.values():
        os.close(fd)
    return seconds


def write_once(sizes, directory, jobs, early):
    """As many files of the same sizes, block by block, each with one fsync."""
    fds = [os.open(os.path.join(directory, f"w{i}"), os.O_RDWR | os.O_CREAT)
           for i in range(len(sizes))]
    blocks = [(fd, at, min(measure.BLOCK, size - at))
              for fd, size in zip(fds, sizes) for at in range(0, size, measure.BLOCK)]
    data = os.urandom(measure.BLOCK)

    def work(i):
        for number, (fd, at, size) in enumerate(blocks[i::jobs]):
            os.pwrite(fd, memoryview(data)[:size], at)
            if early and i == 0 and (number + 1) * jobs % measure.BLOCKS_TO_WRITEBACK < jobs:
                measure.start_writeback(fd)

    start = time.monotonic()
    for fd, size in zip(fds, sizes):
        os.posix_fallocate(fd, 0, size)
    measure.in_threads(jobs, work)
    measure.in_threads(len(fds), lambda i: os.fsync(fds[i]))
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
        measure.run("cp", "-r", "--reflink=never", self.src, dst)
        measure.run("sync", "-f", dst)
        self.copies.append(time.monotonic() - start)
        shutil.rmtree(dst)
        return self.copies[-1]

    def note(self, fmt, key, value):
        self.times.setdefault(fmt, {}).setdefault(key, []).append(value)

    def convert(self, fmt):
        dst = self.fresh("out")
        args = [self.opt.program, "convert", self.src, "-o", dst, "--to", fmt, "--device", "cpu",
                "--jobs", str(self.opt.jobs), "--weights-only",
                *([] if self.opt.default_search else ["--search", "none"])]
        done = measure.run(*args, "--verbose")
        self.note(fmt, "convert", done.seconds)
        self.memory[fmt] = max(done.memory, self.memory.get(fmt, 0))
        for stage, value in stage_seconds(done.stderr).items():
            self.note(fmt, stage, value)
        paths = measure.files_of(dst)
        self.note(fmt, "bytes", measure.bytes_of(paths))
        self.note(fmt, "cat", measure.run("sh", "-c", 'cat "$@" >/dev/null', "cat",
                                           *paths).seconds)
        self.note(fmt, "verify", measure.run(self.opt.program, "verify", dst, "--jobs",
                                             str(self.opt.jobs)).seconds)
        self.note(fmt, "read alone", read_alone(measure.files_of(self.src), self.opt.jobs))
        self.note(fmt, "write alone", write_alone(paths, self.dir, self.opt.jobs))
        shutil.rmtree(dst)

    def run(self):
        formats = self.opt.format or measure.written_formats(self.opt.program)
        read_alone(measure.files_of(self.src), 1)  # first touch
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
        return {"input_bytes": measure.bytes_of(measure.files_of(self.src)),
                "jobs": self.opt.jobs, "rounds": self.opt.rounds, "startup": startup,
                "cp": statistics.median(self.copies), "cp_min": min(self.copies),
                "cp_max": max(self.copies), "formats": rows}


# ---- output -----------------------------------------------------------------------------

def slowest_alone(row):
    """The stage that would take longest if it were alone. Kernel and hash are those of the
    conversion itself, where they share the memory with the others."""
    return max(row["read alone"], row["write alone"], row["kernel"], row["hash"])


def table(result):
    rows = [["format", "output", "convert", "/ cp", "slowest stage alone", "reached", "verify",
             "/ cat", "memory"]]
    for fmt, r in result["formats"].items():
        alone = slowest_alone(r)
        rows.append([
            f"`{fmt}`", f"{r['bytes'] / 1e9:.2f} GB", f"{r['convert']:.2f} s",
            f"{r['convert'] / r['cp']:.2f}", f"{alone:.2f} s", f"{alone / r['convert']:.2f}",
            f"{r['verify']:.2f} s", f"{r['verify'] / r['cat']:.2f}",
            f"{r['memory'] / 2**20:.0f} MiB"])
    return (f"Conversions: `cp --reflink=never` of {result['input_bytes'] / 1e9:.2f} GB and "
            f"`sync -f`: {result['cp']:.2f} s ({result['cp_min']:.2f} to {result['cp_max']:.2f}); "
            f"{result['jobs']} threads, medians of {result['rounds']} rounds in turns; "
            f"`tilepack --version` {result['startup'] * 1e3:.1f} ms.\n\n" + measure.table(*rows))


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
    p = measure.options(__doc__, rounds=5)
    p.add_argument("--jobs", type=int, default=len(measure.processors()))
    p.add_argument("--default-search", action="store_true", help="as convert does by itself; else --search none")
    p.add_argument("--format", action="append", help="default: every format that is written")
    opt = p.parse_args(argv)
    result = Bench(opt).run()
    with open(os.path.join(opt.dir, "stages.svg"), "w", encoding="utf-8") as out:
        out.write(picture(result))
    measure.save(opt.dir, "bench", table(result), result)


if __name__ == "__main__":
    main(sys.argv[1:])
