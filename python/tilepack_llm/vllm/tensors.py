"""Parameters of the stored shape, and the tiles that belong into them.

Every load of the plugin goes through copy_tiles(): a box of the file, and one strided copy, for
each part, output and run of experts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from ..slices import Cut, Output, Packed, Span, cut_of, region
from ..tensor import torch_dtype
from ..tiles import Grid
from .staging import PIECE, account, source_of, staging
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
    if output.words is not None and not torch.equal(tensor.cpu(), constant(output)):
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


def tiles_of(tensor: torch.Tensor, grid: Grid) -> torch.Tensor:
    """The tensor's bytes with axes for experts, tiles along n and k, and the inside of a tile."""
    flat = tensor.detach().view(-1).view(torch.uint8)
    return torch.as_strided(flat, grid.shape(), grid.strides())


@dataclass(frozen=True)
class Place:
    """Where something lies in a tensor: rows and columns of a weight of that box."""

    output: Output
    box: tuple[int, int, int]
    rows: Span
    columns: Span

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        grid = self.output.grid
        assert grid is not None
        return tiles_of(tensor, grid)[region(grid, self.box, self.rows, self.columns)]

    def cut(self, experts: Span) -> Cut:
        """The box of the stored tensor that holds these tiles of some experts."""
        grid = self.output.grid
        assert grid is not None
        return cut_of(grid, self.box, self.rows, self.columns, experts)


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
    into, source = to.view(target), source_of(tensor)
    for slot, first, count in experts or [(0, 0, into.shape[0])]:
        part = into[slot : slot + count]
        if source is None:
            _copy(part, of.view(tensor.to(target.device))[first : first + count])
            continue
        step = max(1, PIECE // max(of.cut((first, first + 1)).bytes, 1))
        for at in range(0, count, step):
            piece = part[at : at + step]
            staging.add(source, of.cut((first + at, first + at + piece.shape[0])), piece)


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
