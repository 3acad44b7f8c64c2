"""Operands that load.py saved, of stock vLLM and of the plugin.

    compare.py NAME:STOCK:PLUGIN:OPERAND,...:LAYER,... ...

Every operand must have the same dtype, shape, strides and bytes, but for these operands, without any
for all of them, in layers whose name ends so. Prints `ok` or `not ok` with the numbers for each pair.
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


def compare(stock, plugin, operands, layers):
    """(differences, operands compared, bytes); what is left out is named as in main()."""
    a, b = (torch.load(path, weights_only=False) for path in (stock, plugin))
    skipped, of_layers = (tuple(filter(None, names.split(","))) for names in (operands, layers))
    wrong = [f"layer {name}" for name in set(a) ^ set(b)]
    count = size = 0
    for layer in sorted(set(a) & set(b)):
        for key in sorted(set(a[layer]) | set(b[layer])):
            if (not skipped or key in skipped) and layer.endswith(of_layers):
                continue
            x, y = a[layer].get(key), b[layer].get(key)
            why = difference(x, y)
            count += 1
            size += x.numel() * x.element_size() if isinstance(x, torch.Tensor) else 0
            if why:
                wrong.append(f"{layer} {key}: {why}")
    return wrong, count, size


def main(*pairs):
    for pair in pairs:
        name, stock, plugin, operands, layers = pair.split(":")
        try:
            wrong, count, size = compare(stock, plugin, operands, layers)
        except OSError as error:
            wrong, count, size = [str(error)], 0, 0
        good = count and not wrong
        print("\n".join(wrong + [f"{'ok' if good else 'not ok'} {name}: {count} operands, "
                                 f"{size} bytes, {len(wrong)} differences from stock's"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
