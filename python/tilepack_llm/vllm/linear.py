"""Linear layers: parameters of the stored shape, filled with tiles of one or several parts.

Merged layers (qkv_proj, gate_up_proj) take their parts one by one, or as the file has them
merged; ranks take their rows or columns. After loading nothing moves: parameters get the names
and the views that vLLM's kernel looks for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from vllm.model_executor.layers.linear import LinearMethodBase
from vllm.model_executor.utils import is_weights_pre_processed

from ..errors import UnsupportedError
from ..slices import Output, Packed, Span, columns_of_rank, rows_of_rank
from .filling import Filling
from .kernels import LINEAR, Asked
from .staging import account, staging
from .support import STORED, Refused, check_linear
from .tensors import Place, check, check_dtype, copy_tiles, parameter, rename

_SHARDS = {"q": 0, "k": 1, "v": 2}


class Rows(NamedTuple):
    """Rows of a layer on this rank, and of the file's weight that they are."""

    here: Span
    there: Span


def _joined(rows: list[Rows]) -> list[Rows]:
    """The same with those as one that follow each other here and there: on one rank all."""
    found: list[Rows] = []
    for here, there in rows:
        if found and (found[-1].here[1], found[-1].there[1]) == (here[0], there[0]):
            found[-1] = Rows((found[-1].here[0], here[1]), (found[-1].there[0], there[1]))
        else:
            found.append(Rows(here, there))
    return found


def _wholes(layer: Any, sizes: list[int], ranks: int) -> list[int]:
    """Rows of vLLM's parts on all ranks, of which several may share heads of k and v."""
    heads = [getattr(layer, f"total_num_{kind}heads", 0) for kind in ("", "kv_", "kv_")]
    if len(sizes) != len(heads) or not all(heads):
        return [size * ranks for size in sizes]
    widths = (layer.head_size, layer.head_size, getattr(layer, "v_head_size", layer.head_size))
    return [count * width for count, width in zip(heads, widths)]


def _count_of(wholes: list[int], rows: int) -> int:
    """How many of vLLM's parts the rows of a weight are, beginning with the first."""
    for count in range(1, len(wholes) + 1):
        if sum(wholes[:count]) == rows:
            return count
    raise UnsupportedError(f"its parts lie merged in the file, in {rows} rows")


class TilepackLinearMethod(LinearMethodBase):  # type: ignore[misc]
    """parts: the packed weights of the layer, in the order of its rows; hidden: reading.py has
    renamed their tensors."""

    supports_pre_processed_weights = True
    requires_device_loading = False

    def __init__(self, parts: list[Packed], prefix: str, hidden: bool = False) -> None:
        self.parts, self.prefix = parts, prefix
        self.stored = STORED if hidden else ""

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
        self.wholes = _wholes(layer, self.sizes, self.ranks)
        layer.weight_block_size = [128, 128]  # what vLLM's kernels for block FP8 look up
        self._refuse_unless(self._checked, input_size)
        self.mine = self._refuse_unless(self.parts[0].matrix_of_size, (1, n, k))
        outputs = self._refuse_unless(lambda: self.mine.outputs)
        check_dtype(self.prefix, self.mine, params_dtype)
        self.kernel = LINEAR[fmt].make(
            Asked(self.prefix, self.mine, (output_size, input_size), params_dtype)
        )
        self.filling = Filling(self.prefix)
        for output in outputs.values():
            made = parameter(output)
            made.weight_loader = self._loader(output)
            layer.register_parameter(self.stored + output.suffix, made)
            self.filling.expect(output.suffix, output, n)

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
        self.places = self._places()

    def _places(self) -> list[list[Rows]]:
        """Of each part where its rows belong. A part that the file has merged is several of
        vLLM's, one after the other; self.firsts has the first one's number."""
        self.firsts: list[int] = []
        places, taken, at = [], 0, 0
        for packed in self.parts:
            own = len(self.parts) == len(self.sizes)
            count = 1 if own else _count_of(self.wholes[taken:], packed.box[1])
            rows, begin = [], 0
            for i, size in enumerate(self.sizes[taken : taken + count], taken):
                whole = packed.box[1] if count == 1 else self.wholes[i]
                first, last = rows_of_rank(whole, size, self.rank, self.ranks)
                rows.append(Rows((at, at + size), (begin + first, begin + last)))
                at, begin = at + size, begin + whole
            self.firsts.append(taken)
            places.append(_joined(rows))
            taken += count
        return places

    def _loader(self, output: Output) -> Callable[..., None]:
        def load(param: Any, tensor: torch.Tensor, shard_id: Any = None) -> None:
            part = self._part(shard_id)
            check(self.prefix, self.parts[part].outputs[output.suffix], tensor)
            self._refuse_unless(self._load, output, param, tensor, part)

        return load

    def _part(self, shard_id: Any) -> int:
        """The part that vLLM hands over: all, one, or several that the file has merged."""
        if shard_id is None:
            if len(self.parts) > 1:
                raise Refused(f"{self.prefix}: its parts lie merged in the file")
            return 0
        first: Any = shard_id[0] if isinstance(shard_id, tuple) else shard_id
        return bisect_right(self.firsts, _SHARDS.get(first, first)) - 1

    def _load(self, output: Output, param: torch.Tensor, tensor: torch.Tensor, part: int) -> None:
        packed = self.parts[part]
        for rows in self.places[part]:
            if self.mine.per.get(output.suffix) == (0, 0):
                tensor = tensor.to(param.device, copy=True)  # one number, which is compared
                self._check_same(output, param, tensor)
            mine = rows.here[1] - rows.here[0]
            if not self.filling.takes(output.suffix, param, mine) or output.grid is None:
                continue  # of constants, which the kernel makes itself, none is kept
            k = self.mine.box[2]
            columns = columns_of_rank(packed.box[2], k, self.rank, self.ranks)
            copy_tiles(
                param.data,
                Place(output, self.mine.box, rows.here, (0, k)),
                tensor,
                Place(packed.outputs[output.suffix], packed.box, rows.there, columns),
            )

    def _check_same(self, output: Output, param: torch.Tensor, tensor: torch.Tensor) -> None:
        """The kernel takes one number for all parts: a later one must have that of the first."""
        if param.is_meta or not self.filling.begun(output.suffix):
            return
        if not torch.equal(param, tensor):
            raise Refused(
                f"{self.prefix}: its parts have other numbers in {output.suffix}, and vLLM holds "
                "them as one",
                hint="convert them together, from a source whose global scales they share",
            )

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """No byte moves."""
        if is_weights_pre_processed():
            return
        staging.flush()
        self.filling.check()
        self.filling.again()
        support = LINEAR[self.parts[0].format]
        for suffix, output in self.mine.outputs.items():
            name = self.stored + suffix
            if output.grid is None:
                del layer._parameters[name]  # the kernel makes these words itself
                continue
            data = support.view(suffix, layer._parameters[name].data, self.mine.box)
            rename(layer, name, support.names.get(suffix, suffix), data)
        support.ready(layer, self.kernel)
        account.tell()

    def apply(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.kernel.apply_weights(layer, x, bias)
