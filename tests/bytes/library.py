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
import quantize_torch
import tilepack_llm


class Mismatch(Exception):
    pass


def sources(path):
    tensors = {}
    for name in tool.shards(path):
        tensors.update(tilepack_llm.open(name).tensors)
    return tensors


def check_quantize(library, fmt, plain, units):
    """Number of weights whose bytes the library makes as well."""
    count = 0
    for unit in units:
        name = unit.sources[0]["name"]
        if len(unit.sources) != 1 or "{e}" in name or fmt.startswith("nvfp4"):
            continue  # stacked, or with a scale that several weights share
        values = np.ascontiguousarray(plain[name].array)
        group = unit.descriptor.get("params", {}).get("group")  # of experts it may be another
        weight = quantize_torch.Weight(library, fmt, tuple(unit.descriptor["box"]),
                                       f"group={group}" if group else None)
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
    tool.run("convert", work.at(sample), "-o", packed, "--to", fmt, "--quiet",
             "--weights-only", "--nonfinite", "keep", "--search", "none")
    units = oracle.Checkpoint(tool.shards(packed)).units
    made = check_quantize(library, fmt, plain, units)
    read = check_files(library, units, packed)
    if not read:
        raise Mismatch("nothing was packed")
    return made, read


def opened_weight(library, path, prefix):
    """The weight of that file as the library describes it, to be freed by Python."""
    handle, weight = ctypes.c_void_p(), ctypes.c_void_p()
    library.call("open", path.encode(), ctypes.byref(handle))
    index = library.lib.tilepack_packed_find(handle, prefix.encode())
    library.call("packed_weight", handle, ctypes.c_size_t(index), ctypes.byref(weight))
    library.lib.tilepack_close(handle)
    made = quantize_torch.Weight.__new__(quantize_torch.Weight)
    made.library, made.handle = library, weight
    made.count = library.lib.tilepack_weight_tensors(weight)
    return made


def take_over(library, source, tensors, to):
    out = to.empty()
    library.call("repack", source.handle, quantize_torch.pointers(tensors), to.handle,
                 quantize_torch.pointers(out))
    return {to.text("suffix", i): out[i].tobytes() for i in range(to.count)}


def signed_scales(library, work):
    """Negative scales of a search: taken over from a file whose descriptor has them, as the
    program does it; refused of tensors that nothing is known about."""
    name = "model.layers.0.self_attn.q_proj"
    src, ct, cutlass = (work.at("tiny-llama"), work.at("signed"), work.at("signed-cutlass"))
    tool.run("convert", src, "-o", ct, "--to", "w4a8-ct", "--search", "mse", "--signed", "--quiet")
    tool.run("convert", ct, "-o", cutlass, "--to", "w4a8-cutlass", "--quiet")
    unit, = (u for u in oracle.Checkpoint(tool.shards(ct)).units if u.prefix.startswith(name))
    want, = (u for u in oracle.Checkpoint(tool.shards(cutlass)).units
             if u.prefix.startswith(name))
    box = tuple(unit.descriptor["box"])
    source, to = (opened_weight(library, ct, name),
                  quantize_torch.Weight(library, "w4a8-cutlass", box))
    tensors = [np.frombuffer(unit.data[source.text("suffix", i)], np.uint8).copy()
               if source.text("role", i) != "words" else np.zeros(64, np.uint8)
               for i in range(source.count)]
    made = take_over(library, source, tensors, to)
    for suffix, data in made.items():
        if data != bytes(want.data[suffix]):
            raise Mismatch(f"{suffix}: the library takes over other bytes")
    if library.lib.tilepack_weight_bytes(source.handle, 0) != len(tensors[0]):
        raise Mismatch("the tensors of the file have another size")
    try:
        take_over(library, quantize_torch.Weight(library, "w4a8-ct", box), tensors, to)
    except quantize_torch.Error as error:
        if "negative" in str(error) and "tilepack_packed_weight()" in str(error):
            return
        raise
    raise Mismatch("negative scales of nowhere are taken over")


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
        try:
            signed_scales(library, work)
            print("ok negative scales")
            passed += 1
        except (Mismatch, quantize_torch.Error, tool.ToolError) as error:
            print(f"FAIL negative scales: {error}")
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
