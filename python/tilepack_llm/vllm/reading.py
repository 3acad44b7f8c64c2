"""What is done where vLLM reads a checkpoint: before the first tensor, to each, and at the end.

vLLM maps a file and hands out views of it, so that what is not looked at is not read. The plugin
takes a packed tensor's bytes out of the file by itself; it looks at no more of the view than its
shape. There is no public hook for this: register_model_loader() is for a --load-format, which a
user would have to name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from vllm.config import get_current_vllm_config
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from ..checkpoint import Checkpoint
from ..errors import Error
from . import manifest
from .config import TilepackConfig
from .experts import TilepackMoEMethod
from .linear import TilepackLinearMethod
from .staging import Stored, account, mark, staging
from .support import Refused
from .telling import tell_kernels


def _before(model_config: Any, model: Any) -> None:
    """Of a model that predicts further tokens only, the other layers are another one's."""
    config = get_current_vllm_config().quant_config
    if isinstance(config, TilepackConfig) and model_config.runner_type != "draft":
        config.claims.check(config.packed, model, model_config.hf_text_config)


def _layers(model: Any) -> dict[str, Any]:
    """Those that are packed, by name."""
    kinds = (TilepackLinearMethod, TilepackMoEMethod)
    layers = model.named_modules()
    return {name: one for name, one in layers if isinstance(vars(one).get("quant_method"), kinds)}


# Of vLLM's readers the ones that map files.
MAPPED = ("auto", "hf", "safetensors")


def _opened(path: str) -> Checkpoint:
    """The checkpoint of a manifest. What is wrong in it is said in one sentence, as all else."""
    try:
        return Checkpoint(os.path.dirname(path))
    except Error as error:
        raise Refused(str(error)) from None


def _elsewhere(config: Any) -> set[str]:
    """All tensors of packed weights, also of those that no layer of this rank holds."""
    return {
        weight.prefix + suffix
        for weight in getattr(config, "packed", {}).values()
        for suffix in (*weight.outputs, *weight.inputs)
    }


def _plain(
    weights: Iterable[tuple[str, Any]], model_config: Any, layers: list[Any], mapped: bool
) -> Iterator[tuple[str, torch.Tensor]]:
    """What is not packed is handed on. Packed tensors are loaded here.

    mapped  each has its place in a file
    """
    loaders: dict[str, Callable[..., None]] = {}
    for layer in layers:
        loaders.update(layer.quant_method.tensors(layer))
    packed = _elsewhere(get_current_vllm_config().quant_config)
    opened: Checkpoint | None = None
    for name, tensor in weights:
        if mapped and opened is None:  # the first one comes when vLLM has all files
            opened = _opened(manifest.path_of(model_config.model, model_config.revision))
        if name in loaders:
            if opened is not None:
                mark(tensor, Stored(opened, opened.tensors.number(name)))
            loaders.pop(name)(tensor)
        elif name not in packed:
            yield name, tensor


def _layer_bytes(layers: list[Any], config: Any) -> int:
    """Packed, of a layer of the model in the mean."""
    held = sum(int(one.nbytes) for layer in layers for one in layer.parameters())
    return held // max(int(getattr(config, "num_hidden_layers", 1)), 1)


def _track(loader: Any) -> None:
    """Where vLLM is asked to look whether all parameters were loaded, those are that the plugin
    itself looks after."""
    track = loader.track_weights_loading

    def tracked(self: Any, model: Any, loaded: Any, *more: Any, **others: Any) -> None:
        ours = {
            f"{name}.{parameter}"
            for name, layer in _layers(model).items()
            for parameter in layer._parameters
        }
        track(self, model, loaded if loaded is None else loaded | ours, *more, **others)

    loader.track_weights_loading = tracked


def watch() -> None:
    """Loads packed tensors, and looks at models, where tensors leave the file.

    What vLLM's models do with names and rows of plain weights is not for packed ones: each goes
    to the layer for which the config has given its weight.
    """
    get_all_weights = DefaultModelLoader.get_all_weights

    def watched(self: Any, model_config: Any, model: Any) -> Iterator[tuple[str, Any]]:
        weights = get_all_weights(self, model_config, model)
        if model_config.quantization != "tilepack":
            yield from weights
            return
        _before(model_config, model)
        layers = list(_layers(model).values())
        tell_kernels([layer.quant_method for layer in layers])
        staging.clear()
        staging.allow(_layer_bytes(layers, model_config.hf_text_config))
        account.reading = True
        yield from _plain(weights, model_config, layers, self.load_config.load_format in MAPPED)
        staging.flush()
        account.reading = False
        account.tell()

    DefaultModelLoader.get_all_weights = watched
    _track(DefaultModelLoader)
