"""A checkpoint, plain or packed, memory-mapped: tensors, packed weights, their operands.

libtilepack reads and judges the headers, so that a file that is truncated, or whose header
contradicts itself, is refused before anything is handed out. The data is mapped, copy on write:
arrays are views, nobody can change the file through them, and nothing is read until it is
used. Tensors of compressed files (.safetensors.zst) are read into memory when they are asked
for. What is mapped is the file that was opened, also when another one has its name by now.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _native
from ._options import Path
from .errors import InputError, UsageError, refusals
from .operands import Operands, operands
from .parts import Index, Part, part, span
from .tensor import Tensor, stored

__all__ = ["Checkpoint", "Path", "Tensors", "Weight", "open"]


class _Opened:
    """The library's handle, closed with the last object that asks it, and the mapped files."""

    def __init__(self, path: str) -> None:
        self.handle = _native.Handle()
        self._files: dict[int, npt.NDArray[np.uint8]] = {}
        _native.call("open", _native.file_name(path), ctypes.byref(self.handle), file=path)

    def __del__(self) -> None:
        if self.handle:
            _native.ask("close", self.handle)

    def ask(self, name: str, *arguments: Any) -> Any:
        return _native.ask(name, self.handle, *arguments)

    def _file(self, descriptor: int, path: str) -> npt.NDArray[np.uint8]:
        """Not by its path: another file may have that by now, with other offsets."""
        if descriptor not in self._files:
            with refusals("cannot be mapped", path):
                size = os.fstat(descriptor).st_size
                whole = mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY) if size else b""
            self._files[descriptor] = np.frombuffer(whole, np.uint8)
        return self._files[descriptor]

    def bytes(self, t: int, path: str, offset: int, size: int) -> npt.NDArray[np.uint8]:
        file = self._file(self.ask("tensor_descriptor", t), path)
        data = file[offset : offset + size]
        if data.size != size:
            raise InputError(
                f"it ends {size - data.size} bytes before a tensor does",
                file=path,
                hint="it was truncated after it was opened",
            )
        return data


class Tensors(Mapping[str, Tensor]):
    """All tensors of a checkpoint by name, as they are stored. Views are made when asked for."""

    def __init__(self, opened: _Opened) -> None:
        self._opened = opened
        self._index = {opened.ask("tensor_name", t): t for t in range(opened.ask("tensors"))}

    @property
    def handle(self) -> Any:
        return self._opened.handle

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __getitem__(self, name: str) -> Tensor:
        opened, t, offset = self._opened, self._index[name], ctypes.c_uint64()
        path = opened.ask("tensor_file", t, ctypes.byref(offset))
        size = int(opened.ask("tensor_bytes", t))
        if path is not None:
            raw = opened.bytes(t, path, offset.value, size)
        else:
            raw = np.empty(size, np.uint8)
            _native.call("tensor_read", opened.handle, t, 0, raw.ctypes.data, size, tensor=name)
        return stored(raw, *self._kind(t))

    def __repr__(self) -> str:
        return f"Tensors({len(self)} by name)"

    def _kind(self, t: int) -> tuple[str, tuple[int, ...]]:
        shape = _native.shape("tensor_shape", self._opened.handle, t)
        return str(self._opened.ask("tensor_dtype", t)), shape

    def number(self, name: str) -> int:
        """The library's own of a tensor."""
        return self._index[name]

    def part(self, name: str, index: Index = ()) -> Part:
        """A box of a tensor, of which nothing is read."""
        t = self.number(name)
        return part(t, *self._kind(t), index, name)


