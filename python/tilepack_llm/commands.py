"""convert, plan, verify and unpack: the program's commands as functions.

Each runs the program `tilepack` that belongs to this package (_running.py). Warnings of the
program are TilepackWarning.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._documented import lists_options
from ._options import ConvertOptions, Path, UnpackOptions, VerifyOptions
from ._running import Progress, ProgressCallback, Showing, TilepackWarning, run
from ._words import operands, text, words
from .errors import Difference

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "ConvertOptions",
    "Plan",
    "Progress",
    "ProgressCallback",
    "TilepackWarning",
    "UnpackOptions",
    "Verification",
    "VerifyError",
    "VerifyOptions",
    "Written",
    "convert",
    "engine",
    "plan",
    "unpack",
    "verify",
]


@dataclass(frozen=True)
class Plan:
    """What a conversion would do.

    units   one mapping for each packed weight: name, format, box, source, outputs
    report  everything that `tilepack plan --json` prints
    """

    bytes_in: int
    bytes_out: int
    units: Sequence[Mapping[str, Any]] = field(repr=False)
    report: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Written:
    """What convert or unpack has written.

    already_done  the output was there before, whole, and nothing was written
    report        everything that the command prints under --json
    """

    output: str
    already_done: bool
    bytes_in: int
    bytes_out: int
    seconds: float
    report: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Verification:
    """What verify found.

    problems  one mapping for each: what is wrong, and where
    weights   with `against`: one mapping for each weight with its error
    report    everything that `tilepack verify --json` prints
    """

    ok: bool
    problems: Sequence[Mapping[str, Any]]
    weights: Sequence[Mapping[str, Any]] = field(repr=False)
    report: Mapping[str, Any] = field(repr=False)


class VerifyError(Difference):
    """verify() found a difference; `verification` says which."""

    def __init__(self, verification: Verification, message: str, **where: Any) -> None:
        super().__init__(message, **where)
        self.verification = verification

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy, which would call the class with the message alone."""
        return type(self), (self.verification, self.message), self.__dict__


def engine(name: str) -> dict[str, Any]:
    """The file of an engine, parsed; engines/README.md defines its members."""
    return dict(run("engines", operands(name))["engines"][0])


@lists_options("convert")
def plan(source: Path, **options: Unpack[ConvertOptions]) -> Plan:
    """What convert() would write, without writing.

    source  a .safetensors file or a Hugging Face directory
    Raises Error as convert() does.
    """
    report = run("plan", words(options, ConvertOptions) + operands(source))
    return Plan(report["bytes_in"], report["bytes_out"], report["units"], report)


@lists_options("convert")
def convert(
    source: Path,
    output: Path,
    *,
    progress: Showing = None,
    **options: Unpack[ConvertOptions],
) -> Written:
    """Quantizes and repacks a checkpoint into kernel-ready bytes.

    source    a .safetensors file or a Hugging Face directory
    output    one file if its name ends in .safetensors or .safetensors.zst, else a directory
    progress  None shows a bar on a terminal and in a notebook, True or False one or none in any
              case. A function is called with a Progress, at most ten times a second and once at
              the end, unless it is a second behind then, in this thread; an exception of it ends
              the conversion, and is raised
    options   convert(src, dst, to="w4a8-cutlass", set={"scale": "cpu"}); format= is to=
    Raises Error; an output that is there and is another one is an ExistsError (force=True).
    """
    given = words(options, ConvertOptions) + [f"--output={text(output)}"]
    return _written(run("convert", given + operands(source), progress))


@lists_options("unpack")
def unpack(
    path: Path,
    output: Path,
    *,
    progress: Showing = None,
    **options: Unpack[UnpackOptions],
) -> Written:
    """The way back: plain weights, or with to=FORMAT another form of the same codes.

    progress  as of convert()
    Raises Error.
    """
    given = words(options, UnpackOptions) + [f"--output={text(output)}"]
    return _written(run("unpack", given + operands(path), progress))


def _written(report: dict[str, Any]) -> Written:
    return Written(
        report["output"],
        report["already_done"],
        report.get("bytes_in", 0),
        report.get("bytes_out", 0),
        report.get("seconds", 0.0),
        report,
    )


@lists_options("verify")
def verify(
    path: Path,
    against: Path | None = None,
    *,
    check: bool = True,
    progress: Showing = None,
    **options: Unpack[VerifyOptions],
) -> Verification:
    """Proves that a converted checkpoint is whole and right.

    against   the source: every tensor is derived from it again, and compared
    check     a difference is a VerifyError; with False, the result says so alone
    progress  as of convert()
    Raises Error also where the files cannot be read.
    """
    given = words(options, VerifyOptions)
    if against is not None:
        given.append(f"--against={text(against)}")
    place = text(path)
    report = run("verify", given + operands(place), progress)
    found = Verification(report["ok"], report["problems"], report.get("weights", []), report)
    if check and not found.ok:
        first = found.problems[0] if found.problems else {}
        raise VerifyError(
            found,
            str(first.get("what") or "a weight is not what its source gives"),
            file=place
            if os.path.isfile(place) or not first.get("file")
            else os.path.join(place, first["file"]),
            tensor=first.get("tensor"),
        )
    return found
