"""What can be made: the names and the facts of the formats, from libtilepack and the program."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from . import _native
from ._running import run
from .errors import UsageError


def formats(
    *, written: bool = True, gpu: str | None = None, engine: str | None = None
) -> list[str]:
    """Names of the formats that weights can be quantized to; with written=False of all.

    gpu, engine  those that are read on this GPU ("h100", or what nvidia-smi calls it), or by this
                 engine ("vllm"), the smallest first
    """
    if gpu is not None or engine is not None:
        near = {"gpu": gpu, "engine": engine}
        given = [f"--{name}={value}" for name, value in near.items() if value is not None]
        offers = run("formats", given)["offers"]
        return list(dict.fromkeys(str(offer["format"]) for offer in offers))
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
