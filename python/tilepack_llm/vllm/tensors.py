"""Parameters of the stored shape, and the tiles that belong into them.

Every load of the plugin goes through copy_tiles(): a box of the file, and a view of the parameter,
for each part, output and run of experts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from ..slices import Output, Packed, Span, cut, region
from ..tensor import torch_dtype
from ..tiles import Grid
from .staging import Move, View, account, source_of, staging
from .support import Refused


def parameter(output: Output) -> torch.nn.Parameter:
    """Of the stored shape."""
    data = torch.empty(output.shape, dtype=torch_dtype(output.dtype))
    return torch.nn.Parameter(data, requires_grad=False)


def constant(output: Output) -> torch.Tensor:
    """The words of an output that follow from the size."""
    return torch.tensor(output.words, dtype=torch_dtype(output.dtype)).reshape(output.shape)


def check(where: str, output: Output, tensor: torch.Tensor) -> None:
    """Refuses a tensor that is not of the stored dtype and shape, or other constants."""
    if tensor.dtype != torch_dtype(output.dtype) or tuple(tensor.shape) != output.shape:
        raise Refused(
            f"{where}: {output.suffix} is {tensor.dtype} {list(tensor.shape)}, expected is "
            f"{torch_dtype(output.dtype)} {list(output.shape)}",
            hint="run `tilepack verify`",
        )
    if output.words is not None and tuple(tensor.flatten().tolist()) != output.words:
        raise Refused(
            f"{where}: {output.suffix} is {tensor.flatten().tolist()[:3]}, expected is "
            f"{list(output.words[:3])}: its codes lie in another layout",
            hint="convert again with this version",
        )


_SCALES = ("weight_scale", "weight_scale_inv")


def check_dtype(where: str, packed: Packed, dtype: torch.dtype) -> None:
    """Refuses a model in another dtype than its weights are for: that of 16-bit scales, which
    kernels take of the activations' type, or for which others were made, and else bfloat16."""
    scales = (out.dtype for out in packed.outputs.values() if out.suffix in _SCALES)
    half = "F16" in scales or packed.parameters.get("scales") == "f16"
    wanted = torch.float16 if half else torch.bfloat16
    if dtype != wanted:
        names = [str(kind).removeprefix("torch.") for kind in (wanted, dtype)]
        raise Refused(
            f"{where}: its {packed.format} is for models in {names[0]}, and this one runs in "
            f"{names[1]}",
            hint=f"start it with --dtype {names[0]}",
        )


@dataclass(frozen=True)
class Place:
    """Where something lies in a tensor: rows and columns of a weight of that box."""

    output: Output
    box: tuple[int, int, int]
    rows: Span
    columns: Span

    @property
    def grid(self) -> Grid:
        assert self.output.grid is not None
        return self.output.grid

    def tiles(self, first: int, count: int) -> tuple[slice, slice, slice]:
        """Of some experts."""
        _, n, k = region(self.grid, self.box, self.rows, self.columns)
        return slice(first, first + count), n, k

    def view(self, first: int, count: int) -> View:
        """Of their bytes: axes for experts, tiles along n and k, and the inside of a tile."""
        index, steps = self.tiles(first, count), self.grid.strides()
        shape = *(one.stop - one.start for one in index), *self.grid.shape()[3:]
        return View(shape, steps, sum(one.start * step for one, step in zip(index, steps)))


@lru_cache(maxsize=4096)  # the layers of a model are alike
def _move(to: Place, slot: int, of: Place, first: int, count: int) -> Move:
    return Move.of(cut(of.grid, of.tiles(first, count)), to.view(slot, count))


def copy_tiles(
    target: torch.Tensor,
    to: Place,
    tensor: torch.Tensor,
    of: Place,
    experts: list[tuple[int, int, int]] | None = None,
) -> None:
    """Copies whole tiles; the tensors are whole and contiguous. What lies in a file is there after
    the next flush() only.

    experts  runs (first slot of the target, first expert of the tensor, count); None: all
    """
    source = source_of(tensor)
    for slot, first, count in experts or [(0, 0, to.grid.e.count)]:
        if source is None:
            tiles = of.view(first, count).seen(tensor.to(target.device))
            _copy(to.view(slot, count).seen(target), tiles)
            continue
        whole = _move(to, slot, of, first, count)
        step = max(1, staging.room * count // whole.room) if whole.room else count
        for at in range(0, count, step):
            move = _move(to, slot + at, of, first + at, min(step, count - at))
            staging.add(source, move, target)


def _copy(part: torch.Tensor, tiles: torch.Tensor) -> None:
    begin = time.monotonic()
    part.copy_(tiles)
    account.copied += part.numel()
    account.seconds += time.monotonic() - begin


def rename(layer: torch.nn.Module, old: str, new: str, data: torch.Tensor) -> None:
    """The parameter under the name that a kernel looks up, seen through a view of its data."""
    found: Any = layer._parameters.pop(old)
    found.data = data
    layer.register_parameter(new, found)
