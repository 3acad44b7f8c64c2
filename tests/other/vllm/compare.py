"""Operands that load.py saved, of stock vLLM and of the plugin.

    compare.py STOCK PLUGIN [skip=OPERAND,...:LAYER,...]

Every operand must have the same dtype, shape, strides and bytes. Prints the numbers; exit status
1 on a difference. `skip` leaves out these operands in layers whose name ends so.
"""
import sys

import torch


def raw(tensor):
    return tensor.contiguous().flatten().view(torch.uint8) if tensor.numel() else tensor


def difference(a, b):
    if type(a) is not type(b):
        return f"{type(a).__name__} and {type(b).__name__}"
    if not isinstance(a, torch.Tensor):
        return None if a == b else f"{a!r} and {b!r}"
    for what in ("dtype", "shape"):
        if getattr(a, what) != getattr(b, what):
            return f"{what} {getattr(a, what)} and {getattr(b, what)}"
    if a.stride() != b.stride():
        return f"strides {a.stride()} and {b.stride()}"
    wrong = int((raw(a) != raw(b)).sum())
    return f"{wrong} of {raw(a).numel()} bytes" if wrong else None


def main(stock, plugin, skip="skip=:"):
    a, b = (torch.load(path, weights_only=False) for path in (stock, plugin))
    names, layers = (tuple(filter(None, part.split(","))) for part in skip[5:].split(":"))
    wrong = [f"layer {name}" for name in set(a) ^ set(b)]
    count = size = 0
    for layer in sorted(set(a) & set(b)):
        for key in sorted(set(a[layer]) | set(b[layer])):
            if key in names and layer.endswith(layers):
                continue
            x, y = a[layer].get(key), b[layer].get(key)
            why = difference(x, y)
            count += 1
            size += x.numel() * x.element_size() if isinstance(x, torch.Tensor) else 0
            if why:
                wrong.append(f"{layer} {key}: {why}")
    print("\n".join(wrong + [f"{count} operands, {size} bytes, {len(wrong)} differences"]))
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
