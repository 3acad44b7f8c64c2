"""vLLM's kernels for packed linear layers: how each is built, and what it looks up.

Nothing is computed here. A kernel that vLLM itself says it cannot run is refused with its
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .._formats import format_facts
from ..slices import Packed
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


def _scalar(data: torch.Tensor, box: Box) -> torch.Tensor:
    """One number of a whole matrix."""
    del box
    return data.view(())


def _exponents(data: torch.Tensor, box: Box) -> torch.Tensor:
    """Bytes that are e8m0."""
    del box
    return data.view(torch.float8_e8m0fnu)


@dataclass(frozen=True)
class Asked:
    """A linear layer as vLLM asks for it.

    mine   what this rank holds of it
    full   (N, K) of all ranks
    dtype  of the activations
    """

    prefix: str
    mine: Packed
    full: tuple[int, int]
    dtype: torch.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K) of this rank."""
        return self.mine.box[1], self.mine.box[2]


def _nothing(layer: torch.nn.Module, kernel: Any) -> None:
    del layer, kernel


@dataclass(frozen=True)
class LinearSupport:
    """make   what vLLM asks for -> the kernel's object
    names  {suffix in the file: attribute that the kernel looks up}
    views  {suffix: how the kernel sees it}
    ready  (layer, kernel): what the kernel finds there beside the weight
    """

    make: Callable[[Asked], Any]
    names: Mapping[str, str] = field(default_factory=dict)
    views: Mapping[str, Callable[[torch.Tensor, Box], torch.Tensor]] = field(default_factory=dict)
    ready: Callable[[torch.nn.Module, Any], None] = _nothing

    def view(self, suffix: str, data: torch.Tensor, box: Box) -> torch.Tensor:
        return self.views.get(suffix, _as_stored)(data, box)


def _demand(prefix: str, answers: list[tuple[bool, str | None]]) -> None:
    for able, why in answers:
        if not able:
            raise Refused(
                f"{prefix}: vLLM's kernel does not take it: {why}",
                hint="convert with --exclude for this weight, or to another format",
            )


def _w4a8(asked: Asked) -> Any:
    from vllm.model_executor.kernels.linear import MPLinearLayerConfig
    from vllm.model_executor.kernels.linear.mixed_precision.cutlass import CutlassW4A8LinearKernel
    from vllm.scalar_type import scalar_types

    config = MPLinearLayerConfig(
        full_weight_shape=asked.full[::-1],
        partition_weight_shape=asked.shape[::-1],
        weight_type=scalar_types.int4,
        act_type=torch.float8_e4m3fn,
        group_size=128,
        zero_points=False,
        out_type=asked.dtype,
    )
    _demand(asked.prefix, [CutlassW4A8LinearKernel.can_implement(config)])
    return CutlassW4A8LinearKernel(
        config, w_q_param_name="weight_packed", w_s_param_name="weight_scale"
    )


def _deepgemm(asked: Asked) -> Any:
    from vllm.model_executor.kernels.linear.scaled_mm import deep_gemm
    from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
        FP8ScaledMMLinearLayerConfig,
    )
    from vllm.model_executor.layers.quantization.utils.quant_utils import (
        kFp8Dynamic128Sym,
        kFp8Static128BlockSym,
    )

    config = FP8ScaledMMLinearLayerConfig(
        weight_quant_key=kFp8Static128BlockSym,
        activation_quant_key=kFp8Dynamic128Sym,
        input_dtype=asked.dtype,
        out_dtype=asked.dtype,
        weight_shape=asked.shape,
    )
    kind = deep_gemm.DeepGemmFp8BlockScaledMMKernel
    _demand(asked.prefix, [kind.is_supported(), kind.can_implement(config)])
    kernel = kind(config)
    if not kernel.use_deep_gemm_e8m0:
        raise Refused(
            f"{asked.prefix}: its scales are powers of two, and vLLM would quantize activations "
            "with others",
            hint="set VLLM_USE_DEEP_GEMM_E8M0=1",
        )
    return kernel


def _mxfp8(asked: Asked) -> Any:
    from vllm.model_executor.kernels.linear.mxfp8.flashinfer import (
        FlashInferCutedslMxfp8LinearKernel,
    )
    from vllm.model_executor.kernels.linear.mxfp8.Mxfp8LinearKernel import Mxfp8LinearLayerConfig

    config = Mxfp8LinearLayerConfig(weight_shape=asked.shape)
    kind = FlashInferCutedslMxfp8LinearKernel
    _demand(asked.prefix, [kind.is_supported(), kind.can_implement(config)])
    return kind(config)


