"""How a stored tensor is cut and placed in whole tiles.

A layout of tilepack is a map of (e, n, k) to an offset: for each of the three, modes of sizes
and strides, fastest first. The last mode counts tiles and the others are what happens inside
one. A tile need not be contiguous: a tensor is seen as a strided view with an axis for each
open mode, and behind them those of the tile's inside. Slices of a weight, for a rank or of a
merged matrix, are then slices of the first three: no byte inside of a tile is ever moved.

Modes of e before its last are stretches of rows: of gate and up, which such a layout keeps side
by side, n counts the rows of each.

Knows numbers only, neither numpy nor torch. Invariant: the sizes of the view multiply to the
bytes of the layout.
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
    """Tiles in a grid of experts, rows and columns.

    inside     (size, stride in bytes) of the view's axes behind the first three
    stretches  of rows in an expert, of which `n` counts one
    """

    e: Axis
    n: Axis
    k: Axis
    inside: tuple[tuple[int, int], ...]
    stretches: int = 1

    def shape(self) -> tuple[int, ...]:
        """Of the view as bytes: (experts, tiles along n, tiles along k, inside of a tile ...)."""
        return self.e.count, self.n.count, self.k.count, *(size for size, _ in self.inside)

    def strides(self) -> tuple[int, ...]:
        """Of that view, in bytes."""
        return self.e.stride, self.n.stride, self.k.stride, *(step for _, step in self.inside)


def _modes(text: str) -> list[list[int]]:
    values = json.loads(text.replace("(", "[").replace(")", "]"))
    return [part if isinstance(part, list) else [part] for part in values]


def _inside(modes: list[list[int]], item: int) -> tuple[tuple[int, int], ...]:
    """Modes (size, stride in bytes) and the bytes of an element, with fewest axes, widest first."""
    found: list[tuple[int, int]] = [(item, 1)]
    for size, step in sorted(modes, key=lambda mode: mode[1]):
        last, before = found[-1]
        if step == last * before:
            found[-1] = last * size, before
        elif size > 1:
            found.append((size, step))
    return tuple(reversed(found))


def _join_nibbles(modes: list[list[int]], opened: list[list[int]], layout: str) -> None:
    """Elements of half a byte: the two of a byte become one, in the mode that counts them."""
    near = next((mode for mode in (*modes, *opened) if mode[1] == 1 and mode[0] % 2 == 0), None)
    others = [mode for mode in (*modes, *opened) if mode is not near and mode[0] > 1]
    if near is None or any(mode[1] % 2 for mode in others):
        raise UnsupportedError(f"the tiles of the layout {layout} are not whole bytes")
    near[0] //= 2
    if len(near) == 3:
        near[2] *= 2
    for mode in (*modes, *opened):
        mode[1] = 1 if mode is near else mode[1] // 2


def grid(layout: str, nbytes: int, per: tuple[int, int]) -> Grid:
    """The grid of a stored tensor.

    layout  as text with numbers only, as descriptors have it
    nbytes  of the tensor; what it divides among the layout's coordinates is one element
    per     (rows, columns) of the weight for which one element stands; 0: all of them
    Raises UnsupportedError for a layout whose tiles are not whole bytes.
    """
    shapes, strides = (_modes(part) for part in layout.split(":"))
    elements = math.prod(math.prod(sizes) for sizes in shapes)
    if nbytes * 8 % elements or nbytes * 8 // elements not in (4, 8, 16, 32, 64):
        raise UnsupportedError(f"the layout {layout} has gaps, in {nbytes} bytes")
    bits = nbytes * 8 // elements
    inner = [
        [size, step]
        for sizes, steps in zip(shapes, strides)
        for size, step in zip(sizes[:-1], steps[:-1])
    ]
    opened = [
        [sizes[-1], steps[-1], math.prod(sizes[:-1])] for sizes, steps in zip(shapes, strides)
    ]
    stretches = opened[0][2]
    if bits == 4:
        _join_nibbles(inner, opened, layout)
    item = max(bits // 8, 1)
    e, n, k = (
        Axis(count, stride * item, within * step)
        for (count, stride, within), step in zip(opened, (1, *per))
    )
    inside = _inside([[size, step * item] for size, step in inner], item)
    return Grid(e, n, k, inside, stretches)
