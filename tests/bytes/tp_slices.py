#!/usr/bin/env python3
"""The ranks of `convert --tp` against slices of the whole, decoded by oracle.py.

    tp_slices.py WHOLE CUT RANKS

The values of every packed weight of every rank, decoded from that rank's own
descriptors, must equal the slice of the whole's values that tensor-parallel engines
give to the rank: rows of q/k/v and gate/up (each of a stacked pair by itself, where there is
a gate), columns of o and down, all of the rest. Tensors that are not packed are the same in every rank.
Ends with `N passed, N failed` (weights and tensors of all ranks).
"""
import os
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import oracle
import tool

ROWS = {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "w1", "w3"}
PAIRS = {"w13", "gate_up_proj"}
COLUMNS = {"o_proj", "down_proj", "w2"}


def word(prefix):
    """ "model.layers.0.mlp.experts.w13_" -> "w13" """
    return prefix.rstrip("._").split(".")[-1]


def is_ungated(unit):
    """A stack that holds one matrix of each expert."""
    return len(unit.sources) == 1 and "{e}" in unit.sources[0]["name"]


def expected(values, unit, rank, ranks):
    name = word(unit.prefix)
    if name in ROWS or (name in PAIRS and is_ungated(unit)):
        return np.split(values, ranks, axis=-2)[rank]
    if name in PAIRS:
        gate, up = np.split(values, 2, axis=-2)
        return np.concatenate([np.split(gate, ranks, axis=-2)[rank],
                               np.split(up, ranks, axis=-2)[rank]], axis=-2)
    if name in COLUMNS:
        return np.split(values, ranks, axis=-1)[rank]
    return values


def main():
    whole_dir, cut_dir, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3])
    passed = failed = cut = 0
    whole = oracle.Checkpoint(tool.shards(whole_dir))
    values = {unit.prefix: unit.values() for unit in whole.units}
    packed = {unit.prefix + suffix for unit in whole.units for suffix in unit.data}
    plain = {name: t for name, t in whole.tensors.items() if name not in packed}
    for rank in range(ranks):
        path = os.path.join(cut_dir, f"rank_{rank}")
        own = oracle.Checkpoint(tool.shards(path))
        if [u.prefix for u in own.units] != list(values):
            print(f"not ok rank {rank}: its packed weights are others than the whole's")
            failed += 1
            continue
        for unit in own.units:
            prefix = unit.prefix
            want = expected(values[prefix], unit, rank, ranks)
            got = unit.values()
            cut += want.shape != values[prefix].shape
            if got.shape == want.shape and np.array_equal(got, want, equal_nan=True):
                passed += 1
            else:
                failed += 1
                print(f"not ok rank {rank}: {prefix} {got.shape}, expected {want.shape}")
        tensors, _ = tool.load(path)
        for name, tensor in plain.items():
            same = name in tensors and np.array_equal(tensors[name].bytes, tensor.bytes)
            passed += same
            failed += not same
            if not same:
                print(f"not ok rank {rank}: {name} differs from that of the whole")
    if not cut:
        failed += 1
        print("not ok: no weight was cut")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
