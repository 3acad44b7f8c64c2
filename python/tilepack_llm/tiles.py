"""Which bytes of a stored tensor are whole tiles, and how to cut and place them.

A layout of tilepack is a map of (e, n, k) to an offset: for each of the three, modes of sizes
and strides, fastest first. The last mode counts tiles and the others are what happens inside
one. Tiles are contiguous and lie in a grid, so that slices of a weight, for a rank or of a
merged matrix, are strided views of whole tiles: no byte inside of a tile is ever moved.

Knows numbers only, neither numpy nor torch. Invariant: tile * the three counts is the
tensor's size.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from .errors import UnsupportedError


@dataclass(frozen=True)
class Axis:
    """One of e, n, k of a stored tensor.

    count   tiles along it
    stride  bytes from one to the next
    step    rows or columns of the weight that one tile stands for; 0: the axis does not
            count here, every rank has all of it
    """

    count: int
    stride: int
    step: int

    def tiles(self, begin: int, end: int, whole: int) -> tuple[int, int]:
        """Tiles [first, last) of rows [begin, end) out of `whole`.

        Raises UnsupportedError when they do not begin and end with a tile; the last one of the
        weight may be cut short.
        """
        if not self.step:
            return 0, self.count
        if begin % self.step or (end % self.step and end != whole):
            raise UnsupportedError(
                f"{begin} to {end} of {whole} are not whole tiles of {self.step}"
            )
        return begin // self.step, -(-end // self.step)


@dataclass(frozen=True)
class Grid:
    """Tiles of `tile` bytes in a grid of experts, rows and columns."""

    e: Axis
    n: Axis
    k: Axis
    tile: int

    def shape(self) -> tuple[int, int, int, int]:
        """Of the view as bytes: (experts, tiles along n, tiles along k, bytes of a tile)."""
        return self.e.count, self.n.count, self.k.count, self.tile

    def strides(self) -> tuple[int, int, int, int]:
        """Of that view, in bytes."""
        return self.e.stride, self.n.stride, self.k.stride, 1


def _modes(text: str) -> list[list[int]]:
    values = json.loads(text.replace("(", "[").replace(")", "]"))
    return [part if isinstance(part, list) else [part] for part in values]


def _open_modes(shapes: list[list[int]], strides: list[list[int]]) -> list[list[int]]:
    """[tiles, stride of one, coordinates inside one] of each axis, in elements of the layout."""
    return [[sizes[-1], steps[-1], math.prod(sizes[:-1])] for sizes, steps in zip(shapes, strides)]


def _extent(shapes: list[list[int]], strides: list[list[int]]) -> int:
    """Elements from the first of a tile to its last."""
    inside = (
        (size - 1) * step
        for sizes, steps in zip(shapes, strides)
        for size, step in zip(sizes[:-1], steps[:-1])
    )
    return 1 + sum(inside)


def grid(layout: str, nbytes: int, per: tuple[int, int]) -> Grid:
    """The grid of a stored tensor.

    layout  as text with numbers only, as descriptors have it
    nbytes  of the tensor; what it divides among the layout's coordinates is one element
    per     (rows, columns) of the weight for which one element stands; 0: all of them
    Raises UnsupportedError for a layout whose tiles are not contiguous.
    """
    shapes, strides = (_modes(part) for part in layout.split(":"))
    bits = nbytes * 8 // math.prod(math.prod(sizes) for sizes in shapes)
    axes = _open_modes(shapes, strides)
    tile = math.prod(axis[2] for axis in axes)
    if _extent(shapes, strides) != tile:
        raise UnsupportedError(f"the tiles of the layout {layout} are not contiguous")
    while tile * bits % 8:  # elements smaller than a byte: the next ones join the tile
        near = next((a for a in axes if a[1] == tile and a[0] % 2 == 0), None)
        if near is None:
            raise UnsupportedError(f"the tiles of the layout {layout} are not whole bytes")
        near[:] = near[0] // 2, near[1] * 2, near[2] * 2
        tile *= 2
    e, n, k = (
        Axis(count, stride * bits // 8, within * step)
        for (count, stride, within), step in zip(axes, (1, *per))
    )
    return Grid(e, n, k, tile * bits // 8)
