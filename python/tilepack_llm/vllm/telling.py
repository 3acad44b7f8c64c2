"""The lines of the log that say what runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
from vllm.platforms import current_platform

from ..slices import Packed
from .linear import TilepackLinearMethod
from .staging import logger


def _found(methods: list[Any]) -> dict[str, Counter[tuple[str, str]]]:
    """{what: {(format, kernel): layers}}."""
    found: dict[str, Counter[tuple[str, str]]] = {"linear layers": Counter(), "experts": Counter()}
    for method in methods:
        if isinstance(method, TilepackLinearMethod):
            found["linear layers"][method.mine.format, type(method.kernel).__name__] += 1
        else:
            kernel = method.experts_cls.__name__
            found["experts"][method.stored["w13"].format, kernel] += 1
    return found


def _weight(method: Any) -> Packed:
    one = method.mine if isinstance(method, TilepackLinearMethod) else method.stored["w13"]
    assert isinstance(one, Packed)
    return one


def _compiles_marlin() -> bool:
    """vLLM's wheel has machine code of them for the families of 8.0 and 12.0."""
    capability = current_platform.get_device_capability()
    return capability is not None and capability.major in (9, 10, 11)


def tell_kernels(methods: list[Any]) -> None:
    """A line for linear layers, one for experts, and one where a start takes long or stock vLLM has
    other scales.

    methods  of all packed layers
    """
    found = _found(methods)
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
        for weight in map(_weight, methods)
    )
    if as_compiled and QuantFP8.enabled():
        logger.info(
            "tilepack: with enforce_eager, or custom_ops all, stock vLLM rounds the scales of W4A8 "
            "otherwise than when it compiles, and this checkpoint has those of the latter; "
            "`tilepack convert --set scale=div` makes those of this mode"
        )
