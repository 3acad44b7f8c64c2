"""What can be made: the names and the facts of the formats, from libtilepack."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from . import _native
from .errors import UsageError


def formats(*, written: bool = True) -> list[str]:
    """Names of the formats that weights can be quantized to; with written=False of all."""
    names: list[str] = []
    i = 0
    while (name := _native.ask("format_name", i)) is not None:
        if not written or _native.ask("format_is_written", name.encode()):
            names.append(name)
        i += 1
    return names


@cache
def format_facts(name: str) -> dict[str, Any]:
    """The format file of a format, parsed; formats/README.md defines its members."""
    text = _native.ask("format_json", _native.word(name))
    if text is None:
        raise UsageError(f"there is no format '{name}'", hint="tilepack_llm.formats() lists them")
    return dict(json.loads(text))


def library_version() -> str:
    """The version of libtilepack that is loaded."""
    return str(_native.ask("version"))
