"""What large.py and shapes.py share: one command with its peak of memory, and files of holes."""
import json
import math
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tool  # noqa: E402

tally = tool.Tally()
check = tally.check
NEEDS_MORE = "more memory is needed: --max-memory"

# A child's peak begins with what the process had that made it: this one has little.
LAUNCHER = """
import os, resource, sys
most = int(sys.argv[1])
child = os.fork()
if child == 0:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if most:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(child, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""


def measure(*argv, memory=None):
    """(exit status, stderr, CPU seconds, peak RSS in bytes) of one command. `memory`: beside
    the program itself, which is large with kernels for many GPUs."""
    most = memory + os.path.getsize(tool.binary()) if memory else 0
    done = subprocess.run([sys.executable, "-ISc", LAUNCHER, str(most), tool.binary(),
                           *(str(a) for a in argv)], stdin=subprocess.DEVNULL, check=True,
                          capture_output=True, text=True)
    status, seconds, peak = done.stdout.split()
    return int(status), done.stderr, float(seconds), int(peak) * 1024


def within(peak, megabytes):
    return peak <= megabytes << 20


def refused(megabytes, *argv):
    """What does not fit is refused within the limit, in one sentence."""
    status, errors, seconds, peak = measure(*argv, "--max-memory", f"{megabytes}MiB")
    check(status == 6 and NEEDS_MORE in errors and within(peak, megabytes),
          f"{' '.join(str(a) for a in argv[:2])} in {megabytes} MiB is refused: status {status}, "
          f"{peak / 2**20:.0f} MiB, {seconds:.1f} s of CPU {errors}")


def fits(megabytes, *argv, what=""):
    """It is done within so much."""
    status, errors, seconds, peak = measure(*argv, "--max-memory", f"{megabytes}MiB")
    check(status == 0 and within(peak, megabytes),
          f"{' '.join(str(a) for a in argv[:2])}{what} in {megabytes} MiB: status {status}, "
          f"{peak / 2**20:.0f} MiB, {seconds:.1f} s of CPU {errors}")


def one_weight(path, shape, fill_with=None, name="model.layers.0.mlp.down_proj.weight"):
    """A file of one BF16 weight, of holes or of these values."""
    size = 2 * math.prod(shape)
    text = json.dumps({name: {
        "dtype": "BF16", "shape": shape, "data_offsets": [0, size]}}).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        if fill_with is None:
            f.truncate(8 + len(text) + size)
        else:
            f.write(fill_with.tobytes())
    return path
