"""One stored tensor as numpy and torch see it: a view of somebody's bytes, and its dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .errors import SystemFailure, UnsupportedError

if TYPE_CHECKING:
    import torch

# dtype of safetensors: numpy's, or that of the raw bits where numpy has none; torch's name
_DTYPES: dict[str, tuple[Any, str]] = {
    "F64": (np.float64, "float64"),
    "F32": (np.float32, "float32"),
    "F16": (np.float16, "float16"),
    "BF16": (np.uint16, "bfloat16"),
    "F8_E4M3": (np.uint8, "float8_e4m3fn"),
    "F8_E5M2": (np.uint8, "float8_e5m2"),
    "F8_E8M0": (np.uint8, "float8_e8m0fnu"),
    "I64": (np.int64, "int64"),
    "I32": (np.int32, "int32"),
    "I16": (np.int16, "int16"),
    "I8": (np.int8, "int8"),
    "U64": (np.uint64, "uint64"),
    "U32": (np.uint32, "uint32"),
    "U16": (np.uint16, "uint16"),
    "U8": (np.uint8, "uint8"),
    "BOOL": (np.bool_, "bool"),
}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """numpy's dtype for one of safetensors; for BF16 and the FP8 ones that of the raw bits."""
    if name not in _DTYPES:
        raise UnsupportedError(f"dtype {name} has no counterpart in numpy")
    found: np.dtype[Any] = np.dtype(_DTYPES[name][0])
    return found


def exact_dtype(name: str) -> np.dtype[Any]:
    """numpy's dtype for one of safetensors, with those of ml_dtypes for BF16 and FP8."""
    kind = numpy_dtype(name)
    wanted = _DTYPES[name][1]
    if kind.name == wanted:
        return kind
    try:
        import ml_dtypes
    except ImportError as error:
        raise SystemFailure(
            f"numpy has no {wanted}: {error}",
            hint="install ml_dtypes, or take the raw bits: .array",
        ) from error
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, wanted))
    return found


def import_torch() -> Any:
    """The module torch, which is needed for its tensors only."""
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a library that it needs is missing
        raise SystemFailure(
            f"torch cannot be imported: {error}", hint="install it, or stay with numpy"
        ) from error
    return torch


def torch_dtype(name: str) -> torch.dtype:
    """torch's dtype for one of safetensors."""
    module = import_torch()
    numpy_dtype(name)
    found: torch.dtype = getattr(module, _DTYPES[name][1])
    return found


class Tensor:
    """A view of stored bytes with the shape and the strides that its reader asks for.

    array  numpy view; BF16 and FP8 elements are their raw bits (uint16, uint8)
    dtype  its name in safetensors: "F8_E4M3", "BF16", "I32", ...
    """

    def __init__(self, array: npt.NDArray[Any], dtype: str) -> None:
        self.array, self.dtype = array, dtype

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}, shape {self.shape}, strides {self.strides})"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements, as torch counts them."""
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def numpy(self) -> npt.NDArray[Any]:
        """The same bytes as an array of the right dtype; of BF16 and FP8 it is one of ml_dtypes."""
        kind = exact_dtype(self.dtype)
        return self.array if self.array.dtype == kind else self.array.view(kind)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """For np.asarray(), which takes what numpy() gives."""
        array = self.numpy()
        changed = array if dtype is None else array.astype(dtype, copy=False)
        if copy is False and changed is not array:
            raise ValueError(f"{self.dtype} as {np.dtype(dtype)} takes a copy")
        return changed.copy() if copy and changed is array else changed

    def torch(self) -> torch.Tensor:
        """The same bytes as a torch tensor of the right dtype, with the same strides."""
        bits: torch.Tensor = import_torch().from_numpy(self.array)
        kind = torch_dtype(self.dtype)
        return bits if bits.dtype == kind else bits.view(kind)


def stored(raw: npt.NDArray[np.uint8], dtype: str, shape: tuple[int, ...]) -> Tensor:
    """The tensor whose bytes are `raw`, one-dimensional; a view where its address allows it."""
    kind = numpy_dtype(dtype)
    try:
        return Tensor(raw.view(kind).reshape(shape), dtype)
    except ValueError:  # of no elements, but of a size that numpy has no place for
        raise UnsupportedError(f"the shape {list(shape)} has no counterpart in numpy") from None
