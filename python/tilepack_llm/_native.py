"""tilepack.h by ctypes: prototypes, and calls whose failures are exceptions.

The library is loaded at the first call. ctypes lets go of the interpreter's lock while a
call runs, so that threads may quantize several weights at a time.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

from . import _files
from .errors import SystemFailure, UsageError, of_code

MAX_RANK = 8
NOT_FOUND = ctypes.c_size_t(-1).value
_MESSAGE = 4096

Handle = ctypes.c_void_p
_Shape = ctypes.c_uint64 * MAX_RANK


class FileName(ctypes.c_char_p):
    """A text that need not be UTF-8."""


class Part(ctypes.Structure):
    """struct tilepack_part."""

    _fields_ = (
        ("tensor", ctypes.c_size_t),
        ("begin", _Shape),
        ("end", _Shape),
        ("to", ctypes.c_void_p),
        ("rank", ctypes.c_size_t),
        ("shape", _Shape),
    )


_text, _size, _word, _int = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_int
_any, _words = ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)

# name: (result, arguments); of those that can fail, without the message and its size
_PLAIN: dict[str, tuple[Any, list[Any]]] = {
    "version": (_text, []),
    "format_name": (_text, [_size]),
    "format_is_written": (_int, [_text]),
    "format_title": (_text, [_text]),
    "format_json": (_text, [_text]),
    "weight_free": (None, [_any]),
    "weight_tensors": (_size, [_any]),
    "weight_suffix": (_text, [_any, _size]),
    "weight_role": (_text, [_any, _size]),
    "weight_dtype": (_text, [_any, _size]),
    "weight_layout": (_text, [_any, _size]),
    "weight_shape": (_size, [_any, _size, _words]),
    "weight_bytes": (_word, [_any, _size]),
    "cuda_devices": (_int, []),
    "close": (None, [_any]),
    "tensors": (_size, [_any]),
    "tensor_name": (_text, [_any, _size]),
    "tensor_dtype": (_text, [_any, _size]),
    "tensor_shape": (_size, [_any, _size, _words]),
    "tensor_bytes": (_word, [_any, _size]),
    "tensor_file": (FileName, [_any, _size, _words]),
    "tensor_descriptor": (_int, [_any, _size]),
    "packed": (_size, [_any]),
    "packed_name": (_text, [_any, _size]),
    "packed_format": (_text, [_any, _size]),
    "packed_box": (None, [_any, _size, _words]),
    "packed_tensor": (_size, [_any, _size, _size]),
}
_FALLIBLE: dict[str, list[Any]] = {
    "weight_new_part": [_text, _text, _text, _int, *[_word] * 3, ctypes.POINTER(_any)],
    "weight_constant": [_any, _size, _any],
    "quantize": [_any, _int, _any, _any, ctypes.POINTER(_int)],
    "quantize_cuda": [_any, _int, _any, _any, ctypes.c_float, _any, _int, _any],
    "decode": [_any, _any, _int, _any],
    "open": [_text, ctypes.POINTER(_any)],
    "tensor_read": [_any, _size, _word, _any, _word],
    "load": [_any, ctypes.POINTER(Part), _size, _int, _any, _int, ctypes.c_uint, _word],
    "packed_weight": [_any, _size, ctypes.POINTER(_any)],
    "packed_values": [_any, _size, _word, _word, _word, _word, _word, _any],
}


@cache
def library() -> Any:
    """The loaded library with its prototypes."""
    path = _files.library()
    try:
        loaded = ctypes.CDLL(path)
        for name, (result, arguments) in _PLAIN.items():
            function = getattr(loaded, f"tilepack_{name}")
            function.restype, function.argtypes = result, arguments
        for name, arguments in _FALLIBLE.items():
            function = getattr(loaded, f"tilepack_{name}")
            function.restype, function.argtypes = _int, [*arguments, _text, _size]
    except (OSError, AttributeError) as error:
        raise SystemFailure(
            f"cannot be loaded as libtilepack: {error}",
            file=path,
            hint="it must be of the version of this package",
        ) from None
    return loaded


@cache
def _function(name: str) -> Any:
    return getattr(library(), f"tilepack_{name}")


def file_name(path: str) -> bytes:
    """A path as the library takes it."""
    try:
        return os.fsencode(path)
    except UnicodeEncodeError as error:
        raise UsageError(f"no name of a file: {error}", file=ascii(path)) from None


def word(text: str) -> bytes:
    """A name or a parameter as the library takes it."""
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"no text: {error}") from None


def _run(name: str, arguments: tuple[Any, ...]) -> Any:
    """The function, unless a text would end for it before its end."""
    for text in arguments:
        if isinstance(text, bytes) and b"\0" in text:
            raise UsageError(f"a zero byte in {os.fsdecode(text)!r}")
    return _function(name)(*arguments)


def ask(name: str, *arguments: Any) -> Any:
    """A function that cannot fail; texts are str, or None."""
    result = _run(name, arguments)
    if isinstance(result, FileName):
        return None if result.value is None else os.fsdecode(result.value)
    return result.decode() if isinstance(result, bytes) else result


def _without(message: str, where: dict[str, Any]) -> str:
    """The message without the file that the exception names by itself."""
    return message.removeprefix(f"{where.get('file')}: ")


def call(name: str, *arguments: Any, **where: Any) -> None:
    """A function that can fail: raises the Error with the library's message."""
    message = ctypes.create_string_buffer(_MESSAGE)
    status = _run(name, (*arguments, message, _MESSAGE))
    if status:
        raise of_code(status, _without(message.value.decode(errors="replace"), where), **where)


def shape(name: str, *arguments: Any) -> tuple[int, ...]:
    """A function that fills a shape and returns its rank."""
    sizes = _Shape()
    rank = ask(name, *arguments, sizes)
    return tuple(sizes[:rank])


def pointers(addresses: Sequence[int | None]) -> Any:
    """An array of pointers for the library."""
    return (ctypes.c_void_p * len(addresses))(*addresses)


class Described:
    """A tilepack_weight: the tensors of one weight W[E,N,K] in one format.

    tensors  the number of them; suffix(i), role(i), dtype(i), shape(i), bytes(i), layout(i)
             as tilepack.h has them
    """

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self.handle = handle
        self.tensors: int = ask("weight_tensors", handle)

    @classmethod
    def new(
        cls,
        fmt: str,
        parameters: str | None,
        box: tuple[int, int, int],
        part: str | None = None,
        bias: bool = False,
    ) -> Described:
        """part, bias  as descriptors have them, and "gated" of gate and up"""
        handle = Handle()
        words, of = (None if text is None else word(text) for text in (parameters, part))
        at = ctypes.byref(handle)
        call("weight_new_part", word(fmt), words, of, bias, *box, at)
        return cls(handle)

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None:
            ask("weight_free", self.handle)

    def suffix(self, i: int) -> str:
        return str(ask("weight_suffix", self.handle, i))

    def role(self, i: int) -> str:
        return str(ask("weight_role", self.handle, i))

    def dtype(self, i: int) -> str:
        return str(ask("weight_dtype", self.handle, i))

    def shape(self, i: int) -> tuple[int, ...]:
        """As in a stack of E experts, E = 1 included."""
        return shape("weight_shape", self.handle, i)

    def bytes(self, i: int) -> int:
        return int(ask("weight_bytes", self.handle, i))

    def layout(self, i: int) -> str | None:
        text = ask("weight_layout", self.handle, i)
        return None if text is None else str(text)
