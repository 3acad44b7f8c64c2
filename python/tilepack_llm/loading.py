"""load(): the tensors of a checkpoint, whole or one rank's, for whoever builds a model.

On the CPU nothing is copied: the arrays are views of the mapped files. Everything that can be
wrong with the files is found before anything is handed out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Union

from . import commands
from .checkpoint import Checkpoint, Path
from .errors import InputError, UnsupportedError, UsageError
from .tensor import Tensor

if TYPE_CHECKING:
    import torch

    Loaded = Union[Tensor, torch.Tensor]

_RANKS = "tilepack-tp.json"


def _rank_directory(path: str, rank: int | None) -> str:
    """The directory of one rank of `convert --tp`; without a rank, the path itself."""
    listing = os.path.join(path, _RANKS)
    if not os.path.isfile(listing):
        if rank is None:
            return path
        raise UsageError(
            "it holds no ranks", file=path, hint="`tilepack convert --tp N` makes them"
        )
    with open(listing, encoding="utf-8") as file:
        try:
            ranks = int(json.load(file)["ranks"])
        except (ValueError, KeyError, TypeError):
            raise InputError("it does not say how many ranks there are", file=listing) from None
    if rank is None:
        raise UsageError(f"it holds {ranks} ranks", file=path, hint="rank= takes one of them")
    if not 0 <= rank < ranks:
        raise UsageError(f"rank {rank} of {ranks}", file=path)
    return os.path.join(path, f"rank_{rank}")


def _chosen(checkpoint: Checkpoint, names: Iterable[str] | None) -> list[str]:
    """Names of tensors; a packed weight stands for all of its own."""
    if names is None:
        return list(checkpoint.tensors)
    if isinstance(names, str):
        raise UsageError("names is one text; it is a list of names")
    found: list[str] = []
    for name in names:
        if name in checkpoint.tensors:
            found.append(name)
        elif name in checkpoint.weights:
            found += checkpoint.weights[name].tensor_names.values()
        else:
            raise UsageError(f"no tensor and no packed weight '{name}'", file=checkpoint.path)
    return list(dict.fromkeys(found))


def load(
    path: Path,
    device: str = "cpu",
    *,
    names: Iterable[str] | None = None,
    rank: int | None = None,
    verify: bool = False,
) -> dict[str, Loaded]:
    """The tensors of a checkpoint by name, as they are stored.

    path    a .safetensors file or a directory of them; with `rank` what `convert --tp` wrote
    device  "cpu": views of the mapped files, 0 bytes copied. "cuda" or "cuda:I": torch tensors
            on that GPU, one pageable copy each.
    names   only these tensors, or all tensors of these packed weights; nothing else is read
    rank    only the files of this rank
    verify  the whole path (of the rank) is verified first, with the hashes of every leaf: a
            flipped bit is a VerifyError

    Returns {name: Tensor}, or {name: torch.Tensor} on a GPU. Kernels take the operands that
    open(path).weights[name].operands() makes of them.
    Raises Error for files that are missing, truncated or contradict their headers, before any
    tensor is handed out.
    """
    place = _rank_directory(os.fspath(path), rank)
    checkpoint = Checkpoint(place)
    chosen = _chosen(checkpoint, names)
    if verify:
        commands.verify(place)
    tensors = {name: checkpoint.tensors[name] for name in chosen}
    if device == "cpu":
        return dict(tensors)
    if device != "cuda" and not device.startswith("cuda:"):
        raise UnsupportedError(f"device {device!r}", hint="there are cpu, cuda and cuda:I")
    return {name: tensor.torch().to(device) for name, tensor in tensors.items()}
