"""load(): the tensors of a checkpoint, for whoever builds a model.

On the CPU nothing is copied: the tensors are views of the mapped files. To a GPU the library
copies them, with several threads. Everything that can be wrong with the files is found before
anything is handed out.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Union

from . import commands
from .checkpoint import Checkpoint, Path, Weight
from .errors import ResourceError, UnsupportedError, UsageError
from .parts import Index, Part, copy
from .tensor import Tensor, import_torch, torch_dtype

if TYPE_CHECKING:
    import torch

    Loaded = Union[Tensor, torch.Tensor]

Names = Union[Iterable[str], Mapping[str, Index]]

_ALIGN = 512  # bytes: torch's own allocations on a GPU begin at multiples of it
_PIECE = 512 << 20


def _leading(weight: Weight, index: Index) -> Index:
    """An index of experts, which all tensors of the weight must have first."""
    stored = (tensor.shape for tensor in weight.stored.values())
    whole = isinstance(index, tuple) and not index
    if not whole and not (weight.stacked and all(s[:1] == weight.box[:1] for s in stored)):
        raise UsageError(
            "its tensors do not all begin with the experts: no index fits them all",
            tensor=weight.name,
            hint="name the tensors",
        )
    return index[:1] if isinstance(index, tuple) else index


def _chosen(checkpoint: Checkpoint, names: Names | None) -> dict[str, Part]:
    """Parts of tensors by name; a packed weight stands for all of its own."""
    if names is None:
        return {name: checkpoint.tensors.part(name) for name in checkpoint.tensors}
    if isinstance(names, str):
        raise UsageError("names is one text; it is a list of names")
    wanted = names if isinstance(names, Mapping) else dict.fromkeys(names, ())
    found: dict[str, Part] = {}
    for name, index in wanted.items():
        if name in checkpoint.tensors:
            found[name] = checkpoint.tensors.part(name, index)
        elif name in checkpoint.weights:
            weight = checkpoint.weights[name]
            first = _leading(weight, index)
            for tensor in weight.tensor_names.values():
                found[tensor] = checkpoint.tensors.part(tensor, first)
        else:
            raise UsageError(f"no tensor and no packed weight '{name}'", file=checkpoint.path)
    return found


@contextmanager
def _failures() -> Iterator[None]:
    """What torch says of a GPU that is not there, or is full, is an Error, too."""
    try:
        yield
    except (RuntimeError, AssertionError) as error:
        first = str(error).partition("\n")[0]
        raise ResourceError(
            f"torch has no room on that GPU, or no GPU: {first}",
            hint="nvidia-smi shows drivers and GPUs; load(path) takes the tensors to the CPU",
        ) from error


def _here(views: Mapping[str, Tensor]) -> dict[str, Loaded]:
    """torch tensors where torch is installed."""
    if find_spec("torch") is None:
        return dict(views)
    return {name: view.torch() for name, view in views.items()}


def _view(tensor: Tensor, part: Part) -> Tensor:
    box = tensor.array[tuple(slice(begin, end) for begin, end in part.spans)]
    return Tensor(box.reshape(part.shape) if box.shape != part.shape else box, tensor.dtype)


def _pieces(sizes: Mapping[str, int]) -> Iterator[list[tuple[str, int]]]:
    """Names and offsets of the tensors that share an allocation, in order.

    An allocation for each of thousands takes longer than their bytes do; one for all of them
    would keep all of the memory as long as one of them lives.
    """
    piece: list[tuple[str, int]] = []
    at = 0
    for name, size in sizes.items():
        if piece and at + size > _PIECE:
            yield piece
            piece, at = [], 0
        piece.append((name, at))
        at += -(-size // _ALIGN) * _ALIGN
    if piece:
        yield piece


def _allocate(chosen: Mapping[str, Part], device: str) -> dict[str, torch.Tensor]:
    """A tensor for each part, contiguous, not filled."""
    module = import_torch()
    kinds = {name: torch_dtype(part.dtype) for name, part in chosen.items()}
    counts = {name: math.prod(part.shape) for name, part in chosen.items()}
    sizes = {name: count * kinds[name].itemsize for name, count in counts.items()}
    made: dict[str, torch.Tensor] = {}
    for piece in _pieces(sizes):
        last, at = piece[-1]
        size = -(-(at + sizes[last]) // _ALIGN) * _ALIGN
        memory = module.empty(size, dtype=module.uint8, device=device)
        for name, begin in piece:
            raw = memory[begin : begin + sizes[name]]
            made[name] = raw.view(kinds[name]).view(chosen[name].shape)
    return made


def _to_device(
    checkpoint: Checkpoint, chosen: Mapping[str, Part], device: str, verify: bool
) -> dict[str, Loaded]:
    """Tensors that torch allocates, filled by the library."""
    module = import_torch()
    place = module.device(device)
    with _failures():
        number = module.cuda.current_device() if place.index is None else place.index
        made = _allocate(chosen, f"cuda:{number}")
    copy(
        checkpoint.handle,
        list(chosen.values()),
        [tensor.data_ptr() for tensor in made.values()],
        device=number,
        stream=module.cuda.current_stream(number).cuda_stream,
        verify=verify,
        file=checkpoint.path,
    )
    return dict(made)


def _device_name(device: object) -> str:
    """Of a text, or of a torch.device, for which torch need not be imported here."""
    if isinstance(device, str):
        return device
    if (type(device).__module__, type(device).__name__) == ("torch", "device"):
        return str(device)
    raise TypeError(f"device is a {type(device).__name__}; it is a text or a torch.device")


def load(
    path: Path,
    device: str | torch.device = "cpu",
    *,
    names: Names | None = None,
    verify: bool = False,
) -> dict[str, Loaded]:
    """The tensors of a checkpoint by name, as they are stored.

    path    a .safetensors file or a directory of them
    device  "cpu": views of the mapped files, nothing is copied; what is written to them changes
            no file. "cuda" or "cuda:I", or such a
            torch.device: tensors on that GPU, read by several threads through a ring of
            pinned memory (6 MiB for each processor, at most 84 MiB). Tensors that follow each
            other share allocations of at most 512 MiB, which are given back when the last of
            them is gone.
    names   only these tensors, or all tensors of these packed weights; nothing else is read. A
            mapping takes parts: {"...w2_weight_packed": np.s_[0:4, :, 16:32]}, or of a stack
            {"...experts.w2": np.s_[0:4]}, the same experts of all of its tensors
    verify  on the CPU, the whole path is verified first, as verify() does; to a
            GPU, each file that is read is read whole, and hashed on the way. A flipped bit is
            a Difference (VerifyError on the CPU).

    Returns {name: torch.Tensor}, on a GPU ready for every stream. Where torch is not installed,
    {name: Tensor}, of which np.asarray() makes arrays; open(path).tensors are such in any case.
    Kernels take the operands that open(path).weights[name].operands() makes of them.
    Raises Error for files that are missing, truncated, changed meanwhile or contradict their
    headers, before any tensor is handed out; ResourceError where memory or the GPU fails.
    """
    place = os.fsdecode(path)
    where = _device_name(device)
    checkpoint = Checkpoint(place)
    chosen = _chosen(checkpoint, names)
    if where == "cpu":
        if verify:
            commands.verify(place)
        return _here({n: _view(checkpoint.tensors[n], part) for n, part in chosen.items()})
    if where != "cuda" and not where.startswith("cuda:"):
        raise UnsupportedError(f"device {where!r}", hint="there are cpu, cuda and cuda:I")
    return _to_device(checkpoint, chosen, where, verify)
