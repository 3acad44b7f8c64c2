#!/usr/bin/env python3
"""One processor against several: whole conversions beside a loop that only copies.

    bench_threads.py --program build/tilepack --dir build/bench [--rounds 5] [--format NAME]...

A conversion with --jobs 1 still has helpers (the thread that asks the disk to begin, the
kernel's own readahead), so both sides are pinned: `taskset -c 0` with --jobs 1 against
`taskset -c 0,1` with --jobs 2. In the same turn, and pinned alike, run the loops that only
move bytes, one process on each processor:
    copy  pread of every block of the input, pwrite of as many bytes as the conversion
          writes, each process to a file of its own, and fsync
    read  the same without writing, beside `convert --discard`
`scaling` is the time on one processor divided by that on all of them, `reached` the scaling
of the conversion divided by that of its loop. `busy` is the CPU time of the conversion on
all processors as a part of the time they had, `more work` its CPU time there divided by that
on one: what is lost for want of something to do shows in the first, what is lost to waiting
for memory and locks in the second. The best times are compared, those in which nobody else
had the processors. DIR/src is the checkpoint (bench.sh makes it), in the page cache. Writes
threads.md and threads.json below DIR.
"""
import os
import shutil
import sys

import measure

TARGET = 0.90


def move(paths, cpus, directory=None, size=0):
    """Seconds to read the files and write `size` bytes, shared among processes."""
    blocks = measure.blocks_of(paths)
    names = [os.path.join(directory or "", f"copy{i}") for i in range(len(cpus))]

    def work(i):
        fds = {p: os.open(p, os.O_RDONLY) for p in paths}
        buffer = memoryview(bytearray(measure.BLOCK))
        own, at = blocks[i::len(cpus)], 0
        end = size // len(cpus)
        out = os.open(names[i], os.O_RDWR | os.O_CREAT | os.O_TRUNC) if size else -1
        if size:
            os.posix_fallocate(out, 0, end)
        for number, (path, offset) in enumerate(own, 1):
            os.preadv(fds[path], [buffer], offset)
            if size:
                part = end * number // len(own) - at
                os.pwrite(out, buffer[:part], at)
                at += part
                if number % measure.BLOCKS_TO_WRITEBACK == 0:
                    measure.start_writeback(out)
        if size:
            os.fsync(out)

    seconds = measure.in_processes(cpus, work)
    for name in names if size else ():
        os.unlink(name)
    return seconds


class Bench:
    def __init__(self, opt):
        self.opt = opt
        self.cpus = measure.processors()[:opt.jobs]
        self.source = os.path.join(opt.dir, "src")
        self.out = os.path.join(opt.dir, "out")
        self.paths = measure.files_of(self.source)

    def convert(self, fmt, cpus, *where):
        return measure.run(self.opt.program, "convert", self.source, *where, "--to", fmt,
                           "--device", "cpu", "--quiet", "--jobs", str(len(cpus)), cpus=cpus)

    def turn(self, fmt):
        """Every time of one round, by (what, processors)."""
        times = {}
        for cpus in (self.cpus[:1], self.cpus):
            shutil.rmtree(self.out, ignore_errors=True)
            times["convert", len(cpus)] = self.convert(fmt, cpus, "-o", self.out)
            size = measure.bytes_of(measure.files_of(self.out))
            shutil.rmtree(self.out)
            times["copy", len(cpus)] = move(self.paths, cpus, self.opt.dir, size)
            times["discard", len(cpus)] = self.convert(fmt, cpus, "--discard")
            times["read", len(cpus)] = move(self.paths, cpus)
        return times

    def run(self):
        move(self.paths, self.cpus)  # first touch
        result = {"jobs": len(self.cpus), "rounds": self.opt.rounds, "formats": {}}
        turns = {fmt: [] for fmt in self.opt.format}
        for _ in range(self.opt.rounds):
            for fmt in self.opt.format:
                turns[fmt].append(self.turn(fmt))
        for fmt, rounds in turns.items():
            result["formats"][fmt] = {
                "written": compare(rounds, "convert", "copy", len(self.cpus)),
                "discarded": compare(rounds, "discard", "read", len(self.cpus))}
        return result


def compare(rounds, what, loop, jobs):
    """The best of a conversion and of its loop, on one processor and on all."""
    one, many = (min(r[what, n] for r in rounds) for n in (1, jobs))
    loop_one, loop_many = (min(r[loop, n] for r in rounds) for n in (1, jobs))
    scaling, loop_scaling = one.seconds / many.seconds, loop_one / loop_many
    return {"one": one.seconds, "many": many.seconds, "scaling": scaling, "loop_one": loop_one,
            "loop_many": loop_many, "loop_scaling": loop_scaling,
            "reached": scaling / loop_scaling, "busy": many.cpu / (many.seconds * jobs),
            "more_work": many.cpu / one.cpu}


def table(result):
    jobs = result["jobs"]
    rows = [["format", "1 processor", f"{jobs} processors", "scaling", "of the loop", "reached",
             "busy", "more work", "nothing written: scaling", "of reading", "reached", "busy",
             "more work"]]
    for fmt, r in result["formats"].items():
        row = [f"`{fmt}`", f"{r['written']['one']:.2f} s", f"{r['written']['many']:.2f} s"]
        for part in (r["written"], r["discarded"]):
            mark = "" if part["reached"] >= TARGET else " *"
            row += [f"{part['scaling']:.2f}", f"{part['loop_scaling']:.2f}",
                    f"{part['reached']:.2f}{mark}", f"{part['busy']:.2f}",
                    f"{part['more_work']:.2f}"]
        rows.append(row)
    return (f"Processors: conversions pinned to 1 and to {jobs}, beside a loop that copies as many "
            "bytes (or only reads them), one process on each, pinned alike; best of "
            f"{result['rounds']} rounds in turns. * : below {TARGET:.2f}.\n\n"
            + measure.table(*rows))


def main(argv):
    p = measure.options(__doc__, rounds=5)
    p.add_argument("--jobs", type=int, default=len(measure.processors()))
    p.add_argument("--format", action="append", help="default: every format that is written")
    opt = p.parse_args(argv)
    opt.format = opt.format or measure.written_formats(opt.program)
    result = Bench(opt).run()
    measure.save(opt.dir, "threads", table(result), result)


if __name__ == "__main__":
    main(sys.argv[1:])
