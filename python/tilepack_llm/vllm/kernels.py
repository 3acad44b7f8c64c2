"""vLLM's kernels for packed linear layers: how each is built, and what it looks up.

Nothing is computed here. A kernel that vLLM itself says it cannot run is refused with its
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .support import Refused

Box = tuple[int, int, int]


def _as_stored(data: torch.Tensor, box: Box) -> torch.Tensor:
    del box
    return data


def _transposed(data: torch.Tensor, box: Box) -> torch.Tensor:
    del box
    return data.t()


def _flat(data: torch.Tensor, box: Box) -> torch.Tensor:
    del box
    return data.view(-1)


def _columns(data: torch.Tensor, box: Box) -> torch.Tensor:
    """Stored column by column, and padded: (N, columns)."""
    return data.transpose(-1, -2)[..., : box[1], :]


def _tile_rows(data: torch.Tensor, box: Box) -> torch.Tensor:
    """Tiles of 128 rows: a matrix with that many."""
    return data.view(-(-box[1] // 128) * 128, -1)


@dataclass(frozen=True)
class LinearSupport:
    """make   (prefix, n, k, full n, full k, dtype) -> the kernel's object
    names  {suffix in the file: attribute that the kernel looks up}
    views  {suffix: how the kernel sees it}
    warm   DeepGEMM's warm-up asks the layer for the kernel
    """

    make: Callable[[str, int, int, int, int, torch.dtype], Any]
    names: Mapping[str, str] = field(default_factory=dict)
    views: Mapping[str, Callable[[torch.Tensor, Box], torch.Tensor]] = field(default_factory=dict)
    warm: bool = False

    def view(self, suffix: str, data: torch.Tensor, box: Box) -> torch.Tensor:
        return self.views.get(suffix, _as_stored)(data, box)

    def ready(self, layer: torch.nn.Module, kernel: Any) -> None:
        if self.warm:
            layer.deep_gemm_warmup_provider = kernel


def _demand(prefix: str, answers: list[tuple[bool, str | None]]) -> None:
    for able, why in answers:
        if not able:
            raise Refused(
                f"{prefix}: vLLM's kernel does not take it: {why}",
                hint="convert with --exclude for this weight, or to another format",
            )


def _w4a8(prefix: str, n: int, k: int, full_n: int, full_k: int, dtype: torch.dtype) -> Any:
    from vllm.model_executor.kernels.linear import MPLinearLayerConfig
    from vllm.model_executor.kernels.linear.mixed_precision.cutlass import CutlassW4A8LinearKernel
    from vllm.scalar_type import scalar_types

    config = MPLinearLayerConfig(
        full_weight_shape=(full_k, full_n),
        partition_weight_shape=(k, n),
        weight_type=scalar_types.int4,
        act_type=torch.float8_e4m3fn,
        group_size=128,
        zero_points=False,
        out_type=dtype,
    )
    _demand(prefix, [CutlassW4A8LinearKernel.can_implement(config)])
    return CutlassW4A8LinearKernel(
        config, w_q_param_name="weight_packed", w_s_param_name="weight_scale"
    )


def _deepgemm(prefix: str, n: int, k: int, full_n: int, full_k: int, dtype: torch.dtype) -> Any:
    from vllm.model_executor.kernels.linear.scaled_mm import deep_gemm
    from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
        FP8ScaledMMLinearLayerConfig,
    )
    from vllm.model_executor.layers.quantization.utils.quant_utils import (
        kFp8Dynamic128Sym,
        kFp8Static128BlockSym,
    )

    del full_n, full_k
    config = FP8ScaledMMLinearLayerConfig(
        weight_quant_key=kFp8Static128BlockSym,
        activation_quant_key=kFp8Dynamic128Sym,
        input_dtype=dtype,
        out_dtype=dtype,
        weight_shape=(n, k),
    )
    kind = deep_gemm.DeepGemmFp8BlockScaledMMKernel
    _demand(prefix, [kind.is_supported(), kind.can_implement(config)])
    kernel = kind(config)
    if not kernel.use_deep_gemm_e8m0:
        raise Refused(
            f"{prefix}: its scales are powers of two, and vLLM would quantize activations with "
            "others",
            hint="set VLLM_USE_DEEP_GEMM_E8M0=1",
        )
    return kernel


def _mxfp8(prefix: str, n: int, k: int, full_n: int, full_k: int, dtype: torch.dtype) -> Any:
    from vllm.model_executor.kernels.linear.mxfp8.flashinfer import (
        FlashInferCutedslMxfp8LinearKernel,
    )
    from vllm.model_executor.kernels.linear.mxfp8.Mxfp8LinearKernel import Mxfp8LinearLayerConfig

    del full_n, full_k, dtype
    config = Mxfp8LinearLayerConfig(weight_shape=(n, k))
    kind = FlashInferCutedslMxfp8LinearKernel
    _demand(prefix, [kind.is_supported(), kind.can_implement(config)])
    return kind(config)


def _mxfp4(prefix: str, n: int, k: int, full_n: int, full_k: int, dtype: torch.dtype) -> Any:
    from vllm.model_executor.kernels.linear.mxfp4.base import MxFp4LinearLayerConfig
    from vllm.model_executor.kernels.linear.mxfp4.flashinfer import FlashInferMxFp4LinearKernel
    from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp4Dynamic

    del n, k, full_n, full_k, dtype
    _demand(prefix, [FlashInferMxFp4LinearKernel.is_supported()])
    return FlashInferMxFp4LinearKernel(MxFp4LinearLayerConfig(activation_quant_key=kMxfp4Dynamic))


LINEAR = {
    "w4a8-cutlass": LinearSupport(
        _w4a8,
        names={"weight_group_scale": "weight_scale"},
        views={"weight_packed": _transposed, "weight_group_scale": _flat},
    ),
    "fp8-deepgemm-sm100": LinearSupport(
        _deepgemm,
        names={"weight_scale_packed": "weight_scale_inv"},
        views={"weight_scale_packed": _columns},
        warm=True,
    ),
    "mxfp8-blocked": LinearSupport(_mxfp8, views={"weight": _transposed}),
    "mxfp4-blocked": LinearSupport(
        _mxfp4, names={"weight_packed": "weight"}, views={"weight_scale": _tile_rows}
    ),
}
