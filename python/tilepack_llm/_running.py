"""Runs the program for a command, and reads the one JSON object that it prints.

So a command behaves here as it does in a shell: it is interrupted by Ctrl-C, goes on where it
stopped when it is called again, and keeps to its limits of memory, whatever this process does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any, Union

from . import _files
from ._bar import Bar, is_watched
from ._spoken import spoken
from .errors import SystemFailure, UsageError, of_code, of_report, refusals


class TilepackWarning(UserWarning):
    """What the program warns of."""


@dataclass(frozen=True)
class Progress:
    """How far a command is.

    command  "convert", "verify", "diff" or "unpack"
    done     bytes done
    total    bytes in all, 0 while that is not known
    item     the tensor that is worked on now, or ""
    """

    command: str
    done: int
    total: int
    item: str


ProgressCallback = Callable[[Progress], object]
# None: a bar where somebody looks. True, False: a bar, or none, in any case.
Showing = Union[ProgressCallback, bool, None]


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
            warnings.warn(spoken(line[len(mark) :]), TilepackWarning, stacklevel=4)


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


def run(command: str, words: list[str], showing: Showing = False) -> dict[str, Any]:
    """The object that a command prints under --json; raises the error that it reports."""
    bar = Bar() if showing is True or (showing is None and is_watched(sys.stderr)) else None
    progress = bar if bar or isinstance(showing, bool) else showing
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is a {type(progress).__name__}, which cannot be called")
    try:
        status, output, messages = _call(command, words, progress)
    finally:
        if bar:
            bar.close()
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
