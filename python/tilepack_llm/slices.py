"""A packed weight as a merged or divided layer needs it: what its tensors are like for a size,
and which tiles of the stored ones belong where.

Engines hold q, k and v, or gate and up, as one matrix, and divide matrices among ranks by rows
or by columns. Both are copies of whole tiles between two tensors of one format: the stored one,
and one of the size that a rank holds. Knows neither numpy nor torch.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ._formats import format_facts
from ._native import Described, call
from .errors import UnsupportedError
from .tiles import Grid, grid

Box = tuple[int, int, int]
Span = tuple[int, int]


@dataclass(frozen=True, eq=False)  # layers that are alike share them
class Output:
    """One tensor of a packed weight of some size.

    suffix  what it is called in a file behind the weight's name
    dtype   as in a safetensors header
    shape   as it is stored
    grid    its tiles; None for constants, and for one number that every rank has
    words   the elements of a constant, which follow from the size alone; else None
    fill    every byte of its padding; None: no tile is nothing but padding
    """

    suffix: str
    dtype: str
    shape: tuple[int, ...]
    grid: Grid | None
    words: tuple[int, ...] | None
    fill: int | None = None


@dataclass(frozen=True)
class Packed:
    """A weight of one format and size.

    parameters  of the format, as its descriptor has them
    box         (E, N, K)
    stacked     it is stored with a leading E
    per         {suffix: (rows, columns) of the weight for each element of a tensor}
    part        what it is for its format, as its descriptor has it: "up", "down", "wide", ...;
                "gated": its rows are those of gate and up, one after the other
    bias        it is the bias of such a weight, whose one tensor has no suffix
    reordered   its rows lie in another order than in its source, the one that engines want
    prefix      of its tensors in the file, before their suffixes
    """

    format: str
    parameters: Mapping[str, str]
    box: Box
    stacked: bool
    per: Mapping[str, Span]
    part: str | None = None
    bias: bool = False
    reordered: bool = False
    prefix: str = ""

    def of_size(self, box: Box) -> Packed:
        """The same for another size. Nothing is checked before outputs are asked for."""
        return replace(self, box=box)

    def matrix_of_size(self, box: Box) -> Packed:
        """A matrix that is no expert, for another size: of two ways to pad it, `convert` and
        engines choose the one that takes less room."""
        ways = [replace(self, box=box, part=part) for part in (None, "wide")]
        return min(ways, key=lambda way: math.prod(next(iter(way.outputs.values())).shape))

    @cached_property
    def outputs(self) -> dict[str, Output]:
        """By suffix. UnsupportedError when the format cannot hold a weight of this size."""
        words = ",".join(f"{key}={value}" for key, value in self.parameters.items())
        per = tuple(self.per.items())
        key = (self.format, words, self.box, self.part, self.bias, self.stacked, per)
        if key not in _made:  # the layers of a model are alike
            described = Described.new(self.format, words or None, self.box, self.part, self.bias)
            made = [self._output(described, i) for i in range(described.tensors)]
            _made[key] = {output.suffix: output for output in made}
        return dict(_made[key])

    @cached_property
    def inputs(self) -> dict[str, Output]:
        """By suffix: the activation scales of experts, a number for each, as of global scales, or
        one for all of them."""
        facts = format_facts(self.format)
        if self.bias or "inputs" not in facts:
            return {}
        suffix = facts["inputs"]["suffix"]
        like = next(out["suffix"] for out in facts["outputs"] if out["role"] == "global")
        scales = replace(self.outputs[like], suffix=suffix)
        if not facts["inputs"]["shape"]:
            scales = replace(scales, shape=(), grid=None)
        return {suffix: scales}

    def _output(self, described: Described, i: int) -> Output:
        suffix, shape = described.suffix(i), described.shape(i)
        facts = format_facts(self.format)
        facts = facts["bias"] if self.bias else facts
        facts = next(out for out in facts["outputs"] if out["suffix"] == suffix)
        if not self.stacked and facts["shape"][0] == "E" and not facts.get("keep_e"):
            shape = shape[1:]
        layout = described.layout(i)
        tiles = layout and grid(layout, described.bytes(i), self.per.get(suffix, (1, 1)))
        words = None if layout else _words(described, i)
        padded = tiles and _is_padded(tiles, self.box)
        fill = facts.get("fill", 0) if padded else None
        return Output(suffix, described.dtype(i), shape, tiles or None, words, fill)


_made: dict[tuple[Any, ...], dict[str, Output]] = {}  # by all that outputs follow from


def _words(described: Described, i: int) -> tuple[int, ...]:
    kind = {"I32": ctypes.c_int32, "I64": ctypes.c_int64}[described.dtype(i)]
    values = (kind * (described.bytes(i) // ctypes.sizeof(kind)))()
    call("weight_constant", described.handle, i, ctypes.addressof(values))
    return tuple(values)


def region(tiles: Grid, box: Box, rows: Span, columns: Span) -> tuple[slice, slice, slice]:
    """Index of a view with the grid's shape, for rows and columns of a weight of that box; of
    stretches of rows, the same of each.

    UnsupportedError when they do not begin and end with tiles.
    """
    n = tiles.n.tiles(*rows, box[1] // tiles.stretches)
    k = tiles.k.tiles(*columns, box[2])
    return slice(None), slice(*n), slice(*k)


def _is_padded(tiles: Grid, box: Box) -> bool:
    """Whether there are tiles behind the last row or column of the weight."""
    whole = region(tiles, box, (0, box[1] // tiles.stretches), (0, box[2]))
    return tuple(one.stop for one in whole[1:]) != (tiles.n.count, tiles.k.count)


@dataclass(frozen=True)
class Cut:
    """The box of a stored tensor in which tiles lie side by side, and a view of them in it.

    whole, spans     the tensor's bytes as an array of a shape, and the box's part of each dimension
    shape, strides   of the view, as those of the grid, in the bytes of the box
    """

    whole: tuple[int, ...]
    spans: tuple[Span, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape)

    def lies_as(self, strides: Sequence[int]) -> bool:
        """Whether another view of this shape has the same bytes in the same order."""
        pairs = zip(self.shape, self.strides, strides)
        return all(size == 1 or mine == other for size, mine, other in pairs)


def cut(tiles: Grid, index: tuple[slice, slice, slice]) -> Cut:
    """The box of a tensor that holds the tiles of an index along e, n and k, and nothing else."""
    sizes, steps = tiles.shape(), tiles.strides()
    taken = [one.indices(size)[:2] for one, size in zip(index, sizes)]
    taken += [(0, size) for size in sizes[len(taken) :]]
    shape = tuple(end - begin for begin, end in taken)
    order = sorted((i for i, size in enumerate(sizes) if size > 1), key=lambda i: -steps[i])
    strides, step = list(steps), 1
    for i in reversed(order):
        strides[i], step = step, step * shape[i]
    return Cut(
        tuple(sizes[i] for i in order) or (1,),
        tuple(taken[i] for i in order) or ((0, 1),),
        shape,
        tuple(strides),
    )


def rows_of_rank(stored: int, mine: int, rank: int, ranks: int) -> Span:
    """Rows of a stored matrix that a rank holds.

    stored  rows in the file
    mine    rows of one rank: all of them where nothing is divided, stored / ranks where each
            rank has its own, more where several ranks share theirs, as key and value heads are
            with more ranks than heads
    UnsupportedError when no such division gives `mine`.
    """
    if mine == stored:
        return 0, stored
    copies, rest = divmod(mine * ranks, stored) if stored else (0, 1)
    if rest or not copies or ranks % copies:
        raise UnsupportedError(f"{mine} rows for each of {ranks} ranks, the file has {stored}")
    begin = rank // copies * mine
    return begin, begin + mine


def columns_of_rank(stored: int, mine: int, rank: int, ranks: int) -> Span:
    """Columns of a stored matrix that a rank holds: all, or an equal share."""
    if mine == stored:
        return 0, stored
    if mine * ranks != stored:
        raise UnsupportedError(f"{mine} columns for each of {ranks} ranks, the file has {stored}")
    return rank * mine, (rank + 1) * mine


def runs(local: list[int]) -> list[tuple[int, int, int]]:
    """Experts of the file, in the order of a rank's slots, as runs (first slot, first, count)."""
    found: list[tuple[int, int, int]] = []
    for slot, expert in enumerate(local):
        if found and expert == found[-1][1] + found[-1][2]:
            found[-1] = (found[-1][0], found[-1][1], found[-1][2] + 1)
        else:
            found.append((slot, expert, 1))
    return found
