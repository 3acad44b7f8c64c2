"""quantize(): one weight in memory, on the host or, as a torch tensor, on its GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from . import _native
from ._formats import format_facts
from .errors import InputError, UsageError
from .tensor import Tensor, numpy_dtype, torch_dtype

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeGuard

    AnyTensor = Union[npt.NDArray[Any], torch.Tensor]

_F32, _BF16, _F16 = 1, 2, 3  # enum tilepack_dtype
_NUMPY = {"float32": _F32, "uint16": _BF16, "bfloat16": _BF16, "float16": _F16}
_TORCH = {"torch.float32": _F32, "torch.bfloat16": _BF16, "torch.float16": _F16}


def _is_torch(tensor: Any) -> TypeGuard[torch.Tensor]:
    return type(tensor).__module__.partition(".")[0] == "torch"


def _code(table: Mapping[str, int], dtype: Any) -> int:
    if str(dtype) not in table:
        raise UsageError(
            f"values of dtype {dtype}", hint="float32, bfloat16 and float16 are quantized"
        )
    return table[str(dtype)]


def _described(fmt: str, parameters: Mapping[str, str], shape: tuple[int, ...]) -> Any:
    if len(shape) not in (2, 3):
        raise UsageError(f"a tensor of {len(shape)} dimensions; a weight is (N, K) or (E, N, K)")
    words = ",".join(f"{key}={value}" for key, value in parameters.items())
    e, n, k = (1, *shape) if len(shape) == 2 else shape
    return _native.Described.new(fmt, words or None, (e, n, k))


def _shapes(weight: _native.Described, fmt: str, rank: int) -> list[tuple[int, ...]]:
    """As files have them: a single matrix has no leading E, but where the format keeps it."""
    outputs = {out["suffix"]: out for out in format_facts(fmt)["outputs"]}
    shapes = []
    for i in range(weight.tensors):
        shape, out = weight.shape(i), outputs[weight.suffix(i)]
        drop = rank == 2 and out["shape"][0] == "E" and not out.get("keep_e")
        shapes.append(shape[1:] if drop else shape)
    return shapes


def quantize(
    tensor: AnyTensor,
    format: str,
    parameters: Mapping[str, str] | None = None,
    *,
    nonfinite: str = "refuse",
) -> dict[str, Any]:
    """Quantizes a weight and packs it as `format` stores it.

    tensor      (N, K), or (E, N, K) for a stack of experts. numpy: float32, float16, or bf16
                as ml_dtypes.bfloat16 or as raw bits in uint16. torch: float32, bfloat16 or
                float16, on the CPU or a CUDA device. Made contiguous where it is not.
    parameters  of the format, as `tilepack convert --set` takes them: {"scale": "cpu"}
    nonfinite   "refuse": NaN and infinite values are an InputError; "keep": they become what
                the format's own library makes of them

    Returns {suffix: Tensor} for a numpy array, {suffix: torch.Tensor} on the same device for a
    torch tensor, with the shapes and dtypes of a file. The bytes are the same on any device. On
    CUDA the work is queued on torch's current stream, and waited for unless nonfinite="keep".
    Raises UnsupportedError when the format cannot hold a weight of this size.
    """
    if not isinstance(nonfinite, str):
        raise TypeError(f"nonfinite is a {type(nonfinite).__name__}; it is a text")
    if nonfinite not in ("refuse", "keep"):
        raise UsageError(f"nonfinite is {nonfinite!r}; it is 'refuse' or 'keep'")
    if not hasattr(tensor, "shape"):
        raise TypeError(f"{type(tensor).__name__} is no numpy array and no torch tensor")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise TypeError(f"parameters: {parameters!r} is no mapping of names to values")
    weight = _described(format, parameters or {}, tuple(tensor.shape))
    shapes = _shapes(weight, format, len(tensor.shape))
    if not _is_torch(tensor):
        made, flag = _on_host(weight, shapes, np.asarray(tensor))
    elif tensor.is_cuda:
        made, flag = _on_device(weight, shapes, tensor, nonfinite == "refuse")
    else:
        made, flag = _torch_on_host(weight, shapes, tensor)
    if flag and nonfinite == "refuse":
        raise InputError(
            "the weight holds values that are NaN or infinite, or too large for the format",
            hint="nonfinite='keep' takes it all the same",
        )
    return made


def _on_host(
    weight: _native.Described, shapes: list[tuple[int, ...]], array: npt.NDArray[Any]
) -> tuple[dict[str, Any], bool]:
    code, values = _code(_NUMPY, array.dtype), np.ascontiguousarray(array)
    out = [np.empty(shape, numpy_dtype(weight.dtype(i))) for i, shape in enumerate(shapes)]
    flag = ctypes.c_int()
    addresses = _native.pointers([o.ctypes.data for o in out])
    _native.call("quantize", weight.handle, code, values.ctypes.data, addresses, ctypes.byref(flag))
    made = {weight.suffix(i): Tensor(o, weight.dtype(i)) for i, o in enumerate(out)}
    return made, bool(flag.value)


def _torch_on_host(
    weight: _native.Described, shapes: list[tuple[int, ...]], tensor: torch.Tensor
) -> tuple[dict[str, Any], bool]:
    code = _code(_TORCH, tensor.dtype)
    values = tensor.detach().contiguous()
    out = [_empty(weight, i, shape, tensor) for i, shape in enumerate(shapes)]
    flag = ctypes.c_int()
    addresses = _native.pointers([o.data_ptr() for o in out])
    _native.call("quantize", weight.handle, code, values.data_ptr(), addresses, ctypes.byref(flag))
    return {weight.suffix(i): o for i, o in enumerate(out)}, bool(flag.value)


def _empty(
    weight: _native.Described, i: int, shape: tuple[int, ...], like: torch.Tensor
) -> torch.Tensor:
    import torch

    return torch.empty(shape, dtype=torch_dtype(weight.dtype(i)), device=like.device)


def _constant(weight: _native.Described, i: int, shape: tuple[int, ...]) -> torch.Tensor:
    import torch

    host = np.empty(shape, numpy_dtype(weight.dtype(i)))
    _native.call("weight_constant", weight.handle, i, host.ctypes.data)
    return torch.from_numpy(host)


def _on_device(
    weight: _native.Described, shapes: list[tuple[int, ...]], tensor: torch.Tensor, wait: bool
) -> tuple[dict[str, Any], bool]:
    import torch

    code, values = _code(_TORCH, tensor.dtype), tensor.detach().contiguous()
    out = [_empty(weight, i, shape, tensor) for i, shape in enumerate(shapes)]
    roles = [weight.role(i) for i in range(weight.tensors)]
    for i, role in enumerate(roles):
        if role == "words":
            out[i].copy_(_constant(weight, i, shapes[i]))
    amax = float(values.abs().max()) if "global" in roles else 0.0
    flags = torch.zeros(1, dtype=torch.int32, device=tensor.device)
    stream = torch.cuda.current_stream(tensor.device)
    _native.call(
        "quantize_cuda",
        *(weight.handle, code, values.data_ptr(), _native.pointers([o.data_ptr() for o in out])),
        *(amax, flags.data_ptr(), stream.device_index, stream.cuda_stream),
    )
    made = {weight.suffix(i): o for i, o in enumerate(out)}
    return made, bool(int(flags)) if wait else False
