"""Boxes of stored tensors, and the library's loader, which brings them to memory of the caller.

Indices are those of numpy: numbers, and slices of step 1. Knows neither where the memory comes
from nor what it is called there.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, SupportsIndex, Union

from . import _native
from .errors import UsageError

At = Union[SupportsIndex, slice]
Index = Union[At, tuple[At, ...]]


def span(at: At, size: int, tensor: str) -> tuple[int, int]:
    """First element, and the one behind the last, along a dimension of that size."""
    try:
        if isinstance(at, slice):
            begin, end, step = at.indices(size)
            end = max(begin, end)
        else:
            begin, step = operator.index(at), 1
            begin += size if begin < 0 else 0
            end = begin + 1
    except (TypeError, ValueError) as error:
        raise UsageError(f"an index is a number or a slice: {error}", tensor=tensor) from None
    if step != 1:
        raise UsageError("a slice with a step", tensor=tensor)
    if not 0 <= begin <= end <= size:
        raise UsageError(f"{begin} is not below {size}", tensor=tensor)
    return begin, end


@dataclass(frozen=True)
class Part:
    """A box of a stored tensor.

    number  of the tensor in its checkpoint
    dtype   its name in safetensors
    spans   along each of the tensor's dimensions
    shape   of the result: dimensions that the index names by a number are gone
    whole   not the tensor's own dimensions, but its bytes in this shape; empty: its own
    """

    number: int
    dtype: str
    spans: tuple[tuple[int, int], ...]
    shape: tuple[int, ...]
    whole: tuple[int, ...] = ()


def part(number: int, dtype: str, stored: tuple[int, ...], index: Index, name: str) -> Part:
    """What `index` takes of a tensor of the shape `stored`; what it leaves out is taken whole."""
    if isinstance(index, tuple) and not index:  # most, of thousands: no dimension is looked at
        return Part(number, dtype, tuple((0, size) for size in stored), stored)
    at = index if isinstance(index, tuple) else (index,)
    if len(at) > len(stored):
        raise UsageError(f"an index of {len(at)} dimensions", tensor=name)
    at += (slice(None),) * (len(stored) - len(at))
    spans = tuple(span(a, size, name) for a, size in zip(at, stored))
    kept = [end - begin for a, (begin, end) in zip(at, spans) if isinstance(a, slice)]
    return Part(number, dtype, spans, tuple(kept))


@lru_cache(maxsize=4096)  # the layers of a model are alike
def _box(whole: tuple[int, ...], spans: tuple[tuple[int, int], ...]) -> _native.Part:
    """A part of no tensor yet."""
    found = _native.Part(rank=len(whole))
    found.shape[: len(whole)] = whole
    found.begin[: len(spans)] = [begin for begin, _ in spans]
    found.end[: len(spans)] = [end for _, end in spans]
    return found


def copy(
    opened: Any,
    parts: Sequence[Part],
    addresses: Sequence[int],
    *,
    device: int,
    stream: int | None = None,
    verify: bool = False,
    threads: int = 0,
    ring: int = 0,
    **where: Any,
) -> None:
    """Copies parts to memory of their sizes: tilepack_load() of tilepack.h.

    opened     the library's handle of the checkpoint
    addresses  of contiguous memory for each part, on `device`; -1 is the host
    """
    array = (_native.Part * len(parts))()
    for i, (wanted, address) in enumerate(zip(parts, addresses)):
        array[i] = _box(wanted.whole, wanted.spans)
        array[i].tensor, array[i].to = wanted.number, address or None
    call = (opened, array, len(parts), device, stream, int(verify), threads, ring)
    _native.call("load", *call, **where)
