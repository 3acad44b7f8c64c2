"""A kernel's tensors get the values of another's that was made of weights loaded later.

CUDA graphs have recorded the addresses of the first one's, so that it stays. What are parameters
of the layer vLLM copies itself; a kernel has others besides: products of scales, strides.
"""

from __future__ import annotations

from typing import Any

import torch

_OF_KERNELS = ("vllm.model_executor.layers.fused_moe.", "triton_kernels.")


def _has_tensors(value: Any) -> bool:
    known = type(value).__module__.startswith(_OF_KERNELS) and hasattr(value, "__dict__")
    return known and not isinstance(value, torch.nn.Module)


def refresh(first: Any, later: Any) -> None:
    """Copies the values of all tensors that `later`, of the same class, holds elsewhere."""
    for name, value in vars(later).items():
        held = getattr(first, name, None)
        if isinstance(value, torch.Tensor) and isinstance(held, torch.Tensor):
            if held.data_ptr() != value.data_ptr():
                held.copy_(value)
        elif type(value) is type(held) and _has_tensors(value):
            refresh(held, value)
