#!/usr/bin/env python3
"""Maps what `tilepack convert` wrote and prints the operands of the kernels.

    load_packed.py PATH [NAME]      all packed weights, or one

Nothing is copied: every operand is a view into the mapped file, with the shape and the strides
(in elements) that the kernel's launcher asks for; weight.torch() gives them as torch tensors.
It needs the package tilepack-llm, or PYTHONPATH=python in a checkout that was built.
"""
import sys

import tilepack_llm


def main(path, name=None):
    checkpoint = tilepack_llm.open(path)
    for weight in [checkpoint.weight(name)] if name else checkpoint.weights.values():
        print(f"{weight.name}  {weight.format}  [{', '.join(map(str, weight.box))}]")
        for argument, tensor in weight.operands().items():
            print(f"    {argument:20} {tensor.dtype:8} shape {tensor.shape}"
                  f"  strides {tensor.strides}")


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__.strip())
    try:
        main(*sys.argv[1:])
    except tilepack_llm.Error as error:
        sys.exit(f"load_packed.py: {error}")
