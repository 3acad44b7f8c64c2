"""What the benchmarks share: options, commands, loops that only move bytes, the files of results.

Times are seconds of the wall unless they say CPU. A list of processors stands for threads
or processes pinned to one each, or for a command that may run on all of them. Nothing here
decides what is measured or compared.
"""
import argparse
import ctypes
import json
import os
import subprocess
import threading
import time
from collections import namedtuple

BLOCK = 1 << 20
BLOCKS_TO_WRITEBACK = 32
Done = namedtuple("Done", "seconds cpu memory stderr")


# ---- options ----------------------------------------------------------------------------

def options(doc, rounds):
    """A parser of what every script takes; the first line of `doc` says what the script is."""
    p = argparse.ArgumentParser(description=doc.split("\n", maxsplit=1)[0])
    p.add_argument("--program", required=True)
    p.add_argument("--dir", required=True)
    p.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS", rounds)))
    return p


# ---- commands ---------------------------------------------------------------------------

def peak(pid):
    """The largest resident set so far, in bytes. (What wait() reports for a child counts
    the memory of the Python that forked it.)"""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            return next((int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def run(*args, cpus=None, env=None):
    """A command that must succeed: seconds, CPU seconds, peak memory, stderr."""
    if cpus is not None:
        args = ("taskset", "-c", ",".join(map(str, cpus)), *args)
    start = time.monotonic()
    child = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             env=env)
    memory, ended = [0], threading.Event()

    def watch():
        # Often at first, so that a run of milliseconds is seen; then it should not disturb.
        while not ended.wait(0.0005 if len(memory) < 100 else 0.01):
            memory.append(peak(child.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    text = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    ended.set()
    watcher.join()
    if child.returncode:
        raise SystemExit(f"bench: {' '.join(args)}: status {child.returncode}\n{text}")
    return Done(seconds, usage.ru_utime + usage.ru_stime, max(memory), text)


def files_of(path):
    return sorted(os.path.join(path, n) for n in os.listdir(path) if n.endswith(".safetensors"))


def bytes_of(paths):
    return sum(map(os.path.getsize, paths))


def written_formats(program):
    done = subprocess.run([program, "formats", "--json"], stdout=subprocess.PIPE, check=True)
    return [f["name"] for f in json.loads(done.stdout)["formats"] if not f.get("input_only")]


def processors():
    return sorted(os.sched_getaffinity(0))


# ---- loops ------------------------------------------------------------------------------

def in_threads(count, work):
    """Seconds that work(i), i < count, takes in so many threads."""
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    start = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return time.monotonic() - start


def in_processes(cpus, work):
    """Seconds that work(i), i < len(cpus), takes in a process on each of these processors."""
    start, children = time.monotonic(), []
    for i, cpu in enumerate(cpus):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.sched_setaffinity(0, {cpu})
                work(i)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    if any([os.waitpid(child, 0)[1] for child in children]):
        raise SystemExit("bench: a loop that moves bytes failed")
    return time.monotonic() - start


def blocks_of(paths):
    return [(p, at) for p in paths for at in range(0, os.path.getsize(p), BLOCK)]


def start_writeback(fd):
    """What tilepack does on the way: the disk begins, nobody waits for its end."""
    ctypes.CDLL(None).sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), 2)


# ---- results ----------------------------------------------------------------------------

def save(directory, name, text, result):
    """DIRECTORY/NAME.md and NAME.json, and the text on stdout."""
    for kind, content in (("md", text), ("json", json.dumps(result, indent=2) + "\n")):
        with open(os.path.join(directory, f"{name}.{kind}"), "w", encoding="utf-8") as out:
            out.write(content)
    print(text, flush=True)


def table(*rows):
    """Rows of cells as a table; the first is the head, the first column is text."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([lines[0], "|---|" + "--:|" * (len(rows[0]) - 1)] + lines[1:]) + "\n"
