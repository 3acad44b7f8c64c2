"""transformers loads packed checkpoints, for evaluation: values, not kernels.

    import tilepack_llm.transformers
    model = AutoModelForCausalLM.from_pretrained("packed")

Importing this registers quant_method "tilepack". The weights become plain ones of exactly the
values of `tilepack unpack`, which are what the format's kernel multiplies by: from_pretrained()
reads files that unpack() has made in a temporary directory, under the names that the source had.
So it takes the memory of the unquantized model, and for a while that much disk in TMPDIR.
"""

from __future__ import annotations

import glob
import os
import tempfile
from typing import Any

from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from . import commands
from .errors import UsageError, refusals


@register_quantization_config("tilepack")
class TilepackConfig(QuantizationConfigMixin):  # type: ignore[misc]
    """quantization_config of a packed checkpoint's config.json."""

    def __init__(self, quant_method: str = "tilepack", **facts: Any) -> None:
        self.quant_method = quant_method
        self.dequantize = True  # the model that is handed out is a plain one
        self.__dict__.update(facts)


@register_quantizer("tilepack")
class TilepackQuantizer(HfQuantizer):  # type: ignore[misc]
    """Puts unpacked files in the place of the packed ones before the weights are read."""

    requires_calibration = True  # nothing is quantized here

    def _process_model_before_weight_loading(
        self, model: Any, checkpoint_files: list[str] | None = None, **_: Any
    ) -> None:
        del model
        if not checkpoint_files:
            raise UsageError("a packed checkpoint is loaded from its files")
        folder = os.path.dirname(checkpoint_files[0])
        with refusals("no temporary folder can be made"):
            self._plain = tempfile.TemporaryDirectory(prefix="tilepack-")
        output = os.path.join(self._plain.name, "plain")
        commands.unpack(folder, output, follow_links=True)
        # The same list is read afterwards.
        checkpoint_files[:] = sorted(glob.glob(os.path.join(output, "*.safetensors")))

    def _process_model_after_weight_loading(self, model: Any, **_: Any) -> Any:
        self._plain.cleanup()
        return model

    def update_attn_implementation(self, config: Any) -> Any:
        """The hook that is given the model's config before its files are looked for. The key is
        where transformers stops without this package."""
        if str(getattr(config, "transformers_weights", "")).startswith("packed for kernels"):
            del config.transformers_weights
        return config

    def is_serializable(self, *_: Any, **__: Any) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return True
