"""What can go wrong, as exceptions that carry where and what to do.

Every exception of this package is an Error, but for the TypeError of an argument that is of a
wrong type. Its subclasses follow the exit statuses of the
program tilepack(1), which are also the codes of the C library.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from ._spoken import spoken


class Error(Exception):
    """Something failed.

    message  what is wrong, and why
    file     the file or directory concerned, or None
    tensor   the tensor concerned, or None
    offset   the byte of the file concerned, or None
    hint     what to do about it, or None
    code     the exit status of the program for such a failure
    """

    code = 1

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        tensor: str | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.file, self.tensor = message, file, tensor
        self.offset, self.hint = offset, hint

    def __str__(self) -> str:
        where = [self.file] if self.file else []
        if self.tensor:
            where.append(f"tensor '{self.tensor}'")
        at = f" (at byte {self.offset})" if self.offset is not None else ""
        hint = f"; {self.hint}" if self.hint else ""
        return ": ".join([*where, self.message]) + at + hint


class Difference(Error):
    """A comparison or a check found a difference (code 1)."""


class UsageError(Error):
    """An argument is wrong (code 2)."""

    code = 2


class InputError(Error):
    """A file, or data, is not what it should be (code 3)."""

    code = 3


class UnsupportedError(Error):
    """Right, but not to be done by this version (code 4)."""

    code = 4


class SystemFailure(Error):
    """The operating system refused: no such file, no space, no permission (code 5)."""

    code = 5


class MissingFileError(SystemFailure, FileNotFoundError):
    """There is no such file: a SystemFailure, and Python's own FileNotFoundError."""

    def __init__(self, message: str, **where: Any) -> None:
        super().__init__(message, **where)
        self.errno, self.strerror = errno.ENOENT, os.strerror(errno.ENOENT)
        self.filename = self.file

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy: what OSError has of its own follows from the file."""
        return partial(type(self), file=self.file), (self.message,), self.__dict__


class ResourceError(Error):
    """Out of memory, or the device failed (code 6)."""

    code = 6


class ExistsError(Error):
    """The output exists already, and is another one (code 7).

    reason  how, as a word: "source", "options", "format", ... (docs/json.md)
    """

    code = 7
    reason: str | None = None


class LockedError(Error):
    """Another process writes the output (code 8)."""

    code = 8


@contextmanager
def refusals(what: str, file: str | None = None) -> Iterator[None]:
    """What the operating system refuses within is an Error of the file, and says `what`."""
    try:
        yield
    except OSError as error:
        kinds: dict[int | None, type[Error]] = {
            errno.ENOMEM: ResourceError,
            errno.ENOENT: MissingFileError,
        }
        kind = kinds.get(error.errno, SystemFailure)
        raise kind(f"{what}: {error.strerror or error}", file=file) from None


class Interrupted(Error):
    """The program was ended by a signal (codes 130 and 143)."""

    code = 130


_KINDS = {
    kind.code: kind
    for kind in (
        Difference,
        UsageError,
        InputError,
        UnsupportedError,
        SystemFailure,
        ResourceError,
        ExistsError,
        LockedError,
    )
}


def of_code(code: int, message: str, *, hint: str | None = None, **where: Any) -> Error:
    """The exception for a status of the library or the program, not yet raised."""
    kind = Interrupted if code in (130, 143) or code < 0 else _KINDS.get(code, Error)
    if kind is SystemFailure and f": {os.strerror(errno.ENOENT)}" in message:
        kind = MissingFileError
    error = kind(spoken(message), hint=spoken(hint) if hint else None, **where)
    error.code = code
    return error


def of_report(report: Mapping[str, Any]) -> Error:
    """The exception for the member "error" of what a command printed under --json."""
    error = of_code(
        int(report.get("code", 1)),
        str(report.get("message", "")),
        file=report.get("path"),
        tensor=report.get("tensor"),
        offset=report.get("offset"),
        hint=report.get("hint"),
    )
    if isinstance(error, ExistsError):
        error.reason = report.get("reason")
    return error
