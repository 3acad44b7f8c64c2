"""What a load of vLLM reads and copies, by watching the library's loader and torch's operators.

    read       bytes that the library's loader reads from files
    looked_at  bytes that torch copies out of mapped files
    temporary  bytes of the largest tensor that is made on the way
and to compare with, of the model and the files:
    held       bytes of the parameters of packed layers
    plain      bytes of tensors that are not packed
    layer      bytes of the largest layer's packed tensors
"""
import contextlib
import json
import math
import os
import re
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def mapped():
    """[(begin, end)] of mapped files of weights."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        lines = [line.split() for line in maps if ".safetensors" in line]
    return [tuple(int(at, 16) for at in line[0].split("-")) for line in lines]


class Operators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.looked_at = self.temporary = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        known = {one.untyped_storage().data_ptr() for one in args if isinstance(one, torch.Tensor)}
        out = func(*args, **kwargs or {})
        if isinstance(out, torch.Tensor) and not out.is_meta:
            if out.untyped_storage().data_ptr() not in known:
                self.temporary = max(self.temporary, out.untyped_storage().nbytes())
        copied = {torch.ops.aten.copy_.default: 1, torch.ops.aten._to_copy.default: 0,
                  torch.ops.aten.clone.default: 0}.get(func)
        if copied is not None and not args[copied].is_meta:
            at = args[copied].data_ptr()
            if any(begin <= at < end for begin, end in mapped()):
                self.looked_at += args[copied].nbytes
        return out


@contextlib.contextmanager
def counting(result):
    """Fills `result` with what happens inside, where the plugin's buffer holds no more than a layer."""
    from tilepack_llm import parts
    from tilepack_llm.vllm import staging

    copy, result["read"] = parts.copy, 0

    def counted(opened, wanted, addresses, **options):
        assert len(wanted) == len(addresses) and all(part.whole for part in wanted)
        result["read"] += sum(math.prod(end - begin for begin, end in part.spans)
                              for part in wanted)
        copy(opened, wanted, addresses, **options)

    parts.copy = counted
    try:
        with mock.patch.object(staging, "LEAST", 0), Operators() as operators:
            yield
    finally:
        parts.copy = copy
    result.update(looked_at=operators.looked_at, temporary=operators.temporary)


def sizes(path):
    """{tensor: bytes} of a directory, and the prefixes of packed ones."""
    found = {}
    for name in sorted(os.listdir(path)):
        if name.endswith(".safetensors"):
            with open(os.path.join(path, name), "rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            found.update({name: one["data_offsets"][1] - one["data_offsets"][0]
                          for name, one in header.items() if name != "__metadata__"})
    with open(os.path.join(path, "tilepack.json"), encoding="utf-8") as file:
        prefixes = tuple(unit["prefix"] for unit in json.load(file)["units"])
    return found, prefixes


def expected(path, model):
    """Constants, which the kernel makes by itself, are neither read nor held."""
    found, prefixes = sizes(path)
    layers, plain = {}, 0
    for name, size in found.items():
        if not name.startswith(prefixes):
            plain += size
        elif not name.endswith("weight_layout"):
            layer = re.match(r".*?layers\.\d+", name).group()
            layers[layer] = layers.get(layer, 0) + size
    held = sum(p.nbytes for layer in model.modules()
               if type(getattr(layer, "quant_method", None)).__module__.startswith("tilepack_llm")
               for name, p in layer._parameters.items()
               if p is not None and "weight_layout" not in name)
    return {"held": held, "plain": plain, "layer": max(layers.values()),
            "packed": sum(layers.values())}
