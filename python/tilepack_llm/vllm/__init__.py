"""vLLM loads what `tilepack convert` wrote, as it lies in the file: `vllm serve PACKED_DIR`.

register() is the entry point of the group vllm.general_plugins: every process of vLLM calls it,
once or more, before it reads a model. Neither torch nor vllm is imported until then.

    manifest, support   what is in the checkpoint, and whether it can be served here: no vllm
    config              vLLM's quantization config
    linear, experts     its methods: parameters of the stored shape, filled by copies of tiles
    kernels, expert_kernels   vLLM's own kernels, chosen and built
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .support import STORED, Refused, check_version

__all__ = ["Refused", "register"]

# The file's stack is P.experts.w13_*; in vLLM's tree of modules it is routed_experts that
# holds it, under a name that no model takes for one of its own to cut (gpt-oss does w13_weight).
_STACK = re.compile(r"\.experts\.(w13_|w2_)")


def register() -> None:
    """Makes vLLM know quant_method "tilepack". May be called again."""
    import vllm
    from vllm.model_executor.layers.quantization import (
        QUANTIZATION_METHODS,
        register_quantization_config,
    )

    if "tilepack" in QUANTIZATION_METHODS:
        return
    check_version(vllm.__version__)
    from .config import TilepackConfig

    register_quantization_config("tilepack")(TilepackConfig)
    _rename_stacks()


def _rename_stacks() -> None:
    """Renames stacks where tensors leave the file.

    Models that load experts by hand (deepseek_v2 and some twenty others) ask neither the config
    nor the layer for a name, so that there is no later place.
    """
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    get_all_weights = DefaultModelLoader.get_all_weights

    def renamed(self: Any, model_config: Any, model: Any) -> Iterator[tuple[str, Any]]:
        weights = get_all_weights(self, model_config, model)
        if model_config.quantization != "tilepack":
            yield from weights
            return
        for name, tensor in weights:
            yield _STACK.sub(rf".experts.routed_experts.{STORED}\1", name), tensor

    DefaultModelLoader.get_all_weights = renamed
