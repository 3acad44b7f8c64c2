"""Every packed weight is some layer's, or one that this rank of vLLM does not hold.

vLLM's loader passes over tensors that it has no parameter for, and over parameters that it has no
tensor for: a layer of another name than the file's would be served as it was allocated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from vllm.model_executor.models.utils import PPMissingLayer, StageMissingLayer

from ..slices import Packed
from .names import is_skipped
from .support import Refused

# Layers behind the last one predict further tokens; how many there are stands in one of these.
_BEHIND = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


class Claims:
    """Which layer holds which weight. Weights are told apart as objects: names change."""

    def __init__(self) -> None:
        self._layers: dict[int, str] = {}

    def add(self, prefix: str, weights: Iterable[Packed]) -> None:
        """Refuses a weight that another layer holds already."""
        for weight in weights:
            other = self._layers.setdefault(id(weight), prefix)
            if other != prefix:
                raise Refused(
                    f"{prefix}: vLLM gives this layer the weight of {other}",
                    hint="convert with --exclude for this weight",
                )

    def check(self, packed: Mapping[str, Packed], model: torch.nn.Module, config: Any) -> None:
        """Refuses a checkpoint of which no layer of `model` holds a weight that it should.

        config  vLLM's, of the model's text
        """
        missing = _not_here(model)
        last = int(getattr(config, "num_hidden_layers", 0))
        behind = max(int(getattr(config, key, 0) or 0) for key in _BEHIND)
        left = [
            name
            for name, weight in packed.items()
            if id(weight) not in self._layers
            and not name.startswith(missing)
            and not is_skipped(name)
            and not ((layer := _LAYER.search(name)) and last <= int(layer.group(1)) < last + behind)
        ]
        if left:
            others = f", nor for {len(left) - 1} others" if left[1:] else ""
            raise Refused(
                f"{left[0]}: it is packed, and vLLM builds no layer for it{others}: what it builds "
                "instead would hold no values",
                hint="convert with --exclude for these weights",
            )


def _not_here(model: torch.nn.Module) -> tuple[str, ...]:
    """How names begin of layers of other stages, and of towers that are switched off."""
    kinds = (PPMissingLayer, StageMissingLayer)
    return tuple(f"{name}." for name, layer in model.named_modules() if isinstance(layer, kinds))
