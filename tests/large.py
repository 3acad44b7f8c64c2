#!/usr/bin/env python3
"""large.py [--long]

Checkpoints of many tensors and of many bytes, all of holes (sparse.py): time of plan
and dump, memory of a conversion, and what happens when memory is short. --long (or
TILEPACK_TEST_LONG in the environment) takes a million tensors and 121 GB.

Environment: TILEPACK_CPU_LIMIT, the seconds that plan and dump of 100,000 tensors may
take (default 1.0: twice the goal, for machines slower than the one it was set on).
"""
import os
import resource
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sparse  # noqa: E402
import tool  # noqa: E402

LIMIT = float(os.environ.get("TILEPACK_CPU_LIMIT", "1.0"))
RSS_LIMIT = 512 << 20
passed = failed = 0


def check(good, text):
    global passed, failed  # pylint: disable=global-statement
    passed += bool(good)
    failed += not good
    print(f"{'ok' if good else 'not ok'} {text}")


def measure(*argv, memory=None):
    """(exit status, stderr, CPU seconds, peak RSS in bytes) of one command."""
    def limit():
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen([tool.binary()] + [str(a) for a in argv], preexec_fn=limit,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        return (child.returncode, errors.read().decode(), usage.ru_utime + usage.ru_stime,
                usage.ru_maxrss * 1024)


def fast(path, *argv):
    """The command must be quick and small; the best of three runs counts."""
    runs = [measure(argv[0], path, *argv[1:]) for _ in range(3)]
    seconds = min(run[2] for run in runs)
    peak = max(run[3] for run in runs)
    check(runs[0][0] == 0 and seconds <= LIMIT and peak <= RSS_LIMIT,
          f"{' '.join(argv)}: {seconds:.2f} s of CPU, {peak / 1e6:.0f} MB"
          f"{runs[0][1] if runs[0][0] else ''}")


def short_of_memory(path, megabytes, *argv):
    """Done, or refused with a message; never killed by a signal."""
    status, errors, _, _ = measure(argv[0], path, *argv[1:], memory=megabytes << 20)
    check(status == 0 or (status == 6 and "memory" in errors and "error: " in errors),
          f"{' '.join(argv)} in {megabytes} MiB: exit status {status} {errors.split(chr(10))[0]}")


def streams(path, total, to):
    """A conversion whose memory has nothing to do with the size of the input."""
    status, errors, seconds, peak = measure("convert", path, "--discard", "--to", to, "--quiet")
    check(status == 0 and peak <= 128 << 20,
          f"{total / 1e9:.1f} GB to {to}: {peak / 1e6:.0f} MB, {seconds:.1f} s of CPU {errors}")


def main():
    long = "--long" in sys.argv or bool(os.environ.get("TILEPACK_TEST_LONG"))
    with tempfile.TemporaryDirectory(prefix="tilepack-large-") as work:
        many = os.path.join(work, "many")
        sparse.make(many, tensors=100_000, shards=163)
        fast(many, "plan", "--to", "w4a8-cutlass")
        fast(many, "plan", "--to", "mxfp8-torchao3d")
        fast(many, "dump")
        status, errors, seconds, peak = measure("plan", many, "--to", "w4a8-ct", "--shard-size",
                                                "10MB")
        check(status == 0 and seconds <= 4 * LIMIT and peak <= RSS_LIMIT,
              f"plan --to w4a8-ct (298,656 outputs): {seconds:.2f} s, {peak / 1e6:.0f} MB"
              f"{errors if status else ''}")
        for megabytes in (24, 40, 64, 100, 160):
            short_of_memory(many, megabytes, "plan", "--to", "w4a8-ct")
            short_of_memory(many, megabytes, "dump")
        layers = 41 if long else 1
        huge = os.path.join(work, "huge")
        total = sparse.make(huge, tensors=30 * layers, shards=layers, experts=8, hidden=4096,
                            inner=14336)
        for to in ("w4a8-cutlass", "fp8-deepseek") if not long else ("w4a8-cutlass",):
            streams(huge, total, to)
        if long:
            million = os.path.join(work, "million")
            sparse.make(million, tensors=1_000_000, shards=163)
            for megabytes in (250, 500, 1000, 2000, 4000):
                short_of_memory(million, megabytes, "plan", "--to", "w4a8-cutlass")
                short_of_memory(million, megabytes, "plan", "--to", "w4a8-ct")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
