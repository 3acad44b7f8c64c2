"""The options of a command as a part of its function's own text, which help() shows."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

from ._options import LINES
from ._spoken import spoken

Function = TypeVar("Function", bound=Callable[..., Any])


def lists_options(command: str) -> Callable[[Function], Function]:
    """Adds the options of the command, each with its line, to what help() says of a function."""

    def add(function: Function) -> Function:
        lines = LINES[command]
        width = max(map(len, lines)) + 2
        rows = (
            textwrap.fill(
                spoken(line),
                96,
                initial_indent=f"    {name:{width}}",
                subsequent_indent=" " * (width + 4),
            )
            for name, line in lines.items()
        )
        about = inspect.cleandoc(function.__doc__ or "")
        function.__doc__ = "\n".join([about, "", "Options:", *rows])
        return function

    return add
