"""What is done where vLLM reads a checkpoint: before the first tensor, to each name, behind the
last one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from vllm.config import get_current_vllm_config
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from .config import TilepackConfig
from .support import STORED
from .telling import tell_kernels
from .tensors import account

# The file's stack is P.experts.w13_*; in vLLM's tree of modules it is routed_experts that
# holds it, under a name that no model takes for one of its own to cut (gpt-oss does w13_weight).
_STACK = re.compile(r"\.experts\.(w13_|w2_)")
_BIAS = "bias"


def _named(name: str, hidden: Collection[str]) -> str:
    """The name under which vLLM gets a tensor. Where it moves rows of some plain weights, those of
    packed ones are hidden from the names by which it knows them (llama4); a bias is not."""
    module, _, suffix = name.rpartition(".")
    if module in hidden and suffix != _BIAS:
        return f"{module}.{STORED}{suffix}"
    return _STACK.sub(rf".experts.routed_experts.{STORED}\1", name)


def _before(model_config: Any, model: Any) -> None:
    """Of a model that predicts further tokens only, the other layers are another one's."""
    config = get_current_vllm_config().quant_config
    if isinstance(config, TilepackConfig) and model_config.runner_type != "draft":
        config.claims.check(config.packed, model, model_config.hf_text_config)
    tell_kernels(model)


def watch() -> None:
    """Renames stacks, and looks at models, where tensors leave the file.

    Models that load experts by hand (deepseek_v2 and some twenty others) ask neither the config
    nor the layer for a name, so that there is no later place.
    """
    get_all_weights = DefaultModelLoader.get_all_weights

    def watched(self: Any, model_config: Any, model: Any) -> Iterator[tuple[str, Any]]:
        weights = get_all_weights(self, model_config, model)
        if model_config.quantization != "tilepack":
            yield from weights
            return
        _before(model_config, model)
        account.reading = True
        quantization = get_current_vllm_config().quant_config
        hidden = getattr(quantization, "hidden", ())
        for name, tensor in weights:
            yield _named(name, hidden), tensor
        account.reading = False
        account.tell()

    DefaultModelLoader.get_all_weights = watched
