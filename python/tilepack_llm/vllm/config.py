"""vLLM's quantization config for quant_method "tilepack": which layer is packed, and how."""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import (
    UnquantizedFusedMoEMethod,
)
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
from vllm.platforms import current_platform

from ..slices import Packed
from . import manifest
from .claims import Claims
from .expert_kernels import experts_method
from .linear import TilepackLinearMethod
from .names import as_built, check_family, check_order
from .support import SUPPORTED, Refused, check_device


class TilepackConfig(QuantizationConfig):  # type: ignore[misc]
    """packed: {name: weight}, as manifest.units() names them, in vLLM's words once its mapper
    was applied. Sent to the workers pickled."""

    def __init__(self, formats: list[str]) -> None:
        super().__init__()
        self.formats = formats
        self.packed: dict[str, Packed] = {}
        self.claims = Claims()

    def __repr__(self) -> str:
        return f"TilepackConfig({', '.join(self.formats)}; {len(self.packed)} weights)"

    @classmethod
    def get_name(cls) -> str:
        return "tilepack"

    @classmethod
    def get_supported_act_dtypes(cls) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]  # the layers look whether it is theirs

    @classmethod
    def get_min_capability(cls) -> int:
        return min(support.first for support in SUPPORTED.values())

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TilepackConfig:
        return cls(list(config.get("formats", [])))

    def maybe_update_config(
        self, model_name: str, hf_config: Any = None, revision: str | None = None, **_: Any
    ) -> None:
        """Called where the model's path is known, before anything is allocated."""
        text = hf_config.get_text_config() if hf_config else None
        types = {getattr(config, "model_type", "") for config in (hf_config, text)}
        found = manifest.read(manifest.path_of(model_name, revision))
        check_family(found, types)
        check_order(found, types)
        self.packed = as_built(found, types)
        capability = current_platform.get_device_capability()
        for name, weight in self.packed.items():
            check_device(
                name,
                weight.format,
                capability and capability.to_int(),
                current_platform.get_device_name(),
            )

    def apply_vllm_mapper(self, hf_to_vllm_mapper: Any) -> None:
        """Its patterns are for names of tensors, in which a dot follows a module's."""
        renamed: dict[str, Packed] = {}
        for name, weight in self.packed.items():
            module, colon, part = name.partition(":")
            mapped = hf_to_vllm_mapper.map_name(f"{module}.")
            if mapped is not None:
                renamed[mapped.removesuffix(".") + colon + part] = weight
        self.packed = renamed

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        prefix = prefix.removeprefix(".")  # some models begin with no name
        if isinstance(layer, LinearBase):
            parts = manifest.parts_of(prefix, self.packed, self.packed_modules_mapping)
            self.claims.add(prefix, parts.values())
            if parts:
                return TilepackLinearMethod(list(parts.values()), prefix)
            return UnquantizedLinearMethod()
        if isinstance(layer, RoutedExperts):
            experts = manifest.experts_of(prefix, self.packed)
            self.claims.add(prefix, experts.values())
            if experts:
                return experts_method(experts, layer.moe_config, prefix)
            return UnquantizedFusedMoEMethod(layer.moe_config)
        if prefix in self.packed:
            raise Refused(
                f"{prefix}: vLLM keeps {type(layer).__name__} unquantized, and the checkpoint has "
                "it packed",
                hint="convert with --exclude for this weight",
            )
        return None
