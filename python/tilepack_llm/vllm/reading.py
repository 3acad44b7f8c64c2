"""What is done where vLLM reads a checkpoint: before the first tensor, to each, and at the end.

vLLM maps a file and hands out views of it, so that what is not looked at is not read. The plugin
takes a packed tensor's bytes out of the file by itself; it looks at no more of the view than its
shape. There is no public hook for this: register_model_loader() is for a --load-format, which a
user would have to name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from vllm.config import get_current_vllm_config
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from ..checkpoint import Checkpoint
from ..errors import Error
from . import manifest
from .config import TilepackConfig
from .staging import Stored, account, mark, staging, stored
from .support import STORED, Refused
from .telling import tell_kernels

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


# Of vLLM's readers the ones that map files.
MAPPED = ("auto", "hf", "safetensors")


def _opened(path: str) -> Checkpoint:
    """The checkpoint of a manifest. What is wrong in it is said in one sentence, as all else."""
    try:
        return Checkpoint(os.path.dirname(path))
    except Error as error:
        raise Refused(str(error)) from None


def _marked(
    weights: Iterable[tuple[str, Any]], model_config: Any
) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor with its place in the files. The first one comes when vLLM has them all; of two
    with one name the second is no tensor of the checkpoint."""
    left: dict[str, Stored] | None = None
    for name, tensor in weights:
        if left is None:
            left = stored(_opened(manifest.path_of(model_config.model, model_config.revision)))
        source = left.pop(name, None)
        if source is not None:
            mark(tensor, source)
        yield name, tensor


def watch() -> None:
    """Renames stacks, marks tensors, and looks at models, where tensors leave the file.

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
        if self.load_config.load_format in MAPPED:
            weights = _marked(weights, model_config)
        staging.clear()
        account.reading = True
        quantization = get_current_vllm_config().quant_config
        hidden = getattr(quantization, "hidden", ())
        for name, tensor in weights:
            yield _named(name, hidden), tensor
        staging.flush()
        account.reading = False
        account.tell()

    DefaultModelLoader.get_all_weights = watched
