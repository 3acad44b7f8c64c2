"""convert, plan, verify and unpack: the program's commands as functions.

Each runs the program `tilepack` that belongs to this package and reads the one JSON object
that it prints. So a conversion behaves here as it does in a shell: it is interrupted by
Ctrl-C, goes on where it stopped when it is called again, and keeps to its limits of memory,
whatever this process does. Warnings of the program are TilepackWarning.
"""

from __future__ import annotations

import json
import operator
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, TypedDict, Union

from . import _files
from .errors import Difference, SystemFailure, UsageError, of_code, of_report, refusals

if TYPE_CHECKING:
    from typing_extensions import Unpack

Path = Union[str, "os.PathLike[str]"]


class TilepackWarning(UserWarning):
    """What the program warns of."""


@dataclass(frozen=True)
class Progress:
    """How far a command is.

    command  "convert", "verify", "compare" or "unpack"
    done     bytes done
    total    bytes in all, 0 while that is not known
    item     the tensor that is worked on now, or ""
    """

    command: str
    done: int
    total: int
    item: str


ProgressCallback = Callable[[Progress], object]


class ConvertOptions(TypedDict, total=False):
    """The options of `tilepack convert`, '-' written as '_'; see tilepack(1)."""

    to: str
    set: Mapping[str, str]
    recipe: Path
    search: str
    signed: bool
    importance: Path
    include: Iterable[str]
    exclude: Iterable[str]
    no_stack: bool
    copy: Iterable[str]
    format_file: Iterable[Path]
    quantizer_file: Iterable[Path]
    engine_file: Iterable[Path]
    engine: str
    gpu: str
    gpus: int
    expert_parallel: bool
    model_file: Path
    stacks: str
    merged: str
    plain: str
    strict: bool
    follow_links: bool
    nonfinite: str
    requantize: bool
    weights_only: bool | str
    shard_size: int | str
    zstd: bool | int
    digest: str
    part: str
    force: bool
    if_exists: str
    jobs: int
    device: str
    max_memory: int | str
    gpu_memory: int | str


class UnpackOptions(TypedDict, total=False):
    """The options of `tilepack unpack`, '-' written as '_'; see tilepack(1)."""

    to: str
    dtype: str
    copy: Iterable[str]
    quantizer_file: Iterable[Path]
    follow_links: bool
    shard_size: int | str
    force: bool
    if_exists: str
    jobs: int
    max_memory: int | str


class VerifyOptions(TypedDict, total=False):
    """The options of `tilepack verify`, '-' written as '_'; see tilepack(1)."""

    importance: Path
    format_file: Iterable[Path]
    quantizer_file: Iterable[Path]
    engine_file: Iterable[Path]
    strict: bool
    jobs: int
    device: str


@dataclass(frozen=True)
class Plan:
    """What a conversion would do.

    units   one mapping for each packed weight: name, format, box, source, outputs
    report  everything that `tilepack plan --json` prints
    """

    bytes_in: int
    bytes_out: int
    units: Sequence[Mapping[str, Any]]
    report: Mapping[str, Any]


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
    report: Mapping[str, Any]


@dataclass(frozen=True)
class Verification:
    """What verify found.

    problems  one mapping for each: what is wrong, and where
    weights   with `against`: one mapping for each weight with its error
    report    everything that `tilepack verify --json` prints
    """

    ok: bool
    problems: Sequence[Mapping[str, Any]]
    weights: Sequence[Mapping[str, Any]]
    report: Mapping[str, Any]


class VerifyError(Difference):
    """verify() found a difference; `verification` says which."""

    def __init__(self, verification: Verification, message: str, **where: Any) -> None:
        super().__init__(message, **where)
        self.verification = verification

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy, which would call the class with the message alone."""
        return type(self), (self.verification, self.message), self.__dict__


def _text(path: str | bytes | os.PathLike[Any]) -> str:
    """A text or the name of a file, without what a class of its own would make of it: an f-string
    gives the name of an Enum's member in some versions of Python, and not its value."""
    return str.__str__(os.fsdecode(path))


def _value(name: str, value: Any) -> str:
    """A text, a number or the name of a file as the program takes it; nothing has its repr()."""
    if isinstance(value, (str, bytes, os.PathLike)):
        return _text(value)
    try:
        if not isinstance(value, bool):
            return str(operator.index(value))
    except TypeError:
        pass
    raise TypeError(f"{name}: {value!r} is no text, no whole number and no name of a file")


def _values(name: str, value: Any) -> list[str]:
    """The option once, or once for each that it is given."""
    if name == "set" and isinstance(value, Mapping):
        return [f"{_value(name, key)}={_value(name, value[key])}" for key in value]
    if isinstance(value, (bytearray, memoryview)):  # their items are numbers, which nobody means
        raise TypeError(f"{name}: {value!r} is no text: bytes() of it would be")
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, os.PathLike)):
        return [_value(name, item) for item in value]
    return [_value(name, value)]


def _words(options: Mapping[str, Any], known: type) -> list[str]:
    """Options as the program takes them; a name that is none of `known` is a TypeError, and so is
    True for one that wants a value, as the next word would become it."""
    words: list[str] = []
    for name, value in options.items():
        if name not in known.__annotations__:
            raise TypeError(f"there is no option {name!r}")
        option = "--" + name.replace("_", "-")
        if value is True and "bool" in str(known.__annotations__[name]):
            words.append(option)
        elif value is not False and value is not None:
            words += [f"{option}={text}" for text in _values(name, value)]
    return words


