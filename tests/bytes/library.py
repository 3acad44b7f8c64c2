#!/usr/bin/env python3
"""The C library against the program: both make the same bytes, and read them alike.

    library.py LIBRARY

Converts the small checkpoints of samples/ to every format with the program. Every packed
weight whose source is one plain tensor is quantized again through libtilepack and must
equal what is stored; opened through libtilepack, its decoded values must equal those of
oracle.py. Ends with `N passed, N failed` (formats).
"""
import ctypes
import os
import subprocess
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import oracle
import tool

sys.path.insert(0, os.path.join(tool.REPO, "samples"))
import load_packed
import quantize_torch


class Mismatch(Exception):
    pass


def sources(path):
    tensors = {}
    for name in tool.shards(path):
        tensors.update(load_packed.map_file(name)[0])
    return tensors


def check_quantize(library, fmt, plain, units):
    """Number of weights whose bytes the library makes as well."""
    count = 0
    for unit in units:
        name = unit.sources[0]["name"]
        if len(unit.sources) != 1 or "{e}" in name or fmt.startswith("nvfp4"):
            continue  # stacked, or with a scale that several weights share
        values = np.ascontiguousarray(plain[name].array)
        weight = quantize_torch.Weight(library, fmt, tuple(unit.descriptor["box"]))
        for suffix, array in weight.quantize(values).items():
            if array.tobytes() != unit.data[suffix]:
                raise Mismatch(f"{unit.prefix}{suffix}: the library makes other bytes")
        count += 1
    return count


def check_files(library, units, packed):
    """Every packed weight's values through the library equal the oracle's."""
    lib, handle = library.lib, ctypes.c_void_p()
    lib.tilepack_packed.restype = lib.tilepack_packed_find.restype = ctypes.c_size_t
    lib.tilepack_packed.argtypes = lib.tilepack_close.argtypes = [ctypes.c_void_p]
    lib.tilepack_packed_find.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.call("open", packed.encode(), ctypes.byref(handle))
    if lib.tilepack_packed(handle) != len(units):
        raise Mismatch(f"{len(units)} packed weights, the library finds another number")
    for unit in units:
        want = unit.values()
        e, n, k = want.shape
        rows = min(n, 48)
        got = np.empty((rows, k), np.float32)
        index = lib.tilepack_packed_find(handle, unit.prefix.rstrip("._").encode())
        library.call("packed_values", handle, ctypes.c_size_t(index),
                     *map(ctypes.c_uint64, (e - 1, n - rows, n, 0, k)),
                     quantize_torch.pointer(got))
        if (got != want[e - 1, n - rows:]).any():
            raise Mismatch(f"{unit.prefix}: the library reads other values")
    lib.tilepack_close(handle)
    return len(units)


def one_format(library, fmt, sample, plain, work):
    packed = work.at(f"{sample}-{fmt}")
    tool.run("convert", work.at(sample), "-o", packed, "--to", fmt, "--quiet", "--nonfinite",
             "keep")
    units = oracle.Checkpoint(tool.shards(packed)).units
    made = check_quantize(library, fmt, plain, units)
    read = check_files(library, units, packed)
    if not read:
        raise Mismatch("nothing was packed")
    return made, read


def main(argv):
    library = quantize_torch.Library(argv[0])
    passed = failed = 0
    with tool.Workdir() as work:
        for sample in ("tiny-llama", "tiny-mixtral"):
            subprocess.run([sys.executable, os.path.join(tool.REPO, "samples",
                                                         "gen_checkpoint.py"),
                            work.at(sample), "--preset", sample, "--quiet"], check=True)
            plain = sources(work.at(sample))
            for fmt in library.formats():
                try:
                    made, read = one_format(library, fmt, sample, plain, work)
                    print(f"ok {sample} {fmt}: {made} made, {read} read")
                    passed += 1
                except (Mismatch, quantize_torch.Error, tool.ToolError) as error:
                    print(f"FAIL {sample} {fmt}: {error}")
                    failed += 1
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
