"""Parts of the command-line tests of verify, unpack and diff that need numbers.

    roundtrip.py unpack PACKED PLAIN SOURCE bf16|f32   PLAIN is what the oracle decodes
    roundtrip.py same A B [SUFFIX ...]     tensors with these endings (all) are equal
    roundtrip.py names A B                 equal names, shapes and dtypes
    roundtrip.py flips PATH COUNT          verify finds every one of COUNT flipped bits

Each prints what is wrong and ends with status 1, or prints nothing.
"""
import os
import random
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import oracle
import stfile
import tool


def fail(text):
    sys.exit(text)


def plain_places(unit):
    """(tensor, expert in it or None, first row, rows, expert of the unit, its row)."""
    row = 0
    for origin in unit.sources:
        for e in range(unit.descriptor["box"][0]):
            name = origin["name"].replace("{e}", str(e))
            expert = None
            if len(origin["shape"]) == 3:
                expert = origin.get("expert", e)
            yield name, expert, origin.get("row", 0), origin["rows"], e, row
        row += origin["rows"]


def unpack(packed, plain, source, dtype):
    """Every value of every plain tensor comes from the oracle's decoding."""
    units = oracle.Checkpoint(tool.shards(packed)).units
    got, _ = tool.load(plain)
    want, _ = tool.load(source)
    covered = {}
    for unit in units:
        values = unit.values()
        for name, expert, first, rows, e, row in plain_places(unit):
            if name not in got:
                fail(f"{name}: not in {plain}")
            t = got[name]
            if t.dtype != {"bf16": "BF16", "f32": "F32"}[dtype] or t.shape != want[name].shape:
                fail(f"{name}: {t.dtype} {t.shape}")
            mine = stfile.from_f32(t.dtype, values[e, row:row + rows]).bits
            theirs = t.bits if expert is None else t.bits[expert]
            if not np.array_equal(mine, theirs[first:first + rows]):
                fail(f"{name}: rows {first} to {first + rows} are not what the oracle decodes")
            covered[name] = covered.get(name, 0) + mine.size
    for name, t in want.items():
        if covered.get(name, np.prod(t.shape)) != np.prod(t.shape):
            fail(f"{name}: not all of it is packed somewhere")
        if name not in covered and (got[name].data != t.data or got[name].dtype != t.dtype):
            fail(f"{name}: a kept tensor has changed")
    if set(got) != set(want):
        fail(f"names differ: {set(got) ^ set(want)}")


def same(a, b, suffixes):
    first, second = tool.load(a)[0], tool.load(b)[0]
    wanted = [n for n in first if not suffixes or n.endswith(tuple(suffixes))]
    if not wanted:
        fail(f"{a} has no such tensor")
    for name in wanted:
        if name not in second:
            fail(f"{name}: not in {b}")
        x, y = first[name], second[name]
        if (x.dtype, x.shape, x.data) != (y.dtype, y.shape, y.data):
            fail(f"{name}: differs")


def names(a, b):
    first, second = tool.load(a)[0], tool.load(b)[0]
    for name in set(first) | set(second):
        if name not in first or name not in second:
            fail(f"{name}: on one side only")
        if (first[name].dtype, first[name].shape) != (second[name].dtype, second[name].shape):
            fail(f"{name}: {first[name].dtype} {first[name].shape}, "
                 f"{second[name].dtype} {second[name].shape}")


def flip_one(path, rng):
    """Flips a random bit of a file; returns what undoes it."""
    byte, bit = rng.randrange(os.path.getsize(path)), rng.randrange(8)
    with open(path, "r+b") as f:
        f.seek(byte)
        old = f.read(1)[0]
        f.seek(byte)
        f.write(bytes([old ^ 1 << bit]))
    return byte, bit, old


def flips(path, count):
    """In each file alike: a small manifest matters as much as a large shard."""
    rng = random.Random(1)
    files = [path] if os.path.isfile(path) else \
        [os.path.join(path, n) for n in sorted(os.listdir(path))]
    missed = 0
    for _ in range(int(count)):
        name = rng.choice(files)
        byte, bit, old = flip_one(name, rng)
        done = tool.run("verify", path, "-q", "--strict", check=False)
        if done.returncode not in (1, 3, 4):
            print(f"{name}: bit {bit} of byte {byte}: exit status {done.returncode}")
            missed += 1
        with open(name, "r+b") as f:
            f.seek(byte)
            f.write(bytes([old]))
    if missed:
        fail(f"{missed} of {count} flipped bits were not found")


def main(argv):
    commands = {"unpack": unpack, "names": names, "flips": flips,
                "same": lambda a, b, *suffixes: same(a, b, suffixes)}
    if len(argv) < 2 or argv[0] not in commands:
        sys.exit(__doc__)
    commands[argv[0]](*argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
