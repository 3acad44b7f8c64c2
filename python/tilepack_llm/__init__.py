"""tilepack: weights in exactly the bytes that GPU kernels read.

    import tilepack_llm

    tilepack_llm.convert("Mixtral-8x7B", "packed", to="w4a8-cutlass")
    tilepack_llm.verify("packed", against="Mixtral-8x7B")
    checkpoint = tilepack_llm.open("packed")
    operands = checkpoint.weights["model.layers.0.self_attn.q_proj"].operands()

convert, plan, verify, unpack, compare, diff, suggest and formats are commands of the program.
open and load map packed files and hand out views. quantize packs one tensor in memory. Errors are
exceptions, all of them Error, that carry the file, the tensor and what to do.

Importing this loads nothing: neither numpy nor torch nor the library. Linux only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._formats import format_facts, formats, library_version
    from ._version import __version__
    from .checkpoint import Checkpoint, Weight, open
    from .commands import (
        Plan,
        Progress,
        TilepackWarning,
        Verification,
        VerifyError,
        Written,
        convert,
        plan,
        unpack,
        verify,
    )
    from .errors import (
        Difference,
        Error,
        ExistsError,
        InputError,
        Interrupted,
        LockedError,
        MissingFileError,
        ResourceError,
        SystemFailure,
        UnsupportedError,
        UsageError,
    )
    from .loading import load
    from .looking import Comparison, Differences, Suggestions, compare, diff, suggest
    from .operands import problem_sizes
    from .quantizing import quantize
    from .tensor import Tensor

__all__ = [
    "Checkpoint",
    "Comparison",
    "Difference",
    "Differences",
    "Error",
    "ExistsError",
    "InputError",
    "Interrupted",
    "LockedError",
    "MissingFileError",
    "Plan",
    "Progress",
    "ResourceError",
    "Suggestions",
    "SystemFailure",
    "Tensor",
    "TilepackWarning",
    "UnsupportedError",
    "UsageError",
    "Verification",
    "VerifyError",
    "Weight",
    "Written",
    "__version__",
    "compare",
    "convert",
    "diff",
    "format_facts",
    "formats",
    "library_version",
    "load",
    "open",
    "plan",
    "problem_sizes",
    "quantize",
    "suggest",
    "unpack",
    "verify",
]

_HOMES = {
    "_formats": ["format_facts", "formats", "library_version"],
    "_version": ["__version__"],
    "checkpoint": ["Checkpoint", "Weight", "open"],
    "commands": [
        "Plan",
        "Progress",
        "TilepackWarning",
        "Verification",
        "VerifyError",
        "Written",
        "convert",
        "plan",
        "unpack",
        "verify",
    ],
    "errors": [
        "Difference",
        "Error",
        "ExistsError",
        "InputError",
        "Interrupted",
        "LockedError",
        "MissingFileError",
        "ResourceError",
        "SystemFailure",
        "UnsupportedError",
        "UsageError",
    ],
    "loading": ["load"],
    "looking": ["Comparison", "Differences", "Suggestions", "compare", "diff", "suggest"],
    "operands": ["problem_sizes"],
    "quantizing": ["quantize"],
    "tensor": ["Tensor"],
}
# A module that is named as one of its functions would hide it once it is imported.
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """The names of __all__ are imported when they are first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
