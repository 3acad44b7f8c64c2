"""Linear layers: parameters of the stored shape, filled with tiles of one or several parts.

Merged layers (qkv_proj, gate_up_proj) take their parts one by one, or as the file has them
merged; ranks take their rows or columns. After loading nothing moves: parameters get the names
and the views that vLLM's kernel looks for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.model_executor.layers.linear import LinearMethodBase
from vllm.model_executor.utils import is_weights_pre_processed

from ..errors import UnsupportedError
from ..slices import Output, Packed, columns_of_rank, rows_of_rank
from .kernels import LINEAR, Asked
from .support import Refused, check_linear
from .tensors import Place, account, check, check_dtype, copy_tiles, parameter, rename

_SHARDS = {"q": 0, "k": 1, "v": 2}


class TilepackLinearMethod(LinearMethodBase):  # type: ignore[misc]
    """parts: the packed weights of the layer, in the order of its rows."""

    supports_pre_processed_weights = True
    requires_device_loading = False

    def __init__(self, parts: list[Packed], prefix: str) -> None:
        self.parts, self.prefix = parts, prefix

    def create_weights(
        self,
        layer: torch.nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **_: Any,
    ) -> None:
        fmt = self.parts[0].format
        check_linear(self.prefix, fmt)
        self.sizes, self.rank, self.ranks = output_partition_sizes, layer.tp_rank, layer.tp_size
        n, k = sum(output_partition_sizes), input_size_per_partition
        layer.output_size_per_partition, layer.input_size_per_partition = n, k
        layer.weight_block_size = [128, 128]  # what vLLM's kernels for block FP8 look up
        self._refuse_unless(self._checked, input_size)
        self.mine = self._refuse_unless(self.parts[0].matrix_of_size, (1, n, k))
        outputs = self._refuse_unless(lambda: self.mine.outputs)
        check_dtype(self.prefix, self.mine, params_dtype)
        self.kernel = LINEAR[fmt].make(
            Asked(self.prefix, self.mine, (output_size, input_size), params_dtype)
        )
        self.todo = {}
        for output in outputs.values():
            made = parameter(output)
            made.weight_loader = self._loader(output)
            layer.register_parameter(output.suffix, made)
            self.todo[output.suffix] = n

    def _refuse_unless(self, work: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return work(*arguments)
        except UnsupportedError as error:
            if isinstance(error, Refused):
                raise
            hint = (
                f"serve on another number of ranks than {self.ranks}, or convert to another format"
            )
            raise Refused(f"{self.prefix}: {error.message}", hint=hint) from None

    def _checked(self, input_size: int) -> None:
        """The stored parts against what the model asks for."""
        for packed in self.parts:
            if packed.stacked or packed.box[2] != input_size:
                raise Refused(
                    f"{self.prefix}: the checkpoint has {list(packed.box)}, and the model takes "
                    f"{input_size} input features",
                    hint="its config.json must be that of the converted source",
                )
        if len(self.parts) > 1:
            for packed, mine in zip(self.parts, self.sizes):
                rows_of_rank(packed.box[1], mine, self.rank, self.ranks)

    def _loader(self, output: Output) -> Callable[..., None]:
        def load(param: Any, tensor: torch.Tensor, shard_id: Any = None) -> None:
            if shard_id is None:
                self._refuse_unless(self._load_whole, output, param.data, tensor)
            elif isinstance(shard_id, tuple):
                raise Refused(f"{self.prefix}: several of its parts lie merged in the file")
            else:
                part = _SHARDS.get(shard_id, shard_id)
                packed = self.parts[part]
                check(self.prefix, packed.outputs[output.suffix], tensor)
                self._refuse_unless(
                    self._load_part, output, param.data, tensor, part, packed, 0, packed.box[1]
                )

        return load

    def _load_whole(self, output: Output, target: torch.Tensor, tensor: torch.Tensor) -> None:
        """One tensor for all parts: a layer that is not merged, or that is merged in the file."""
        packed, whole = self.parts[0], self.parts[0].box[1]
        check(self.prefix, packed.outputs[output.suffix], tensor)
        sizes = [whole] if len(self.sizes) == 1 else [size * self.ranks for size in self.sizes]
        if sum(sizes) != whole or len(self.parts) > 1:
            raise UnsupportedError(f"its parts lie merged in the file, in {whole} rows")
        begin = 0
        for part, rows in enumerate(sizes):
            self._load_part(output, target, tensor, part, packed, begin, rows)
            begin += rows

    def _load_part(
        self,
        output: Output,
        target: torch.Tensor,
        tensor: torch.Tensor,
        part: int,
        packed: Packed,
        begin: int,
        rows: int,
    ) -> None:
        """The part that lies in `rows` rows of the file's weight from `begin` on."""
        mine, at = self.sizes[part], sum(self.sizes[:part])
        k = self.mine.box[2]
        if self.mine.per.get(output.suffix) == (0, 0):
            self._check_same(output, target, tensor)
        self.todo[output.suffix] -= mine
        stored = packed.outputs[output.suffix]
        if output.grid is None:
            target.copy_(torch.tensor(output.words, dtype=target.dtype).view_as(target))
            return
        first, last = rows_of_rank(rows, mine, self.rank, self.ranks)
        columns = columns_of_rank(packed.box[2], k, self.rank, self.ranks)
        copy_tiles(
            target,
            Place(output, self.mine.box, (at, at + mine), (0, k)),
            tensor,
            Place(stored, packed.box, (begin + first, begin + last), columns),
        )

    def _check_same(self, output: Output, target: torch.Tensor, tensor: torch.Tensor) -> None:
        """The kernel takes one number for all parts: a later one must have that of the first."""
        begun = self.todo[output.suffix] != sum(self.sizes)
        if begun and not torch.equal(target, tensor.to(target.device)):
            raise Refused(
                f"{self.prefix}: its parts have other numbers in {output.suffix}, and vLLM holds "
                "them as one",
                hint="convert them together, from a source whose global scales they share",
            )

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """No byte moves."""
        if is_weights_pre_processed():
            return
        left = [suffix for suffix, rows in self.todo.items() if rows]
        if left:
            raise Refused(
                f"{self.prefix}: the checkpoint does not fill {', '.join(left)}",
                hint="run `tilepack verify`",
            )
        support = LINEAR[self.parts[0].format]
        for suffix, output in self.mine.outputs.items():
            if output.grid is None:
                del layer._parameters[suffix]  # the kernel makes these words itself
                continue
            data = support.view(suffix, layer._parameters[suffix].data, self.mine.box)
            rename(layer, suffix, support.names.get(suffix, suffix), data)
        support.ready(layer, self.kernel)
        account.tell()

    def apply(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.kernel.apply_weights(layer, x, bias)