def _mxfp4(asked: Asked) -> Any:
    from vllm.model_executor.kernels.linear.mxfp4.base import MxFp4LinearLayerConfig
    from vllm.model_executor.kernels.linear.mxfp4.flashinfer import FlashInferMxFp4LinearKernel
    from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp4Dynamic

    _demand(asked.prefix, [FlashInferMxFp4LinearKernel.is_supported()])
    return FlashInferMxFp4LinearKernel(MxFp4LinearLayerConfig(activation_quant_key=kMxfp4Dynamic))


def group_of(packed: Packed) -> int:
    """Input features that share a scale; -1: all of a row."""
    suffix = "weight_scale" if "weight_scale" in packed.per else "weight_scale_inv"
    return packed.per[suffix][1] or -1


ZERO_POINTS = "weight_zero_point"


def has_zero_points(packed: Packed) -> bool:
    return ZERO_POINTS in packed.outputs


def bits_of(packed: Packed) -> int:
    """Bits of a code of integers, whose codec is int4 or int8."""
    return int(format_facts(packed.format)["codec"].removeprefix("int"))


def mixed_type(packed: Packed) -> Any:
    """vLLM's name for codes with 16-bit activations; those with zero points count from 0."""
    from vllm.scalar_type import scalar_types

    if bits_of(packed) == 4:
        return scalar_types.uint4 if has_zero_points(packed) else scalar_types.uint4b8
    return scalar_types.uint8 if has_zero_points(packed) else scalar_types.uint8b128


def _mixed(asked: Asked, kind: Any) -> Any:
    """A kernel for integers and 16-bit activations."""
    from vllm.model_executor.kernels.linear import MPLinearLayerConfig

    zeros = has_zero_points(asked.mine)
    config = MPLinearLayerConfig(
        full_weight_shape=asked.full[::-1],
        partition_weight_shape=asked.shape[::-1],
        weight_type=mixed_type(asked.mine),
        act_type=asked.dtype,
        group_size=group_of(asked.mine),
        zero_points=zeros,
    )
    _demand(asked.prefix, [kind.can_implement(config)])
    return kind(
        config,
        w_q_param_name="weight_packed",
        w_s_param_name="weight_scale",
        w_zp_param_name=ZERO_POINTS if zeros else None,
    )


def _machete(asked: Asked) -> Any:
    from vllm.model_executor.kernels.linear.mixed_precision.machete import MacheteLinearKernel

    return _mixed(asked, MacheteLinearKernel)


def _check_marlin(asked: Asked, suffix: str, bits: int) -> None:
    """The padding of the file must be the kernel's: it takes its sizes from the codes."""
    from vllm.model_executor.layers.quantization.utils.marlin_utils import (
        get_marlin_input_dtype,
        marlin_padded_nk,
    )

    if get_marlin_input_dtype(prefix=asked.prefix) is not None:
        raise Refused(
            f"{asked.prefix}: {asked.mine.format} is for 16-bit activations",
            hint="unset VLLM_MARLIN_INPUT_DTYPE",
        )
    blocks, words = asked.mine.outputs[suffix].shape
    stored = (words * 2 // bits, blocks * 16)
    wanted = marlin_padded_nk(*asked.shape, group_of(asked.mine))
    if stored != wanted:
        raise Refused(
            f"{asked.prefix}: Marlin takes {list(asked.shape)} padded to {list(wanted)}, and the "
            f"checkpoint has {list(stored)}",
            hint="convert with --exclude for this weight, or serve on another number of ranks",
        )


def _marlin_integers(asked: Asked) -> Any:
    from vllm.model_executor.kernels.linear.mixed_precision.marlin import MarlinLinearKernel

    _check_marlin(asked, "weight_packed", bits_of(asked.mine))
    return _mixed(asked, MarlinLinearKernel)


def _marlin_bias(layer: Any, kernel: Any) -> None:
    """A bias is stored in the order of Marlin's threads; fused parts end at its blocks of 64. The
    kernel reads one for every padded row, and vLLM's parameter has those of the model."""
    del kernel
    scales = next(p for name, p in layer._parameters.items() if name.startswith("weight_scale"))
    rows, padded = layer.output_size_per_partition, scales.shape[-1]
    if getattr(layer, "bias", None) is not None and rows != padded:
        raise Refused(
            f"a bias of {rows} numbers, and Marlin's has {padded}, which this plugin does not pad",
            hint="convert with --exclude for this weight",
        )


def _marlin_ready(layer: Any, kernel: Any) -> None:
    """What the kernel looks up beside the weight: zero points, too, where there are none."""
    from vllm.model_executor.layers.quantization.utils.marlin_utils import marlin_make_empty

    _marlin_bias(layer, kernel)
    if kernel.w_zp_name in (None, "w_zp"):
        kernel.w_zp_name = "w_zp"
        layer.w_zp = marlin_make_empty(layer.weight_packed.device)
    layer.input_global_scale = None


def _marlin_mxfp4(asked: Asked) -> Any:
    from vllm.model_executor.kernels.linear.mxfp4.base import MxFp4LinearLayerConfig
    from vllm.model_executor.kernels.linear.mxfp4.marlin import MarlinMxFp4LinearKernel

    _check_marlin(asked, "weight", 4)
    config = MxFp4LinearLayerConfig(activation_quant_key=None)
    kind = MarlinMxFp4LinearKernel
    _demand(asked.prefix, [kind.is_supported(), kind.can_implement(config)])
    return kind(config)


def _marlin_mxfp8(asked: Asked) -> Any:
    from vllm.model_executor.kernels.linear.mxfp8.marlin import MarlinMxfp8LinearKernel
    from vllm.model_executor.kernels.linear.mxfp8.Mxfp8LinearKernel import Mxfp8LinearLayerConfig

    _check_marlin(asked, "weight", 8)
    config = Mxfp8LinearLayerConfig(weight_shape=asked.shape)
    kind = MarlinMxfp8LinearKernel
    _demand(asked.prefix, [kind.is_supported(), kind.can_implement(config)])
    return kind(config)


def _marlin_fp8(asked: Asked) -> Any:
    """Blocks of 128x128 and scales of rows are two orders of scales, and two keys of vLLM."""
    from vllm.model_executor.kernels.linear.scaled_mm.marlin import MarlinFP8ScaledMMLinearKernel
    from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
        FP8ScaledMMLinearLayerConfig,
    )
    from vllm.model_executor.layers.quantization.utils import quant_utils as keys

    _check_marlin(asked, "weight", 8)
    rows = group_of(asked.mine) < 0
    config = FP8ScaledMMLinearLayerConfig(
        weight_quant_key=keys.kFp8StaticChannelSym if rows else keys.kFp8Static128BlockSym,
        activation_quant_key=keys.kFp8DynamicTokenSym if rows else keys.kFp8Dynamic128Sym,
        input_dtype=asked.dtype,
        out_dtype=asked.dtype,
        weight_shape=asked.shape,
    )
    kind = MarlinFP8ScaledMMLinearKernel
    _demand(asked.prefix, [kind.is_supported(), kind.can_implement(config)])
    return kind(config, layer_param_names=["weight", "weight_scale", "input_scale"])