class Weight:
    """A packed weight W[E,N,K].

    name     "model.layers.0.self_attn.q_proj": its tensors' names without the suffixes
    format   "w4a8-cutlass", ...
    box      (E, N, K)
    stacked  it is stored with a leading E, as a stack of experts
    shape    (N, K), or (E, N, K) of a stack; weight[n, k] are decoded values, and np.asarray() of
             it all of them, of its dtype, float32
    stored   its tensors by suffix, as they lie in the file
    layouts  {suffix: where element (e, n, k) lies}, as text; see tilepack-formats(5)
    roles    {suffix: "codes", "scale", ...}
    """

    def __init__(self, opened: _Opened, tensors: Tensors, index: int) -> None:
        self._opened, self._tensors, self._index = opened, tensors, index
        self.name = str(opened.ask("packed_name", index))
        self.format = str(opened.ask("packed_format", index))
        box = (ctypes.c_uint64 * 3)()
        opened.ask("packed_box", index, box)
        self.box: tuple[int, int, int] = (box[0], box[1], box[2])

    def __repr__(self) -> str:
        return f"Weight({self.name}, {self.format}, {list(self.box)})"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.box if self.stacked else self.box[1:]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """Of its values; those of its tensors are stored[suffix].dtype."""
        return np.dtype(np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, box: Index) -> npt.NDArray[np.float32]:
        """values(box)."""
        return self.values(box)

    def __iter__(self) -> Iterator[npt.NDArray[np.float32]]:
        return (self.values(i) for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("values are decoded, which takes a copy")
        return self.values() if dtype is None else self.values().astype(dtype, copy=False)

    @cached_property
    def described(self) -> _native.Described:
        """Its descriptor, as the library holds it."""
        handle = _native.Handle()
        _native.call("packed_weight", self._opened.handle, self._index, ctypes.byref(handle))
        return _native.Described(handle)

    @cached_property
    def tensor_names(self) -> dict[str, str]:
        """{suffix: name in the file}; a tensor that may be missing may be."""
        names: dict[str, str] = {}
        for i in range(self.described.tensors):
            t = self._opened.ask("packed_tensor", self._index, i)
            if t != _native.NOT_FOUND:
                names[self.described.suffix(i)] = str(self._opened.ask("tensor_name", t))
        return names

    @cached_property
    def stored(self) -> dict[str, Tensor]:
        return {suffix: self._tensors[name] for suffix, name in self.tensor_names.items()}

    @cached_property
    def stacked(self) -> bool:
        stack, shape = self.described.shape(0), self.stored[self.described.suffix(0)].shape
        return len(shape) == len(stack) and shape[0] == self.box[0]

    @property
    def layouts(self) -> dict[str, str]:
        d = self.described
        return {d.suffix(i): text for i in range(d.tensors) if (text := d.layout(i)) is not None}

    @property
    def roles(self) -> dict[str, str]:
        d = self.described
        return {d.suffix(i): d.role(i) for i in range(d.tensors)}

    def operands(self) -> Operands:
        """{argument: Tensor} as the kernel takes them; operands.operands() lists them."""
        return operands(self.format, self.box, self.stacked, self.stored)

    def torch(self) -> dict[str, Any]:
        """The operands as torch tensors."""
        return {name: tensor.torch() for name, tensor in self.operands().items()}

    def values(self, box: Index = ()) -> npt.NDArray[np.float32]:
        """Decoded values, as the format's kernel computes them.

        box  an index as of an array (N, K), or (E, N, K) of a stack: numbers, and slices of
             step 1, such as np.s_[16:32, :]. What is left out is taken whole.
        Returns float32 of the shape that the index gives, with the rows as they lie: of some
        weights in another order than the source's ("rows" in tilepack-formats(5)). No more of the
        file is read than the tiles that the values lie in.
        Raises UsageError for an index that is not inside the weight.
        """
        box = box if isinstance(box, tuple) else (box,)
        index = box if self.stacked else (0, *box)
        if len(index) > 3:
            raise UsageError(f"an index of {len(box)} dimensions", tensor=self.name)
        index += (slice(None),) * (3 - len(index))
        (e0, e1), (n0, n1), (k0, k1) = (
            span(at, size, self.name) for at, size in zip(index, self.box)
        )
        out = np.empty((e1 - e0, n1 - n0, k1 - k0), np.float32)
        for e in range(e0, e1) if out.size else ():
            _native.call(
                "packed_values",
                *(self._opened.handle, self._index, e, n0, n1, k0, k1),
                out[e - e0].ctypes.data,
                tensor=self.name,
            )
        return out[tuple(slice(None) if isinstance(at, slice) else 0 for at in index)]


class Checkpoint:
    """An opened checkpoint; see open().

    path     as it was given
    tensors  every stored tensor by name, those of packed weights included
    weights  the packed weights by name, in the order of the files' data
    others   the tensors that belong to no packed weight
    """

    def __init__(self, path: Path) -> None:
        self.path = os.fsdecode(path)
        opened = _Opened(self.path)
        self.tensors = Tensors(opened)
        self._opened = opened

    def __repr__(self) -> str:
        packed = self._opened.ask("packed")
        return f"Checkpoint({self.path!r}, {len(self.tensors)} tensors, {packed} packed weights)"

    @cached_property
    def weights(self) -> dict[str, Weight]:
        opened, tensors = self._opened, self.tensors
        weights: dict[str, Weight] = {}
        for w in range(opened.ask("packed")):
            weight = Weight(opened, tensors, w)
            if weights.setdefault(weight.name, weight) is not weight:
                raise InputError(
                    f"two packed weights are called '{weight.name}'",
                    file=self.path,
                    hint="`tilepack unpack` gives the values of both",
                )
        return weights

    @cached_property
    def others(self) -> dict[str, Tensor]:
        packed = {name for w in self.weights.values() for name in w.tensor_names.values()}
        return {name: self.tensors[name] for name in self.tensors if name not in packed}

    @property
    def handle(self) -> Any:
        """The library's own, which lives as long as the tensors."""
        return self.tensors.handle

    def weight(self, name: str) -> Weight:
        """The packed weight of that name; UsageError when there is none."""
        if name not in self.weights:
            raise UsageError(f"no packed weight '{name}'", file=self.path)
        return self.weights[name]

    def values(self, name: str, box: Index = ()) -> npt.NDArray[np.float32]:
        """Decoded values of a packed weight; see Weight.values()."""
        return self.weight(name).values(box)


def open(path: Path) -> Checkpoint:
    """Opens a .safetensors file or a directory of them, packed or plain. Reads headers only.

    Views stay valid as long as anything refers to them. Raises Error for files that are not
    what they should be.
    """
    return Checkpoint(path)