def _report_progress(lines: IO[str], progress: ProgressCallback) -> None:
    for line in lines:
        if not line.endswith("\n"):  # cut off, as this reader was too slow
            break
        step = json.loads(line)
        progress(Progress(step["command"], step["done"], step["total"], step["item"]))


def _warn(messages: str) -> None:
    mark = "tilepack: warning: "
    for line in messages.splitlines():
        if line.startswith(mark):
            warnings.warn(line[len(mark) :], TilepackWarning, stacklevel=4)


def _finish(
    words: list[str],
    pipe: tuple[int, int],
    out: IO[bytes],
    err: IO[bytes],
    progress: ProgressCallback | None,
) -> int:
    """Runs the program; its status."""
    read, write = pipe
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, pass_fds=(write,)
        )
    except (OSError, ValueError) as error:
        os.close(read)
        if isinstance(error, ValueError):  # a zero byte, or no characters of a file's name
            raise UsageError(f"an argument that no program can get: {error}") from None
        raise SystemFailure(f"cannot be run: {error.strerror}", file=words[0]) from None
    finally:
        os.close(write)
    try:
        with open(read, encoding="utf-8") as lines:
            if progress is not None:
                _report_progress(lines, progress)
            process.wait()
    except BaseException:  # of the callback, or Ctrl-C: the program ends in good order
        process.terminate()
        process.wait()
        raise
    return process.returncode


def _call(
    command: str, words: list[str], progress: ProgressCallback | None
) -> tuple[int, str, str]:
    """The program's status, output and messages."""
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is a {type(progress).__name__}, which cannot be called")
    argv = [_files.program(), command, "--json", *words]
    with ExitStack() as files:
        with refusals("no temporary file can be made"):
            out = files.enter_context(tempfile.TemporaryFile())
            err = files.enter_context(tempfile.TemporaryFile())
        with refusals("no pipe can be made"):
            pipe = os.pipe()
        if progress is not None:
            argv.insert(2, f"--progress-fd={pipe[1]}")
        status = _finish(argv, pipe, out, err, progress)
        out.seek(0)
        err.seek(0)
        return status, out.read().decode(), err.read().decode(errors="replace")


def _run(command: str, words: list[str], progress: ProgressCallback | None) -> dict[str, Any]:
    """The object that a command prints under --json; raises the error that it reports."""
    status, output, messages = _call(command, words, progress)
    _warn(messages)
    try:
        report = json.loads(output)
    except json.JSONDecodeError:
        last = messages.strip().splitlines()[-1:] or [f"ended with status {status}"]
        raise of_code(status or 1, last[0]) from None
    if "error" in report:
        raise of_report(report["error"])
    if status not in (0, 1):
        raise of_code(status, f"ended with status {status}")
    return dict(report)


def _operands(*paths: Path) -> list[str]:
    return ["--", *(_text(path) for path in paths)]


def engine(name: str) -> dict[str, Any]:
    """The file of an engine, parsed; engines/README.md defines its members."""
    return dict(_run("engines", _operands(name), None)["engines"][0])


def plan(source: Path, **options: Unpack[ConvertOptions]) -> Plan:
    """What convert() would write, without writing.

    source  a .safetensors file or a Hugging Face directory
    Raises Error as convert() does.
    """
    report = _run("plan", _words(options, ConvertOptions) + _operands(source), None)
    return Plan(report["bytes_in"], report["bytes_out"], report["units"], report)


def convert(
    source: Path,
    output: Path,
    *,
    progress: ProgressCallback | None = None,
    **options: Unpack[ConvertOptions],
) -> Written:
    """Quantizes and repacks a checkpoint into kernel-ready bytes.

    source    a .safetensors file or a Hugging Face directory
    output    one file if its name ends in .safetensors or .safetensors.zst, else a directory
    progress  is called with a Progress, at most ten times a second and once at the end, unless
              it is a second behind then, in this thread; an exception of it ends the conversion,
              and is raised
    options   those of the command: convert(src, dst, to="w4a8-cutlass", set={"scale": "cpu"})
    Raises Error; an output that is there and is another one is an ExistsError (force=True).
    """
    words = _words(options, ConvertOptions) + [f"--output={_text(output)}"]
    return _written(_run("convert", words + _operands(source), progress))


def unpack(
    path: Path,
    output: Path,
    *,
    progress: ProgressCallback | None = None,
    **options: Unpack[UnpackOptions],
) -> Written:
    """The way back: plain weights, or with to=FORMAT another form of the same codes.

    progress  as of convert()
    Raises Error.
    """
    words = _words(options, UnpackOptions) + [f"--output={_text(output)}"]
    return _written(_run("unpack", words + _operands(path), progress))


def _written(report: dict[str, Any]) -> Written:
    return Written(
        report["output"],
        report["already_done"],
        report.get("bytes_in", 0),
        report.get("bytes_out", 0),
        report.get("seconds", 0.0),
        report,
    )


def verify(
    path: Path,
    against: Path | None = None,
    *,
    check: bool = True,
    progress: ProgressCallback | None = None,
    **options: Unpack[VerifyOptions],
) -> Verification:
    """Proves that a converted checkpoint is whole and right.

    against   the source: every tensor is derived from it again, and compared
    check     a difference is a VerifyError; with False, the result says so alone
    progress  as of convert()
    Raises Error also where the files cannot be read.
    """
    words = _words(options, VerifyOptions)
    if against is not None:
        words.append(f"--against={_text(against)}")
    place = _text(path)
    report = _run("verify", words + _operands(place), progress)
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
