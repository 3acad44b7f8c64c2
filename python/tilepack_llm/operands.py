"""The operands of the kernels: views of the stored tensors with the strides that they ask for.

Most formats are stored as their kernel takes them. The functions here say what safetensors
cannot, because it knows no strides. No byte moves: every result is a view, or a small tensor
of constants that follow from the size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .tensor import Tensor

Box = tuple[int, int, int]
Stored = Mapping[str, Tensor]
Operands = dict[str, Tensor]


def _transposed(tensor: Tensor, rows: int | None = None) -> Tensor:
    """The last two dimensions exchanged, cut to `rows`: what is stored column by column."""
    array = np.swapaxes(tensor.array, -1, -2)
    return Tensor(array if rows is None else array[..., :rows, :], tensor.dtype)


def _constant(values: Any, dtype: str) -> Tensor:
    return Tensor(np.ascontiguousarray(values), dtype)


def _w4a8_cutlass(box: Box, stacked: bool, stored: Stored) -> Operands:
    e, n, k = box
    scales = stored["weight_group_scale"]
    common = {
        "b_scales": stored["weight_chan_scale"],
        "b_group_size": _constant(np.int32(128), "I32"),
    }
    if not stacked:  # cutlass_w4a8_mm takes N from the second dimension of b
        flat = Tensor(scales.array.reshape(-1), scales.dtype)
        return {"b": _transposed(stored["weight_packed"]), "b_group_scales": flat, **common}
    return {
        "b": stored["weight_packed"],
        # expert i begins at i * (K/128) * N elements of 8 bytes
        "b_group_scales": scales,
        "b_strides": stored["weight_layout"],
        **common,
        "a_strides": _constant(np.full(e, k, np.int64), "I64"),
        "c_strides": _constant(np.full(e, n, np.int64), "I64"),
        # (stride of a group of k, batch stride) in elements of 8 bytes
        "group_scale_strides": _constant(np.tile(np.array([n, 0], np.int64), (e, 1)), "I64"),
    }


def _fp8_deepseek(box: Box, stacked: bool, stored: Stored) -> Operands:
    del box, stacked
    return {"weight": stored["weight"], "scale": stored["weight_scale_inv"]}


def _column_scales(suffix: str) -> Callable[[Box, bool, Stored], Operands]:
    def operands(box: Box, stacked: bool, stored: Stored) -> Operands:
        del stacked
        return {"weight": stored["weight"], "scale": _transposed(stored[suffix], box[1])}

    return operands


def _torchao3d(box: Box, stacked: bool, stored: Stored) -> Operands:
    del box, stacked
    return {"qdata": _transposed(stored["weight"]), "scale": stored["weight_scale"]}


_MAKERS: dict[str, Callable[[Box, bool, Stored], Operands]] = {
    "w4a8-cutlass": _w4a8_cutlass,
    "fp8-deepseek": _fp8_deepseek,
    "fp8-deepgemm-sm90": _fp8_deepseek,
    "fp8-1x128": _column_scales("weight_scale"),
    "fp8-deepgemm-sm100": _column_scales("weight_scale_packed"),
    "mxfp8-torchao3d": _torchao3d,
}


def operands(fmt: str, box: Box, stacked: bool, stored: Stored) -> Operands:
    """{argument: Tensor} as the kernel of the format takes them; tilepack-formats(5).

    fmt      the format's name; one without an entry here is handed out as it is stored
    box      (E, N, K)
    stacked  the weight is one of experts, stored with a leading E
    stored   its tensors by suffix, in the shape that the file has

    w4a8-cutlass        of vLLM's cutlass_w4a8_mm: b int32 (K/8, N) with strides (1, K/8),
                        b_group_scales e4m3 [K/128 * N * 8], b_scales fp32 (N, 1). Stacked, of
                        cutlass_w4a8_moe_mm: b int32 (E, N, K/8), b_group_scales e4m3
                        (E, K/128, N, 8), b_scales fp32 (E, N, 1), b_strides int32 (E, 3), and
                        the stride tensors of A, C and the scales. The kernel exchanges A and
                        B: problem_sizes() are rows of [N, M_e, K].
    fp8-1x128,          DeepGEMM's scales, MN-major and padded for TMA: shape (.., N, columns),
    fp8-deepgemm-sm100  strides (.., 1, A)
    mxfp8-torchao3d     qdata (E, N, K) column-major; scale: of expert i, blocked, in row i
    """
    make = _MAKERS.get(fmt)
    return make(box, stacked, stored) if make else dict(stored)


def problem_sizes(box: Box, rows_per_expert: Iterable[int]) -> npt.NDArray[np.int32]:
    """The int32 (E, 3) argument of cutlass_w4a8_moe_mm for so many tokens of each expert."""
    return np.array([[box[1], m, box[2]] for m in rows_per_expert], np.int32)
