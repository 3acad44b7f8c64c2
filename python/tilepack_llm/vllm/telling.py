"""The lines of the log that say what runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
from vllm.platforms import current_platform

from ..slices import Packed
from .experts import TilepackMoEMethod
from .linear import TilepackLinearMethod
from .staging import logger


def _found(model: torch.nn.Module) -> dict[str, Counter[tuple[str, str]]]:
    """{what: {(format, kernel): layers}}."""
    found: dict[str, Counter[tuple[str, str]]] = {"linear layers": Counter(), "experts": Counter()}
    for layer in model.modules():
        method: Any = getattr(layer, "quant_method", None)
        if isinstance(method, TilepackLinearMethod):
            found["linear layers"][method.mine.format, type(method.kernel).__name__] += 1
        elif isinstance(method, TilepackMoEMethod):
            kernel = method.experts_cls.__name__
            found["experts"][method.stored["w13"].format, kernel] += 1
    return found


def _weights(model: torch.nn.Module) -> list[Packed]:
    methods = [getattr(layer, "quant_method", None) for layer in model.modules()]
    linear = [one.mine for one in methods if isinstance(one, TilepackLinearMethod)]
    return linear + [one.stored["w13"] for one in methods if isinstance(one, TilepackMoEMethod)]


def _compiles_marlin() -> bool:
    """vLLM's wheel has machine code of them for the families of 8.0 and 12.0."""
    capability = current_platform.get_device_capability()
    return capability is not None and capability.major in (9, 10, 11)


def tell_kernels(model: torch.nn.Module) -> None:
    """A line for linear layers, one for experts, and one where a start takes long or stock vLLM has
    other scales."""
    found = _found(model)
    for what, kernels in found.items():
        if kernels:
            rows = [f"{fmt} by {kernel} ({n})" for (fmt, kernel), n in sorted(kernels.items())]
            logger.info("tilepack: %s: %s", what, ", ".join(rows))
    if any("Marlin" in kernel for _, kernel in found["experts"]) and _compiles_marlin():
        logger.info(
            "tilepack: vLLM has Marlin's kernels for experts as PTX alone for this GPU: the driver "
            "compiles them at the first start on a machine, in about a minute"
        )
    as_compiled = any(
        weight.format == "w4a8-cutlass" and weight.parameters.get("scale", "gpu") == "gpu"
        for weight in _weights(model)
    )
    if as_compiled and QuantFP8.enabled():
        logger.info(
            "tilepack: with enforce_eager, or custom_ops all, stock vLLM rounds the scales of W4A8 "
            "otherwise than when it compiles, and this checkpoint has those of the latter; "
            "`tilepack convert --set scale=div` makes those of this mode"
        )
