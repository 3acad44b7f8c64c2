"""Where the program and the library lie that belong to this package.

In order: what the environment names (TILEPACK_PROGRAM, TILEPACK_LIBRARY), the copy inside of
an installed package, the build directory of a checkout, the machine's own. Nothing is run or
loaded here.
"""

from __future__ import annotations

import os
import shutil
from ctypes.util import find_library
from pathlib import Path

from .errors import SystemFailure, refusals

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent


def _ours(name: str) -> str | None:
    places = [_PACKAGE / "native" / name]
    if (_CHECKOUT / "src" / "pack" / "api" / "tilepack.h").is_file():
        places.append(_CHECKOUT / "build" / name)
    return next((str(place) for place in places if place.is_file()), None)


def _installed() -> str | None:
    """The machine's own program; the command of this package, a script, is none."""
    path = shutil.which("tilepack")
    if path:
        with refusals("cannot be read", path), open(path, "rb") as file:
            if file.read(4) == b"\x7fELF":
                return path
    return None


def program() -> str:
    """Path of the program `tilepack`."""
    path = os.environ.get("TILEPACK_PROGRAM") or _ours("tilepack") or _installed()
    if not path:
        raise SystemFailure(
            "the program tilepack is not there",
            hint="install the wheel of tilepack-llm, run `make` in a checkout, or set "
            "TILEPACK_PROGRAM",
        )
    return path


def library() -> str:
    """Path, or the loader's name, of libtilepack."""
    path = os.environ.get("TILEPACK_LIBRARY") or _ours("libtilepack.so")
    path = path or find_library("tilepack")
    if not path:
        raise SystemFailure(
            "libtilepack is not there",
            hint="install the wheel of tilepack-llm, run `make` in a checkout, or set "
            "TILEPACK_LIBRARY",
        )
    return path
