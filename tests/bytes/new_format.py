#!/usr/bin/env python3
"""The check behind cli/new_format.sh: TILEPACK knows one format more."""
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import oracle
import refquant as rq
import stfile
import tool


def main():
    rng = np.random.default_rng(11)
    x = stfile.from_f32("BF16", rng.standard_normal((3, 48, 384)).astype(np.float32))
    codes, scale = rq.int4(x.f32())
    want = (codes.astype(np.float32) - 8) * rq.spread(rq.bf16_to_f32(scale), 1, 128, 48, 384)
    with tool.Workdir() as work:
        src, dst = work.at("in.safetensors"), work.at("out.safetensors")
        stfile.save(src, {"x.weight": x})
        tool.convert(src, dst, "w4a16-cutlass", None, ("--include", "."))
        tool.run("verify", dst, "--against", src, "--quiet")
        unit = oracle.Checkpoint([dst]).unit("x.")
    checks = {"values from the descriptor": np.array_equal(unit.values(), want)}
    # The atom once more, as printed by CUTLASS: (n,k) of a 16x16 tile to a nibble.
    e, n, k = np.meshgrid(np.arange(3), np.arange(48), np.arange(384), indexing="ij")
    off = (e * 48 * 384 + n // 16 * 256 + k // 16 * 16 * 48 + n % 8 * 32 + n // 8 % 2 * 2
           + k % 2 + k // 2 % 4 * 8 + k // 8 % 2 * 4)
    raw = np.frombuffer(unit.data["weight_packed"], np.uint8)
    nibble = raw[off >> 1] >> ((off & 1) * 4).astype(np.uint8) & 15
    checks["nibbles in the atom's order"] = np.array_equal(nibble, codes ^ 8)
    checks["scales n-major"] = np.array_equal(
        np.frombuffer(unit.data["weight_scale"], np.uint16).reshape(3, 3, 48),
        scale.transpose(0, 2, 1))
    for name, good in checks.items():
        print(f"{'ok  ' if good else 'FAIL'} {name}")
    bad = sum(not good for good in checks.values())
    print(f"{len(checks) - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
