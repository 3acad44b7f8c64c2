"""vLLM loads what `tilepack convert` wrote, as it lies in the file: `vllm serve PACKED_DIR`.

register() is the entry point of the group vllm.general_plugins: every process of vLLM calls it,
once or more, before it reads a model. Neither torch nor vllm is imported until then.

    manifest, names, support  what is in the checkpoint, what vLLM calls it, and whether it can be
                              served here: no vllm
    config, claims            vLLM's quantization config, and that no weight is left out
    linear, experts           its methods: parameters of the stored shape, filled by copies of tiles
    tensors, filling          those copies, and what is still to come
    staging                   bytes from files to the device, many tensors at a time
    kernels, expert_kernels   vLLM's own kernels, chosen and built
    refresh                   a kernel of weights that were loaded anew
    reading, telling          where tensors leave the file, and the lines of the log
"""

from __future__ import annotations

from .support import Refused, check_version

__all__ = ["Refused", "register"]


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
    from .reading import watch

    register_quantization_config("tilepack")(TilepackConfig)
    watch()