def _marlin_nvfp4(asked: Asked) -> Any:
    from vllm.model_executor.kernels.linear.nvfp4.base import NvFp4LinearLayerConfig
    from vllm.model_executor.kernels.linear.nvfp4.marlin import MarlinNvFp4LinearKernel

    _check_marlin(asked, "weight", 4)
    config = NvFp4LinearLayerConfig()
    kind = MarlinNvFp4LinearKernel
    _demand(asked.prefix, [kind.is_supported(), kind.can_implement(config)])
    return kind(config)


def _warm(layer: torch.nn.Module, kernel: Any) -> None:
    """DeepGEMM's warm-up asks the layer for the kernel."""
    layer.deep_gemm_warmup_provider = kernel


_MARLIN = LinearSupport(_marlin_integers, ready=_marlin_ready)
_MARLIN_FP8 = LinearSupport(_marlin_fp8, ready=_marlin_bias)
_MARLIN_NVFP4 = LinearSupport(
    _marlin_nvfp4,
    names={"weight_scale_2": "weight_global_scale"},
    views={"weight_scale_2": _scalar},
    ready=_marlin_bias,
)

LINEAR = {
    "w4a8-cutlass": LinearSupport(
        _w4a8,
        names={"weight_group_scale": "weight_scale"},
        views={"weight_packed": _transposed, "weight_group_scale": _flat},
    ),
    "w4a16-machete": LinearSupport(_machete),
    "w8a16-machete": LinearSupport(_machete),
    "fp8-deepgemm-sm100": LinearSupport(
        _deepgemm,
        names={"weight_scale_packed": "weight_scale_inv"},
        views={"weight_scale_packed": _columns},
        ready=_warm,
    ),
    "mxfp8-blocked": LinearSupport(_mxfp8, views={"weight": _transposed}),
    "mxfp4-blocked": LinearSupport(
        _mxfp4, names={"weight_packed": "weight"}, views={"weight_scale": _tile_rows}
    ),
    "w4a16-marlin": _MARLIN,
    "w4a16-marlin-channel": _MARLIN,
    "w8a16-marlin": _MARLIN,
    "w8a16-marlin-channel": _MARLIN,
    "fp8-marlin": _MARLIN_FP8,
    "fp8-marlin-channel": _MARLIN_FP8,
    "nvfp4-marlin": _MARLIN_NVFP4,
    "nvfp4-marlin-64": _MARLIN_NVFP4,
    "mxfp4-marlin": LinearSupport(
        _marlin_mxfp4, views={"weight_scale": _exponents}, ready=_marlin_bias
    ),
    "mxfp8-marlin": LinearSupport(
        _marlin_mxfp8, views={"weight_scale": _exponents}, ready=_marlin_bias
    ),
}
