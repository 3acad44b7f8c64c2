"""Parameters of the stored shape, and copies of tiles into them.

Every load of the plugin goes through copy_tiles(): one strided copy for each part, output and
run of experts. What was copied is counted, so that a parameter that nobody filled is found, and
for the line in the log.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from vllm.logger import init_logger

from ..slices import Output, Packed, Span, region
from ..tensor import torch_dtype
from ..tiles import Grid
from .support import Refused

logger = init_logger("vllm.tilepack")  # below the logger that vLLM sets up


_PIECE = 256 << 20  # bytes of experts that are on the device twice at a time


@dataclass
class Account:
    """Bytes copied into parameters by this process, and the seconds of it.

    reading  tensors are still coming in
    """

    copied: int = 0
    seconds: float = 0.0
    reading: bool = False

    def tell(self) -> None:
        """One line for what was copied since the last one, when all is."""
        if self.copied and not self.reading:
            logger.info(
                "tilepack: %.2f GB copied into parameters in %.2f s, %.2f GB/s, nothing is "
                "processed",
                self.copied / 1e9,
                self.seconds,
                self.copied / 1e9 / max(self.seconds, 1e-9),
            )
            self.copied, self.seconds = 0, 0.0


account = Account()


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


def copy_tiles(
    target: torch.Tensor,
    to: Place,
    source: torch.Tensor,
    of: Place,
    experts: list[tuple[int, int, int]] | None = None,
) -> None:
    """Copies whole tiles; the tensors are whole and contiguous.

    experts  runs (first slot of the target, first expert of the source, count); None: all
    """
    begin = time.monotonic()
    into, out = to.view(target), of.view(source)
    for slot, first, count in experts or [(0, 0, out.shape[0])]:
        step = max(1, _PIECE // max(out.stride(0), 1))
        for at in range(0, count, step):
            part = into[slot + at : slot + min(at + step, count)]
            part.copy_(_there(out[first + at : first + at + part.shape[0]], part.device))
            account.copied += part.numel()
    account.seconds += time.monotonic() - begin


def _there(view: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The view on a device. What lies between its first and its last byte travels as it lies:
    torch would put the tiles of a view side by side on the host first, with all its threads."""
    if view.device == device or not view.numel():
        return view
    size = 1 + sum((n - 1) * step for n, step in zip(view.shape, view.stride()))
    between = torch.as_strided(view, (size,), (1,))
    return torch.as_strided(between.to(device), view.shape, view.stride(), 0)


def rename(layer: torch.nn.Module, old: str, new: str, data: torch.Tensor) -> None:
    """The parameter under the name that a kernel looks up, seen through a view of its data."""
    found: Any = layer._parameters.pop(old)
    found.data = data
    layer.register_parameter(new, found)
