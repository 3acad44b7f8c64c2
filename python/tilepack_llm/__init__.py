"""tilepack: weights in exactly the bytes that GPU kernels read.

    import tilepack_llm

    tilepack_llm.convert("Mixtral-8x7B", "packed", to="w4a8-cutlass")
    tilepack_llm.verify("packed", against="Mixtral-8x7B")
    checkpoint = tilepack_llm.open("packed")
    operands = checkpoint.weights["model.layers.0.self_attn.q_proj"].operands()

convert, plan, verify and unpack are the commands of the program. open and load map packed
files and hand out views. quantize packs one tensor in memory. Errors are exceptions, all of
them Error, that carry the file, the tensor and what to do.

Importing this loads neither torch nor the library; Linux only.
"""

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
    InputError,
    Interrupted,
    ResourceError,
    SystemFailure,
    UnsupportedError,
    UsageError,
)
from .formats import format_facts, formats, library_version
from .loading import load
from .operands import problem_sizes
from .quantizing import quantize
from .tensor import Tensor

__all__ = [
    "Checkpoint",
    "Difference",
    "Error",
    "InputError",
    "Interrupted",
    "Plan",
    "Progress",
    "ResourceError",
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
    "convert",
    "format_facts",
    "formats",
    "library_version",
    "load",
    "open",
    "plan",
    "problem_sizes",
    "quantize",
    "unpack",
    "verify",
]
